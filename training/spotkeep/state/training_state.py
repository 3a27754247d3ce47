"""The state that a script gives to its Checkpointer, in two parts.

All ranks have the common part, and rank 0 writes it. Each rank has a part of its own beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotkeep.errors import StateError

from .encoding import EncodedState, encode_state
from .restoring import check_state
from .updated_tensors import UpdatedTensors


class TrainingState:
    """Names and live objects of one training.

    Args:
        common: Names and objects that are the same on all ranks.
        per_rank: Names and objects that each rank has for itself.
    """

    def __init__(self, common: Mapping[str, Any], per_rank: Mapping[str, Any]) -> None:
        self.common = common
        self.per_rank = per_rank
        self._updated = UpdatedTensors(common, per_rank)

    @property
    def whole(self) -> dict[str, Any]:
        """Both parts in one dictionary."""
        return {**self.common, **self.per_rank}

    def check(self) -> bool:
        """Refuse a state that no checkpoint could hold. Gives true when reading a checkpoint overwrites memory of it.

        Raises:
            StateError: If an entry cannot be saved or restored, or an optimizer updates a tensor of no entry.
        """
        holds_arrays = check_state(self.common) | check_state(self.per_rank)
        self.require_updated_tensors()
        return holds_arrays

    def require_updated_tensors(self) -> None:
        """Refuse optimizers of tensors outside the state. A script may add groups and unfreeze layers at any step.

        Raises:
            StateError: Naming them.
        """
        problems = self._updated.problems()
        if problems:
            raise StateError(problems)

    def encode(self) -> EncodedState:
        """Encode both parts as one state.

        Raises:
            StateError: If an entry cannot be saved.
        """
        self.require_updated_tensors()
        return encode_state(self.whole)

    def encode_common(self) -> EncodedState:
        """Encode the common part."""
        return encode_state(dict(self.common))

    def encode_per_rank(self) -> EncodedState:
        """Encode the part of this rank."""
        return encode_state(dict(self.per_rank))
