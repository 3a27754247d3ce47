"""`spotkeep init` and `spotkeep cdk`: a project of a team, and the command line that deploys it."""

from pathlib import Path
from typing import Annotated

import typer

from spotkeep_cli.commands.parameters import invocation_of
from spotkeep_cli.errors import UsageError, local_failures


def init(
    target: Annotated[
        Path, typer.Argument(help="The folder of the app, or a training script.", metavar="FOLDER|SCRIPT.py")
    ],
) -> None:
    """Write a CDK app into a new folder, or a job file for a training script. Overwrites nothing."""
    from spotkeep_cli.init import main

    raise typer.Exit(main([str(target)]))


def help_page(
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="A page, or a command.", show_default="the list of pages")
    ] = None,
    section: Annotated[
        list[str] | None, typer.Argument(metavar="WORDS", help="Words of a heading.", show_default="the whole page")
    ] = None,
) -> None:
    """Print a page of the documentation, a section of it, or the help of a command."""
    from spotkeep_cli.help_pages import main

    raise typer.Exit(main([*([] if topic is None else [topic]), *(section or ())]))


def cdk(
    context: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(help="Words for it, for example deploy --all.", metavar="WORDS...")
    ] = None,
) -> None:
    """Run the pinned CDK command line on the app of this folder. With --local it reaches the local AWS alone."""
    from spotkeep_cli.aws.connection import app_directory, app_to_deploy, running_local_aws
    from spotkeep_local.cdk import run_command_line

    options = invocation_of(context).options
    local = running_local_aws() if options.local else None
    # An account gets the settings of a project. A local AWS also gets the app that the wheel carries.
    project = app_directory() if local is None else app_to_deploy()
    if project is None:
        raise UsageError("there is no project here or above", hint="spotkeep init my-team && cd my-team")
    named = (("AWS_PROFILE", options.profile), ("AWS_REGION", options.region), ("CDK_DEFAULT_REGION", options.region))
    variables = {name: value for name, value in named if value is not None}
    with local_failures():
        code = run_command_line([*(words or ()), *context.args], project_dir=project, local=local, variables=variables)
    raise typer.Exit(code)
