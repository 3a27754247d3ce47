"""Attempts on fleets behind the seam of a backend: whatever is retried or lost, one fleet, and nothing left.

What is due about a fleet: it is deleted first, its instance has its time to save, and nothing is left.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from spotkeep_fleet.record import FINISHED, CurrentVolume, Lease, StoredSnapshot
from spotkeep_jobs.backends.backend import JobPhase
from spotkeep_jobs.backends.ec2.attempt_view import as_job_view
from spotkeep_jobs.backends.ec2.ec2_api import tag_list
from spotkeep_jobs.backends.ec2.facts import Fleet, FleetReading
from spotkeep_jobs.backends.ec2.fleet_orphans import is_orphaned, keeps_volume
from spotkeep_jobs.backends.ec2.history import MAX_FUTILE_INSTANCES, FleetEnding, absorb, closed
from spotkeep_jobs.backends.ec2.jobs import LEAVING_TAKES, FleetOwners, FleetStep, steps_due, to_terminate
from spotkeep_jobs.errors import AwsBusyError, AwsRefusedError
from spotkeep_jobs.orphans.sources import OrphanSearch, orphaned_fleets
from spotkeep_jobs.record.deployment_records import OrphanKind, OrphanRule, StoragePrices
from spotkeep_jobs.record.record import Ending, Run, Volume
from spotkeep_jobs.record.states import EndReason, RunState
from spotkeep_jobs.record.table_client import RecordRefusedError
from tests.models.clock import NOON
from tests.models.faults import Fault, client_error

from .readings import at, history, instance, record, seen, trains
from .world import OURS, WEEK, OneRun, World, asked, run_item, snapshot, volume

TOO_LARGE = client_error("PutItem", "ValidationException", "Item size has exceeded the maximum allowed size")
PHASES = {"trains": JobPhase.LOADING, "is done": JobPhase.STOPPING, "is over": JobPhase.ENDED}
MODEL = "s3://bucket/runs/count/output/count-1/output/model.tar.gz"


@pytest.fixture
def world() -> World:
    return World()


def test_a_launch_that_is_repeated_has_one_fleet(world: World) -> None:
    """Trap 12: a random name on a retry pays for a second one."""
    world.faults.strike(Fault.ANSWER_LOST, operation="CreateFleet")
    with pytest.raises(AwsBusyError):
        world.jobs.create(asked())
    assert world.jobs.create(asked()) == world.jobs.create(asked()) == "fleet-1"
    assert list(world.ec2.fleets) == ["fleet-1"]
    assert list(world.ec2.versions) == [1, 2], "the deployment's, and the attempt's"


def test_a_fleet_whose_launcher_died_before_it_could_write_its_id_is_found_by_its_token(world: World) -> None:
    world.faults.strike(Fault.ANSWER_LOST, operation="CreateFleet")
    with pytest.raises(AwsBusyError):
        world.jobs.create(asked())
    found = world.jobs.settle("count-1")
    assert (found.job_id, found.environment["SPOTKEEP_ATTEMPT"]) == ("fleet-1", "1")
    assert world.history.template_version is not None


def test_a_refused_launch_leaves_nothing(world: World) -> None:
    world.ec2.refuses = ("InvalidParameter", "no such subnet")
    with pytest.raises(AwsRefusedError, match="no such subnet"):
        world.jobs.create(asked())
    assert (list(world.ec2.versions), world.ec2.fleets) == ([1], {})
    assert world.jobs.settle("count-1") is None


def test_from_the_launch_to_the_bill(world: World) -> None:
    world.jobs.create(asked())
    world.passes(1)
    world.instance("a")
    world.jobs.settle("count-1")
    world.passes(60)
    world.report(state=FINISHED, exit_code=0, output_uri=MODEL)
    live = world.jobs.settle("count-1")
    assert live.phase is JobPhase.STOPPING
    assert (world.fleet_state, world.ec2.terminated) == ("deleted", ["i-a"])
    over = world.jobs.settle("count-1")
    assert (over.end_reason, over.model_uri, over.training_seconds) == (EndReason.COMPLETED, MODEL, 3600)
    assert (over.charges.instances_usd, over.charges.on_demand_usd) == (pytest.approx(0.3), pytest.approx(1.0))
    assert over.billable_seconds == pytest.approx(1080)
    assert (list(world.ec2.versions), world.record.ended) == ([1], True)
    assert world.jobs.settle("count-1") == over


def test_a_volume_that_only_a_person_deletes_is_reported(world: World) -> None:
    world.jobs.create(asked())
    world.passes(1)
    world.instance("a")
    world.change_record(volume=CurrentVolume("vol-1", "us-east-1a", 8))
    assert world.jobs.observe("count-1").volume == Volume(id="vol-1")
    world.change_record(kept=("vol-1",))
    assert world.jobs.observe("count-1").volume == Volume(id="vol-1", is_for_a_person=True)


def test_sessions_are_taken_by_the_instance_that_holds_the_run(world: World) -> None:
    world.jobs.create(asked())
    world.passes(1)
    assert world.jobs.observe("count-1").session_targets == ()
    world.instance("a")
    assert world.jobs.observe("count-1").session_targets == ("i-a",)
    world.passes(1)
    world.instance("b")
    assert world.jobs.observe("count-1").session_targets == ("i-b",), "the one that was launched last"
    world.change_record(lease=Lease("i-a", 1, 0.0))
    assert world.jobs.observe("count-1").session_targets == ("i-a",)
    world.ec2.ends("i-a")
    assert world.jobs.observe("count-1").session_targets == ("i-b",)


@pytest.mark.parametrize("point", ["looked for by its token", "waits", "trains", "is done", "is over"])
def test_to_describe_an_attempt_changes_nothing(world: World, point: str) -> None:
    world.faults.strike(Fault.ANSWER_LOST, operation="CreateFleet")
    with pytest.raises(AwsBusyError):
        world.jobs.create(asked())
    if point != "looked for by its token":
        world.jobs.settle("count-1")
    if point not in ("looked for by its token", "waits"):
        world.instance("a")
        world.jobs.settle("count-1")
    if point in ("is done", "is over"):
        world.passes(60)
        world.report(state=FINISHED, exit_code=0)
    if point == "is over":
        world.jobs.settle("count-1")
        world.jobs.settle("count-1")
    before = world.kept
    described = world.jobs.observe("count-1")
    assert world.kept == before
    assert described.phase is PHASES.get(point, JobPhase.WAITING)
    assert described.has_more_to_do == (point not in ("waits", "trains", "is over"))
    assert world.jobs.settle("count-1") == replace(described, has_more_to_do=False, session_targets=())
    assert (world.kept == before) == (point in ("waits", "trains", "is over"))


def test_the_volume_and_the_snapshots_of_a_move_are_on_the_bill(world: World) -> None:
    world.jobs.create(asked())
    world.storage_prices = StoragePrices(ebs_gp3=0.0876, ebs_gp3_throughput=40.96, ebs_snapshot=0.073)
    world.instance("a")
    world.change_record(
        volume=CurrentVolume(id="vol-1", zone="us-east-1a", size_gb=100),
        snapshots=(StoredSnapshot(id="snap-2", gib=40, since=(NOON + timedelta(minutes=30)).timestamp()),),
        snapshot_gib_hours=5.0,
    )
    world.passes(60)
    world.report(state=FINISHED, exit_code=0, output_uri=MODEL)
    world.jobs.settle("count-1")
    over = world.jobs.settle("count-1")
    assert (over.charges.storage_gb_hours, over.charges.storage_usd) == (pytest.approx(100), pytest.approx(0.012))
    assert over.charges.snapshot_gb_hours == pytest.approx(5 + 20)
    assert over.charges.snapshot_usd == pytest.approx(25 * 0.073 / 730)
    assert over.charges.unknown == ()


def test_the_root_volumes_are_billed_as_the_attempts_own_template_version_asks_for_them(world: World) -> None:
    """The image is larger than the deployment's least size; a later deployment changes nothing of a run under way."""
    world.ec2.images = [
        {
            "ImageId": "ami-1",
            "RootDeviceName": "/dev/sda1",
            "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 75}}],
        }
    ]
    world.storage_prices = StoragePrices(ebs_gp3=0.08, ebs_gp3_throughput=40.96)
    world.faults.strike(Fault.ANSWER_LOST, operation="CreateLaunchTemplateVersion")
    with pytest.raises(AwsBusyError):
        world.jobs.create(asked())
    world.jobs.create(asked())
    [root] = world.ec2.versions[1]["LaunchTemplateData"]["BlockDeviceMappings"]
    root["Ebs"].update(VolumeSize=500, Throughput=700)
    world.instance("a")
    world.passes(60)
    world.ec2.ends("i-a", reason="Server.SpotInstanceTermination")
    world.passes(30)
    world.instance("b")
    world.passes(60)
    world.report(state=FINISHED, exit_code=0, output_uri=MODEL)
    world.jobs.settle("count-1")
    charges = world.jobs.settle("count-1").charges
    assert charges.root_volume_gb_hours == pytest.approx(75 * 2)
    assert charges.root_volume_usd == pytest.approx(2 * (75 * 0.08 + 125 * 0.04) / 730, abs=1e-6)
    assert (charges.storage_gb_hours, charges.storage_usd, charges.unknown) == (0.0, None, ())


