"""JAX's pytrees as a state: parameters, optimizer states and keys of Flax, Optax or a script, without pickle.

Arrays of JAX cannot be changed in place. So the script keeps its tree in a `PytreeState` and reads it from there.
"""

from __future__ import annotations

from typing import Any

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
except ImportError as error:
    raise ImportError(f"spotkeep.integrations.jax needs JAX: install 'jax>=0.6' ({error})") from error

_PLAIN = (bool, int, float, complex, str, bytes)


class PytreeState:
    """A pytree, for the state of a `Checkpointer`.

    ```python
    training = PytreeState({"params": params, "optimizer": optimizer.init(params), "key": jax.random.key(0)})
    with Checkpointer({"training": training}, every_steps=100) as checkpointer:
        for step in checkpointer.steps(total_steps):
            training.value = train_step(training.value, batch(step))
    ```

    The checkpoint holds the leaves and their paths. What the tree is made of (named tuples, dataclasses, functions in
    them) is the script's, which makes the same tree again.

    Args:
        value: Dictionaries, lists, tuples and any other registered node; leaves are arrays of JAX or NumPy, typed
            keys and plain values.

    Attributes:
        value: The tree as it is now; after a checkpoint was restored, another object than the one given.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        """Give the leaves as arrays of NumPy, each with its path.

        Raises:
            ValueError: If a leaf cannot be saved; names every one.
        """
        paths, leaves, _ = _flattened(self.value)
        problems = [
            problem for path, leaf in zip(paths, leaves) if (problem := _problem(leaf, path or "the tree")) is not None
        ]
        if problems:
            raise ValueError("; ".join(problems))
        return {"paths": paths, "leaves": [_saved(leaf) for leaf in leaves]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the leaves that `state_dict` gave, on the devices where this tree has its own.

        Raises:
            ValueError: If this tree has another form; names what does not fit.
        """
        paths, leaves, structure = _flattened(self.value)
        if paths != state["paths"]:
            changed = sorted({*paths} ^ {*state["paths"]})
            raise ValueError(f"the tree has other leaves than the one that was saved: {', '.join(changed[:5])}")
        problems = [
            f"{path or 'the tree'} was {_form(saved)} and is {_form(here)}"
            for path, saved, here in zip(paths, state["leaves"], map(_saved, leaves))
            if _form(saved) != _form(here) and not (_is_number(saved) and _is_number(here))
        ]
        if problems:
            raise ValueError("; ".join(problems[:5]))
        restored = [_restored(saved, live) for saved, live in zip(state["leaves"], leaves)]
        self.value = jax.tree_util.tree_unflatten(structure, restored)


def _flattened(tree: Any) -> tuple[list[str], list[Any], Any]:
    pairs, structure = jax.tree_util.tree_flatten_with_path(tree)
    return [jax.tree_util.keystr(path) for path, _ in pairs], [leaf for _, leaf in pairs], structure


def _problem(leaf: Any, path: str) -> str | None:
    if isinstance(leaf, jax.Array):
        if isinstance(leaf, jax.core.Tracer) or leaf.is_deleted():
            return f"{path} has no content: it is traced, or was donated; assign what the step gave to `value`"
        if not leaf.is_fully_addressable:
            return f"{path} is divided among processes; a checkpoint of one process cannot hold it"
        return None
    if type(leaf) in _PLAIN or isinstance(leaf, np.generic):
        return None
    if type(leaf) is np.ndarray and not leaf.dtype.hasobject:
        return None
    return f"{path} is a {type(leaf).__module__}.{type(leaf).__qualname__}, neither an array nor a plain value"


def _saved(leaf: Any) -> Any:
    """Turn a leaf into plain values: a dictionary says what it was."""
    if not isinstance(leaf, jax.Array):
        return leaf
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return {"key": str(jax.random.key_impl(leaf)), "data": np.asarray(jax.random.key_data(leaf))}
    content = np.asarray(leaf)
    # NumPy has no name of its own for bfloat16 and its like: their bytes are saved as integers of that size.
    return {
        "array": content.view(f"u{content.dtype.itemsize}") if content.dtype.kind == "V" else content,
        "dtype": content.dtype.name,
        "weak": bool(leaf.aval.weak_type),
    }


def _form(saved: Any) -> str:
    """Describe what must be equal here and in the checkpoint."""
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
        return _placed(jax.random.wrap_key_data(jnp.asarray(saved["data"]), impl=saved["key"]), live)
    content = saved["array"]
    array = jnp.array(content if content.dtype.name == saved["dtype"] else content.view(jnp.dtype(saved["dtype"])))
    if saved["weak"]:
        # Only what began as a Python number is weakly typed; an update in place keeps that.
        array = jnp.full(array.shape, array.dtype.type(0).item()).at[...].set(array)
    return _placed(array, live)


def _placed(array: Any, live: Any) -> Any:
    """Put an array where the script's own is. One that JAX may move stays one."""
    return jax.device_put(array, live.sharding) if isinstance(live, jax.Array) and live.committed else array
