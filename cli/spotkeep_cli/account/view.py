"""Shows the account to a person.

It has the findings with cost or risk and remedy, the quotas and the service-linked roles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from spotkeep_cli.account.check import Usage
from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.columns import Column, table_that_fits
from spotkeep_jobs.record.deployment_records import OrphanOutcome, OrphanRule

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import RenderableType
    from rich.table import Table

    from spotkeep_cli.account.check import AccountCheck, Quota
    from spotkeep_jobs.record.deployment_records import Finding, OrphanReport

_DOES = {OrphanRule.REPORT: "reports it", OrphanRule.REMOVE: "removes it", OrphanRule.RECONCILE: "deletes it"}
_FIRST_USES = {
    "ec2fleet.amazonaws.com": "first fleet",
    "spot.amazonaws.com": "first spot request",
    "fis.amazonaws.com": "first drill",
}


def account_report(check: AccountCheck, *, now: datetime, width: int) -> list[RenderableType]:
    """Return the findings in a table, then each finding in words, and the quotas."""
    parts: list[RenderableType] = []
    if check.findings:
        parts.append(findings_table(check, now=now, width=width))
        parts += [part for each in check.findings for part in _in_words(each)]
        parts.append("")
    parts += [Text(f"! {name} could not be read: {why}", style="yellow") for name, why in check.unreadable.items()]
    parts += [
        Text(f"! {run}: {each}", style="yellow") for run, said in sorted(check.surprises.items()) for each in said
    ]
    if check.quotas:
        parts += [quotas_table(check.quotas, width=width)]
    for quota, needed in check.missing_quotas:
        may_have = f"! the account may have {quota.instances or 'no'} {quota.instance_type} for a {quota.usage}"
        parts += [
            Text(f"{may_have}, and {needed} may be needed at a time", style="yellow"),
            _to_copy(quota.request(needed)),
        ]
    for each in check.nodes_quotas:
        if each.is_missing:
            room = f"! {each.name}: the account may have {each.vcpus} vCPUs, and {each.nodes} have {each.needed}"
            parts += [Text(room, style="yellow"), _to_copy(each.request)]
    for role in check.service_roles:
        if role.exists is False:
            parts += [
                Text(f"! without {role.name} the account's {_FIRST_USES[role.service]} fails", style="yellow"),
                _to_copy(role.creation),
            ]
        elif role.exists is None:
            parts.append(Text(f"Whether the account has {role.name} could not be checked: {role.problem}", style="dim"))
    if check.quotas_unreadable is not None:
        parts.append(Text(f"Quotas could not be read: {check.quotas_unreadable}", style="dim"))
    parts.append(Text(last_pass(check.last_report, now=now), style="dim"))
    return parts


def findings_table(check: AccountCheck, *, now: datetime, width: int) -> Table:
    """Return one row a finding, with its kind, its resource, its age, its cost and the controller's action."""
    found = check.findings
    columns = [
        Column(heading="FINDING", cells=[_marked(each) for each in found], footer="together"),
        Column(heading="SINCE", cells=[quantities.age(each.since, now=now) for each in found], justify="right"),
        Column(
            heading="COSTS",
            cells=[_costs(each.usd_per_hour) for each in found],
            footer=_costs(check.usd_per_hour),
            justify="right",
        ),
        Column(heading="THE CONTROLLER", cells=[_DOES[each.rule] for each in found], importance=1),
    ]
    return table_that_fits(columns, width=width)


def quotas_table(quotas: tuple[Quota, ...], *, width: int) -> Table:
    """Return one row an instance type and one column a usage, with the number of instances at the same time."""
    types = sorted({quota.instance_type for quota in quotas})
    instances = {(quota.instance_type, quota.usage): str(quota.instances) for quota in quotas}

    def column(heading: str, usage: Usage) -> Column:
        cells = [instances.get((each, usage), quantities.UNKNOWN) for each in types]
        return Column(heading=heading, cells=cells, justify="right")

    columns = [
        Column(heading="QUOTA OF", cells=types),
        column("SPOT", Usage.SPOT),
        column("ON DEMAND", Usage.ON_DEMAND),
        column("WARM POOL", Usage.WARM_POOL),
    ]
    return table_that_fits(columns, width=width)


def last_pass(report: OrphanReport | None, *, now: datetime) -> str:
    """Return the time of the controller's last pass over orphans, and its result."""
    if report is None:
        return "The controller has made no pass over orphans yet."
    removed, would = report.count(OrphanOutcome.REMOVED), report.count(OrphanOutcome.WOULD_REMOVE)
    did = f"removed {removed}"
    if not report.removes:
        did = f"would have removed {would} (the setting orphans is report)"
    failed = f", failed to remove {report.count(OrphanOutcome.FAILED)}" if report.count(OrphanOutcome.FAILED) else ""
    found = quantities.counted(len(report.handled) + report.left_out, "finding")
    return f"The controller's last pass was {quantities.age(report.begun_at, now=now)} ago: {found}, {did}{failed}."


def _in_words(finding: Finding) -> list[RenderableType]:
    mark, style = ("✗", "red") if finding.wrong else ("·", "dim")
    says = finding.says[0].upper() + finding.says[1:]
    words = Text.assemble((f"{mark} ", style), says, ": ", (finding.risk, "yellow"), ".")
    return ["", words, _to_copy(finding.mend)]


def _to_copy(command: str) -> RenderableType:
    """Return a command on a line of its own. The line is never wrapped, so that it can be copied."""
    line = Text.assemble("    ", (command, "bold"), no_wrap=True, overflow="ignore")
    return Group(line)  # A console joins texts that it prints, and wraps what comes of it.


def _marked(finding: Finding) -> Text:
    return Text(finding.kind.value, style="red" if finding.wrong else "")


def _costs(usd_per_hour: float | None) -> str:
    return quantities.UNKNOWN if usd_per_hour is None else f"{quantities.dollars(usd_per_hour)}/h"