def test_a_stop_is_written_for_the_instance_and_no_other_follows(world: World) -> None:
    world.jobs.create(asked())
    world.instance("a")
    world.change_record(lease=Lease("i-a", 1, world.now.timestamp() + 600))
    assert world.jobs.stop("count-1")
    assert world.record.stop_requested
    assert (world.fleet_state, world.ec2.terminated) == ("deleted_running", [])


def test_the_next_attempt_begins_on_the_same_volume_with_nothing_reported(world: World) -> None:
    world.jobs.create(asked())
    volume = CurrentVolume(id="vol-1", zone="us-east-1a", size_gb=100)
    world.change_record(volume=volume, ended=True, stop_requested=True, setbacks=5)
    world.report(state="failed", exit_code=1, script_failures=3, durable_step=70)
    assert world.jobs.create(asked(attempt=2)) == "fleet-2"
    record, job = world.record, world.records.job("count")
    assert (record.volume.id, job.attempt) == ("vol-1", 2)
    assert (record.training.state, record.training.script_failures, record.training.durable_step) == ("waiting", 0, 70)
    assert (record.ended, record.stop_requested, record.setbacks) == (False, False, 0)


def test_instances_of_an_earlier_attempt_are_no_part_of_this_one(world: World) -> None:
    world.jobs.create(asked())
    world.instance("old", attempt=1)
    world.jobs.create(asked(attempt=2))
    job = world.jobs.settle("count-2")
    assert [entry.phase for entry in job.transitions] == [JobPhase.WAITING]


