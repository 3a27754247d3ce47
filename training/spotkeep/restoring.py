"""The restore of the newest good checkpoint, from this machine or from S3, with a fall back on damage."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Callable, Optional

from spotkeep.loaded import loaded
from spotkeep.state import arrays
from spotkeep.state.encoding import Json, object_state, stateful_kind

from .disk.checkpoint_directory import CheckpointDirectory, OpenCheckpoint
from .disk.chunk_checksums import chunk_checksums
from .disk.manifest import CHUNK_BYTES, DataFile, Manifest
from .errors import CheckpointError, DamagedCheckpointError, MixedStateError
from .events import TrainingEvents
from .notices.notice import EXIT_INTERRUPTED
from .ranks.rank_group import RankGroup
from .ranks.rank_shares import differing_paths, own_names, states_of_ranks, view_for
from .remote.background_upload import upload_pace
from .remote.remote_checkpoints import RemoteManifest
from .remote.second_tier import SecondTier, agents_copy
from .remote.transfer import TransferCancelledError
from .state.partial import fitting_part, with_own_items
from .state.rank_states import RankStates, rank_states_for, refuse_kept_places
from .state.restoring import (
    altered,
    compare_restored,
    put_back,
    require_fit,
    require_no_difference,
    require_taken_back,
)
from .state.training_state import TrainingState
from .training_description import changes, is_of_the_same_start
from .training_folder import TRAININGS_HERE, TrainingFolder

_MAX_DEPTH = 100
_Address = Optional[tuple[str, int]]


class SharedMemory:
    """Arrays and tensors in a live state's dictionaries and lists that share memory with another part of it.

    A script may keep the best weights as `{"best": dict(model.state_dict())}`. They are the model's own memory, until
    it puts a copy there. A checkpoint from later has two values for that memory. So before such a checkpoint is read,
    the tensor gets memory of its own. Where the two values are equal afterwards, the two are one again.

    Args:
        state: Names and objects.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        held = [found for value in state.values() for found in _held(value, 0)]
        self._parted: list[tuple[Any, Any, Any]] = []
        if not held:
            return
        taken = {_address(value) for value in state.values()}
        for value in state.values():
            taken |= {_address(tensor) for tensor in _in_objects(value, 0)}
        for container, key, value in held:
            address = _address(value)
            if address is not None and address in taken:
                self._parted.append((container, key, value))
            taken.add(address)

    def part(self) -> None:
        """Give each of them memory of its own."""
        for container, key, value in self._parted:
            container[key] = value.clone() if arrays.is_torch_tensor(value) else value.copy()

    def join_where_equal(self) -> None:
        """Put those back that equal the memory they shared."""
        for container, key, value in self._parted:
            if _is_there(container, key) and _same(container[key], value):
                container[key] = value


def _held(value: Any, depth: int) -> Iterator[tuple[Any, Any, Any]]:
    """Find arrays and tensors directly in dictionaries and lists. Each comes with its container, key and value."""
    if type(value) is not list and not isinstance(value, dict):
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if arrays.is_numpy_array(item) or (arrays.is_torch_tensor(item) and not item.requires_grad):
            yield value, key, item
        elif depth < _MAX_DEPTH:
            yield from _held(item, depth + 1)


def _in_objects(value: Any, depth: int) -> Iterator[Any]:
    """Find the arrays and tensors that objects give as their state."""
    if arrays.is_numpy_array(value) or arrays.is_torch_tensor(value):
        return
    if isinstance(value, (dict, list)):
        for item in (value.values() if isinstance(value, dict) else value) if depth < _MAX_DEPTH else ():
            yield from _in_objects(item, depth + 1)
    elif stateful_kind(value) == "state_dict":
        yield from (found for _, _, found in _held({"": object_state(value)}, depth))


def _address(value: Any) -> _Address:
    if arrays.is_numpy_array(value):
        return ("cpu", value.__array_interface__["data"][0]) if value.size else None
    return arrays.address_of(value) if arrays.is_torch_tensor(value) else None


def _is_there(container: Any, key: Any) -> bool:
    return key in container if isinstance(container, dict) else key < len(container)


