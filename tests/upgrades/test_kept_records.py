"""The code of the day reads, ends and resumes the records of a deployment, as earlier code has written them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import BaseModel

from spotkeep_fleet.instance_job import decode_job
from spotkeep_fleet.record import fleet_record_of
from spotkeep_fleet.training_spec import decode_spec
from spotkeep_jobs.backends.ec2.history import FleetHistory
from spotkeep_jobs.record.deployment_records import OrphanReport, PassPlaces, PriceBook, StackRequest
from spotkeep_jobs.record.record import Attempt, Notification, Plan, Pool, Run, ScriptMetrics, TimelineEntry
from spotkeep_jobs.record.schedule import Schedule
from spotkeep_jobs.record.sweep import Sweep, Trial
from spotkeep_jobs.record.table_client import from_dynamodb, record_of, record_of_text
from tests.spotkeep_jobs.record.worst_records import all_records
from tests.upgrades.kept import HOW_TO_ADD, KEPT, form_of, kept_form, kept_of, kind_of, made, new_places, read
from tests.upgrades.site import Site
from tests.upgrades.stories import STORIES

Item = dict[str, Any]


def whole(record: type[Any]) -> Callable[[Item], object]:
    return lambda item: record_of(record, from_dynamodb(item))


def text(record: type[Any], attribute: str) -> Callable[[Item], object]:
    return lambda item: record_of_text(record, from_dynamodb(item), attribute)


def claim(item: Item) -> object:
    """A claim names its owner, and its keys say the rest. The steps that follow release it."""
    return item["run"]["S"] if "run" in item else item["chain_since"]["S"]


READERS: Final[dict[str, Callable[[Item], object]]] = {
    "run item": whole(Run),
    "run attempt": whole(Attempt),
    "run event": whole(TimelineEntry),
    "run notification": whole(Notification),
    "run pool": whole(Pool),
    "run plan": whole(Plan),
    "run metrics": whole(ScriptMetrics),
    "run fleet-history": text(FleetHistory, "history"),
    "fleet fleet": lambda item: fleet_record_of(item, run=item["pk"]["S"].partition("#")[2]),
    "fleet-job fleet-job": lambda item: decode_job(item["job"]["S"]),
    "sweep item": whole(Sweep),
    "sweep trial": lambda item: Trial.model_validate_json(item["trial"]["S"]),
    "schedule item": whole(Schedule),
    "orphans report": text(OrphanReport, "report"),
    "prices book": text(PriceBook, "book"),
    "deployment pass-places": text(PassPlaces, "places"),
    "deployment deletion": text(StackRequest, "request"),
    "checkpoint-lock claim": claim,
    "token claim": claim,
    "trial-id claim": claim,
    "reuse claim": claim,
    "in-flight slot": claim,
}
"""The reader of each kind of item."""

WITHOUT_A_STORY: Final = Path(__file__).parent / "without_a_story.json"
NOT_STORED: Final = frozenset({"RunChange", "PoolChange", "SweepChange"})
"""Records that are written in parts."""
EACH = pytest.mark.parametrize("path", KEPT, ids=[f"{path.parent.name}-{path.stem}" for path in KEPT])


@EACH
def test_each_kept_record_is_read(path: Path) -> None:
    kept = read(path)
    for item in kept["items"]:
        assert READERS[kind_of(item)](item), HOW_TO_ADD
    for call in (call for step in kept["calls"] for call in step):
        if call["method"] == "put_object":
            assert decode_spec(call["arguments"]["Body"].decode()).command, HOW_TO_ADD


@EACH
def test_what_is_kept_ends_and_goes_on_with_the_code_of_the_day(path: Path) -> None:
    kept, story = read(path), STORIES[path.parent.name]
    site = Site(kept["calls"])
    story.begin(site)
    site.goes_on_from(kept["items"])
    story.go_on(site)


@pytest.mark.parametrize("story", STORIES)
def test_the_form_in_which_records_are_written_today_is_kept(story: str) -> None:
    """A new field, another name or another type is a new form, which a deployment will hold from now on."""
    assert kept_of(story), f"{story} has no fixture. {HOW_TO_ADD}."
    new = new_places(form_of(made(story)), kept=kept_form())
    assert not new, f"{story} is written otherwise than in any fixture: {json.dumps(new)}. {HOW_TO_ADD}."


def fields_in(value: object) -> Iterator[tuple[str, str]]:
    """Yield the class and the name of each field that is not at its default, in a record and below it."""
    if isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            content = getattr(value, name)
            if field.is_required() or content != field.get_default(call_default_factory=True):
                yield type(value).__name__, name
            yield from fields_in(content)
    elif isinstance(value, dict):
        for each in value.values():
            yield from fields_in(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from fields_in(each)


def test_each_field_of_a_record_is_in_a_fixture_or_keeps_its_type() -> None:
    """`without_a_story.json` lists the fields that no story sets, with their types."""
    items = (item for path in KEPT for item in read(path)["items"])
    set_somewhere = {found for item in items for found in fields_in(READERS[kind_of(item)](item))}
    stored = [each for each in all_records() if each.__module__.startswith("spotkeep_jobs.")]
    others = {
        each.__name__: {
            name: str(each.__annotations__[name])
            for name in each.__annotations__
            if name in each.model_fields and (each.__name__, name) not in set_somewhere
        }
        for each in stored
        if each.__name__ not in NOT_STORED
    }
    assert {name: fields for name, fields in others.items() if fields} == json.loads(WITHOUT_A_STORY.read_text()), (
        "a field that no story sets is new, or is kept by a story now, or has another name or type. Set a new one in a "
        "story. Another name or type needs a conversion where items are read, for a deployment may hold the old one"
    )


def test_a_fixture_is_of_a_story_and_there_is_one_of_each_kind_of_item() -> None:
    assert {path.parent.name for path in KEPT} <= STORIES.keys(), "keep the story of each fixture, with its name"
    kinds = {kind_of(item) for path in KEPT for item in read(path)["items"]}
    assert kinds == READERS.keys()
