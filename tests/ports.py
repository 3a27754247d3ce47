"""Ports for what a test starts later."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress

_FIRST, _LAST = 20_000, 32_000
"""Below the ports that Linux gives to sockets that ask for none, from 32768.

Each connection of another test takes one of those, and keeps it for a minute after its end.
"""


def free_ports(count: int = 1) -> int:
    """Return the first of so many ports beside each other, at which nothing listens on any address."""
    for _ in range(1000):
        first = random.randrange(_FIRST, _LAST)  # noqa: S311 - not secret
        with suppress(OSError), ExitStack() as opened:
            for port in range(first, first + count):
                opened.enter_context(socket.socket()).bind(("", port))
            return first
    raise AssertionError(f"this machine has no {count} free ports beside each other")