def _same(one: Any, other: Any) -> bool:
    """Say whether two arrays or tensors have the same bits."""
    if type(one) is not type(other) or one.shape != other.shape or one.dtype != other.dtype:
        return False
    if arrays.is_numpy_array(one):
        return bool(one.tobytes() == other.tobytes())
    torch: Any = loaded("torch")
    return bool(torch.equal(one.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8)))


_PATHS_SHOWN = 5
_MOST_FOLDERS_BESIDE = 100

_logger = logging.getLogger("spotkeep")


class Restore:
    """One restore of a training. It is used once.

    Args:
        state: The live state, which gets the values of the checkpoint.
        ranks: The ranks, each of which makes the same calls.
        tier: The checkpoints in S3, if any.
        events: Reports of the training.
        cancelled: Set by a notice: a download ends then.
        on_restore: Gives the state the form that it had, with the completed steps and epochs of a checkpoint.
        strict: False takes the part that fits, and leaves the rest as it is.

    Attributes:
        left_out: The paths that did not fit, of the checkpoint and of the state. Empty with `strict`.
    """

    def __init__(
        self,
        state: TrainingState,
        *,
        ranks: RankGroup,
        tier: SecondTier,
        events: TrainingEvents,
        cancelled: threading.Event,
        on_restore: Callable[[int, int | None], object] | None,
        strict: bool = True,
    ) -> None:
        self.left_out: tuple[str, ...] = ()
        self._strict = strict
        self._state = state
        self._ranks = ranks
        self._directory = ranks.directory
        self._tier = tier
        self._events = events
        self._cancelled = cancelled
        self._on_restore = on_restore
        self._rank_states: RankStates | None = None
        self._shared_memory: SharedMemory | None = None

    def run(self, *, step: int | None = None) -> Manifest | None:
        """Restore a checkpoint, read once if that is possible. None where there is no checkpoint.

        Args:
            step: The step of the checkpoint, which is there. None for the newest good one.

        Raises:
            DamagedCheckpointError: If the checkpoint of `step` is damaged, here and in S3. On nodes also if none is
                good here, because S3 has older ones.
            StateError: If the state could not be saved later on, or not be restored then.
            StateMismatchError: If a good checkpoint does not fit the state.
            WorldSizeError: If another number of ranks wrote it, and no rule divides a part of it anew.
            MixedStateError: If none is good, and a damaged one has overwritten a part of the state.
            RemoteError: If S3 cannot be read.
            SystemExit: With code 75, for a notice during a download.
        """
        self._ranks.unite(self._state)
        overwrites = any(self._ranks.together(partial(self._ranks.check, self._state)))
        manifest = self._restore(step, overwrites=overwrites)
        if self.left_out and self._ranks.is_first:
            _logger.warning("the restore left out what does not fit: %s", _shown(self.left_out))
        if manifest is None:
            self._ranks.together(self._require_taken_back)
        return manifest

    def _require_taken_back(self) -> None:
        require_taken_back(self._state.whole, digest=partial(chunk_checksums, chunk_bytes=CHUNK_BYTES))

    def _restore(self, wanted: int | None, *, overwrites: bool) -> Manifest | None:
        # What rank 0 sees counts: it writes the manifests.
        here, there = self._ranks.together(self._checkpoints_there)[0]
        self._directory.take(dict(here))
        if self._tier.remote is not None:
            self._tier.remote.take(dict(there))
        local, remote = [step for step, _ in here], [step for step, _ in there]
        steps = sorted({*local, *remote}, reverse=True) if wanted is None else [wanted]
        damage: DamagedCheckpointError | None = None
        overwritten = False
        # One that is damaged here may be whole in S3.
        for step, fetch in [(step, fetch) for step in steps for fetch in (False, True)]:
            if not fetch and self._tier.gathers_hosts:
                # Each host has a part of it, so that it goes through S3.
                remote += [step] if step not in remote and self._bring_together(step) else []
                continue
            if step not in (remote if fetch else local):
                continue
            if fetch and not self._fetch(step):
                continue
            found = None
            try:
                found = self._read(step, verify_first=overwritten or (overwrites and step == steps[-1]))
                self._ranks.together(found.fill)
            except DamagedCheckpointError as error:
                damage = error
                self._report_damage(step, error)
                overwritten = overwritten or (overwrites and found is not None)
                continue
            self._ranks.together(partial(self._put_back, found))
            # An optimizer may have got a state that it did not have before.
            self._ranks.unite(self._state)
            self._ranks.together(partial(self._compare, found))
            if step not in remote:
                self._tier.saved(step)
            return found.manifest
        if overwritten:
            raise MixedStateError(
                f"none of the checkpoints {', '.join(map(self._directory.name, steps))} in {self._directory.path} is "
                "good, and reading them has overwritten a part of the state; to start from the beginning, move them "
                "away"
            )
        if self._shared_memory is not None:
            self._shared_memory.join_where_equal()
        # On nodes an agent has brought the newest one alone. It brings it again, or one before it, to the next start.
        if damage is not None and (wanted is not None or (agents_copy() and self._tier.remote is None)):
            raise damage
        return None

    def _checkpoints_there(self) -> list[list[tuple[int, str]]]:
        """List the steps and names of the checkpoints, on this machine and in S3."""
        directory, remote = self._directory, self._tier.remote
        here = [(step, directory.name(step)) for step in directory.steps()]
        return [here, [] if remote is None else [(step, remote.name(step)) for step in remote.steps()]]

    def _read(self, step: int, *, verify_first: bool) -> OpenCheckpoint:
        """Open a checkpoint that fits the state. Nothing is changed.

        Raises:
            DamagedCheckpointError: If a file is damaged, as far as it was read.
        """
        found: list[OpenCheckpoint] = []

        def open_it() -> None:
            # What the script does to its state for one checkpoint cannot be undone for another one.
            if verify_first or self._on_restore is not None:
                self._directory.verify(step, view=self._whole_view)
            self._make_as_it_was(step)
            if self._shared_memory is None:
                self._shared_memory = SharedMemory(self._state.whole)
                self._shared_memory.part()
            opened = self._directory.open(step, live=self._state.whole, view=self._view, partly=not self._strict)
            self._rank_states = self._states_of_other_ranks(opened.manifest)
            if self._rank_states is not None:
                kept = {*opened.state, *self._rank_states.names}
                refuse_kept_places(
                    {name: value for name, value in self._state.whole.items() if name in kept},
                    written_by=opened.manifest.world_size,
                    world_size=self._ranks.world_size,
                )
            require_fit(self._live(opened), self._values(opened), step=step)
            found.append(opened)

        self._ranks.together(open_it)
        return found[0]

    def _live(self, found: OpenCheckpoint) -> dict[str, Any]:
        """Give the names and objects that take the values of a checkpoint."""
        live = self._of_one_document(found.manifest)
        return live if self._strict else {name: value for name, value in live.items() if name in found.state}

    def _values(self, found: OpenCheckpoint) -> dict[str, Any]:
        """Give the values for `_live`."""
        return found.state if self._strict else with_own_items(found.state, self._state.whole)

    def _of_one_document(self, manifest: Manifest) -> dict[str, Any]:
        """Give the part of the live state that one document has, without the states of other ranks."""
        names = self._names_of_other_ranks(manifest)
        return {name: value for name, value in self._state.whole.items() if name not in names}

    def _names_of_other_ranks(self, manifest: Manifest) -> frozenset[str]:
        """Name the entries that each rank had for itself, where another number of ranks wrote them."""
        if manifest.world_size == self._ranks.world_size:
            return frozenset()
        return own_names(manifest, per_rank=self._state.per_rank) | {*self._state.per_rank}

    def _states_of_other_ranks(self, manifest: Manifest) -> RankStates | None:
        """Read the states that each rank had for itself, where another number of ranks wrote them.

        Raises:
            WorldSizeError: If no rule divides a part of them anew.
        """
        if manifest.world_size == self._ranks.world_size:
            return None
        opened = self._directory.open(manifest.step, view=partial(states_of_ranks, per_rank=self._state.per_rank))
        opened.fill()
        states = list(opened.state.values())
        names = self._names_of_other_ranks(manifest)
        live = {name: value for name, value in self._state.whole.items() if name in names}
        if not self._strict:
            states = [{name: value for name, value in state.items() if name in live} for state in states]
            live = {name: value for name, value in live.items() if any(name in state for state in states)}
        return rank_states_for(
            live, states, step=manifest.step, rank=self._ranks.rank, world_size=self._ranks.world_size
        )

    def _view(self, manifest: Manifest) -> Json:
        document = self._whole_view(manifest)
        if not self._strict:
            document, left_out = fitting_part(document, self._of_one_document(manifest))
            self.left_out = tuple(left_out)
        return document

    def _whole_view(self, manifest: Manifest) -> Json:
        return view_for(
            manifest, rank=self._ranks.rank, world_size=self._ranks.world_size, per_rank=self._state.per_rank
        )

    def _put_back(self, found: OpenCheckpoint) -> None:
        step = found.manifest.step
        paths = [] if found.manifest.world_size == self._ranks.world_size else differing_paths(found.manifest)
        if paths and self._ranks.is_first:
            _logger.warning(
                "the checkpoint of step %d was written by %d ranks, each of which had its own values in %s; with %d "
                "all begin with those of rank 0",
                step,
                found.manifest.world_size,
                _shown(paths),
                self._ranks.world_size,
            )
        values, live = self._values(found), self._live(found)
        for part in (self._state.common, self._state.per_rank):
            put_back(part, {name: values[name] for name in part if name in live}, step=step)
        if self._rank_states is not None:
            self._rank_states.put_back()
        if self._shared_memory is not None:
            self._shared_memory.join_where_equal()

    def _compare(self, found: OpenCheckpoint) -> None:
        live = self._live(found)
        differences, held = compare_restored(live, found.document, found.manifest.divided)
        if not self._strict:
            differences = [difference for difference in differences if not difference.added]
        differences += [altered(held[index].form) for index in found.altered(held)]
        require_no_difference(live, differences, step=found.manifest.step)
        if self._rank_states is not None:
            self._rank_states.compare()

    def _make_as_it_was(self, step: int) -> None:
        """Let the script give its state the form that it had at a step, once."""
        on_restore, self._on_restore = self._on_restore, None
        if on_restore is not None:
            on_restore(step, self._directory.read_manifest(step).epochs_completed)

    def _fetch(self, step: int) -> bool:
        """Download a checkpoint. Each rank fetches a part of the files. Gives true for a whole one."""
        remote, shared = self._tier.remote, self._ranks.shared
        if remote is None:
            return False
        began = time.monotonic()
        if self._ranks.is_first:
            _logger.info("downloading the checkpoint of step %d from %s", step, remote.place)
        leads = shared is None or shared.leads
        found: list[RemoteManifest] = []

        def look() -> Any:
            if not self._ranks.is_first:
                return None
            found.append(remote.read_manifest(step))
            return [len(found[0].raw), found[0].digest]

        def make_room() -> None:
            if not self._ranks.is_first:
                found.append(remote.read_same_manifest(step, size=size, digest=digest))
            if leads:
                remote.make_room(step)

        def fetch_files() -> int:
            files = remote.share.of(self._files_needed_here(found[0].manifest))
            try:
                return remote.fetch_files(step, files, cancelled=self._cancelled)
            except TransferCancelledError:
                # What has been downloaded stays for the next attempt on this machine, if there is one.
                raise SystemExit(EXIT_INTERRUPTED) from None

        try:
            size, digest = self._ranks.together(look)[0]
            self._ranks.together(make_room)
            self._ranks.together(fetch_files)
            self._ranks.together(lambda: remote.keep_manifest(step, found[0]) if leads else None)
        except DamagedCheckpointError as error:
            self._report_damage(step, error)
            return False
        seconds = round(time.monotonic() - began, 4)
        self._events.emit("downloaded", step=step, seconds=seconds, bytes=found[0].total_bytes)
        return True

    def _bring_together(self, step: int) -> bool:
        """Upload a checkpoint that is on the disks of the hosts alone. Gives true if it is whole in S3 then."""
        remote = self._tier.remote
        if remote is None:
            return False
        shown: list[RemoteManifest] = []

        def show() -> Any:
            if self._ranks.is_first:
                shown.append(remote.show_manifest(step))
                return [len(shown[0].raw), shown[0].digest]
            return None

        def send() -> None:
            if not self._ranks.is_first:
                shown.append(remote.read_same_manifest(step, size=size, digest=digest, shown=True))
            try:
                remote.send_what_is_here(step, shown[0].manifest, cancelled=self._cancelled, pace=upload_pace())
            except TransferCancelledError:
                raise SystemExit(EXIT_INTERRUPTED) from None

        try:
            size, digest = self._ranks.together(show)[0]
            self._ranks.together(send)
            whole = self._ranks.together(lambda: remote.complete(step, shown[0]) if self._ranks.is_first else None)[0]
        except DamagedCheckpointError as error:
            self._report_damage(step, error)
            return False
        if not whole and self._ranks.is_first:
            _logger.warning("the hosts no longer have all files of the checkpoint of step %d", step)
        return bool(whole)

    def _files_needed_here(self, manifest: Manifest) -> list[DataFile]:
        """Choose the files that the ranks of this host read. A folder of all ranks gets all files."""
        shared = self._ranks.shared
        if not self._tier.gathers_hosts or shared is None or manifest.world_size != self._ranks.world_size:
            return list(manifest.files)
        return manifest.files_for(*map(manifest.state_of, shared.ranks_here))

    def _report_damage(self, step: int, error: DamagedCheckpointError) -> None:
        self._directory.distrust(step)
        _logger.warning("passing over a damaged checkpoint: %s", error)
        self._events.emit("fallback", step=step, problem=error.problem, file=error.file)


