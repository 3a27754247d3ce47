"""Lightning's Trainer, saved by the `Checkpointer` instead of a file that stops the training while it is written.

What is saved is Lightning's own checkpoint: loops, optimizers, schedules, callbacks, precision. Lightning alone does
not go on with the batch where it was, nor with the random numbers; here the training loaders can begin anywhere, and
what a batch holds follows from the epoch and its number, in whatever process and however early it is loaded.

Lightning makes its process group within `fit`, and reads a checkpoint there soon after. With several processes the
group is therefore made before, by the same calls: all ranks restore together before `fit` asks for what was restored.

The library is published under two names, `lightning.pytorch` and the older `pytorch_lightning`, with classes of its own
under each. Either is enough, and the Trainer may be of either.
"""

from __future__ import annotations

import hashlib
import importlib
import math
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Callable

from spotkeep.checkpointer import Checkpointer
from spotkeep.errors import UsageError
from spotkeep.loops.batch_passes import pass_over
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
    from torch.utils.data import DataLoader, IterableDataset

    from spotkeep.loops.torch_batches import KeyedCollate, KeyedDataset, KeyedIndex, copy_loader, loader_generators

    try:
        from lightning.pytorch import Callback
        from lightning.pytorch.plugins import CheckpointIO
    except ImportError:
        from pytorch_lightning import Callback
        from pytorch_lightning.plugins import CheckpointIO
except ImportError as error:
    raise ImportError(
        "spotkeep.integrations.lightning needs Lightning: install 'lightning>=2.4' or 'pytorch-lightning>=2.4' "
        f"({error})"
    ) from error

