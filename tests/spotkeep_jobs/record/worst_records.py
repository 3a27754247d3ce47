"""Each record at all of its bounds at once: as large as it can be."""

from __future__ import annotations

import importlib
import pkgutil
import types
import typing
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import AwareDatetime

import spotkeep_jobs
from spotkeep_jobs.record.fields import AtMost, Caller
from spotkeep_jobs.record.record import Record

RecordT = TypeVar("RecordT", bound=Record)
NOON = datetime(2026, 11, 21, 12, 0, 0, 123_000, tzinfo=UTC)
LARGEST_WHOLE = 10**18
LONGEST_REAL = -1.2345678901234567e-100


_PLAIN: dict[Any, Any] = {
    bool: False,
    int: LARGEST_WHOLE,
    float: LONGEST_REAL,
    AwareDatetime: NOON,
    timedelta: timedelta(56, 86_399, 999_999),
}


class UnboundedFieldError(Exception):
    """A field that may hold any amount."""


def all_records() -> list[type[Record]]:
    """Every kind of record that the functions have."""
    for module in pkgutil.walk_packages(spotkeep_jobs.__path__, "spotkeep_jobs."):
        importlib.import_module(module.name)
    return sorted(set(_below(Record)), key=lambda each: each.__qualname__)


def _below(kind: type[Record]) -> Iterator[type[Record]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)


def fields_of_kind(kind: type[Record]) -> dict[str, Any]:
    """The fields of a kind of record, with what is written of each."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hints[name] for name in kind.model_fields}


def worst(kind: type[RecordT], **given: Any) -> RecordT:
    """A record at all of its bounds.

    Args:
        kind: Of which kind.
        given: Fields that have other values.

    Raises:
        UnboundedFieldError: A field has no bound.
    """
    values = {}
    for name, written in fields_of_kind(kind).items():
        try:
            values[name] = given[name] if name in given else _worst(written)
        except UnboundedFieldError as error:
            raise UnboundedFieldError(f"{kind.__name__}.{name}: {error}") from None
    return kind.model_construct(**values)


def _worst(written: Any, bound: AtMost | None = None) -> Any:
    origin = get_origin(written)
    if origin is Annotated:
        inner, *extras = get_args(written)
        return _worst(inner, next((extra for extra in extras if isinstance(extra, AtMost)), None))
    if origin in (Union, types.UnionType):
        kinds = [each for each in get_args(written) if each is not type(None)]
        return _worst(kinds[-1], bound)
    if origin is Literal:
        return max(get_args(written), key=lambda word: len(str(word)))
    if isinstance(written, typing.TypeVar) or written is Any:
        raise UnboundedFieldError("may be anything")
    if origin in (tuple, list, dict) or written is str:
        return _worst_of_many(written, origin, bound)
    if issubclass(written, Record):
        return worst(written)
    if written is Caller:
        return Caller(arn="a" * 700, name="n" * 64, verified=False)
    if issubclass(written, Enum):
        return max(written, key=lambda each: len(str(each.value)))
    return _PLAIN[written]


def _worst_of_many(written: Any, origin: Any, bound: AtMost | None) -> Any:
    if origin is tuple and get_args(written)[-1] is not ...:
        return tuple(_worst(each) for each in get_args(written))
    if bound is None:
        raise UnboundedFieldError(f"{written} has no AtMost")
    if written is str:
        # A quotation mark takes two bytes as JSON, a face four of UTF-8 and twelve as JSON in ASCII.
        return ("a" if bound.ascii else '"' if bound.cut else "\N{GRINNING FACE}") * bound.count
    if origin is dict:
        name, value = get_args(written)
        if name is str:
            return {"d": "a" * (bound.count - len('{"d": ""}'))}
        return {_numbered(_worst(name), number): _worst(value) for number in range(bound.count)}
    return (_worst(get_args(written)[0]),) * bound.count


def _numbered(key: Any, number: int) -> Any:
    return key - number if isinstance(key, int) else f"{key[:-4]}{number:04d}"
