"""The console script `spotkeep`.

Python 3.9 and the standard library suffice for `rehearse ... -- COMMAND`, `init`, `--help` and `--version`. All other
commands are those of `spotkeep_cli.main`. Where the extra of a command is not installed, one answer names the command
that adds it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from spotkeep_cli import extras

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = (
    ("rehearse", "", "Run a command, take its machine away, start it again, and judge: rehearse -- COMMAND"),
    ("init", "", "Write a CDK app of a folder's name, or a job file for a training script."),
    ("help", "", "Print a page of the documentation, a section of it, or the help of a command."),
    ("launch", "cli", "Launch a run and follow it. Ctrl-C leaves it running."),
    ("ps", "cli", "List the runs and sweeps: those at work, and those that ended in the last day."),
    ("describe", "cli", "Show one run: state, attempts, metrics, timeline, checkpoints, model, cost."),
    ("logs", "cli", "Print a run's log, all attempts in order."),
    ("startup", "cli", "Show where the time of a run's starts went, and how to shorten them."),
    ("shell", "cli", "Open a shell where a run trains now."),
    ("stop", "cli", "End a run, or a sweep with its trials. It saves a checkpoint first."),
    ("resume", "cli", "Start the next attempt of an ended run, on the same checkpoints."),
    ("pause", "cli", "Pause a sweep. Its trials save first."),
    ("best", "cli", "Show the best trial of a sweep, and fetch it."),
    ("priority", "cli", "Change how soon a run has its turn in its queue."),
    ("drill", "cli", "Take a run's instance away, as EC2 would, and see it come back."),
    ("savings", "cli", "Show what each run cost against an uninterrupted on-demand run."),
    ("schedules", "cli", "See and remove schedules."),
    ("pool", "cli", "See, match, extend and end warm pools."),
    ("notifications", "cli", "Notifications of runs: sent, and not sent."),
    ("checkpoints", "cli", "Show the checkpoints of a directory or a run."),
    (
        "first-account",
        "cli",
        "Run the smallest jobs of each kind in an account, under a ceiling, and answer open questions.",
    ),
    ("doctor", "cli", "Check a job file without launching anything, or the account."),
    ("plan", "planner", "Forecast cost, end and interruptions of a job with a deadline."),
    ("rehearse-pool", "local", "Rehearse a warm pool on a local AWS."),
    ("rehearse-fleet", "local", "Rehearse a run on a spot fleet of a local AWS."),
    ("rehearse-sweep", "local", "Rehearse a sweep on a local AWS."),
    ("schema", "cli", "Print the JSON schema of a job file."),
    ("import", "cli", "Make a job file of a SageMaker training job."),
    ("cdk", "cdk", "Run the CDK command line on the app of this folder: deploy, diff, destroy."),
    ("local", "local", "Start, stop and inspect the local AWS."),
)
"""Each command with the extra that it needs, and a line for `--help` where the extra `cli` is not installed."""

_OF_JOB_FILES = "local"
"""The extra of `rehearse job.yaml`."""
_VALUED = ("--deployment", "--region", "--profile")
_HELP = ("-h", "--help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line.

    Args:
        arguments: The words after `spotkeep`. Those of this process by default.

    Returns:
        The exit code.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    at = _place_of_command(given)
    word = given[at] if at < len(given) else ""
    rest = given[at + 1 :]
    if word == "rehearse" and "--" in rest:
        from spotkeep_rehearsal.command import main as rehearse

        return rehearse(rest)
    if word == "help":
        if rest[:1] and rest[0] in {name for name, _, _ in COMMANDS}:
            return main([*given[:at], *rest, "--help"])
        from spotkeep_cli.help_pages import main as show_page

        return show_page(rest)
    if word == "init":
        from spotkeep_cli.init import main as init

        return init(rest)
    if "--version" in given[:at]:
        return _print_version()
    if extras.missing_module("cli") is not None:
        if not word and (not given or set(given) & set(_HELP)):
            sys.stdout.write(_commands())
            return 0
        if word == "rehearse" and set(rest) <= set(_HELP):
            from spotkeep_rehearsal.command import main as rehearse

            return rehearse(["--help"])
    return _with_extra(given, word=word)


def _with_extra(given: list[str], *, word: str) -> int:
    needed = {name: extra for name, extra, _ in COMMANDS}.get(word, "cli") or _OF_JOB_FILES
    asks_help = bool(set(given) & set(_HELP))
    module = extras.missing_module("cli" if asks_help or not word else needed)
    if module is None:
        from spotkeep_cli.main import main as run

        try:
            return run(given)
        except ImportError as error:
            found = extras.missing_extra(error)
            if found is None:
                raise
            needed, module = found
    what = f"`spotkeep {word}`" if word else "spotkeep"
    sys.stderr.write(extras.answer(needed, what=what, module=module, arguments=given) + "\n")
    return extras.EXIT_CODE


def _place_of_command(given: Sequence[str]) -> int:
    place = 0
    while place < len(given) and given[place].startswith("-"):
        place += 2 if given[place] in _VALUED else 1
    return place


def _print_version() -> int:
    from importlib import metadata

    sys.stdout.write(f"spotkeep {metadata.version('spotkeep')}\n")
    return 0


def _commands() -> str:
    width = max(len(name) for name, _, _ in COMMANDS)
    lines = ["Usage: spotkeep [OPTIONS] COMMAND [ARGS]...", ""]
    lines += ["Train on spare cloud capacity and keep what an interruption would lose.", ""]
    for extra in ("", "cli", "planner", "cdk", "local"):
        needed = f"With the extra {extra!r}: {extras.install_command(extra)}" if extra else "As installed:"
        lines.append(needed)
        lines += [f"  {name:<{width}}  {what}" for name, of, what in COMMANDS if of == extra]
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
