"""A loop over epochs and batches that an interruption cannot undo: what most PyTorch scripts need, in four lines.

The script keeps its loops. What it iterates over counts: when the next batch is asked for, the one before is done, and
that is the moment to save, or to leave on a notice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

from spotkeep.checkpointer import Checkpointer
from spotkeep.errors import UsageError
from spotkeep.loaded import loaded
from spotkeep.state.random_states import RandomStates, capture_random_states, restore_random_states

from .batch_passes import BatchSource, PassStart, PlainBatches

_RANDOM = "random states"
_LOOP = "loop"


class ResumableTraining:
    """Takes a training up where it was interrupted: the epoch, the batch in it, and every random number after it.

    ```python
    training = ResumableTraining({"model": model, "optimizer": optimizer, "scheduler": scheduler}, every_seconds=60)
    train_loader = training.loader(train_loader)
    for epoch in training.epochs(10):
        for inputs, labels in train_loader:
            train_one_batch(inputs, labels)
        scheduler.step()
        validate()
    ```

    The global random states of Python, NumPy and torch are saved too. An epoch that was interrupted is entered again
    and its loaders go on with the batches that are left. What stands around the inner loop belongs to the epoch: what
    stands before it runs again, with the random numbers it had; what stands after it runs once more when the
    interruption came after the last batch and before the epoch's end, with the state as it was after that batch. So
    change the state before the inner loop only in ways that can be done twice (`sampler.set_epoch(epoch)` can).

    Args:
        state: As for `Checkpointer`. The names "random states" and "loop" are taken.
        per_rank: As for `Checkpointer`; the random states and the place in the loops are added to it.
        batches_per_step: Batches whose gradients are added up for one step of the optimizer. Nothing is saved between
            them, because gradients are not part of the state.
        **options: As for `Checkpointer`: `directory`, `every_steps`, `every_seconds`, `keep_last` and so on.

    Raises:
        UsageError: If an argument makes no sense.
    """

    def __init__(
        self,
        state: Mapping[str, Any],
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
        progress = _Progress()
        # Every rank has random numbers and a place in the data of its own.
        own.update({_RANDOM: RandomStates(), _LOOP: progress})
        self._checkpointer = Checkpointer(state, per_rank=own, **options)
        self._loop = _Loop(self._checkpointer, progress, batches_per_step=batches_per_step)

    @property
    def checkpointer(self) -> Checkpointer:
        """What saves: its `step`, `durable_step`, `directory`, `interrupted`."""
        return self._checkpointer

    def log(self, **metrics: float) -> None:
        """Note metrics of the current step; they go out with the next progress event."""
        self._checkpointer.log(**metrics)

    def loader(self, batches: Iterable[Any]) -> ResumableLoader:
        """Give what to iterate over instead of these batches.

        Called inside an epoch, it holds for that epoch.

        Args:
            batches: A DataLoader, a list, or anything else that gives its batches again when it is iterated over again.

        Raises:
            UsageError: If it gives its batches only once, or never again in the same order.
        """
        return ResumableLoader(batches, self._loop)

    def epochs(self, epochs: int | Iterable[Any]) -> Iterator[Any]:
        """Go through the epochs that are left, the first of them from the batch where it was interrupted.

        Restores the newest good checkpoint first. Saves when due, at the end, and on a notice.

        Args:
            epochs: Their number, or what to give for each of them, for example `range(1, 11)`.

        Raises:
            UsageError: If the loops are not those the checkpoint was made in.
            SystemExit: With code 75, after a notice; with 0, after the step to pause at.
        """
        values = range(epochs) if isinstance(epochs, int) else epochs
        with self._checkpointer:
            yield from self._loop.epochs(values)


class ResumableLoader:
    """What a script iterates over instead of its loader. `len` and the loader's attributes are the loader's."""

    def __init__(self, batches: Iterable[Any], loop: _Loop) -> None:
        self._batches = batches
        self._source: BatchSource = _batch_source(batches)
        self._loop = loop
        self._passes = 0  # begun in this epoch
        self._passes_before = 0  # in the epochs before
        self._position = 0  # batches given in the last pass
        self._start = PassStart(number=0)
        self._index = loop.progress.add(self)

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "_batches":
            raise AttributeError(name)
        return getattr(self._batches, name)

    def __iter__(self) -> Iterator[Any]:
        if not self._loop.running:
            raise UsageError("a resumable loader gives batches only inside `for epoch in training.epochs(...)`")
        self._loop.begin_pass()
        saved = self._loop.progress.saved(self._index)
        self._passes += 1
        if saved is not None and self._passes < saved["passes"]:
            return  # this pass was over
        if saved is not None and self._passes == saved["passes"] and saved["position"]:
            batches = self._begin_again(saved)
        else:
            self._start = PassStart(number=self._passes_before + self._passes - 1)
            self._position = 0
            batches = self._source.begin(self._start)
        size = self.size()
        while True:
            self._loop.batch_done(self._index, whole_pass=self._position == size)
            try:
                batch = next(batches)
            except StopIteration:
                break
            except RuntimeError:
                # SIGTERM to the whole process group ends torch's workers too.
                self._loop.leave_if_noticed()
                raise
            self._position += 1
            self._loop.batch_given(self._index)
            yield batch

    @property
    def start(self) -> int:
        """The number of the first batch that the next pass gives: `enumerate(loader, loader.start)`."""
        saved = self._loop.progress.saved(self._index)
        return saved["position"] if saved is not None and self._passes + 1 == saved["passes"] else 0

    def size(self) -> int | None:
        """Return batches of a pass; None when that is not known for sure."""
        return self._source.size()

    def state_dict(self) -> dict[str, Any]:
        """Give where this loader is."""
        return {
            "passes": self._passes,
            "passes_before": self._passes_before,
            "position": self._position,
            "size": self.size(),
            "start": vars(self._start) if self._position else None,
            "generators": self._source.generator_states(),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Get ready to go back to where `state_dict` was given: the passes of the epoch are counted again."""
        self._passes_before = saved["passes_before"]
        self._source.set_generator_states(saved["generators"])

    def end_epoch(self) -> None:
        """Count the passes of the next epoch from zero."""
        saved = self._loop.progress.saved(self._index)
        # A pass that was over for the script, though not for the loader (zip), is not begun again.
        self._passes_before += max(self._passes, 0 if saved is None else saved["passes"])
        self._passes = self._position = 0

    def _begin_again(self, saved: dict[str, Any]) -> Iterator[Any]:
        if saved["size"] != self.size():
            raise UsageError(
                f"the checkpoint was made in the middle of a loader with {saved['size']} batches, and this one has "
                f"{self.size()}; keep the data and the batch size of the run"
            )
        self._start = PassStart(**saved["start"])
        self._position = saved["position"]
        batches = self._source.begin_at(self._start, self._position)
        self._loop.arrived(self._index, whole_pass=self._position == self.size())
        return batches


