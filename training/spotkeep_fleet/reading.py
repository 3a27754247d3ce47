"""Reads a JSON object field by field, and reports all of its faults at once.

A training script may have written the object, so everything has bounds. Numbers are finite and not negative, texts and
lists have a length, and a text is one that can be written again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Callable, TypeVar

from .errors import DocumentError

_T = TypeVar("_T")
_NUMBER: tuple[type, ...] = (int, float)

LARGEST_NUMBER = 2**53 - 1
"""The largest whole number up to which all JSON readers agree. Source: RFC 8259, section 6."""
LATEST_SECONDS = 2**33
"""The latest time, in seconds since the epoch. It lies in the year 2242."""
LONGEST_DOCUMENT = 2**18
"""The most characters of a document. DynamoDB keeps 400 KB in an item."""
LONGEST_TEXT = 2**16
"""The most characters of one text."""
MOST_ITEMS = 1000
"""The most items of one list or object."""
_MOST_PROBLEMS = 20
_SHOWN_CHARACTERS = 80


class Reader:
    """One JSON object that is being read.

    Args:
        document: The value from JSON.
        where: Its place, for messages.
        problems: The list that collects problems. The readers of nested objects share it.
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
            shown = repr(found[:_SHOWN_CHARACTERS])
            self.problems.append(f"{self.where}.{name} is {shown}; use one of {', '.join(choices)}")
            return default
        return found

    def whole(self, name: str, default: int | None = None, *, at_least: int = 0, at_most: int = LARGEST_NUMBER) -> int:
        """Read a whole number."""
        return self._checked(name, default, at_least=at_least, at_most=at_most)

    def optional_whole(self, name: str) -> int | None:
        """Read a whole number or null."""
        return None if self._document.get(name) is None else self.whole(name, 0)

    def number(self, name: str, default: float | None = None, *, at_most: float = LARGEST_NUMBER) -> float:
        """Read a number that is finite and not negative."""
        found = self._value(name, _NUMBER, "a number", default or 0.0, required=default is None)
        if not 0 <= found <= at_most:  # Nor is NaN.
            self.problems.append(f"{self.where}.{name} is out of bounds; use a number from 0 to {at_most}")
            return 0.0
        return float(found)

    def time(self, name: str) -> float:
        """Read a time in seconds since the epoch."""
        return self.number(name, at_most=LATEST_SECONDS)

    def optional_time(self, name: str) -> float | None:
        """Read a time in seconds since the epoch, or null."""
        return None if self._document.get(name) is None else self.time(name)

    def flag(self, name: str) -> bool:
        """Read true or false. Absent, it is false."""
        return bool(self._value(name, (bool,), "true or false", False, required=False))

    def texts(self, name: str) -> tuple[str, ...]:
        """Read a list of texts. Absent, it is empty."""
        found = self._value(name, (list,), "a list of texts", [], required=False)
        if not all(isinstance(item, str) and _writable(item) for item in found):
            self.problems.append(f"{self.where}.{name} holds something that is no text")
            return ()
        return tuple(found)

    def text_or_texts(self, name: str) -> tuple[str, ...] | str:
        """Read a text or a list of texts. Absent, it is an empty list."""
        return self.text(name) if isinstance(self._document.get(name), str) else self.texts(name)

    def text_mapping(self, name: str) -> dict[str, str]:
        """Read an object with texts as its values. Absent, it is empty."""
        found = self._value(name, (dict,), "an object of texts", {}, required=False)
        if not all(isinstance(item, str) and _writable(item) for pair in found.items() for item in pair):
            self.problems.append(f"{self.where}.{name} holds a value that is no text")
            return {}
        return dict(found)

    def nested(self, name: str, read: Callable[[Reader], _T]) -> _T | None:
        """Read an object inside this one, or None where there is none."""
        if self._document.get(name) is None:
            return None
        return read(Reader(self._document[name], where=f"{self.where}.{name}", problems=self.problems))

    def each(self, name: str, read: Callable[[Reader], _T]) -> tuple[_T, ...]:
        """Read a list of objects. Absent, it is empty."""
        found = self._value(name, (list,), "a list of objects", [], required=False)
        return tuple(
            read(Reader(item, where=f"{self.where}.{name}[{index}]", problems=self.problems))
            for index, item in enumerate(found)
        )

    def each_named(self, name: str, read: Callable[[Reader], _T]) -> dict[str, _T]:
        """Read an object with objects as its values. Absent, it is empty."""
        found = self._value(name, (dict,), "an object of objects", {}, required=False)
        if not all(_writable(each) for each in found):
            self.problems.append(f"{self.where}.{name} holds a name that is no text")
            return {}
        return {
            each: read(Reader(item, where=f"{self.where}.{name}.{each}", problems=self.problems))
            for each, item in found.items()
        }

    def _checked(self, name: str, default: int | None, *, at_least: int, at_most: int) -> int:
        found: int = self._value(name, (int,), "a whole number", default or 0, required=default is None)
        if not at_least <= found <= at_most:
            shown = str(found) if abs(found) <= LARGEST_NUMBER else "far too large"
            self.problems.append(f"{self.where}.{name} is {shown}; use {at_least} to {at_most}")
            return at_least
        return found

    def _value(self, name: str, kinds: tuple[type, ...], what: str, default: Any, *, required: bool) -> Any:
        found = self._document.get(name)
        if found is None and not required:
            return default
        if not isinstance(found, kinds) or (isinstance(found, bool) and bool not in kinds):
            self.problems.append(f"{self.where}.{name} is {_shown(found)}, not {what}")
            return default
        if isinstance(found, (list, dict)) and len(found) > MOST_ITEMS:
            self.problems.append(f"{self.where}.{name} has {len(found)} entries; use at most {MOST_ITEMS}")
            return default
        if isinstance(found, str) and not _writable(found):
            self.problems.append(f"{self.where}.{name} is no text of at most {LONGEST_TEXT} characters")
            return default
        return found


def read_json_text(text: str, what: str, read: Callable[[Reader], _T]) -> _T:
    """Read a document from its JSON text, or name its faults.

    Args:
        text: The text.
        what: The kind of document, for the message.
        read: Reads its fields.

    Raises:
        DocumentError: The document has a fault.
    """
    if len(text) > LONGEST_DOCUMENT:
        raise DocumentError(f"the {what}", [f"it has {len(text)} characters; at most {LONGEST_DOCUMENT} are read"])
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"the {what}", [f"it is no JSON: {str(error)[:_SHOWN_CHARACTERS]}"]) from error
    return read_whole(document, what, read)


def read_whole(document: Any, what: str, read: Callable[[Reader], _T]) -> _T:
    """Read a document, or name all of its faults.

    Args:
        document: The value from JSON.
        what: The kind of document, for the message.
        read: Reads its fields.

    Raises:
        DocumentError: The document has a fault.
    """
    problems: list[str] = []
    result = read(Reader(document, where=what.replace(" ", "_"), problems=problems))
    if problems:
        more = [f"and {len(problems) - _MOST_PROBLEMS} more"] if len(problems) > _MOST_PROBLEMS else []
        raise DocumentError(f"the {what}", [*problems[:_MOST_PROBLEMS], *more])
    return result


def _writable(text: str) -> bool:
    """Return True if a text is short enough, and Unicode. Half of a surrogate pair can be read, but never written."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return len(text) <= LONGEST_TEXT


def _shown(found: Any) -> str:
    return "missing" if found is None else f"a {type(found).__name__}"
