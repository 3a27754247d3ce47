"""Who: a training script with its instance's role. With what: an unreadable fleet record, of any run.

Its gain was a run that nothing ends: describe and stop raised before EC2 was asked, so neither a person nor max_run,
max_wait nor a destroyed deployment ended the fleet, which billed on. And an agent read such a record for ever.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_agent.volume import actions as do
from spotkeep_agent.volume.facts import Here, Refused
from spotkeep_agent.volume.protocol import Situation, absorb, decide
from spotkeep_fleet.errors import DocumentError
from spotkeep_fleet.record import TRAINING, VOLUME, CurrentVolume, FleetRecord, Lease, encode, opened, record_of
from spotkeep_jobs.backends.ec2.facts import TaggedStorage, Volume
from spotkeep_jobs.backends.ec2.records import FleetRecordChangedError
from spotkeep_jobs.backends.ec2.sweep import FleetSweep
from spotkeep_jobs.backends.job_view import JobPhase
from spotkeep_jobs.record.states import EndReason, RunState
from tests.spotkeep_jobs.backends.ec2.world import (
    NOON,
    OURS,
    WEEK,
    FakeEc2,
    FakeRecords,
    OneRun,
    World,
    asked,
    run_item,
)

GOOD = json.loads(encode(opened(run="count", volume=CurrentVolume("vol-1", "us-east-1a", 8))))
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
    **{
        f"{'.'.join(path)}={number[:12]}": item_of(text_with(path, number)) for path in FIELDS for number in BAD_NUMBERS
    },
}


@dataclass
class HostileRecords(FakeRecords):
    """Records in memory, over one of which a script has written an item of its own, and does so again and again."""

    smuggled: dict[str, dict[str, Any]] = field(default_factory=dict)

    def record(self, run: str, /) -> FleetRecord | None:
        item = self.smuggled.get(run)
        return super().record(run) if item is None else record_of(item, run=run)


def world_that_trains() -> World:
    world = World(records=HostileRecords())
    world.jobs.create(asked())
    world.passes(1)
    world.instance("a")
    lease = Lease("i-a", 1, NOON.timestamp() + 600)
    world.change_record(lease=lease, volume=CurrentVolume("vol-1", "us-east-1a", 8), operations=1)
    world.report(state=TRAINING, heartbeat_at=world.now.timestamp())
    world.jobs.settle("count-1")
    return world


def smuggle(world: World, item: dict[str, Any]) -> None:
    world.records.smuggled["count"] = item  # type: ignore[attr-defined]


def until_over(world: World, *, minutes: float = 10) -> None:
    """Reconcile every few minutes, as the controller does; EC2 lets the fleet end."""
    for _ in range(8):
        world.passes(minutes / 4)
        world.jobs.settle("count-1")
        for id_, fleet in world.ec2.known.items():
            if fleet.state == "deleted_running" and all(each.ended for each in world.ec2.there):
                world.ec2.known[id_] = replace(fleet, state="deleted")


@pytest.mark.parametrize("name", ITEMS)
def test_such_a_record_is_refused_as_a_whole(name: str) -> None:
    with pytest.raises(DocumentError) as caught:
        record_of(ITEMS[name], run="count")
    assert len(str(caught.value)) < 8000


@pytest.mark.parametrize("name", ITEMS)
def test_it_is_described_and_says_what_is_wrong(name: str) -> None:
    world = world_that_trains()
    smuggle(world, ITEMS[name])
    for reading in (world.jobs.observe, world.jobs.settle):
        job = reading("count-1")
        assert job is not None
        assert job.phase is not JobPhase.ENDED
        assert "the fleet record cannot be read" in (job.waits_because or "")


@pytest.mark.parametrize("name", ITEMS)
def test_a_stop_ends_it(name: str) -> None:
    """The training has its time to save: it hears nothing of the stop, and its agent leaves for the record's sake."""
    world = world_that_trains()
    smuggle(world, ITEMS[name])
    assert world.jobs.stop("count-1")
    assert (world.ec2.known["fleet-1"].state, world.ec2.terminated) == ("deleted_running", [])
    until_over(world)
    job = world.jobs.observe("count-1")
    assert job is not None
    assert (job.end_reason, world.ec2.terminated) == (EndReason.STOPPED_BY_USER, ["i-a"])


@pytest.mark.parametrize("name", ["x", "nothing", "training.heartbeat_at=1e300"])
def test_max_run_ends_it(name: str) -> None:
    world = world_that_trains()
    smuggle(world, ITEMS[name])
    world.passes(61)
    until_over(world)
    job = world.jobs.observe("count-1")
    assert job is not None
    assert (job.end_reason, world.ec2.terminated) == (EndReason.MAX_RUNTIME_EXCEEDED, ["i-a"])


