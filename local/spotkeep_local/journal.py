"""What a service remembers across its own death: one JSON file a resource, replaced whole at every change."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_LOG = logging.getLogger(__name__)
_Resource = TypeVar("_Resource")


class Journal(Generic[_Resource]):
    """Resources of one kind on disk.

    Args:
        folder: Where the files are; made when it is not there.
        kind: What a resource is called in the log, for example `a training job`.
        name_of: A resource's name, which is its file's.
        to_document: A resource as a JSON object.
        from_document: Reads what `to_document` wrote; raises ValueError, KeyError or TypeError when it cannot.
        order: What `load` sorts by.
    """

    def __init__(
        self,
        folder: Path,
        *,
        kind: str,
        name_of: Callable[[_Resource], str],
        to_document: Callable[[_Resource], dict[str, Any]],
        from_document: Callable[[Any], _Resource],
        order: Callable[[_Resource], Any],
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._kind = kind
        self._name_of = name_of
        self._to_document = to_document
        self._from_document = from_document
        self._order = order

    def save(self, resource: _Resource) -> None:
        """Writes a resource. A crash leaves the old file or the new one, never half of one."""
        name = self._name_of(resource)
        draft = self._folder / f"{name}.draft"
        draft.write_text(json.dumps(self._to_document(resource)))
        os.replace(draft, self._folder / f"{name}.json")  # noqa: PTH105 - atomic, and says so

    def forget(self, name: str) -> None:
        """Removes a resource."""
        (self._folder / f"{name}.json").unlink(missing_ok=True)

    def load(self) -> list[_Resource]:
        """Every resource that can be read, in order; one that cannot is left where it is and logged."""
        resources = []
        for path in self._folder.glob("*.json"):
            try:
                resources.append(self._from_document(json.loads(path.read_text())))
            except (ValueError, KeyError, TypeError) as error:
                _LOG.warning("the journal of %s cannot be read: %s: %s", self._kind, path, error)
        return sorted(resources, key=self._order)
