"""The state that decides the order of batches beside global random numbers.

Examples are generators and counters of a sampler or a stream. The state is found in the attributes of these objects. A
pass can be begun again when they have the state of its beginning.
"""

from __future__ import annotations

import hashlib
import logging
import random
import sys
import types
from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from spotkeep.errors import UsageError
from spotkeep.loaded import loaded
from spotkeep.state.encoding import object_state, stateful_kind, with_article
from spotkeep.state.restoring import set_object_state

from .global_batches import GlobalBatches

_logger = logging.getLogger("spotkeep")

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_CONTAINERS = (list, tuple, dict, set, deque)
_FEW = 256
_MOST_OBJECTS = 500
_DEEPEST = 8
_LARGE_BYTES = 4096
_LARGEST_BYTES = 64 * 2**20
# Python's own objects are threads, files and queues. (Python 3.9 does not list its modules.)
_PYTHON = getattr(sys, "stdlib_module_names", frozenset({"threading", "queue", "multiprocessing", "logging", "io"}))
_PLAIN_PYTHON = frozenset({"argparse", "collections", "functools", "itertools", "types"})


class OrderMemory:
    """The state of objects that decides an order.

    It takes random generators as they are. It takes plain values (numbers, texts, small containers), arrays and long
    lists of whole numbers if they changed since this memory was made. The script sets up the others again. It takes the
    whole state of an object that can save itself. Of a dataset with indices it takes the generators alone.

    Args:
        roots: The objects, by names for paths. The order of a list counts, too.
        named: Objects that the script named.

    Raises:
        UsageError: A named object has no state, or an object shuffles by the time of day.
    """

    def __init__(self, roots: Mapping[str, Any], named: Sequence[Any] = ()) -> None:
        self._named = [value for value in named if stateful_kind(value) is not None]
        self._roots = {name: value for name, value in roots.items() if value is not None}
        for index, value in enumerate(named):
            if stateful_kind(value) is None:
                if not _is_open(value):
                    raise UsageError(
                        f"state[{index}] of the loader is {with_article(type(value).__name__)}, whose state cannot be "
                        "saved; pass a random generator, or an object with attributes or with state_dict and "
                        "load_state_dict"
                    )
                self._roots[f"state[{index}]"] = value
        for path, value, full in self._walk():
            _refuse_unseeded(value)
            if full:
                _warn_of_iterators(path, value)
        self._lists = {name: list(value) for name, value in self._roots.items() if type(value) is list}
        # These may be somewhere in their data already when this memory is made: a checkpoint was restored into them.
        self._saving = {path for path, value, _ in self._walk() if stateful_kind(value) == "state_dict"}
        self._find()
        self._made: dict[str, dict[Any, Any]] = {}
        self._made = {path: self._changed(path, holder, large=True) for path, holder in self._holders}
        for made in self._made.values():
            made.update({key: _fingerprint(packed) for key, packed in made.items()})

    def capture(self, *, large: bool) -> dict[str, Any]:
        """Give their current state, as values for a checkpoint.

        Args:
            large: Arrays, long lists and the order of lists too.
        """
        if large:
            self._find()
        values = {}
        for path, holder in self._holders:
            changed = self._changed(path, holder, large=large)
            if changed:
                values[path] = changed
        return {
            "generators": {path: _copied(object_state(value)) for path, value in self._generators},
            "values": values,
            "orders": self._orders() if large else None,
            "named": [_copied(object_state(value)) for value in self._named],
        }

    def put_back(self, captured: Mapping[str, Any], *, positions: bool = True) -> None:
        """Give them the state that `capture` gave.

        Args:
            captured: The state.
            positions: Named objects also get the state of their `state_dict`. It may be a place in the data, from which
                the next pass would go on.

        Raises:
            UsageError: An object refuses its state.
        """
        for value, state in zip(self._named, captured["named"]):
            if positions or stateful_kind(value) != "state_dict":
                _set_state(value, state, type(value).__name__)
        self._find()
        for path, value in self._generators:
            if path in captured["generators"]:
                _set_state(value, captured["generators"][path], path)
        for path, holder in self._holders:
            wanted = {key: made for key, made in self._made.get(path, {}).items() if not isinstance(made, _Large)}
            wanted.update(captured["values"].get(path, {}))
            for key, packed in wanted.items():
                now = _packed(holder[key]) if key in holder else None
                # False equals 0, and is another value.
                if key not in holder or type(now) is not type(packed) or now != packed:
                    _put(holder, key, packed)
        for name, order in (captured["orders"] or {}).items():
            if name in self._lists:
                made = self._lists[name]
                self._roots[name][:] = made if order is None else [made[index] for index in array("q", order)]

    def _orders(self) -> dict[str, bytes | None]:
        """Give the order of each list, by the numbers of its items when this memory was made.

        None for an unchanged order.
        """
        found: dict[str, bytes | None] = {}
        for name, made in self._lists.items():
            numbers = {id(item): number for number, item in enumerate(made)}
            if all(id(item) in numbers for item in self._roots[name]):  # else it holds other items now
                order = [numbers[id(item)] for item in self._roots[name]]
                found[name] = None if order == list(range(len(made))) else array("q", order).tobytes()
        return found

    def _find(self) -> None:
        """Find the generators, and the attributes and dictionaries in which plain values may stand."""
        found = list(self._walk())
        self._generators = [(path, value) for path, value, _ in found if is_generator(value)]
        self._loaders = {path for path, value, _ in found if _is_loader(value)}
        self._settings_of_loaders = _settings_of_loaders() if self._loaders else frozenset()
        self._holders: list[tuple[str, dict[Any, Any]]] = [
            (path, value if type(value) is dict else vars(value))
            for path, value, full in found
            if full and type(value) not in (list, tuple) and not is_generator(value)
        ]

    def _changed(self, path: str, holder: dict[Any, Any], *, large: bool) -> dict[Any, Any]:
        """Give the plain values that are others than when this memory was made."""
        at_first = self._made.get(path, {})
        made = {} if path in self._saving else at_first
        changed = {}
        for key, value in holder.items():
            if path in self._loaders and key in self._settings_of_loaders:
                continue
            before = made.get(key, _NEW)
            if type(value) in _PLAIN and type(before) is type(value) and before == value:
                continue
            size = _size(value) if isinstance(key, (str, int)) else None
            if size is not None and (large or size <= _LARGE_BYTES):
                packed = _packed(value)
                now = _fingerprint(packed)
                # False equals 0, and is another value.
                if type(now) is not type(before) or now != before:
                    changed[key] = packed
            elif key in at_first and not isinstance(at_first[key], _Large):
                changed[key] = _OTHER
        changed.update({key: _OTHER for key in at_first if key not in holder})
        return changed

    def _walk(self) -> Iterator[tuple[str, Any, bool]]:
        known = {id(value) for value in self._named}
        for name, root in self._roots.items():
            if type(root) is not list:
                full = name == "batches" or not _has_indices(root)
                yield from _inside(name, root, known, depth=0, full=full)


