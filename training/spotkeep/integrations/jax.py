"""JAX's pytrees as a state.

They hold the parameters, optimizer states and keys of Flax, Optax or a script, and need no pickle.

Arrays of JAX cannot be changed in place. So the script keeps its tree in a `PytreeState` and reads it from there.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Sequence
from typing import Any

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
except ImportError as error:
    raise ImportError(f"spotkeep.integrations.jax needs JAX: install 'jax>=0.6' ({error})") from error

from spotkeep.state.divided import Box, DividedArray, Part

_PLAIN = (bool, int, float, complex, str, bytes)


class PytreeState:
    """A pytree, for the state of a `Checkpointer`.

    ```python
    training = PytreeState({"params": params, "optimizer": optimizer.init(params), "key": jax.random.key(0)})
    with Checkpointer({"training": training}, every_steps=100) as checkpointer:
        for step in checkpointer.steps(total_steps):
            training.value = train_step(training.value, batch(step))
    ```

    The checkpoint holds the leaves and their paths. The script makes the same nodes again, such as named tuples,
    dataclasses and the functions in them. The checkpoint also holds changes that the training makes outside the leaves.
    These are numbers, texts and flags (`pytree_node=False`, an attribute of an nnx module), and entries that
    dictionaries, lists and tuples gained or lost.

    Args:
        value: Dictionaries, lists, tuples and any other registered node. Leaves are arrays of JAX or NumPy, typed keys
            and plain values.

    Attributes:
        value: The current tree. After a restore it is another object than the given one.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        self._first: _First | None = None

    def state_dict(self) -> dict[str, Any]:
        """Give the leaves as arrays of NumPy, each with its path, and the changes of the tree since the first call.

        Raises:
            ValueError: A leaf or a change of the tree cannot be saved. The message names each.
        """
        paths, leaves, structure = _flattened(self.value)
        problems = [
            problem for path, leaf in zip(paths, leaves) if (problem := _problem(leaf, path or "the tree")) is not None
        ]
        if problems:
            raise ValueError("; ".join(problems))
        saved = [_saved(leaf) for leaf in leaves]
        if self._first is None:
            self._first = _First(_kept(structure), dict(zip(paths, map(_form, saved))))
        state: dict[str, Any] = {"paths": paths, "leaves": saved}
        change = _change(self.value, structure, self._first.structure, "", problems)
        if problems:
            raise ValueError("; ".join(problems))
        if change != _SAME:
            state["tree"] = change
        # An array that grew is another one at the resume. One that the script makes otherwise is a mistake there.
        grown = [path for path, leaf in zip(paths, saved) if self._first.forms.get(path) != _form(leaf)]
        if grown:
            state["grown"] = grown
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the leaves that `state_dict` gave, on the devices where this tree has its own.

        Raises:
            ValueError: This tree has another form. The message names each difference.
        """
        paths, leaves, structure = _flattened(self.value)
        live = dict(zip(paths, leaves))
        if "tree" in state:
            structure = _changed(structure, state["tree"])
            paths = _flattened(jax.tree_util.tree_unflatten(structure, [0] * structure.num_leaves))[0]
        if paths != state["paths"]:
            changed = sorted({*paths} ^ {*state["paths"]})
            raise ValueError(f"the tree has other leaves than the one that was saved: {', '.join(changed[:5])}")
        grown = {*state.get("grown", ())}
        problems = [
            f"{path or 'the tree'} was {_form(saved)} and is {_form(here)}"
            for path, saved in zip(paths, state["leaves"])
            if path in live
            and path not in grown
            and _form(saved) != _form(here := _saved(live[path]))
            and not (_is_number(saved) and _is_number(here))
        ]
        if problems:
            raise ValueError("; ".join(problems[:5]))
        restored = [_restored(saved, live.get(path)) for path, saved in zip(paths, state["leaves"])]
        self.value = jax.tree_util.tree_unflatten(structure, restored)


@dataclasses.dataclass(frozen=True)
class _First:
    """A tree when it was first read.

    Attributes:
        structure: All but its leaves.
        forms: The form of each leaf, by its path.
    """

    structure: Any
    forms: dict[str, str]


def _change(value: Any, here: Any, first: Any, path: str, problems: list[str]) -> Any:
    """Describe in plain values the difference between a tree and its first form, without the leaves.

    Args:
        value: The tree.
        here: Its structure.
        first: The structure at first, None for a new part.
        path: Its path in the whole.
        problems: Gets a sentence for each change that cannot be put back.
    """
    if first is not None and _alike(here, first):
        return _SAME
    node = here.node_data()
    if node is None:
        return "leaf"
    kind: Any
    kind, outside = node
    first_kind: Any
    first_outside: Any
    first_kind, first_outside = (first.node_data() if first is not None else None) or (None, None)
    pairs = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda part: part is not value)[0]
    steps = [(f"{path}{jax.tree_util.keystr(key)}", part) for key, part in pairs]
    first_parts = first.children() if first is not None and first_kind is kind else []
    if kind in _CONTAINERS:
        if kind is dict:
            found = dict(zip(first_outside or (), first_parts))
            firsts = [found.get(key) for key in outside]
            if not all(type(key) in _PLAIN for key in outside):
                problems.append(f"{path or 'the tree'} has keys that cannot be saved")
        else:
            firsts = [first_parts[index] if index < len(first_parts) else None for index in range(len(steps))]
        change = {"kind": kind.__name__, "keys": outside if kind is dict else None}
    elif first_kind is not kind or len(first_parts) != len(steps):
        problems.append(
            f"{path or 'the tree'} is a {kind.__qualname__} that was not there before the training began, or had other "
            "parts; make it as it will be before the `with` block"
        )
        return _SAME
    else:
        firsts = first_parts
        names = _names_outside(kind, outside, [str(key[-1].name) for key, _ in pairs if hasattr(key[-1], "name")])
        change = {"outside": _change_outside(outside, first_outside, path, names, problems)}
    parts = [
        _change(part, structure, before, place, problems)
        for (place, part), structure, before in zip(steps, here.children(), firsts)
    ]
    return {**change, "parts": parts}


def _change_outside(here: Any, first: Any, path: str, names: Any, problems: list[str]) -> Any:
    """Describe the changes of a node outside its leaves.

    Args:
        here: Its data outside the leaves.
        first: The same data at first.
        path: The node's path.
        names: Names for the parts of the data, nested in tuples as they are.
        problems: Gets a sentence for each change that cannot be put back.
    """
    if _same(here, first):
        return _SAME
    if type(here) is tuple and type(first) is tuple and len(here) == len(first):
        inner = names if isinstance(names, tuple) and len(names) == len(here) else [names] * len(here)
        return [_change_outside(part, before, path, name, problems) for part, before, name in zip(here, first, inner)]
    if not _is_plain(here):
        place = f"{path}.{names}" if names else f"{path or 'the tree'}, outside its leaves,"
        problems.append(
            f"{place} was {_short(first)} before the training began and is {_short(here)} now, which cannot be saved: "
            "make it a leaf, or a plain value"
        )
    return {"value": here}


def _names_outside(kind: type, outside: Any, leaves: Sequence[str]) -> Any:
    """Name the data of a node outside its leaves, as far as that can be known."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind) if field.name not in leaves)
    if type(outside) is tuple and len(outside) == 3 and type(outside[1]) is tuple:  # a module of Flax' nnx
        return (None, None, outside[1])
    return None


