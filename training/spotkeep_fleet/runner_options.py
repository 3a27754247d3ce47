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
    warm_pool: bool = False,
) -> list[str]:
    """Give the words between `run` and `--`; what is the runner's default is left out.

    Args:
        arguments: `hyperparameters`, `json` or `none`.
        install: `auto`, `none`, or the path of a requirements file in the source.
        requirements: A list of requirements, instead of `install`.
        setup: The words of a command; empty for none.
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
    return [*options, "--setup", shlex.join(setup)] if setup else options
