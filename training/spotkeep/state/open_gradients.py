"""Gradients that are added up for a step of an optimizer that is not done yet. They are in no `state_dict`."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from spotkeep.loaded import loaded

_FIRST_WARNING = 3
_IN_A_ROW = 2
"""Steps of an optimizer, one after the other, with gradients from an earlier batch. A gradient scaler skips one step
now and then, and the next step may have them too."""
_MOST_WATCHED = 8

_logger = logging.getLogger("spotkeep")

# Steps of each torch optimizer of this process, by its first parameter: an optimizer around another one has its
# parameters. Counted from the first time on that there was an optimizer in a state.
_steps: dict[int, int] = {}
_counting: list[Any] = []
_all: weakref.WeakSet[OpenGradients] = weakref.WeakSet()


class OpenGradients:
    """The open gradients of the optimizers in a state, as a part of that state.

    An optimizer that has done no step since the last batch began has gradients that its next step may add to. Where
    it has done one, the gradients that are there are not needed any more.

    Args:
        state: As for a `Checkpointer`. Optimizers of torch count, also in dictionaries, lists and wrappers.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._state = state
        self._before: dict[int, int] = {}
        self._begun = False
        self._lost = 0
        self._skipping_is_said = False
        self._loss_is_said = False
        self._earlier: dict[int, list[Any]] = {}  # gradients of earlier batches, until the optimizer's next step
        self._in_a_row: dict[int, int] = {}

    def begin_batch(self) -> None:
        """Take note that a batch begins. Steps are counted from here on."""
        self._begun = True
        if loaded("torch") is not None:
            _count_steps()
            _all.add(self)
            idle = [key for key, count in _steps.items() if self._before.get(key) == count]
            if idle and not self._loss_is_said:
                self._remember(idle)
            self._before = dict(_steps)

    def state_dict(self) -> dict[str, Any]:
        """Give the open gradients of each optimizer, None or a list with a gradient or None for each parameter."""
        return {"optimizers": [self._open(optimizer) for optimizer in self._optimizers()]}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Give the parameters the gradients that `state_dict` gave."""
        for optimizer, gradients in zip(self._optimizers(), saved["optimizers"]):
            for parameter, gradient in zip(_parameters(optimizer), gradients or ()):
                parameter.grad = None if gradient is None else gradient.to(parameter.device)

    def may_have_used_batch(self) -> bool:
        """Say if an optimizer may have used the newest batch. It has done a step since, or has gradients.

        True too where that cannot be seen, without optimizers and with a gradient scaler, which skips steps.
        """
        optimizers = list(self._optimizers())
        if not optimizers or any(hasattr(value, "get_scale") for value in self._state.values()):
            return True
        return any(map(self._has_stepped, optimizers)) or any(
            parameter.grad is not None for optimizer in optimizers for parameter in _parameters(optimizer)
        )

    def warn_if_lost(self) -> None:
        """Warn once when saves leave out open gradients, of an optimizer that adds them up or at the third such save.

        Not at the first, because a gradient scaler skips steps, the first ones above all. Not in a loop that only calls
        `save`, because it does not say where a batch begins.
        """
        if not self._begun or self._loss_is_said:
            return
        optimizers = list(self._optimizers())
        idle = [optimizer for optimizer in optimizers if not self._has_stepped(optimizer)]
        losing = [optimizer for optimizer in idle if any(one.grad is not None for one in _parameters(optimizer))]
        self._lost += bool(losing) and len(idle) == len(optimizers)
        if self._lost == _FIRST_WARNING or any(self._in_a_row.get(_key(optimizer)) for optimizer in losing):
            self._say_loss()

    def _remember(self, idle: list[int]) -> None:
        """Remember the gradients of optimizers that did no step in the last batch."""
        for optimizer in self._optimizers():
            key = _key(optimizer)
            if key in idle and key not in self._earlier:
                gradients = [parameter.grad for parameter in _parameters(optimizer) if parameter.grad is not None]
                self._earlier[key] = list(map(weakref.ref, gradients[:_MOST_WATCHED]))

    def _see_step(self, optimizer: Any) -> None:
        """Find out if a step has used gradients that were there before its batch began."""
        key = _key(optimizer)
        earlier = {id(gradient()) for gradient in self._earlier.pop(key, ()) if gradient() is not None}
        used = bool(earlier) and any(id(parameter.grad) in earlier for parameter in _parameters(optimizer))
        self._in_a_row[key] = self._in_a_row.get(key, 0) + 1 if used else 0
        if self._in_a_row[key] == _IN_A_ROW:
            self._say_loss()

    def _say_loss(self) -> None:
        if not self._loss_is_said:
            self._loss_is_said = True
            _logger.warning(
                "an optimizer adds up gradients over several steps of this loop. They are not in a checkpoint, so a "
                "resume between two steps of the optimizer loses them, and ends with other bits: count a step when the "
                "optimizer does one, or use ResumableTraining, which saves them"
            )

    def _open(self, optimizer: Any) -> list[Any] | None:
        if self._has_stepped(optimizer):
            return None
        gradients = [parameter.grad for parameter in _parameters(optimizer)]
        if all(gradient is None for gradient in gradients):
            return None
        torch = loaded("torch")
        dense = [type(gradient) is torch.Tensor and gradient.layout is torch.strided for gradient in gradients]
        if not all(is_dense or gradient is None for is_dense, gradient in zip(dense, gradients)):
            if not self._skipping_is_said:
                self._skipping_is_said = True
                _logger.warning(
                    "sparse or distributed gradients that are added up for a later step are not in a checkpoint: save "
                    "when the optimizer has done its step (batches_per_step)"
                )
            return None
        return gradients

    def _has_stepped(self, optimizer: Any) -> bool:
        key = _key(optimizer)
        return _steps.get(key, 0) > self._before.get(key, 0)

    def _optimizers(self) -> Iterator[Any]:
        torch = loaded("torch")
        if torch is not None:
            yield from _found(list(self._state.values()), torch.optim.Optimizer, depth=0)


def _found(value: Any, kind: type, *, depth: int) -> Iterator[Any]:
    if isinstance(value, kind):
        yield value
    elif isinstance(value, (list, tuple, dict)) and depth < 4:
        for item in value.values() if isinstance(value, dict) else value:
            yield from _found(item, kind, depth=depth + 1)
    elif isinstance(getattr(value, "optimizer", None), kind) and hasattr(value, "param_groups"):
        yield value.optimizer


def _count_steps() -> None:
    register = getattr(loaded("torch.optim.optimizer"), "register_optimizer_step_post_hook", None)
    if register is not None and not _counting:
        _counting.append(register(_stepped))


def _stepped(optimizer: Any, *_: Any) -> None:
    key = _key(optimizer)
    _steps[key] = _steps.get(key, 0) + 1
    for gradients in list(_all):
        gradients._see_step(optimizer)


def _key(optimizer: Any) -> int:
    """Give the identity of the first parameter, which an optimizer shares with a wrapper around it."""
    return next((id(parameter) for group in optimizer.param_groups for parameter in group["params"]), 0)


def _parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
