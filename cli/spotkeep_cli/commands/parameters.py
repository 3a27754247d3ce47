"""The arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from spotkeep_cli.errors import CommandLineError
from spotkeep_cli.seams import Invocation

RunName = Annotated[
    str, typer.Argument(metavar="RUN", help="The run's id, or the beginning of it.", show_default=False)
]
SweepName = Annotated[
    str, typer.Argument(metavar="SWEEP", help="The sweep's id, or the beginning of it.", show_default=False)
]
RunOrSweepName = Annotated[
    str,
    typer.Argument(
        metavar="RUN", help="The id of a run or a sweep, or its beginning; SWEEP/17 is a trial.", show_default=False
    ),
]
JobFile = Annotated[Path, typer.Argument(metavar="JOB.YAML", help="The job file.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="FIELD=VALUE", help="Override a field; dots reach inside. Repeatable.", show_default=False
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")]
AsPage = Annotated[bool, typer.Option("--html", help="Write a page for a browser into this folder.")]
AssumeYes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Don't follow the run.")]


def invocation_of(context: typer.Context) -> Invocation:
    """Return the root options and the outside world, as the root callback left them."""
    invocation = context.obj
    assert isinstance(invocation, Invocation)  # noqa: S101 -- the root callback always runs first
    return invocation


def write_page(html: str, *, name: str) -> Path:
    """Write a page into the current directory, over an earlier one of the same name.

    Args:
        html: The page.
        name: The name of its subject, such as a run's id.

    Returns:
        The file.

    Raises:
        CommandLineError: It cannot be written.
    """
    path = Path(f"{name}.html")
    try:
        path.write_text(html, encoding="utf-8")
    except OSError as error:
        raise CommandLineError(f"{path} cannot be written: {error.strerror}") from error
    return path
