"""Pickles that are written and read here, without a class of any library. Nothing is imported, called or executed.

`torch.save` and DCP keep names and numbers in pickles, which are operations for a machine with a stack. Here the
machine puts an inert `Global`, `Call` or `Instance` in the place of code.
"""

from __future__ import annotations

import itertools
import struct
from collections import Counter
from dataclasses import dataclass
from typing import Any, Callable

from spotkeep.pickle_operations import CONSTANTS, GETS, PUSHED, PUTS, MalformedPickleError, operations

_MOST_OPERATIONS = 20_000_000
_MAX_DEPTH = 200
_MARK = object()


@dataclass(frozen=True)
class Global:
    """The name of a class or a function.

    Attributes:
        module: Its module.
        name: Its name there.
    """

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False)
class Call:
    """A call of a function that was never made.

    Attributes:
        function: The function.
        arguments: Its arguments.
        state: The state that the result would get. None without one.
    """

    function: Any
    arguments: tuple[Any, ...]
    state: Any = None


class Instance(Call):
    """An object that was never made. `function` is its class."""


def name_of(value: Any) -> str:
    """Name a class or a function, and any other value by its type. Its text could be longer than the memory."""
    return str(value) if isinstance(value, Global) else f"a {type(value).__name__}"


@dataclass(frozen=True)
class Persistent:
    """A value that lies outside of the pickle.

    Attributes:
        key: The writer's name for it.
    """

    key: Any


def written_pickle(value: Any) -> bytes:
    """Write a pickle of protocol 2, which all versions of torch read.

    Args:
        value: Plain values, and the inert ones of this module.

    Raises:
        MalformedPickleError: A value is of another type, or nested too deeply.
    """
    out = bytearray(b"\x80\x02")
    _write(value, out, 0)
    return bytes(out + b".")


