"""The command line of the zipapp: `python3 spotkeep.pyz run -- <command>`."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from typing import NoReturn

from .runner.installation import Preparation
from .runner.job import ARGUMENTS, HYPERPARAMETERS, run_job
from .runner.metric_lines import SEARCH_COMMAND
from .runner.metric_search import search_standard_input
from .runner.requirements import NONE
from .version import __version__

_EPILOG = """\
exit codes: the command's own; 128 + n when signal n killed it; 75 after an interruption notice (try again);
126 or 127 when the command cannot be executed or found; 64 wrong usage; 66 the source cannot be used;
69 a tool is missing; 70 the job's directories cannot be made; 71 what the script needs cannot be installed;
78 the platform's configuration cannot be read
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Leave with the exit code of wrong usage, which is not the 2 that many scripts fail with."""
        sys.stderr.write(f"spotkeep: {message}; use: spotkeep.pyz run -- python train.py\n")
        sys.exit(64)


def main() -> NoReturn:
    """Run the command line and exit."""
    sys.exit(_main(sys.argv[1:]))


def _main(arguments: list[str]) -> int:
    parser = _Parser(
        prog="spotkeep.pyz",
        description="Run a training command so that it survives the loss of its machine.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"spotkeep {__version__}")
    commands = parser.add_subparsers(metavar="run", required=True, dest="what")
    run = commands.add_parser("run", help="run -- COMMAND [ARGUMENT ...]")
    run.add_argument(
        "--arguments",
        choices=ARGUMENTS,
        default=HYPERPARAMETERS,
        help="the arguments behind COMMAND and its own: --NAME VALUE of each hyperparameter, in the way of SageMaker's "
        "toolkit (default) or with VALUE as JSON, or none",
    )
    run.add_argument(
        "--install",
        default=NONE,
        metavar="WHAT",
        help="what pip installs first: auto (requirements.txt, or what pyproject.toml depends on), the path of a "
        "requirements file in the source, or none (default)",
    )
    run.add_argument(
        "--requirement", action="append", default=[], help="one requirement to install, instead of --install"
    )
    run.add_argument("--setup", default="", metavar="COMMAND", help="run once a machine, after the installation")
    run.add_argument(
        "--setup-block",
        action="append",
        default=[],
        metavar="PIECE",
        help="lines for bash, instead of --setup: a piece of a JSON text",
    )
    run.add_argument("--environments", metavar="S3_URI", help="where to keep what was installed, for a comeback")
    run.add_argument(
        "--warm-pool", action="store_true", help="this host is kept for the next job: keep there what was installed"
    )
    run.add_argument(
        "--block", action="store_true", help="the words after -- are pieces of a JSON text: lines for bash"
    )
    run.add_argument("command", nargs=argparse.REMAINDER, help="what to run, after --")
    commands.add_parser(SEARCH_COMMAND)  # The runner's own: without help text it is not listed.
    given = parser.parse_args(arguments)
    if given.what == SEARCH_COMMAND:
        return search_standard_input()
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not command:
        parser.error("no command after `run --`")
    try:
        block = _joined(command) if given.block else ""
        setup = _joined(given.setup_block) if given.setup_block else tuple(shlex.split(given.setup))
    except ValueError as error:
        parser.error(f"a block of lines is no JSON text: {error}")
    return run_job(
        block if given.block else command,
        arguments=given.arguments,
        preparation=Preparation(
            install=given.install,
            requirements=tuple(given.requirement),
            setup=setup,
            environments=given.environments,
            warm_pool=given.warm_pool,
        ),
    )


def _joined(pieces: list[str]) -> str:
    """Give the lines that were cut into pieces: words of a container's command hold no line ends, and no long text."""
    return str(json.loads("".join(pieces)))


if __name__ == "__main__":
    main()