def test_a_fleet_is_of_the_deployment_and_the_attempt_that_its_tags_say(world: World) -> None:
    """Trap 13: EC2's events come for all that the account has, and carry no tags."""
    owners = FleetOwners(world.api, deployment="spotkeep")
    world.jobs.create(asked())
    ours = world.ec2.fleets["fleet-1"]
    for name, tags in {
        "fleet-web": {"Name": "web"},
        "fleet-staging": OURS | {"spotkeep:deployment": "staging"},
    }.items():
        specification = {"ResourceType": "fleet", "Tags": tag_list(tags)}
        world.ec2.fleets[name] = replace(ours, id=name, request={**ours.request, "TagSpecifications": [specification]})
    assert owners.jobs_of_fleets(["fleet-1", "fleet-web", "fleet-staging", "fleet-gone"]) == {"fleet-1": "count-1"}
    assert FleetOwners(None, deployment="spotkeep").jobs_of_fleets(["fleet-1"]) == {}, "a deployment without fleets"


# Orphans


@pytest.mark.parametrize(
    ("run", "keeps"),
    [
        (run_item(RunState.TRAINING), True),
        (run_item(RunState.FAILED), True),
        (run_item(RunState.FAILED, when_done="delete"), True),
        (run_item(RunState.FAILED, days_ago=8), False),
        (run_item(RunState.COMPLETED, days_ago=6), True),
        (run_item(RunState.COMPLETED, when_done="delete"), False),
        (None, False),
    ],
)
def test_a_volume_stays_by_the_jobs_rule_and_the_deployments(world: World, run: Run | None, *, keeps: bool) -> None:
    world.jobs.create(asked())
    record = replace(world.record, ended=True)
    assert keeps_volume(record, run, retention=WEEK, now=NOON) is keeps
    assert keeps_volume(replace(record, ended=False), run, retention=WEEK, now=NOON)
    for_ever = replace(WEEK, volumes=None)
    asked_away = run is not None and run.request == {"volume": {"when_done": "delete"}} and not keeps
    assert keeps_volume(record, run, retention=for_ever, now=NOON) is not asked_away


