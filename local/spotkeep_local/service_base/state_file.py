"""The saved state of a service while the local AWS is down, in one JSON file. It is read at start, written at shutdown.

While the server runs, all state is in memory. A server that is killed has not written it. The next one then begins
empty (`StateDirectory.discard_unsaved`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spotkeep_local.errors import PersistenceError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True)
class StateFile:
    """One service's file.

    Attributes:
        path: The path of the file, which need not exist yet.
    """

    path: Path

    def read(self) -> dict[str, Any]:
        """Return the state that was written last. An empty document when none was.

        Raises:
            PersistenceError: The file holds something else.
        """
        try:
            document: dict[str, Any] = json.loads(self.path.read_text())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise PersistenceError(
                f"{self.path} is damaged ({error}); remove the state directory to begin with an empty local AWS"
            ) from error
        return document

    def write(self, document: Mapping[str, Any]) -> None:
        """Replace the state that was written last."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_suffix(".draft")
        draft.write_text(json.dumps(document))
        draft.replace(self.path)