class _Loop:
    """Counts steps and epochs, and saves between them."""

    def __init__(self, checkpointer: Checkpointer, progress: _Progress, *, batches_per_step: int) -> None:
        self.progress = progress
        self.running = False
        self._checkpointer = checkpointer
        self._batches_per_step = batches_per_step
        self._batches_in_step = 0
        self._in_use: set[int] = set()  # the loaders whose batches the script is working on
        self._total_epochs: int | None = None
        self._after_replay: dict[str, Any] | None = None

    def epochs(self, values: Iterable[Any]) -> Iterator[Any]:
        self._total_epochs = len(values) if isinstance(values, Sized) else None
        lasting_loaders = len(self.progress.loaders)
        self.leave_if_noticed()
        self.running = True
        try:
            for index, value in enumerate(values):
                if index >= self.progress.epochs_completed:
                    if self.progress.active is None and self._checkpointer.interrupted:
                        self._checkpointer.leave()
                    self._begin_epoch()
                    yield value
                    self._end_epoch(lasting_loaders)
            self._checkpointer.save_if_due(last=True)
        finally:
            self.running = False

    def begin_pass(self) -> None:
        self._checkpointer.require_common_steps()

    def batch_given(self, loader_index: int) -> None:
        self._in_use.add(loader_index)

    def batch_done(self, loader_index: int, *, whole_pass: bool) -> None:
        """Take note that a loader is asked for more: what it had given is done, and with it what others have given."""
        if loader_index not in self._in_use:
            return
        self._in_use.clear()
        self._batches_in_step += 1
        if self._batches_in_step < self._batches_per_step and not whole_pass:
            return
        self._complete_step()
        self.progress.active = loader_index
        # What follows the last batch may belong to it, so that is waited for, unless there is no time.
        if (not whole_pass or self._checkpointer.noticed) and self._checkpointer.save_if_due():
            self._checkpointer.leave()

    def arrived(self, loader_index: int, *, whole_pass: bool) -> None:
        """Take note that a loader is back where it was when the state was saved."""
        if self._after_replay is not None and self.progress.active == loader_index:
            if not whole_pass and self._checkpointer.interrupted:
                self._checkpointer.leave()
            restore_random_states(self._after_replay)
            self._after_replay = None

    def leave_if_noticed(self) -> None:
        if self._checkpointer.noticed:
            self._checkpointer.leave()

    def _begin_epoch(self) -> None:
        if self.progress.active is None:
            self.progress.epoch_random = capture_random_states()
        else:
            # The epoch begins as it did, and goes on as it was once its loaders are back where they were.
            self._after_replay = capture_random_states()
            restore_random_states(self.progress.epoch_random)

    def _end_epoch(self, lasting_loaders: int) -> None:
        if self._after_replay is not None:
            raise UsageError(
                "the checkpoint was made in the middle of an epoch, in a loop over a loader that this script did not "
                "come to; iterate over the same loaders in the same order as the run that saved it"
            )
        if self._in_use or self._batches_in_step:  # the loop was left early
            self._complete_step()
        self.progress.end_epoch(lasting_loaders)
        last = self.progress.epochs_completed == self._total_epochs
        if not last and self._checkpointer.save_if_due():
            self._checkpointer.leave()

    def _complete_step(self) -> None:
        self._in_use.clear()
        self._batches_in_step = 0
        self._checkpointer.complete_step(total_steps=self._total_steps())

    def _total_steps(self) -> int | None:
        loaders = self.progress.loaders
        size = loaders[0].size() if len(loaders) == 1 else None
        if size is None or self._total_epochs is None:
            return None
        return self._total_epochs * -(-size // self._batches_per_step)


class _Progress:
    """Where the loops are, as a part of the state.

    Attributes:
        epochs_completed: How many epochs are done.
        epoch_random: The random states at the beginning of the current epoch.
        active: The loader that was asked for a batch when a step of the current epoch was last done; None before.
        loaders: The loaders, those of the current epoch last.
    """

    def __init__(self) -> None:
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
            loader.load_state_dict(saved)
        return index

    def saved(self, loader_index: int) -> dict[str, Any] | None:
        """Give where a loader was, in the epoch that is gone on with."""
        return self._saved[loader_index] if loader_index < len(self._saved) else None

    def end_epoch(self, lasting_loaders: int) -> None:
        """Count the epoch; forget the loaders that were made in it."""
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
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epochs_completed = state["epochs_completed"]
        self.epoch_random = state["epoch_random"]
        self.active = state["active"]
        self._saved = state["loaders"]
        for loader, saved in zip(self.loaders, self._saved):
            loader.load_state_dict(saved)


def _batch_source(batches: Iterable[Any]) -> BatchSource:
    """Choose how passes over these batches are taken up in their middle.

    Raises:
        UsageError: If they cannot be.
    """
    if isinstance(batches, Iterator):
        raise UsageError(
            f"a {type(batches).__name__} gives its batches only once, so an epoch cannot be taken up in its middle; "
            "pass something that can be iterated over again: a list, a DataLoader, an object with __iter__"
        )
    torch_data = loaded("torch.utils.data")
    if torch_data is not None and isinstance(batches, torch_data.DataLoader):
        from .torch_batches import torch_batches

        return torch_batches(batches)
    return PlainBatches(batches, draws=not isinstance(batches, Sequence))