@pytest.mark.parametrize(
    ("run", "left"),
    [
        (run_item(RunState.TRAINING), False),
        (run_item(RunState.COMPLETED), True),
        (run_item(RunState.TRAINING, attempt=2), True),
        (None, True),
    ],
)
def test_a_fleet_that_no_live_run_has_is_orphaned(run: Run | None, *, left: bool) -> None:
    fleet = Fleet(id="fleet-1", state="active", tags=OURS, created_at=NOON - timedelta(hours=2))
    assert is_orphaned(fleet, run, now=NOON) is left
    young = replace(fleet, created_at=NOON - timedelta(minutes=1))
    assert is_orphaned(young, None, now=NOON) is False


def test_orphans_are_deleted_and_nothing_else(world: World) -> None:
    """Trap 6: snapshots that are never deleted; and never the volume that holds the data."""
    world.jobs.create(asked())
    world.instance("a")
    current = CurrentVolume(id="vol-2", zone="us-east-1a", size_gb=1)
    world.change_record(volume=current, operations=2, ended=True, kept=("vol-0",))
    world.stores(volume("vol-1", operation=1), snapshot("snap-1", operation=2))
    world.stores(
        volume("vol-0", operation=1),
        volume("vol-2", operation=2),
        volume("vol-own", operation=None),
        volume("vol-busy", operation=1, attached=True),
        volume("vol-x", operation=1, run="x"),
    )
    removed = world.orphans(run_item(RunState.STOPPED)).remove_all()
    assert (removed.storage, removed.fleets, removed.failures) == (["vol-1", "snap-1"], ["fleet-1"], {})
    assert world.stored == ["vol-0", "vol-2", "vol-own", "vol-busy", "vol-x"]
    assert world.ec2.terminated == ["i-a"]


@pytest.mark.parametrize(
    ("ended_ago", "found"),
    [
        pytest.param(timedelta(minutes=5), set(), id="the next pass removes it"),
        pytest.param(
            timedelta(hours=1),
            {(OrphanKind.UNUSED_FLEET, "fleet-1", True), (OrphanKind.UNUSED_STORAGE, "vol-1", True)},
            id="a pass that does not come is noticed",
        ),
    ],
)
def test_what_was_not_removed_for_long_is_a_finding_and_reading_changes_nothing(
    world: World, ended_ago: timedelta, found: set[tuple[OrphanKind, str, bool]]
) -> None:
    world.jobs.create(asked())
    current = CurrentVolume(id="vol-2", zone="us-east-1a", size_gb=1)
    world.change_record(volume=current, operations=2, ended=True)
    world.stores(volume("vol-1"))
    run = run_item(RunState.STOPPED)
    run = run.model_copy(update={"ending": Ending(at=NOON - ended_ago, reason=EndReason.COMPLETED)})
    around = OrphanSearch(
        table=OneRun(run), deployment="spotkeep", prices={}, s3_usd_per_gigabyte_month=lambda: None,  # type: ignore[arg-type]
        clock=lambda: NOON,
    )  # fmt: skip
    findings = [each.finding for each in orphaned_fleets(world.orphans(run), around).orphans]
    assert {(each.kind, each.subject, each.wrong) for each in findings} == found
    assert all(each.rule is OrphanRule.RECONCILE and each.subject in each.mend for each in findings)
    assert (world.stored, world.fleet_state) == (["vol-1"], "active")


def test_a_call_that_ec2_refuses_is_reported(world: World) -> None:
    def refuse(operation: str) -> None:
        raise client_error(operation, "UnauthorizedOperation")

    world.faults.before_call = refuse
    with pytest.raises(AwsRefusedError):
        list(world.orphans(None).find(failed=lambda _what, _error: None))


