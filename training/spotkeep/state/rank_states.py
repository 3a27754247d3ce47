"""The rule for states that each rank has for itself, where another number of ranks takes a checkpoint.

| state | a rank gets |
|---|---|
| of an object with `load_rank_states` | the states of all ranks, from which the object makes its own |
| equal on all ranks | that, and the log names it |
| random states and generators | its own one, or one that follows from that of rank 0 and its number |
| anything else | nothing, and the training is refused |
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from spotkeep.errors import StateMismatchError, UsageError, WorldSizeError

from .arrays import host_bytes
from .encoding import encode_state, objects_in, stateful_kind, with_article
from .random_states import derived_random_state
from .restoring import is_random, put_back, require_fit, require_restored

_logger = logging.getLogger("spotkeep")

_MISSING: Any = object()
_PLACES_OF_A_RANK = ("torchdata.", "datasets.iterable_dataset")
"""Modules of loaders and streams that take the place of any rank for their own."""

_PLACE_OF_ALL_RANKS = "streaming.base.dataloader"
"""The module of mosaicml-streaming's loader, which counts the samples of all ranks."""

_GLOBAL_BATCHES = "spotkeep.loops.global_batches"
"""The module of batches whose place is the same on each rank. By its name, since this layer knows nothing of loops."""


@dataclass(frozen=True)
class _Entry:
    """A part of the live state and its value for this rank.

    Attributes:
        path: Its place, for messages.
        holder: The dictionary that has it.
        key: Its key there.
        value: The value for this rank.
    """

    path: str
    holder: Mapping[Any, Any]
    key: Any
    value: Any

    @property
    def live(self) -> Any:
        """The part of the live state."""
        return self.holder[self.key]


@dataclass(frozen=True)
class RankStates:
    """The states of all ranks of a checkpoint, as a rank of another number of ranks takes them.

    Attributes:
        step: The step of the checkpoint.
        world_size: The number of ranks in the resumed training.
        rank: The number of this one.
        names: The names at the top of the live state that these are for.
        entries: The parts that get a value.
        objects: The objects that get the states of all ranks, with these.
    """

    step: int
    world_size: int
    rank: int
    names: frozenset[str]
    entries: tuple[_Entry, ...]
    objects: tuple[tuple[str, Any, Sequence[Any]], ...]

    def put_back(self) -> None:
        """Restore them.

        Raises:
            StateMismatchError: An object refuses its state.
        """
        for entry in self.entries:
            if not is_random(entry.live):
                self._put_back(entry)
        for path, value, states in self.objects:
            self._give_states(path, value, states)
        # Random numbers come last: a loader may draw some.
        for entry in self.entries:
            if is_random(entry.live):
                self._put_back(entry)

    def _give_states(self, path: str, value: Any, states: Sequence[Any]) -> None:
        try:
            value.load_rank_states(states, rank=self.rank, world_size=self.world_size)
        except (ValueError, TypeError, KeyError, RuntimeError, AttributeError) as error:
            raise StateMismatchError(self.step, [f"{path} refused the states of all ranks: {error}"]) from error

    def _put_back(self, entry: _Entry) -> None:
        part = {entry.path: entry.live}
        put_back(part, {entry.path: entry.value}, step=self.step)
        if part[entry.path] is not entry.live and isinstance(entry.holder, MutableMapping):
            entry.holder[entry.key] = part[entry.path]

    def compare(self) -> None:
        """Compare the live state with the values that it got.

        Raises:
            StateMismatchError: Entries differ.
        """
        for entry in self.entries:
            require_restored({entry.path: entry.live}, {entry.path: entry.value}, step=self.step)


def rank_states_for(
    live: Mapping[str, Any], states: Sequence[Mapping[str, Any]], *, step: int, rank: int, world_size: int
) -> RankStates:
    """Choose the states for a rank of another number of ranks. Nothing is changed.

    Args:
        live: Names and objects of the script, those that the states are for.
        states: The saved states of each rank, by the same names.
        step: The step of the checkpoint.
        rank: The rank in the resumed training.
        world_size: The number of ranks in the resumed training.

    Raises:
        WorldSizeError: A part differs from rank to rank, and has no rule. The message names each.
        StateMismatchError: The script passes other entries, or entries of another form.
    """
    names = dict.fromkeys(name for state in states for name in state)
    require_fit({name: live[name] for name in live if name not in names}, {}, step=step)
    require_fit({}, {name: None for name in names if name not in live}, step=step)
    entries: list[_Entry] = []
    objects: list[tuple[str, Any, Sequence[Any]]] = []
    refused: list[str] = []
    equal: list[str] = []
    left: list[tuple[str, Mapping[Any, Any], Any, Sequence[Any]]] = [
        (name, live, name, [state.get(name, _MISSING) for state in states]) for name in names
    ]
    while left:
        path, holder, key, values = left.pop(0)
        part = holder[key]
        if callable(getattr(part, "load_rank_states", None)):
            objects.append((path, part, [None if value is _MISSING else value for value in values]))
        elif type(part) is dict and _holds_objects(part) and all(_has_keys(value, part) for value in values):
            left += [(f"{path}[{name!r}]", part, name, [value[name] for value in values]) for name in part]
        else:
            value = _random_state(values, rank=rank) if is_random(part) else _common(values)
            if value is _MISSING:
                refused.append(path)
            else:
                entries.append(_Entry(path, holder, key, value))
                named = is_random(part) or _is_from(part, *_PLACES_OF_A_RANK, _PLACE_OF_ALL_RANKS)
                equal += [] if named else [path]
    if refused:
        raise WorldSizeError(step, written_by=len(states), world_size=world_size, names=refused)
    for entry in entries:
        require_fit({entry.path: entry.live}, {entry.path: entry.value}, step=step)
    if equal and rank == 0:
        _logger.warning(
            "%d ranks had the same value each in %s of per_rank, and each of %d ranks goes on with it. Where it is a "
            "place in a rank's own data, such as a line of its file, samples would come twice, or never: let the entry "
            "be an object with load_rank_states, which makes its state from those of all ranks",
            *(len(states), ", ".join(equal), world_size),
        )
    return RankStates(
        step=step,
        world_size=world_size,
        rank=rank,
        names=frozenset(names),
        entries=tuple(entries),
        objects=tuple(objects),
    )


