"""Puts restored values into the objects of a running script, all or none, and verifies the result.

Arrays and tensors are filled in place. Objects get their `load_state_dict` or their generator state. Dictionaries and
lists get the restored content. A misfit is found first, and then nothing is changed.

A loader may accept a state and keep another one. So the state before a load is compared with the state after it. Known
deviations are corrected before. Any other is an error that names the entry.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Callable, Union

from spotkeep.errors import StateError, StateMismatchError, UsageError, ends_the_process
from spotkeep.loaded import loaded

from . import arrays
from .decoding import ProcessMemory, array_problem, tensor_problem
from .differences import Difference, SameForm, compare
from .divided import Box, DividedArray, Part
from .encoding import EncodedState, Json, encode_state, object_state, objects_in, stateful_kind, with_article
from .random_states import RandomStates, capture_random_states, restore_random_states, set_bit_generator_state
from .resharding import Piece, SavedBox, pieces_of
from .state_dicts import (
    is_module,
    is_optimizer,
    load_into,
    loads_in_its_own_way,
    module_state,
    module_tensors,
    put_back_module,
    put_back_optimizer,
    tensors_beside,
)

_logger = logging.getLogger("spotkeep")

_NAMED = 5
"""The number of a module's entries that are named."""

_WAY_OUT = ": let load_state_dict of this object keep what state_dict gave"

_Raws = dict[int, Union[arrays.Buffer, arrays.DeviceBytes]]

_RANDOM_KINDS = ("bit_generator", "set_state", "setstate")


class TakesEffectLater:
    """An object that keeps a given state until the script needs it. Until then it gives another one."""


def warn_of_taken_names(given: Iterable[str], *, taken: Iterable[str]) -> None:
    """Name in the log the entries of a script's state that an integration replaces by its own.

    Often both are the same object, the model or the data.

    Args:
        given: The names in the script's state.
        taken: The names in the integration's state.
    """
    both = sorted({*given} & {*taken})
    if both:
        _logger.warning(
            "the state has %s, under which the integration saves what it finds by itself. Unless that is the same "
            "object, what the script passed is not saved: give it another name",
            ", ".join(map(repr, both)),
        )


def check_state(state: Mapping[str, Any]) -> bool:
    """Refuse a state that could not be saved, or not be restored in place, before any training is spent on it.

    Returns:
        True if it holds arrays or tensors, into which a checkpoint is read.

    Raises:
        UsageError: If it is not a mapping of names.
        StateError: Naming every entry at fault.
    """
    if not isinstance(state, Mapping) or not all(isinstance(name, str) for name in state):
        raise UsageError("the state is not a mapping of names to objects; pass for example {'model': model}")
    problems = [
        f"state[{name!r}]: {with_article(type(value).__name__)} cannot be changed in place, nor can the state, which "
        f"is {with_article(type(state).__name__)}; pass the state as a dictionary and read state[{name!r}] from it"
        for name, value in state.items()
        if not (_fillable(value) or isinstance(state, MutableMapping))
    ]
    if problems:
        raise StateError(problems)
    encoded = encode_state(dict(state))
    problems = _not_in_place(state)
    if problems:
        raise StateError(problems)
    return bool(encoded.blobs or encoded.divided)


def require_taken_back(state: Mapping[str, Any], *, digest: Callable[[arrays.Buffer], Any]) -> None:
    """Let objects load their own state once, so that a refusal comes before any training time is spent.

    Torch's own modules and optimizers need no trial, and generators need none. Neither do objects without arrays, nor
    iterable ones, whose state is a place in the data that must not move. Attributes of objects and random numbers are
    unchanged afterwards.

    Args:
        state: A state that `check_state` accepted.
        digest: Gives equal values for equal bytes.

    Raises:
        StateError: An entry does not take its own state. The message names each.
    """
    problems: list[str] = []
    _warn_of_forgotten_privacy(state)
    random = capture_random_states()
    try:
        for path, value in objects_with_state(state):
            if _is_empty(value):
                _warn_of_empty(path, value)
            elif is_module(value) and loads_in_its_own_way(value):
                problems += _own_state_refused(value, path, digest)
            elif _may_be_tried(value):
                kept = dict(vars(value))
                try:
                    problems += _own_state_refused(value, path, digest)
                finally:
                    vars(value).clear()
                    vars(value).update(kept)
    finally:
        restore_random_states(random)
    if problems:
        raise StateError(problems)


