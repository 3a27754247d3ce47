"""Who: a training script with its instance's role. With what: an unreadable fleet record, of any run.

Its gain was a run that nothing ends: describe and stop raised before EC2 was asked, so neither a person nor max_run,
max_wait nor a destroyed deployment ended the fleet, which billed on. And an agent read such a record for ever.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotkeep_agent.volume import actions as do
from spotkeep_agent.volume.actions import MachineVolumes, Refused
from spotkeep_agent.volume.protocol import Situation, absorb, decide
from spotkeep_fleet.errors import DocumentError
from spotkeep_fleet.record import (
    TRAINING,
    CurrentVolume,
    FleetRecord,
    Lease,
    encode,
    fleet_key,
    fleet_record_of,
    new_record,
)
from spotkeep_jobs.backends.backend import JobPhase, JobView
from spotkeep_jobs.backends.ec2.fleet_table import FleetRecordChangedError
from spotkeep_jobs.record.states import EndReason, RunState
from tests.models.clock import NOON
from tests.models.dynamodb import InMemoryDynamoDb
from tests.models.faults import Called
from tests.spotkeep_jobs.backends.ec2.world import World, asked, run_item, volume

GOOD = json.loads(encode(new_record(run="count", volume=CurrentVolume("vol-1", "us-east-1a", 8))))
FIELDS = [
    ("version",), ("fence",), ("operations",), ("setbacks",), ("snapshot_gib_hours",), ("volume", "size_gb"),
    ("training", "heartbeat_at"), ("training", "step"), ("training", "exit_code"), ("training", "interruptions"),
]  # fmt: skip
BAD_NUMBERS = ["1e300", "1e999", "NaN", "-Infinity", "9" * 400, "9" * 5000, "-1", '"7"', "[]", "true"]


def text_with(path: tuple[str, ...], value: str) -> str:
    """The JSON of a good record with one value in other words."""
    document = json.loads(json.dumps(GOOD))
    inner = document
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = "@"
    return json.dumps(document).replace('"@"', value)


def item_of(text: object, version: object = "0") -> dict[str, Any]:
    return {"record": {"S": text}, "version": {"N": version}}


ITEMS: dict[str, dict[str, Any]] = {
    "x": item_of("x"),
    "no JSON object": item_of("[]"),
    "hundreds of kB": item_of(json.dumps({**GOOD, "problem": "x" * 300_000})),
    "deep": item_of("[" * 100_000 + "]" * 100_000),
    "nothing": {},
    "no text": {"record": {"N": "1"}, "version": {"N": "0"}},
    "of another run": item_of(json.dumps({**GOOD, "run": "victim"})),
    "two versions": item_of(json.dumps(GOOD), "7"),
    "no version": {"record": {"S": json.dumps(GOOD)}},
    "half a character": item_of(json.dumps({**GOOD, "problem": "\ud800"})),
    "a long list": item_of(json.dumps({**GOOD, "kept": ["vol"] * 5000})),
    "a lease until the end of time": item_of(
        json.dumps({**GOOD, "lease": {"holder": "i-a", "fence": 1, "expires_at": 1e300}})
    ),
    "a departure before time began": item_of(
        json.dumps({**GOOD, "training": {**GOOD["training"], "noticed": [{"instance": "i-a", "at": -1e300}]}})
    ),
    "a time after time ends": item_of(text_with(("training", "heartbeat_at"), "1e300")),
}

REFUSED_EACH_ITS_WAY = ("x", "nothing", "of another run", "two versions", "a time after time ends")
"""As text, as an item, by what it is bound to, by its version, and by one of its fields."""


class HostileTable(InMemoryDynamoDb):
    """A run table, over one item of which a script has written one of its own, and does so again and again."""

    def __init__(self, called: Called | None = None) -> None:
        super().__init__(called)
        self.smuggled: dict[tuple[str, str], dict[str, Any]] = {}

    def get_item(self, **parameters: Any) -> dict[str, Any]:
        found = super().get_item(**parameters)
        smuggled = self.smuggled.get((parameters["Key"]["pk"]["S"], parameters["Key"]["sk"]["S"]))
        return found if smuggled is None else {"Item": smuggled}


def world_that_trains() -> World:
    world = World(dynamodb=HostileTable())
    world.jobs.create(asked())
    world.passes(1)
    world.instance("a")
    lease = Lease("i-a", 1, NOON.timestamp() + 600)
    world.change_record(lease=lease, volume=CurrentVolume("vol-1", "us-east-1a", 8), operations=1)
    world.report(state=TRAINING, heartbeat_at=world.now.timestamp())
    world.jobs.settle("count-1")
    return world


def smuggle(world: World, item: dict[str, Any]) -> None:
    world.dynamodb.smuggled[fleet_key("count")] = item  # type: ignore[attr-defined]


def observed(world: World) -> JobView:
    job = world.jobs.observe("count-1")
    assert job is not None
    return job


def until_over(world: World, *, minutes: float = 10) -> None:
    """Reconcile every few minutes, as the controller does."""
    for _ in range(8):
        world.passes(minutes / 4)
        world.jobs.settle("count-1")


@pytest.mark.parametrize("name", ITEMS)
def test_such_a_record_is_refused_as_a_whole(name: str) -> None:
    with pytest.raises(DocumentError) as caught:
        fleet_record_of(ITEMS[name], run="count")
    assert len(str(caught.value)) < 8000


@settings(max_examples=len(FIELDS) * len(BAD_NUMBERS))
@given(path=st.sampled_from(FIELDS), number=st.sampled_from(BAD_NUMBERS))
def test_a_number_that_no_field_holds_is_refused(path: tuple[str, ...], number: str) -> None:
    with pytest.raises(DocumentError) as caught:
        fleet_record_of(item_of(text_with(path, number)), run="count")
    assert len(str(caught.value)) < 8000


@pytest.mark.parametrize("name", REFUSED_EACH_ITS_WAY)
def test_it_is_described_and_says_what_is_wrong(name: str) -> None:
    world = world_that_trains()
    smuggle(world, ITEMS[name])
    for reading in (world.jobs.observe, world.jobs.settle):
        job = reading("count-1")
        assert job is not None
        assert job.phase is not JobPhase.ENDED
        assert "the fleet record cannot be read" in (job.waits_because or "")


@pytest.mark.parametrize("name", REFUSED_EACH_ITS_WAY)
def test_a_stop_ends_it(name: str) -> None:
    """The training has its time to save: it hears nothing of the stop, and its agent leaves for the record's sake."""
    world = world_that_trains()
    smuggle(world, ITEMS[name])
    assert world.jobs.stop("count-1")
    assert (world.fleet_state, world.ec2.terminated) == ("deleted_running", [])
    until_over(world)
    assert (observed(world).end_reason, world.ec2.terminated) == (EndReason.STOPPED_BY_USER, ["i-a"])


