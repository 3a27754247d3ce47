"""Plain values of a state as text and as JSON, whatever they are."""

from __future__ import annotations

import json
import sys
from typing import Any


def as_text(value: Any) -> str:
    """Write a value as JSON where that says the same, else as Python writes it."""
    if _is_json(value):
        return json.dumps(value)
    return _written(value)


def as_json(value: Any) -> Any:
    """Return the value itself where JSON has it, else the text Python would write."""
    return value if _is_json(value) else _written(value)


def _written(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:
        # Numbers beyond these digits cost too much time to write.
        return f"holds an integer of more than {sys.get_int_max_str_digits():,} digits"


def _is_json(value: Any) -> bool:
    try:
        return _same(json.loads(json.dumps(value, allow_nan=False)), value)
    except (ValueError, TypeError, RecursionError):
        return False


def _same(read: Any, value: Any) -> bool:
    # JSON would take a tuple for a list, and 1.0 is equal to 1.
    if isinstance(value, list):
        return isinstance(read, list) and all(map(_same, read, value))
    return type(read) is type(value) and bool(read == value)