def require_fit(state: Mapping[str, Any], restored: Mapping[str, Any], *, step: int) -> None:
    """Check that a restored state fits a live one. Looks at forms only, not at the content of arrays.

    Raises:
        StateMismatchError: Entries do not fit. The message names each.
    """
    problems = [f"the checkpoint has no state[{name!r}]" for name in state if name not in restored]
    problems += [
        f"the checkpoint has state[{name!r}], this script does not pass it" for name in restored if name not in state
    ]
    for name in state:
        if name in restored:
            problems += _mismatches(state[name], restored[name], f"state[{name!r}]")
    if problems:
        raise StateMismatchError(step, problems)


def restore_state(state: Mapping[str, Any], restored: Mapping[str, Any], *, step: int) -> None:
    """Make a live state equal to a restored one.

    Raises:
        StateMismatchError: If something does not fit. Unless an object's own loader refused, nothing was changed.
    """
    require_fit(state, restored, step=step)
    put_back(state, restored, step=step)


def put_back(state: Mapping[str, Any], restored: Mapping[str, Any], *, step: int) -> None:
    """Give the entries of a live state the restored values, which `require_fit` has let pass.

    Args:
        state: Names and live objects.
        restored: The values for each of them.
        step: The step of the checkpoint.

    Raises:
        StateMismatchError: If an object's own loader refuses.
    """
    name = ""
    try:
        # Random numbers come last: a loader may draw some.
        for name in sorted(restored, key=lambda name: is_random(state[name])):
            value = _put_back(state[name], restored[name])
            if value is not state[name] and isinstance(state, MutableMapping):
                state[name] = value
    except (ValueError, TypeError, KeyError, RuntimeError, AttributeError) as error:
        raise StateMismatchError(step, [f"state[{name!r}] refused what was saved: {error}"]) from error


@dataclass(frozen=True)
class LiveBytes:
    """Bytes of a live state, and their places in the streams of a checkpoint.

    Attributes:
        form: Their description, in the state and in the checkpoint.
        pieces: The number of a stream, a place in it, and the bytes that should be there.
    """

    form: SameForm
    pieces: tuple[tuple[int, int, Piece | arrays.DeviceBytes], ...]


def compare_restored(
    state: Mapping[str, Any], saved: Json, divided: Sequence[Sequence[SavedBox]] = ()
) -> tuple[list[Difference], list[LiveBytes]]:
    """Compare a live state with the document it was restored from, except for objects that do not give their content.

    Args:
        state: The live state.
        saved: The document.
        divided: The boxes of each divided array that the document refers to.

    Returns:
        The differences, and the bytes that are still to be compared with those of the checkpoint.
    """
    live = _given(state)
    differences, same_form = compare(saved, live.document)
    raws = _raws(live)
    return differences, [LiveBytes(form, tuple(_live_pieces(form, live, raws, divided))) for form in same_form]


def _given(state: Mapping[str, Any]) -> EncodedState:
    random = capture_random_states()
    try:
        return encode_state(dict(state), left_out=_says_nothing)
    finally:
        restore_random_states(random)


def _raws(encoded: EncodedState) -> _Raws:
    return {blob.offset: blob.raw for blob in encoded.blobs}


