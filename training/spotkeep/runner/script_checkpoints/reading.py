"""Reads small files of a checkpoint, with a bound on memory and without a trace.

Reads leave no time of access behind where the system allows it. A rehearsal sees by that time which checkpoints the
script itself has read.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

_MOST_TEXT_BYTES = 2**20
_MOST_JSON_BYTES = 2**26
_MOST_DIGITS = 20


def open_unnoticed(path: Path) -> BinaryIO:
    """Open a file to be read, without a new time of access if the system grants that.

    Raises:
        OSError: If it cannot be read.
    """
    return open(path, "rb", opener=_unnoticed)


def text_of(path: Path) -> str:
    """Read the first MiB of a file as text.

    Raises:
        OSError: If it cannot be read.
    """
    with open_unnoticed(path) as file:
        return file.read(_MOST_TEXT_BYTES).decode("utf-8", "replace")


def json_object(path: Path) -> dict[str, Any] | None:
    """Read a JSON object. None when the file holds no whole one. An object of more than 64 MiB counts as empty.

    Raises:
        OSError: It cannot be read.
    """
    with open_unnoticed(path) as file:
        content = file.read(_MOST_JSON_BYTES + 1)
        if len(content) > _MOST_JSON_BYTES:
            file.seek(-1024, os.SEEK_END)
            return {} if file.read().rstrip().endswith(b"}") else None
    try:
        found = json.loads(content, parse_int=_integer)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _integer(digits: str) -> int:
    return int(digits) if len(digits) <= _MOST_DIGITS else 0  # a longer one takes time that grows with its square


def _unnoticed(path: str, flags: int) -> int:
    with contextlib.suppress(PermissionError):  # of another owner's file, or one that may not be read at all
        return os.open(path, flags | getattr(os, "O_NOATIME", 0))
    return os.open(path, flags)
