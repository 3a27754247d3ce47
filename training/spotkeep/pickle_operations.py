"""The operations of a pickle, read and never carried out. Source: `pickletools.py`.

A pickle is a row of operations for a machine with a stack. Each has a byte as its name, and an argument whose length
that byte decides.
"""

from __future__ import annotations

import io
import pickletools
import struct
from collections.abc import Iterator
from typing import Any

PUSHED = frozenset({
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "UNICODE", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8",
    "BYTEARRAY8",
})  # fmt: skip
"""They put their argument on the stack."""
CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
"""They put one value on the stack, which is always the same."""
PUTS = frozenset({"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"})
"""They note the value on top of the stack under a number, which is the argument. `MEMOIZE` counts."""
GETS = frozenset({"GET", "BINGET", "LONG_BINGET"})
"""They put a noted value on the stack."""

_BY_CODE = {operation.code.encode("latin-1"): operation for operation in pickletools.opcodes}
_LINES = {"GLOBAL": 2, "INST": 2, "PERSID": 1}
"""Their arguments are so many lines. `pickletools` takes them for literals with escapes, and warns of some."""
_OF_PYTHON_2 = "STRING"
"""Its argument is such a literal, as Python 2 wrote it."""


class MalformedPickleError(Exception):
    """These bytes are no pickle that is read here. The message says why."""


def operations(raw: bytes) -> Iterator[tuple[str, Any]]:
    """Give the name and the argument of each operation of a pickle, up to the one that ends it.

    Raises:
        MalformedPickleError: Something else stands there, or the end is missing.
    """
    file = io.BytesIO(raw)
    while code := file.read(1):
        operation = _BY_CODE.get(code)
        if operation is None or operation.name == _OF_PYTHON_2:
            raise MalformedPickleError(f"it is no pickle: it has the byte {code!r} in the place of an operation")
        try:
            if operation.name in _LINES:
                argument: Any = " ".join(_line(file) for _ in range(_LINES[operation.name]))
            else:
                argument = None if operation.arg is None else operation.arg.reader(file)
        except (ValueError, struct.error) as error:
            raise MalformedPickleError(f"it is no pickle: {str(error)[:200]}") from error
        yield operation.name, argument
        if operation.name == "STOP":
            return
    raise MalformedPickleError("it is no pickle: it has no end")


def _line(file: io.BytesIO) -> str:
    line = file.readline()
    if not line.endswith(b"\n"):
        raise ValueError("a line has no end")
    return line[:-1].decode()