def _live_pieces(
    form: SameForm, encoded: EncodedState, raws: _Raws, divided: Sequence[Sequence[SavedBox]]
) -> Iterator[tuple[int, int, Piece | arrays.DeviceBytes]]:
    saved, live = form.saved, form.live
    if "divided" not in saved and "divided" not in live:
        raw = raws[live["offset"]]
        yield saved.get("stream", 0), saved["offset"], raw if isinstance(raw, arrays.DeviceBytes) else memoryview(raw)
        return
    shape, order = arrays.array_shape(saved), arrays.array_order(saved)
    if "divided" in live:
        parts = [replace(part, local=arrays.here(part.local)) for part in encoded.divided[live["divided"]].parts]
    else:
        whole = arrays.array_over(form.kind, live, arrays.host_bytes(raws[live["offset"]]))
        parts = [Part(Box.whole(shape), whole)]
    boxes = (
        divided[saved["divided"]]
        if "divided" in saved
        else [SavedBox(Box.whole(shape), saved.get("stream", 0), saved["offset"])]
    )
    for box in boxes:
        for offset, piece in pieces_of(box, parts, order=order, item_bytes=arrays.item_bytes(form.kind, saved)):
            yield box.stream, offset, piece


def require_no_difference(state: Mapping[str, Any], differences: Sequence[Difference], *, step: int) -> None:
    """Judge the differences from the saved state.

    Plain values of objects that are neither torch's nor Spotkeep's may change at a load, for example a count of
    resumes. The log names such changes, and they are no error.

    Raises:
        StateMismatchError: Arrays or tensors differ, or values of torch's objects, generators or plain parts of the
            state. The message names each.
    """
    if not differences:
        return
    owners = list(objects_with_state(state))
    problems: list[str] = []
    warnings: list[str] = []
    for difference in differences:
        owner = next((value for path, value in owners if _is_inside(difference.path, path)), None)
        if _package(owner) == "spotkeep" and not (is_random(owner) or difference.of_array):
            continue  # What adapters keep until their framework asks for it.
        strict = owner is None or _is_known(owner)
        if is_module(owner) and not difference.of_array:
            # Its extra state, which may be anything.
            strict = "_extra_state" not in difference.path and "requires_grad" in difference.problem
        said_only = difference.added or not (difference.of_array or strict)
        if said_only or "the order in memory" in difference.problem:
            warnings.append(str(difference))
        else:
            way_out = "" if stateful_kind(owner) != "state_dict" or is_module(owner) else _WAY_OUT
            problems.append(f"{difference}, after it was restored{way_out}")
    if problems:
        raise StateMismatchError(step, problems)
    for warning in warnings:
        _logger.warning("after the checkpoint of step %d was restored: %s", step, warning)


def require_restored(state: Mapping[str, Any], restored: Mapping[str, Any], *, step: int) -> None:
    """Compare a live state with values in memory that `restore_state` got.

    Raises:
        StateMismatchError: Entries differ. The message names each.
    """
    saved, live = encode_state(dict(restored)), _given(state)
    differences, same_form = compare(saved.document, live.document)
    differences += [
        altered(form)
        for form in same_form
        if not all(map(_same_bytes, _parts_of(saved, form.saved), _parts_of(live, form.live)))
    ]
    require_no_difference(state, differences, step=step)


def _parts_of(encoded: EncodedState, place: Json) -> Iterator[arrays.Buffer]:
    """Give the bytes of an encoded value, or those of each of its parts in this process."""
    if "divided" not in place:
        yield from (arrays.host_bytes(blob.raw) for blob in encoded.blobs if blob.offset == place["offset"])
        return
    for part in encoded.divided[place["divided"]].parts:
        yield arrays.bytes_in_c_order(part.local)


def altered(form: SameForm) -> Difference:
    """Give the difference of bytes that are not those of the checkpoint."""
    return Difference(form.path, "its values are not the saved ones", of_array=True)