def _write(value: Any, out: bytearray, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise MalformedPickleError("the values are nested too deeply")
    if value is None:
        out += b"N"
    elif type(value) is bool:
        out += b"\x88" if value else b"\x89"
    elif type(value) is int:
        _write_int(value, out)
    elif type(value) is float:
        out += b"G" + struct.pack(">d", value)
    elif type(value) is str:
        raw = value.encode("utf-8", "surrogatepass")
        out += b"X" + struct.pack("<I", len(raw)) + raw
    elif isinstance(value, Global):
        out += f"c{value.module}\n{value.name}\n".encode()
    elif isinstance(value, Persistent):
        _write(value.key, out, depth + 1)
        out += b"Q"
    elif isinstance(value, Call):
        _write(value.function, out, depth + 1)
        _write(value.arguments, out, depth + 1)
        out += b"\x81" if isinstance(value, Instance) else b"R"
        if value.state is not None:
            _write(value.state, out, depth + 1)
            out += b"b"
    else:
        _write_container(value, out, depth)


def _write_int(value: int, out: bytearray) -> None:
    if -(2**31) <= value < 2**31:
        out += b"J" + struct.pack("<i", value)
        return
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    out += (b"\x8a" + bytes([len(raw)]) if len(raw) < 256 else b"\x8b" + struct.pack("<i", len(raw))) + raw


def _write_container(value: Any, out: bytearray, depth: int) -> None:
    if isinstance(value, Counter):
        _write(Call(Global("collections", "Counter"), (dict(value),)), out, depth)
    elif isinstance(value, dict):
        out += b"}("
        for key, item in value.items():
            _write(key, out, depth + 1)
            _write(item, out, depth + 1)
        out += b"u"
    elif isinstance(value, (list, tuple)):
        out += b"](" if isinstance(value, list) else b"("
        for item in value:
            _write(item, out, depth + 1)
        out += b"e" if isinstance(value, list) else b"t"
    elif type(value) is complex:
        _write(Call(Global("builtins", "complex"), (value.real, value.imag)), out, depth)
    elif type(value) is bytes:
        _write(Call(Global("_codecs", "encode"), (value.decode("latin-1"), "latin1")), out, depth)
    elif type(value) is bytearray:
        _write(Call(Global("builtins", "bytearray"), (bytes(value),)), out, depth)
    else:
        raise MalformedPickleError(f"a pickle cannot hold a {type(value).__name__} here")


def read_pickle(raw: bytes) -> Any:
    """Read a pickle of any protocol into plain and inert values.

    Lists and dictionaries may be in several places, or hold themselves, as in the pickle. A caller that walks over
    them counts its steps.

    Raises:
        MalformedPickleError: It is no pickle, or it does anything that no plain value needs.
    """
    machine = _Machine()
    try:
        for name, argument in itertools.islice(operations(raw), _MOST_OPERATIONS):
            if machine.step(name, argument):
                return machine.result()
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise MalformedPickleError(f"it is no pickle: {str(error)[:200]}") from error
    raise MalformedPickleError("it is no pickle that is read here: it has too many operations")


_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
_SETS = {"EMPTY_SET": "set", "FROZENSET": "frozenset"}
_ORDERED = Global("collections", "OrderedDict")
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


def _dictionary(items: list[Any]) -> dict[Any, Any]:
    for key in items[::2]:
        # The hash of a tuple is that of all its items, computed anew each time. There may be 2^60 of them.
        if any(isinstance(item, (tuple, Persistent)) for item in (key if isinstance(key, tuple) else (key,))):
            raise MalformedPickleError("it has a key of nested tuples")
    return dict(zip(items[::2], items[1::2]))


class _Machine:
    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def result(self) -> Any:
        if len(self._stack) != 1:
            raise MalformedPickleError("it does not leave one value")
        return self._stack[0]

    def step(self, name: str, argument: Any) -> bool:
        """Carry out one operation. Return True for the last one."""
        stack = self._stack
        if name in PUSHED:
            stack.append(argument)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in _TUPLES:
            count = _TUPLES[name]
            items = tuple(self._pop() for _ in range(count))
            stack.append(items[::-1])
        elif name in PUTS:
            self._memo[len(self._memo) if name == "MEMOIZE" else int(argument)] = self._top()
        elif name in GETS:
            stack.append(self._memo[int(argument)])
        elif name not in ("PROTO", "FRAME"):
            self._act(name, argument)
        return name == "STOP"

    def _act(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name == "MARK":
            stack.append(_MARK)
        elif name == "POP":
            stack.pop()
        elif name == "POP_MARK":
            self._to_mark()
        elif name == "DUP":
            stack.append(self._top())
        elif name in ("TUPLE", "LIST"):
            stack.append((tuple if name == "TUPLE" else list)(self._to_mark()))
        elif name in _SETS:
            # A set hashes its items.
            if name == "FROZENSET":
                self._to_mark()
            stack.append(Call(Global("builtins", _SETS[name]), ()))
        elif name == "DICT":
            stack.append(_dictionary(self._to_mark()))
        elif name in ("APPEND", "APPENDS", "ADDITEMS", "SETITEM", "SETITEMS"):
            self._extend(name)
        elif name == "GLOBAL":
            module, _, called = argument.partition(" ")
            stack.append(Global(module, called))
        elif name == "STACK_GLOBAL":
            stack.append(self._named())
        elif name in ("PERSID", "BINPERSID"):
            stack.append(Persistent(argument if name == "PERSID" else self._pop()))
        elif name in ("REDUCE", "NEWOBJ", "NEWOBJ_EX", "BUILD"):
            self._make(name)
        elif name != "STOP":
            raise MalformedPickleError(f"it has the operation {name}, which no plain value needs")

    def _named(self) -> Global:
        name, module = self._pop(), self._pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise MalformedPickleError("it names no class")
        return Global(module, name)

    def _extend(self, name: str) -> None:
        items = self._to_mark() if name in ("APPENDS", "ADDITEMS", "SETITEMS") else []
        if name in ("APPEND", "SETITEM"):
            items = [self._pop() for _ in range(1 if name == "APPEND" else 2)][::-1]
        target = self._top()
        if isinstance(target, list) and name in ("APPEND", "APPENDS"):
            target.extend(items)
        elif isinstance(target, dict) and name in ("SETITEM", "SETITEMS"):
            target.update(_dictionary(items))
        elif not isinstance(target, Call):
            raise MalformedPickleError(f"it fills a {type(target).__name__}")

    def _make(self, name: str) -> None:
        stack = self._stack
        if name == "BUILD":
            state, target = self._pop(), self._top()
            if isinstance(target, Call):
                target.state = state
            elif not isinstance(target, dict):
                raise MalformedPickleError(f"it changes a {type(target).__name__}")
            return
        if name == "NEWOBJ_EX":
            self._pop()
        arguments, function = self._pop(), self._pop()
        if not isinstance(arguments, tuple):
            raise MalformedPickleError("it calls with no tuple of arguments")
        if function == _ORDERED and name == "REDUCE" and not arguments:
            stack.append({})
        else:
            stack.append((Call if name == "REDUCE" else Instance)(function, arguments))

    def _pop(self) -> Any:
        value = self._stack.pop()
        if value is _MARK:
            raise MalformedPickleError("it uses a mark as a value")
        return value

    def _top(self) -> Any:
        if self._stack[-1] is _MARK:
            raise MalformedPickleError("it uses a mark as a value")
        return self._stack[-1]

    def _to_mark(self) -> list[Any]:
        items = []
        while (item := self._stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]
