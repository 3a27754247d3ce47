"""The measured training, a model and torch's AdamW. A step changes 72 tensors in place, at its end alone."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

torch: Any = import_module("torch")
"""Imported by name, so that the strict types of a checkout without the torch extra stay checked."""

_LAYERS = 8
_NORM_ELEMENTS = 4096
_BYTES_PER_ELEMENT = 4
_BATCH = 8


class Workload:
    """A training of 24 parameters with both moments, large ones and tiny ones, as in a transformer.

    A step is a forward pass, a backward pass and a step of the optimizer.

    Args:
        state_bytes: Size of the state in bytes, exact to a part in a thousand.

    Attributes:
        live: The objects of the training, as a script passes them.
    """

    def __init__(self, *, state_bytes: int) -> None:
        per_layer = state_bytes // (3 * _LAYERS * _BYTES_PER_ELEMENT)
        sizes = ((per_layer - _NORM_ELEMENTS) // 3, (per_layer - _NORM_ELEMENTS) * 2 // 3, _NORM_ELEMENTS)
        torch.manual_seed(0)
        self._parameters = torch.nn.ParameterList(torch.rand(count) for _ in range(_LAYERS) for count in sizes)
        self._optimizer = torch.optim.AdamW(self._parameters.parameters(), 1e-4)
        self._batch = torch.rand(_BATCH, math.isqrt(max(sizes)))
        self.live: dict[str, Any] = {"model": self._parameters, "optimizer": self._optimizer}
        self.take_step()

    @property
    def state(self) -> dict[str, dict[str, Any]]:
        """The tensors of the state, by the groups that a script would name."""
        values = [self._optimizer.state[parameter] for parameter in self._parameters]
        return {
            "model": {f"{index}": parameter.data for index, parameter in enumerate(self._parameters)},
            "first_moments": {f"{index}": value["exp_avg"] for index, value in enumerate(values)},
            "second_moments": {f"{index}": value["exp_avg_sq"] for index, value in enumerate(values)},
        }

    @property
    def flat_state(self) -> dict[str, Any]:
        """The same tensors under one level of names."""
        return {f"{group}.{name}": tensor for group, tensors in self.state.items() for name, tensor in tensors.items()}

    @property
    def state_bytes(self) -> int:
        """The exact size of the state in bytes."""
        return sum(tensor.nbytes for tensor in self.flat_state.values())

    def take_step(self) -> None:
        """Train on one batch."""
        self._optimizer.zero_grad()
        for parameter in self._parameters:
            width = math.isqrt(parameter.numel())
            out = self._batch[:, :width] @ parameter[: width * width].view(width, width)
            out.square().mean().backward()
        self._optimizer.step()
