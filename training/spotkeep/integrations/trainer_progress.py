"""The positions of Hugging Face's Trainer and its callbacks, as a part of the state of the `Checkpointer`.

With another number of ranks the position is counted in samples of all ranks. Trainer gives rank r of n the batches r,
r + n, r + 2n, ... of one common order. So the samples that n ranks have done are a beginning of that order. Another
number of ranks goes on behind them.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable

from transformers.trainer_callback import ExportableState

from spotkeep.loops.order_memory import OrderMemory
from spotkeep.loops.pass_digest import PassDigest, index_bytes
from spotkeep.loops.places_of_ranks import DEALT, Division, SavedPlace
from spotkeep.loops.torch_batches import KeyedIndex, require_order_of
from spotkeep.state.restoring import TakesEffectLater

from .callback_states import has_state, state_of_ranks, warn_of

_logger = logging.getLogger("spotkeep")


@dataclass(frozen=True)
class Epoch:
    """An epoch of Trainer, where a pass over a stream is one.

    Attributes:
        number: Its number, from 0.
        first_step: The steps before it.
        random: The random states at its beginning.
        order: Other facts that decided the order of its data then.
    """

    number: int
    first_step: int = 0
    random: dict[str, Any] = field(default_factory=dict)
    order: dict[str, Any] = field(default_factory=dict)


class KeyedBatches:
    """Stands for a batch sampler, and gives each batch of indices a key for its random numbers."""

    def __init__(self, batches: Any, key: Callable[[], bytes], begins: Callable[[Any], None]) -> None:
        self._batches = batches
        self._key = key
        self._begins = begins
        self._digest = PassDigest()
        self._ahead: deque[bytes] = deque()

    def digest(self, count: int) -> PassDigest:
        """Give the digest of the first batches of this pass, of fewer if there were fewer."""
        while self._ahead and self._digest.count < count:
            self._digest.add(self._ahead.popleft())
        return self._digest

    def __len__(self) -> int:
        return len(self._batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)

    def __iter__(self) -> Iterator[KeyedIndex]:
        key = self._key()
        self._begins(self._batches)
        self._digest = PassDigest()
        self._ahead.clear()
        for number, index in enumerate(self._batches):
            self._ahead.append(index_bytes(index))
            yield KeyedIndex(key=b"%s %d" % (key, number), index=index)


class TrainerProgress(TakesEffectLater):
    """The positions of Trainer and its callbacks, as a part of the state.

    Args:
        trainer: The Trainer.
        ours: The library's own callback, which has no state.

    Attributes:
        epoch: The current epoch.
        epoch_is_over: All its batches are done.
        order: Finds the facts that decide the order of the data.
        batches: Gives the indices of its batches, and is None for a stream.
        owed: Work of this step that was put off because of a notice, an evaluation and the save that follows it.
        finished: The training has come to its end.
        steps_changed: The training has begun with other samples a step, and so with other steps an epoch.
        restored: The state that was restored, if any.
        callbacks: The states of callbacks.
    """

    def __init__(self, trainer: Any, *, ours: Any) -> None:
        self._trainer = trainer
        self.callbacks = _CallbackStates(trainer, ours=ours)
        self.epoch = Epoch(0)
        self.epoch_is_over = False
        self.order = OrderMemory({})
        self.batches: KeyedBatches | None = None
        self.owed: list[str] = []
        self.finished = False
        self.steps_changed = False
        self.restored: dict[str, Any] | None = None
        self._passed_over: dict[str, Any] | None = None
        self._place_of_others: SavedPlace | None = None

    def put_back(self) -> None:
        """Put back what Trainer and other callbacks have set anew since the restore, as the training begins."""
        if self.restored is not None:
            self.callbacks.load_state_dict(self.restored["callbacks"])
            self._trainer._tr_loss.copy_(self.restored["loss"])
            self._trainer._globalstep_last_logged = self.restored["logged_step"]

    def require_same_batches(self) -> None:
        """Compare the batches that were passed over with those that were trained on."""
        saved, self._passed_over = self._passed_over, None
        if saved is not None and self.batches is not None:
            digest = self.batches.digest(saved["count"])
            if digest.count == saved["count"]:  # else there was none left in the epoch, and nothing was passed over
                digest.require_same(saved["digest"], name="loader of the training data")

    def pass_begins(self, batches: Any) -> None:
        """Compare the order of a batch sampler with that of another number of ranks, where this is their pass."""
        place, self._place_of_others = self._place_of_others, None
        if place is not None and not getattr(batches, "split_batches", False):
            name = f"loader of the training data, with another number of ranks than {place.division.replicas},"
            require_order_of(place, batches, self.order, name=name)

    def _digest(self) -> dict[str, Any] | None:
        if self.batches is None or self.epoch_is_over:
            return None
        trainer = self._trainer
        steps = trainer.state.global_step - self.epoch.first_step
        digest = self.batches.digest(steps * trainer.args.gradient_accumulation_steps)
        batch = trainer.args.train_batch_size
        return {"count": digest.count, "digest": digest.state_dict(), "batch": batch} if digest.count else None

    def state_dict(self) -> dict[str, Any]:
        """Give the positions, and the facts that another number of ranks needs to go on."""
        trainer, epoch = self._trainer, self.epoch
        if self.epoch_is_over:
            order = self.order.capture(large=True)
            epoch = Epoch(epoch.number + 1, first_step=trainer.state.global_step, random=epoch.random, order=order)
        self.callbacks.warn_of_others()
        return {
            "state": json.dumps(dataclasses.asdict(trainer.state)),
            "epoch": vars(epoch),
            "batches": self._digest(),
            "samples_a_step": self._samples_a_step(),
            "steps_changed": self.steps_changed,
            "owed": self.owed,
            "finished": self.finished,
            "callbacks": self.callbacks.state_dict(),
            # What was lost and not logged yet.
            "loss": trainer._tr_loss,
            "logged_step": trainer._globalstep_last_logged,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the state that `state_dict` gave on this rank."""
        self.restored = state
        self._passed_over = state["batches"]
        self.epoch = Epoch(**state["epoch"])
        for name in ("owed", "finished", "steps_changed"):
            setattr(self, name, state[name])
        self.callbacks.load_state_dict(state["callbacks"])

    def load_rank_states(self, states: Sequence[dict[str, Any]], *, rank: int, world_size: int) -> None:
        """Take the states of another number of ranks.

        Rank 0's position is that of all, because they make the same steps. A callback has the same state on all, or
        takes the states of all itself.

        Raises:
            ValueError: No step of these ranks ends at the position, or a callback's state differs from rank to rank.
        """
        first = states[0]
        epoch = Epoch(**first["epoch"])
        steps = json.loads(first["state"])["global_step"]
        samples = (steps - epoch.first_step) * first["samples_a_step"]
        done, more = divmod(samples, self._samples_a_step())
        if more:
            raise ValueError(
                f"{samples} samples of epoch {epoch.number} are done, and steps of {self._samples_a_step()} on "
                f"{world_size} ranks do not end there, so samples would come twice. Start {len(states)} ranks, or let "
                f"a step have {first['samples_a_step']} samples as before, by per_device_train_batch_size and "
                "gradient_accumulation_steps (`spotkeep help exact-data`)"
            )
        if first["samples_a_step"] != self._samples_a_step() and rank == 0:
            _logger.warning(
                "a step had %d samples, and has %d with %d ranks from here on",
                *(first["samples_a_step"], self._samples_a_step(), world_size),
            )
        if rank == 0 and first["batches"] is not None:
            self._place_of_others = _place_in(first["batches"], samples=samples)
        self.load_state_dict(
            {
                **first,
                "epoch": vars(dataclasses.replace(epoch, first_step=steps - done)),
                "batches": None,  # each rank has other ones now
                "steps_changed": first["steps_changed"] or first["samples_a_step"] != self._samples_a_step(),
                "callbacks": self.callbacks.of_other_ranks(
                    [state["callbacks"] for state in states], rank=rank, world_size=world_size
                ),
                "loss": sum(state["loss"] for state in states) / len(states),  # logged is the mean of the ranks
            }
        )

    def _samples_a_step(self) -> int:
        samples: int = self._trainer.get_total_train_batch_size(self._trainer.args)
        return samples


