"""`spotkeep local ec2`: the local EC2's instances, and what cannot be decided in AWS."""

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotkeep_cli.commands.parameters import AsJson
from spotkeep_cli.errors import UsageError, local_failures
from spotkeep_cli.terminal import NextStep, Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from spotkeep_local.control import FleetControl
    from spotkeep_local.ec2.market import SpotPoolChange

app = typer.Typer(help="Show the local EC2, and take its capacity away.", no_args_is_help=True)

_ANY = "any"
_MOST_CONSOLE_BYTES = 8 * 1024 * 1024
_LIST_INSTANCES = NextStep(command="spotkeep local ec2 instances", what="see what becomes of them")

InstanceType = Annotated[str | None, typer.Option("--type", help="Of this instance type alone.", show_default="all")]
WithoutNotice = Annotated[bool, typer.Option("--without-notice", help="Cut the power at once, without a notice.")]


@app.command()
def instances(*, as_json: AsJson = False) -> None:
    """List the local EC2's instances, ended ones of the last hour included."""
    from spotkeep_cli.rendering.lists import instance_list

    terminal = Terminal(as_json=as_json)
    found = sorted(_instances(), key=lambda instance: (instance["LaunchTime"], instance["InstanceId"]))
    documents = [_as_document(instance) for instance in found]
    if as_json:
        terminal.give_json({"instances": documents})
        return
    platform = _control().platform()
    if not documents:
        terminal.show("The local EC2 has no instances.")
        return
    terminal.show(instance_list(documents, now=datetime.now(UTC), width=terminal.results.width))
    if platform.reason is not None:
        terminal.remark(f"Instances are processes with directories for volumes: {platform.reason}.")
    live = [document for document in documents if document["state"] == "running"]
    if live:
        name = live[-1]["instance"]
        terminal.show_next(
            NextStep(command=f"spotkeep local ec2 console {name}", what="what its user data printed"),
            NextStep(command=f"spotkeep local ec2 interrupt {name}", what="take it away"),
        )


@app.command()
def console(instance: Annotated[str, typer.Argument(help="An instance's id.", metavar="INSTANCE")]) -> None:
    """Print what an instance's user data printed."""
    from pathlib import Path

    from spotkeep_jobs.printable_text import printable
    from spotkeep_local.hosts.written_files import read_end

    with local_failures():
        path = Path(_control().instance_facts(instance).console)
    if path.exists():
        text = read_end(path, most_bytes=_MOST_CONSOLE_BYTES).decode(errors="replace")
        typer.echo(printable(text, colours=sys.stdout.isatty()), nl=False)


