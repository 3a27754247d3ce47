"""Hugging Face's Trainer, with at most one lost step after an interruption.

Trainer's own checkpoints stop the training while they are written, and a machine that goes meanwhile takes them along.
Here the `Checkpointer` holds everything. It holds the model, optimizer, schedule, gradient scaler, random states, and
the positions of the Trainer and its callbacks. Trainer wraps the model and builds the others before it reads a
position. At that moment the newest good checkpoint goes straight into these objects, also from S3. Inside an epoch
Trainer's own `resume_from_checkpoint` goes on. It gets a directory with its position.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sized
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, Callable

from spotkeep.checkpointer import Checkpointer
from spotkeep.errors import UsageError
from spotkeep.loops.global_batches import refuse_global_batches
from spotkeep.loops.order_memory import OrderMemory
from spotkeep.state.encoding import object_state
from spotkeep.state.random_states import (
    RandomLane,
    RandomStates,
    capture_random_states,
    restore_random_states,
    seeded_random_states,
)
from spotkeep.state.restoring import put_back, warn_of_taken_names

from .kept_models import KeptModel, comes_back
from .trainer_progress import Epoch, KeyedBatches, TrainerProgress

try:
    import torch
    from torch.utils.data import IterableDataset, get_worker_info
    from transformers import TrainerCallback
    from transformers.trainer_utils import SaveStrategy, TrainOutput

    from spotkeep.loops.torch_batches import KeyedCollate, KeyedDataset
except ImportError as error:
    raise ImportError(
        f"spotkeep.integrations.transformers needs Hugging Face's Trainer: install 'transformers[torch]>=5' ({error})"
    ) from error

_logger = logging.getLogger("spotkeep")

_DESCRIBED = (
    *("learning_rate", "lr_scheduler_type", "optim", "weight_decay", "max_grad_norm", "num_train_epochs", "max_steps"),
    *("per_device_train_batch_size", "gradient_accumulation_steps", "seed", "data_seed"),
)
"""The fields of TrainingArguments that make two trainings different.

