"""The ranks of a training, as one of them sees them, with messages, agreement, and the directory that all write.

A training of one process is a group of one. The modules above ask the group. None of them chooses another way of
writing by the number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.errors import StateError, UsageError
from spotkeep.state.encoding import EncodedState
from spotkeep.state.training_state import TrainingState

from .comparison import RankComparison
from .distributed import join_ranks, together
from .joinables import Joinables
from .shared_directory import SharedDirectory


class RankGroup:
    """This process and the other ranks of its training. Making it is collective, so every rank makes one.

    Attributes:
        rank: The number of this process, from 0.
        world_size: The number of ranks, 1 for a training of one process.
        is_one_process: True for a training of one process.
        is_first: True on rank 0, which reports, uploads and removes for all.
        directory: The checkpoints of the training. With several ranks every rank takes part in each write.

    Args:
        path: The folder of the checkpoints.

    Raises:
        UsageError: If the ranks cannot meet, or their folders are different ones.
    """

    def __init__(self, path: Path) -> None:
        channels = join_ranks()
        self._training = channels.training
        self.rank = self._training.rank
        self.world_size = self._training.world_size
        self.is_one_process = self.world_size == 1
        self.is_first = self.rank == 0
        self._joinables = Joinables()
        self._searches_left = 0
        self._comparison = RankComparison(self._training, self._joinables)
        self.directory = (
            CheckpointDirectory(path) if self.world_size == 1 else SharedDirectory(path, ranks=channels.writing)
        )

    def together(self, act: Callable[[], Any]) -> list[Any]:
        """Do something on every rank. It succeeds on all of them, or fails on all of them.

        Returns:
            The answer of each rank, a JSON value.

        Raises:
            OtherRankError: If it went wrong on another rank only.
            RankLostError: If a rank is gone.
        """
        return together(self._training, act)

    def exchange(self, message: Any) -> list[Any]:
        """Send a JSON value to all ranks, and give the values of all in their order.

        Raises:
            RankLostError: If a rank is gone.
        """
        return self._training.exchange(message)

    def largest(self, numbers: Sequence[int]) -> list[int]:
        """Give the largest number of all ranks in each place. It costs little enough for every step.

        Raises:
            RankLostError: If a rank is gone.
        """
        return self._training.largest(numbers)

    def encode(self, state: TrainingState) -> EncodedState:
        """Encode the bytes that this rank writes. Every rank must call it.

        Raises:
            StateError: If an entry cannot be saved.
            OtherRankError: If an entry of another rank cannot.
            RankLostError: If a rank is gone.
        """
        if self.is_one_process:
            return state.encode()

        def encode_parts() -> tuple[EncodedState, EncodedState]:
            state.require_updated_tensors()
            self._require_state_of_wrappers(state)
            return state.encode_common(), state.encode_per_rank()

        return self._comparison.encode(encode_parts)

    def check(self, state: TrainingState) -> bool:
        """Refuse a state that this group could not save, as `TrainingState.check` does.

        Raises:
            StateError: If an entry cannot be saved or restored, or a wrapper keeps state that no entry holds.
            UsageError: If this process is in a block of `model.join()`.
        """
        if not self.is_one_process:
            self._joinables.find()
            self.require_common_steps()
            self._require_state_of_wrappers(state)
        return state.check()

    def expect_new_wrappers(self) -> None:
        """Search for wrappers once more before the next step, because a framework makes them after the restore."""
        self._searches_left = 1

    def require_common_steps(self) -> None:
        """Refuse a block of `model.join()`, in which a rank without batches takes part in no save.

        Raises:
            UsageError: If this process is in such a block, and there are other ranks.
        """
        if self.is_one_process:
            return
        if self._searches_left:
            self._searches_left = 0
            self._joinables.find()
        if self._joinables.joining:
            raise UsageError(
                "this training is in a block of join(), in which ranks may have different numbers of batches: a rank "
                "without any waits in it, and does not take part in a save. Give all ranks as many batches, with a "
                "DistributedSampler (it fills up) or drop_last=True, and leave join() out"
            )

    def _require_state_of_wrappers(self, state: TrainingState) -> None:
        problems = self._joinables.problems(state.common, state.per_rank)
        if problems:
            raise StateError(problems)
