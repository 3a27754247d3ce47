"""Commands that steer the local AWS and its EC2 capacity, `spotkeep local` and `spotkeep local ec2`."""

import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotkeep_cli.commands.parameters import AsJson, invocation_of
from spotkeep_cli.errors import LocalFailureError, UsageError, local_failures
from spotkeep_cli.terminal import NextStep, Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from spotkeep_local.cdk import CdkProgress
    from spotkeep_local.control import FleetControl
    from spotkeep_local.ec2.market import SpotPoolChange
    from spotkeep_local.lifecycle import LocalAws

app = typer.Typer(help="Start, stop and inspect the local AWS.", no_args_is_help=True)

_MOST_AGENT_SCALE = 20.0
_NEXT_WITHOUT_IT = NextStep(command="spotkeep local up", what="start it")


@app.command()
def up(
    context: typer.Context,
    *,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help="The port on 127.0.0.1.", show_default="4566 or a free one"),
    ] = None,
    deploy: Annotated[bool, typer.Option("--deploy/--no-deploy", help="Also deploy Spotkeep's app to it.")] = True,
    time_scale: Annotated[
        float, typer.Option(min=1, max=1000, help="The speed of its EC2 against AWS's, for notices and volumes.")
    ] = 1.0,
    batch_tags: Annotated[
        bool,
        typer.Option("--batch-tags/--no-batch-tags", help="Its AWS Batch hands a job's tags on to its training jobs."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start the local AWS and deploy Spotkeep's app to it."""
    from spotkeep_cli.aws.connection import LOCAL_STATE_VARIABLE, app_to_deploy, local_state_directory
    from spotkeep_cli.rehearsal.deployment import is_rehearsed_on
    from spotkeep_cli.rendering.progress_bars import showing_deployment
    from spotkeep_local import lifecycle
    from spotkeep_local.options import ServerOptions

    terminal = Terminal(as_json=as_json)
    state = local_state_directory()
    if is_rehearsed_on(state):
        raise LocalFailureError(
            f"a rehearsal uses the local AWS in {state}: a deployment would change it, and it may stop the server",
            hint="look at it: spotkeep --local ps; wait for its end; or take a local AWS of its own: "
            f"{LOCAL_STATE_VARIABLE}=FOLDER spotkeep local up",
        )
    found = lifecycle.status(state)
    deployment = invocation_of(context).options.deployment
    project = app_to_deploy() if deploy else None
    with local_failures():
        # Agents ask the metadata every 5 s: of a notice that takes two seconds they would not hear.
        options = ServerOptions(
            time_scale=time_scale,
            agent_time_scale=min(time_scale, _MOST_AGENT_SCALE),
            batch_hands_tags_on=batch_tags,
        )
        local = lifecycle.start(state, port, options, on_waiting=terminal.remark)
        if project is not None:
            with showing_deployment(terminal.remarks) as on_progress:
                _deploy(local, project=project, deployment=deployment, on_progress=on_progress)
    if as_json:
        terminal.give_json(_as_document(local, deployed=project is not None))
        return
    terminal.show(f"The local AWS is up at {local.endpoint_url} (process {local.pid}).")
    if found is not None:
        terminal.show("It ran already, with the settings of its start.")
    if project is not None:
        terminal.show(f"{deployment} is deployed to it.")
        terminal.show_next(
            NextStep(command="spotkeep --local launch job.yaml", what="launch a job on it"),
            NextStep(command="spotkeep local down", what="stop it"),
        )
        return
    terminal.show_next(
        NextStep(command='eval "$(spotkeep local env)"', what="let any AWS client use it"),
        NextStep(command="spotkeep local down", what="stop it"),
    )


@app.command()
def down(context: typer.Context, *, as_json: AsJson = False) -> None:
    """Stop the local AWS. Its content stays for the next time."""
    from spotkeep_cli.aws.connection import local_state_directory
    from spotkeep_local import lifecycle

    del context
    terminal = Terminal(as_json=as_json)
    with local_failures():
        stopped = lifecycle.stop(local_state_directory())
    if as_json:
        terminal.give_json({"stopped": stopped})
        return
    terminal.show("The local AWS is stopped; its state stays." if stopped else "The local AWS was not running.")
    terminal.show_next(NextStep(command="spotkeep local up", what="start it again"))


@app.command()
def status(context: typer.Context, *, as_json: AsJson = False) -> None:
    """Show the address of the local AWS. Exit code 5 when it does not run."""
    from spotkeep_cli.aws.connection import connect, local_state_directory
    from spotkeep_cli.aws.connection_options import ConnectionOptions
    from spotkeep_cli.errors import NoConnectionError
    from spotkeep_local import lifecycle

    terminal = Terminal(as_json=as_json)
    name = invocation_of(context).options.deployment
    local = lifecycle.status(local_state_directory())
    if local is None:
        if as_json:
            terminal.give_json({"running": False})
        else:
            terminal.show("The local AWS is not running.")
            terminal.show_next(_NEXT_WITHOUT_IT)
        raise typer.Exit(NoConnectionError.exit_code)
    try:
        connect(ConnectionOptions(deployment=name, local=True))
        deployed = True
    except NoConnectionError:
        deployed = False
    if as_json:
        terminal.give_json(_as_document(local, deployed=deployed))
        return
    from spotkeep_cli.rendering.columns import facts

    rows = [
        ("local AWS", f"up at {local.endpoint_url}"),
        ("process", str(local.pid)),
        ("account", f"{local.account_id} in {local.region}"),
        ("state", str(local.state_dir)),
        ("deployed", name if deployed else f"nothing as {name}"),
    ]
    terminal.show(facts(rows, indent=0))
    deploy_it = NextStep(command="spotkeep local up", what="deploy to it")
    list_runs = NextStep(command="spotkeep --local ps", what="its runs")
    terminal.show_next(list_runs if deployed else deploy_it, NextStep(command="spotkeep local down", what="stop it"))


@app.command()
def env(
    context: typer.Context,
    *,
    administrator: Annotated[
        bool, typer.Option("--administrator", help="Call as the administrator who deploys (`cdk`), not as a user.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the shell lines that make any AWS client, and `spotkeep --local`, use the local AWS."""
    from spotkeep_cli.aws.connection import LOCAL_STATE_VARIABLE, running_local_aws

    del context
    terminal = Terminal(as_json=as_json)
    local = running_local_aws()
    key = local.keys.administrator if administrator else local.keys.developer
    environment = {**local.environment(key=key), LOCAL_STATE_VARIABLE: str(local.state_dir)}
    if as_json:
        terminal.give_json(environment)
        return
    # Evaluated by a shell: nothing else may be on standard output.
    typer.echo("unset AWS_PROFILE AWS_SESSION_TOKEN")
    for name, value in sorted(environment.items()):
        typer.echo(f"export {name}={shlex.quote(value)}")
    if terminal.results.is_terminal:
        terminal.remark('# Use it: eval "$(spotkeep local env)"')


@app.command()
def image(
    context: typer.Context,
    image: Annotated[str, typer.Argument(help="The image, with or without its registry: sagemaker-xgboost:1.7-1.")],
    program: Annotated[list[str], typer.Argument(help="The program and its arguments; `train` follows them.")],
) -> None:
    """Name the program of this machine that runs in jobs without a command, in place of an image's own entry point."""
    from spotkeep_cli.aws.connection import running_local_aws
    from spotkeep_local.control import LocalControl

    del context
    LocalControl(running_local_aws()).image_program(image, program)
    Terminal(as_json=False).show(f"{image} runs {shlex.join([*program, 'train'])}.")


def _deploy(local: "LocalAws", *, project: Path, deployment: str, on_progress: "Callable[[CdkProgress], None]") -> None:
    from spotkeep_cli.account.local_people import let_developer_train
    from spotkeep_local import cdk

    cdk.bootstrap(local, project_dir=project, on_progress=on_progress)
    cdk.deploy(local, project_dir=project, context={"deployment": deployment}, on_progress=on_progress)
    let_developer_train(local, deployment=deployment)


def _as_document(local: "LocalAws", *, deployed: bool) -> dict[str, object]:
    return {
        "running": True,
        "endpoint_url": local.endpoint_url,
        "port": local.port,
        "pid": local.pid,
        "account_id": local.account_id,
        "region": local.region,
        "state_dir": str(local.state_dir),
        "deployed": deployed,
    }


ec2_app = typer.Typer(help="Show the local EC2, and take its capacity away.", no_args_is_help=True)

_ANY = "any"
_MOST_CONSOLE_BYTES = 8 * 1024 * 1024
_LIST_INSTANCES = NextStep(command="spotkeep local ec2 instances", what="see what becomes of them")

InstanceType = Annotated[str | None, typer.Option("--type", help="Of this instance type alone.", show_default="all")]
WithoutNotice = Annotated[bool, typer.Option("--without-notice", help="Cut the power at once, without a notice.")]


@ec2_app.command()
def instances(*, as_json: AsJson = False) -> None:
    """List the local EC2's instances, ended ones of the last hour included."""
    from spotkeep_cli.rendering.lists import instance_list

    terminal = Terminal(as_json=as_json)
    found = sorted(_instances(), key=lambda instance: (instance["LaunchTime"], instance["InstanceId"]))
    documents = [_instance_document(instance) for instance in found]
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


@ec2_app.command()
def console(instance: Annotated[str, typer.Argument(help="An instance's id.", metavar="INSTANCE")]) -> None:
    """Print the output of an instance's user data."""
    from pathlib import Path

    from spotkeep_fleet.printable_text import printable
    from spotkeep_local.hosts.written_files import read_end

    with local_failures():
        path = Path(_control().instance_facts(instance).console)
    if path.exists():
        text = read_end(path, most_bytes=_MOST_CONSOLE_BYTES).decode(errors="replace")
        typer.echo(printable(text, colours=sys.stdout.isatty()), nl=False)


@ec2_app.command()
def interrupt(
    instance: Annotated[str, typer.Argument(help="A spot instance's id.", metavar="INSTANCE")],
    *,
    without_notice: WithoutNotice = False,
    notice_seconds: Annotated[
        float | None,
        typer.Option(min=0, help="The seconds of its notice.", show_default="120, divided by the time scale"),
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


@ec2_app.command()
def capacity(
    zone: Annotated[str, typer.Argument(help="For example us-east-1a.", metavar="ZONE")],
    instances: Annotated[str, typer.Argument(help=f"The spot instances that it has room for, {_ANY} for no limit.")],
    *,
    instance_type: InstanceType = None,
    without_notice: WithoutNotice = False,
    as_json: AsJson = False,
) -> None:
    """Set the spot capacity of a zone. Instances that it has no room for are taken away."""
    from spotkeep_local.ec2.market import SpotPoolChange

    if instances != _ANY and not instances.isdecimal():
        raise UsageError(f"{instances!r} is no number of instances", hint=f"give a whole number, or {_ANY}")
    room = -1 if instances == _ANY else int(instances)
    with local_failures():
        change = SpotPoolChange(zone=zone, instance_type=instance_type, capacity=room, notice=not without_notice)
        _control().change_pool(change)
    _report(change, f"{zone} has room for {instances} spot instances.", as_json=as_json)


@ec2_app.command()
def price(
    zone: Annotated[str, typer.Argument(help="For example us-east-1a.", metavar="ZONE")],
    usd: Annotated[float, typer.Argument(help="USD an hour.", metavar="USD")],
    *,
    instance_type: InstanceType = None,
    as_json: AsJson = False,
) -> None:
    """Set the price of a spot instance in a zone."""
    from spotkeep_local.ec2.market import SpotPoolChange

    with local_failures():
        change = SpotPoolChange(zone=zone, instance_type=instance_type, price_usd=usd)
        _control().change_pool(change)
    _report(change, f"A spot instance costs {usd:g} USD an hour in {zone}.", as_json=as_json)


@ec2_app.command()
def replay(
    traces: Annotated[
        list[str], typer.Argument(help="A recorded market for each zone, as CSV.", metavar="ZONE=FILE...")
    ],
    *,
    tick_seconds: Annotated[float, typer.Option(min=0.01, help="The seconds of a tick of the recording here.")] = 1.0,
    first_tick: Annotated[int, typer.Option(min=0, help="The tick to begin with.")] = 0,
    ticks: Annotated[int | None, typer.Option(min=1, help="The number of ticks to play.", show_default="all")] = None,
    without_notice: WithoutNotice = False,
    as_json: AsJson = False,
) -> None:
    """Replay a recorded spot market. It begins now, and replaces every earlier script."""
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


def _instance_document(instance: dict[str, Any]) -> dict[str, Any]:
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
