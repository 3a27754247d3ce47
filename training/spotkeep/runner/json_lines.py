"""A connection between two machines of a run, on which each message is a line of JSON."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Mapping
from typing import Any

_SEND_SECONDS = 5.0
_MOST_BYTES = 16 * 1024
_PIECE = 4096
_CLOSE_SECONDS, _MOST_PIECES = 1.0, 100


class JsonLines:
    """The connection to another machine.

    Attributes:
        connection: The socket.
        heard_at: The time at which something came last, by the monotonic clock in seconds.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(_SEND_SECONDS)
        self.connection = connection
        self.heard_at = time.monotonic()
        self._received = b""

    def messages(self) -> list[Mapping[str, Any]]:
        """Receive what has come.

        Raises:
            OSError, ValueError, RecursionError: The connection is over, or its other end sends something else.
        """
        piece = self.connection.recv(_PIECE)
        if not piece:
            raise ConnectionResetError("the other end has closed it")
        self.heard_at = time.monotonic()
        *lines, self._received = (self._received + piece).split(b"\n")
        if len(self._received) > _MOST_BYTES:
            raise ValueError("a line is too long")
        found = [json.loads(line) for line in lines]
        if not all(isinstance(each, dict) for each in found):
            raise ValueError("a line is no JSON object")
        return found

    def close(self) -> None:
        """Close the connection after its other end has read all. A reset would take unread messages away."""
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(_CLOSE_SECONDS)
            for _ in range(_MOST_PIECES):
                if not self.connection.recv(_PIECE):
                    break
        self.connection.close()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message. A connection that is over shows it when it is read."""
        with contextlib.suppress(OSError):
            self.connection.sendall(json.dumps(message).encode("ascii") + b"\n")