@pytest.mark.parametrize("name", REFUSED_EACH_ITS_WAY)
def test_max_run_ends_it(name: str) -> None:
    world = world_that_trains()
    smuggle(world, ITEMS[name])
    world.passes(61)
    until_over(world)
    assert (observed(world).end_reason, world.ec2.terminated) == (EndReason.MAX_RUNTIME_EXCEEDED, ["i-a"])


def test_max_run_ends_an_instance_whose_record_never_says_that_it_trains() -> None:
    """A readable lie: it holds the lease, and says for ever that it waits."""
    world = World()
    world.jobs.create(asked())
    world.instance("a")
    for _ in range(9):
        world.change_record(lease=Lease("i-a", 1, world.now.timestamp() + 3600))
        world.jobs.settle("count-1")
        world.passes(60)
    assert world.fleet_state == "deleted_running"


def test_a_missing_record_stands_before_nothing() -> None:
    world = world_that_trains()
    del world.dynamodb.items[fleet_key("count")]
    assert world.jobs.stop("count-1")
    until_over(world)
    assert (observed(world).end_reason, world.ec2.terminated) == (EndReason.STOPPED_BY_USER, ["i-a"])


def test_a_script_that_never_stops_writing_does_not_stand_before_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write names a version that is another one by then."""
    world = world_that_trains()

    def changed(record: FleetRecord, /, **_: Any) -> FleetRecord:
        raise FleetRecordChangedError(record.run)

    monkeypatch.setattr(world.records, "write_record", changed)
    assert world.jobs.stop("count-1")
    world.change_record(lease=None)
    until_over(world)
    assert (observed(world).end_reason, world.record.ended) == (EndReason.STOPPED_BY_USER, True)


@pytest.mark.parametrize("volumes", [1, 2])
def test_a_resumed_run_has_a_record_again_and_nothing_of_it_is_deleted(volumes: int) -> None:
    """From EC2: its only volume is its volume. Of several a person says which: they are kept, and S3 is read."""
    world = world_that_trains()
    ids = [f"vol-{number}" for number in range(1, volumes + 1)]
    world.stores(*(volume(id_, operation=int(id_[-1])) for id_ in ids))
    smuggle(world, ITEMS["x"])
    world.jobs.stop("count-1")
    until_over(world)
    world.jobs.create(asked(2))
    world.dynamodb.smuggled.clear()  # type: ignore[attr-defined]
    record = world.record
    only = CurrentVolume("vol-1", "us-east-1b", 16)
    assert (record.volume, record.kept) == ((only, ()) if volumes == 1 else (None, tuple(ids)))
    assert (record.operations, record.ended, record.stop_requested) == (volumes, False, False)


def test_one_unreadable_record_does_not_keep_the_orphans_of_others() -> None:
    world = world_that_trains()
    smuggle(world, ITEMS["x"])
    world.stores(volume("vol-1"), volume("vol-9", run="other"))
    other = FleetRecord(run="other", operations=1, ended=True)
    job = world.records.job("count")
    assert job is not None
    world.records.write_with_job(other, job=job, over=None, now=world.now)
    removed = world.orphans(run_item(RunState.STOPPED, days_ago=30)).remove_all()
    assert removed.storage == ["vol-9"]
    assert "cannot be read" in removed.failures["storage of count"]


@pytest.mark.parametrize("action", [do.ReadJob, do.ReadRecord])
def test_an_agent_leaves_with_what_is_wrong(action: type[do.Action]) -> None:
    """It cannot know whose the run is: it lets go of the volume, and goes."""
    situation = Situation(instance="i-1", zone="a", here=MachineVolumes(mounted="vol-1"))
    situation = absorb(situation, action(), Refused("Record", "the fleet record cannot be read"))
    assert decide(situation, now=0) == do.Unmount("vol-1")
    situation = replace(situation, here=MachineVolumes())
    assert decide(situation, now=0) == do.Leave("the fleet record cannot be read", failed=True)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(path=st.sampled_from([(name,) for name in GOOD] + FIELDS), value=ANYTHING, stops=st.booleans())
def test_whatever_a_field_holds_the_run_is_described_and_ends(path: tuple[str, ...], value: Any, stops: bool) -> None:
    world = world_that_trains()
    smuggle(world, item_of(text_with(path, json.dumps(value))))
    observed(world)
    if stops:
        assert world.jobs.stop("count-1")
    world.passes(6 * 60 + 70)
    until_over(world)
    assert observed(world).ended
    assert world.now - NOON < timedelta(hours=8)
