"""Ports for what a test starts later."""

from __future__ import annotations

import os
import random
import socket
import sys
from collections import deque
from contextlib import ExitStack, suppress

_FIRST, _LAST = 20_000, 32_000
"""Below the ports that Linux gives to sockets that ask for none, from 32768.

Each connection of another test takes one of those, and keeps it for a minute after its end.
"""
_MOST_KEPT = 100
_taken: deque[int] = deque()
"""The file descriptors of the newest names that keep ports from other tests. The system closes them with the process.

A test listens at its ports seconds later. Another test that got one of them meanwhile would find it in use.
"""


def free_ports(count: int = 1) -> int:
    """Return the first of so many ports beside each other, at which nothing listens on any address.

    On Linux no other test of this machine gets them while this process is there, and has not asked for a hundred more.
    """
    for _ in range(1000):
        first = random.randrange(_FIRST, _LAST)  # noqa: S311 - not secret
        with suppress(OSError), ExitStack() as opened:
            names = [opened.enter_context(_name_of(port)) for port in range(first, first + count)]
            with ExitStack() as bound:
                for port in range(first, first + count):
                    bound.enter_context(socket.socket()).bind(("", port))
            opened.pop_all()
            _taken.extend(name.detach() for name in names)
            while len(_taken) > _MOST_KEPT:
                os.close(_taken.popleft())
            return first
    raise AssertionError(f"this machine has no {count} free ports beside each other")


def _name_of(port: int) -> socket.socket:
    """Take the name of a port, which has no file and ends with its process. Raise OSError where another test has it."""
    name = socket.socket(socket.AF_UNIX)
    if sys.platform == "linux":
        try:
            name.bind(f"\0port-{port}-of-a-test")
        except OSError:
            name.close()
            raise
    return name
