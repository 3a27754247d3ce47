"""Lightning's Trainer, saved by the `Checkpointer` instead of a file that stops the training while it is written.

What is saved is Lightning's own checkpoint: loops, optimizers, schedules, callbacks, precision. Lightning alone does
not go on with the batch where it was, nor with the random numbers; here the training loaders can begin anywhere, and
what a batch holds follows from the epoch and its number, in whatever process and however early it is loaded.
"""

from __future__ import annotations

import hashlib
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Callable

from spotkeep.checkpointer import Checkpointer
from spotkeep.errors import UsageError
from spotkeep.loops.batch_passes import pass_over
from spotkeep.notices.notice import EXIT_INTERRUPTED
from spotkeep.state.random_states import (
    RandomLane,
    RandomStates,
    capture_random_states,
    restore_random_states,
    seeded_random_numbers,
    seeded_random_states,
)

try:
    import torch
    from lightning.pytorch import Callback
    from lightning.pytorch.plugins import CheckpointIO
    from lightning.pytorch.utilities.exceptions import SIGTERMException
    from torch.utils.data import DataLoader, IterableDataset

    from spotkeep.loops.torch_batches import KeyedCollate, KeyedDataset, KeyedIndex, copy_loader, loader_generators
except ImportError as error:
    raise ImportError(f"spotkeep.integrations.lightning needs Lightning: install 'lightning>=2.4' ({error})") from error

_NO_FILE = "spotkeep"


def fit_resumably(
    trainer: Any,
    model: Any,
    train_dataloaders: Any = None,
    val_dataloaders: Any = None,
    datamodule: Any = None,
    **options: Any,
) -> None:
    """Call this instead of `trainer.fit(...)`: it goes on where an earlier attempt was interrupted.

    On a notice the state is saved after the current step, or at once while the training is evaluated, and the script
    exits with code 75; the evaluation then begins again. The training is evaluated before a step counts as done.

    Args:
        trainer: A Lightning Trainer in one process.
        model: As for `trainer.fit`.
        train_dataloaders: As for `trainer.fit`: a DataLoader, or a list or dictionary of them.
        val_dataloaders: As for `trainer.fit`.
        datamodule: As for `trainer.fit`.
        **options: As for `Checkpointer`: `directory`, `every_steps` (of the optimizer), `every_seconds` and so on.

    Raises:
        UsageError: If the Trainer trains in a way that cannot be resumed here.
        SystemExit: With code 75, after a notice.
    """
    if trainer.world_size > 1:
        raise UsageError(
            f"this Trainer cannot be resumed by Spotkeep: it trains in {trainer.world_size} processes. Use Lightning's "
            "ModelCheckpoint and report what it saves with spotkeep.report_saved"
        )
    callback = _CheckpointCallback(trainer)
    strategy = trainer.strategy
    with ExitStack() as stack:
        everything = _Everything(callback, trainer)
        checkpointer = Checkpointer({"lightning": everything, "random states": RandomStates()}, **options)
        stack.enter_context(checkpointer)
        callback.begin(checkpointer)
        stack.callback(setattr, strategy, "checkpoint_io", strategy.checkpoint_io)
        strategy.checkpoint_io = _CheckpointInMemory(callback, strategy.checkpoint_io)
        trainer.callbacks.append(callback)
        stack.callback(trainer.callbacks.remove, callback)
        if train_dataloaders is not None:
            train_dataloaders = callback.resumable(train_dataloaders)
        else:
            source = model if datamodule is None else datamodule
            make = source.train_dataloader
            source.train_dataloader = lambda: callback.resumable(make())
            stack.callback(delattr, source, "train_dataloader")
        try:
            trainer.fit(
                model,
                train_dataloaders=train_dataloaders,
                val_dataloaders=val_dataloaders,
                datamodule=datamodule,
                ckpt_path=None if callback.restored is None else _NO_FILE,
            )
        except SIGTERMException:  # it came while Lightning had the signal, before the first batch
            raise SystemExit(EXIT_INTERRUPTED) from None