@pytest.mark.long
def test_a_fleet_that_was_interrupted_a_thousand_times_is_settled_stopped_and_billed_as_any_other(world: World) -> None:
    """I6: its record is as large as after fifty; once it was too large to be written, and nothing ended any more."""
    world.jobs.create(asked())
    for number in range(1000):
        world.passes(2)
        world.instance(str(number))
        world.jobs.settle("count-1")
        world.passes(2)
        world.ec2.ends(f"i-{number}", reason="Server.SpotInstanceTermination")
        world.ec2.instances.pop(f"i-{number - 15}", None)
        world.ec2.fleets["fleet-1"].history.clear()
    world.passes(2)
    world.instance("last")
    world.jobs.settle("count-1")
    world.passes(61)
    assert world.jobs.stop("count-1")
    world.ec2.ends("i-last")
    over = world.jobs.settle("count-1")
    assert over.end_reason is EndReason.STOPPED_BY_USER
    assert over.training_seconds == 1000 * 120 + 61 * 60
    assert over.charges.on_demand_usd == pytest.approx(over.training_seconds / 3600)
    assert over.charges.instances_usd == pytest.approx(0.3 * 61 / 60), "of those that EC2 took at once none is billed"
    assert world.dynamodb.largest["run fleet-history"] < 64_000


def test_instances_stay_listed_while_ec2_does_not_say_what_they_cost(world: World) -> None:
    world.jobs.create(asked())
    for number in range(60):
        world.passes(5)
        world.instance(str(number))
        world.jobs.settle("count-1")
        world.ec2.ends(f"i-{number}", reason="Server.SpotInstanceTermination")
        if number == 55:
            added_up = world.history.earlier_instances.count
        if number >= 55:
            world.faults.strike(Fault.REFUSED, operation="DescribeSpotPriceHistory")
    assert world.history.earlier_instances.count == added_up
    world.faults.strike(None)
    world.passes(20)
    world.instance("next")
    world.jobs.settle("count-1")
    assert world.history.earlier_instances.count == 61 - 50


@pytest.mark.parametrize("ends_by", ["a stop", "max_run", "its training"])
@pytest.mark.parametrize("refused", ["PutItem", "every write"])
def test_what_is_to_end_ends_although_its_record_cannot_be_written(world: World, ends_by: str, refused: str) -> None:
    """I6: an item that DynamoDB does not take once kept a fleet for ever."""
    world.jobs.create(asked())
    world.passes(1)
    world.instance("a")
    world.change_record(lease=Lease("i-a", 1, (NOON + timedelta(days=7)).timestamp()))
    world.report(state="training", heartbeat_at=world.now.timestamp())
    world.jobs.settle("count-1")
    if ends_by == "its training":
        world.report(state=FINISHED, exit_code=0)
    world.dynamodb.refuse(TOO_LARGE, operation="PutItem")
    if refused == "every write":
        world.dynamodb.refuse(TOO_LARGE, operation="TransactWriteItems")
    world.passes(61 if ends_by == "max_run" else 1)
    with pytest.raises(RecordRefusedError, match="Item size has exceeded the maximum allowed size"):
        (world.jobs.stop if ends_by == "a stop" else world.jobs.settle)("count-1")
    assert world.fleet_state == "deleted_running", "its instance saves, and nothing follows it"
    world.passes(5)
    with pytest.raises(RecordRefusedError):
        world.jobs.settle("count-1")
    assert (world.fleet_state, world.ec2.terminated) == ("deleted", ["i-a"])


def test_a_fleet_is_deleted_before_its_instance_goes_and_the_instance_keeps_its_time_to_save() -> None:
    """Trap 7: no other instance takes the volume from an instance that has not let go of it."""
    done = record(holder="a", state=FINISHED, exit_code=0)
    live = seen(instance("a", launched=1))
    found = absorb(history(), seen=live, record=done, now=at(5))
    assert steps_due(found, seen=live, record=done, now=at(5)) == (FleetStep.DELETE_FLEET,)
    deleted = seen(instance("a", launched=1), state="deleted_running")
    assert steps_due(found, seen=deleted, record=done, now=at(6)) == ()
    left = replace(done, lease=None)
    assert steps_due(found, seen=deleted, record=left, now=at(6)) == (FleetStep.TERMINATE,)
    assert to_terminate(found, record=left, now=at(6)) == ("i-a",)


def test_an_instance_that_never_lets_go_is_terminated_in_the_end() -> None:
    hanging = record(holder="a", state=FINISHED, exit_code=0)
    found = absorb(history(), seen=seen(instance("a", launched=1)), record=hanging, now=at(5))
    assert to_terminate(found, record=hanging, now=at(5) + LEAVING_TAKES) == ("i-a",)


