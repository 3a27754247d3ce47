"""The arguments and options that several commands share."""

from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.errors import CommandLineError
from spotkeep_cli.seams import Invocation, Seams


def _known_ids(context: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of runs and sweeps that begin with the typed text. A shell asks for them when it completes."""
    from spotkeep_cli.run_names import known_ids

    options, seams = context.find_root().params, context.find_root().obj
    connection = ConnectionOptions(
        deployment=options.get("deployment") or "spotkeep",
        region=options.get("region"),
        profile=options.get("profile"),
        local=bool(options.get("local")),
    )
    try:
        if isinstance(seams, Seams):
            table = seams.connect(connection).table
        else:
            from spotkeep_cli.aws.connection import connect

            table = connect(connection).table
        return [name for name in known_ids(table) if name.startswith(incomplete)]
    except Exception:  # noqa: BLE001 - a shell shows a traceback in the middle of the user's line
        return []


def _a_run(metavar: str, text: str, *, default: str | None = None) -> Any:
    return typer.Argument(metavar=metavar, help=text, show_default=default or False, autocompletion=_known_ids)


_OF_A_RUN = "The run's id, or the beginning of it."
_OF_A_RUN_OR_SWEEP = "The id of a run or a sweep, or its beginning; SWEEP/17 is a trial."
_NEWEST = "the newest"
RunName = Annotated[str, _a_run("RUN", _OF_A_RUN)]
SweepName = Annotated[str, _a_run("SWEEP", "The sweep's id, or the beginning of it.")]
RunOrSweepName = Annotated[str, _a_run("RUN", _OF_A_RUN_OR_SWEEP)]
NewestRunName = Annotated[str | None, _a_run("[RUN]", _OF_A_RUN, default=_NEWEST)]
NewestRunOrSweepName = Annotated[str | None, _a_run("[RUN]", _OF_A_RUN_OR_SWEEP, default=_NEWEST)]
JobFile = Annotated[Path, typer.Argument(metavar="JOB.YAML", help="The job file.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="FIELD=VALUE", help="Override a field. Dots reach inside. Repeatable.", show_default=False
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")]
IN_THIS_FOLDER = Path("-")
"""The value of `--html` without a file."""
AsPage = Annotated[
    Path | None,
    typer.Option(
        "--html",
        metavar="[FILE.html]",
        help="Write a page for a browser. Without a file, it is NAME.html in this folder.",
        show_default=False,
    ),
]
Watch = Annotated[
    bool, typer.Option("--watch", "-w", help="Show it again and again until all has ended. Ctrl-C leaves.")
]
IN_THE_TERMINAL = "-"
"""The folder of `--plots` without one."""
Plots = Annotated[
    Path | None,
    typer.Option(
        "--plots",
        metavar="[FOLDER]",
        help="Draw the curves here. With a folder, draw pictures of a sweep into it.",
        show_default=False,
    ),
]
AssumeYes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Don't follow the run.")]


class CommandWithPages(TyperCommand):
    """A command whose options `--html` and `--plots` may stand without a value. Typer has no such options.

    A folder comes after `--plots` where a RUN is named, too. The only word that is no option is the RUN.
    A word after `--html` is its file where it ends with `.html`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words after the command."""
        words = []
        names_a_folder = sum(not word.startswith("-") for word in args) > 1
        for word, following in zip_longest(args, args[1:], fillvalue="-"):
            words.append(word)
            if word == "--plots" and (following.startswith("-") or not names_a_folder):
                words.append(IN_THE_TERMINAL)
            if word == "--html" and not following.endswith(".html"):
                words.append(str(IN_THIS_FOLDER))
        return super().parse_args(ctx, words)


def invocation_of(context: typer.Context) -> Invocation:
    """Return the root options and the outside world, as the root callback left them."""
    invocation = context.obj
    assert isinstance(invocation, Invocation)  # noqa: S101 -- the root callback always runs first
    return invocation


def write_page(html: str, *, name: str, to: Path) -> Path:
    """Write a page, over an earlier one of the same name.

    Args:
        html: The page.
        name: The name of its subject, such as a run's id.
        to: The file, or `IN_THIS_FOLDER` for one in the current directory with the name of the subject.

    Returns:
        The file.

    Raises:
        CommandLineError: It cannot be written.
    """
    path = Path(f"{name}.html") if to == IN_THIS_FOLDER else to
    try:
        path.write_text(html, encoding="utf-8")
    except OSError as error:
        raise CommandLineError(f"{path} cannot be written: {error.strerror}") from error
    return path
