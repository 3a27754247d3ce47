"""The fixtures, which are the records of a deployment as the code of a day wrote them. None is ever changed.

`python -m tests.upgrades.kept` adds a fixture of a story that writes a record in a form that none has yet.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
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
Places = dict[str, set[str]]
"""The same of several forms."""
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


def kept_form() -> Places:
    """Return the places of all fixtures, with the types that each has in one of them."""
    return _together(form_of(read(path)) for path in KEPT)


def new_places(form: Form, *, kept: Places) -> Form:
    """Return the places of a form that no fixture has, or that none has with this type."""
    return {place: kind for place, kind in form.items() if kind not in kept.get(place, ())}


def _together(forms: Iterable[Form]) -> Places:
    together: Places = {}
    for form in forms:
        for place, kind in form.items():
            together.setdefault(place, set()).add(kind)
    return together


def add_new_forms() -> None:
    """Add a fixture of the first story that writes a new form, until each form is in one. None is written over."""
    kept = kept_form()
    for story in STORIES:
        today = made(story)
        if kept_of(story) and not new_places(form_of(today), kept=kept):
            continue
        kept = _together([form_of(today), *({place: kind} for place, kinds in kept.items() for kind in kinds)])
        path = FOLDER / story / f"{len(kept_of(story)) + 1}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(as_text(today), encoding="utf-8")
        print(f"added {path.relative_to(FOLDER)}")


if __name__ == "__main__":
    add_new_forms()
