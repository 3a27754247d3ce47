"""Reads a JSON object field by field, and tells all that is wrong with it at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, TypeVar

from .errors import DocumentError

_T = TypeVar("_T")
_NUMBER: tuple[type, ...] = (int, float)


class Reader:
    """One JSON object that is being read.

    Args:
        document: What was found.
        where: Its place, for messages.
        problems: Where problems are collected; shared by the readers of nested objects.
    """

    def __init__(self, document: Any, *, where: str, problems: list[str]) -> None:
        self.problems = problems
        self.where = where
        self._document: Mapping[str, Any] = document if isinstance(document, Mapping) else {}
        if not isinstance(document, Mapping):
            problems.append(f"{where} is {_shown(document)}, not a JSON object")

    def text(self, name: str, default: str | None = None) -> str:
        """Read a text that must be there, unless it has a default."""
        return str(self._value(name, (str,), "a text", default or "", required=default is None))

    def optional_text(self, name: str) -> str | None:
        """Read a text or null."""
        found: str | None = self._value(name, (str,), "a text or null", None, required=False)
        return found

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """Read one of several words."""
        found = self.text(name, default)
        if found not in choices:
            self.problems.append(f"{self.where}.{name} is {found!r}; use one of {', '.join(choices)}")
            return default
        return found

    def whole(self, name: str, default: int | None = None, *, at_least: int = 0) -> int:
        """Read a whole number."""
        return self._checked(name, default, at_least=at_least)

    def optional_whole(self, name: str, *, at_least: int = 0) -> int | None:
        """Read a whole number or null."""
        return None if self._document.get(name) is None else self._checked(name, 0, at_least=at_least)

    def number(self, name: str, default: float | None = None) -> float:
        """Read a number."""
        return float(self._value(name, _NUMBER, "a number", default or 0.0, required=default is None))

    def optional_number(self, name: str) -> float | None:
        """Read a number or null."""
        found = self._value(name, _NUMBER, "a number or null", None, required=False)
        return None if found is None else float(found)

    def flag(self, name: str, *, default: bool) -> bool:
        """Read true or false."""
        return bool(self._value(name, (bool,), "true or false", default, required=False))

    def texts(self, name: str) -> tuple[str, ...]:
        """Read a list of texts; absent, it is empty."""
        found = self._value(name, (list,), "a list of texts", [], required=False)
        if not all(isinstance(item, str) for item in found):
            self.problems.append(f"{self.where}.{name} holds something that is no text")
            return ()
        return tuple(found)

    def text_mapping(self, name: str) -> dict[str, str]:
        """Read an object whose values are texts; absent, it is empty."""
        found = self._value(name, (dict,), "an object of texts", {}, required=False)
        if not all(isinstance(item, str) for item in found.values()):
            self.problems.append(f"{self.where}.{name} holds a value that is no text")
            return {}
        return dict(found)

    def nested(self, name: str, read: Callable[[Reader], _T]) -> _T | None:
        """Read an object inside this one, or None where there is none."""
        if self._document.get(name) is None:
            return None
        return read(Reader(self._document[name], where=f"{self.where}.{name}", problems=self.problems))

    def each(self, name: str, read: Callable[[Reader], _T]) -> tuple[_T, ...]:
        """Read a list of objects; absent, it is empty."""
        found = self._value(name, (list,), "a list of objects", [], required=False)
        return tuple(
            read(Reader(item, where=f"{self.where}.{name}[{index}]", problems=self.problems))
            for index, item in enumerate(found)
        )

    def _checked(self, name: str, default: int | None, *, at_least: int) -> int:
        found: int = self._value(name, (int,), "a whole number", default or 0, required=default is None)
        if found < at_least:
            self.problems.append(f"{self.where}.{name} is {found}; use at least {at_least}")
        return found

    def _value(self, name: str, kinds: tuple[type, ...], what: str, default: Any, *, required: bool) -> Any:
        found = self._document.get(name)
        if found is None and not required:
            return default
        if not isinstance(found, kinds) or (isinstance(found, bool) and bool not in kinds):
            self.problems.append(f"{self.where}.{name} is {_shown(found)}, not {what}")
            return default
        return found


def read_whole(document: Any, what: str, read: Callable[[Reader], _T]) -> _T:
    """Read a document, or name everything that is wrong with it.

    Args:
        document: What JSON gave.
        what: What it should be, for the message.
        read: Reads its fields.

    Raises:
        DocumentError: If anything is wrong.
    """
    problems: list[str] = []
    result = read(Reader(document, where=what.replace(" ", "_"), problems=problems))
    if problems:
        raise DocumentError(f"the {what}", problems)
    return result


def _shown(found: Any) -> str:
    return "missing" if found is None else f"a {type(found).__name__}"
