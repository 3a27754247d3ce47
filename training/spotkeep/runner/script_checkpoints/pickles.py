"""Tells if a pickle is whole, and reads plain values out of one. Nothing of it is executed.

The judge steps through the operations of a file of any size to the one that ends it. It skips large arguments unread,
and frames as a whole.
"""

from __future__ import annotations

import contextlib
import io
import pickletools
import struct
from collections.abc import Iterator
from typing import BinaryIO, Union

from spotkeep.pickle_operations import CONSTANTS, GETS, PUSHED, PUTS, MalformedPickleError, operations

Plain = Union[str, int, None]

PROTOCOLS = tuple(bytes((0x80, number)) for number in range(2, 6))
"""The beginnings of pickles that are judged, of protocol 2 to 5. Older ones are text."""

_ARGUMENT_BYTES = {ord(op.code): op.arg.n if op.arg else 0 for op in pickletools.opcodes}
_LENGTHS = {pickletools.TAKEN_FROM_ARGUMENT1: "<B", pickletools.TAKEN_FROM_ARGUMENT4: "<i",
            pickletools.TAKEN_FROM_ARGUMENT4U: "<I", pickletools.TAKEN_FROM_ARGUMENT8U: "<Q"}  # fmt: skip
_OF_TWO_LINES = (ord("c"), ord("i"))
_FRAME, _STOP, _PROTOCOL = 0x95, ord("."), 0x80

_MOST_OPERATIONS = 2_000_000
_LONGEST_ARGUMENT = 2**16
_CHUNK_BYTES = 2**20
_RAW_DATA = b"ArrayWrapper"
"""In the name of joblib's classes behind which an array's bytes follow that are the argument of no operation."""
_OLD_TORCH = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""The number at the beginning of torch's files before zip files. They hold pickles, and then raw data."""


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
    except MalformedPickleError:
        return None
    return None if (ends if whole is None else whole) else "it ends too early"


def _is_whole(file: BinaryIO, size: int) -> bool | None:
    """Step over the pickles in a file. None where only its last byte can be checked."""
    stopped = False
    for count, (code, argument) in enumerate(_operations(file, size)):
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
    with contextlib.suppress(MalformedPickleError):
        for name, argument in operations(content):
            if name in PUTS:
                if last:
                    memo[puts if name == "MEMOIZE" else argument] = last[0]
                puts += 1
                continue
            last = []
            if name in CONSTANTS:
                last = [CONSTANTS[name]]
            elif name in PUSHED and isinstance(argument, (str, int)):
                last = [argument]
            elif name in GETS and argument in memo:
                last = [memo[argument]]
            found += last
    return found


def _operations(file: BinaryIO, size: int) -> Iterator[tuple[int, bytes]]:
    """Give each operation's code and argument. The argument is empty where it is long.

    A frame is one operation. Its argument is its last byte, or joblib's class if it names it.

    Args:
        file: At the beginning of an operation.
        size: Its length.

    Raises:
        EOFError: If it ends in an operation.
        MalformedPickleError: If something else follows.
    """
    while code := file.read(1):
        length = _ARGUMENT_BYTES.get(code[0])
        if length is None:
            raise MalformedPickleError
        if length == pickletools.UP_TO_NEWLINE:
            yield code[0], b"".join(_line(file) for _ in range(2 if code[0] in _OF_TWO_LINES else 1))
            continue
        if length < 0:
            length = struct.unpack(_LENGTHS[length], _exactly(file, struct.calcsize(_LENGTHS[length])))[0]
        elif code[0] == _FRAME:
            yield _FRAME, _step_over_frame(file, struct.unpack("<Q", _exactly(file, length))[0], size)
            continue
        if length < 0:
            raise MalformedPickleError
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
        raise EOFError if len(line) < _LONGEST_ARGUMENT else MalformedPickleError
    return line
