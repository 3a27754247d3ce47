"""A node that is not the leader. It does as the leader says, and lets it know how its own training ends."""

from __future__ import annotations

import logging
import queue
from typing import Callable

from spotkeep_fleet.record import LONGEST_FAILURE

from .connections import LeaderConnection, Lost, Said
from .decisions import NodeEnd
from .world import Ending, World

_logger = logging.getLogger("spotkeep.agent")


class Following:
    """The leader, as another node has it. `sent` may be called from other threads.

    Attributes:
        begun: The next world of this node, as the leader has formed it. None while it waits.
        over: The reason why there is nothing more to train, or None.
        lost: The end of the connection, once the leader is gone. None before.

    Args:
        connection: The connection to the leader.
        on_ask: Called with the folder of a checkpoint of which this node shall send its files.
        on_copied: Called when the leader asks for no more files of the world, or is gone.
    """

    def __init__(
        self, connection: LeaderConnection, *, on_ask: Callable[[str], None], on_copied: Callable[[], None]
    ) -> None:
        self.begun: World | None = None
        self.over: str | None = None
        self.lost: Lost | None = None
        self._connection = connection
        self._on_ask, self._on_copied = on_ask, on_copied
        self._ended_fence = 0

    def ready(self) -> None:
        """Let the leader know that this node waits for a world."""
        self._connection.send({"ready": True})

    def brought(self, fence: int) -> None:
        """Let the leader know that this node has the checkpoint of a world."""
        self._connection.send({"brought": fence})

    def unusable(self, step: int) -> None:
        """Let the leader know that this node cannot bring a step, because its files in S3 are damaged."""
        self._connection.send({"unusable": step})

    def sent(self, step: int) -> None:
        """Let the leader know that this node has sent its files of a checkpoint, as far as it can."""
        self._connection.send({"sent": step})

    def ended(self, end: NodeEnd) -> None:
        """Let the leader know how the training of this node has ended."""
        given = {"kind": end.kind, "code": end.exit_code, "text": end.failure[:LONGEST_FAILURE]}
        self._connection.send({"ended": given})

    def refuse(self, failure: str) -> None:
        """Let the leader know that the input works on no node."""
        self._connection.send({"refused": failure[:LONGEST_FAILURE]})

    def leave(self, *, why: str, failed: bool, taken: bool) -> None:
        """Let the leader know that this node leaves, and end the connection.

        Args:
            why: The reason, for people.
            failed: True when a person should check a fault.
            taken: True when EC2 takes this instance.
        """
        self._connection.send({"leaving": {"why": why[:LONGEST_FAILURE], "failed": failed, "taken": taken}})
        self._connection.close()

    def ending(self, world: World) -> Ending | None:
        """Return a reason to end the training of this node in a world."""
        if self.over is not None:
            return Ending(self.over)
        if self.lost is not None:
            return Ending("the leader is gone")
        if self.begun is not None or self._ended_fence >= world.fence:
            return Ending("the leader has ended the world")
        return None

    def take_in(self) -> None:
        """Take in the messages, and the end of the connection."""
        while self.lost is None:
            try:
                happened = self._connection.happened.get_nowait()
            except queue.Empty:
                return
            if isinstance(happened, Lost):
                self.lost, self.begun = happened, None
                _logger.warning("the leader %s is gone: %s", happened.instance, happened.why)
                self._connection.close()
                self._on_copied()
            elif isinstance(happened, Said):
                try:
                    self._hear(happened)
                except (ValueError, KeyError, TypeError, OverflowError) as error:
                    _logger.warning("a message of the leader cannot be understood: %s", error)

    def _hear(self, said: Said) -> None:
        message = said.message
        if "begin" in message:
            given = message["begin"]
            self.begun = World(
                fence=int(given["fence"]),
                hosts=tuple(str(each) for each in given["hosts"]),
                place=int(given["place"]),
                step=None if given["step"] is None else int(given["step"]),
            )
        elif "send" in message:
            self._on_ask(str(message["send"]))
        elif "end" in message:
            self._ended_fence = max(self._ended_fence, int(message["end"]))
        elif "copied" in message:
            self._on_copied()
        elif "over" in message:
            self.over = str(message["over"])
