"""The `spotkeep` command, with its root options, its commands and the output of every error.

No heavy module is imported here, so that `spotkeep --help` is instant. Each command imports its modules when it runs.
"""

import gc
import sys
import traceback
from collections.abc import Sequence
from importlib import metadata
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.commands import checkpoints as checkpoint_commands
from spotkeep_cli.commands import first_account, instances, job_files, project, rehearse, runs, savings, steering
from spotkeep_cli.commands import local as local_commands
from spotkeep_cli.commands import notifications as notification_commands
from spotkeep_cli.commands import pool as pool_commands
from spotkeep_cli.commands import schedules as schedule_commands
from spotkeep_cli.commands import startup as startup_command
from spotkeep_cli.commands.parameters import CommandWithPages
from spotkeep_cli.errors import CommandLineError, ExitCode, RefusedError, UsageError
from spotkeep_cli.extras import missing_extra
from spotkeep_cli.seams import Invocation, Seams
from spotkeep_cli.terminal import Terminal

if TYPE_CHECKING:
    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_planner.spot_market import SpotMarket

_OBJECTS_UNTIL_GARBAGE = 100_000
_ROOT_FLAGS = ("--local",)
_ROOT_OPTIONS = ("--deployment", "--region", "--profile")


class SpotkeepGroup(TyperGroup):
    """Ends every command the same way, with one line, a hint and a documented exit code."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the root options at any place. People type `spotkeep ps --local`."""
        return super().parse_args(ctx, _root_options_first(args))

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command line, and turn whatever ends it into a line, a hint and an exit code."""
        standalone = kwargs.get("standalone_mode", True)
        try:
            result = super().main(*args, **{**kwargs, "standalone_mode": False})
            code = result if isinstance(result, int) else ExitCode.DONE
        except CommandLineError as error:
            terminal = Terminal(as_json=_wants_json(kwargs.get("args") or sys.argv[1:]))
            if isinstance(error, RefusedError) and terminal.as_json:
                terminal.give_json(error.as_document())
            terminal.show_error(error)
            code = error.exit_code
        except typer.TyperException as error:
            if type(error).__name__ == "NoArgsIsHelpError":
                # Rich has printed the help by now. Else it is the message.
                typer.echo(error.format_message(), nl=False)
                code = ExitCode.DONE
            else:
                Terminal().show_error(_usage_error(error))
                code = error.exit_code
        except typer.Abort:
            code = 130
        except Exception as error:
            unreadable = None if missing_extra(error) else _unreadable_record(error)
            if unreadable is None:
                raise
            Terminal().show_error(unreadable)
            code = unreadable.exit_code
        if not standalone:
            return code
        sys.exit(int(code))


app = typer.Typer(
    name="spotkeep",
    cls=SpotkeepGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(*, value: bool) -> None:
    if value:
        typer.echo(f"spotkeep {metadata.version('spotkeep')}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    *,
    deployment: Annotated[
        str, typer.Option(help="The deployment to talk to.", envvar="SPOTKEEP_DEPLOYMENT", metavar="NAME")
    ] = "spotkeep",
    region: Annotated[str | None, typer.Option(help="Its AWS region.", metavar="REGION", show_default=False)] = None,
    profile: Annotated[
        str | None, typer.Option(help="The AWS profile to use.", metavar="PROFILE", show_default=False)
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", help="Use the local AWS (spotkeep local up).", envvar="SPOTKEEP_LOCAL")
    ] = False,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Train on spare cloud capacity and keep what an interruption would lose."""
    seams = context.obj if isinstance(context.obj, Seams) else Seams(connect=_connect, spot_market=_spot_market)
    context.obj = Invocation(
        options=ConnectionOptions(deployment=deployment, region=region, profile=profile, local=local), seams=seams
    )


def _connect(options: ConnectionOptions) -> "DeploymentClient":
    from spotkeep_cli.aws.connection import connect

    return connect(options)


def _spot_market(options: ConnectionOptions) -> "SpotMarket":
    from spotkeep_cli.aws.connection import spot_market

    return spot_market(options)


_RUNS = "Runs"
_JOB_FILES = "Job files"
_ACCOUNT = "Your account"
_LOCAL = "Without an AWS account"
_PROJECT = "Projects"