Paths and settings of logging may change in each attempt.
"""

_COMMON = {"model": "model", "optimizer": "optimizer", "scheduler": "lr_scheduler", "scaler": "scaler"}
"""Objects of Trainer that are the same on all ranks, by their names in a checkpoint."""

_OWN = ("random", "trainer")
"""Parts that each rank has for itself."""

# What Trainer writes beside the weights, and does not read to load the best model.
_NOT_OF_A_MODEL = ("optimizer", "scheduler", "scaler", "rng_state")


def train_resumably(
    trainer: Any,
    state: Mapping[str, Any] | None = None,
    directory: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Any:
    """Call this instead of `trainer.train()`. It goes on where an earlier attempt was interrupted.

    On a notice the state is saved after the current step and the script exits with code 75. Trainer writes its own
    checkpoints as configured. `save_strategy="no"` saves their time.

    The best model of `load_best_model_at_end` is kept with the run wherever `output_dir` lies. Callbacks are restored
    if they have `state_dict` and `load_state_dict`, or Trainer's own `state`. The log names others that may have a
    state.

    Args:
        trainer: A `transformers.Trainer`, ready to train, in one process or in each of several that torchrun started.
        state: More to save, as for `Checkpointer`, for objects that the training changes and Trainer does not know.
        directory: As for `Checkpointer`.
        **options: As for `Checkpointer`, such as `every_steps`, `every_seconds` and `keep_last`.

    Returns:
        The result of `trainer.train`.

    Raises:
        UsageError: The Trainer trains in a way that cannot be resumed here.
        StateMismatchError: A good checkpoint does not fit the objects that Trainer has built.
        SystemExit: With code 75 after a notice, and with 0 after the step to pause at.
    """
    _require_supported(trainer)
    _switch_jit_checkpoint_off(trainer)
    common, own = dict(state or {}), dict(options.pop("per_rank", None) or {})
    warn_of_taken_names([*common, *own], taken=(*_COMMON, *_OWN))
    with ExitStack() as stack:
        checkpointer = Checkpointer(common, directory=directory, per_rank=own, **options)
        checkpointer.describe(samples=_samples(trainer), **{name: getattr(trainer.args, name) for name in _DESCRIBED})
        callback = _CheckpointCallback(trainer, checkpointer, state=(common, own), stack=stack)
        trainer.add_callback(callback)
        stack.callback(trainer.remove_callback, callback)
        for name, replaced in (
            ("get_train_dataloader", callback.keyed),
            ("set_initial_training_values", callback.restore),
            ("_init_training_state", callback.epochs_and_batches),
            ("_run_epoch", callback.run_epoch),
            ("_maybe_log_save_evaluate", callback.log_save_evaluate),
        ):
            callback.replace(name, functools.partial(replaced, getattr(trainer, name)))
        for name in ("ignore_data_skip", "eval_on_start"):
            stack.callback(setattr, trainer.args, name, getattr(trainer.args, name))
        trainer.args.ignore_data_skip = False  # the data of an interrupted epoch goes on
        try:
            return trainer.train()
        except _DoneBeforeError as done:
            return done.output


def _end_schedule_at(trainer: Any, steps: int) -> None:
    """Give the schedule of a Trainer another number of steps, and the optimizer its learning rates by that."""
    scheduler, optimizer = trainer.lr_scheduler, trainer.optimizer
    if not isinstance(scheduler, torch.optim.lr_scheduler.LambdaLR):
        return  # it follows a metric, and knows no number of steps
    groups = [{"params": [torch.zeros(1)], "lr": base} for base in scheduler.base_lrs]
    trainer.lr_scheduler = None
    other = trainer.create_scheduler(num_training_steps=steps, optimizer=torch.optim.SGD(groups))
    trainer.lr_scheduler = scheduler
    scheduler.lr_lambdas = other.lr_lambdas
    for group, base, factor in zip(optimizer.param_groups, scheduler.base_lrs, scheduler.lr_lambdas):
        group["lr"] = base * factor(scheduler.last_epoch)


def _samples(trainer: Any) -> int | None:
    data = trainer.train_dataset
    return len(data) if isinstance(data, Sized) else None


def _switch_jit_checkpoint_off(trainer: Any) -> None:
    """Remove Trainer's own answer to SIGTERM, which would end the training as if it were done."""
    if not getattr(trainer.args, "enable_jit_checkpoint", False):
        return
    from transformers.trainer_jit_checkpoint import JITCheckpointCallback

    callback = trainer.pop_callback(JITCheckpointCallback)
    if callback is not None:
        callback.on_train_end(trainer.args, trainer.state, trainer.control)  # gives SIGTERM back
        _logger.info("enable_jit_checkpoint is switched off: on a notice the state is saved all the same")


class _DoneBeforeError(Exception):
    """The training had come to an early end in an attempt before."""

    def __init__(self, output: Any) -> None:
        self.output = output