def objects_with_state(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Give the objects that have a state of their own, each with its place."""
    for path, value in objects_in(state):
        if stateful_kind(value) is not None and not arrays.is_torch_tensor(value):
            yield path, value


def _is_inside(path: str, owner: str) -> bool:
    return path.startswith(owner) and path[len(owner) : len(owner) + 1] in ("", "[", ".")


def is_random(value: Any) -> bool:
    """Say whether an object is a random generator, or the random states of the process."""
    return isinstance(value, RandomStates) or stateful_kind(value) in _RANDOM_KINDS


def _package(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def _is_known(value: Any) -> bool:
    """Say whether an object is known to give after a load exactly the loaded state, down to plain values."""
    return is_random(value) or is_optimizer(value) or _package(value) == "torch"


def _says_nothing(value: Any) -> bool:
    """Say whether an object gives no state yet, because it waits for the script or for a pass over the data."""
    if isinstance(value, TakesEffectLater):
        return True
    return not is_module(value) and _is_iterable(value) and stateful_kind(value) == "state_dict"


def _is_iterable(value: Any) -> bool:
    return hasattr(type(value), "__iter__") or hasattr(type(value), "__next__")


def _may_be_tried(value: Any) -> bool:
    if is_module(value) or _is_known(value) or _says_nothing(value) or _package(value) == "spotkeep":
        return False
    if not hasattr(value, "__dict__"):
        return False
    # The loader of an optimizer replaces its groups, which the script may hold.
    return not hasattr(value, "param_groups") and bool(encode_state({"": value}).blobs)


def _own_state_refused(value: Any, path: str, digest: Callable[[arrays.Buffer], Any]) -> list[str]:
    """Let an object load its own state. Gives the problem after that."""
    before = _snapshot(value, digest)
    torch = loaded("torch")
    no_memory = (MemoryError,) if torch is None else (MemoryError, torch.OutOfMemoryError)
    try:
        load_into(value, object_state(value))
    except no_memory:
        return []
    except BaseException as error:  # it would end a resume, whatever it is
        if ends_the_process(error):
            raise
        return [f"{path} gives a state that it does not take back, so no resume could restore it: {_first_line(error)}"]
    after = _snapshot(value, digest)
    differences, same_form = compare(before.document, after.document, path)
    differences += [
        altered(form) for form in same_form if before.digests[_key(form.saved)] != after.digests[_key(form.live)]
    ]
    for difference in differences:
        if not difference.of_array:
            _logger.warning("%s, where it takes back its own state: a resume may change it", difference)
    return [
        f"{difference}, after it took back its own state: a resume would change it"
        for difference in differences
        if difference.of_array
    ]


@dataclass(frozen=True)
class _Snapshot:
    document: Json
    digests: Mapping[tuple[str, int], Any]


def _snapshot(value: Any, digest: Callable[[arrays.Buffer], Any]) -> _Snapshot:
    encoded = encode_state({"": value})
    digests: dict[tuple[str, int], Any] = {
        ("offset", blob.offset): digest(arrays.host_bytes(blob.raw)) for blob in encoded.blobs
    }
    for number, array in enumerate(encoded.divided):
        digests["divided", number] = [digest(arrays.bytes_in_c_order(part.local)) for part in array.parts]
    return _Snapshot(encoded.document["dict"][0][1], digests)


def _key(place: Json) -> tuple[str, int]:
    name = "divided" if "divided" in place else "offset"
    return name, place[name]


def _is_empty(value: Any) -> bool:
    if stateful_kind(value) != "state_dict" or _says_nothing(value) or _package(value) == "spotkeep":
        return False
    given = object_state(value)
    return isinstance(given, Mapping) and not given


def _warn_of_empty(path: str, value: Any) -> None:
    if not is_module(value):
        holds = [name for name, kept in getattr(value, "__dict__", {}).items() if _is_array(kept)]
    else:
        holds = [name for name, _ in tensors_beside(value)]
    if holds:
        _logger.warning(
            "the state_dict of %s is empty, so nothing of %s is saved, and a resume begins with it anew: its %s %s not "
            "in it. A metric of torchmetrics gives its values after metric.persistent(True); a buffer needs "
            "register_buffer(..., persistent=True)",
            path,
            type(value).__name__,
            ", ".join(holds[:5]),
            "is" if len(holds) == 1 else "are",
        )


def _warn_of_forgotten_privacy(state: Mapping[str, Any]) -> None:
    """Warn of an optimizer of Opacus whose steps an accountant outside of the state counts."""
    private = [(path, value) for path, value in objects_with_state(state) if _package(value) == "opacus"]
    if any(type(value).__module__.startswith("opacus.accountants") for _, value in private):
        return
    for path, value in private:
        if is_optimizer(value) and getattr(value, "step_hook", None) is not None:
            _logger.warning(
                "%s adds the noise of differential privacy, and nothing in the state counts its steps. After a resume "
                "Opacus would give the epsilon of the steps since then alone: pass "
                "{'accountant': privacy_engine.accountant} too",
                path,
            )


def _is_array(value: Any) -> bool:
    return arrays.is_numpy_array(value) or arrays.is_torch_tensor(value)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines)[:500]}"


def _same_bytes(one: arrays.Buffer, other: arrays.Buffer) -> bool:
    left, right = memoryview(one), memoryview(other)
    size = 2**20
    return all(
        bytes(left[start : start + size]) == bytes(right[start : start + size])
        for start in range(0, max(len(left), len(right)), size)
    )


def _not_in_place(state: Mapping[str, Any]) -> list[str]:
    memory = ProcessMemory() if loaded("torch") is not None else None

    def problems(value: Any, path: str) -> Iterator[str]:
        problem = None
        if arrays.is_numpy_array(value):
            problem = array_problem(value)
        elif memory is not None and arrays.is_torch_tensor(value):
            problem = tensor_problem(value, memory)
        elif isinstance(value, dict):
            for key, item in value.items():
                yield from problems(item, f"{path}[{key!r}]")
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield from problems(item, f"{path}[{index}]")
        elif memory is not None and is_module(value):
            own_way = loads_in_its_own_way(value)
            for name, tensor in module_tensors(value):
                found = tensor_problem(tensor, memory)
                # Its own loader may put another tensor in its place: `require_taken_back` tries that.
                if found is not None and not (own_way and memory.may_be_written(tensor)):
                    yield f"{path}[{name!r}]: {found}"
        if problem is not None:
            yield f"{path}: {problem}"

    return [problem for name, value in state.items() for problem in problems(value, f"state[{name!r}]")]


def _fillable(value: Any) -> bool:
    return (
        isinstance(value, (dict, list))
        or arrays.is_numpy_array(value)
        or arrays.is_torch_tensor(value)
        or isinstance(value, DividedArray)
        or (stateful_kind(value) is not None)
    )


def _mismatches(live: Any, saved: Any, path: str) -> list[str]:
    if isinstance(live, DividedArray):
        same = isinstance(saved, DividedArray) and (saved.dtype, saved.shape) == (live.dtype, live.shape)
        found = f"{saved.dtype} of shape {tuple(saved.shape)}" if hasattr(saved, "shape") else type(saved).__name__
        return [] if same else [f"{path}: the checkpoint has {found}, the script {live.dtype} of shape {live.shape}"]
    if arrays.is_numpy_array(live) or arrays.is_torch_tensor(live):
        same_kind = arrays.is_torch_tensor if arrays.is_torch_tensor(live) else arrays.is_numpy_array
        if not same_kind(saved):
            return [f"{path}: the checkpoint has a {type(saved).__name__}, the script a {type(live).__name__}"]
        if live.shape != saved.shape or live.dtype != saved.dtype:
            return [
                f"{path}: the checkpoint has {saved.dtype} of shape {tuple(saved.shape)}, "
                f"the script {live.dtype} of shape {tuple(live.shape)}"
            ]
        if arrays.is_numpy_array(live) and not live.flags.writeable:
            return [f"{path}: the script's array is read-only"]
        return []
    if is_optimizer(live):
        return _other_groups(live, saved, path)
    if is_module(live) and isinstance(saved, dict) and not loads_in_its_own_way(live):
        return _other_entries(module_state(live), saved, path)
    if isinstance(live, dict):
        if not isinstance(saved, dict):
            return [f"{path}: the checkpoint has a {type(saved).__name__}, the script a dictionary"]
        problems = [f"the checkpoint has no {path}[{key!r}]" for key in live if key not in saved and _held(live[key])]
        for key in live:
            if key in saved:
                problems += _mismatches(live[key], saved[key], f"{path}[{key!r}]")
        return problems
    if isinstance(live, list):
        if not isinstance(saved, list):
            return [f"{path}: the checkpoint has a {type(saved).__name__}, the script a list"]
        if len(live) != len(saved):
            if any(_held(item) for item in live):
                return [f"{path}: the checkpoint has {len(saved)} items, the script {len(live)}"]
            return []
        return [
            problem
            for index, item in enumerate(live)
            for problem in _mismatches(item, saved[index], f"{path}[{index}]")
        ]
    return []


def _other_entries(live: Mapping[Any, Any], saved: Mapping[Any, Any], path: str) -> list[str]:
    shapes, here = (
        {name: tuple(value.shape) for name, value in items.items() if arrays.is_torch_tensor(value)}
        for items in (saved, live)
    )
    problems = [f"the checkpoint has no {path}[{name!r}]" for name in here if name not in shapes]
    problems += [
        f"the checkpoint has {path}[{name!r}], the script's module does not" for name in shapes if name not in here
    ]
    problems += [
        f"{path}[{name!r}] is of shape {shapes[name]} in the checkpoint, and of {here[name]} in the script"
        for name in here
        if name in shapes and shapes[name] != here[name]
    ]
    others = [f"{path}: {len(problems) - _NAMED} more of its entries do not fit"] if len(problems) > _NAMED else []
    return problems[:_NAMED] + others


def _other_groups(live: Any, saved: Any, path: str) -> list[str]:
    groups = saved.get("param_groups") if isinstance(saved, dict) else None
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        return []
    sizes = [len(group.get("params", ())) for group in groups]
    here = [len(group["params"]) for group in live.param_groups]
    if sizes == here:
        return []
    return [f"{path}: the checkpoint has parameter groups of {sizes} parameters, the script of {here}"]


def _held(value: Any) -> bool:
    """Say whether the script may hold on to this very object, so that replacing it would go unnoticed."""
    return arrays.is_numpy_array(value) or arrays.is_torch_tensor(value) or stateful_kind(value) is not None


def _put_back(live: Any, saved: Any) -> Any:
    """Fill a value in place if possible, or take the saved one. Gives the resulting value."""
    if _fillable(live):
        _fill(live, saved)
        return live
    if type(live) is not tuple or type(saved) is not tuple or len(live) != len(saved):
        return saved
    # A tuple is made anew; the script may hold the objects and arrays in it.
    return tuple(
        saved_item if _is_array(item) and _mismatches(item, saved_item, "") else _put_back(item, saved_item)
        for item, saved_item in zip(live, saved)
    )


def _fill(live: Any, saved: Any) -> None:
    if live is saved:
        return  # it was filled in place
    if arrays.is_numpy_array(live):
        live[...] = saved
    elif arrays.is_torch_tensor(live):
        if live.data_ptr() != saved.data_ptr():
            live.detach().copy_(saved.detach())
        if live.is_leaf and live.requires_grad is not saved.requires_grad:
            live.requires_grad_(saved.requires_grad)
    elif isinstance(live, dict):
        for key in [key for key in live if key not in saved]:
            del live[key]
        for key, value in saved.items():
            live[key] = _put_back(live.get(key), value)
    elif isinstance(live, list):
        if len(live) != len(saved):
            live[:] = saved
            return
        for index, value in enumerate(saved):
            live[index] = _put_back(live[index], value)
    else:
        set_object_state(live, saved)


def set_object_state(value: Any, state: Any) -> None:
    """Give an object of any `stateful_kind` its state back."""
    kind = stateful_kind(value)
    if is_module(value):
        put_back_module(value, state)
    elif is_optimizer(value):
        put_back_optimizer(value, state)
    elif kind == "state_dict":
        value.load_state_dict(state)
    elif kind == "bit_generator":
        set_bit_generator_state(value.bit_generator, state)
    elif kind == "set_state":
        value.set_state(state)
    else:
        value.setstate(state)