def _shown(paths: Sequence[str]) -> str:
    return ", ".join(paths[:_PATHS_SHOWN]) + (", ..." if len(paths) > _PATHS_SHOWN else "")


def warn_of_other_settings(
    directory: CheckpointDirectory, manifest: Manifest, made_by: Mapping[str, str], *, strict: bool
) -> None:
    """Warn of settings and code that are others than those of the checkpoint that was restored.

    A restore of a part (`strict` is false) says nothing of the settings of entries that it left out.
    """
    before = {
        name: text
        for name, text in manifest.made_by.items()
        if strict or name in made_by or not name.startswith("state[")
    }
    changed = changes(before, made_by)
    if changed:
        _logger.warning(
            "the training goes on from %s, which was made with other settings or code. What is part of the state "
            "stays as it was; all else is from now on what it is here:\n%s",
            directory.path / directory.name(manifest.step),
            "\n".join(f"  - {change}" for change in changed),
        )


def warn_of_folder_beside(folder: TrainingFolder, made_by: Mapping[str, str]) -> None:
    """Warn where an earlier start of this very script seems to have kept its checkpoints under another name."""
    if not folder.kept or folder.label is None:
        return
    beside = folder.path.parent
    with contextlib.suppress(OSError):  # what this process may not read is no earlier start of its
        names = sorted(other.name for other in beside.iterdir() if other.is_dir())
        for name in names[:_MOST_FOLDERS_BESIDE]:
            of_this_process = TRAININGS_HERE.has_been_in(str((beside / name).resolve()))
            if name == folder.path.name or of_this_process or not _holds_same_start(beside / name, made_by):
                continue
            _logger.warning(
                "this training begins at step 0 in %s, and %s beside it holds checkpoints of the same script, "
                "started in the same way. A directory= or name= that is another one at each start (a time, the "
                "number of a process) lets no start find what the one before has saved: give the same one at each "
                "start. If the two are trainings of the script beside each other, all is well",
                folder.path,
                beside / name,
            )
            return


def _holds_same_start(path: Path, made_by: Mapping[str, str]) -> bool:
    directory = CheckpointDirectory(path)
    try:
        newest = next(iter(directory.steps()), None)
        return newest is not None and is_of_the_same_start(directory.read_manifest(newest).made_by, made_by)
    except CheckpointError:
        return False
