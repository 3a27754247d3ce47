"""The command line of the zipapp, `python3 spotkeep.pyz run`. By hand it is `python3 spotkeep.pyz run -- <command>`."""

from __future__ import annotations

import argparse
import os
import sys
from typing import NoReturn

from spotkeep_fleet.training_spec import SPEC_VARIABLE, TrainingSpec

from .runner.job import run_job
from .runner.metric_lines import SEARCH_COMMAND
from .runner.metric_search import search_standard_input
from .version import __version__

_EPILOG = """\
exit codes: the command's own; 128 + n when signal n killed it; 75 after an interruption notice (try again);
126 or 127 when the command cannot be executed or found; 64 wrong usage; 66 the source cannot be used;
69 a tool is missing; 70 the job's directories cannot be made; 71 what the script needs cannot be installed;
77 a secret cannot be read; 78 the platform's configuration cannot be read
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
        "command", nargs=argparse.REMAINDER, help=f"the command, after --; by default that of the {SPEC_VARIABLE}"
    )
    search = commands.add_parser(SEARCH_COMMAND)  # The runner's own: without help text it is not listed.
    search.add_argument("metrics")
    given = parser.parse_args(arguments)
    if given.what == SEARCH_COMMAND:
        return search_standard_input(given.metrics)
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not command and not os.environ.get(SPEC_VARIABLE):
        parser.error("no command after `run --`")
    return run_job(TrainingSpec(command=tuple(command)) if command else None)


if __name__ == "__main__":
    main()
