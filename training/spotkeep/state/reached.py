"""Finds the objects that a training uses, and the attributes of plain objects.

A framework saves its own objects, such as the variables of a model and the moments of its optimizer. A script adds
more, such as a second optimizer, a generator of random numbers, a shuffled order or a counter. A walk through the
script's objects finds them, from the model and the data on. Nothing here calls the script's code.
"""

from __future__ import annotations

import functools
import logging
import sys
import sysconfig
import types
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any, Callable

from spotkeep.loaded import loaded

from . import arrays

_logger = logging.getLogger("spotkeep")

_MOST_ITEMS = 1000
"""The number of items that are walked of a longer list. Such a list holds data."""
_LARGE = 2**20
"""An array of more bytes holds data. It is watched, and not copied."""
_PLAIN_TYPES = frozenset((type(None), bool, int, float, complex, str, bytes))
_EQUAL_AS_PYTHON_SAYS = frozenset((type(None), bool, int, str, bytes))
"""Two values of one of these types are the same where `==` says so, which also says so of 1 and True, 0.0 and -0.0."""
_MISSING = object()


@dataclass(frozen=True)
class Reached:
    """An object that a training can reach.

    Attributes:
        path: Its place, which no other object has.
        value: The object.
        by_name: The way to it goes through a name in the script's code, not through attributes alone.
    """

    path: str
    value: Any
    by_name: bool


def reached(roots: Mapping[str, Any], *, through: tuple[type, ...] = ()) -> list[Reached]:
    """Give every object that the script's own code can reach from some of its objects.

    The way goes through dictionaries, lists and tuples, through attributes, and through the closures and the globals
    that functions and methods of the script name. Objects of libraries are given, and their attributes are not walked.

    Args:
        roots: Names and objects to begin with.
        through: Classes of libraries whose attributes are walked, too.

    Returns:
        Each object once, in an order that is the same in every process, those in attributes first. Plain values,
        arrays, modules, classes, functions and containers are left out.
    """
    found: list[Reached] = []
    taken: set[str] = set()
    seen: dict[int, Any] = {}  # what is seen stays alive: ids of objects that are gone are given again
    in_attributes = deque((path, value, False) for path, value in roots.items())
    by_name: deque[tuple[str, Any, bool]] = deque()
    while in_attributes or by_name:
        path, value, named = (in_attributes or by_name).popleft()
        if id(value) in seen or _is_leaf(value):
            continue
        seen[id(value)] = value
        if not isinstance(value, (*_CODE, *_CONTAINERS)):
            unused = (f"{path} ({number})" if number else path for number in count())
            path = next(candidate for candidate in unused if candidate not in taken)
            taken.add(path)
            found.append(Reached(path, value, named))
        (by_name if named else in_attributes).extend(
            (inner, item, named) for inner, item in _inside(path, value, through)
        )
        by_name.extend((name, item, True) for name, item in _named_by(value))
    return found


def is_own(kind: type) -> bool:
    """Say whether a class is the script's own. Its module lies outside Python and the installed packages."""
    return _is_own_module(kind.__module__)


@functools.cache
def names_in_code(kind: Any) -> frozenset[str]:
    """Give the names that methods of the script's own classes mention, attributes among them."""
    return frozenset(name for function in _methods(kind) for name in _names(function.__code__))


