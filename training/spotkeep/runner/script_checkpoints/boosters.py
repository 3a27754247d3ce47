"""Tells if a model of XGBoost or LightGBM is whole. Other files with such a name are not judged.

- XGBoost's UBJSON (`.ubj`, and without a known name since 2.1) is an object, whose arrays hold their lengths.
- XGBoost's JSON ends with the version.
- LightGBM's text ends with the parameters, and behind them Python's categories.
"""

from __future__ import annotations

import json
import os
import re
import struct
from typing import BinaryIO

UBJSON = b"{L\x00\x00\x00\x00\x00\x00\x00\x07learner"
LIGHTGBM = b"tree\nversion="
_XGBOOST_JSON = re.compile(rb'\s*\{\s*"learner"\s*:\s*\{')
_VERSION_AT_THE_END = re.compile(rb'"version"\s*:\s*\[\s*[0-9]+\s*,\s*[0-9]+\s*,\s*[0-9]+\s*\]\s*\}\s*\Z')
_TAIL_BYTES = 4096
_MOST_JSON_BYTES = 2**26
_MOST_CATEGORIES_BYTES = 2**24
_END, _CATEGORIES = b"\nend of parameters\n", b"\npandas_categorical:"
_CUT = "it ends too early"

_FIXED_BYTES = {
    b"Z": 0,
    b"N": 0,
    b"T": 0,
    b"F": 0,
    b"i": 1,
    b"U": 1,
    b"C": 1,
    b"I": 2,
    b"l": 4,
    b"d": 4,
    b"L": 8,
    b"D": 8,
}
_INTEGERS = {b"i": ">b", b"U": ">B", b"I": ">h", b"l": ">i", b"L": ">q"}
_MOST_STEPS = 5_000_000
_DEEPEST = 1000


def begins_as_booster(head: bytes) -> bool:
    """Say whether a file begins as a model of XGBoost or LightGBM."""
    return head.startswith((UBJSON, LIGHTGBM)) or _XGBOOST_JSON.match(head) is not None


def booster_problem(file: BinaryIO, head: bytes, size: int) -> str | None:
    """Say why a model of XGBoost or LightGBM is not whole. None for a whole one and for other files.

    Args:
        file: The file.
        head: Its first bytes, 64 or more of a longer one.
        size: Its length in bytes.

    Raises:
        OSError: It cannot be read.
    """
    if head.startswith(UBJSON):
        return _ubjson_problem(file)
    if head.startswith(LIGHTGBM):
        return _lightgbm_problem(file, size)
    if _XGBOOST_JSON.match(head):
        return _json_problem(file, size)
    return None


def _json_problem(file: BinaryIO, size: int) -> str | None:
    file.seek(max(size - _TAIL_BYTES, 0))
    if _VERSION_AT_THE_END.search(file.read()):
        return None
    if size > _MOST_JSON_BYTES:
        return _CUT
    file.seek(0)
    try:
        json.loads(file.read(), parse_int=str)  # the keys may be in another order
    except (ValueError, RecursionError):
        return _CUT
    return None


def _lightgbm_problem(file: BinaryIO, size: int) -> str | None:
    file.seek(max(size - _MOST_CATEGORIES_BYTES, 0))
    _, end, after = file.read().rpartition(_END)
    if not end:
        return _CUT if size <= _MOST_CATEGORIES_BYTES else None
    if not after.strip():
        return None  # so ends what the program without Python writes
    try:
        json.loads(after.partition(_CATEGORIES)[2] if after.endswith(b"\n") else b"", parse_int=str)
    except (ValueError, RecursionError):
        return _CUT
    return None


def _ubjson_problem(file: BinaryIO) -> str | None:
    """Step over the value that the file holds. An array of numbers of one type is one step.

    Source: https://ubjson.org, and the files of XGBoost 3.2.
    """
    file.seek(0)
    open_ones: list[_Open] = []
    try:
        for _ in range(_MOST_STEPS):
            while open_ones and open_ones[-1].is_complete(file):
                open_ones.pop()
                if not open_ones:
                    return None
            if open_ones and open_ones[-1].has_keys:
                _step(file, _length(file, _exactly(file, 1)))
            kind = (open_ones[-1].kind if open_ones else b"") or _exactly(file, 1)
            if kind in (b"{", b"["):
                open_ones.append(_opened(file, has_keys=kind == b"{"))
            elif kind in (b"S", b"H"):
                _step(file, _length(file, _exactly(file, 1)))
            else:
                _step(file, _FIXED_BYTES[kind])
            if len(open_ones) > _DEEPEST or not open_ones:
                return None
    except EOFError:
        return _CUT
    except KeyError:
        return None  # a kind of value that is not known
    return None


class _Open:
    """An array or object that is being stepped over."""

    def __init__(self, *, has_keys: bool, kind: bytes = b"", left: int | None = None) -> None:
        self.has_keys = has_keys
        self.kind = kind
        self._left = left

    def is_complete(self, file: BinaryIO) -> bool:
        if self._left is not None:
            self._left -= 1
            return self._left < 0
        following = _exactly(file, 1)
        if following == (b"}" if self.has_keys else b"]"):
            return True
        file.seek(-1, os.SEEK_CUR)
        return False


def _opened(file: BinaryIO, *, has_keys: bool) -> _Open:
    kind, marker = b"", _exactly(file, 1)
    if marker == b"$":
        kind, marker = _exactly(file, 1), _exactly(file, 1)
    if marker != b"#":
        file.seek(-1, os.SEEK_CUR)
        return _Open(has_keys=has_keys, kind=kind)
    count = _length(file, _exactly(file, 1))
    if kind in _FIXED_BYTES and not has_keys:
        _step(file, count * _FIXED_BYTES[kind])
        count = 0
    return _Open(has_keys=has_keys, kind=kind, left=count)


def _length(file: BinaryIO, kind: bytes) -> int:
    form = _INTEGERS[kind]
    (length,) = struct.unpack(form, _exactly(file, struct.calcsize(form)))
    if length < 0:
        raise KeyError(kind)
    return int(length)


def _step(file: BinaryIO, length: int) -> None:
    """Step over so many bytes, which must be there."""
    if file.tell() + length > os.fstat(file.fileno()).st_size:
        raise EOFError
    file.seek(length, os.SEEK_CUR)


def _exactly(file: BinaryIO, length: int) -> bytes:
    content = file.read(length)
    if len(content) < length:
        raise EOFError
    return content