class _CheckpointCallback(Callback):
    """Saves when a step and all that belongs to it is done."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._checkpointer = Checkpointer({})
        self._on_sigterm: Any = None
        self._after_restart: dict[str, Any] | None = None
        self._evaluation: dict[str, Any] | None = None
        self._epoch = 0
        self._batches = 0  # of this epoch, that are done
        self._began_at = 0  # of them, before this process
        self._seed = 0
        self.restored: dict[str, Any] | None = None
        self.dumped: dict[str, Any] | None = None

    def begin(self, checkpointer: Checkpointer) -> None:
        """Take note of what was restored."""
        self._checkpointer = checkpointer
        self._on_sigterm = signal.getsignal(signal.SIGTERM)
        if checkpointer.interrupted:
            raise SystemExit(EXIT_INTERRUPTED)
        if self.restored is not None:
            self._after_restart = capture_random_states()
        else:
            self._seed = int(torch.randint(2**62, ()))

    def resumable(self, loaders: Any) -> Any:
        """Give loaders that can begin at any batch."""
        if isinstance(loaders, (list, tuple)):
            return type(loaders)(self.resumable(loader) for loader in loaders)
        if isinstance(loaders, Mapping):
            return {name: self.resumable(loader) for name, loader in loaders.items()}
        if not isinstance(loaders, DataLoader) or isinstance(loaders.dataset, IterableDataset):
            raise UsageError(
                f"the training data is {type(loaders).__name__} over "
                f"{type(getattr(loaders, 'dataset', None)).__name__}; an epoch can be taken up in its middle only in a "
                "DataLoader over a dataset with indices"
            )
        return _ResumableLoader(loaders, self._next_pass)

    def _next_pass(self, size: int, passes_before: int) -> tuple[bytes, int]:
        """Give what the next pass over a loader follows from, and where it begins."""
        epoch = self._trainer.current_epoch
        began_at = self._began_at if epoch == self._epoch else 0
        cycles, position = divmod(began_at, size) if size else (0, 0)
        if passes_before:
            cycles, position = cycles + passes_before, 0
        return hashlib.blake2b(b"%d %d %d" % (self._seed, epoch, cycles), digest_size=16).digest(), position

    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        self._keep_sigterm()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._keep_sigterm()
        self.restored = None

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._go_on()
        if batch_idx % trainer.accumulate_grad_batches == 0:
            self._save_if_due()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._epoch, self._batches = trainer.current_epoch, batch_idx + 1
        last = self._batches == trainer.num_training_batches
        if last or self._batches % trainer.accumulate_grad_batches == 0:
            total = trainer.estimated_stepping_batches
            self._checkpointer.complete_step(total_steps=total if isinstance(total, int) else None)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._go_on()
        if trainer.current_epoch != self._epoch:
            self._epoch, self._batches, self._began_at = trainer.current_epoch, 0, 0

    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if trainer.sanity_checking:
            return
        self._go_on()
        if batch_idx == dataloader_idx == 0:
            done = trainer.fit_loop.epoch_loop.val_loop.batch_progress.total.completed
            self._evaluation = {"completed": done, "random": capture_random_states()}
        if self._checkpointer.interrupted:
            # Its beginning is saved, so that it is done again as a whole.
            restore_random_states(self._evaluation["random"] if self._evaluation else {})
            self._save_if_due()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._evaluation = None

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._checkpointer.save_if_due(last=True)

    def _keep_sigterm(self) -> None:
        if threading.current_thread() is threading.main_thread():
            # Lightning has taken the signal to leave after the next batch, whether gradients are being added up or an
            # evaluation is due. It gives it back after `fit`.
            signal.signal(signal.SIGTERM, self._on_sigterm)

    def _save_if_due(self) -> None:
        if self._checkpointer.save_if_due():
            raise SystemExit(EXIT_INTERRUPTED)

    def _go_on(self) -> None:
        """Go on with the random numbers of the run, once Lightning has set up what it had."""
        if self._after_restart is not None:
            restore_random_states(self._after_restart)
            self._after_restart = None

    def dump(self) -> dict[str, Any]:
        """Give everything that Lightning would save, and where the loaders are."""
        self._trainer.save_checkpoint(_NO_FILE)
        dumped, self.dumped = self.dumped, None
        checkpoint = {name: value for name, value in (dumped or {}).items() if "hyper_parameters" not in name}
        _set_between_batches(
            checkpoint["loops"]["fit_loop"],
            batches_an_epoch=self._trainer.num_training_batches,
            evaluation=self._evaluation,
        )
        return {"checkpoint": checkpoint, "epoch": self._epoch, "batches": self._batches, "seed": self._seed}

    def load(self, state: dict[str, Any]) -> None:
        """Take what `dump` gave; `fit` gets it when it asks for it."""
        self.restored = state["checkpoint"]
        self._epoch, self._seed = state["epoch"], state["seed"]
        self._batches = self._began_at = state["batches"]


class _Everything:
    """What Lightning would save, as a part of the state of the Checkpointer."""

    def __init__(self, callback: _CheckpointCallback, trainer: Any) -> None:
        self._callback = callback
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        # Before `fit` there is nothing yet.
        return {} if self._trainer.state.fn is None else self._callback.dump()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._callback.load(state)


def _set_between_batches(loop: dict[str, Any], *, batches_an_epoch: float, evaluation: dict[str, Any] | None) -> None:
    """Make a dump from inside a hook look like one from between two batches, or from before an evaluation."""
    batches = loop["epoch_loop.batch_progress"]
    for counts in (batches["total"], batches["current"]):
        counts["ready"] = counts["started"] = counts["processed"] = counts["completed"]
    batches["is_last_batch"] = batches["current"]["completed"] >= batches_an_epoch
    if evaluation is not None:
        progress, done = loop["epoch_loop.val_loop.batch_progress"], evaluation["completed"]
        progress["total"].update(ready=done + 1, started=done + 1, processed=done, completed=done)
        progress["current"].update(ready=0, started=0, processed=0, completed=0)


class _CheckpointInMemory(CheckpointIO):
    """Gives Lightning the checkpoint that was restored, takes the one that is to be saved; other files are files."""

    def __init__(self, callback: _CheckpointCallback, files: Any) -> None:
        self._callback = callback
        self._files = files

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        if str(path) == _NO_FILE:
            self._callback.dumped = checkpoint
        else:
            self._files.save_checkpoint(checkpoint, path, storage_options)

    def load_checkpoint(self, path: Any, *others: Any, **named: Any) -> Any:
        if str(path).endswith(_NO_FILE):
            return self._callback.restored
        return self._files.load_checkpoint(path, *others, **named)

    def remove_checkpoint(self, path: Any) -> None:
        self._files.remove_checkpoint(path)


class _ResumableLoader:
    """Stands for a training loader. Its random numbers are kept apart from those of the training."""

    def __init__(self, loader: Any, next_pass: Callable[[int, int], tuple[bytes, int]]) -> None:
        self._loader = loader
        self._next_pass = next_pass
        self._generators = loader_generators(loader)
        batched = loader.batch_sampler is not None
        self._order = _KeyedOrder(loader.batch_sampler if batched else loader.sampler)
        self._copy = copy_loader(
            loader,
            **{"batch_sampler" if batched else "sampler": self._order},
            dataset=KeyedDataset(loader.dataset),
            collate_fn=KeyedCollate(loader.dataset, loader.collate_fn, batched=batched),
        )
        self._passes = 0
        self._key = b""

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Any]:
        # Not before the first batch is asked for: Lightning asks for an iterator and leaves it, to see whether it can.
        key, position = self._next_pass(len(self), 0)
        if key == self._key:  # once more in the same epoch: the other loaders are longer
            key, position = self._next_pass(len(self), self._passes)
            self._passes += 1
        else:
            self._key, self._passes = key, 1
        self._order.key, self._order.position = key, position
        with seeded_random_numbers(key):
            for generator in self._generators:
                generator.manual_seed(int.from_bytes(key[:7], "little"))
            batches = iter(self._copy)
        yield from batches

    def state_dict(self) -> dict[str, Any]:
        """Return Nothing: it tells Lightning that this loader can go on in the middle of an epoch."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `state_dict`."""


class _KeyedOrder:
    """Stands for a sampler: draws its order from a key, and can begin at any batch."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self.key = b""
        self.position = 0

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)

    def __iter__(self) -> Iterator[KeyedIndex]:
        key, position = self.key, self.position
        lane = RandomLane(seeded_random_states(key))
        indices = iter(self._sampler)
        with lane:
            pass_over(indices, position)
        number = position
        while True:
            with lane:
                try:
                    index = next(indices)
                except StopIteration:
                    return
            yield KeyedIndex(key=b"%s %d" % (key, number), index=index)
            number += 1
