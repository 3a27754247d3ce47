"""A value that travels as JSON between the local AWS and who controls it."""

from __future__ import annotations

from typing import Any, Self

from pydantic import TypeAdapter

_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


class JsonDocument:
    """The base of a dataclass that travels."""

    def to_document(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        document: dict[str, Any] = _adapter(type(self)).dump_python(self, mode="json")
        return document

    @classmethod
    def from_document(cls, document: object) -> Self:
        """Read what `to_document` wrote.

        Raises:
            ValidationError: Unknown fields or wrong values; names every one.
        """
        found: Self = _adapter(cls).validate_python(document)
        return found


def _adapter(kind: type[JsonDocument]) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]