def generators_in(value: Any) -> list[Any]:
    """Give the random generators in an object, in an order that follows from its attributes.

    They stand in attributes, and in what functions, methods and a `functools.partial` there hold.
    """
    return [found for _, found, _ in _inside("", value, set(), depth=0, full=False) if is_generator(found)]


@contextmanager
def seeded_generators(generators: Sequence[Any], key: bytes) -> Iterator[None]:
    """Let generators draw random numbers that follow from any bytes inside a `with` block."""
    outside = [_copied(object_state(generator)) for generator in generators]
    try:
        for number, generator in enumerate(generators):
            _seed(generator, hashlib.blake2b(b"%d %s" % (number, key), digest_size=8).digest())
        yield
    finally:
        for generator, state in zip(generators, outside):
            set_object_state(generator, state)


def _seed(generator: Any, seed: bytes) -> None:
    number = int.from_bytes(seed, "little") >> 1
    if hasattr(generator, "bit_generator"):
        generator.bit_generator.state = type(generator.bit_generator)(number).state
    elif hasattr(generator, "manual_seed"):
        generator.manual_seed(number)
    else:
        generator.seed(number & 0xFFFFFFFF)


def is_generator(value: Any) -> bool:
    """Say whether a value is a random generator of NumPy, torch or Python, and not a global one."""
    if isinstance(value, random.Random):
        return not isinstance(value, random.SystemRandom)
    numpy, torch = loaded("numpy.random"), loaded("torch")
    if numpy is not None and isinstance(value, (numpy.Generator, numpy.RandomState)):
        return value is not getattr(loaded("numpy.random.mtrand"), "_rand", None)
    return torch is not None and isinstance(value, torch.Generator) and value is not torch.default_generator


def _inside(path: str, value: Any, known: set[int], *, depth: int, full: bool) -> Iterator[tuple[str, Any, bool]]:
    """Give an object and the objects in it, with their paths, and with True if their plain values count."""
    if type(value) in _PLAIN or id(value) in known or depth > _DEEPEST or len(known) > _MOST_OBJECTS:
        return
    if is_generator(value):
        known.add(id(value))
        yield path, value, full
        return
    items: list[tuple[str, Any]]
    if isinstance(value, (types.FunctionType, types.MethodType, partial)):
        # Its plain values are the script's, and decide no order.
        full, items = False, [(f"{path}.{name}", item) for name, item in _captured(value)]
    elif type(value) in (list, tuple):
        items = [(f"{path}[{index}]", item) for index, item in enumerate(value[:_FEW])]
    elif type(value) is dict:
        items = [(f"{path}[{key!r}]", item) for key, item in value.items()] if len(value) <= _FEW else []
    elif _is_open(value):
        full = full and (depth == 0 or not _has_indices(value))
        own = vars(value).items()
        items = [(f"{path}.{name}", item) for name, item in own if not _is_loaders_own(value, name)]
    else:
        return
    known.add(id(value))
    if type(value) not in (list, tuple, dict) or _size(value) is None:
        yield path, value, full
    for inside, item in items:
        yield from _inside(inside, item, known, depth=depth + 1, full=full)


