"""Sends requests that can be broken off: who waits for the network when a notice comes shall not wait on."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Mapping

from spotkeep_agent.errors import AwsUnavailableError
from spotkeep_fleet.signed_fetch import send


class BreakableTransport:
    """A transport of `AwsCalls`. Several threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may break off what its own thread is about to open
        self._open: set[socket.socket] = set()
        self._broken = False

    def break_off(self) -> None:
        """Let the requests that are under way fail now, and all others at once."""
        with self._lock:
            self._broken = True
            for opened in self._open:
                with contextlib.suppress(OSError):
                    opened.shutdown(socket.SHUT_RDWR)

    def __call__(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes, timeout_s: float
    ) -> tuple[int, dict[str, str], bytes]:
        """Send one request.

        Raises:
            OSError: If the network or the server fails.
            AwsUnavailableError: If it is broken off.
        """
        mine: list[socket.socket] = []

        def on_open(opened: socket.socket) -> None:
            mine.append(opened)
            with self._lock:
                self._require_whole()
                self._open.add(opened)

        self._require_whole()
        try:
            return send(method, url, headers=headers, body=body, timeout_s=timeout_s, on_open=on_open)
        finally:
            with self._lock:
                self._open.difference_update(mine)

    def _require_whole(self) -> None:
        if self._broken:
            raise AwsUnavailableError("the call was broken off")
