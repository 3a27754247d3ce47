"""The options of `spotkeep.pyz run` that a job file asks for: the same on SageMaker and on an instance."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

MAX_WORD = 256
"""The most characters that SageMaker takes of a word of ContainerEntrypoint and ContainerArguments, 100 words of each.

Their pattern is `.*`, which no line end matches. Source: API_AlgorithmSpecification, Amazon SageMaker API Reference.
"""
_SETUP_BLOCK = "--setup-block="
SETUP_PIECE = MAX_WORD - len(_SETUP_BLOCK)
MAX_SETUP_PIECES = 10
"""So many words of ContainerEntrypoint are left for it beside the other options."""

NOT_STARTED = "not started: "
"""How the runner's failure begins where the image lacks what the command needs, or nothing can read the command.

A test compares it with `spotkeep.runner.failure`, which imports nothing of ours.
"""


def runner_options(
    *,
    arguments: str,
    install: str,
    requirements: Sequence[str],
    setup: Sequence[str] | str,
    environments: str | None = None,
    warm_pool: bool = False,
) -> list[str]:
    """Give the words between `run` and `--`; what is the runner's default is left out.

    Args:
        arguments: `hyperparameters`, `json` or `none`.
        install: `auto`, `none`, or the path of a requirements file in the source.
        requirements: A list of requirements, instead of `install`.
        setup: The words of a command, or a block of lines for bash; empty for none.
        environments: Where in S3 what was installed is kept; None where a volume keeps it.
        warm_pool: Whether the job leaves its host to the next one.
    """
    options = [] if arguments == "hyperparameters" else ["--arguments", arguments]
    if requirements:
        options += [word for requirement in requirements for word in ("--requirement", requirement)]
    elif install != "none":
        options += ["--install", install]
    if requirements or install != "none":
        options += [] if environments is None else ["--environments", environments]
        options += ["--warm-pool"] if warm_pool else []
    if isinstance(setup, str):
        return [*options, *(f"{_SETUP_BLOCK}{piece}" for piece in block_pieces(setup, longest=SETUP_PIECE))]
    return [*options, "--setup", shlex.join(setup)] if setup else options


def command_words(command: Sequence[str] | str) -> tuple[list[str], list[str]]:
    """Give how a command is handed to `spotkeep.pyz run`: one more option, if any, and the words from `--` on.

    Args:
        command: Its words, or a block of lines for bash.
    """
    if isinstance(command, str):
        return ["--block"], ["--", *block_pieces(command)]
    return [], ["--", *command]


def block_pieces(block: str, *, longest: int = MAX_WORD) -> list[str]:
    """Cut a block of lines into words without line ends, of characters of ASCII: pieces of one JSON text.

    Args:
        block: The lines; none for an empty text.
        longest: How many characters a piece has at most.
    """
    text = json.dumps(block) if block else ""
    return [text[at : at + longest] for at in range(0, len(text), longest)]
