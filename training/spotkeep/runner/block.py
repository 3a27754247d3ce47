"""A block: a command of several lines, which bash runs.

bash gets `-euo pipefail`, so a line that fails ends the block, and the hyperparameters are `"$@"`. The traps before the
first line say which line failed, and end the block after the program that a notice has ended: without the one of
SIGTERM, bash would die of it and leave the program behind, or go on with the next line.

Source: "The Set Builtin" and "Signals" in the Bash Reference Manual.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from spotkeep.errors import CommandError, MissingToolError

_ON_SIGTERM = (
    'spotkeep_code=$?; for spotkeep_job in $(jobs -p); do wait "$spotkeep_job" || :; done; exit $spotkeep_code'
)
"""A `wait` without a name would wait for a process substitution, which waits for the end of this bash's output."""
_ON_ERROR = 'echo "spotkeep: line $LINENO of the command ended with code $?" >&2'
_BEFORE = f"trap '{_ON_SIGTERM}' TERM; trap '{_ON_ERROR}' ERR; "
"""On the first line, so that bash counts the lines as the job file has them."""
_PLACE = re.compile(r"^\S*bash: (?:-c: )?", re.MULTILINE)
_CANNOT_BE_EXECUTED = 126


def bash_words(block: str, arguments: Sequence[str], *, environment: Mapping[str, str]) -> list[str]:
    """Give the words that run a block.

    Args:
        block: Its lines.
        arguments: What `"$@"` is in it.
        environment: All of what it gets.

    Raises:
        MissingToolError: If there is no bash.
        CommandError: If bash cannot read the block: it would run the lines before the mistake.
    """
    bash = shutil.which("bash", path=environment.get("PATH", os.defpath))
    if bash is None:
        raise MissingToolError(
            "the command is a block of lines for bash, and this image has no bash (PATH is "
            f"{environment.get('PATH', os.defpath)}): use an image that has it, or write the command as a list of "
            "words, [python, train.py], which needs no shell"
        )
    read = subprocess.run(
        [bash, "-n", "-c", block], env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if read.returncode:
        said = _PLACE.sub("", read.stderr.decode("utf-8", "replace")).strip()
        raise CommandError(f"bash cannot read the command: {said}", exit_code=_CANNOT_BE_EXECUTED)
    return [bash, "-euo", "pipefail", "-c", _BEFORE + block, "bash", *arguments]


def block_named(block: str) -> str:
    """Give a block in a few words, by its first line that is no comment."""
    lines = [line.strip() for line in block.splitlines()]
    first = next((line for line in lines if line and not line.startswith("#")), "")
    others = sum(map(bool, lines)) - 1
    return first if not others else f"{first} (and {others} more line{'s' if others > 1 else ''})"
