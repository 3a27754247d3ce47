"""`spotkeep savings`: what spot saved, counted honestly (I8)."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from spotkeep_cli.commands.parameters import AsJson, invocation_of
from spotkeep_cli.errors import NoConnectionError, UsageError
from spotkeep_cli.savings.report import GroupedBy
from spotkeep_cli.terminal import NextStep, Terminal

if TYPE_CHECKING:
    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_cli.savings.report import RunStorage

MOST_RUNS = 10_000


def savings(
    context: typer.Context,
    *,
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Only runs created since: 7d, 12h, or a date.", show_default=False),
    ] = None,
    owner: Annotated[str | None, typer.Option(help="Only this owner's.", show_default=False)] = None,
    by: Annotated[GroupedBy, typer.Option(help="The subject of a row.")] = GroupedBy.RUN,
    as_json: AsJson = False,
) -> None:
    """Compare the cost of each run with an uninterrupted on-demand run of the same work."""
    from spotkeep_cli.savings.report import report_savings
    from spotkeep_cli.savings.table import savings_table

    invocation = invocation_of(context)
    start = parse_since(since, now=invocation.seams.now()) if since else None
    terminal = Terminal(as_json=as_json)
    deployment = invocation.deployment()
    unreadable: dict[str, str] = {}
    runs = deployment.table.runs.list(owner=owner, limit=MOST_RUNS, unreadable=unreadable)
    terminal.remark_unreadable(unreadable)
    book = deployment.table.deployment.price_book(deployment.region)
    with terminal.remarks.status("adding up what is stored"):
        storage, not_seen = _storage(deployment, now=invocation.seams.now())
    if not_seen:
        terminal.remark(f"Storage is not counted: {not_seen}")
    report = report_savings(
        (run for run in runs if start is None or run.created_at >= start),
        by=by,
        storage=storage,
        s3_usd_per_gigabyte_month=None if book is None else book.storage.s3_standard,
    )
    if as_json:
        terminal.give_json(report.as_document())
        return
    if not report.lines:
        terminal.show("No run with a bill yet." if start is None else f"No run with a bill since {since}.")
        terminal.show_next(NextStep(command=invocation.command("ps"), what="runs at work"))
        return
    terminal.show(savings_table(report, width=terminal.people.width))
    dearest = max(report.lines, key=lambda line: line.cost.billed_seconds)
    terminal.show_next(
        NextStep(command=invocation.command(f"describe {dearest.run.run}"), what="the bill of the largest"),
        NextStep(command=invocation.command("savings --json"), what="the same for a spreadsheet"),
    )


def _storage(deployment: "DeploymentClient", *, now: datetime) -> "tuple[dict[str, RunStorage] | None, str | None]":
    """Return the stored data of each run, or the reason why nothing shows them. The rest of the bill stays."""
    from spotkeep_cli.savings.report import storage_by_run

    try:
        return storage_by_run(deployment.stored_versions(), now=now), None
    except NoConnectionError as error:
        return None, error.message


def parse_since(text: str, *, now: datetime) -> datetime:
    """Return the time meant by `7d`, `12h`, `2026-11-01` or `2026-11-01T08:00:00Z`. Without a zone it is UTC.

    Raises:
        UsageError: It is neither.
    """
    from spotkeep_jobs.document.times import parse_duration
    from spotkeep_jobs.errors import DurationError

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            return now - timedelta(seconds=parse_duration(text))
        except (DurationError, OverflowError) as error:
            raise UsageError(
                f"--since takes a duration or a date, found {text!r}",
                hint="for example: --since 7d, --since 2026-11-01",
            ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
