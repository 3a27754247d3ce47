"""What a rehearsal found of the deployment's permissions: `.spotkeep/rehearsal/permissions.json`, and its tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from spotkeep_cli.errors import UsageError
from spotkeep_cli.rehearsal.kept_grants import Kept, kept_for, readable_names
from spotkeep_cli.rendering.quantities import counted
from spotkeep_local.iam.report import REPORTS
from spotkeep_local.iam.uses import JUDGING_TIME
from spotkeep_local.principals import ADMINISTRATOR

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rich.console import RenderableType

    from spotkeep_local.iam.report import Denied, Grant, IdentityReport
    from spotkeep_local.iam.uses import JudgingTime

FILE_NAME = "permissions.json"
_READS_OF_ONE_OBJECT = ("s3.HeadObject", "s3.GetObject")
_NOT_OF_THE_DEPLOYMENT = ("cdk-", "AWSServiceRole")


def of_deployment(reports: Sequence[IdentityReport]) -> list[IdentityReport]:
    """Return the reports of the deployment's roles and of its user: not of who deploys, nor of AWS's own roles."""
    return [report for report in reports if is_of_deployment(report.name)]


def is_of_deployment(identity: str) -> bool:
    """Return whether a role or user is neither who deploys nor one of AWS's own."""
    return identity != ADMINISTRATOR and not identity.startswith(_NOT_OF_THE_DEPLOYMENT)


def denials(reports: Sequence[IdentityReport]) -> list[str]:
    """Return what was denied to the deployment's roles and its user, a line each."""
    return [
        f"{report.name} was denied {denied.action} on {denied.example} ({denied.operation}): {denied.reason}"
        for report in of_deployment(reports)
        for denied in report.denied
        if not _says_what_is_missing(denied)
    ]


def _says_what_is_missing(denied: Denied) -> bool:
    """Return whether a denial is only how S3 says that an object is missing.

    A caller that may read an object but not list its bucket is denied the listing when it asks for an object that is
    not there. That is an answer, which the caller asked for.
    """
    return denied.action == "s3:ListBucket" and denied.operation in _READS_OF_ONE_OBJECT


def write_permissions(reports: Sequence[IdentityReport], path: Path, *, judging: JudgingTime | None = None) -> None:
    """Write reports as indented JSON, and make the folder where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(permission_document(reports, judging=judging), indent=2) + "\n")


def permission_document(reports: Sequence[IdentityReport], *, judging: JudgingTime | None = None) -> dict[str, Any]:
    """Return reports as JSON: of every identity, the deployment's grants that nothing used, kept or not, and the time.

    Args:
        reports: The reports of all roles and users.
        judging: What judging took; None where it was not measured.
    """
    document = REPORTS.dump_python(list(reports), mode="json")
    kept, without_reason = [], []
    for report in of_deployment(reports):
        for grant, why in unused_grants(report):
            named = {"identity": report.name, "action": grant.action, "statement": grant.statement}
            if why is None:
                without_reason.append(named)
            else:
                kept.append({**named, "reason": why.reason, "shown_by": why.shown_by})
    time = None if judging is None else JUDGING_TIME.dump_python(judging, mode="json")
    return {"identities": document, "kept": kept, "not_used": without_reason, "judging": time}


def unused_grants(report: IdentityReport) -> list[tuple[Grant, Kept | None]]:
    """Return the grants of a role or user that nothing used, each with why it stays all the same."""
    return [(grant, kept_for(report.name, grant.action)) for grant in report.unused]


def read_permissions(path: Path) -> tuple[list[IdentityReport], JudgingTime | None]:
    """Read what `write_permissions` wrote: the reports, and what judging took.

    Raises:
        UsageError: No rehearsal has written it, or it is not what one writes.
    """
    hint = "rehearse first: spotkeep rehearse job.yaml"
    try:
        document = json.loads(path.read_text())
        time = document.get("judging")
        judging = None if time is None else JUDGING_TIME.validate_python(time)
        return REPORTS.validate_python(document["identities"]), judging
    except FileNotFoundError as error:
        raise UsageError(f"no rehearsal has written {path}", hint=hint) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is not what a rehearsal writes: {error}", hint=hint) from error


def permission_summary(
    reports: Sequence[IdentityReport], *, judging: JudgingTime | None = None
) -> Iterator[RenderableType]:
    """Draw a line for each role and user, what judging took, and what was denied."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("role or user", overflow="fold")
    for column in ("calls", "denied", "grants kept unused", "not used here"):
        table.add_column(column, justify="right")
    reports = of_deployment(reports)
    names = readable_names(report.name for report in reports)
    for report in reports:
        kept = sum(why is not None for _grant, why in unused_grants(report))
        calls = sum(called.times for called in report.granted)
        denied = sum(each.times for each in report.denied if not _says_what_is_missing(each))
        unused = len(report.unused) - kept
        table.add_row(names[report.name], f"{calls:,}", f"{denied:,}" if denied else "", f"{kept:,}", f"{unused:,}")
    yield table
    if judging is not None:
        yield judging_line(judging)
    for line in denials(reports):
        yield Text(line, style="red")


def judging_line(judging: JudgingTime) -> str:
    """Say what judging took, that of who deploys with it."""
    mean_ms, slowest_ms = 1000 * judging.seconds / max(judging.calls, 1), 1000 * judging.slowest_seconds
    judged = f"{counted(judging.calls, 'call')} judged in {judging.seconds:.2f} s of processor time"
    return f"{judged}: {mean_ms:.2f} ms each, {slowest_ms:.0f} ms the slowest"


def permission_tables(reports: Sequence[IdentityReport]) -> Iterator[RenderableType]:
    """Draw, for each role and user, each permission that it asked for, who granted it, and what nothing used."""
    reports = of_deployment(reports)
    names = readable_names(report.name for report in reports)
    for report in reports:
        yield Text(f"\n{names[report.name]}", style="bold")
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in ("operation", "action"):
            table.add_column(column)
        table.add_column("times", justify="right")
        table.add_column("statement")
        for called in report.granted:
            table.add_row(called.operation, called.action, f"{called.times:,}", ", ".join(called.statements))
        for denied in report.denied:
            reason = Text(denied.reason, style="red")
            if _says_what_is_missing(denied):
                reason = Text("no object of that name: so S3 says it to who may not list the bucket", style="dim")
            table.add_row(denied.operation, denied.action, f"{denied.times:,}", reason)
        yield table
        yield from _unused_lines(report)


def _unused_lines(report: IdentityReport) -> Iterator[RenderableType]:
    """Draw what was not used: first what is kept, by its reasons, then the rest."""
    by_reason: dict[Kept, list[str]] = {}
    without_reason = []
    for grant, why in unused_grants(report):
        if why is None:
            without_reason.append(grant)
        else:
            by_reason.setdefault(why, []).append(grant.action)
    for why, actions in by_reason.items():
        yield f"kept: {', '.join(dict.fromkeys(actions))}"
        yield Text(f"  {why.reason} ({why.shown_by})", style="dim")
    if without_reason:
        yield f"{counted(len(without_reason), 'grant')} that this rehearsal did not use:"
        for grant in without_reason:
            yield f"  {grant.action}  {grant.statement}"