def _changed(structure: Any, change: Any) -> Any:
    """Make a structure as `_change` described it, from the one that it was first.

    Raises:
        ValueError: If it is another one.
    """
    if change == _SAME:
        if structure is None:
            raise ValueError("the tree that was saved had parts that are not here")
        return structure
    if change == "leaf":
        return jax.tree_util.tree_structure(0)
    node = structure.node_data() if structure is not None else None
    kind: Any
    outside: Any
    kind, outside = node or (None, None)
    parts = structure.children() if node is not None else []
    if "kind" in change:
        made: Any = next(one for one in _CONTAINERS if one.__name__ == change["kind"])
        known: dict[Any, Any] = dict(zip(outside, parts) if kind is dict else enumerate(parts))
        keys = change["keys"] if made is dict else range(len(change["parts"]))
        parts = [known.get(key) if kind is made else None for key in keys]
        kind, outside = made, change["keys"]
    else:
        if node is None or len(parts) != len(change["parts"]):
            raise ValueError("the tree that was saved had parts that are not here")
        outside = _changed_outside(outside, change["outside"])
    return _make_structure(
        jax.tree_util.default_registry,
        (kind, outside),
        [_changed(part, one) for part, one in zip(parts, change["parts"])],
    )


def _changed_outside(outside: Any, change: Any) -> Any:
    if change == _SAME:
        return outside
    if isinstance(change, list):
        if type(outside) is not tuple or len(outside) != len(change):
            raise ValueError("what the tree keeps outside its leaves has another form than what was saved")
        return tuple(map(_changed_outside, outside, change))
    return change["value"]