@app.command()
def interrupt(
    instance: Annotated[str, typer.Argument(help="A spot instance's id.", metavar="INSTANCE")],
    *,
    without_notice: WithoutNotice = False,
    notice_seconds: Annotated[
        float | None,
        typer.Option(min=0, help="How long before it gets its notice.", show_default="120, divided by the time scale"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Take a spot instance away, with or without a notice."""
    import time

    if without_notice and notice_seconds is not None:
        raise UsageError("--without-notice and --notice-seconds exclude each other", hint="give one of them")
    terminal = Terminal(as_json=as_json)
    with local_failures():
        gone_at = _control().interrupt(instance, notice=not without_notice, notice_seconds=notice_seconds)
    if as_json:
        terminal.give_json({"instance": instance, "interrupted_at": gone_at, "notice": not without_notice})
        return
    left = max(0.0, gone_at - time.time())
    terminal.show(
        f"{instance} has its notice, and is gone in {left:.0f} s." if not without_notice else f"{instance} is gone."
    )
    terminal.show_next(_LIST_INSTANCES)


@app.command()
def capacity(
    zone: Annotated[str, typer.Argument(help="For example us-east-1a.", metavar="ZONE")],
    instances: Annotated[str, typer.Argument(help=f"How many spot instances it has room for; {_ANY} for no limit.")],
    *,
    instance_type: InstanceType = None,
    without_notice: WithoutNotice = False,
    as_json: AsJson = False,
) -> None:
    """Say how much spot capacity a zone has. Instances that it has no room for are taken away."""
    from spotkeep_local.ec2.market import SpotPoolChange

    if instances != _ANY and not instances.isdecimal():
        raise UsageError(f"{instances!r} is no number of instances", hint=f"give a whole number, or {_ANY}")
    room = -1 if instances == _ANY else int(instances)
    with local_failures():
        change = SpotPoolChange(zone=zone, instance_type=instance_type, capacity=room, notice=not without_notice)
        _control().change_pool(change)
    _report(change, f"{zone} has room for {instances} spot instances.", as_json=as_json)


@app.command()
def price(
    zone: Annotated[str, typer.Argument(help="For example us-east-1a.", metavar="ZONE")],
    usd: Annotated[float, typer.Argument(help="USD an hour.", metavar="USD")],
    *,
    instance_type: InstanceType = None,
    as_json: AsJson = False,
) -> None:
    """Say what a spot instance costs in a zone."""
    from spotkeep_local.ec2.market import SpotPoolChange

    with local_failures():
        change = SpotPoolChange(zone=zone, instance_type=instance_type, price_usd=usd)
        _control().change_pool(change)
    _report(change, f"A spot instance costs {usd:g} USD an hour in {zone}.", as_json=as_json)


@app.command()
def replay(
    traces: Annotated[
        list[str], typer.Argument(help="A recorded market for each zone, as CSV.", metavar="ZONE=FILE...")
    ],
    *,
    tick_seconds: Annotated[float, typer.Option(min=0.01, help="How long a tick of the recording takes here.")] = 1.0,
    first_tick: Annotated[int, typer.Option(min=0, help="Where to begin.")] = 0,
    ticks: Annotated[int | None, typer.Option(min=1, help="How many to play.", show_default="all")] = None,
    without_notice: WithoutNotice = False,
    as_json: AsJson = False,
) -> None:
    """Let the local spot market do what a recorded one did. It begins now, and replaces every earlier script."""
    from spotkeep_local.ec2.market import read_recorded_market

    terminal = Terminal(as_json=as_json)
    changes: list[SpotPoolChange] = []
    with local_failures():
        for zone, path in (_zone_and_file(trace) for trace in traces):
            changes += read_recorded_market(
                path,
                zone=zone,
                tick_seconds=tick_seconds,
                first_tick=first_tick,
                ticks=ticks,
                notice=not without_notice,
            )
        _control().script_market(changes)
    zones = sorted({change.zone for change in changes})
    if as_json:
        terminal.give_json({"zones": zones, "changes": len(changes)})
        return
    seconds = max(change.at_seconds for change in changes)
    terminal.show(f"{len(changes)} changes in {', '.join(zones)}, the last in {seconds:.0f} s.")
    terminal.show_next(_LIST_INSTANCES)


def _control() -> "FleetControl":
    from spotkeep_cli.aws.connection import running_local_aws
    from spotkeep_local.control import FleetControl

    return FleetControl(running_local_aws())


def _instances() -> "Iterator[dict[str, Any]]":
    from spotkeep_cli.aws.connection import running_local_aws

    pages = running_local_aws().session().client("ec2").get_paginator("describe_instances").paginate()
    for page in pages:
        for reservation in page["Reservations"]:
            yield from reservation["Instances"]


def _as_document(instance: dict[str, Any]) -> dict[str, Any]:
    tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
    return {
        "instance": instance["InstanceId"],
        "type": instance["InstanceType"],
        "zone": instance["Placement"]["AvailabilityZone"],
        "market": instance.get("InstanceLifecycle", "on-demand"),
        "state": instance["State"]["Name"],
        "reason": instance.get("StateReason", {}).get("Code", ""),
        "fleet": tags.get("aws:ec2:fleet-id", ""),
        "launched_at": instance["LaunchTime"].timestamp(),
        "volumes": [mapping["Ebs"]["VolumeId"] for mapping in instance.get("BlockDeviceMappings", [])],
    }


def _report(change: "SpotPoolChange", sentence: str, *, as_json: bool) -> None:
    from dataclasses import asdict

    terminal = Terminal(as_json=as_json)
    if as_json:
        terminal.give_json(asdict(change))
        return
    terminal.show(sentence)
    terminal.show_next(_LIST_INSTANCES)


def _zone_and_file(trace: str) -> "tuple[str, Path]":
    from pathlib import Path

    zone, separator, path = trace.partition("=")
    if not separator or not zone or not path:
        raise UsageError(f"{trace!r} is no zone and file", hint="give ZONE=FILE, for example us-east-1a=trace.csv.gz")
    return zone, Path(path)