def test_it_is_over_when_nothing_runs_and_nothing_can_come_any_more() -> None:
    done = record(state=FINISHED, exit_code=0)
    gone = instance("a", launched=1, state="terminated")
    found = absorb(history(), seen=seen(gone), record=done, now=at(5))
    assert steps_due(found, seen=seen(gone, state="deleted_running"), record=done, now=at(5)) == ()
    assert steps_due(found, seen=seen(gone, state="deleted"), record=done, now=at(5)) == (FleetStep.CLOSE,)
    assert steps_due(found, seen=seen(gone, state="deleted_running"), record=done, now=at(8)) == (FleetStep.CLOSE,)


def test_a_fleet_that_ec2_does_not_show_yet_is_not_gone_and_is_deleted_all_the_same() -> None:
    unseen = FleetReading(fleet=None, instances=())
    found = absorb(history(), seen=unseen, record=record(), now=at(1))
    assert found.ending is None
    stopped = replace(record(), stop_requested=True)
    found = absorb(found, seen=unseen, record=stopped, now=at(2))
    assert steps_due(found, seen=unseen, record=stopped, now=at(2)) == (FleetStep.DELETE_FLEET,)


def test_a_fleet_that_a_user_deleted_lets_its_instance_save() -> None:
    live = seen(instance("a", launched=1), state="deleted_running")
    found = absorb(history(), seen=live, record=trains("a", since=2), now=at(5))
    assert found.ending is FleetEnding.FLEET_GONE
    assert steps_due(found, seen=live, record=trains("a", since=2), now=at(5)) == (FleetStep.ASK_TO_STOP,)


def test_an_instance_that_never_says_a_word_is_ended_and_counted() -> None:
    mute = instance("mute", launched=1)
    found = absorb(history(), seen=seen(mute), record=record(), now=at(20))
    assert steps_due(found, seen=seen(mute), record=record(), now=at(20)) == ()
    found = absorb(found, seen=seen(mute), record=record(), now=at(21))
    assert steps_due(found, seen=seen(mute), record=record(), now=at(21)) == (FleetStep.TERMINATE,)
    assert to_terminate(found, record=record(), now=at(21)) == ("i-mute",)
    ended = [
        instance(f"{n}", launched=20 * n, state="terminated", reason="Client.UserInitiatedShutdown")
        for n in range(MAX_FUTILE_INSTANCES)
    ]
    assert absorb(found, seen=seen(*ended), record=record(), now=at(110)).ending is FleetEnding.FUTILE


def test_an_instance_whose_agent_was_heard_of_may_wait_for_its_volume_as_long_as_it_must() -> None:
    waits = seen(instance("a", launched=1))
    found = absorb(history(), seen=waits, record=record(holder="a", until=6), now=at(5))
    found = absorb(found, seen=waits, record=record(), now=at(90))
    assert steps_due(found, seen=waits, record=record(), now=at(90)) == ()


def test_an_instance_that_waits_for_the_lease_of_another_one_is_not_silent() -> None:
    both = seen(instance("a", launched=1), instance("b", launched=2))
    found = absorb(history(), seen=both, record=trains("a", since=3), now=at(30))
    assert steps_due(found, seen=both, record=trains("a", since=3), now=at(30)) == ()


def test_limits_end_a_run_gently() -> None:
    live = seen(instance("a", launched=1))
    found = absorb(history(), seen=live, record=trains("a", since=2), now=at(3))
    found = absorb(found, seen=live, record=trains("a", since=2), now=at(63))
    assert found.ending is FleetEnding.MAX_RUN
    assert steps_due(found, seen=live, record=trains("a", since=2), now=at(63)) == (
        FleetStep.ASK_TO_STOP,
        FleetStep.DELETE_FLEET,
    )
    waiting = absorb(history(), seen=seen(), record=record(), now=at(121))
    assert waiting.ending is FleetEnding.MAX_WAIT
    job = as_job_view(closed(waiting, charges=None, now=at(121)), record())
    assert (job.phase, job.end_reason, job.training_seconds) == (JobPhase.ENDED, EndReason.MAX_WAIT_EXCEEDED, None)