def _kept(structure: Any) -> Any:
    """Copy a structure with the parts that a script may change in place.

    These are dictionaries, lists and arrays outside its leaves.
    """
    node = structure.node_data()
    if node is None:
        return structure
    kind, outside = node
    parts = list(map(_kept, structure.children()))
    return _make_structure(jax.tree_util.default_registry, (kind, _copied(outside)), parts)


def _copied(outside: Any) -> Any:
    if type(outside) is dict:
        return {key: _copied(value) for key, value in outside.items()}
    if type(outside) in (list, tuple):
        return type(outside)(map(_copied, outside))
    return outside.copy() if isinstance(outside, np.ndarray) else outside


_SAME = "same"
_CONTAINERS = (dict, list, tuple, type(None))
_make_structure = (
    getattr(jax.tree_util.PyTreeDef, "from_node_data_and_children", None)
    or jax.tree_util.PyTreeDef.make_from_node_data_and_children
)


def _alike(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except ValueError:  # something outside the leaves, an array, has no one truth
        return False


def _same(one: Any, other: Any, depth: int = 0) -> bool:
    """Say whether two parts of a tree outside its leaves are the same.

    Two functions are the same when their code, their defaults and their enclosed values are.
    """
    if one is other:
        return True
    if type(one) is not type(other) or depth > _DEEPEST_FUNCTION:
        return False
    if isinstance(one, types.FunctionType):
        return _same(_made_of(one), _made_of(other), depth + 1)
    if isinstance(one, functools.partial):
        return _same((one.func, one.args, one.keywords), (other.func, other.args, other.keywords), depth + 1)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(_same(a, b, depth) for a, b in zip(one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key], depth) for key in one)
    if isinstance(one, (np.ndarray, jax.Array)):
        return np.array_equal(one, other)
    return bool(one == other)


def _made_of(function: types.FunctionType) -> list[Any]:
    return [
        function.__code__,
        function.__defaults__,
        function.__kwdefaults__,
        list(map(_content, function.__closure__ or ())),
    ]


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the name is not bound yet
        return None


_DEEPEST_FUNCTION = 20
"""Functions that enclose each other so deep are other ones, if they are not the very same."""


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return type(value) is dict and all(map(_is_plain, value.keys())) and all(map(_is_plain, value.values()))
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    return value is None or type(value) in _PLAIN or isinstance(value, np.generic)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _flattened(tree: Any) -> tuple[list[str], list[Any], Any]:
    pairs, structure = jax.tree_util.tree_flatten_with_path(tree)
    return [jax.tree_util.keystr(path) for path, _ in pairs], [leaf for _, leaf in pairs], structure


def _problem(leaf: Any, path: str) -> str | None:
    if isinstance(leaf, jax.Array):
        if isinstance(leaf, jax.core.Tracer) or leaf.is_deleted():
            return f"{path} has no content: it is traced, or was donated; assign what the step gave to `value`"
        if _is_divided(leaf) and leaf.aval.weak_type:
            return f"{path} is weakly typed and divided among processes; give it a type with astype()"
        return None
    if type(leaf) in _PLAIN or isinstance(leaf, np.generic):
        return None
    if type(leaf) is np.ndarray and not leaf.dtype.hasobject:
        return None
    return f"{path} is a {type(leaf).__module__}.{type(leaf).__qualname__}, neither an array nor a plain value"


def _saved(leaf: Any) -> Any:
    """Turn a leaf into plain values. A dictionary names its kind."""
    if not isinstance(leaf, jax.Array):
        return leaf
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return {"key": str(jax.random.key_impl(leaf)), "data": _content_of(jax.random.key_data(leaf))}
    return {"array": _content_of(leaf), "dtype": leaf.dtype.name, "weak": bool(leaf.aval.weak_type)}


