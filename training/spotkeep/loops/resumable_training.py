"""A loop over epochs and batches that an interruption cannot undo, for most PyTorch scripts, in four lines.

The script keeps its loops. A batch is done when the script asks for the next one. That is the moment to save, or to
leave on a notice.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
import threading
import weakref
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence, Sized
from itertools import cycle
from types import FrameType, GeneratorType, TracebackType
from typing import Any, Callable

from spotkeep.checkpointer import Checkpointer
from spotkeep.errors import UsageError
from spotkeep.loaded import loaded
from spotkeep.state.encoding import objects_in
from spotkeep.state.open_gradients import OpenGradients
from spotkeep.state.random_states import RandomStates, capture_random_states, restore_random_states
from spotkeep.state.rank_states import state_of_rank
from spotkeep.state.restoring import TakesEffectLater
from spotkeep.training_description import array_text

from .batch_passes import BatchSource, PassStart, PlainBatches
from .global_batches import GlobalBatches
from .order_memory import OrderMemory
from .places_of_ranks import OWN, new_place, remark_on_own_data, saved_place
from .replayed_start import ReplayedStart

_logger = logging.getLogger("spotkeep")

_VIRTUAL_RANKS = "spotkeep.integrations.virtual_ranks"
"""A module by its name, because loops import no integration."""

_RANDOM = "random states"
_LOOP = "loop"
_MOST_SAMPLERS = 10
"""Samplers that wrap each other."""

_PROGRESS_BARS = ("tqdm", "rich")


class ResumableTraining:
    """Takes an interrupted training up again, with its epoch, its batch, and every random number after it.

    ```python
    training = ResumableTraining({"model": model, "optimizer": optimizer, "scheduler": scheduler}, every_seconds=60)
    train_loader = training.loader(train_loader)
    for epoch in training.epochs(10):
        for inputs, labels in train_loader:
            train_one_batch(inputs, labels)
        scheduler.step()
        validate()
    ```

    The global random states of Python, NumPy and torch are saved too. An epoch that was interrupted is entered again,
    and its loaders go on with the batches that are left. The code around the inner loop belongs to the epoch. The code
    before it runs again, with the random numbers it had. The code after it runs once more if the interruption came
    after the last batch and before the end of the epoch. The state is then as it was after that batch. So change the
    state before the inner loop only in ways that can be done twice (`sampler.set_epoch(epoch)` can).

    Args:
        state: As for `Checkpointer`. The names "random states" and "loop" are taken.
        directory: As for `Checkpointer`.
        per_rank: As for `Checkpointer`, with the random states and the place in the loops.
        batches_per_step: Number of batches whose gradients are added up for one step of the optimizer. No save comes
            between them, since a checkpoint with open gradients is larger.
        **options: Further arguments of `Checkpointer`, such as `every_steps` and `keep_last`.

    Raises:
        UsageError: An argument makes no sense.
    """

    def __init__(
        self,
        state: Mapping[str, Any],
        directory: str | os.PathLike[str] | None = None,
        *,
        batches_per_step: int = 1,
        per_rank: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        own = dict(per_rank or {})
        taken = sorted({_RANDOM, _LOOP} & {*state, *own})
        if taken:
            raise UsageError(f"the state has {', '.join(map(repr, taken))}, which is added by itself; use other names")
        if batches_per_step < 1:
            raise UsageError(f"batches_per_step is {batches_per_step!r}; pass a number above zero")
        progress = _Progress(OpenGradients(state))
        # Every rank has random numbers and a place in the data of its own.
        own.update({_RANDOM: RandomStates(), _LOOP: progress})
        self._states = (state, own)
        self._checkpointer = Checkpointer(state, directory=directory, per_rank=own, **options)
        self._loop = _Loop(self._checkpointer, progress, state=state, batches_per_step=batches_per_step)

    @property
    def checkpointer(self) -> Checkpointer:
        """The Checkpointer of this training, with its `step`, `durable_step`, `directory` and `interrupted`."""
        return self._checkpointer

    def log(self, **metrics: float) -> None:
        """Note metrics of the current step. They go out with the next progress event.

        Args:
            **metrics: Names and numbers, for example `loss=0.3`.
        """
        self._checkpointer.log(**metrics)

    def loader(self, batches: Iterable[Any], state: Sequence[Any] = ()) -> ResumableLoader:
        """Give a loader to iterate over in place of these batches.

        A loader that is made inside an epoch holds for that epoch.

        Random generators, counters and other plain values in the attributes of a sampler, a stream or a loader are
        found by themselves. A checkpoint holds their values from the begin of the pass.

        Args:
            batches: A DataLoader, a list, or another object that gives its batches again in a second iteration.
            state: Further objects that decide the order of the batches. Each is a random generator, an object with
                attributes, or one with `state_dict` and `load_state_dict`. They are put back before an interrupted pass
                begins again.

        Raises:
            UsageError: If the object gives its batches only once, or never again in the same order.
        """
        in_state = [value for state in self._states for _, value in objects_in(state)]
        batch_sampler = getattr(batches, "batch_sampler", None)
        of_ranks = isinstance(batch_sampler, GlobalBatches) and not batch_sampler.virtual_ranks
        if of_ranks and any(type(value).__module__ == _VIRTUAL_RANKS for value in in_state):
            _logger.warning(
                "GlobalBatches divides its batches among the ranks, and the training has virtual ranks: with another "
                "number of ranks a virtual rank would have other samples. Pass it virtual_ranks="
            )
        if type(batches).__module__.startswith("torchdata.") and any(value is batches for value in in_state):
            raise UsageError(
                f"the {type(batches).__name__} stands in the state too: asked for its state it begins a pass of its "
                "own. Leave it out of the state; training.loader keeps its place"
            )
        number = len(self._loop.progress.loaders)
        self._checkpointer.describe(**{f"loader {number}": _described(batches)})
        return ResumableLoader(batches, self._loop, state)

    def epochs(self, epochs: int | Iterable[Any]) -> Iterator[Any]:
        """Go through the epochs that are left, the first of them from its interrupted batch.

        The newest good checkpoint is restored first. A save comes when it is due, at the end, and on a notice.

        Args:
            epochs: Number of epochs, or one value for each of them, for example `range(1, 11)`.

        Raises:
            UsageError: If the loops are not those of the checkpoint, or so many epochs have been gone through before.
            SystemExit: With code 75 after a notice, with 0 after the step to pause at.
        """
        values = range(epochs) if isinstance(epochs, int) else epochs
        loop = id(_frame_of_loop(sys._getframe(1)))
        with self._checkpointer:
            try:
                yield from self._loop.epochs(values)
            except GeneratorExit:
                frame = _frame_of_loop(sys._getframe(1))
                if id(frame) != loop or _has_an_error(frame):
                    raise
                # The loop was left by `break`: for this script the training is done.


class ResumableLoader:
    """A loader that takes an interrupted pass up again. Its `len` and attributes are those of the script's loader."""

    def __init__(self, batches: Iterable[Any], loop: _Loop, state: Sequence[Any] = ()) -> None:
        self._batches = batches
        self._source: BatchSource = _batch_source(batches, state)
        self._loop = loop
        self._passes = 0  # begun in this epoch
        self._passes_before = 0  # in the epochs before
        self._position = 0  # batches given in the last pass
        self._start = PassStart(number=0, made_in=loop.progress.epochs_completed if loop.running else 0)
        self._over_at: int | None = None
        self._newest: Callable[[], Any] = lambda: None
        self._cost_is_said = False
        self._cycle_is_sought = True
        self._index = loop.progress.add(self)

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "_batches":
            raise AttributeError(name)
        return getattr(self._batches, name)

    def __iter__(self) -> Iterator[Any]:
        self._passes += 1
        batches = self._pass(self._passes)
        self._newest = weakref.ref(batches)
        return batches

    def _pass(self, this_pass: int) -> Generator[Any, None, str | None]:
        if not self._loop.running:
            raise UsageError("a resumable loader gives batches only inside `for epoch in training.epochs(...)`")
        self._loop.require_own_thread()
        self._refuse_cycle()
        self._loop.require_common_steps()
        saved = self._loop.progress.saved(self._index)
        epoch = self._loop.progress.epochs_completed
        if saved is not None and this_pass < saved["passes"]:
            if not self._over_again():
                # Where the script calls `next`, the StopIteration has this text.
                return (
                    "this pass over the loader was over before the interruption, so it gives no batch again; for a "
                    "first look at a batch take the script's own loader"
                )
            this_pass = self._passes = saved["passes"]
        held = _held_iterators(self._source.iterated)
        batches = self._begin(this_pass, saved)
        self._loop.pass_begins(self._index)
        size = self.size()
        while True:
            if (self._loop.progress.epochs_completed, self._passes) != (epoch, this_pass):
                raise _not_one_pass(epoch, self._loop.progress.epochs_completed)
            self._loop.batch_done(self._index, whole_pass=self._position == size)
            try:
                batch = next(batches)
            except StopIteration:
                arrived_at_end = saved is not None and (this_pass, self._position) == (
                    saved["passes"],
                    saved["position"],
                )
                if not (arrived_at_end and self._over_again()):
                    break
                this_pass = self._passes = this_pass + 1
                batches = self._begin(this_pass, saved)
                self._loop.pass_begins(self._index)
                continue
            except RuntimeError:
                # SIGTERM to the whole process group ends torch's workers too.
                self._loop.leave_if_noticed()
                raise
            if held:
                _refuse_held_iterators(self._source.iterated, held)
                held = {}
            self._source.given(batch)
            self._position += 1
            self._loop.batch_given(self._index)
            yield batch
        self._loop.pass_ends(self._index)
        return None

    @property
    def start(self) -> int:
        """Number of the first batch of the next pass, for `enumerate(loader, loader.start)`."""
        self._loop.start_is_asked()
        saved = self._loop.progress.saved(self._index)
        return saved["position"] if saved is not None and self._passes + 1 == saved["passes"] else 0

    def size(self) -> int | None:
        """Give the number of batches of a pass. None for an uncertain number."""
        return self._source.size()

    def state_dict(self) -> dict[str, Any]:
        """Give the place of this loader, and its order."""
        in_pass = self._position > 0
        if in_pass and self._source.loads_again and not self._cost_is_said:
            self._cost_is_said = True
            _logger.info(
                "the %s cannot begin in its middle: a resume loads the batches that the interrupted pass has given "
                "(%d now) again, and passes them over",
                self._source.name,
                self._position,
            )
        return {
            "passes": self._passes,
            "passes_before": self._passes_before,
            "position": self._position,
            "size": self.size(),
            "division": vars(self._source.division()),
            "start": vars(self._start) if in_pass else None,
            "source": self._source.state_dict(in_pass=in_pass),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Get ready to go back to the position of `state_dict`. The passes of the epoch are counted again."""
        self._passes_before = saved["passes_before"]
        if not saved["position"] and "ranks" not in saved:
            self._source.memory.put_back(saved["source"]["memory"])

    def among_ranks(self, saved: dict[str, Any]) -> dict[str, Any]:
        """Give a saved place as that of this rank, where another number of ranks was there."""
        ranks = saved.get("ranks")
        if ranks is None:
            return saved
        size, world_size, rank = self.size(), ranks["world_size"], ranks["rank"]
        place = new_place(
            saved_place(ranks["loaders"]),
            name=self._source.name,
            rank=rank,
            world_size=world_size,
            size=size,
            division=self._source.division(),
            batches_per_step=self._loop.batches_per_step,
        )
        remarks = list(place.remarks)
        if size is not None and place.position < size and self._source.division().rule == OWN:
            remarks.append(remark_on_own_data(len(ranks["loaders"]), world_size))
        for remark in remarks if rank == 0 else ():
            _logger.warning("%s, from here on %d ranks: %s", self._source.name, world_size, remark)
        source = {
            **saved["source"],
            "sampler": None,  # each rank passes over its batches, and compares them
            "digest": place.digest,
            "as_of": place.as_of,
            "ranks": f" on {world_size} ranks in place of {len(ranks['loaders'])}",
        }
        if place.digest is None:
            source.update(asked=place.position, ended=False)
        return {**saved, "position": place.position, "size": size, "source": source}

    def end_epoch(self) -> None:
        """Count the passes of the next epoch from zero."""
        saved = self._loop.progress.saved(self._index)
        # A pass that was over for the script, though not for the loader (zip), is not begun again.
        self._passes_before += max(self._passes, 0 if saved is None else saved["passes"])
        self._passes = self._position = 0

    def _begin(self, this_pass: int, saved: dict[str, Any] | None) -> Iterator[Any]:
        if saved is not None and this_pass == saved["passes"] and saved["start"] is not None:
            return self._begin_again(saved)
        self._start = PassStart(number=self._passes_before + this_pass - 1, made_in=self._start.made_in)
        self._position = 0
        return self._source.begin(self._start)

    def _over_again(self) -> bool:
        """Say whether a pass that was over is asked for once more for the same batch of another loader.

        There a script makes `iter(loader)` anew when one has ended, and wants a batch.
        """
        before, self._over_at = self._over_at, self._loop.time_in_batch
        return before is not None and before == self._over_at

    def _begin_again(self, saved: dict[str, Any]) -> Iterator[Any]:
        if saved["size"] != self.size():
            raise UsageError(
                f"the checkpoint was made in the middle of a loader with {saved['size']} batches, and this one has "
                f"{self.size()}; keep the data and the batch size of the run"
            )
        self._start = PassStart(**saved["start"])
        self._position = saved["position"]
        batches = self._source.begin_at(self._start, self._position, saved["source"])
        self._loop.arrived(self._index, self._position, whole_pass=self._position == self.size())
        return batches

    def _refuse_cycle(self) -> None:
        """Check once that `itertools.cycle` does not iterate over this loader. It gives copies that are not seen here.

        Raises:
            UsageError: It does.
        """
        if self._cycle_is_sought:
            self._cycle_is_sought = False
            if any(isinstance(holder, cycle) for holder in gc.get_referrers(self._newest())):
                raise UsageError(
                    "itertools.cycle goes over a resumable loader: it keeps the batches and gives them again by "
                    "itself, which a resume cannot; make iter(loader) anew when it ends, as in "
                    "`except StopIteration: batches = iter(loader)`"
                )


def _not_one_pass(began: int, now: int) -> UsageError:
    if began == now:
        return UsageError(
            "an iterator of a resumable loader was asked for a batch after a newer one was made: one pass at a time "
            "can be taken up; pass the batches to training.loader once for each pass that goes on beside another"
        )
    return UsageError(
        f"an iterator of a resumable loader, iter(loader), was made in epoch {began} and is asked for a batch in "
        f"epoch {now}; a pass belongs to one epoch. Make iter(loader) anew at the beginning of each epoch, or let an "
        "epoch be one pass: `for batch in loader`"
    )


def _nested() -> UsageError:
    return UsageError(
        "a resumable loader is gone through inside the loop over another one, so a resume could not find its place; go "
        "over both at the same time (zip, or iter(loader) before the loop and next in it), or pass only one of them to "
        "training.loader"
    )


def _held_iterators(batches: Any) -> dict[str, int]:
    """Give the iterators in an object's attributes, by their identity."""
    of_torch = getattr(loaded("torch.utils.data.dataloader"), "_BaseDataLoaderIter", GeneratorType)
    return {
        name: id(value)
        for name, value in getattr(batches, "__dict__", {}).items()
        if isinstance(value, (GeneratorType, of_torch)) and name != "_iterator"
    }


def _refuse_held_iterators(batches: Any, held: Mapping[str, int]) -> None:
    """Refuse batches that come from an iterator that was there before the pass.

    Raises:
        UsageError: Naming it.
    """
    kept = sorted(held.items() & _held_iterators(batches).items())
    if kept:
        raise UsageError(
            f"{type(batches).__name__} keeps one iterator over all passes ({kept[0][0]}), so no pass can be begun "
            "again; make it anew in __iter__, or pass a DataLoader with persistent_workers=True, whose workers start "
            "once too"
        )


class _Loop:
    """Counts steps and epochs, and saves between them."""

    def __init__(
        self, checkpointer: Checkpointer, progress: _Progress, *, state: Mapping[str, Any], batches_per_step: int
    ) -> None:
        self.progress = progress
        self._state = state
        self.running = False
        self._checkpointer = checkpointer
        self.batches_per_step = batches_per_step
        self._batches_in_step = 0
        self._order = _OrderOfPasses()
        self._total_epochs: int | None = None
        self._done_before = 0  # the epochs that this object has gone through to their end
        self._thread = 0
        self._first_batches: list[tuple[int, bool]] = []  # the loaders, and whether an optimizer used the batch
        self._replayed_start: ReplayedStart | None = None

    def epochs(self, values: Iterable[Any]) -> Iterator[Any]:
        self._total_epochs = len(values) if isinstance(values, Sized) else None
        if self._total_epochs is not None and 0 < self._total_epochs <= self._done_before:
            raise UsageError(
                f"this training has gone through {self._done_before} epochs already, and a loop over "
                f"{self._total_epochs} has none left: the epochs are those of the whole training. For more of it, pass "
                f"all of them, epochs({self._done_before + self._total_epochs}); for another training, make a "
                'ResumableTraining with a name of its own (name="fold-2")'
            )
        lasting_loaders = len(self.progress.loaders)
        self.leave_if_noticed()
        self._checkpointer.count_epochs(self.progress.epochs_completed)
        self.running, self._thread = True, threading.get_ident()
        try:
            for index, value in enumerate(values):
                if index >= self.progress.epochs_completed:
                    if self.progress.active is None and self._checkpointer.interrupted:
                        self._checkpointer.leave()
                    self._begin_epoch()
                    yield value
                    self._end_epoch(lasting_loaders)
            self._done_before = self._total_epochs or 0
            self._checkpointer.save_if_due(last=True)
        finally:
            self.running = False

    @property
    def time_in_batch(self) -> int | None:
        """Time of the batch that the script works on, counted in passes and batches. None while it works on none."""
        return self._order.time_in_batch

    def pass_begins(self, loader_index: int) -> None:
        """Take note that a pass begins.

        Raises:
            UsageError: If it is one of several in the steps of another loop.
        """
        self._order.pass_begins(loader_index)

    def pass_ends(self, loader_index: int) -> None:
        """Take note that a pass ends."""
        self._order.pass_ends(loader_index)

    def require_own_thread(self) -> None:
        """Refuse a pass in another thread than that of the epochs. It asks for batches while the training does steps.

        Raises:
            UsageError: If this is one.
        """
        if threading.get_ident() != self._thread:
            raise UsageError(
                "a resumable loader is gone through in another thread than the loop over the epochs. A batch is done "
                "when the script asks for the next one, so a thread that fetches batches ahead would save in the "
                "middle of a step. Pass what fetches ahead to training.loader, and not the loader inside of it, or let "
                "workers fetch ahead (num_workers, prefetch_factor)"
            )

    def require_common_steps(self) -> None:
        self._checkpointer.require_common_steps()

    def batch_given(self, loader_index: int) -> None:
        self.progress.open_gradients.begin_batch()
        self._order.batch_given(loader_index)

    def batch_done(self, loader_index: int, *, whole_pass: bool) -> None:
        """Take note that a loader is asked for more.

        Its last batch is done, and so are the last batches of other loaders.

        Raises:
            UsageError: The script went through another loader since the last request.
        """
        if not self._order.batch_done(loader_index):
            return
        self._warn_if_ahead(loader_index)
        self._batches_in_step += 1
        if self._batches_in_step < self.batches_per_step and not whole_pass:
            return
        self._complete_step()
        self.progress.active = loader_index
        # What follows the last batch may belong to it, so that is waited for, unless there is no time.
        if (not whole_pass or self._checkpointer.noticed) and self._checkpointer.save_if_due():
            self._checkpointer.leave()

    def start_is_asked(self) -> None:
        """Take note that the script knows the batch that a pass begins at."""
        self._order.start_is_known = True

    def arrived(self, loader_index: int, position: int, *, whole_pass: bool) -> None:
        """Take note that a loader is back where it was when the state was saved."""
        self._order.began_late_by = max(self._order.began_late_by, position)
        if self._replayed_start is not None and self.progress.active == loader_index:
            if not whole_pass and self._checkpointer.interrupted:
                self._checkpointer.leave()
            self._replayed_start.is_over()
            self._replayed_start = None

    def leave_if_noticed(self) -> None:
        if self._checkpointer.noticed:
            self._checkpointer.leave()

    def _warn_if_ahead(self, loader_index: int) -> None:
        """Warn of a script that asks for a batch before it uses the one before, as a prefetcher does."""
        if len(self._first_batches) == 2:
            return
        self._first_batches.append((loader_index, self.progress.open_gradients.may_have_used_batch()))
        if self._first_batches == [(loader_index, False), (loader_index, True)]:
            _logger.warning(
                "the script asked for the second batch before an optimizer had used the first one. A batch is done "
                "when the script asks for the next one, so what fetches ahead between the resumable loader and the "
                "loop makes a resume leave out a batch: pass the whole of it, as in "
                "training.loader(Prefetcher(loader)). Where the script only skips that batch, nothing is wrong"
            )

    def _begin_epoch(self) -> None:
        if self.progress.active is None:
            self.progress.epoch_random = capture_random_states()
        else:
            # The epoch begins as it did, and goes on as it was once its loaders are back where they were.
            self._replayed_start = ReplayedStart(self._state)
            restore_random_states(self.progress.epoch_random)

    def _end_epoch(self, lasting_loaders: int) -> None:
        self._require_active_loader()
        if self._order.works_on_batches or self._batches_in_step:  # the loop was left early
            self._complete_step()
            self._order.warn_of_batches_too_many()
        self._order = _OrderOfPasses()
        self.progress.end_epoch(lasting_loaders)
        self._checkpointer.count_epochs(self.progress.epochs_completed)
        last = self.progress.epochs_completed == self._total_epochs
        if not last and self._checkpointer.save_if_due():
            self._checkpointer.leave()

    def _require_active_loader(self) -> None:
        if self._replayed_start is not None:
            raise UsageError(
                "the checkpoint was made in the middle of an epoch, in a loop over a loader that this script did not "
                "come to; iterate over the same loaders in the same order as the run that saved it"
            )

    def _complete_step(self) -> None:
        self._require_active_loader()
        self._order.batches_are_done()
        self._batches_in_step = 0
        self._checkpointer.complete_step(total_steps=self._total_steps())

    def _total_steps(self) -> int | None:
        loaders = self.progress.loaders
        size = loaders[0].size() if len(loaders) == 1 else None
        if size is None or self._total_epochs is None:
            return None
        return self._total_epochs * -(-size // self.batches_per_step)


class _OrderOfPasses:
    """The order in which passes began and batches were given, in one epoch. It finds loops inside of loops.

    Attributes:
        began_late_by: The number of batches after which an epoch goes on in its middle.
        start_is_known: The script asked for that number.
    """

    def __init__(self) -> None:
        self.began_late_by = 0
        self.start_is_known = False
        self._ended_last = False  # a pass, after the last batch of any loader
        self._in_use: set[int] = set()  # the loaders whose batches the script is working on
        self._time = 0  # counts passes that began and batches that were given
        self._began_at: dict[int, int] = {}  # by loader, while its pass is open
        self._given_at: dict[int, int] = {}
        self._went_around: set[int] = set()

    @property
    def works_on_batches(self) -> bool:
        """True while the script works on batches."""
        return bool(self._in_use)

    @property
    def time_in_batch(self) -> int | None:
        """Time of the newest batch that the script works on. None while it works on none."""
        return max(self._given_at.values(), default=None) if self._in_use else None

    def pass_begins(self, loader: int) -> None:
        """Note the begin of a pass.

        Raises:
            UsageError: If it is one of several in the steps of another loop.
        """
        before = self._began_at.get(loader)  # of a pass that was left before its end
        if before is not None and any(
            self._began_at[other] < before < given for other, given in self._given_at.items() if other != loader
        ):
            raise _nested()
        self._time += 1
        self._began_at[loader] = self._time
        self._given_at.pop(loader, None)
        self._went_around.discard(loader)

    def pass_ends(self, loader: int) -> None:
        """Note the end of a pass. A pass goes around this one if its batch was given before this one began."""
        self._ended_last = True
        began, given = self._began_at.pop(loader), self._given_at.pop(loader, None)
        if given is not None:
            self._went_around.update(other for other, its in self._given_at.items() if its < began)

    def batch_given(self, loader: int) -> None:
        """Note a batch that the script works on from now on."""
        self._in_use.add(loader)
        self._ended_last = False
        self._time += 1
        self._given_at[loader] = self._time

    def batch_done(self, loader: int) -> bool:
        """Note that a loader is asked for more. Gives true if its last batch, and those of others, are done now.

        Raises:
            UsageError: If another loader was gone through since it was asked before.
        """
        if loader in self._went_around:
            raise _nested()
        done = loader in self._in_use
        if done:
            self._in_use.clear()
        return done

    def warn_of_batches_too_many(self) -> None:
        """Name in the log a loop that was left early in an epoch that went on in its middle, if it may count anew."""
        if self.began_late_by and not self.start_is_known and not self._ended_last:
            _logger.warning(
                "this epoch went on after batch %d, and its loop was left before the end of the loader. If the loop "
                "counts its batches, it began at 0 again, and the epoch had %d batches too many: count from "
                "loader.start, as in enumerate(loader, loader.start)",
                *(self.began_late_by, self.began_late_by),
            )

    def batches_are_done(self) -> None:
        """Note that the script works on no batch."""
        self._in_use.clear()


class _Progress(TakesEffectLater):
    """The positions of the loops, as a part of the state.

    Attributes:
        epochs_completed: The number of completed epochs.
        epoch_random: The random states at the beginning of the current epoch.
        open_gradients: Gradients that are added up over an epoch's end, or without `batches_per_step`.
        active: The loader that was asked for a batch at the last step of the current epoch. None before.
        loaders: The loaders, those of the current epoch last.
    """

    def __init__(self, open_gradients: OpenGradients) -> None:
        self.open_gradients = open_gradients
        self.epochs_completed = 0
        self.epoch_random: dict[str, Any] = {}
        self.active: int | None = None
        self.loaders: list[ResumableLoader] = []
        self._saved: list[dict[str, Any]] = []

    def add(self, loader: ResumableLoader) -> int:
        """Take a loader in. Gives its number."""
        index = len(self.loaders)
        self.loaders.append(loader)
        saved = self.saved(index)
        if saved is not None:
            self._saved[index] = loader.among_ranks(saved)
            loader.load_state_dict(self._saved[index])
        return index

    def saved(self, loader_index: int) -> dict[str, Any] | None:
        """Give where a loader was, in the epoch that is gone on with."""
        return self._saved[loader_index] if loader_index < len(self._saved) else None

    def end_epoch(self, lasting_loaders: int) -> None:
        """Count the epoch, and forget the loaders that were made in it."""
        self.epochs_completed += 1
        self.active = None
        del self.loaders[lasting_loaders:]
        for loader in self.loaders:
            loader.end_epoch()
        self._saved = []

    def state_dict(self) -> dict[str, Any]:
        return {
            "epochs_completed": self.epochs_completed,
            "epoch_random": self.epoch_random,
            "active": self.active,
            "loaders": [loader.state_dict() for loader in self.loaders],
            "open_gradients": self.open_gradients.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epochs_completed = state["epochs_completed"]
        self.epoch_random = state["epoch_random"]
        self.active = state["active"]
        self.open_gradients.load_state_dict(state["open_gradients"])
        self._saved = state["loaders"]
        for index, loader in enumerate(self.loaders[: len(self._saved)]):
            self._saved[index] = loader.among_ranks(self._saved[index])
            loader.load_state_dict(self._saved[index])

    def load_rank_states(self, states: Sequence[dict[str, Any]], *, rank: int, world_size: int) -> None:
        """Go back to the place of another number of ranks. It is counted in the samples of all of them.

        Args:
            states: The state of each rank.
            rank: The number of this rank.
            world_size: The number of ranks now.

        Raises:
            ValueError: The ranks were at different places, or gradients were added up for a step that was not done.
        """
        places = [(state["epochs_completed"], state["active"], _passes(state)) for state in states]
        if any(place != places[0] for place in places):
            raise ValueError("the ranks were in different passes over the data")
        if any(gradients for state in states for gradients in state["open_gradients"]["optimizers"]):
            raise ValueError(
                "each rank had added up gradients for a step that was not done, which belong to its samples: let saves "
                "come between the steps of the optimizer (batches_per_step)"
            )
        state = state_of_rank(states, rank=rank)
        loaders = []
        for index, saved in enumerate(state["loaders"]):
            of_all = [one["loaders"][index] for one in states]
            ranks = {"loaders": of_all, "rank": rank, "world_size": world_size}
            loaders.append({**saved, "ranks": ranks} if any(one["position"] for one in of_all) else saved)
        self.load_state_dict({**state, "loaders": loaders})


def _passes(state: Mapping[str, Any]) -> list[tuple[int, int]]:
    return [(loader["passes"], loader["passes_before"]) for loader in state["loaders"]]


def _frame_of_loop(frame: FrameType) -> FrameType:
    """Give the frame that goes through epochs, where a progress bar may stand between."""
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _PROGRESS_BARS:
        frame = frame.f_back
    return frame


def _has_an_error(frame: FrameType) -> bool:
    """Say whether an error may leave a frame. It has a traceback there before it leaves a loop."""
    return any(isinstance(one, TracebackType) and one.tb_frame is frame for one in gc.get_referrers(frame))


def _described(batches: Iterable[Any]) -> dict[str, Any]:
    """Describe the data of a loader by its sizes."""
    data = getattr(batches, "dataset", None)
    described = {"kind": type(batches).__name__, "batch_size": getattr(batches, "batch_size", None)}
    inner: Any = getattr(batches, "base_dataloader", batches)
    if type(inner).__module__.startswith("torchdata."):
        # Its sampler draws an order when it is asked for one, which is twice with workers, and the second one counts.
        described["has workers"] = getattr(inner, "num_workers", 0) > 0
    drawn = _drawn_by_all_ranks(batches)
    # A rank's number of batches follows from the number of ranks, which may change.
    for name, sized in (("batches", batches) if drawn is None else ("samples drawn", drawn), ("samples", data)):
        # A loader without a length has the method all the same.
        with contextlib.suppress(TypeError, NotImplementedError):
            described[name] = len(sized)  # type: ignore[arg-type]
    if isinstance(tensors := getattr(data, "tensors", None), tuple):
        described["content"] = [array_text(tensor) for tensor in tensors]
    return described


def _drawn_by_all_ranks(batches: Iterable[Any]) -> Any:
    """Give what has as many samples as all ranks draw in a pass. None where the loader has no sampler of samples."""
    sampler = getattr(batches, "batch_sampler", None)
    found = getattr(batches, "sampler", None) if sampler is None else _inside(sampler)
    for _ in range(_MOST_SAMPLERS):
        inner = _inside(found)
        if inner is None:
            break
        found = inner
    # A DistributedSampler draws the samples of one rank.
    return getattr(found, "dataset", found) if hasattr(found, "num_replicas") else found


def _inside(sampler: Any) -> Any:
    """Give the sampler that another one wraps. accelerate wraps one of batches. None for none."""
    inner = getattr(sampler, "batch_sampler", None)
    return getattr(sampler, "sampler", None) if inner is None else inner


def _batch_source(batches: Iterable[Any], state: Sequence[Any]) -> BatchSource:
    """Choose how passes over these batches are taken up in their middle.

    Raises:
        UsageError: If they cannot be.
    """
    if isinstance(batches, Iterator):
        raise UsageError(
            f"a {type(batches).__name__} gives its batches only once, so an epoch cannot be taken up in its middle; "
            "pass something that can be iterated over again: a list, a DataLoader, an object with __iter__"
        )
    if loaded("torch.utils.data") is not None:
        from .torch_batches import is_loader, torch_batches

        if is_loader(batches):
            return torch_batches(batches, state)
    name = "list of batches" if type(batches) is list else type(batches).__name__
    memory = OrderMemory({"batches": batches}, state)
    return PlainBatches(batches, draws=not isinstance(batches, Sequence), memory=memory, name=name)
