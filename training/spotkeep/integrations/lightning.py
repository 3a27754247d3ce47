"""Lightning's Trainer, saved by the `Checkpointer`. Lightning's own file would stop the training while it is written.

The state is Lightning's own checkpoint with loops, optimizers, schedules, callbacks and precision. Lightning alone
restores neither the batch in the epoch nor the random numbers. Here the training loaders can begin anywhere. The
content of a batch depends on the epoch and the batch's number alone, in any process and however early it is loaded.

Lightning makes its process group within `fit`. At the moment when it reads a checkpoint, all ranks restore together.
Where the strategy divides the model among the ranks, it has done so by then. The checkpoint goes straight into the
divided tensors.

The library is published under two names, `lightning.pytorch` and the older `pytorch_lightning`, with classes of its own
under each. Either is enough, and the Trainer may be of either.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import logging
import math
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable

from spotkeep.checkpointer import Checkpointer
from spotkeep.errors import UsageError
from spotkeep.state.random_states import (
    RandomStates,
    capture_random_states,
    restore_random_states,
)
from spotkeep.state.restoring import TakesEffectLater
from spotkeep.state.state_dicts import StateDict, put_back_optimizer

from .callback_states import warn_of
from .kept_models import KeptModel, comes_back

try:
    import torch
    from torch.utils.data import DataLoader, IterableDataset

    from .lightning_data import EpochLoader
    from .lightning_measured import logged, metrics, set_measured
    from .lightning_ranks import replicas_of, state_for_rank
    from .sharded import ShardedState

    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback
except ImportError as error:
    raise ImportError(
        "spotkeep.integrations.lightning needs Lightning: install 'lightning>=2.4' or 'pytorch-lightning>=2.4' "
        f"({error})"
    ) from error

_logger = logging.getLogger("spotkeep")

_NO_FILE = "spotkeep"
_NAMES = ("lightning.pytorch", "pytorch_lightning")
_CALLBACKS = (("lightning", "Callback"), ("pytorch_lightning", "Callback"))


def fit_resumably(
    trainer: Any,
    model: Any,
    train_dataloaders: Any = None,
    val_dataloaders: Any = None,
    datamodule: Any = None,
    **options: Any,
) -> None:
    """Call this instead of `trainer.fit(...)`. It goes on where an earlier attempt was interrupted.

    On a notice the state is saved after the current step, or at once during an evaluation. The script then exits with
    code 75, and the next attempt starts the evaluation again. A step counts as done after its evaluation.

    With several processes (`strategy="ddp"`, started by Lightning or by torchrun) every one of them makes this call.

    Args:
        trainer: A Lightning Trainer, in one process or with DDP in several.
        model: As for `trainer.fit`.
        train_dataloaders: As for `trainer.fit`, a DataLoader, or a list or dictionary of them.
        val_dataloaders: As for `trainer.fit`.
        datamodule: As for `trainer.fit`.
        **options: As for `Checkpointer`, such as `directory`, `every_steps` (of the optimizer) and `every_seconds`.

    Raises:
        UsageError: The Trainer trains in a way that cannot be resumed here.
        SystemExit: With code 75 after a notice, and with 0 after the step to pause at.
    """
    if any(isinstance(one, _class_of_either_name("callbacks", "ModelPruning")) for one in trainer.callbacks):
        raise UsageError(
            "ModelPruning is among the callbacks: Lightning saves pruned weights without their masks, so a resumed run "
            "would train them again; prune the model when it is trained"
        )
    _require_supported(trainer)
    callback = _CheckpointCallback(trainer)
    strategy, signals = trainer.strategy, trainer._signal_connector
    epochs, evaluations = trainer.fit_loop, trainer.fit_loop.epoch_loop.val_loop
    with ExitStack() as stack:
        state: dict[str, Any] = {}
        own: dict[str, Any] = {}
        checkpointer = Checkpointer(state, per_rank=own, **options)
        checkpointer.describe(
            model=type(model).__name__,
            hyperparameters=dict(getattr(model, "hparams", {})),
            max_epochs=trainer.max_epochs,
            accumulate_grad_batches=trainer.accumulate_grad_batches,
        )
        connector = trainer._checkpoint_connector
        restore = connector._restore_modules_and_callbacks

        def restored(*_: object) -> None:
            state.update(callback.common_parts())
            own.update(callback.own_parts())
            callback.begin(stack.enter_context(checkpointer))
            restore(None if callback.restored is None else _NO_FILE)

        for holder, name, replaced in (
            (connector, "_restore_modules_and_callbacks", restored),
            (strategy, "load_checkpoint", callback.restored_or(strategy.load_checkpoint)),
            (strategy, "process_dataloader", callback.resumable(strategy.process_dataloader)),
            (epochs, "on_advance_start", callback.before_epoch(epochs.on_advance_start)),
            (evaluations, "run", callback.before_evaluation(evaluations.run)),
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
        )
        if callback.restored is not None:  # nothing was left to train, so Lightning has called no hook
            checkpointer.save_if_due(last=True)


def _require_supported(trainer: Any) -> None:
    """Refuse a Trainer with ranks that do not each run the script, or with a model in parts that nothing here knows.

    Raises:
        UsageError: It is one.
    """
    strategy = trainer.strategy
    if trainer.world_size > 1 and not _divides(trainer):
        ddp, deepspeed = (_class_of_either_name("strategies", name) for name in ("DDPStrategy", "DeepSpeedStrategy"))
        if not isinstance(strategy, ddp) or isinstance(strategy, deepspeed):
            raise UsageError(
                f"this Trainer cannot be resumed by Spotkeep: {type(strategy).__name__} has the parts of the model in "
                'an engine of its own. Use strategy="fsdp" or ModelParallelStrategy, which divide it too, or '
                "Lightning's ModelCheckpoint and report what it saves with spotkeep.report_saved"
            )
    if isinstance(strategy.launcher, _class_of_either_name("strategies.launchers", "_MultiProcessingLauncher")):
        raise UsageError(
            "this Trainer cannot be resumed by Spotkeep: it starts its processes in the middle of the script. Use "
            'strategy="ddp", which runs the script once more for each of them, or torchrun'
        )


def _divides(trainer: Any) -> bool:
    """Say whether the strategy of a Trainer divides the model among the ranks."""
    kinds = (_class_of_either_name("strategies", name) for name in ("FSDPStrategy", "ModelParallelStrategy"))
    return any(isinstance(trainer.strategy, kind) for kind in kinds)


def _package(trainer: Any) -> str:
    """Return the name of the library that a Trainer is of."""
    trainers = {name: getattr(sys.modules.get(name), "Trainer", ()) for name in _NAMES}
    return next(name for name, kind in trainers.items() if isinstance(trainer, kind))


def _class_of_either_name(module: str, name: str) -> tuple[Any, ...]:
    """Return a class of Lightning's, once for each of the library's names that is imported here."""
    imported = [package for package in _NAMES if sys.modules.get(package) is not None]
    return tuple(getattr(importlib.import_module(f"{package}.{module}"), name) for package in imported)


@dataclass
class _Place:
    """The place of a training in its data.

    Attributes:
        epoch: The current epoch, from 0.
        batches: Batches of this epoch that are done.
        began_at: Batches of this epoch that were done before this process.
        seed: The number that the order of the data follows from.
        epoch_random: The random states at the begin of the epoch.
    """

    epoch: int = 0
    batches: int = 0
    began_at: int = 0
    seed: int = 0
    epoch_random: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _RestoredBeside:
    """The parts of a checkpoint that Lightning itself does not restore.

    Attributes:
        buffers: Buffers of the module on this rank, by their names.
        flags: Training modes and gradient flags.
        metrics: States of the metrics.
        logged: Values that were logged in this epoch.
        best: States of the callbacks that keep best models.
        orders: Orders of the loaders. Each loader takes the first one that is left.
        divided: A copy of the model's and the optimizers' states, where they are divided among the ranks.
    """

    buffers: dict[str, Any] = field(default_factory=dict)
    flags: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    logged: list[Any] = field(default_factory=list)
    best: dict[str, Any] = field(default_factory=dict)
    orders: list[dict[str, Any]] = field(default_factory=list)
    divided: dict[str, Any] | None = None


class _CheckpointCallback(Callback):
    """Saves when a step and all that belongs to it is done."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._checkpointer = Checkpointer({})
        self._after_restart: dict[str, Any] | None = None
        self._evaluation: dict[str, Any] | None = None
        self._dumped: dict[str, Any] | None = None
        self._beside = _RestoredBeside()
        self._place = _Place()
        self._warned_of: set[str] = set()
        self._common_batches: float = 0  # of an evaluation, that every rank has
        self._begun = False
        self.restored: dict[str, Any] | None = None

    def common_parts(self) -> dict[str, Any]:
        """Give the parts of the state that are the same on all ranks, or divided among them.

        The strategy has the model now, and if it divides the model, it has done so.
        """
        if not _divides(self._trainer):
            return {"lightning": _Part(self.restore_common, self.common)}
        return {"lightning": _divided(self._trainer)}

    def own_parts(self) -> dict[str, Any]:
        """Give the parts of the state that each rank has for itself."""
        own = _RankPart(self.restore_own, self.own, self._trainer)
        return {"lightning of the rank": own, "random states": RandomStates()}

    def begin(self, checkpointer: Checkpointer) -> None:
        """Take note of the restored state."""
        self._checkpointer, self._begun = checkpointer, True
        self._warn_of_others()
        self._best = _BestModels(self._trainer, checkpointer)
        if self.restored is not None:
            self._best.put_back(self._beside.best)
        if checkpointer.noticed:
            checkpointer.leave()
        if self.restored is not None:
            if isinstance(self._trainer.strategy, _class_of_either_name("strategies", "ModelParallelStrategy")):
                # Not torch's get_state_dict, which lets an optimizer without a state make a step.
                self._beside = replace(self._beside, divided=copy.deepcopy(_divided(self._trainer).state_dict()))
            self._after_restart = capture_random_states()
        else:
            self._place.seed = self._trainer.strategy.broadcast(int(torch.randint(2**62, ())))

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
            restored = self._beside.orders.pop(0) if self._beside.orders else None
            return EpochLoader(process(loader), self._next_pass, rank=rank, restored=restored)

        return processed

    def keeping_sigterm(self, register: Callable[[], None]) -> Callable[[], None]:
        """Make Lightning leave SIGTERM as it is.

        Lightning would leave after the next batch, even between the batches of a step or before a due evaluation. On
        rank 0 it would also broadcast while the other ranks do something else.
        """

        def registered() -> None:
            before = signal.getsignal(signal.SIGTERM)
            register()
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, before)

        return registered

    def before_epoch(self, start: Callable[[], None]) -> Callable[[], None]:
        """Make Lightning's work before the batches of an epoch begin with the random numbers of the run.

        In the middle of an epoch Lightning skips its hooks for an epoch's start. A script uses them to prepare the
        epoch, for example to make a list or to set the epoch of a dataset. They are called again with their first
        random numbers, and then the saved state replaces their changes.
        """
        trainer, epochs = self._trainer, self._trainer.fit_loop

        def started() -> None:
            if self not in trainer.callbacks:  # a search for a learning rate trains, too, without the callbacks
                start()
                return
            restored, self.restored = self.restored, None
            if restored is None:
                self._place.epoch_random = capture_random_states()
                start()
                return
            start()
            if epochs.restarted_mid_epoch or epochs.restarted_on_epoch_end:
                self._begin_epoch_again(restored)
            _set_restored(trainer, restored, self._beside)
            set_measured(trainer, self._beside.metrics, self._beside.logged)
            self._best.set_state(self._beside.best)
            # Or Lightning would not let the schedules that follow a metric see what is measured in this epoch.
            epochs._restarting = False

        return started

    def _begin_epoch_again(self, restored: dict[str, Any]) -> None:
        trainer = self._trainer
        call = importlib.import_module(f"{_package(trainer)}.trainer.call")
        callbacks, finetuning = trainer.callbacks, _class_of_either_name("callbacks", "BaseFinetuning")
        restore_random_states(self._place.epoch_random)
        # These have made their parameter groups as they were. They would add them once more.
        trainer.callbacks = [callback for callback in callbacks if not isinstance(callback, finetuning)]
        try:
            call._call_callback_hooks(trainer, "on_train_epoch_start")
            call._call_lightning_module_hook(trainer, "on_train_epoch_start")
            call._call_callbacks_load_state_dict(trainer, restored)
        finally:
            trainer.callbacks = callbacks

    def before_evaluation(self, run: Callable[[], Any]) -> Callable[[], Any]:
        """Take note of where an evaluation begins, before any hook of it changes anything."""
        trainer = self._trainer

        def evaluated() -> Any:
            if trainer.sanity_checking or self not in trainer.callbacks:
                return run()
            self._go_on()
            done = trainer.fit_loop.epoch_loop.val_loop.batch_progress.total.completed
            self._evaluation = {
                "completed": done,
                "random": capture_random_states(),
                "weights": self._sampled(),
                "flags": _flags(trainer),
            }
            if self._checkpointer.noticed:
                self._save_and_leave_if_due()
            return run()

        return evaluated

    def _next_pass(self, size: int, passes_before: int) -> tuple[bytes, int, int]:
        """Give the key of the next pass over a loader, its number in the epoch, and its first batch."""
        epoch = self._trainer.current_epoch
        began_at = self._place.began_at if epoch == self._place.epoch else 0
        cycles, position = divmod(began_at, size) if size else (0, 0)
        if passes_before:
            cycles, position = cycles + passes_before, 0
        return (
            hashlib.blake2b(b"%d %d %d" % (self._place.seed, epoch, cycles), digest_size=16).digest(),
            cycles,
            position,
        )

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if self._beside.buffers and trainer.world_size > 1:  # DDP has given every rank those of rank 0
            pl_module.load_state_dict(self._beside.buffers, strict=False)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self._go_on()
        if batch_idx % trainer.accumulate_grad_batches == 0:
            self._save_and_leave_if_due()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._place.epoch, self._place.batches = trainer.current_epoch, batch_idx + 1
        self._best.keep()
        last = self._place.batches == trainer.num_training_batches
        if last or self._place.batches % trainer.accumulate_grad_batches == 0:
            total = trainer.estimated_stepping_batches
            self._checkpointer.complete_step(total_steps=total if isinstance(total, int) else None)
        # What the script ends on a notice must not end as if it were done: the script leaves before the next batch all
        # the same. Ranks ask for notices together: here it is one process.
        if trainer.should_stop and trainer.world_size == 1 and self._checkpointer.noticed:
            trainer.should_stop = False

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._checkpointer.count_epochs(trainer.current_epoch)
        if trainer.current_epoch != self._place.epoch:
            self._place.epoch, self._place.batches, self._place.began_at = trainer.current_epoch, 0, 0

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if self._evaluation is None:
            return
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
        # Weights that were exchanged for the evaluation (averages of them) are not those of the training.
        if self._common_batches >= 0 and self._checkpointer.noticed and self._sampled() == self._evaluation["weights"]:
            # Its beginning is saved, so that it is done again as a whole.
            restore_random_states(self._evaluation["random"])
            self._save_and_leave_if_due()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._best.keep()
        if self._evaluation is not None:
            self._evaluation = None
            self._log(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._best.keep()
        self._log(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._best.keep()
        self._checkpointer.save_if_due(last=True)

    def _sampled(self) -> list[Any]:
        """Give a few numbers of each parameter, enough to notice a change."""
        if _divides(self._trainer):
            return []  # the ranks would not see the same changes, and Lightning exchanges no divided weights
        parameters = self._trainer.lightning_module.parameters()
        return [value.detach().flatten()[:: max(1, value.numel() // 4)].tolist() for value in parameters]

    def _save_and_leave_if_due(self) -> None:
        if self._checkpointer.save_if_due():
            self._checkpointer.leave()

    def _log(self, trainer: Any) -> None:
        metrics = trainer.callback_metrics.items()
        self._checkpointer.log(**{name: float(value) for name, value in metrics if value.numel() == 1})

    def _go_on(self) -> None:
        """Go on with the random numbers of the run, once Lightning has set up its restored objects."""
        if self._after_restart is not None:
            restore_random_states(self._after_restart)
            self._after_restart = None

    def common(self) -> dict[str, Any]:
        """Give the large part of the state that is the same on all ranks. It holds parameters and optimizer states.

        Asked before `own`.
        """
        if not self._begun:  # there is nothing yet
            return {}
        self._dumped = self._dump()
        state_dict, parameters = self._dumped["state_dict"], self._parameters()
        return {
            "parameters": {name: value for name, value in state_dict.items() if name in parameters},
            "optimizer_states": self._dumped["optimizer_states"],
        }

    def own(self) -> dict[str, Any]:
        """Give the rest of Lightning's checkpoint, and the positions of the loaders."""
        if not self._begun:
            return {}
        dumped, self._dumped = self._dumped or self._dump(), None
        parameters = self._parameters()
        rest = {name: value for name, value in dumped.items() if name != "optimizer_states"}
        rest["state_dict"] = {name: value for name, value in dumped["state_dict"].items() if name not in parameters}
        return {
            "checkpoint": rest,
            "metadata": getattr(dumped["state_dict"], "_metadata", None),
            "epoch": self._place.epoch,
            "batches": self._place.batches,
            "replicas": replicas_of(self._trainer),
            "seed": self._place.seed,
            "epoch_random": self._place.epoch_random,
            "flags": _flags(self._trainer) if self._evaluation is None else self._evaluation["flags"],
            "metrics": metrics(self._trainer),
            "logged": logged(self._trainer),
            "best": self._best.state(),
            "orders": self._loader_orders(),
        }

    def restored_or(self, load: Callable[..., Any]) -> Callable[..., Any]:
        """Give Lightning the restored checkpoint in place of a file. Other paths lead to their files."""

        def loaded(path: Any, *others: Any, **named: Any) -> Any:
            if path != _NO_FILE or self.restored is None:
                return load(path, *others, **named)
            # Each `ModelCheckpoint` takes its state, though a logger has made a folder for another version.
            states = self.restored["callbacks"]
            for callback in self._trainer.callbacks:
                if callback.state_key in states and "dirpath" in states[callback.state_key]:
                    states[callback.state_key]["dirpath"] = callback.dirpath
            return self.restored

        return loaded

    def restore_common(self, state: dict[str, Any]) -> None:
        """Take the state that `common` gave. `fit` gets it when it asks for it. Comes before `restore_own`."""
        self.restored = {"state_dict": state["parameters"], "optimizer_states": state["optimizer_states"]}

    def restore_own(self, state: dict[str, Any]) -> None:
        """Take the state that `own` gave."""
        # Divided tensors are restored in place.
        common, own = self.restored or {"state_dict": {}, "optimizer_states": []}, state["checkpoint"]
        weights = StateDict({**common["state_dict"], **own["state_dict"]})
        weights._metadata = state["metadata"]
        self.restored = {**own, **common, "state_dict": weights}
        self._beside = _RestoredBeside(
            buffers=own["state_dict"],
            flags=state["flags"],
            metrics=state["metrics"],
            logged=state["logged"],
            best=state["best"],
            orders=state["orders"],
        )
        self._place = _Place(
            epoch=state["epoch"],
            batches=state["batches"],
            began_at=state["batches"],
            seed=state["seed"],
            epoch_random=state["epoch_random"],
        )

    def _loader_orders(self) -> list[dict[str, Any]]:
        loaders = self._trainer.fit_loop._combined_loader
        flat = [] if loaders is None else loaders.flattened
        return [loader.order(self._place.batches) for loader in flat if isinstance(loader, EpochLoader)]

    def _parameters(self) -> set[str]:
        # Tied parameters have several names, and `state_dict` gives all of them.
        return {name for name, _ in self._trainer.lightning_module.named_parameters(remove_duplicate=False)}

    def _warn_of_others(self) -> None:
        """Name once each callback of the script's own with attributes that are not saved."""
        for callback in self._trainer.callbacks:
            kind = type(callback)
            known = callback is self or kind.__module__.partition(".")[0] in ("lightning", "pytorch_lightning")
            own = any(
                getattr(kind, name) is not getattr(base, name)
                for name in ("state_dict", "on_save_checkpoint")
                for base in kind.__mro__
                if (base.__module__.partition(".")[0], base.__name__) in _CALLBACKS
            )
            kept = vars(callback).keys() - {"log", "log_dict"}  # Lightning gives it these
            if known or own or not kept or kind.__qualname__ in self._warned_of:
                continue
            self._warned_of.add(kind.__qualname__)
            warn_of(callback)

    def _dump(self) -> dict[str, Any]:
        self._warn_of_others()
        strategy = self._trainer.strategy
        with ExitStack() as stack:
            if _divides(self._trainer):
                # Lightning would gather them on one rank.
                for name, empty in (("lightning_module_state_dict", dict), ("optimizer_state", lambda _: {})):
                    setattr(strategy, name, empty)
                    stack.callback(delattr, strategy, name)
            dumped = self._trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
        _set_between_batches(
            dumped["loops"]["fit_loop"],
            batches_an_epoch=self._trainer.num_training_batches,
            evaluation=self._evaluation,
        )
        return {name: value for name, value in dumped.items() if "hyper_parameters" not in name}


class _BestModels:
    """The best models so far, which `ModelCheckpoint` writes to a path of the script, for `ckpt_path="best"`.

    Without a metric to monitor the newest model counts as the best. It is written again, and not copied.
    """

    # What its own state lacks: without them it may save the same step twice, which counts as two models.
    _ATTRIBUTES = ("_last_global_step_saved", "_last_checkpoint_saved", "_defer_save_until_validation")

    def __init__(self, trainer: Any, checkpointer: Checkpointer) -> None:
        self._trainer = trainer
        self._checkpointer = checkpointer
        self._kinds = _class_of_either_name("callbacks", "ModelCheckpoint")
        self._copied: dict[str, tuple[str, int]] = {}
        if checkpointer.uploads and any(callback.monitor for callback in self._callbacks().values()):
            _logger.warning(
                "the best model of ModelCheckpoint is not brought to S3 with the checkpoints: when this machine is "
                'taken, ckpt_path="best" finds none; let its dirpath lie on a disk that stays'
            )

    def _callbacks(self) -> dict[str, Any]:
        callbacks = (callback for callback in self._trainer.callbacks if isinstance(callback, self._kinds))
        return {f"lightning-{number}": callback for number, callback in enumerate(callbacks)}

    def keep(self) -> None:
        """Copy each best model that is a new one and lies where it would be lost."""
        if not self._trainer.is_global_zero:
            return
        for name, callback in self._callbacks().items():
            path = Path(callback.best_model_path)
            if callback.monitor is None or not callback.best_model_path or not path.exists():
                continue
            found = (callback.best_model_path, path.stat().st_mtime_ns)
            if found == self._copied.get(name):
                continue
            self._copied[name] = found
            if comes_back(path, directory=self._checkpointer.directory):
                continue
            try:
                KeptModel(self._checkpointer.directory, name).keep(path, step=self._checkpointer.step)
            except OSError as error:
                _logger.warning("the best model, %s, could not be copied beside the checkpoints: %s", path, error)

    def put_back(self, state: dict[str, Any]) -> None:
        """Make the best models of a restored run be there, or name those that are lost."""
        for name, callback in self._callbacks().items():
            best = state.get(name, {}).get("best_model_path")
            if callback.monitor is None or not best:
                continue
            copied_at = None
            if self._trainer.local_rank == 0:
                copied_at = KeptModel(self._checkpointer.directory, name).put_back(Path(best))
            # A better one that came after the checkpoint is trained and written once more.
            if not Path(best).exists() and not (copied_at is not None and copied_at > self._checkpointer.step):
                _logger.warning(
                    "the best model so far, %s, is not there: it was lost with the machine, and unless a better one "
                    'comes ckpt_path="best" fails; put that file back, and let the dirpath of ModelCheckpoint lie '
                    "among the checkpoints (SPOTKEEP_CHECKPOINT_DIR) or on a disk that stays",
                    best,
                )

    def state(self) -> dict[str, Any]:
        """Give the facts that each `ModelCheckpoint` knows beside its own state, and the path of its best model."""
        names = ("best_model_path", *self._ATTRIBUTES)
        return {
            name: {key: getattr(callback, key) for key in names if hasattr(callback, key)}
            for name, callback in self._callbacks().items()
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Put back the state that `state` gave."""
        for name, callback in self._callbacks().items():
            for key, value in state.get(name, {}).items():
                setattr(callback, key, value)


class _Part(TakesEffectLater):
    """A part of Lightning's checkpoint, as a part of the state of the Checkpointer."""

    def __init__(self, restore: Callable[[dict[str, Any]], None], give: Callable[[], dict[str, Any]]) -> None:
        self.load_state_dict = restore
        self.state_dict = give


class _RankPart(_Part):
    """The part of Lightning's checkpoint that each rank has for itself."""

    def __init__(
        self, restore: Callable[[dict[str, Any]], None], give: Callable[[], dict[str, Any]], trainer: Any
    ) -> None:
        super().__init__(restore, give)
        self._trainer = trainer

    def load_rank_states(self, states: Sequence[dict[str, Any]], *, rank: int, world_size: int) -> None:
        """Take the states of another number of ranks."""
        self.load_state_dict(state_for_rank(self._trainer, states, rank=rank, world_size=world_size))


def _set_between_batches(loop: dict[str, Any], *, batches_an_epoch: float, evaluation: dict[str, Any] | None) -> None:
    """Make a dump from inside a hook look like one from between two batches, or from before an evaluation."""
    batches = loop["epoch_loop.batch_progress"]
    for counts in (batches["total"], batches["current"]):
        counts["ready"] = counts["started"] = counts["processed"] = counts["completed"]
    # The last batch is so marked when it begins. The count may be wrong, with a callback that changes it.
    ended = evaluation is not None and batches["is_last_batch"]
    batches["is_last_batch"] = ended or batches["current"]["completed"] >= batches_an_epoch
    if evaluation is not None:
        progress, done = loop["epoch_loop.val_loop.batch_progress"], evaluation["completed"]
        progress["total"].update(ready=done + 1, started=done + 1, processed=done, completed=done)
        progress["current"].update(ready=0, started=0, processed=0, completed=0)


def _flags(trainer: Any) -> dict[str, Any]:
    """Give the flags that a training may change and Lightning does not save."""
    module = trainer.lightning_module
    return {
        "frozen": [name for name, value in module.named_parameters() if not value.requires_grad],
        "in evaluation": [name for name, part in module.named_modules() if not part.training],
        # Lightning lets batch norms that are frozen keep no averages.
        "without averages": [
            name for name, part in module.named_modules() if not getattr(part, "track_running_stats", True)
        ],
        "accumulated": trainer.accumulate_grad_batches,
    }


def _divided(trainer: Any) -> ShardedState:
    """Give the model and the optimizers, of which this rank holds a part."""
    return ShardedState(trainer.strategy.model, trainer.optimizers)


def _set_restored(trainer: Any, restored: dict[str, Any], beside: _RestoredBeside) -> None:
    """Put back the values that hooks may have changed since Lightning took the restored state."""
    flags = beside.flags
    if beside.divided is not None:
        _divided(trainer).load_state_dict(beside.divided)
    elif not _divides(trainer):
        # An average of the weights stands in their place, with a callback that makes one.
        trainer.lightning_module.load_state_dict(
            restored.get("current_model_state", restored["state_dict"]), strict=False
        )
    for optimizer, state in zip(trainer.optimizers, restored["optimizer_states"]):
        put_back_optimizer(optimizer, state)
    for config, state in zip(trainer.lr_scheduler_configs, restored["lr_schedulers"]):
        config.scheduler.load_state_dict(state)
    frozen, in_evaluation, without_averages = (
        set(flags[name]) for name in ("frozen", "in evaluation", "without averages")
    )
    for name, value in trainer.lightning_module.named_parameters():
        value.requires_grad_(name not in frozen)
    for name, part in trainer.lightning_module.named_modules():
        # Not by `train()`, which changes all that is inside.
        part.training = name not in in_evaluation
        if hasattr(part, "track_running_stats"):
            part.track_running_stats = name not in without_averages
    trainer.accumulate_grad_batches = flags["accumulated"]
