"""Causes of a job's failure that lie in its job file, as they show in the words of the failure."""

from __future__ import annotations

import re
from typing import Final

_CAUSES: Final = (
    (
        re.compile(r"can't open file '?(?P<what>[^'\n]+?)'?: \[Errno 2\]"),
        "`command` of the job file names {what}, which is not in the source. Its paths are relative to `source`",
    ),
    (
        re.compile(r"error: unrecognized arguments: (?P<what>[^\n]+)"),
        "the script does not know {what}, which the job file gives in `command` or `hyperparameters`. Add it to the "
        "script's parser, or take it out of the job file. `arguments: none` keeps hyperparameters off the command line",
    ),
    (
        re.compile(r"error: the following arguments are required: (?P<what>[^\n]+)"),
        "the script needs {what}. Give it in `hyperparameters` or in `command` of the job file",
    ),
    (
        re.compile(r"error: argument (?P<what>[^\n:]+): invalid \w+ value: (?P<value>[^\n]+)"),
        "`command` or `hyperparameters` of the job file gives {what} a value that the script does not take",
    ),
    (
        re.compile(r"No module named '?(?P<what>[\w.]+)'?"),
        "the script imports {what}, which the image lacks. Name its package in `install`, or put the module into "
        "`source`",
    ),
    (
        re.compile(r"(?P<what>[\w./-]+): command not found|was not found on PATH|exited with code 127"),
        "the image has no such program. Another `command` runs without a new source",
    ),
)
"""The words of a failure, and the hint. Python, argparse and bash write these words."""


def hint_of_failure(failure: str) -> str | None:
    """Return a hint for a failure that lies in the job file. None for any other failure.

    Args:
        failure: The reason of the failure, in the words of the run's record.
    """
    for words, hint in _CAUSES:
        if found := words.search(failure):
            return hint.format(what=_shown(found["what"] or ""))
    return None


def _shown(what: str) -> str:
    """Return words of a failure without SageMaker's exit code, and a path without the source's directory on a host."""
    return re.sub(r"^\S*/ml/source/", "", re.sub(r", exit code: \d+$", "", what.strip()))
