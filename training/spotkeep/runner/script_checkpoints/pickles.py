"""Tells if a pickle is whole, and reads plain values out of one. Nothing of it is executed.

A pickle is a row of operations. Each has a byte as its name, and an argument whose length that byte decides. So a
reader can step through it to the operation that ends it, and skip large arguments unread. Source: `pickletools.py`.
"""

from __future__ import annotations

import io
import pickletools
import struct
from collections.abc import Iterator
from typing import BinaryIO, Union

Plain = Union[str, int, None]

PROTOCOLS = tuple(bytes((0x80, number)) for number in range(2, 6))
"""The beginnings of pickles that are judged, of protocol 2 to 5. Older ones are text."""

_ARGUMENT_BYTES = {ord(op.code): op.arg.n if op.arg else 0 for op in pickletools.opcodes}
_LENGTHS = {pickletools.TAKEN_FROM_ARGUMENT1: "<B", pickletools.TAKEN_FROM_ARGUMENT4: "<i",
            pickletools.TAKEN_FROM_ARGUMENT4U: "<I", pickletools.TAKEN_FROM_ARGUMENT8U: "<Q"}  # fmt: skip
_OF_TWO_LINES = (ord("c"), ord("i"))
_FRAME, _STOP, _PROTOCOL = 0x95, ord("."), 0x80
_TEXTS = (0x8C, ord("X"), 0x8D)
_INTEGERS = {ord("K"): "<B", ord("M"): "<H", ord("J"): "<i"}
_LONG = 0x8A
_CONSTANTS: dict[int, Plain] = {ord("N"): None, 0x88: True, 0x89: False}
_MEMOIZE = 0x94
_PUT, _GET = {ord("q"): "<B", ord("r"): "<I"}, {ord("h"): "<B", ord("j"): "<I"}

_MOST_OPERATIONS = 2_000_000
_LONGEST_ARGUMENT = 2**16
_CHUNK_BYTES = 2**20
_RAW_DATA = b"ArrayWrapper"
"""In the name of joblib's classes behind which an array's bytes follow that are the argument of no operation."""
_OLD_TORCH = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""The number at the beginning of torch's files before zip files. They hold pickles, and then raw data."""


class _NoPickleError(Exception):
    """The next byte is no operation of a pickle."""


def pickle_problem(file: BinaryIO, size: int) -> str | None:
    """Say why a pickle is not whole. None for a whole one and for one that cannot be judged.

    Args:
        file: It begins with one of `PROTOCOLS`.
        size: Its length in bytes.

    Raises:
        OSError: It cannot be read.
    """
    file.seek(size - 1)
    ends = file.read(1) == b"."
    file.seek(2)
    if file.read(len(_OLD_TORCH)) == _OLD_TORCH:
        return None
    file.seek(0)
    try:
        whole = _is_whole(file, size)
    except EOFError:
        whole = False
    except _NoPickleError:
        return None
    return None if (ends if whole is None else whole) else "it ends too early"


def _is_whole(file: BinaryIO, size: int) -> bool | None:
    """Step over the pickles in a file. None where only its last byte can be checked."""
    stopped = False
    for count, (code, argument) in enumerate(_operations(file, size, over_frames=True)):
        if _RAW_DATA in argument or count == _MOST_OPERATIONS:
            return None
        stopped = code == _STOP or (code == _FRAME and argument == b".")
        if stopped and (following := file.read(1)):
            # A frame may end with that byte by chance. Then another follows, or something large, which ends the search.
            if following[0] not in (_PROTOCOL, *([_FRAME] if code == _FRAME else [])):
                return True
            file.seek(-1, io.SEEK_CUR)
    return stopped


def plain_values(content: bytes) -> list[Plain]:
    """Give the texts, integers, booleans and nulls of a pickle in their order, each as often as it is used.

    Other values are left out. A cut-off pickle is read to its end.
    """
    found: list[Plain] = []
    memo: dict[int, Plain] = {}
    last: list[Plain] = []
    puts = 0
    try:
        for code, argument in _operations(io.BytesIO(content), len(content), over_frames=False):
            put = struct.unpack(_PUT[code], argument)[0] if code in _PUT else puts if code == _MEMOIZE else None
            if put is not None:
                puts += 1
                if last:
                    memo[put] = last[0]
                continue
            last = _plain_value(code, argument, memo)
            found += last
    except (EOFError, _NoPickleError):
        pass
    return found


def _plain_value(code: int, argument: bytes, memo: dict[int, Plain]) -> list[Plain]:
    if code in _TEXTS:
        return [argument.decode("utf-8", "replace")]
    if code in _INTEGERS:
        return [struct.unpack(_INTEGERS[code], argument)[0]]
    if code == _LONG:
        return [int.from_bytes(argument, "little", signed=True)]
    if code in _CONSTANTS:
        return [_CONSTANTS[code]]
    if code in _GET:
        number = struct.unpack(_GET[code], argument)[0]
        return [memo[number]] if number in memo else []
    return []


def _operations(file: BinaryIO, size: int, *, over_frames: bool) -> Iterator[tuple[int, bytes]]:
    """Give each operation's code and argument. The argument is empty where it is long.

    Args:
        file: At the beginning of an operation.
        size: Its length.
        over_frames: A frame is one operation. Its argument is its last byte, or joblib's class if it names it.

    Raises:
        EOFError: If it ends in an operation.
        _NoPickleError: If something else follows.
    """
    while code := file.read(1):
        length = _ARGUMENT_BYTES.get(code[0])
        if length is None:
            raise _NoPickleError
        if length == pickletools.UP_TO_NEWLINE:
            yield code[0], b"".join(_line(file) for _ in range(2 if code[0] in _OF_TWO_LINES else 1))
            continue
        if length < 0:
            length = struct.unpack(_LENGTHS[length], _exactly(file, struct.calcsize(_LENGTHS[length])))[0]
        elif code[0] == _FRAME and over_frames:
            yield _FRAME, _step_over_frame(file, struct.unpack("<Q", _exactly(file, length))[0], size)
            continue
        if length < 0:
            raise _NoPickleError
        if file.tell() + length > size:
            raise EOFError
        if length <= _LONGEST_ARGUMENT:
            yield code[0], _exactly(file, length)
        else:
            file.seek(length, io.SEEK_CUR)
            yield code[0], b""


def _step_over_frame(file: BinaryIO, length: int, size: int) -> bytes:
    if file.tell() + length > size:
        raise EOFError
    names_it, before = False, b""
    while length:
        chunk = _exactly(file, min(length, _CHUNK_BYTES))
        length -= len(chunk)
        names_it = names_it or _RAW_DATA in before + chunk
        before = chunk[-len(_RAW_DATA) :]
    return _RAW_DATA if names_it else before[-1:]


def _exactly(file: BinaryIO, length: int) -> bytes:
    content = file.read(length)
    if len(content) < length:
        raise EOFError
    return content


def _line(file: BinaryIO) -> bytes:
    line = file.readline(_LONGEST_ARGUMENT)
    if not line.endswith(b"\n"):
        raise EOFError if len(line) < _LONGEST_ARGUMENT else _NoPickleError
    return line
