"""The fixtures, which are the records of a deployment as the code of a day wrote them. None is ever changed.

`python -m tests.upgrades.kept` adds a fixture to each story that writes its records in a form that none has yet.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from spotkeep_jobs.record.table_client import from_dynamodb
from tests.upgrades.site import Site, as_text, from_text
from tests.upgrades.stories import STORIES

FOLDER: Final = Path(__file__).parent / "kept"
KEPT: Final = sorted(FOLDER.glob("*/*.json"))
"""All fixtures."""
HOW_TO_ADD: Final = (
    "Deployments hold records in the kept form, and the code of the day must read, end and resume them: keep the old "
    "fixture as it is. `python -m tests.upgrades.kept` adds today's form beside it. Commit both with the change"
)
Form = dict[str, str]
"""The types of all values, by their places."""
_NAMED_BY_DATA: Final = frozenset({"begun", "values", "parameters", "environment", "Environment", "hyperparameters"})
"""Mappings whose keys are data."""


def kept_of(story: str) -> list[Path]:
    """Return the fixtures of a story, oldest first."""
    return sorted((FOLDER / story).glob("*.json"), key=lambda path: int(path.stem))


def read(path: Path) -> dict[str, Any]:
    """Read a fixture."""
    return from_text(path.read_text(encoding="utf-8"))


def made(story: str) -> dict[str, Any]:
    """Return the content of a fixture that the code of the day makes."""
    site = Site()
    STORIES[story].begin(site)
    return from_text(as_text(site.kept))


def kind_of(item: Mapping[str, Any]) -> str:
    """Return the kind of an item, which is the first words of its keys."""
    return " ".join(item[key]["S"].partition("#")[0] for key in ("pk", "sk"))


def form_of(kept: Mapping[str, Any]) -> Form:
    """Return the form of all items of a fixture, and of the training specs in S3."""
    form: Form = {}
    for item in kept["items"]:
        form |= _places(kind_of(item), {name: _parsed(value) for name, value in from_dynamodb(item).items()})
    for call in (call for step in kept["calls"] for call in step):
        if call["method"] == "put_object":
            form |= _places("training spec", json.loads(call["arguments"]["Body"]))
    return form


def _places(place: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            key = "*" if place.rpartition(".")[2] in _NAMED_BY_DATA else name
            yield from _places(f"{place}.{key}", each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _places(f"{place}[]", each)
    elif value is not None:
        yield place, type(value).__name__


def _parsed(value: Any) -> Any:
    """Return the content of a text that is JSON. Some records are kept as one text."""
    if isinstance(value, str) and value.startswith(("{", "[")):
        with contextlib.suppress(json.JSONDecodeError):
            return json.loads(value)
    return value


def add_new_forms() -> None:
    """Add a fixture to each story whose records have a new form today. No fixture is written over."""
    for story in STORIES:
        there = kept_of(story)
        today = made(story)
        if there and form_of(read(there[-1])) == form_of(today):
            continue
        path = FOLDER / story / f"{len(there) + 1}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(as_text(today), encoding="utf-8")
        print(f"added {path.relative_to(FOLDER)}")


if __name__ == "__main__":
    add_new_forms()