def _captured(value: Any) -> Iterator[tuple[str, Any]]:
    """Give what a function, a method or a `partial` holds: the object it is bound to, arguments, closure cells."""
    if isinstance(value, types.MethodType):
        yield "__self__", value.__self__
        value = value.__func__
    if isinstance(value, partial):
        yield from (("func", value.func), ("args", value.args), ("keywords", value.keywords))
    elif isinstance(value, types.FunctionType):
        yield from zip(value.__code__.co_freevars, (_content(cell) for cell in value.__closure__ or ()))
        yield from (("__defaults__", value.__defaults__), ("__kwdefaults__", value.__kwdefaults__))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None


def _warn_of_iterators(path: str, holder: Any) -> None:
    """Name in the log the iterators that an object keeps, because their positions cannot be saved."""
    kept = getattr(holder, "__dict__", {})
    names = [name for name, value in kept.items() if isinstance(value, Iterator) and not _is_loaders_own(holder, name)]
    if names and stateful_kind(holder) is None:
        _logger.warning(
            "%s, %s, keeps an iterator in %s, and where it is cannot be saved: after an interruption it begins anew, "
            "and may give the order of an earlier pass. Let the order follow from a seed and the epoch, keep a list "
            "and a number, or give the object state_dict and load_state_dict",
            path,
            with_article(type(holder).__name__),
            ", ".join(names),
        )


def _is_loaders_own(holder: Any, name: str) -> bool:
    return name == "_iterator" and _is_loader(holder)


def _is_open(value: Any) -> bool:
    """Say whether the attributes of an object may decide an order."""
    if isinstance(value, (type, types.ModuleType, types.FunctionType, types.MethodType)):
        return False
    if not isinstance(getattr(value, "__dict__", None), dict) or hasattr(type(value), "read"):
        return False
    package, _, rest = type(value).__module__.partition(".")
    if package == "torch":
        return rest.startswith("utils.data")
    if package == "spotkeep":
        return isinstance(value, GlobalBatches)  # the script may set its epoch
    return package not in _PYTHON or package in _PLAIN_PYTHON


def _has_indices(value: Any) -> bool:
    """Say whether an object is a dataset with indices. Its counts and caches decide no order."""
    torch_data = loaded("torch.utils.data")
    if torch_data is not None and isinstance(value, torch_data.Dataset):
        return not isinstance(value, torch_data.IterableDataset)
    return hasattr(type(value), "__getitem__") and hasattr(type(value), "__len__")


def _is_loader(value: Any) -> bool:
    torch_data = loaded("torch.utils.data")
    return torch_data is not None and isinstance(value, torch_data.DataLoader)


def _settings_of_loaders() -> frozenset[str]:
    """Name the attributes that torch's DataLoader makes.

    They are its arguments, which are the script's, and its own pass.
    """
    return frozenset(vars(loaded("torch.utils.data").DataLoader([None])))


def _refuse_unseeded(value: Any) -> None:
    """Refuse stages of WebDataset that seed their generator with the time, in each pass anew.

    Raises:
        UsageError: If it is one.
    """
    kind = type(value)
    if kind.__module__ == "webdataset.filters" and getattr(getattr(value, "f", None), "__name__", "") == "_shuffle":
        seeds = (*value.args[2:4], value.kw.get("rng"), value.kw.get("seed"))
        if all(seed is None for seed in seeds):
            raise UsageError(
                "WebDataset's shuffle has no seed: it takes one from the clock in each pass, so no order comes again. "
                "Write .shuffle(1000, rng=random.Random(1))"
            )
    if kind.__module__ == "webdataset.shardlists" and getattr(value, "deterministic", True) is False:
        raise UsageError(
            f"WebDataset's {kind.__name__} draws shards by the clock, so no order comes again; pass deterministic=True"
        )


class _Large(bytes):
    """The digest of a large value."""


_NEW = object()
_OTHER: tuple[str, list[Any]] = ("other", [])
"""Stands for a value that is not taken."""


def _fingerprint(packed: Any) -> Any:
    """Give a value that shows a change. Of a large one it is the digest alone."""
    if isinstance(packed, tuple) and packed[0] in ("array", "numbers") and len(packed[1]) > _LARGE_BYTES:
        return _Large(hashlib.blake2b(packed[1], key=repr(packed[2:]).encode()[:64], digest_size=16).digest())
    return packed


