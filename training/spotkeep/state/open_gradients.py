"""Gradients that are added up for a step of an optimizer that is not done yet. They are in no `state_dict`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from spotkeep.loaded import loaded

_FIRST_WARNING = 3

_logger = logging.getLogger("spotkeep")

# Steps of each torch optimizer of this process, by its first parameter: an optimizer around another one has its
# parameters. Counted from the first time on that there was an optimizer in a state.
_steps: dict[int, int] = {}
_counting: list[Any] = []


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

    def begin_batch(self) -> None:
        """Take note that a batch begins. Steps are counted from here on."""
        self._begun = True
        if loaded("torch") is not None:
            _count_steps()
            self._before = dict(_steps)

    def state_dict(self) -> dict[str, Any]:
        """Give the open gradients of each optimizer, None or a list with a gradient or None for each parameter."""
        return {"optimizers": [self._open(optimizer) for optimizer in self._optimizers()]}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Give the parameters the gradients that `state_dict` gave."""
        for optimizer, gradients in zip(self._optimizers(), saved["optimizers"]):
            for parameter, gradient in zip(_parameters(optimizer), gradients or ()):
                parameter.grad = None if gradient is None else gradient.to(parameter.device)

    def warn_if_lost(self) -> None:
        """Warn once when saves leave out open gradients.

        Not at the first, because a gradient scaler skips steps, the first ones above all. Not in a loop that only calls
        `save`, because it does not say where a batch begins.
        """
        if self._begun and self._lost < _FIRST_WARNING:
            optimizers = list(self._optimizers())
            idle = [optimizer for optimizer in optimizers if not self._has_stepped(optimizer)]
            with_gradients = any(parameter.grad is not None for one in idle for parameter in _parameters(one))
            self._lost += bool(optimizers) and len(idle) == len(optimizers) and with_gradients
            if self._lost == _FIRST_WARNING:
                _logger.warning(
                    "the state was saved %d times where no optimizer had done a step with the gradients that were "
                    "there. Gradients that are added up over several steps are not in a checkpoint, and a resume would "
                    "lose them: count a step when the optimizer does one, or use ResumableTraining, which saves them",
                    self._lost,
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


def _key(optimizer: Any) -> int:
    """Give the identity of the first parameter, which an optimizer shares with a wrapper around it."""
    return next((id(parameter) for group in optimizer.param_groups for parameter in group["params"]), 0)


def _parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