def _place_in(saved: dict[str, Any], *, samples: int) -> SavedPlace:
    """Give the place of the ranks that have trained on so many samples of an epoch."""
    count, batch = saved["count"], saved["batch"]
    division = Division(DEALT, batch, samples // (count * batch), turns="batches")
    return SavedPlace((count,), None, division, (saved["digest"],))


class _CallbackStates:
    """The states of callbacks between steps, by `state_dict`, or by the `state` that Trainer itself knows.

    Args:
        trainer: The Trainer.
        ours: The library's own callback, which is left out.
    """

    def __init__(self, trainer: Any, *, ours: Any) -> None:
        self._handler = trainer.callback_handler
        self._ours = ours
        self._warned_of: set[str] = set()

    def state_dict(self) -> list[Any]:
        return [
            [
                type(callback).__name__,
                callback.state_dict() if has_state(callback) else callback.state()["attributes"],
            ]
            for callback in self._with_state()
        ]

    def load_state_dict(self, states: list[Any]) -> None:
        saved, here = [name for name, _ in states], [type(callback).__name__ for callback in self._with_state()]
        if saved != here:
            raise ValueError(f"the run that saved it had the callbacks {saved}, this one has {here}")
        for callback, (_, state) in zip(self._with_state(), states):
            if has_state(callback):
                callback.load_state_dict(state)
            else:
                for name, value in state.items():
                    setattr(callback, name, value)

    def of_other_ranks(self, states: Sequence[list[Any]], *, rank: int, world_size: int) -> list[Any]:
        """Give the states for this rank that other ranks have saved.

        Raises:
            ValueError: A state differs from rank to rank.
        """
        return [
            [name, state_of_ranks(callback, [state[number][1] for state in states], rank=rank, world_size=world_size)]
            for number, (callback, (name, _)) in enumerate(zip(self._with_state(), states[0]))
        ]

    def warn_of_others(self) -> None:
        """Name once each callback of the script's own with attributes that are not saved."""
        for callback in self._handler.callbacks:
            kind = type(callback)
            known = callback is self._ours or kind.__module__.partition(".")[0] == "transformers"
            if known or not vars(callback) or callback in self._with_state() or kind.__qualname__ in self._warned_of:
                continue
            self._warned_of.add(kind.__qualname__)
            warn_of(callback)

    def _with_state(self) -> list[Any]:
        return [
            callback
            for callback in self._handler.callbacks
            if has_state(callback) or isinstance(callback, ExportableState)
        ]
