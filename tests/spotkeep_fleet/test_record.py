"""The fleet record survives being written and read, and a bad one names all that is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_fleet import record as fleet_record
from spotkeep_fleet.errors import DocumentError
from spotkeep_fleet.instance_job import InstanceJob, NodesSpec, VolumeSpec, decode_job, encode_job, read_job
from spotkeep_fleet.record import (
    LONGEST_PROBLEM,
    SNAPSHOT,
    VOLUME,
    CurrentVolume,
    Departure,
    FleetRecord,
    Lease,
    Node,
    Retired,
    StoredSnapshot,
    TrainingReport,
    VolumeMove,
    decode,
    encode,
    new_record,
    reopened,
    snapshot_gib_hours,
    with_snapshots_counted,
)
from spotkeep_fleet.training_spec import JobSource, TrainingSpec
from tests.models.ec2 import instance_job

TEXT = st.text(max_size=8)
COUNT = st.integers(0, 10**6)


def maybe(strategy: Any) -> Any:
    return st.none() | strategy


NODES = st.builds(
    lambda few, more, wait, key: NodesSpec(at_least=few, at_most=few + more, wait_seconds=wait, key=key),
    few=st.integers(1, 32),
    more=st.integers(0, 32),
    wait=COUNT,
    key=st.text("0123456789abcdef", min_size=16, max_size=64),
)

JOBS = st.builds(
    InstanceJob,
    training=st.builds(
        TrainingSpec,
        command=st.lists(TEXT, min_size=1, max_size=3).map(tuple),
        environment=st.dictionaries(TEXT, TEXT, max_size=2),
        source=maybe(st.just(JobSource(uri="s3://bucket/a.tar.gz", sha256="0" * 64))),
    ),
    volume=st.builds(VolumeSpec, size_gb=st.integers(1, 9), initialization_rate_mib_s=maybe(st.integers(100, 300))),
    channels=st.dictionaries(TEXT, st.just("s3://bucket/data"), max_size=1),
    checkpoint_uri=maybe(st.just("s3://bucket/runs/r/checkpoints/")),
    rebalance=st.sampled_from(["leave", "save", "ignore"]),
) | st.builds(
    InstanceJob,
    training=st.just(TrainingSpec(command=("x",))),
    volume=st.just(VolumeSpec(size_gb=8)),
    checkpoint_uri=st.just("s3://bucket/runs/r/checkpoints/"),
    nodes=NODES,
)
RECORDS = st.builds(
    FleetRecord,
    run=TEXT,
    version=COUNT,
    fence=COUNT,
    lease=maybe(st.builds(Lease, holder=TEXT, fence=COUNT, expires_at=st.floats(0, 2**33), address=maybe(TEXT))),
    volume=maybe(st.builds(CurrentVolume, id=TEXT, zone=TEXT, size_gb=st.integers(0, 2**16), damage=maybe(TEXT))),
    move=maybe(
        st.builds(
            VolumeMove,
            operation=COUNT,
            zone=TEXT,
            source=st.sampled_from(["blank", "snapshot", "volume"]),
            snapshot=maybe(TEXT),
            successor=maybe(TEXT),
        )
    ),
    retired=st.lists(st.builds(Retired, kind=st.sampled_from(["volume", "snapshot"]), id=TEXT), max_size=3).map(tuple),
    kept=st.lists(TEXT, max_size=2).map(tuple),
    snapshots=st.lists(st.builds(StoredSnapshot, id=TEXT, gib=st.floats(0, 9), since=st.floats(0, 9)), max_size=2).map(
        tuple
    ),
    snapshot_gib_hours=st.floats(0, 1e6),
    training=st.builds(
        TrainingReport,
        step=maybe(COUNT),
        exit_code=maybe(COUNT),
        failure=maybe(TEXT),
        noticed=st.lists(st.builds(Departure, instance=TEXT, at=st.floats(0, 2**33)), max_size=2).map(tuple),
    ),
    stop_requested=st.booleans(),
    ended=st.booleans(),
    nodes=st.lists(st.builds(Node, instance=TEXT, address=TEXT), max_size=3).map(tuple),
    world=st.lists(TEXT, max_size=3).map(tuple),
    booted=st.lists(TEXT, max_size=3).map(tuple),
)


@given(RECORDS)
def test_what_is_written_is_read(record: FleetRecord) -> None:
    assert decode(encode(record)) == record


def test_a_problem_that_is_too_long_is_read_as_it_is_written_again() -> None:
    """Only a stranger writes such a record. It does not change each time that an instance writes it."""
    document = json.loads(encode(new_record(run="r"))) | {"problem": "x" * (LONGEST_PROBLEM + 1)}
    record = decode(json.dumps(document))
    assert record.problem == "x" * LONGEST_PROBLEM
    assert decode(encode(record)) == record


def test_everything_wrong_with_a_record_is_named_at_once() -> None:
    document = json.loads(encode(new_record(run="r")))
    document.update({"format": 2, "version": "1", "lease": {"holder": 7}, "retired": [{"kind": "bucket"}]})
    with pytest.raises(DocumentError) as caught:
        decode(json.dumps(document))
    problem = str(caught.value)
    for part in ("format is 2", "version is a str", "lease.holder", "lease.fence", "retired[0].kind"):
        assert part in problem


@pytest.mark.parametrize("read", [decode, decode_job])
@pytest.mark.parametrize("text", ["", "[]", "null", "{", "[" * 100_000])
def test_what_is_no_record_and_no_job_is_refused(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(DocumentError):
        read(text)


@given(JOBS)
def test_a_job_that_is_written_is_read(job: InstanceJob) -> None:
    assert decode_job(encode_job(job)) == job


def test_everything_wrong_with_a_job_is_named_at_once() -> None:
    document = {**instance_job(("x",), VolumeSpec(size_gb=8)).document(), "rebalance": "panic"}
    document["training"]["command"] = []
    with pytest.raises(DocumentError) as caught:
        decode_job(json.dumps(document))
    assert "job.training.command is empty" in str(caught.value)
    assert "'panic'; use one of leave, save, ignore" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"volume": {"size_gb": 8, "initialization_rate_mib_s": 400}}, "EC2 takes 100 to 300"),
        ({"checkpoint_uri": "bucket/prefix"}, "use s3://bucket/prefix"),
        ({"volume": None}, "volume is missing"),
        ({"training": None}, "training is missing"),
        ({"nodes": {"at_least": 2, "at_most": 2, "wait_seconds": 1, "key": "k" * 16}}, "have no checkpoint_uri"),
        ({"nodes": {"at_least": 3, "at_most": 2, "wait_seconds": 1, "key": "k" * 16}}, "at_most is 2, which is fewer"),
        ({"nodes": {"at_least": 1, "at_most": 65, "wait_seconds": 1, "key": "k" * 16}}, "nodes.at_most is 65; use 1"),
        ({"nodes": {"at_least": 1, "at_most": 2, "wait_seconds": 1, "key": ""}}, "key has 0 characters"),
    ],
)
def test_a_bad_job_is_refused(change: dict[str, Any], problem: str) -> None:
    document = {**instance_job(("x",), VolumeSpec(size_gb=8)).document(), **change}
    with pytest.raises(DocumentError, match=problem):
        read_job(document)


def test_a_record_without_nodes_is_one_of_an_older_version() -> None:
    """A record and a job that were written before there were nodes are read as before."""
    document = json.loads(encode(replace(new_record(run="r"), fence=1, lease=Lease("i-1", 1, 5.0))))
    del document["nodes"], document["world"], document["lease"]["address"]
    read = decode(json.dumps(document))
    assert (read.nodes, read.world, read.lease) == ((), (), Lease("i-1", 1, 5.0, address=None))
    job = instance_job(("x",), VolumeSpec(size_gb=8)).document()
    del job["nodes"]
    assert read_job(job).nodes is None


def test_the_next_attempt_has_no_nodes_yet() -> None:
    record = replace(new_record(run="r"), nodes=(Node("i-1", "10.0.0.1"),), world=("i-1",), booted=("i-1",), ended=True)
    assert (reopened(record).nodes, reopened(record).world, reopened(record).booted) == ((), (), ())


def test_the_key_of_nodes_is_not_shown() -> None:
    assert "secret" not in repr(NodesSpec(at_least=1, at_most=2, wait_seconds=600, key="secret" * 4))


def test_a_record_with_a_thousand_things_to_delete_of_each_kind_fits_its_item() -> None:
    """DynamoDB takes 400 KB. Interruptions add nothing to a record; what cannot be deleted stays in it."""
    many = range(1_000)
    full = fleet_record.FleetRecord(
        run="r" * 63,
        retired=tuple(fleet_record.Retired(fleet_record.SNAPSHOT, f"snap-{n:017d}") for n in many),
        kept=tuple(f"vol-{n:017d}" for n in many),
        snapshots=tuple(fleet_record.StoredSnapshot(f"snap-{n:017d}", 65_536.0, 1.7e9 + 0.123456) for n in many),
        training=fleet_record.TrainingReport(
            failure='"' * fleet_record.LONGEST_FAILURE,
            noticed=tuple(fleet_record.Departure(f"i-{n:017d}", 1.7e9) for n in range(fleet_record.MOST_NOTICED)),
            output_uri="s" * 2_048,
        ),
        problem='"' * (2 * fleet_record.LONGEST_PROBLEM),
    )
    assert len(fleet_record.encode(full)) < 200_000


SIZE = 100
HOUR = 3600.0


def moving(record: FleetRecord, snapshot: str | None) -> FleetRecord:
    return replace(record, move=VolumeMove(operation=1, zone="b", source=VOLUME, source_id="vol-1", snapshot=snapshot))


@pytest.fixture
def record() -> FleetRecord:
    return new_record(run="count", volume=CurrentVolume(id="vol-1", zone="a", size_gb=SIZE))


def test_a_snapshot_counts_from_the_move_that_makes_it_to_its_end(record: FleetRecord) -> None:
    made = with_snapshots_counted(moving(record, "snap-1"), volume_gb=SIZE, known_gib={}, now=0)
    known = with_snapshots_counted(made, volume_gb=SIZE, known_gib={"snap-1": 12.0}, now=HOUR)
    assert known.snapshots == (StoredSnapshot("snap-1", 12.0, 0),)
    retired = replace(known, move=None, retired=(Retired(VOLUME, "vol-0"), Retired(SNAPSHOT, "snap-1")))
    retired = with_snapshots_counted(retired, volume_gb=SIZE, known_gib={}, now=2 * HOUR)
    assert snapshot_gib_hours(retired, since=0, until=3 * HOUR) == 36.0
    gone = with_snapshots_counted(replace(retired, retired=()), volume_gb=SIZE, known_gib={}, now=4 * HOUR)
    assert (gone.snapshots, gone.snapshot_gib_hours) == ((), 48.0)
    assert snapshot_gib_hours(gone, since=0, until=9 * HOUR) == 48.0


def test_until_ec2_says_what_it_holds_it_counts_as_its_volume_which_is_at_least_that(record: FleetRecord) -> None:
    made = with_snapshots_counted(moving(record, "snap-1"), volume_gb=SIZE, known_gib={}, now=0)
    assert snapshot_gib_hours(made, since=0, until=HOUR) == 100.0


def test_a_snapshot_that_a_user_gave_is_not_the_runs(record: FleetRecord) -> None:
    given_one = replace(record, move=VolumeMove(operation=1, zone="b", source=SNAPSHOT, source_id="snap-0"))
    assert with_snapshots_counted(given_one, volume_gb=SIZE, known_gib={"snap-0": 9.0}, now=0) == given_one


def test_the_next_attempt_pays_for_what_is_there_in_its_own_time(record: FleetRecord) -> None:
    first = with_snapshots_counted(moving(record, "snap-1"), volume_gb=SIZE, known_gib={"snap-1": 10.0}, now=0)
    first = replace(first, snapshot_gib_hours=7.0)
    second = reopened(first)
    assert snapshot_gib_hours(first, since=0, until=HOUR) == 17.0
    assert snapshot_gib_hours(second, since=5 * HOUR, until=6 * HOUR) == 10.0


@given(
    lives=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.floats(0.1, 500)), min_size=1, max_size=6),
    readings=st.sets(st.integers(0, 100)),
)
def test_whenever_it_is_written_each_snapshot_counts_once_for_its_time(
    lives: list[tuple[int, int, float]], readings: set[int]
) -> None:
    record = new_record(run="count")
    gib = {f"snap-{number}": size for number, (_, _, size) in enumerate(lives)}
    spans = {f"snap-{number}": (begin, begin + length) for number, (begin, length, _) in enumerate(lives)}
    moments = {moment for span in spans.values() for moment in span}
    for now in sorted(readings | moments):
        named = [Retired(SNAPSHOT, id_) for id_, (begin, end) in spans.items() if begin <= now < end]
        record = with_snapshots_counted(
            replace(record, retired=tuple(named)), volume_gb=SIZE, known_gib=gib, now=now * HOUR
        )
        expected = sum(gib[id_] * (min(now, end) - begin) for id_, (begin, end) in spans.items() if begin <= now)
        assert snapshot_gib_hours(record, since=0, until=now * HOUR) == pytest.approx(expected)
