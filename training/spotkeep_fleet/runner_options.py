"""The options of `spotkeep.pyz run` that a job file asks for: the same on SageMaker and on an instance."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def runner_options(
    *,
    arguments: str,
    install: str,
    requirements: Sequence[str],
    setup: Sequence[str],
    environments: str | None = None,
) -> list[str]:
    """Give the words between `run` and `--`; what is the runner's default is left out.

    Args:
        arguments: `hyperparameters` or `none`.
        install: `auto`, `none`, or the path of a requirements file in the source.
        requirements: A list of requirements, instead of `install`.
        setup: The words of a command; empty for none.
        environments: Where in S3 what was installed is kept; None where a volume keeps it.
    """
    options = [] if arguments != "none" else ["--arguments", "none"]
    if requirements:
        options += [word for requirement in requirements for word in ("--requirement", requirement)]
    elif install != "none":
        options += ["--install", install]
    if environments is not None and (requirements or install != "none"):
        options += ["--environments", environments]
    return [*options, "--setup", shlex.join(setup)] if setup else options
