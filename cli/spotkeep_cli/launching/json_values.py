"""Turns the values of a request into JSON, as the launcher reads it.

A notebook may give any object of Python. A number of NumPy, a path and a time become a number or text. A value without
a form in JSON is refused with its field. Otherwise Python's `b'x'` would reach a script as these four characters.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from spotkeep_jobs.errors import Problem

_WRITTEN_AS_TEXT = (PurePath, date, Decimal, UUID)


def plain(value: Any, *, field: str = "") -> tuple[Any, list[Problem]]:
    """Return a value as JSON has it, and a problem for each part that JSON has no form for.

    Args:
        value: Of any type.
        field: The place of the value, such as `hyperparameters.lr`.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value.value if isinstance(value, Enum) else value, []
    if isinstance(value, Mapping):
        return _mapping(value, field=field)
    if isinstance(value, list | tuple):
        parts = [plain(each, field=f"{field}[{index}]") for index, each in enumerate(value)]
        return [part for part, _ in parts], [problem for _, problems in parts for problem in problems]
    if isinstance(value, Enum):
        return plain(value.value, field=field)
    if isinstance(value, _WRITTEN_AS_TEXT):
        return value.isoformat() if isinstance(value, date) else str(value), []
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return plain(value.item(), field=field)
    return None, [_no_json(value, field=field)]


def _mapping(value: Mapping[Any, Any], *, field: str) -> tuple[dict[Any, Any], list[Problem]]:
    fields: dict[Any, Any] = {}
    problems: list[Problem] = []
    for name, each in value.items():
        if name is None or isinstance(name, str | bool | int | float):
            fields[name], wrong = plain(each, field=f"{field}.{name}" if field else str(name))
            problems += wrong
        else:
            problems.append(_no_json(name, field=f"{field} (a name)"))
    return fields, problems


def _no_json(value: Any, *, field: str) -> Problem:
    fix = "Give text, a number, a boolean, a list or a dict."
    if isinstance(value, bytes):
        fix = "Decode it: value.decode()."
    elif isinstance(value, set | frozenset):
        fix = "Write a list: the order of a set is another each time."
    return Problem(
        field=field, found=f"a value of type {type(value).__name__}", problem="has no form in a job file", fix=fix
    )