_NO_FILE = "spotkeep"
_NAMES = ("lightning.pytorch", "pytorch_lightning")


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

    With several processes (`strategy="ddp"`, started by Lightning or by torchrun) every one of them makes this call.

    Args:
        trainer: A Lightning Trainer, in one process or with DDP in several.
        model: As for `trainer.fit`.
        train_dataloaders: As for `trainer.fit`: a DataLoader, or a list or dictionary of them.
        val_dataloaders: As for `trainer.fit`.
        datamodule: As for `trainer.fit`.
        **options: As for `Checkpointer`: `directory`, `every_steps` (of the optimizer), `every_seconds` and so on.

    Raises:
        UsageError: If the Trainer trains in a way that cannot be resumed here.
        SystemExit: With code 75, after a notice; with 0, after the step to pause at.
    """
    if options.get("allow_world_size_change"):
        raise UsageError(
            "allow_world_size_change is given: each rank of a training of Lightning's keeps its own place, so only as "
            "many ranks can go on; leave it out"
        )
    if trainer.world_size > 1:
        _meet_the_other_ranks(trainer)
    callback = _CheckpointCallback(trainer)
    strategy, signals = trainer.strategy, trainer._signal_connector
    with ExitStack() as stack:
        state = {"lightning": _Part(callback.restore_common, callback.common)}
        own = {"lightning of the rank": _Part(callback.restore_own, callback.own), "random states": RandomStates()}
        checkpointer = stack.enter_context(Checkpointer(state, per_rank=own, **options))
        callback.begin(checkpointer)
        for holder, name, replaced in (
            (strategy, "checkpoint_io", _RestoredCheckpoint(callback, strategy.checkpoint_io)),
            (strategy, "process_dataloader", callback.resumable(strategy.process_dataloader)),
            (signals, "register_signal_handlers", callback.keeping_sigterm(signals.register_signal_handlers)),
        ):
            stack.callback(setattr, holder, name, getattr(holder, name))
            setattr(holder, name, replaced)
        trainer.callbacks.append(callback)
        stack.callback(trainer.callbacks.remove, callback)
        trainer.fit(
            model,
            train_dataloaders=train_dataloaders,
            val_dataloaders=val_dataloaders,
            datamodule=datamodule,
            ckpt_path=None if callback.restored is None else _NO_FILE,
        )
        if callback.restored is not None:  # nothing was left to train, so Lightning has called no hook
            checkpointer.save_if_due(last=True)


def _meet_the_other_ranks(trainer: Any) -> None:
    """Start the other processes, where Lightning does that, and make the process group of all.

    Raises:
        UsageError: If the ranks do not each run the script, or do not each hold the whole model.
    """
    strategy, launcher = trainer.strategy, trainer.strategy.launcher
    ddp, deepspeed = (_class_of_either_name("strategies", name) for name in ("DDPStrategy", "DeepSpeedStrategy"))
    if not isinstance(strategy, ddp) or isinstance(strategy, deepspeed):
        raise UsageError(
            f"this Trainer cannot be resumed by Spotkeep: {type(strategy).__name__} divides the model among its "
            f"{trainer.world_size} processes. Use DDP, or Lightning's ModelCheckpoint and report what it saves with "
            "spotkeep.report_saved"
        )
    if isinstance(launcher, _class_of_either_name("strategies.launchers", "_MultiProcessingLauncher")):
        raise UsageError(
            "this Trainer cannot be resumed by Spotkeep: it starts its processes in the middle of the script. Use "
            'strategy="ddp", which runs the script once more for each of them, or torchrun'
        )
    launcher.launch(lambda: None, trainer=trainer)
    strategy.setup_environment()


def _class_of_either_name(module: str, name: str) -> tuple[Any, ...]:
    """Return a class of Lightning's, once for each of the library's names that is imported here."""
    imported = [package for package in _NAMES if sys.modules.get(package) is not None]
    return tuple(getattr(importlib.import_module(f"{package}.{module}"), name) for package in imported)


class _CheckpointCallback(Callback):
    """Saves when a step and all that belongs to it is done."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._checkpointer = Checkpointer({})
        self._on_sigterm: Any = None
        self._after_restart: dict[str, Any] | None = None
        self._evaluation: dict[str, Any] | None = None
        self._dumped: dict[str, Any] | None = None
        self._buffers: dict[str, Any] = {}  # of this rank, to be restored
        self._common_batches: float = 0  # of an evaluation, that every rank has
        self._epoch = 0
        self._batches = 0  # of this epoch, that are done
        self._began_at = 0  # of them, before this process
        self._seed = 0
        self.restored: dict[str, Any] | None = None

    def begin(self, checkpointer: Checkpointer) -> None:
        """Take note of what was restored."""
        self._checkpointer = checkpointer
        self._on_sigterm = signal.getsignal(signal.SIGTERM)
        if checkpointer.noticed:
            checkpointer.leave()
        if self.restored is not None:
            self._after_restart = capture_random_states()
        else:
            self._seed = self._trainer.strategy.broadcast(int(torch.randint(2**62, ())))

    def resumable(self, process: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Make Lightning's own last touch to each loader give training loaders that can begin at any batch."""
        trainer = self._trainer

        def processed(loader: Any) -> Any:
            if not trainer.training:
                return process(loader)
            if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
                raise UsageError(
                    f"the training data is {type(loader).__name__} over "
                    f"{type(getattr(loader, 'dataset', None)).__name__}; an epoch can be taken up in its middle only "
                    "in a DataLoader over a dataset with indices"
                )
            rank = trainer.global_rank if trainer.world_size > 1 else None
            return _ResumableLoader(process(loader), self._next_pass, rank=rank)

        return processed

    def keeping_sigterm(self, register: Callable[[], None]) -> Callable[[], None]:
        """Make Lightning leave SIGTERM as it is.

        It would leave after the next batch, whether gradients are being added up or an evaluation is due, and on rank 0
        it would broadcast, between whatever the other ranks are doing.
        """

        def registered() -> None:
            register()
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, self._on_sigterm)

        return registered

    def _next_pass(self, size: int, passes_before: int) -> tuple[bytes, int]:
        """Give what the next pass over a loader follows from, and where it begins."""
        epoch = self._trainer.current_epoch
        began_at = self._began_at if epoch == self._epoch else 0
        cycles, position = divmod(began_at, size) if size else (0, 0)
        if passes_before:
            cycles, position = cycles + passes_before, 0
        return hashlib.blake2b(b"%d %d %d" % (self._seed, epoch, cycles), digest_size=16).digest(), position

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.restored = None
        if self._buffers and trainer.world_size > 1:  # DDP has given every rank those of rank 0
            pl_module.load_state_dict(self._buffers, strict=False)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._go_on()
        if batch_idx % trainer.accumulate_grad_batches == 0:
            self._save_and_leave_if_due()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._epoch, self._batches = trainer.current_epoch, batch_idx + 1
        last = self._batches == trainer.num_training_batches
        if last or self._batches % trainer.accumulate_grad_batches == 0:
            total = trainer.estimated_stepping_batches
            self._checkpointer.complete_step(total_steps=total if isinstance(total, int) else None)
        # What the script ends on a notice must not end as if it were done: the script leaves before the next batch all
        # the same. Ranks ask for notices together: here it is one process.
        if trainer.should_stop and trainer.world_size == 1 and self._checkpointer.noticed:
            trainer.should_stop = False

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._go_on()
        if trainer.current_epoch != self._epoch:
            self._epoch, self._batches, self._began_at = trainer.current_epoch, 0, 0

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if trainer.sanity_checking:
            return
        self._go_on()
        done = trainer.fit_loop.epoch_loop.val_loop.batch_progress.total.completed
        self._evaluation = {"completed": done, "random": capture_random_states()}
        self._common_batches = sum(trainer.num_val_batches)
        if trainer.world_size > 1:
            # The ranks ask for notices together, so none may ask at a batch that another does not have.
            known = self._common_batches if math.isfinite(self._common_batches) else 0
            own = torch.tensor(known, device=trainer.strategy.root_device)
            self._common_batches = int(trainer.strategy.reduce(own, reduce_op="min"))

    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if self._evaluation is None:
            return
        self._common_batches -= 1
        if self._common_batches >= 0 and self._checkpointer.noticed:
            # Its beginning is saved, so that it is done again as a whole.
            restore_random_states(self._evaluation["random"])
            self._save_and_leave_if_due()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if self._evaluation is not None:
            self._evaluation = None
            self._log(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._log(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._checkpointer.save_if_due(last=True)

    def _save_and_leave_if_due(self) -> None:
        if self._checkpointer.save_if_due():
            self._checkpointer.leave()

    def _log(self, trainer: Any) -> None:
        metrics = trainer.callback_metrics.items()
        self._checkpointer.log(**{name: float(value) for name, value in metrics if value.numel() == 1})

    def _go_on(self) -> None:
        """Go on with the random numbers of the run, once Lightning has set up what it had."""
        if self._after_restart is not None:
            restore_random_states(self._after_restart)
            self._after_restart = None

    def common(self) -> dict[str, Any]:
        """Give what is the same on all ranks, and large: parameters and what optimizers keep. Asked before `own`."""
        if self._trainer.state.fn is None:  # before `fit` there is nothing yet
            return {}
        self._dumped = self._dump()
        state_dict, parameters = self._dumped["state_dict"], self._parameters()
        return {
            "parameters": {name: value for name, value in state_dict.items() if name in parameters},
            "optimizer_states": self._dumped["optimizer_states"],
        }

    def own(self) -> dict[str, Any]:
        """Give the rest of what Lightning would save, and where the loaders are."""
        if self._trainer.state.fn is None:
            return {}
        dumped, self._dumped = self._dumped or self._dump(), None
        parameters = self._parameters()
        rest = {name: value for name, value in dumped.items() if name != "optimizer_states"}
        rest["state_dict"] = {name: value for name, value in dumped["state_dict"].items() if name not in parameters}
        return {"checkpoint": rest, "epoch": self._epoch, "batches": self._batches, "seed": self._seed}

    def restore_common(self, state: dict[str, Any]) -> None:
        """Take what `common` gave; `fit` gets it when it asks for it. Comes before `restore_own`."""
        self.restored = {"state_dict": state["parameters"], "optimizer_states": state["optimizer_states"]}

    def restore_own(self, state: dict[str, Any]) -> None:
        """Take what `own` gave."""
        common, own = self.restored or {}, state["checkpoint"]
        self._buffers = own["state_dict"]
        self.restored = {**own, **common, "state_dict": {**common["state_dict"], **self._buffers}}
        self._epoch, self._seed = state["epoch"], state["seed"]
        self._batches = self._began_at = state["batches"]

    def _parameters(self) -> set[str]:
        # Tied parameters have several names, and `state_dict` gives all of them.
        return {name for name, _ in self._trainer.lightning_module.named_parameters(remove_duplicate=False)}

    def _dump(self) -> dict[str, Any]:
        dumped = self._trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        _set_between_batches(
            dumped["loops"]["fit_loop"],
            batches_an_epoch=self._trainer.num_training_batches,
            evaluation=self._evaluation,
        )
        return {name: value for name, value in dumped.items() if "hyper_parameters" not in name}


class _Part:
    """A part of what Lightning would save, as a part of the state of the Checkpointer."""

    def __init__(self, restore: Callable[[dict[str, Any]], None], give: Callable[[], dict[str, Any]]) -> None:
        self.load_state_dict = restore
        self.state_dict = give


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


class _RestoredCheckpoint(CheckpointIO):
    """Gives Lightning the checkpoint that was restored; other files are files."""

    def __init__(self, callback: _CheckpointCallback, files: Any) -> None:
        self._callback = callback
        self._files = files

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        self._files.save_checkpoint(checkpoint, path, storage_options)

    def load_checkpoint(self, path: Any, *others: Any, **named: Any) -> Any:
        if str(path).endswith(_NO_FILE):
            return self._callback.restored
        return self._files.load_checkpoint(path, *others, **named)

    def remove_checkpoint(self, path: Any) -> None:
        self._files.remove_checkpoint(path)


class _ResumableLoader:
    """Stands for a training loader. Its random numbers are kept apart from those of the training.

    Args:
        loader: The loader, which gives this rank's part of the data.
        next_pass: Gives what the next pass follows from, on all ranks, and where it begins.
        rank: The rank of this process, if there are others: what is drawn while a batch is loaded is its own.
    """

    def __init__(
        self, loader: Any, next_pass: Callable[[int, int], tuple[bytes, int]], *, rank: int | None = None
    ) -> None:
        self._loader = loader
        self._next_pass = next_pass
        self._generators = loader_generators(loader)
        batched = loader.batch_sampler is not None
        self._order = _KeyedOrder(loader.batch_sampler if batched else loader.sampler, rank=rank)
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
        """Return an empty state: by it Lightning knows that this loader can go on in the middle of an epoch."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the empty state, in which there is nothing to go back to."""


class _KeyedOrder:
    """Stands for a sampler: draws its order from a key, and can begin at any batch."""

    def __init__(self, sampler: Any, *, rank: int | None) -> None:
        self._sampler = sampler
        self._suffix = b"" if rank is None else b" of %d" % rank
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
            yield KeyedIndex(key=b"%s %d%s" % (key, number, self._suffix), index=index)
            number += 1
