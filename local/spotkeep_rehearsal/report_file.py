"""A rehearsal's report as a file: what every kind of report has in common."""

from __future__ import annotations

import abc
import json
from pathlib import Path
from typing import Any


class WrittenReport(abc.ABC):
    """What a rehearsal found, as a JSON document."""

    @property
    @abc.abstractmethod
    def passed(self) -> bool:
        """Whether the verdict is good."""

    @property
    def missing_module(self) -> str | None:
        """The Python module without which the script could not be judged."""
        return None

    @abc.abstractmethod
    def to_document(self) -> dict[str, Any]:
        """Return the report as the JSON document that programs read."""

    def write(self, path: Path) -> None:
        """Write the report as indented JSON, making its folder where there is none."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.to_document(), indent=2) + "\n")