def _content_of(array: Any) -> Any:
    """Give the elements that this process holds, as an array of NumPy or as parts of the whole."""
    if not _is_divided(array):
        return _as_bits(np.asarray(array))
    holders: dict[Box, set[int]] = {}
    for device, index in array.sharding.devices_indices_map(array.shape).items():
        holders.setdefault(_box(index, array.shape), set()).add(device.process_index)
    own = {_box(shard.index, array.shape): shard for shard in array.addressable_shards}
    parts = tuple(
        Part(
            box,
            _as_bits(np.asarray(shard.data)),
            holders=len(holders[box]),
            turn=sorted(holders[box]).index(jax.process_index()),
        )
        for box, shard in own.items()
        if box.volume
    )
    dtype = _as_bits(np.empty(0, array.dtype)).dtype.str
    return DividedArray(kind="ndarray", dtype=dtype, shape=array.shape, parts=parts)


def _is_divided(array: Any) -> bool:
    """Say whether no process has all elements of an array."""
    return not (array.is_fully_addressable or array.is_fully_replicated)


def _box(index: tuple[slice, ...], shape: tuple[int, ...]) -> Box:
    ranges = [part.indices(size)[:2] for part, size in zip(index, shape)]
    return Box(tuple(start for start, _ in ranges), tuple(stop - start for start, stop in ranges))


def _as_bits(content: Any) -> Any:
    """Give bfloat16 and its like, for which NumPy has no name of its own, as integers of their size."""
    return content.view(f"u{content.dtype.itemsize}") if content.dtype.kind == "V" else content


def _of_type(content: Any, dtype: str) -> Any:
    return content if content.dtype.name == dtype else content.view(jnp.dtype(dtype))


def _form(saved: Any) -> str:
    """Describe the properties that must be equal here and in the checkpoint."""
    if type(saved) is not dict:
        return f"{saved.dtype} of shape {saved.shape}" if type(saved) is np.ndarray else "a plain value"
    if "key" in saved:
        return f"keys of {saved['key']} of shape {saved['data'].shape}"
    return f"{saved['dtype']} of shape {saved['array'].shape}"


def _is_number(saved: Any) -> bool:
    """Say whether a leaf is one number. Flax counts steps from 0, and in an array from the first step on."""
    if type(saved) is dict:
        return "array" in saved and saved["array"].shape == ()
    return isinstance(saved, (bool, int, float, complex))


def _restored(saved: Any, live: Any) -> Any:
    if type(saved) is not dict:
        return saved
    if "key" in saved:
        data = saved["data"]
        if isinstance(data, DividedArray):
            return jax.random.wrap_key_data(_whole(data, data.dtype, jax.random.key_data(live)), impl=saved["key"])
        return _placed(jax.random.wrap_key_data(jnp.asarray(data), impl=saved["key"]), live)
    content = saved["array"]
    if isinstance(content, DividedArray):
        return _whole(content, saved["dtype"], live)
    content = _of_type(content, saved["dtype"])
    if isinstance(live, jax.Array) and not live.is_fully_addressable:
        return jax.make_array_from_callback(live.shape, live.sharding, lambda index: content[index])
    array = jnp.array(content)
    if saved["weak"]:
        # Only what began as a Python number is weakly typed; an update in place keeps that.
        array = jnp.full(array.shape, array.dtype.type(0).item()).at[...].set(array)
    return _placed(array, live)


def _whole(content: DividedArray, dtype: str, live: Any) -> Any:
    """Give an array of several processes, of which this one has restored its parts, as the live one is divided."""
    parts = {part.box: _of_type(part.local, dtype) for part in content.parts}
    boxes = [(_box(shard.index, live.shape), shard.device) for shard in live.addressable_shards]
    arrays = [jax.device_put(parts[box] if box.volume else np.empty(box.shape, dtype), device) for box, device in boxes]
    return jax.make_array_from_single_device_arrays(live.shape, live.sharding, arrays)


def _placed(array: Any, live: Any) -> Any:
    """Put an array where the script's own is. One that JAX may move stays one."""
    return jax.device_put(array, live.sharding) if isinstance(live, jax.Array) and live.committed else array
