"""Evaluates the values that stand in a Python script, without running it. Pure.

Literals are taken, arithmetic of them, `dict(...)`, and texts that are put together. So are choices by a known value,
and names that the script assigns in one place. Any other part of a value is `Computed`. It carries the script's own
text, so that the reader can name it.
"""

from __future__ import annotations

import ast
import math
import operator
import posixpath
import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

_OPERATORS: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
}  # fmt: skip
_CHANGING_METHODS: Final = frozenset(
    {"update", "setdefault", "pop", "popitem", "clear", "append", "extend", "insert", "remove", "sort", "reverse"}
)
_PATH_JOINS: Final = frozenset({"os.path.join", "posixpath.join", "path.join"})
_LARGEST: Final = 10**12
"""The largest product that is calculated. A script may hold `"a" * 10**12`."""
_LARGEST_ARGUMENT: Final = 100_000
"""The most values and characters of an argument, with all its parts."""
_LONGEST_SHOWN: Final = 80


@dataclass(frozen=True)
class Computed:
    """A value that the script computes when it runs.

    Attributes:
        text: The beginning of its expression.
    """

    text: str


class Configuration(dict[str, Any]):
    """The arguments of a call that makes an object, such as `Compute(instance_count=2)`.

    Attributes:
        kind: The name of its class.
    """

    def __init__(self, kind: str, arguments: Mapping[str, Any]) -> None:
        super().__init__(arguments)
        self.kind = kind


class _ComputedError(ValueError):
    """The value that is asked for is computed."""


class _TooLargeError(ValueError):
    """A value comes to more than is read."""