def refuse_kept_places(live: Mapping[str, Any], *, written_by: int, world_size: int) -> None:
    """Refuse loaders of torchdata and streams of `datasets`, where another number of ranks goes on.

    They take the place of any rank for their own.

    Args:
        live: Names and objects of the script, those that the checkpoint has.
        written_by: The number of ranks of the checkpoint.
        world_size: The number of ranks in the resumed training.

    Raises:
        UsageError: One has no `GlobalBatches`, whose place is the same on each rank.
    """
    for path, value in objects_in(dict(live)):
        loader = getattr(value, "base_dataloader", value)  # accelerate's is around one
        if _is_from(loader, *_PLACES_OF_A_RANK) and not _is_from(
            getattr(loader, "batch_sampler", None), _GLOBAL_BATCHES
        ):
            a_stream = not hasattr(loader, "batch_sampler")
            raise UsageError(
                f"{written_by} ranks wrote the checkpoint, and {world_size} cannot go on there: {path} has the place "
                f"of {with_article(type(loader).__name__)} in the data of a rank, and samples would come twice, or "
                f"never. Start it with {written_by} ranks. With "
                f"{'a DataLoader over rows with indices and ' if a_stream else ''}"
                "GlobalBatches for its batch_sampler any number of ranks goes on (`spotkeep help exact-data`)"
            )


def _is_from(value: Any, *modules: str) -> bool:
    """Say whether the class of a value, or one that it inherits from, stands in a module that begins like this."""
    return any(kind.__module__.startswith(modules) for kind in type(value).__mro__)


def state_of_rank(values: Sequence[Any], *, rank: int) -> Any:
    """Give the state of one rank, from those of another number of ranks.

    Dictionaries and sequences of the same form are looked into. Of random states a rank gets its own, and a new rank
    one that follows from that of rank 0. Of all else a new rank gets that of rank 0.

    Args:
        values: The values of each rank.
        rank: The rank in the resumed training.
    """
    first = values[0]
    if len(values) > 1 and _common(values) is not _MISSING:
        return first
    derived = _derived(first, rank)
    if derived is not None:
        return values[rank] if rank < len(values) else derived
    if type(first) is dict and all(_has_keys(value, first) for value in values):
        return {key: state_of_rank([value[key] for value in values], rank=rank) for key in first}
    if type(first) in (list, tuple) and all(type(one) is type(first) and len(one) == len(first) for one in values):
        return type(first)(state_of_rank(items, rank=rank) for items in zip(*values))
    return values[rank] if rank < len(values) else first


def _random_state(values: Sequence[Any], *, rank: int) -> Any:
    """Give the state of a generator of this rank. `_MISSING` where there is none."""
    common = _common(values)
    if any(value is _MISSING for value in values) or (len(values) > 1 and common is not _MISSING):
        return common
    derived = values[rank] if rank < len(values) else _derived(values[0], rank)
    return _MISSING if derived is None else derived


def _derived(saved: Any, rank: int) -> Any:
    """Give the random state of a new rank. None where this is no random state."""
    if not isinstance(saved, (dict, tuple)) and not hasattr(saved, "dtype"):
        return None
    return derived_random_state(saved, hashlib.sha256(b"%s rank %d" % (_content(saved), rank)).digest())


def _common(values: Sequence[Any]) -> Any:
    """Give the value that all ranks have. `_MISSING` where they differ."""
    first = values[0]
    if any(value is _MISSING for value in values):
        return _MISSING
    content = _content(first)
    return first if all(_content(value) == content for value in values[1:]) else _MISSING


def _content(value: Any) -> bytes:
    """Give bytes that are equal for equal values only."""
    encoded = encode_state({"": value})
    digest = hashlib.sha256(json.dumps(encoded.document).encode("ascii"))
    for blob in encoded.blobs:
        digest.update(host_bytes(blob.raw))
    return digest.digest()


def _holds_objects(value: Any) -> bool:
    return any(stateful_kind(found) is not None for _, found in objects_in(value))


def _has_keys(value: Any, other: Mapping[Any, Any]) -> bool:
    return isinstance(value, dict) and value.keys() == other.keys()