class ChangedAttributes:
    """The attributes of some objects that changed since this was made, for the state of a `Checkpointer`.

    Plain values, containers of these, arrays and tensors are saved. The log names, once, changes that cannot be saved.

    Args:
        owners: Paths and objects.
        wanted: Decides, from an object and the name of an attribute, if it counts.
        large: Large arrays are saved, too. Those of a dataset are its data.
        remedy: The advice for a changed attribute that is not saved.
    """

    def __init__(
        self, owners: Mapping[str, Any], *, wanted: Callable[[Any, str], bool], large: bool, remedy: str
    ) -> None:
        self._owners = dict(owners)
        self._wanted = wanted
        self._large = large
        self._remedy = remedy
        self._named: set[tuple[str, str]] = set()
        self._first: dict[str, dict[str, Any]] = {}
        self._others: dict[str, set[str]] = {}
        # What was put back is no first value, though it may be equal to one, or seem to be.
        self._restored: set[tuple[str, str]] = set()
        for path, owner in self._owners.items():
            self._first[path] = {
                name: _kept(value) for name, value in vars(owner).items() if self._is_wanted(owner, name, value)
            }
            self._others[path] = {name for name in vars(owner) if not wanted(owner, name)}

    def state_dict(self) -> dict[str, Any]:
        """Give the changes, with paths as names."""
        changed: dict[str, Any] = {}
        for path, name, value in self._changes():
            if _is_savable(value) and (self._large or not _is_large(value)):
                changed.setdefault(path, {})[name] = _copied(value) if _is_container(value) else value
            else:
                self._warn_of(path, name)
        return changed

    def load_state_dict(self, changed: Mapping[str, Any]) -> None:
        """Put back the changes that `state_dict` gave. All other attributes get their first values.

        Raises:
            ValueError: An object is not here. The message names each.
        """
        missing = sorted(changed.keys() - self._owners.keys())
        if missing:
            raise ValueError(f"what was saved belongs to objects that are not here: {', '.join(missing)}")
        for path, name, _ in list(self._changes()):
            first = self._first[path].get(name, _MISSING)
            if name not in changed.get(path, {}) and first is not _MISSING and not isinstance(first, _Watched):
                _put(self._owners[path], name, _copied(first))
        self._restored = {(path, name) for path, attributes in changed.items() for name in attributes}
        for path, attributes in changed.items():
            for name, value in attributes.items():
                _put(self._owners[path], name, value)

    def warn_of_changes(self) -> None:
        """Name the changes in the log, once."""
        for path, name, _ in self._changes():
            self._warn_of(path, name)

    def _warn_of(self, path: str, name: str) -> None:
        if (path, name) not in self._named:
            self._named.add((path, name))
            _logger.warning("the training changes %s.%s, which is not saved: %s", path, name, self._remedy)

    def _changes(self) -> Iterator[tuple[str, str, Any]]:
        for path, owner in self._owners.items():
            first, others, attributes = self._first[path], self._others[path], vars(owner)
            for name, kept in first.items():
                value = attributes.get(name, _MISSING)
                restored = (path, name) in self._restored
                if value is not kept and _is_value(value) and (restored or not _is_as_kept(value, kept)):
                    yield path, name, value
            for name in sorted(attributes.keys() - first.keys() - others):
                if self._is_wanted(owner, name, attributes[name]):
                    yield path, name, attributes[name]

    def _is_wanted(self, owner: Any, name: str, value: Any) -> bool:
        return self._wanted(owner, name) and _is_value(value)


class _Watched:
    """Stands for a value that is too large to be copied, or cannot be. A few places of it show a change."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.sample = _sample(value)


_CONTAINERS = (dict, list, tuple)
_CODE = (types.FunctionType, types.MethodType, types.GeneratorType, functools.partial)


def _is_leaf(value: Any) -> bool:
    return _is_plain(value) or _is_array(value) or isinstance(value, (type, types.ModuleType))


def _inside(path: str, value: Any, through: tuple[type, ...]) -> Iterator[tuple[str, Any]]:
    """Give the objects inside an object."""
    if isinstance(value, dict):
        yield from ((f"{path}[{key!r}]", item) for key, item in islice(value.items(), _MOST_ITEMS))
    elif isinstance(value, (list, tuple)):
        yield from ((f"{path}[{index}]", item) for index, item in enumerate(islice(value, _MOST_ITEMS)))
    elif isinstance(value, types.MethodType):
        yield from ((path, value.__self__), (path, value.__func__))
    elif isinstance(value, functools.partial):
        yield from ((path, value.func), (path, list(value.args)), (path, value.keywords))
    elif isinstance(value, types.GeneratorType):
        if value.gi_frame is not None and _is_own_module(value.gi_frame.f_globals.get("__name__", "")):
            yield from ((f"{path}.{name}", item) for name, item in value.gi_frame.f_locals.items())
    elif hasattr(value, "__dict__") and (is_own(type(value)) or isinstance(value, through)):
        yield from ((f"{path}.{name}", item) for name, item in vars(value).items())


def _named_by(value: Any) -> Iterator[tuple[str, Any]]:
    """Give the objects that code can name in its closure, its globals, and the defaults of its arguments."""
    if isinstance(value, types.GeneratorType):
        if value.gi_frame is not None and _is_own_module(value.gi_frame.f_globals.get("__name__", "")):
            yield from _globals(value.gi_code, value.gi_frame.f_globals)
    elif isinstance(value, types.FunctionType):
        if not _is_own_module(value.__module__ or ""):
            return
        cells = zip(value.__code__.co_freevars, value.__closure__ or ())
        yield from ((name, cell.cell_contents) for name, cell in cells if _is_filled(cell))
        yield from _globals(value.__code__, value.__globals__)
        yield value.__qualname__, [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    elif not isinstance(value, (*_CODE, *_CONTAINERS)):
        yield from ((function.__qualname__, function) for function in _methods(type(value)))


def _globals(code: types.CodeType, names: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, names[name]) for name in sorted(_names(code)) if name in names)


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - reading it is the question
    except ValueError:
        return False
    return True


def _methods(kind: type) -> Iterator[types.FunctionType]:
    """Give the functions of a class that are the script's own."""
    for base in filter(is_own, kind.__mro__):
        for item in vars(base).values():
            parts = (item.fget, item.fset) if isinstance(item, property) else (getattr(item, "__func__", item),)
            yield from (part for part in parts if isinstance(part, types.FunctionType))


def _names(code: types.CodeType) -> set[str]:
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


@functools.cache
def _is_own_module(name: str) -> bool:
    if name == "__main__":
        return True
    if name.partition(".")[0] in ("spotkeep", "builtins"):
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is not None and not any(place in Path(file).parents for place in _installed_places())