def computed_in(value: Any) -> Computed | None:
    """Return the first computed part of a value. None where it has none."""
    if isinstance(value, Computed):
        return value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for each in inner if (found := computed_in(each)) is not None), None)


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Return the original name of each imported name, such as `{"PT": "PyTorch"}` for `PyTorch as PT`."""
    return {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def called(call: ast.Call, names: Mapping[str, str]) -> str:
    """Return the last name of the called function or class, such as `PyTorch` for `sagemaker.pytorch.PyTorch()`.

    Args:
        call: The call.
        names: See `imported_names`.
    """
    if isinstance(call.func, ast.Name):
        return names.get(call.func.id, call.func.id)
    return getattr(call.func, "attr", "")


class ScriptValues:
    """Evaluates expressions of one script.

    Names may stand for names that stand for names. So the size of an argument is bounded, not that of the script.
    """

    def __init__(
        self, tree: ast.Module, *, positional: Mapping[str, tuple[str, ...]], before: int | None = None
    ) -> None:
        """Find the values of a script's names.

        Args:
            tree: The script.
            positional: The classes of the calls that are read, each with the names of its positional arguments.
            before: The line before which a mapping may be filled, `settings["lr"] = 0.1`. None for any.
        """
        self._classes = imported_names(tree)
        self._positional = positional
        self._names = _assigned_once(tree, before=before)
        self._open = set[str]()
        self._size_left = 0
        self._shown = dict[ast.expr, Computed]()

    def value(self, node: ast.expr) -> Any:
        """Evaluate an expression. A computed part of a list or a mapping is `Computed`, as the whole value may be."""
        self._size_left = _LARGEST_ARGUMENT
        return self._bounded(node, self._inner)

    def arguments(self, call: ast.Call, *, positional: tuple[str, ...]) -> dict[str, Any]:
        """Evaluate each argument of a call, by its name.

        Args:
            call: The call.
            positional: The names of its positional arguments.
        """
        found = dict[str, Any]()
        for name, node in self._named(call, positional):
            value = self.value(node)
            if name.startswith("**") and isinstance(value, dict):
                found |= {str(key): each for key, each in value.items()}
            else:
                found[name] = value
        return found

    def _named(self, call: ast.Call, positional: tuple[str, ...]) -> Iterator[tuple[str, ast.expr]]:
        """Yield the arguments of a call by their names. A mapping that is spread has `**` before its name."""
        for place, node in enumerate(call.args):
            name = positional[place] if place < len(positional) else f"argument {place + 1}"
            yield ("*arguments", node) if isinstance(node, ast.Starred) else (name, node)
        for keyword in call.keywords:
            yield keyword.arg or f"**{self._computed(keyword.value).text}", keyword.value

    def _bounded(self, node: ast.expr, evaluate: Callable[[ast.expr], Any]) -> Any:
        try:
            return evaluate(node)
        except (_ComputedError, _TooLargeError, RecursionError):
            self._open.clear()
            return self._computed(node)

    def _computed(self, node: ast.expr) -> Computed:
        """Return the text of a computed expression. It is written once, because many names may lead to it."""
        if node not in self._shown:
            try:
                self._shown[node] = Computed(ast.unparse(node)[:_LONGEST_SHOWN])
            except RecursionError:
                self._shown[node] = Computed("an expression of very many parts")
        return self._shown[node]

    def _inner(self, node: ast.expr) -> Any:
        """Evaluate a part. A computed value stays in its place."""
        try:
            return self._value(node)
        except _ComputedError:
            return self._computed(node)

    @contextmanager
    def _opened(self, name: ast.Name) -> Iterator[ast.expr]:
        """Give the expression of a name. Within, the name has no value, so a name that stands for itself ends."""
        if name.id not in self._names or name.id in self._open:
            raise _ComputedError
        self._open.add(name.id)
        try:
            yield self._names[name.id]
        finally:
            self._open.discard(name.id)

    def _add_size(self, size: int) -> None:
        self._size_left -= size
        if self._size_left < 0:
            raise _TooLargeError

    def _value(self, node: ast.expr) -> Any:
        self._add_size(1)
        match node:
            case ast.Constant(value=str() as text):
                return self._sized(text)
            case ast.Constant(value=int() | float() | None as value):
                return value
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self._inner(item) for item in items]
            case ast.Dict(keys=keys, values=values):
                return self._mapping(zip(keys, values, strict=True))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -_number(self._value(operand), largest=math.inf)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self._plain(operand)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._value(body if self._plain(test) else orelse)
            case ast.Subscript(value=value, slice=ast.Constant(value=str() | int() as key)):
                return self._entry(self._value(value), key)
            case ast.BinOp(left=left, op=ast.Mod(), right=right):
                values = right.elts if isinstance(right, ast.Tuple) else [right]
                return self._sized(self._with_places_filled(self._value(left), values))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                first, second = self._value(left), self._value(right)
                if isinstance(first, str) and isinstance(second, str) and isinstance(op, ast.Add):
                    return self._sized(first + second)
                return _OPERATORS[type(op)](_number(first), _number(second))
            case ast.JoinedStr(values=parts):
                return self._sized("".join(self._text(part) for part in parts))
            case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                return self._text(value)
            case ast.Name():
                with self._opened(node) as meant:
                    return self._value(meant)
            case ast.Call(func=ast.Name(id="str"), args=[value], keywords=[]):
                return self._sized(self._text(value))
            case ast.Call(func=ast.Attribute(value=value, attr="format"), args=args, keywords=keywords):
                return self._sized(self._formatted(self._text(value), args, keywords))
            case ast.Call(func=ast.Attribute(attr="join") as join, args=args, keywords=[]) if (
                ast.unparse(join) in _PATH_JOINS and args
            ):
                return self._sized(posixpath.join(*map(self._text, args)))
            case ast.Call(func=ast.Name(id="dict"), args=[] | [_] as spread, keywords=keywords):
                named = ((_key(word.arg), word.value) for word in keywords)
                return self._mapping([*((None, each) for each in spread), *named])
            case ast.Call() if (kind := called(node, self._classes)) in self._positional:
                arguments = ((_key(name), value) for name, value in self._named(node, self._positional[kind]))
                return Configuration(kind, self._mapping(arguments))
        raise _ComputedError

    def _mapping(self, entries: Iterable[tuple[ast.expr | None, ast.expr]]) -> dict[str, Any]:
        found = dict[str, Any]()
        for key, node in entries:
            value = self._inner(node)
            if key is not None:
                found[self._text(key)] = value
            elif isinstance(value, dict):
                found |= value
            else:
                found[f"**{self._computed(node).text}"] = self._computed(node)
        return found

    def _entry(self, value: Any, key: str | int) -> Any:
        known = isinstance(value, dict) and not any(name.startswith("**") for name in value) and key in value
        if not known and not (isinstance(value, list) and isinstance(key, int) and -len(value) <= key < len(value)):
            raise _ComputedError
        entry = value[key]
        if isinstance(entry, Computed):
            raise _ComputedError
        return entry

    def _plain(self, node: ast.expr) -> str | float | None:
        """Evaluate a text, a number, a boolean or None."""
        value = self._value(node)
        if value is not None and not isinstance(value, str | int | float):
            raise _ComputedError
        return value

    def _formatted(self, template: str, args: list[ast.expr], keywords: list[ast.keyword]) -> str:
        """Evaluate `"s3://{}/{name}".format(bucket, name="train")` with plain fields alone."""
        texts = {str(place): node for place, node in enumerate(args)} | {word.arg: word.value for word in keywords}
        parts, automatic = [], 0
        try:
            fields = list(string.Formatter().parse(template))
        except ValueError as error:
            raise _ComputedError from error
        for literal, name, form, conversion in fields:
            parts.append(literal)
            if name is None:
                continue
            node = texts.get(name or str(automatic))
            automatic += not name
            if node is None or form or conversion:
                raise _ComputedError
            parts.append(self._text(node))
        return "".join(parts)

    def _with_places_filled(self, template: Any, values: list[ast.expr]) -> str:
        """Evaluate `"s3://%s/%s" % (bucket, prefix)` with plain places alone."""
        if not isinstance(template, str):
            raise _ComputedError
        parts = re.split("(%s)", template)
        if "%" in "".join(parts[::2]) or len(values) != len(parts) // 2:
            raise _ComputedError
        parts[1::2] = map(self._text, values)
        return "".join(parts)

    def _text(self, node: ast.expr) -> str:
        value = self._value(node)
        if not isinstance(value, str | int | float):
            raise _ComputedError
        return str(value)

    def _sized(self, text: str) -> str:
        self._add_size(len(text))
        return text


def _number(value: Any, *, largest: float = _LARGEST) -> int | float:
    if not isinstance(value, int | float) or abs(value) > largest:
        raise _ComputedError
    return value


def _key(name: str | None) -> ast.expr | None:
    """Return a keyword as the key of a mapping. None for `**spread`."""
    return None if name is None or name.startswith("**") else ast.Constant(name)


def _assigned_once(tree: ast.Module, *, before: int | None) -> dict[str, ast.expr]:
    """Return the expression of each name that the script assigns in one place, and changes nowhere else.

    A mapping that is filled in the same block, `settings["lr"] = 0.1`, stands for all that it is filled with.
    """
    assigned, changed = dict[str, list[ast.expr | None]](), dict[str, int]()
    for node in ast.walk(tree):
        for name in _bound(node):
            assigned.setdefault(name, []).append(None)
        for name in _changed(node):
            changed[name] = changed.get(name, 0) + 1
    values = dict[str, ast.expr]()
    for block in _blocks(tree):
        here = dict[str, ast.expr]()
        for statement in block:
            filled = _filled(statement) if before is None or statement.lineno < before else None
            begun = None if filled is None else here.get(filled[0])
            # Another name of a mapping fills that mapping.
            if filled is not None and begun is not None and not isinstance(begun, ast.Name):
                name, key, value = filled
                here[name] = ast.Dict(keys=[None, key], values=[begun, value])
                changed[name] -= 1
                continue
            match statement:
                case ast.Assign(targets=targets, value=value):
                    here |= {target.id: value for target in targets if isinstance(target, ast.Name)}
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    here[name] = value
        values |= here
    # A second name of a mapping, and a function of the script that gets it, may change it as well.
    others = {value.id for name, value in values.items() if isinstance(value, ast.Name) and changed.get(name)}
    others |= {name for name in _handed_on(tree) if isinstance(values.get(name), ast.Dict | ast.List | ast.Call)}
    return {
        name: value
        for name, value in values.items()
        if len(assigned.get(name, ())) == 1 and not changed.get(name) and name not in others
    }


def _handed_on(tree: ast.Module) -> Iterator[str]:
    """Yield the names that the script hands to functions of its own."""
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
            given = [*node.args, *(word.value for word in node.keywords)]
            yield from (each.id for each in given if isinstance(each, ast.Name))


def _blocks(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for _, block in ast.iter_fields(node):
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield block


def _bound(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node binds."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            yield name
        case ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case (
            ast.ExceptHandler(name=str() as name) | ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name)
        ):
            yield name
        case ast.MatchMapping(rest=str() as name):
            yield name
        case ast.alias(name=name, asname=asname):
            yield asname or name.partition(".")[0]
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            yield from names


def _changed(node: ast.AST) -> Iterator[str]:
    """Yield the name of each value that a node changes in its place."""
    match node:
        case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()):
            yield from _base(value)
        case ast.Attribute(value=value, ctx=ast.Store() | ast.Del()):
            yield from _base(value)
        case ast.Call(func=ast.Attribute(value=value, attr=method)) if method in _CHANGING_METHODS:
            yield from _base(value)


def _base(node: ast.expr) -> Iterator[str]:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id


def _filled(statement: ast.stmt) -> tuple[str, ast.expr | None, ast.expr] | None:
    """Return the mapping, the key and the value of `settings["lr"] = 0.1`. Of `settings.update(...)` no key."""
    match statement:
        case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str()) as key)]):
            return name, key, statement.value
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="update"), args=[]) as call):
            return name, None, ast.Call(func=ast.Name(id="dict", ctx=ast.Load()), args=[], keywords=call.keywords)
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="update"), args=[given]) as call):
            spread = ast.keyword(arg=None, value=given)
            return (
                name,
                None,
                ast.Call(func=ast.Name(id="dict", ctx=ast.Load()), args=[], keywords=[spread, *call.keywords]),
            )
    return None
