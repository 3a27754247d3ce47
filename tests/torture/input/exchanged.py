"""What the readers of other libraries' checkpoints give, read to its end."""

from __future__ import annotations

from typing import Any

from spotkeep.exchange.elements import Array


def read_arrays(value: Any) -> None:
    """Read the arrays in a value, each in pieces, of which `Array.pieces` checks the sum."""
    left = [value]
    while left:
        found = left.pop()
        if isinstance(found, dict):
            left += found.values()
        elif isinstance(found, (list, tuple)):
            left += found
        elif isinstance(found, Array):
            for _ in found.pieces():
                pass