@functools.cache
def _installed_places() -> tuple[Path, ...]:
    return tuple({Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN_TYPES or arrays.is_numpy_scalar(value)


def _is_array(value: Any) -> bool:
    return arrays.is_numpy_array(value) or arrays.is_torch_tensor(value)


def _is_value(value: Any) -> bool:
    return _is_plain(value) or _is_array(value) or _is_container(value)


def _is_container(value: Any) -> bool:
    # Keras and TensorFlow put lists and dictionaries of their own in the place of the script's.
    return isinstance(value, (list, dict)) or type(value) is tuple


def _is_savable(value: Any) -> bool:
    if _is_plain(value):
        return True
    if _is_array(value):
        return not (arrays.is_numpy_array(value) and value.dtype.hasobject)
    if not _is_container(value):
        return False
    items = value.values() if isinstance(value, dict) else value
    if {*map(type, items)} <= _PLAIN_TYPES:
        return True
    # A container that fills with arrays is a cache.
    return all(_is_savable(item) and not _is_large(item) for item in items) and sum(map(_array_bytes, items)) <= _LARGE


def _array_bytes(value: Any) -> int:
    return value.nbytes if _is_array(value) else 0


def _is_large(value: Any) -> bool:
    """Say whether an array holds data. An order of them is large too, and has one dimension of whole numbers."""
    if not _is_array(value) or value.nbytes <= _LARGE:
        return False
    return not (arrays.is_numpy_array(value) and value.ndim == 1 and value.dtype.kind in "iuSU")


def _kept(value: Any) -> Any:
    """Give a copy to compare with later."""
    return _copied(value) if _is_savable(value) and not _is_large(value) else _Watched(value)


def _copied(value: Any) -> Any:
    if arrays.is_torch_tensor(value):
        return value.detach().clone()
    if arrays.is_numpy_array(value):
        return value.copy(order="K")
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if _is_container(value):
        return (tuple if type(value) is tuple else list)(map(_copied, value))
    return value


def _is_as_kept(value: Any, kept: Any) -> bool:
    if isinstance(kept, _Watched):
        return value is kept.value and _sample(value) == kept.sample
    return _equal(value, kept)


def _equal(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if _is_container(one) and _is_container(other):
        return _equal_containers(one, other)
    if type(one) is not type(other):
        return False
    if arrays.is_torch_tensor(one):
        torch: Any = loaded("torch")
        return one.dtype == other.dtype and one.device == other.device and bool(torch.equal(one.detach(), other))
    if arrays.is_numpy_array(one):
        numpy: Any = loaded("numpy")
        return one.dtype == other.dtype and bool(
            numpy.array_equal(one, other, equal_nan=one.dtype.kind in "fc" and not one.dtype.names)
        )
    if isinstance(one, float):
        return repr(one) == repr(other)  # NaN is NaN, and 0.0 is not -0.0
    return bool(one == other) or bool(one != one and other != other)


def _equal_containers(one: Any, other: Any) -> bool:
    if isinstance(one, dict) or isinstance(other, dict):
        both = isinstance(one, dict) and isinstance(other, dict) and len(one) == len(other)
        return both and all(map(_equal, one, other)) and all(map(_equal, one.values(), other.values()))
    if isinstance(one, tuple) is not isinstance(other, tuple) or len(one) != len(other):
        return False
    if {*map(type, one)} <= _EQUAL_AS_PYTHON_SAYS:  # a long list of plain values is compared fast so
        return list(map(type, one)) == list(map(type, other)) and list(one) == list(other)
    return all(map(_equal, one, other))


def _sample(value: Any) -> Any:
    """Give a few of its items, in places that are spread over all of it."""
    if arrays.is_numpy_array(value) and not value.dtype.hasobject:
        return value.shape, value.dtype.str, value.flat[:: max(1, value.size // 256)].tobytes()
    if arrays.is_torch_tensor(value):
        return None if value.is_inference() else value._version, tuple(value.shape)
    if isinstance(value, dict):
        return len(value), [id(item) for item in islice(value.values(), 256)]
    if _is_container(value):
        return len(value), [id(item) for item in value[:: max(1, len(value) // 256)]]
    return None


def _put(owner: Any, name: str, value: Any) -> None:
    """Give an attribute a value. An object that the script may refer to is filled in place."""
    live = vars(owner).get(name, _MISSING)
    if _is_array(live) and type(live) is type(value) and live.shape == value.shape and live.dtype == value.dtype:
        if arrays.is_numpy_array(live) and live.flags.writeable:
            live[...] = value
            return
        if arrays.is_torch_tensor(live) and not live.requires_grad:
            live.copy_(value)
            return
    if isinstance(live, list) and isinstance(value, list):
        live[:] = value
    elif isinstance(live, dict) and isinstance(value, dict):
        live.clear()
        live.update(value)
    else:
        vars(owner)[name] = value.to(live.device) if arrays.is_torch_tensor(live) else value
