"""The findings of a rehearsal about the deployment's permissions.

They are in `.spotkeep/rehearsal/permissions.json`. This module draws their tables.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table
from rich.text import Text

from spotkeep_cli.errors import UsageError
from spotkeep_cli.rendering.quantities import counted
from spotkeep_local.iam.report import REPORTS
from spotkeep_local.iam.uses import JUDGING_TIME
from spotkeep_local.principals import ADMINISTRATOR

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from rich.console import RenderableType

    from spotkeep_local.iam.report import Denied, IdentityReport
    from spotkeep_local.iam.uses import JudgingTime

FILE_NAME = "permissions.json"
_READS_OF_ONE_OBJECT = ("s3.HeadObject", "s3.GetObject")
_NOT_OF_THE_DEPLOYMENT = ("cdk-", "AWSServiceRole")
_RANDOM: Final = re.compile(r"(?<=[a-z])[0-9A-F]{8}-[0-9A-Za-z]{10,13}$")
"""The hash that the CDK puts behind a construct's path, and the text that CloudFormation puts behind that hash."""


def of_deployment(reports: Sequence[IdentityReport]) -> list[IdentityReport]:
    """Return the reports of the deployment's roles and of its user.

    The deploying identity and AWS's own roles are not among them.
    """
    return [report for report in reports if is_of_deployment(report.name)]


def is_of_deployment(identity: str) -> bool:
    """Return True for a role or user that is neither the deploying identity nor one of AWS's own."""
    return identity != ADMINISTRATOR and not identity.startswith(_NOT_OF_THE_DEPLOYMENT)


def readable_name(role: str) -> str:
    """Return the name of a role without its random end."""
    return _RANDOM.sub("", role)


def readable_names(names: Iterable[str]) -> Mapping[str, str]:
    """Return names of roles without their random ends. Names that two roles would share keep theirs.

    Args:
        names: As IAM knows them.
    """
    short = {name: readable_name(name) for name in names}
    taken = list(short.values())
    return {name: name if taken.count(readable) > 1 else readable for name, readable in short.items()}


def since(reports: Sequence[IdentityReport], *, earlier: Sequence[IdentityReport]) -> list[IdentityReport]:
    """Return reports with the denials alone that came after earlier reports. The other counts stay as they are.

    Args:
        reports: The reports of a local AWS since it began.
        earlier: Those of an earlier time.
    """
    before = {(report.name, replace(denied, times=0)): denied.times for report in earlier for denied in report.denied}

    def later(name: str, denied: Denied) -> Denied:
        return replace(denied, times=denied.times - before.get((name, replace(denied, times=0)), 0))

    return [
        replace(report, denied=tuple(each for denied in report.denied if (each := later(report.name, denied)).times))
        for report in reports
    ]


def denials(reports: Sequence[IdentityReport]) -> list[str]:
    """Return the denials of the deployment's roles and its user, a line each."""
    return [
        f"{report.name} was denied {denied.action} on {denied.example} ({denied.operation}): {denied.reason}"
        for report in of_deployment(reports)
        for denied in report.denied
        if not _says_what_is_missing(denied)
    ]


def _says_what_is_missing(denied: Denied) -> bool:
    """Return True if a denial is only S3's way to report a missing object.

    A caller may be allowed to read an object but not to list its bucket. S3 denies it the listing when it asks for an
    object that is not there. The caller asked for that answer.
    """
    return denied.action == "s3:ListBucket" and denied.operation in _READS_OF_ONE_OBJECT


def write_permissions(reports: Sequence[IdentityReport], path: Path, *, judging: JudgingTime | None = None) -> None:
    """Write reports as indented JSON, and make the folder where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(permission_document(reports, judging=judging), indent=2) + "\n")


def permission_document(reports: Sequence[IdentityReport], *, judging: JudgingTime | None = None) -> dict[str, Any]:
    """Return reports as JSON.

    The document has each identity, the unused grants of the deployment and the time of the judge.

    Args:
        reports: The reports of all roles and users.
        judging: The time that judging took. None where it was not measured.
    """
    return {
        "identities": REPORTS.dump_python(list(reports), mode="json"),
        "not_used": [
            {"identity": report.name, "action": grant.action, "statement": grant.statement}
            for report in of_deployment(reports)
            for grant in report.unused
        ],
        "judging": None if judging is None else JUDGING_TIME.dump_python(judging, mode="json"),
    }


def read_permissions(path: Path) -> tuple[list[IdentityReport], JudgingTime | None]:
    """Read the file of `write_permissions`, which has the reports and the time of judging.

    Raises:
        UsageError: No rehearsal has written the file, or its content is not a rehearsal's.
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


def summary_document(reports: Sequence[IdentityReport]) -> list[dict[str, Any]]:
    """Return the calls, the denials and the unused grants of each role and of the user, as numbers."""
    reports = of_deployment(reports)
    names = readable_names(report.name for report in reports)
    return [
        {
            "identity": names[report.name],
            "calls": sum(called.times for called in report.granted),
            "denied": sum(each.times for each in report.denied if not _says_what_is_missing(each)),
            "unused_grants": len(report.unused),
        }
        for report in reports
    ]


def permission_summary(
    reports: Sequence[IdentityReport], *, judging: JudgingTime | None = None
) -> Iterator[RenderableType]:
    """Draw a line for each role and user, the time of judging, and the denials."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("role or user", overflow="fold")
    for column in ("calls", "denied", "not used here"):
        table.add_column(column, justify="right")
    for each in summary_document(reports):
        denied = f"{each['denied']:,}" if each["denied"] else ""
        table.add_row(each["identity"], f"{each['calls']:,}", denied, f"{each['unused_grants']:,}")
    yield table
    if judging is not None:
        yield judging_line(judging)
    for line in denials(reports):
        yield Text(line, style="red")


def judging_line(judging: JudgingTime) -> str:
    """Return the time of judging as a line, including the deploying identity."""
    mean_ms, slowest_ms = 1000 * judging.seconds / max(judging.calls, 1), 1000 * judging.slowest_seconds
    judged = f"{counted(judging.calls, 'call')} judged in {judging.seconds:.2f} s of processor time"
    return f"{judged}: {mean_ms:.2f} ms each, {slowest_ms:.0f} ms the slowest"


def permission_tables(reports: Sequence[IdentityReport]) -> Iterator[RenderableType]:
    """Draw the permissions of each role and user.

    A table has each permission that it asked for, the policy that granted it, and the unused grants.
    """
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
    """Draw the grants that this rehearsal did not use."""
    if report.unused:
        unused = counted(len(report.unused), "grant")
        yield f"{unused} that this rehearsal did not use (`spotkeep help roles` says why each stays):"
        for grant in report.unused:
            yield f"  {grant.action}  {grant.statement}"
