"""Hugging Face's Trainer, so that an interruption costs it one step at most.

Trainer's own checkpoints stop the training while they are written and are lost when the machine goes meanwhile. Here
the `Checkpointer` holds everything: model, optimizer, schedule, gradient scaler, random states, and where the Trainer
and its callbacks are. It restores before Trainer begins, into memory; then it is known which step is the newest good
one, in S3 too. To go on inside an epoch Trainer's own way is used (`resume_from_checkpoint`): it is given a directory
that tells it where it was, and the state is put into its objects once it has built them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable

from spotkeep.checkpointer import Checkpointer
from spotkeep.errors import UsageError
from spotkeep.state.random_states import RandomStates, capture_random_states, restore_random_states
from spotkeep.state.restoring import check_state, restore_state

try:
    import torch
    from transformers import TrainerCallback
    from transformers.trainer_callback import ExportableState
    from transformers.trainer_utils import TrainOutput

    from spotkeep.loops.torch_batches import KeyedCollate, KeyedDataset, KeyedIndex
except ImportError as error:
    raise ImportError(
        f"spotkeep.integrations.transformers needs Hugging Face's Trainer: install 'transformers[torch]>=5' ({error})"
    ) from error

_logger = logging.getLogger("spotkeep")


def train_resumably(trainer: Any, **options: Any) -> Any:
    """Call this instead of `trainer.train()`: it goes on where an earlier attempt was interrupted.

    On a notice the state is saved after the current step and the script exits with code 75. Trainer's own checkpoints
    are written as they are configured; `save_strategy="no"` saves their time. Until the training begins, a restored
    state takes memory once more, as the copy does that is saved from later on.

    Args:
        trainer: A `transformers.Trainer`, ready to train, in one process or in each of several that torchrun started.
        **options: As for `Checkpointer`: `directory`, `every_steps`, `every_seconds`, `keep_last` and so on.

    Returns:
        What `trainer.train` returns.

    Raises:
        UsageError: If the Trainer trains in a way that cannot be resumed here.
        StateMismatchError: If a good checkpoint does not fit what Trainer has built.
        SystemExit: With code 75, after a notice; with 0, after the step to pause at.
    """
    _require_supported(trainer)
    _switch_jit_checkpoint_off(trainer)
    names = ("model", "optimizer", "scheduler", "scaler")
    state: dict[str, Any] = {
        name: _Restored() for name in names if name != "scaler" or trainer.accelerator.scaler is not None
    }
    own: dict[str, Any] = {"random": _Restored(), "trainer": _Restored()}
    if trainer.args.world_size == 1:
        state.update(own)
        parts = [state]
    else:
        parts = [state, own]
        options["per_rank"] = own
    get_train_dataloader = trainer.get_train_dataloader
    with ExitStack() as stack:
        checkpointer = stack.enter_context(Checkpointer(state, **options))
        callback = _CheckpointCallback(trainer, checkpointer, parts)
        trainer.add_callback(callback)
        stack.callback(trainer.remove_callback, callback)
        trainer.get_train_dataloader = lambda: callback.keyed(get_train_dataloader())
        stack.callback(delattr, trainer, "get_train_dataloader")
        # Trainer would load weights from the directory that it is given, before the objects around them exist.
        trainer._load_from_checkpoint = lambda *_, **__: None
        stack.callback(delattr, trainer, "_load_from_checkpoint")
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spotkeep-")))
        try:
            return trainer.train(resume_from_checkpoint=callback.place(scratch))
        except _DoneBeforeError as done:
            return done.output


def _switch_jit_checkpoint_off(trainer: Any) -> None:
    """Take out Trainer's own answer to SIGTERM: it would end the training as if it were done."""
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


class _Restored:
    """Keeps what was restored for an object that Trainer has not built yet."""

    def __init__(self) -> None:
        self.state: Any = None

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Any) -> None:
        self.state = state