def test_max_run_ends_an_instance_whose_record_never_says_that_it_trains() -> None:
    """A readable lie: it holds the lease, and says for ever that it waits."""
    world = World()
    world.jobs.create(asked())
    world.instance("a")
    for _ in range(9):
        world.change_record(lease=Lease("i-a", 1, world.now.timestamp() + 3600))
        world.jobs.settle("count-1")
        world.passes(60)
    assert world.ec2.known["fleet-1"].state == "deleted_running"


def test_a_missing_record_stands_before_nothing() -> None:
    world = world_that_trains()
    del world.records.fleet["count"]
    assert world.jobs.stop("count-1")
    until_over(world)
    job = world.jobs.observe("count-1")
    assert job is not None
    assert (job.end_reason, world.ec2.terminated) == (EndReason.STOPPED_BY_USER, ["i-a"])


def test_a_script_that_never_stops_writing_does_not_stand_before_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write names a version that is another one by then."""
    world = world_that_trains()

    def changed(record: FleetRecord, /, **_: Any) -> FleetRecord:
        raise FleetRecordChangedError(record.run)

    monkeypatch.setattr(world.records, "write_record", changed)
    assert world.jobs.stop("count-1")
    world.change_record(lease=None)
    until_over(world)
    job = world.jobs.observe("count-1")
    assert job is not None
    assert (job.end_reason, world.records.fleet["count"].ended) == (EndReason.STOPPED_BY_USER, True)


class OneVolume(FakeEc2):
    """EC2 with the run's volume."""

    def volume(self, volume_id: str, /) -> Volume | None:
        return Volume(id=volume_id, zone="us-east-1b", size_gb=16, state="available", tags=OURS)


@pytest.mark.parametrize("volumes", [1, 2])
def test_a_resumed_run_has_a_record_again_and_nothing_of_it_is_deleted(volumes: int) -> None:
    """From EC2: its only volume is its volume. Of several a person says which: they are kept, and S3 is read."""
    world = world_that_trains()
    ec2 = OneVolume(**vars(world.ec2))
    world.ec2 = ec2
    world.__post_init__()
    ids = [f"vol-{number}" for number in range(1, volumes + 1)]
    ec2.storage = [
        TaggedStorage(kind=VOLUME, id=id_, attached=False, tags=OURS | {"spotkeep:operation": id_[-1]}) for id_ in ids
    ]
    smuggle(world, ITEMS["x"])
    world.jobs.stop("count-1")
    until_over(world)
    world.jobs.create(asked(2))
    record = world.records.fleet["count"]
    only = CurrentVolume("vol-1", "us-east-1b", 16)
    assert (record.volume, record.kept) == ((only, ()) if volumes == 1 else (None, tuple(ids)))
    assert (record.operations, record.ended, record.stop_requested) == (volumes, False, False)


def test_one_unreadable_record_does_not_stand_before_the_sweep_of_others() -> None:
    world = world_that_trains()
    smuggle(world, ITEMS["x"])
    left = {"spotkeep:deployment": "spotkeep", "spotkeep:run": "other", "spotkeep:operation": "1"}
    world.ec2.storage = [
        TaggedStorage(kind=VOLUME, id="vol-1", attached=False, tags=OURS | {"spotkeep:operation": "1"}),
        TaggedStorage(kind=VOLUME, id="vol-9", attached=False, tags=left),
    ]
    world.records.fleet["other"] = FleetRecord(run="other", operations=1, ended=True)
    sweep = FleetSweep(
        ec2=world.ec2, records=world.records, table=OneRun(run_item(RunState.STOPPED, days_ago=30)),  # type: ignore[arg-type]
        deployment="spotkeep", retention=WEEK, now=lambda: NOON,
    )  # fmt: skip
    swept = sweep.sweep()
    assert swept.deleted == ["vol-9"]
    assert "cannot be read" in swept.failures["storage of count"]


@pytest.mark.parametrize("action", [do.ReadJob, do.ReadRecord])
def test_an_agent_leaves_with_what_is_wrong(action: type[do.Action]) -> None:
    """It cannot know whose the run is: it lets go of the volume, and goes."""
    situation = Situation(instance="i-1", zone="a", here=Here(mounted="vol-1"))
    situation = absorb(situation, action(), Refused("Record", "the fleet record cannot be read"))
    assert decide(situation, now=0) == do.Unmount("vol-1")
    situation = replace(situation, here=Here())
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
    assert world.jobs.observe("count-1") is not None
    if stops:
        assert world.jobs.stop("count-1")
    world.passes(6 * 60 + 70)
    until_over(world)
    job = world.jobs.observe("count-1")
    assert job is not None
    assert job.ended
    assert world.now - NOON < timedelta(hours=8)