app.command(rich_help_panel=_RUNS)(job_files.launch)
app.command(rich_help_panel=_RUNS)(runs.ps)
app.command(rich_help_panel=_RUNS, cls=CommandWithPages)(runs.describe)
app.command(rich_help_panel=_RUNS)(runs.logs)
app.command(rich_help_panel=_RUNS)(startup_command.startup)
app.command(rich_help_panel=_RUNS)(instances.shell)
app.command(rich_help_panel=_RUNS)(steering.stop)
app.command(rich_help_panel=_RUNS)(steering.resume)
app.command(rich_help_panel=_RUNS)(steering.pause)
app.command(rich_help_panel=_RUNS)(runs.best)
app.command(rich_help_panel=_RUNS)(steering.priority)
app.command(rich_help_panel=_RUNS)(instances.drill)
app.command(rich_help_panel=_RUNS)(savings.savings)
app.add_typer(schedule_commands.app, name="schedules", rich_help_panel=_RUNS)
app.add_typer(pool_commands.app, name="pool", rich_help_panel=_RUNS)
app.add_typer(notification_commands.app, name="notifications", rich_help_panel=_RUNS)
app.add_typer(checkpoint_commands.app, name="checkpoints", rich_help_panel=_RUNS)
app.command(rich_help_panel=_JOB_FILES)(job_files.doctor)
# The words that users of other launchers type first.
app.command("validate", hidden=True)(job_files.doctor)
app.command("ls", hidden=True)(runs.ps)
app.command("list", hidden=True)(runs.ps)
app.command("status", hidden=True)(runs.status)
app.command("cancel", hidden=True)(steering.stop)
app.command("run", hidden=True)(job_files.launch)
app.command("submit", hidden=True)(job_files.launch)
app.command(rich_help_panel=_JOB_FILES, cls=CommandWithPages)(job_files.plan)
app.command(rich_help_panel=_JOB_FILES)(rehearse.rehearse)
app.command(rich_help_panel=_JOB_FILES)(rehearse.rehearse_pool)
app.command(rich_help_panel=_JOB_FILES)(rehearse.rehearse_fleet)
app.command(rich_help_panel=_JOB_FILES)(rehearse.rehearse_sweep)
app.command(rich_help_panel=_JOB_FILES)(job_files.schema)
app.command("import", rich_help_panel=_JOB_FILES)(job_files.import_job)
app.command(rich_help_panel=_ACCOUNT)(first_account.first_account)
local_commands.app.add_typer(local_commands.ec2_app, name="ec2")
app.add_typer(local_commands.app, name="local", rich_help_panel=_LOCAL)
app.command(rich_help_panel=_PROJECT)(project.init)
app.command("help", rich_help_panel=_PROJECT)(project.help_page)
app.command(
    rich_help_panel=_PROJECT,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
)(project.cdk)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line.

    Args:
        arguments: The words after `spotkeep`. Those of this process by default.

    Returns:
        The exit code.

    Raises:
        ImportError: An extra of the package is missing (`spotkeep_cli.extras`).
    """
    # Most commands end before there is garbage worth looking for, and to look through all that is imported takes time.
    gc.set_threshold(_OBJECTS_UNTIL_GARBAGE)
    try:
        app(args=None if arguments is None else list(arguments), prog_name="spotkeep")
    except Exception as error:
        if missing_extra(error) is not None:
            raise
        # Python would print the error as it is, with what it quotes of a job's.
        Terminal().remark(traceback.format_exc().rstrip())
        return ExitCode.UNEXPECTED
    finally:
        # Python looks through all that is imported once more when it ends, but not through what is frozen.
        gc.freeze()
    return ExitCode.DONE


def _unreadable_record(error: Exception) -> CommandLineError | None:
    """Return the error of an unreadable record with its remedy. None for another error."""
    from spotkeep_jobs.errors import UnreadableRecordError

    if not isinstance(error, UnreadableRecordError):
        return None
    problem = error.problems[0]
    return CommandLineError(f"the record of {error.what} {problem.problem} (found {problem.found})", hint=problem.fix)


def _usage_error(error: typer.TyperException) -> UsageError:
    message = error.format_message().rstrip(".")
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "spotkeep"
    return UsageError(message, hint=f"{command} --help")


def _wants_json(args: Sequence[str]) -> bool:
    """Return True if a refusal is given as JSON. It is an answer too, and no refused command has given another."""
    return "--json" in args


def _root_options_first(args: list[str]) -> list[str]:
    first: list[str] = []
    rest: list[str] = []
    remaining = iter(args)
    for arg in remaining:
        if arg == "--":
            rest += [arg, *remaining]
        elif arg in _ROOT_FLAGS or arg.startswith(tuple(f"{option}=" for option in _ROOT_OPTIONS)):
            first.append(arg)
        elif arg in _ROOT_OPTIONS:
            value = next(remaining, None)
            if value is None:
                return [arg]  # alone, so that the parser says what it lacks
            first += [arg, value]
        else:
            rest.append(arg)
    return first + rest