class _CheckpointCallback(TrainerCallback):
    """Saves between two steps, when all that belongs to the first is done: logging, evaluation.

    Args:
        trainer: The Trainer.
        checkpointer: Has restored what there is.
        parts: What it saves, of all ranks and of this one: `_Restored` until Trainer's objects take their places.
    """

    def __init__(self, trainer: Any, checkpointer: Checkpointer, parts: Sequence[dict[str, Any]]) -> None:
        self._trainer = trainer
        self._checkpointer = checkpointer
        self._parts = parts
        self._progress = _Progress(trainer)
        self._epoch = 0
        self._after_replay: dict[str, Any] | None = None

    def place(self, scratch: Path) -> str | None:
        """Give the directory that makes Trainer go on where the restored state was saved, None to begin."""
        progress = self._parts[-1]["trainer"].state
        if progress is None:
            return None
        (scratch / "trainer_state.json").write_text(progress["state"], encoding="utf-8")
        return str(scratch)

    def keyed(self, loader: Any) -> Any:
        """Make what a batch holds follow from the epoch and its number alone, however far ahead it is loaded."""
        inner = getattr(loader, "base_dataloader", loader)
        if inner.batch_sampler is not None:
            vars(inner).update(
                batch_sampler=_KeyedBatches(inner.batch_sampler, self._key),
                collate_fn=KeyedCollate(inner.dataset, inner.collate_fn),
                dataset=KeyedDataset(inner.dataset),
            )
        return loader

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        trainer, progress, step = self._trainer, self._progress, self._checkpointer.step
        built = {
            "model": trainer.model,
            "optimizer": trainer.optimizer,
            "scheduler": trainer.lr_scheduler,
            "scaler": trainer.accelerator.scaler,
            "random": RandomStates(),
            "trainer": progress,
        }
        goes_on = self._parts[-1]["trainer"].state is not None
        for part in self._parts:
            restored = {name: kept.state for name, kept in part.items()}
            part.update({name: built[name] for name in part})
            check_state(part)
            if goes_on:
                restore_state(part, restored, step=step)
        if self._checkpointer.noticed:
            self._checkpointer.leave()
        if progress.finished and step < state.max_steps:
            loss = next((entry["train_loss"] for entry in state.log_history[::-1] if "train_loss" in entry), 0.0)
            raise _DoneBeforeError(TrainOutput(step, loss, {}))
        if step:
            self._after_replay = capture_random_states()

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._epoch = int(state.epoch or 0)
        progress = self._progress
        if self._after_replay is not None and state.epoch != self._epoch:  # in the middle of the epoch
            # The order of the data is drawn once more as it was.
            restore_random_states(progress.epoch_random)
            return
        self._catch_up()
        progress.epoch_step, progress.epoch_random = state.global_step, capture_random_states()
        self._save_and_leave_if_due()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._catch_up()
        if state.global_step > self._progress.epoch_step:
            self._save_and_leave_if_due()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._checkpointer.complete_step(total_steps=state.max_steps)
        self._take_back_stop(state, control)
        self._save_before_evaluation(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._take_back_stop(state, control)
        self._save_before_evaluation(control)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        self._checkpointer.log(**{name: value for name, value in (logs or {}).items() if isinstance(value, float)})

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._progress.finished = True
        self._checkpointer.save_if_due(last=True)

    def _take_back_stop(self, state: Any, control: Any) -> None:
        """Let the training not end as if it were done where a callback of the script's ends it on a notice.

        The script leaves before the next step all the same. Ranks ask for notices together: here it is one process.
        """
        stops = control.should_training_stop and state.global_step < state.max_steps
        if stops and self._trainer.args.world_size == 1 and self._checkpointer.noticed:
            control.should_training_stop = False

    def _save_before_evaluation(self, control: Any) -> None:
        """Save on a notice before an evaluation, which may be long: the next attempt begins with it."""
        plateau = isinstance(self._trainer.lr_scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
        if self._checkpointer.noticed and control.should_evaluate and not plateau:
            self._progress.owes_evaluation = True
            self._save_and_leave_if_due()

    def _catch_up(self) -> None:
        """Go on from the very state that was saved, now that the data is where it was."""
        if self._after_replay is None:
            return
        restore_random_states(self._after_replay)
        self._after_replay = None
        if self._progress.owes_evaluation:
            self._progress.owes_evaluation = False
            self._trainer.evaluate()
            self._trainer.model.train()

    def _key(self) -> bytes:
        args = self._trainer.args
        key = (args.seed, args.data_seed, self._epoch, *([args.process_index] if args.world_size > 1 else []))
        return hashlib.blake2b(repr(key).encode(), digest_size=16).digest()

    def _save_and_leave_if_due(self) -> None:
        if self._checkpointer.save_if_due():
            self._checkpointer.leave()


class _KeyedBatches:
    """Stands for a batch sampler, and gives each batch of indices a key for its random numbers."""

    def __init__(self, batches: Any, key: Callable[[], bytes]) -> None:
        self._batches = batches
        self._key = key

    def __len__(self) -> int:
        return len(self._batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)

    def __iter__(self) -> Iterator[KeyedIndex]:
        key = self._key()
        for number, index in enumerate(self._batches):
            yield KeyedIndex(key=b"%s %d" % (key, number), index=index)


class _Progress:
    """Where Trainer and its callbacks are, as a part of the state.

    Attributes:
        epoch_step: The step that the current epoch began with.
        epoch_random: The random states it began with.
        owes_evaluation: Whether an evaluation of this step was put off because of a notice.
        finished: Whether the training has come to its end.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self.epoch_step = 0
        self.epoch_random: dict[str, Any] = {}
        self.owes_evaluation = False
        self.finished = False

    def state_dict(self) -> dict[str, Any]:
        trainer = self._trainer
        return {
            "state": json.dumps(dataclasses.asdict(trainer.state)),
            "epoch_step": self.epoch_step,
            "epoch_random": self.epoch_random,
            "owes_evaluation": self.owes_evaluation,
            "finished": self.finished,
            "callbacks": [[type(callback).__name__, callback.state()["attributes"]] for callback in self._exportable()],
            # What was lost and not logged yet.
            "loss": trainer._tr_loss,
            "logged_step": trainer._globalstep_last_logged,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch_step = state["epoch_step"]
        self.epoch_random = state["epoch_random"]
        self.owes_evaluation = state["owes_evaluation"]
        self.finished = state["finished"]
        exportable = self._exportable()
        if [type(callback).__name__ for callback in exportable] != [name for name, _ in state["callbacks"]]:
            raise ValueError(
                f"the run that saved it had the callbacks {[name for name, _ in state['callbacks']]}, this one has "
                f"{[type(callback).__name__ for callback in exportable]}"
            )
        for callback, (_, attributes) in zip(exportable, state["callbacks"]):
            for name, value in attributes.items():
                setattr(callback, name, value)
        self._trainer._tr_loss.copy_(state["loss"])
        self._trainer._globalstep_last_logged = state["logged_step"]

    def _exportable(self) -> list[Any]:
        return [
            callback for callback in self._trainer.callback_handler.callbacks if isinstance(callback, ExportableState)
        ]


def _require_supported(trainer: Any) -> None:
    problems = []
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        problems.append("DeepSpeed or FSDP divides its state")
    if trainer.args.auto_find_batch_size:
        problems.append("auto_find_batch_size may begin the training again with other batches")
    if problems:
        raise UsageError(
            f"this Trainer cannot be resumed by Spotkeep: {'; '.join(problems)}. Use its own checkpoints "
            "(save_strategy, resume_from_checkpoint) and report them with spotkeep.report_saved"
        )