class _CheckpointCallback(TrainerCallback):
    """Saves between two steps, after the logging and the evaluation of the first.

    Args:
        trainer: The Trainer.
        checkpointer: The checkpointer, before its restore.
        state: The state of all ranks and that of this one, to which Trainer's objects are added once they are built.
        stack: Takes back the replaced parts of Trainer.
    """

    def __init__(
        self,
        trainer: Any,
        checkpointer: Checkpointer,
        *,
        state: tuple[dict[str, Any], dict[str, Any]],
        stack: ExitStack,
    ) -> None:
        self._trainer = trainer
        self._checkpointer = checkpointer
        self._state = state
        self._stack = stack
        self._progress = TrainerProgress(trainer, ours=self)
        self._best = _BestModel(trainer, checkpointer)
        self._streams: list[_KeyedStream] = []
        self._place: str | None = None
        self._kept: dict[str, Any] = {}
        self._epochs_begun = 0  # in this process
        self._gradients_open = False
        self._after_replay: dict[str, Any] | None = None

    def replace(self, name: str, replaced: Callable[..., Any]) -> None:
        """Replace a method of Trainer until the training is over."""
        setattr(self._trainer, name, replaced)
        self._stack.callback(delattr, self._trainer, name)

    def restore(self, original: Callable[..., Any], args: Any, loader: Any) -> Any:
        """Count the steps as Trainer does, build its objects, and restore the newest good checkpoint into them.

        Trainer would build its objects after it has taken its position from a directory. The position is in the
        checkpoint, too.
        """
        trainer, progress = self._trainer, self._progress
        values = list(original(args, loader))
        built = trainer._prepare_for_training(values[-1], loader, None)
        self.replace("_prepare_for_training", lambda *_: built)
        trainer._tr_loss, trainer._globalstep_last_logged = torch.tensor(0.0, device=args.device), 0
        common, own = self._state
        common.update({name: getattr(trainer, attribute) for name, attribute in _COMMON.items() if name != "scaler"})
        if trainer.accelerator.scaler is not None:
            common["scaler"] = trainer.accelerator.scaler
        own.update(zip(_OWN, (RandomStates(), progress)))
        self._stack.enter_context(self._checkpointer)
        if progress.restored is not None:
            args.eval_on_start = False  # it was that of the first attempt
            if self._others_begin():
                # They may change the state before the first step, which the restored run has behind it.
                self._kept = {name: copy.deepcopy(object_state(common[name])) for name in _COMMON if name in common}
            self._after_replay = capture_random_states()
            scratch = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="spotkeep-")))
            self._write_place(scratch, json.loads(progress.restored["state"]))
            if progress.steps_changed:
                epochs, steps_an_epoch, *_, steps = values
                values[0], values[-1] = self._epochs_and_steps(epochs, steps, steps_an_epoch=steps_an_epoch)
        return values

    def _epochs_and_steps(self, epochs: int, steps: int, *, steps_an_epoch: int) -> tuple[int, int]:
        """Give the epochs and the steps of a training that has begun with other steps an epoch.

        Trainer's schedule gets the new number of steps, so that it ends with the training.
        """
        trainer, progress = self._trainer, self._progress
        done = self._checkpointer.step
        done_in_epoch = done - progress.epoch.first_step
        if trainer.args.max_steps > 0:
            if epochs < sys.maxsize:  # a stream without a length has as many passes as it takes
                epochs = progress.epoch.number - (done_in_epoch + steps - done) // -steps_an_epoch
            return epochs, steps
        steps += done - (progress.epoch.number * steps_an_epoch + done_in_epoch)
        if trainer._created_lr_scheduler:
            _end_schedule_at(trainer, steps)
        return epochs, steps

    def _others_begin(self) -> bool:
        """Say whether a callback of the script's own does something as the training begins."""
        return any(
            type(callback).on_train_begin is not TrainerCallback.on_train_begin
            and type(callback).__module__.partition(".")[0] != "transformers"
            for callback in self._trainer.callback_handler.callbacks
            if isinstance(callback, TrainerCallback) and callback is not self
        )

    def _write_place(self, scratch: Path, state: dict[str, Any]) -> None:
        """Write the position that makes Trainer go on where the restored state was saved."""
        state["best_model_checkpoint"] = self._best.put_back(
            state["best_model_checkpoint"], needed=not self._progress.finished
        )
        (scratch / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
        self._place = str(scratch)

    def epochs_and_batches(
        self,
        original: Callable[..., tuple[int, int]],
        max_steps: int,
        steps_an_epoch: int,
        epochs: int,
        _: object,
        *others: Any,
    ) -> tuple[int, int]:
        """Give the epochs that are done, and the batches of the next one.

        Trainer counts them from its steps. It cannot for a stream, of which no length is known, nor after an epoch that
        a callback has ended early.
        """
        counted = original(max_steps, steps_an_epoch, epochs, self._place, *others)
        progress = self._progress
        if progress.restored is None:
            return counted
        steps = self._trainer.state.global_step
        if steps >= max_steps:
            return epochs, 0
        done_in_epoch = steps - progress.epoch.first_step
        return progress.epoch.number, done_in_epoch * self._trainer.args.gradient_accumulation_steps

    def run_epoch(self, original: Callable[..., None], **named: Any) -> None:
        """Run an epoch as Trainer does, the interrupted one from its place."""
        original(**{**named, "resume_from_checkpoint": self._place})

    def keyed(self, original: Callable[[], Any]) -> Any:
        """Make the content of a batch depend on the epoch and its number alone, however far ahead it is loaded."""
        loader = original()
        inner = getattr(loader, "base_dataloader", loader)
        refuse_global_batches(inner, "Trainer")
        parts = {name: getattr(inner, name) for name in ("generator", "sampler", "batch_sampler", "dataset")}
        self._progress.order = OrderMemory(parts)
        if isinstance(inner.dataset, IterableDataset):
            stream = _KeyedStream(inner.dataset, inner.collate_fn, batch_size=inner.batch_size)
            self._streams.append(stream)
            # A stream gets its key when a pass begins, and so do the workers that begin then.
            vars(inner).update(dataset=stream, collate_fn=stream.collate, persistent_workers=False)
        elif inner.batch_sampler is not None:
            self._progress.batches = KeyedBatches(inner.batch_sampler, self._key, self._progress.pass_begins)
            vars(inner).update(
                batch_sampler=self._progress.batches,
                collate_fn=KeyedCollate(inner.dataset, inner.collate_fn),
                dataset=KeyedDataset(inner.dataset),
            )
        return loader

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        progress, step = self._progress, self._checkpointer.step
        kept, self._kept = self._kept, {}
        put_back({name: self._state[0][name] for name in kept}, kept, step=step)
        progress.put_back()
        progress.callbacks.warn_of_others()
        if self._checkpointer.noticed:
            self._checkpointer.leave()
        if progress.finished and step < state.max_steps:
            loss = next((entry["train_loss"] for entry in state.log_history[::-1] if "train_loss" in entry), 0.0)
            raise _DoneBeforeError(TrainOutput(step, loss, {}))
        if self._after_replay is not None:
            restore_random_states(self._after_replay)
        if progress.owed:
            self._do_what_is_owed(control)
            self._after_replay = capture_random_states()

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        progress = self._progress
        if self._epochs_begun:
            progress.epoch = Epoch(progress.epoch.number + 1)
        self._epochs_begun += 1
        self._checkpointer.count_epochs(progress.epoch.number)
        progress.epoch_is_over = False
        for stream in self._streams:
            stream.begin(self._key(ranks=False), collate=self._key())
        if self._epochs_begun == 1 and progress.epoch.order:
            progress.order.put_back(progress.epoch.order)
            if state.global_step > progress.epoch.first_step:
                # It goes on in the middle of the epoch. The order of the data is drawn once more as it was.
                restore_random_states(progress.epoch.random)
                return
        self._catch_up()
        progress.epoch = Epoch(
            progress.epoch.number,
            first_step=state.global_step,
            random=capture_random_states(),
            order=progress.order.capture(large=True),
        )
        self._save_and_leave_if_due()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._catch_up()
        if state.global_step > self._progress.epoch.first_step:
            self._save_and_leave_if_due()

    def on_substep_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._gradients_open = True

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._gradients_open = False
        self._checkpointer.complete_step(total_steps=state.max_steps)
        self._take_back_stop(state, control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._progress.epoch_is_over = True
        self._take_back_stop(state, control)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        self._checkpointer.log(**{name: value for name, value in (logs or {}).items() if isinstance(value, float)})

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._best.keep(state)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._progress.finished = True
        self._checkpointer.save_if_due(last=True)

    def _take_back_stop(self, state: Any, control: Any) -> None:
        """Undo a stop by a callback of the script on a notice, because the training would end as if it were done.

        The script leaves before the next step all the same. Ranks ask for notices together, and here only one process
        knows of it.
        """
        stops = control.should_training_stop and state.global_step < state.max_steps
        if stops and self._trainer.args.world_size == 1 and self._checkpointer.noticed:
            control.should_training_stop = False
            _logger.warning("a callback ended the training on a notice; the next attempt goes on with it")

    def log_save_evaluate(self, original: Callable[..., None], *args: Any, **named: Any) -> None:
        """Log, save and evaluate as Trainer does after a step or an epoch.

        On a notice a due evaluation is skipped, because it may be long. The next attempt begins with it. Logged values
        belong to completed steps.
        """
        control, progress = self._trainer.control, self._progress
        if control.should_evaluate and not self._gradients_open and self._checkpointer.noticed:
            due = {"should_evaluate": True, "should_save": control.should_save}
            vars(control).update(dict.fromkeys(due, False))
            original(*args, **named)
            vars(self._trainer.control).update(due)
            progress.owed = [_EVALUATION, *([_SAVE] if due["should_save"] else [])]
            self._save_and_leave_if_due()
            progress.owed = []
        original(*args, **named)

    def _do_what_is_owed(self, control: Any) -> None:
        trainer, progress = self._trainer, self._progress
        vars(control).update(should_evaluate=True, should_save=_SAVE in progress.owed)
        progress.owed = []
        self._log_save_evaluate()
        if trainer.control.should_training_stop or trainer.state.global_step >= trainer.state.max_steps:
            # No step is left, in which Trainer would see that.
            if trainer.state.global_step > progress.epoch.first_step:
                handler = trainer.callback_handler
                trainer.control = handler.on_epoch_end(trainer.args, trainer.state, trainer.control)
                self._log_save_evaluate()
            raise _DoneBeforeError(trainer._finalize_training(None, 0, time.time()))

    def _log_save_evaluate(self) -> None:
        trainer = self._trainer
        trainer._maybe_log_save_evaluate(
            *(trainer._tr_loss, None, trainer.model_wrapped, None, self._progress.epoch.number, None, time.time())
        )

    def _catch_up(self) -> None:
        """Go on from the very state that was saved, now that the data is where it was."""
        if self._after_replay is not None:
            self._progress.require_same_batches()
            restore_random_states(self._after_replay)
            self._after_replay = None

    def _key(self, *, ranks: bool = True) -> bytes:
        """Give the key of this epoch's random numbers, one for each rank or one for all."""
        args = self._trainer.args
        own = [args.process_index] if ranks and args.world_size > 1 else []
        key = (args.seed, args.data_seed, self._progress.epoch.number, *own)
        return hashlib.blake2b(repr(key).encode(), digest_size=16).digest()

    def _save_and_leave_if_due(self) -> None:
        # Gradients that are open at the end of a stream are added to those of its next pass.
        if not self._gradients_open and self._checkpointer.save_if_due():
            self._checkpointer.leave()


class _BestModel:
    """The best model so far, which Trainer writes into `output_dir` and loads when the training ends."""

    def __init__(self, trainer: Any, checkpointer: Checkpointer) -> None:
        args = trainer.args
        self._args = args
        self._checkpointer = checkpointer
        self._copy = KeptModel(checkpointer.directory, "trainer")
        self._matters = args.load_best_model_at_end or args.save_strategy == SaveStrategy.BEST
        output = Path(args.output_dir)
        self._copied = self._matters and args.should_save and not comes_back(output, directory=checkpointer.directory)
        self._copy_of: str | None = None
        if self._matters and args.should_save and checkpointer.uploads:
            _logger.warning(
                "the best model lies in output_dir, %s, and is not brought to S3 with the checkpoints. When this "
                'machine is taken, a run with load_best_model_at_end or save_strategy="best" cannot go on: let '
                "output_dir lie on a disk that stays",
                output,
            )

    def keep(self, state: Any) -> None:
        """Copy the best model, if it is a new one and lies where it would be lost."""
        best = state.best_model_checkpoint
        just_written = state.best_global_step == state.global_step
        if not self._copied or best is None or (best == self._copy_of and not just_written):
            return
        try:
            self._copy.keep(Path(best), step=state.global_step, without=_NOT_OF_A_MODEL)
        except OSError as error:
            _logger.warning("the best model, %s, could not be copied beside the checkpoints: %s", best, error)
        else:
            self._copy_of = best

    def put_back(self, best: str | None, *, needed: bool) -> str | None:
        """Make the best model of a restored run be there.

        Args:
            best: The path at which the saved run had it.
            needed: True while the training is not over.

        Returns:
            Its path.

        Raises:
            UsageError: If it is lost.
        """
        if best is None or not self._matters:
            return best
        args = self._args
        here = Path(args.output_dir) / Path(best).name
        place = here if here.is_dir() or not Path(best).is_dir() else Path(best)
        copied_at = self._copy.put_back(place) if args.local_process_index == 0 else None
        if args.world_size > 1:
            torch.distributed.barrier()
        # A better one that came after the checkpoint is trained and written once more.
        if place.is_dir() or not needed or (copied_at is not None and copied_at > self._checkpointer.step):
            return str(place)
        raise UsageError(
            f"the best model so far, {best}, is not there, so this run would end with another model than a run left "
            f"alone: output_dir, {args.output_dir}, was lost with the machine. Put that folder back, or pass "
            'load_best_model_at_end=False and another save_strategy than "best" to end with the last model. In the '
            "next run let output_dir lie among the checkpoints (SPOTKEEP_CHECKPOINT_DIR) or on a disk that stays"
        )


class _KeyedStream(IterableDataset):
    """Stands for a dataset without indices. Its draws in a pass depend on a key and the number of the worker.

    Ranks that each take a part of the same stream must see the same items. So they share the key for items. The key for
    putting batches together differs by rank.

    Args:
        dataset: The dataset. All other attributes are its own, as with `KeyedDataset`.
        collate: Puts the items of a batch together.
        batch_size: Items of a batch. None when the dataset gives batches.
    """

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], *, batch_size: int | None) -> None:
        self.__dict__.update(
            _dataset=dataset, _collate=collate, _batch_size=batch_size or 1, _keys=(b"", b""), _lane=None
        )

    def __getattr__(self, name: str) -> Any:
        if name == "_dataset":  # not yet: it is being unpickled
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._dataset, name, value)

    def __len__(self) -> int:
        return len(self._dataset)

    def begin(self, key: bytes, *, collate: bytes) -> None:
        """Take the keys of the next pass, one for items and one for putting them together."""
        self.__dict__["_keys"] = (key, collate)

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        number = -1 if worker is None else worker.id
        lane, self.__dict__["_lane"] = (
            RandomLane(seeded_random_states(b"%s %d" % (key, number))) for key in self._keys
        )
        with lane:
            items = iter(self._dataset)
        while True:
            # The loader asks for a whole batch at once, too.
            with lane:
                batch = list(islice(items, self._batch_size))
            yield from batch
            if len(batch) < self._batch_size:
                return

    def collate(self, items: Any) -> Any:
        """Put the items of a batch together."""
        with self._lane:
            return self._collate(items)


_EVALUATION, _SAVE = "evaluation", "save"
"""Work that Trainer may owe a step."""


def _require_supported(trainer: Any) -> None:
    problems = []
    if trainer.is_deepspeed_enabled:
        problems.append("DeepSpeed has its state in an engine of its own (take fsdp=True in its place)")
    if trainer.is_fsdp_enabled and trainer.accelerator.state.fsdp_plugin.fsdp_version != 2:
        problems.append('FSDP of version 1 hides its parameters (take fsdp_config={"version": 2} in its place)')
    if trainer.args.auto_find_batch_size:
        problems.append("auto_find_batch_size may begin the training again with other batches")
    if problems:
        raise UsageError(
            f"this Trainer cannot be resumed by Spotkeep: {'; '.join(problems)}. Use its own checkpoints "
            "(save_strategy, resume_from_checkpoint) and report them with spotkeep.report_saved"
        )
