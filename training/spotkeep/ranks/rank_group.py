"""The ranks of a training, as one of them sees them, with messages, agreement, and the directory that all write.

A training of one process is a group of one. The modules above ask the group. None of them chooses another way of
writing by the number of ranks.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import marshal
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Callable

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.checksum_copy import MemoryOfFile
from spotkeep.disk.chunk_checksums import chunk_checksum
from spotkeep.errors import StateError, UsageError
from spotkeep.loaded import loaded
from spotkeep.state.arrays import (
    DeviceBytes,
    address_of,
    device_digests,
    is_torch_tensor,
    joined_device_digests,
    part_of,
)
from spotkeep.state.differences import (
    Differences,
    differences,
    digest_tree,
    divided_paths,
    layout_digest,
    own_paths,
    own_places,
)
from spotkeep.state.divided import Box, cover_problem, turns
from spotkeep.state.encoding import EncodedState, Json, objects_in
from spotkeep.state.training_state import TrainingState
from spotkeep.state.united import UnitedState, digest_of

from .distributed import Ranks, join_ranks, together
from .meeting_rounds import MeetingRounds
from .rank_shares import EncodedShare, encode_share, own_bytes
from .shared_directory import SharedDirectory


class Joinables:
    """torch's wrappers for several ranks, such as `DistributedDataParallel` and `ZeroRedundancyOptimizer`.

    A script often passes the module without its wrapper, and a framework makes the wrapper in its own loop. So the
    search goes through all objects of the process. That takes some ten milliseconds, and happens rarely, not at each
    step.
    """

    def __init__(self) -> None:
        self._found: list[weakref.ref[Any]] = []
        self._contexts: list[weakref.ref[Any]] = []
        self._seen: set[int] = set()

    def find(self) -> None:
        """Look for them."""
        join: Any = loaded("torch.distributed.algorithms.join")
        self._found = [] if join is None else _instances(join.Joinable)

    def buffers_made_equal(self, world_size: int) -> list[Any]:
        """Give the buffers that all ranks get from rank 0 at the next forward pass.

        Args:
            world_size: Number of ranks. A wrapper for some of them makes theirs equal, and no others.
        """
        parallel: Any = loaded("torch.nn.parallel")
        return [
            buffer
            for wrapper in self._alive()
            if isinstance(wrapper, parallel.DistributedDataParallel)
            if wrapper.broadcast_buffers and wrapper.process_group.size() == world_size
            for name, buffer in wrapper.module.named_buffers()
            if name not in wrapper.parameters_to_ignore
        ]

    def problems(self, *states: Mapping[str, Any]) -> list[str]:
        """Name values that they keep between steps and that no entry of the state holds.

        Args:
            *states: Names and objects.
        """
        alive = self._alive()
        zero: Any = loaded("torch.distributed.optim")
        divided = [one for one in alive if zero is not None and isinstance(one, zero.ZeroRedundancyOptimizer)]
        hooks = [
            (hook.__name__, kept)
            for wrapper in alive
            for hook, kept in getattr(wrapper, "_comm_hooks", ())
            if _keeps_something(kept)
        ]
        if not divided and not hooks:
            return []
        entries = [found for state in states for found in objects_in(state)]
        held = {id(inner) for _, entry in entries for inner in (entry, *_reachable(entry))}
        return [
            f"{path} is a ZeroRedundancyOptimizer, of which each rank has a part: pass that part, "
            "per_rank={'optimizer': optimizer.optim}"
            for path, entry in entries
            if any(entry is one for one in divided) and not _gives_its_state(entry)
        ] + [
            f"the communication hook {name} of a DistributedDataParallel keeps a {type(kept).__name__} from step to "
            "step, and no entry holds it: pass an object with state_dict and load_state_dict for it in per_rank "
            "(`spotkeep help distributed-training` shows one)"
            for name, kept in hooks
            if id(kept) not in held
        ]

    @property
    def joining(self) -> bool:
        """True while this process is in a block of `model.join()`, in which ranks without more batches wait."""
        # torch does not take the setting back when the block is left. The context is gone then.
        configurations = {id(one._join_config) for one in self._alive() if one._join_config.enable}
        if not configurations <= self._seen:
            join: Any = loaded("torch.distributed.algorithms.join")
            self._contexts = _instances(join.Join)
        self._seen = configurations
        contexts = [context() for context in self._contexts]
        return bool(configurations) and any(one is not None and one._enable for one in contexts)

    def _alive(self) -> list[Any]:
        return [one for one in (reference() for reference in self._found) if one is not None]


def _reachable(entry: Any) -> list[Any]:
    """Give the objects that an object refers to, directly or by an attribute."""
    return [inner for outer in gc.get_referents(entry) for inner in (outer, *gc.get_referents(outer))]


def _keeps_something(kept: Any) -> bool:
    """Say whether a hook's state changes from step to step.

    It does if it holds a count of iterations, as torch's hooks do, or tensors.
    """
    values = [
        getattr(kept, name, None) for name in (*getattr(type(kept), "__slots__", ()), *getattr(kept, "__dict__", ()))
    ]
    tensors = [item for value in values for item in (value.values() if isinstance(value, dict) else [value])]
    return isinstance(getattr(kept, "iter", None), int) or any(map(is_torch_tensor, tensors))


def _gives_its_state(optimizer: Any) -> bool:
    try:
        optimizer.state_dict()
    except RuntimeError:
        return False
    return True


def _instances(kind: type) -> list[weakref.ref[Any]]:
    return [weakref.ref(one) for one in gc.get_objects() if issubclass(type(one), kind)]


_logger = logging.getLogger("spotkeep")

_PATHS_SHOWN = 5
_LARGE_BYTES = 8192
_TURNS = 32
_OF_NO_VERSION = 2  # of marshal's: equal values have equal bytes
_NOT_COMPARED = "-"
_OWN = "own"
_OTHER_FORM = "another form than at the save before"
_OTHER_DIVISION = (
    "the ranks have different numbers of arrays that are divided among them: pass the model and its optimizers as "
    "spotkeep.integrations.sharded.ShardedState(model, optimizers), which unites their names"
)
_PART_UNIT_BYTES = 64


class RankComparison:
    """Puts together the part of each rank. The ranks share the common state, and write their differences beside it.

    The first save of a process compares everything. All of a large state at each save would cost too much. So a later
    save compares the small values, and one part in 32 of each large array, another one each time. After any difference
    all are compared once more. An entry that differs then is each rank's own for as long as the process lasts.

    `DistributedDataParallel` gives rank 0's buffers to all at the next forward pass (`broadcast_buffers`). These may
    differ, and rank 0's count.

    Args:
        ranks: The others, for the thread that trains.
        joinables: The wrappers of this process.
    """

    def __init__(self, ranks: Ranks, joinables: Joinables) -> None:
        self._ranks = ranks
        self._joinables = joinables
        self._saves = 0
        self._differ = False  # the same on all ranks
        # Indices of blobs: their places change with the size of what is before them.
        self._own: set[int] = set()  # known to differ
        self._made_equal: set[int] = set()
        self._alone: frozenset[int] = frozenset()  # those that rank 0 alone writes, the same on all ranks
        self._form: Json = None
        self._turns: list[dict[Box, tuple[int, int]]] = []

    def encode(self, encode_parts: Callable[[], tuple[EncodedState, EncodedState]]) -> EncodedShare:
        """Give the part of this rank. Every rank must call it.

        Args:
            encode_parts: Encodes the state that all ranks are said to share, and each rank's own.

        Raises:
            StateError: An entry cannot be saved.
            OtherRankError: An entry of another rank cannot be saved.
            RankLostError: A rank is gone.
        """
        encoded: list[EncodedState] = []  # what is common, what is own
        self._saves += 1

        def encode_and_compare() -> Json:
            encoded.extend(encode_parts())
            if _form_of(encoded[0]) != self._form:
                return [_OTHER_FORM, 0]
            encoded[0] = self._in_turn(encoded[0])
            common, own = encoded
            return [None if self._differ else self._root(common), own_bytes(common, own)]

        answers = together(self._ranks, encode_and_compare)
        roots = {root for root, _ in answers}
        found: Differences = None
        sizes = [size for _, size in answers]
        if _OTHER_FORM in roots:
            encoded[0] = self._divide(encoded[0])
        common, own = encoded
        if self._differ or len(roots) > 1 or _OTHER_FORM in roots:
            whole = not self._differ or _OTHER_FORM in roots
            found, sizes = self._differences(common, own, whole=whole)
        return encode_share(common, own, found, rank=self._ranks.rank, own_bytes=sizes, alone=self._alone)

    def _divide(self, common: EncodedState) -> EncodedState:
        """Let the ranks share the writing of boxes that several of them hold.

        Raises:
            StateError: The ranks' boxes of an array do not cover it exactly once.
        """

        def describe() -> Json:
            return [[[box.offsets, box.shape] for box in array.boxes] for array in common.divided]

        of_ranks = together(self._ranks, describe)
        counts = {len(of_rank) for of_rank in of_ranks}

        def settle() -> None:
            if len(counts) > 1:
                raise StateError([_OTHER_DIVISION])
            self._turns, problems = [], []
            for number, array in enumerate(common.divided):
                boxes = [[Box(tuple(at), tuple(shape)) for at, shape in of_rank[number]] for of_rank in of_ranks]
                self._turns.append(turns(boxes)[self._ranks.rank])
                problem = cover_problem(array.shape, list(dict.fromkeys(box for each in boxes for box in each)))
                if problem is not None:
                    paths = divided_paths(common.document)
                    problems.append(f"{paths[number]}: its parts on all ranks are not the whole array: {problem}")
            if problems:
                raise StateError(problems)

        together(self._ranks, settle)
        self._form = _form_of(common)
        return self._in_turn(common)

    def _in_turn(self, common: EncodedState) -> EncodedState:
        """Give a state with the turns of this rank among the holders of each box."""
        divided = []
        for array, turn_of in zip(common.divided, self._turns):
            parts = []
            for part in array.parts:
                holders, turn = turn_of[part.box]
                parts.append(replace(part, holders=1 if array.one_writer else holders, turn=turn))
            divided.append(replace(array, parts=tuple(parts)))
        return replace(common, divided=tuple(divided))

    def _differences(self, common: EncodedState, own: EncodedState, *, whole: bool) -> tuple[Differences, list[int]]:
        """Find the differences of this rank from rank 0, and the bytes of each rank's own stream.

        Args:
            common: The state that all ranks are said to share.
            own: The state that the script passes as each rank's own.
            whole: Compare everything.
        """
        trees: list[Json] = []

        def compare() -> Json:
            if whole:
                self._look_again(common, own)
            trees.append(digest_tree(common.document, self._digest_of(common, whole=whole)))
            return None if self._ranks.rank else trees[0]

        of_first = together(self._ranks, compare)[0]
        found = differences(common.document, trees[0], of_first)
        places = own_places(found)
        self._own = {index for index, blob in enumerate(common.blobs) if blob.offset in places}
        answers = self._ranks.exchange(
            {
                "differs": found is not None,
                "layout": layout_digest(common.document),
                "alone": sorted(self._own | self._made_equal),
                "bytes": own_bytes(common, own, self._own),
            }
        )
        differ = [one["differs"] for one in answers]
        if len({one["layout"] for one in answers}) == 1:
            self._alone = frozenset().union(*(one["alone"] for one in answers))
        else:
            # The ranks have other arrays than rank 0, so none knows the place of its own ones there.
            self._alone = frozenset(range(len(common.blobs)))
        if not self._differ and found is not None and True not in differ[: self._ranks.rank]:
            paths = ", ".join(own_paths(found)[:_PATHS_SHOWN])
            _logger.info("each rank keeps its own values of what differs from rank to rank: %s", paths)
        self._differ = any(differ)
        return found, [one["bytes"] for one in answers]

    def _look_again(self, common: EncodedState, own: EncodedState) -> None:
        """Find entries that torch makes equal before they count, and forget the known differences."""
        self._joinables.find()
        buffers = self._joinables.buffers_made_equal(self._ranks.world_size)
        addresses = set(map(address_of, buffers))
        if addresses:
            # What the script passes as each rank's own is compared wherever it stands.
            addresses -= {address_of(blob.raw) for blob in own.blobs}
        self._made_equal = {
            index for index, blob in enumerate(common.blobs) if addresses and address_of(blob.raw) in addresses
        }
        self._own = set()

    def _compared(self, common: EncodedState, *, whole: bool) -> dict[int, Any]:
        """Give the bytes to compare by the offsets of their blobs, all of the small ones and a part of each large one.

        Args:
            common: The state that all ranks are said to share.
            whole: Compare all of the large ones too.
        """
        known = self._made_equal | self._own
        return {
            blob.offset: blob.raw if whole or len(blob.raw) < _LARGE_BYTES else _turn_of(blob.raw, self._saves + index)
            for index, blob in enumerate(common.blobs)
            if index not in known
        }

    def _root(self, common: EncodedState) -> str:
        """Give a fast digest of all compared bytes, which does not show the place of a difference."""
        raws = list(self._compared(common, whole=False).values())
        document = hashlib.blake2b(marshal.dumps(common.document, _OF_NO_VERSION), digest_size=16)
        return " ".join([document.hexdigest(), *_joined_digests(raws)])

    def _digest_of(self, common: EncodedState, *, whole: bool) -> Callable[[Json], str]:
        compared = self._compared(common, whole=whole)
        digests = dict(zip(compared, _digests(list(compared.values()))))
        digests.update({common.blobs[index].offset: _OWN for index in self._own})

        def digest_of(place: Json) -> str:
            return digests.get(place["offset"], _NOT_COMPARED) if place["size"] else ""

        return digest_of


def _form_of(common: EncodedState) -> Json:
    """Give a value that changes when the state has other entries, or divided arrays have other boxes."""
    return len(common.blobs), [array.boxes for array in common.divided]


def _turn_of(raw: Any, turn: int) -> Any:
    """Give one of 32 parts of some bytes."""
    part_bytes = -(-len(raw) // (_TURNS * _PART_UNIT_BYTES)) * _PART_UNIT_BYTES
    parts = -(-len(raw) // part_bytes)
    start = turn % parts * part_bytes
    return part_of(raw, start, min(start + part_bytes, len(raw)))


def _joined_digests(raws: Sequence[Any]) -> list[str]:
    """Give digests of some bytes, joined, in few calls."""
    here = [memoryview(raw) for raw in raws if not isinstance(raw, DeviceBytes) and len(raw)]
    starts = accumulate((len(raw) for raw in here), initial=0)
    runs = list(zip(starts, here))
    checksums = MemoryOfFile(runs).checksums(0, runs[-1][0] + len(runs[-1][1])) if runs else []
    return [*checksums, *joined_device_digests([raw for raw in raws if isinstance(raw, DeviceBytes)])]


def _digests(raws: Sequence[Any]) -> list[str]:
    """Give a digest of each. Equal bytes on devices of the same kind have equal ones."""
    on_devices = iter(device_digests([raw for raw in raws if isinstance(raw, DeviceBytes)]))
    return [next(on_devices) if isinstance(raw, DeviceBytes) else _digest(raw) for raw in raws]


def _digest(raw: Any) -> str:
    if len(raw) < _LARGE_BYTES:
        return hashlib.blake2b(raw, digest_size=8).hexdigest()
    return chunk_checksum(raw)


class RankGroup:
    """This process and the other ranks of its training. Making it is collective, so every rank makes one.

    Attributes:
        rank: The number of this process, from 0.
        world_size: The number of ranks, 1 for a training of one process.
        is_one_process: True for a training of one process.
        is_first: True on rank 0, which reports and removes for all.
        directory: The checkpoints of the training. With several ranks every rank takes part in each write.
        meetings: The questions to save or to leave, and the agreement on those that all ranks answer together.
        shared: The same directory, where several ranks write it. None for a training of one process.

    Args:
        path: The folder of the checkpoints.
        ranks_upload: True where each rank's files are uploaded to S3. Each host may have a folder of its own then.

    Raises:
        UsageError: If the ranks cannot meet, or their folders are different ones.
    """

    def __init__(self, path: Path, *, ranks_upload: bool = False) -> None:
        self._channels = channels = join_ranks()
        self._has_left = False
        self.rank = channels.training.rank
        self.world_size = channels.training.world_size
        self.is_one_process = self.world_size == 1
        self.is_first = self.rank == 0
        self._joinables = Joinables()
        self._searches_left = 0
        self._comparison = RankComparison(channels.training, self._joinables)
        self.meetings = MeetingRounds(channels.meetings)
        self.shared: SharedDirectory | None = None
        if not self.is_one_process:
            try:
                self.shared = SharedDirectory(path, ranks=channels.writing, ranks_upload=ranks_upload)
            except BaseException:
                self.leave(saving=False)
                raise
        self.directory = self.shared or CheckpointDirectory(path)

    def join(self) -> None:
        """Meet the other ranks again after `leave`. Every rank must call it. It does nothing before that.

        Raises:
            RankLostError: If a rank was lost before.
            UsageError: If not every rank comes.
        """
        if self._has_left:
            self._channels.join()
            self._has_left = False

    def leave(self, *, saving: bool) -> None:
        """End the connections to the other ranks, which do not wait for that.

        Args:
            saving: True while a thread still writes. It keeps its own connections.
        """
        self._has_left = True
        self._channels.training.leave()
        if not self.meetings.is_running:
            self._channels.meetings.leave()
        if not saving:
            self._channels.writing.leave()

    def together(self, act: Callable[[], Any]) -> list[Any]:
        """Do something on every rank. It succeeds on all of them, or fails on all of them.

        Returns:
            The answer of each rank, a JSON value.

        Raises:
            OtherRankError: If it went wrong on another rank only.
            RankLostError: If a rank is gone.
        """
        return together(self._channels.training, act)

    def exchange(self, message: Any) -> list[Any]:
        """Send a JSON value to all ranks, and give the values of all in their order.

        Raises:
            RankLostError: If a rank is gone.
        """
        return self._channels.training.exchange(message)

    def largest(self, numbers: Sequence[int]) -> list[int]:
        """Give the largest number of all ranks in each place.

        Raises:
            RankLostError: If a rank is gone.
        """
        return self._channels.training.largest(numbers)

    def encode(self, state: TrainingState) -> EncodedState | EncodedShare:
        """Encode the bytes that this rank writes. Every rank must call it.

        Raises:
            StateError: If an entry cannot be saved.
            OtherRankError: If an entry of another rank cannot.
            RankLostError: If a rank is gone.
        """
        if self.is_one_process:
            return state.encode()
        self.unite(state)

        def encode_parts() -> tuple[EncodedState, EncodedState]:
            state.require_updated_tensors()
            self._require_state_of_wrappers(state)
            return state.encode_common(), state.encode_per_rank()

        return self._comparison.encode(encode_parts)

    def unite(self, state: TrainingState) -> None:
        """Let entries that each rank has a part of know the parts of all ranks. Every rank must call it.

        Raises:
            OtherRankError: If an entry of another rank cannot be saved.
            RankLostError: If a rank is gone.
        """
        entries = [entry for _, entry in objects_in(state.common) if isinstance(entry, UnitedState)]
        if self.is_one_process or not entries:
            return
        outlines: list[Json] = []

        def describe() -> Json:
            outlines.extend(entry.outline() for entry in entries)
            return [digest_of(outline) for outline in outlines]

        digests = self.together(describe)
        # Ranks with the same names have all plain values themselves.
        alike = all(each == digests[0] for each in digests)
        of_ranks = [outlines] * self.world_size if alike else self.exchange(outlines)
        for index, entry in enumerate(entries):
            entry.unite([each[index] for each in of_ranks], rank=self.rank)

    def check(self, state: TrainingState) -> bool:
        """Refuse a state that this group could not save, as `TrainingState.check` does.

        Raises:
            StateError: If an entry cannot be saved or restored, or a wrapper keeps state that no entry holds.
            UsageError: If this process is in a block of `model.join()`.
        """
        if not self.is_one_process:
            self._joinables.find()
            self.require_common_steps()
            self._require_state_of_wrappers(state)
        return state.check()

    def expect_new_wrappers(self) -> None:
        """Search for wrappers once more before the next step, because a framework makes them after the restore."""
        self._searches_left = 1

    def require_common_steps(self) -> None:
        """Refuse a block of `model.join()`, in which a rank without batches takes part in no save.

        Raises:
            UsageError: If this process is in such a block, and there are other ranks.
        """
        if self.is_one_process:
            return
        if self._searches_left:
            self._searches_left = 0
            self._joinables.find()
        if self._joinables.joining:
            raise UsageError(
                "this training is in a block of join(), in which ranks may have different numbers of batches: a rank "
                "without any waits in it, and does not take part in a save. Give all ranks as many batches, with a "
                "DistributedSampler (it fills up) or drop_last=True, and leave join() out"
            )

    def _require_state_of_wrappers(self, state: TrainingState) -> None:
        problems = self._joinables.problems(state.common, state.per_rank)
        if problems:
            raise StateError(problems)
