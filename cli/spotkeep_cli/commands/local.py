"""`spotkeep local up|down|status|env|image`: the local AWS of this project, no account needed."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotkeep_cli.commands.parameters import AsJson, invocation_of
from spotkeep_cli.errors import local_failures
from spotkeep_cli.terminal import NextStep, Terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotkeep_local.cdk import CdkProgress
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
        typer.Option(min=1, max=65535, help="Where to listen, on 127.0.0.1.", show_default="4566 or a free one"),
    ] = None,
    deploy: Annotated[bool, typer.Option("--deploy/--no-deploy", help="Also deploy Spotkeep's app to it.")] = True,
    time_scale: Annotated[
        float, typer.Option(min=1, max=1000, help="How many times faster than AWS's its EC2 is: notices, volumes.")
    ] = 1.0,
    batch_tags: Annotated[
        bool,
        typer.Option("--batch-tags/--no-batch-tags", help="Its AWS Batch hands a job's tags on to its training jobs."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Start the local AWS and deploy Spotkeep's app to it."""
    from spotkeep_cli.aws.connection import app_directory, local_state_directory
    from spotkeep_cli.rendering.progress_bars import showing_deployment
    from spotkeep_local import lifecycle
    from spotkeep_local.options import ServerOptions

    terminal = Terminal(as_json=as_json)
    deployment = invocation_of(context).options.deployment
    project = app_directory() if deploy else None
    with local_failures():
        # Agents ask the metadata every 5 s: of a notice that takes two seconds they would not hear.
        options = ServerOptions(
            time_scale=time_scale,
            agent_time_scale=min(time_scale, _MOST_AGENT_SCALE),
            batch_hands_tags_on=batch_tags,
        )
        local = lifecycle.start(local_state_directory(), port, options, on_waiting=terminal.remark)
        if project is not None:
            with showing_deployment(terminal.remarks) as on_progress:
                _deploy(local, project=project, deployment=deployment, on_progress=on_progress)
    if as_json:
        terminal.give_json(_as_document(local, deployed=project is not None))
        return
    terminal.show(f"The local AWS is up at {local.endpoint_url} (process {local.pid}).")
    if project is not None:
        terminal.show(f"{deployment} is deployed to it.")
        terminal.show_next(
            NextStep(command="spotkeep --local launch job.yaml", what="launch a job on it"),
            NextStep(command="spotkeep local down", what="stop it"),
        )
        return
    if deploy:
        terminal.remark(
            "No checkout of Spotkeep is here or above, and this spotkeep has none: nothing was deployed to it."
        )
    terminal.show_next(
        NextStep(command='eval "$(spotkeep local env)"', what="let any AWS client use it"),
        NextStep(command="spotkeep local down", what="stop it"),
    )


@app.command()
def down(context: typer.Context, *, as_json: AsJson = False) -> None:
    """Stop the local AWS. What is in it stays for the next time."""
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
    """Say whether the local AWS runs, and where. Exit code 5 when it does not."""
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
        bool, typer.Option("--administrator", help="Call as who deploys (`cdk`), not as who trains.")
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