def _size(value: Any) -> int | None:
    """Return the approximate bytes of a plain value in a checkpoint. None for a value that is not taken."""
    if type(value) in _PLAIN:
        return len(value) if isinstance(value, (str, bytes)) else 8
    if _is_array(value):
        return int(value.nbytes) if value.nbytes <= _LARGEST_BYTES else None
    if type(value) not in _CONTAINERS:
        return None
    if len(value) > _FEW:
        numbers = type(value) is list and type(value[0]) is int and len(value) * 8 <= _LARGEST_BYTES
        return len(value) * 8 if numbers else None
    sizes = [_size(item) for item in ([*value, *value.values()] if type(value) is dict else value)]
    total = sum(size for size in sizes if size is not None)
    return None if None in sizes or total > _LARGEST_BYTES else total


def _is_array(value: Any) -> bool:
    numpy, torch = loaded("numpy"), loaded("torch")
    if numpy is not None and type(value) is numpy.ndarray:
        return bool(value.dtype.kind in "biuf")
    return torch is not None and type(value) is torch.Tensor and value.device.type == "cpu" and not value.is_sparse


def _raw(value: Any) -> bytes:
    """Give the bytes of an array or tensor."""
    if type(value).__module__.startswith("torch"):
        torch = sys.modules["torch"]
        value = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    raw: bytes = value.tobytes()
    return raw


def _packed(value: Any) -> Any:
    """Copy a plain value in a form that a checkpoint holds and that can be compared."""
    if type(value) in _PLAIN:
        return value
    if _is_array(value):
        library, _, dtype = str(value.dtype).rpartition(".")  # torch's are called torch.float32
        return ("array", _raw(value), library, dtype, tuple(value.shape))
    kind = type(value).__name__
    if type(value) is list and len(value) > _FEW:
        try:
            return ("numbers", array("q", value).tobytes())
        except (TypeError, OverflowError):
            return _OTHER
    if type(value) is dict:
        pairs = [[_packed(key), _packed(item)] for key, item in value.items()]
        return _OTHER if any(_OTHER in pair for pair in pairs) else (kind, pairs)
    if type(value) in _CONTAINERS:
        items = [_packed(item) for item in value]
        return _OTHER if _OTHER in items else (kind, sorted(items, key=repr) if kind == "set" else items)
    return _OTHER


def _unpacked(packed: Any) -> Any:
    if not isinstance(packed, tuple):
        return packed
    kind, body = packed[:2]
    if kind == "array":
        return _new_array(*packed[1:])
    if kind == "numbers":
        return array("q", body).tolist()
    if kind == "dict":
        return {_unpacked(key): _unpacked(item) for key, item in body}
    return {"list": list, "tuple": tuple, "set": set, "deque": deque}[kind](_unpacked(item) for item in body)


def _put(holder: dict[Any, Any], key: Any, packed: Any) -> None:
    """Put a value where it was, into the object that is there where that can be changed."""
    now: Any = holder.get(key)
    kind = packed[0] if isinstance(packed, tuple) else None
    if kind == "other":
        return
    if kind == "array" and _is_array(now) and _packed(now)[2:] == packed[2:]:
        _fill(now, packed)
        return
    value = _unpacked(packed)
    if type(now) is type(value) and type(now) in (list, deque):
        now.clear()
        now.extend(value)
    elif type(now) is type(value) and type(now) in (set, dict):
        now.clear()
        now.update(value)
    else:
        holder[key] = value


def _new_array(raw: bytes, library: str, dtype: str, shape: tuple[int, ...]) -> Any:
    if library == "torch":
        torch = sys.modules["torch"]
        # An empty buffer it refuses.
        values = torch.frombuffer(bytearray(raw), dtype=getattr(torch, dtype)) if raw else torch.empty(0)
        return values.to(getattr(torch, dtype)).reshape(shape)
    return sys.modules["numpy"].frombuffer(bytearray(raw), dtype=dtype).reshape(shape)


def _fill(now: Any, packed: Any) -> None:
    values = _new_array(*packed[1:])
    if type(now).__module__.startswith("torch"):
        now.detach().copy_(values)
    else:
        now[...] = values


def _set_state(value: Any, state: Any, path: str) -> None:
    try:
        set_object_state(value, state)
    except (ValueError, TypeError, KeyError, RuntimeError, AttributeError) as error:
        raise UsageError(
            f"{path}, which decides the order of the batches, refused the state that was saved: {error}; make it as in "
            "the run that saved it"
        ) from error


def _copied(value: Any) -> Any:
    """Copy an object's state, which may be the object's own memory."""
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copied(item) for item in value)
    if _is_array(value):
        return value.copy() if type(value).__module__ == "numpy" else value.clone()
    return value
