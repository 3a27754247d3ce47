"""The measured training, with an AdamW-like state of 72 tensors that each step changes in place."""

from __future__ import annotations

from importlib import import_module
from typing import Any

torch: Any = import_module("torch")
"""Imported by name, so that the strict types of a checkout without the torch extra stay checked."""

_LAYERS = 8
_NORM_ELEMENTS = 4096
_BYTES_PER_ELEMENT = 4


class Workload:
    """The state of 24 parameters with both moments, large ones and tiny ones, as in a transformer.

    Args:
        state_bytes: Size of the state in bytes, exact to a part in a thousand.
    """

    def __init__(self, *, state_bytes: int) -> None:
        per_layer = state_bytes // (3 * _LAYERS * _BYTES_PER_ELEMENT)
        sizes = {
            "attention.weight": (per_layer - _NORM_ELEMENTS) // 3,
            "feed_forward.weight": (per_layer - _NORM_ELEMENTS) * 2 // 3,
            "norm.weight": _NORM_ELEMENTS,
        }
        torch.manual_seed(0)
        self.parameters, self.first_moments, self.second_moments = (
            {f"layers.{layer}.{name}": torch.rand(count) for layer in range(_LAYERS) for name, count in sizes.items()}
            for _ in range(3)
        )

    @property
    def state(self) -> dict[str, dict[str, Any]]:
        """The state as a script would name it."""
        return {
            "model": self.parameters,
            "first_moments": self.first_moments,
            "second_moments": self.second_moments,
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
        """Change every tensor in place."""
        for name, parameter in self.parameters.items():
            first, second = self.first_moments[name], self.second_moments[name]
            first.mul_(0.9).add_(parameter, alpha=0.1)
            second.mul_(0.999).addcmul_(parameter, parameter, value=0.001)
            parameter.mul_(0.9999).sub_(first, alpha=1e-4)
