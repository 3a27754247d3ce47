"""Copies of the checkpoints of a run whose nodes have them in one folder of a file system.

All ranks write into the folder, so a world goes on from the newest checkpoint there, whether S3 has it or not. The
leader's agent alone copies to S3, as that of a machine with a disk of its own. Where S3 has a newer checkpoint, the
leader brings it into the folder.

A world that was replaced may write on for a while. The next leader leaves a note of a writer in the folder and in S3,
before its ranks start. From then on no reader takes a later step of the former world, and S3 takes none.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Callable, ClassVar

from spotkeep.errors import DamagedCheckpointError
from spotkeep.remote.remote_checkpoints import RemoteCheckpoints
from spotkeep_agent.errors import InputError

from .node_copies import NodeCopies

_logger = logging.getLogger("spotkeep.agent")


class SharedCopies(NodeCopies):
    """Copies of the checkpoints of a run in one folder, as one of its nodes makes them. The nodes send no files."""

    next_world_needs_s3: ClassVar[bool] = False

    _chosen_among: Sequence[int] = ()

    def newest_whole(self, *, before: int | None = None) -> int | None:
        """Find the step of the newest whole checkpoint in the folder and in S3, by the rule of its writers.

        Args:
            before: A step that a node cannot read. An older one is looked for. None for the newest of all.

        Returns:
            The step, or None without a checkpoint.

        Raises:
            CheckpointError: If S3 cannot be read.
            InputError: If S3 has checkpoints, none of them can be used, and the folder has none.
            OSError: If the folder cannot be read.
        """
        self._fetched.learn_writers()
        self._chosen_among = self._directory.steps()
        here = [step for step in self._chosen_among if before is None or step < before][:1]
        try:
            in_s3 = super().newest_whole(before=before)
        except InputError:
            if not here:
                raise
            in_s3 = None
        return max([*here, *([] if in_s3 is None else [in_s3])], default=None)

    def bring(self, step: int | None, *, nodes: int, leads: bool) -> None:
        """Bring the checkpoint that a world goes on from, on the leader's node, where the folder has no whole one.

        Args:
            step: The step that the leader names. None where the run begins.
            nodes: Number of nodes of the world.
            leads: True on the leader's node.

        Raises:
            TransferCancelledError: If `cancelled` was set.
            DamagedCheckpointError: If neither the checkpoint in the folder nor that in S3 is whole. The leader names an
                older one then.
            CheckpointError: If S3 cannot be read, or the file system refuses.
            OSError: If the file system cannot be read or written.
        """
        self._leads = leads
        self._reset(step=None)
        self._begin(self._files_to_send(nodes))
        if leads:
            if not self._directory.steps():
                # Before the checkpoint, which shows that nothing is lost.
                self._files.forget()
                self._files.restore(cancelled=self._cancelled, on_brought=self._count_brought)
            self._files.take_over()
            if step is not None:
                self._bring_whole(step)
        self._is_sending = True

    def _bring_whole(self, step: int) -> None:
        """Verify a checkpoint in the folder. Where it is missing or damaged, S3 has another copy.

        The ranks would pass over damage, and begin anew where the whole folder is damaged.
        """
        try:
            self._directory.verify(step, on_file=self._count_brought)
        except DamagedCheckpointError as error:
            if step in self._directory.steps():
                _logger.warning("the checkpoint of step %d in the folder is damaged: %s", step, error)
            self._fetched.fetch(step, cancelled=self._cancelled, on_brought=self._count_brought)

    def claim(self, lock: tuple[int, int], *, step: int | None) -> None:
        """Leave a note in the folder and in S3 that a world goes on from its newest checkpoint, before its ranks start.

        Until then a world that has lost the lease may save in the folder, and remove the step that was chosen.

        Args:
            lock: The attempt, and the fence of the lease.
            step: The step that all nodes have brought.

        Raises:
            DamagedCheckpointError: If the checkpoint is gone. The next world asks for the newest one again.
            LockLostError: If a later world has begun.
            RemoteError: If S3 refuses.
            SaveError: If the file system refuses.
        """
        newest = max((each for each in self._directory.steps() if each not in self._chosen_among), default=step)
        super().claim(lock, step=newest)
        if newest is not None and newest not in self._directory.steps():
            raise DamagedCheckpointError(self._directory.name(newest), "a world without the lease has removed it")

    def start(self) -> None:
        """Begin to copy, on the leader's node. The last world may have left its newest checkpoint to this one."""
        super().start()
        newest = self.newest_here()
        if self._leads and newest is not None:
            self.offer(newest)

    def finish(self, seconds_left: Callable[[], float], *, exit_code: int | None, goes_on: bool) -> bool:
        """Wait for the copies of a world up to a limit, on the leader's node. Return True when all have arrived.

        Args:
            seconds_left: The function that gives the seconds left, called again and again.
            exit_code: The script's exit code, or None when it was killed.
            goes_on: True when the run goes on, which leaves older missing copies out.
        """
        if self._leads:
            return super().finish(seconds_left, exit_code=exit_code, goes_on=goes_on)
        self._is_sending = False
        self._upload.stop()
        return True

    def _files_to_send(self, nodes: int) -> RemoteCheckpoints:
        """Give the uploads of a world, which are whole checkpoints."""
        del nodes
        return super()._files_to_send(1)
