"""The stories whose records are kept, and the way that each goes on with the code of the day.

`begin` ends where the records are kept. `go_on` ends the live runs by events, resumes them, and lets them complete.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from spotkeep_fleet.record import CurrentVolume, Departure, Lease, Node
from spotkeep_jobs.backends.sagemaker.training_job import DEPLOYMENT_TAG
from spotkeep_jobs.record.states import (
    EndReason,
    NotificationKind,
    NotificationState,
    PoolEndReason,
    PoolState,
    RunState,
    SweepState,
)
from spotkeep_jobs.record.sweep import Sweep, Trial
from tests.models.batch import ModelServiceJob
from tests.models.faults import client_error
from tests.upgrades.site import Site

_EVERYTHING: Final = [kind.value for kind in NotificationKind]
_RICH: Final = {
    "command": "python train.py --epochs 3",
    "owner": "ada",
    "capacity": "spot",
    "environment": {"SEED": "7"},
    "hyperparameters": {"lr": "0.1"},
    "metrics": {"loss": {"goal": "minimize"}},
    "max_cost": 50,
    "notify": _EVERYTHING,
}
_PLAN: Final = {
    "made_at": "2026-11-21T12:00:00Z",
    "table": {
        "version": 1, "age_edges_s": [3600], "work_step_s": 3600, "from_nothing_s": [[0], [10**9], [0], [0]],
        "from_on_demand_s": [[0]] * 4, "zones": ["any"], "horizons_s": [3600], "lasting_s": [[[3600], [3600]]],
        "slack_step_s": 3600, "restart_usd": [[0]],
    },
    "cost_usd": {"p10": 1.0, "p50": 2.0, "p90": 3.0},
    "finish_seconds": {"p10": 3600.0, "p50": 7200.0, "p90": 9000.0},
    "chance_of_on_demand": 0.5,
    "spot_usd_per_hour": 0.08,
    "rests_on": ["spot prices of the last week"],
}  # fmt: skip
"""It gives up spot after an hour without it."""
_ADOPTED: Final = "pytorch-training-2026-11-21-12-00-00-123"


@dataclass(frozen=True, kw_only=True)
class Story:
    """A story.

    Attributes:
        begin: Tells it until its records are kept.
        go_on: Tells the rest, with the code of the day.
    """

    begin: Callable[[Site], None]
    go_on: Callable[[Site], None]


def _launches(site: Site, name: str, **fields: object) -> None:
    site.asks({"name": name, "run": name, "token": f"token-{name}", **_RICH, **fields})


def _trains(site: Site, job: str, steps: int) -> None:
    site.account.gets_capacity(site.job(job))
    site.account.trains(site.job(job), steps)
    site.account.says(site.job(job), "metrics", step=site.job(job).position, metrics={"loss": 0.5})


def _fails(site: Site, job: str) -> None:
    site.account.ends(site.job(job), "Failed", failure="AlgorithmError: ValueError: no such file")
    site.last_event_comes()


def _completes(site: Site, run: str, job: str) -> None:
    """Let a job train and end well. One notification says so, and the next run may have the checkpoint prefix."""
    if not site.job(job).on_instances:
        site.account.gets_capacity(site.job(job))
    site.account.trains(site.job(job), 5)
    site.account.ends(site.job(job), "Completed")
    site.last_event_comes()
    _has_completed(site, run)


def _has_completed(site: Site, run: str) -> None:
    item = site.run(run)
    assert (item.state, item.end_reason) == (RunState.COMPLETED, EndReason.COMPLETED)
    assert item.cost is not None
    assert _sent(site, run, "completed") == 1
    assert site.record.claims.checkpoint_lock_owner(item.checkpoint_uri) is None


def _sent(site: Site, run: str, kind: str) -> int:
    """Count the notifications of a kind that the last attempt has sent, and which the record says were sent."""
    item = site.run(run)
    found = [
        each for each in site.record.notifications.of_run(run) if each.notification_id == f"{run}/{kind}/{item.attempt}"
    ]
    assert all(each.state is NotificationState.SENT for each in found)
    assert site.account.published[f"{run}/{kind}/{item.attempt}"] <= 1
    return len(found)


def _is_resumed(site: Site, run: str, **fields: object) -> str:
    """Let a user resume a run, and return the name of its next job."""
    before = site.run(run)
    answer = site.asks({"action": "resume", "run": run, **fields})
    after = site.run(run)
    assert (answer["run"], answer["attempt"]) == (run, after.attempt)
    assert (after.attempt, after.ending, after.checkpoint_uri) == (before.attempt + 1, None, before.checkpoint_uri)
    return after.job_name


# A run on SageMaker


def _live(site: Site) -> None:
    _launches(site, "live", checkpoint_stale="1h", waiting_too_long="1h")
    site.time_passes(hours=2)
    site.passes()
    _trains(site, "live-1", 7)
    site.passes()
    site.time_passes(hours=3)
    site.passes()
    site.account.is_interrupted(site.job("live-1"))
    site.last_event_comes()
    _trains(site, "live-1", 3)
    site.passes()


def _live_goes_on(site: Site) -> None:
    assert site.run("live").state is RunState.TRAINING
    _fails(site, "live-1")
    assert site.run("live").end_reason is EndReason.SCRIPT_FAILED
    assert _sent(site, "live", "failed") == 1
    _completes(site, "live", _is_resumed(site, "live"))


def _hung(site: Site) -> None:
    _launches(site, "hung", stuck={"after": "10m", "restart": True}, secrets={"TOKEN": "tokens/hub"})
    _trains(site, "hung-1", 7)
    site.account.says(site.job("hung-1"), "stuck", seconds=600.0, restarts=0, at_most=3)
    site.time_passes(hours=1)
    site.passes()


def _hung_goes_on(site: Site) -> None:
    item = site.run("hung")
    assert (item.hangs.count, item.hangs.restarts) == (1, 1)
    _completes(site, "hung", "hung-1")


def _ended(site: Site) -> None:
    _launches(site, "ended", instance_count=2)
    _trains(site, "ended-1", 7)
    _fails(site, "ended-1")
    site.asks({"action": "resume", "run": "ended"})
    _trains(site, "ended-2", 7)
    site.asks({"action": "stop", "run": "ended"})
    site.account.ends(site.job("ended-2"), "Stopped")
    site.last_event_comes()


def _ended_goes_on(site: Site) -> None:
    _completes(site, "ended", _is_resumed(site, "ended", changes={"hyperparameters": {"lr": "0.2"}}))


def _paused(site: Site) -> None:
    _launches(site, "paused", pause_at_step=10)
    _trains(site, "paused-1", 10)
    site.account.says(site.job("paused-1"), "paused", step=10)
    site.account.ends(site.job("paused-1"), "Completed")
    site.last_event_comes()


def _paused_goes_on(site: Site) -> None:
    assert (site.run("paused").end_reason, site.run("paused").paused_at_step) == (EndReason.PAUSED, 10)
    _completes(site, "paused", _is_resumed(site, "paused", changes={"pause_at_step": None}))


def _being_stopped(site: Site) -> None:
    _launches(site, "stopping")
    _trains(site, "stopping-1", 7)
    site.last_event_comes()
    site.asks({"action": "stop", "run": "stopping"})


def _being_stopped_goes_on(site: Site) -> None:
    assert site.run("stopping").state is RunState.STOPPING
    site.account.ends(site.job("stopping-1"), "Stopped")
    site.last_event_comes()
    assert site.run("stopping").end_reason is EndReason.STOPPED_BY_USER
    _completes(site, "stopping", _is_resumed(site, "stopping"))


def _out_of_retries(site: Site) -> None:
    _launches(site, "retried", script_retries=1)
    _trains(site, "retried-1", 3)
    _fails(site, "retried-1")
    _trains(site, "retried-2", 7)
    _fails(site, "retried-2")


def _out_of_retries_goes_on(site: Site) -> None:
    ending = site.run("retried").ending
    assert ending is not None
    assert ending.no_more_jobs_because == "the script has failed 2 times (script_retries)"
    _completes(site, "retried", _is_resumed(site, "retried"))


def _not_notified_yet(site: Site) -> None:
    _launches(site, "silent")
    _trains(site, "silent-1", 5)
    site.account.ends(site.job("silent-1"), "Failed", failure="AlgorithmError: words")
    site.account.before_publish = _refuse
    site.last_event_comes()
    site.account.before_publish = lambda _notification_id: None


def _refuse(_notification_id: str) -> None:
    raise client_error("Publish", "KMSDisabledException", "the key is disabled")


def _not_notified_yet_goes_on(site: Site) -> None:
    assert not site.account.published
    site.time_passes(hours=1)
    site.passes()
    assert site.account.published["silent/failed/1"] == 1
    assert _sent(site, "silent", "failed") == 1
    _completes(site, "silent", _is_resumed(site, "silent"))


def _steered(site: Site) -> None:
    _launches(site, "steered", capacity="auto", max_run="10h", deadline="20h", plan=_PLAN)
    site.time_passes(minutes=10)
    site.passes()
    _trains(site, "steered-1", 7)
    job = site.job("steered-1")
    site.account.says(job, "schedule", seconds=600)
    for step in (5, 6):
        site.time_passes(minutes=10)
        site.account.says(job, "saved", step=step)
        site.account.says(job, "uploaded", step=5)
    site.account.says(job, "progress", step=8, total_steps=1000)
    site.time_passes(minutes=40)
    site.passes()


def _steered_goes_on(site: Site) -> None:
    run = site.run("steered")
    assert run.steered is not None
    assert run.progress is not None
    site.account.is_interrupted(site.job("steered-1"))
    site.last_event_comes()
    site.time_passes(hours=1, minutes=10)
    site.passes()
    site.account.ends(site.job("steered-1"), "Stopped")
    site.last_event_comes()
    run = site.run("steered")
    assert (run.attempt, run.place.capacity) == (2, "on-demand"), "the plan gives up spot after an hour"
    _completes(site, "steered", "steered-2")


def _waiting_for_quota(site: Site) -> None:
    site.account.used_by_others = 1_000_000
    _launches(site, "quota")


def _waiting_for_quota_goes_on(site: Site) -> None:
    assert site.run("quota").quota_wait is not None
    site.account.used_by_others = 0
    site.time_passes(minutes=30)
    site.passes()
    _completes(site, "quota", "quota-1")


def _asked_again(site: Site) -> None:
    _launches(site, "again", capacity="on-demand")
    site.account.ends(site.job("again-1"), "Failed", failure="CapacityError: Unable to provision")
    site.last_event_comes()


def _asked_again_goes_on(site: Site) -> None:
    attempt = site.record.runs.attempt("again", 2)
    assert attempt is not None
    assert attempt.retry is not None
    site.time_passes(minutes=10)
    site.passes()
    _completes(site, "again", "again-2")


def _left_for_on_demand(site: Site) -> None:
    _launches(site, "ladder", capacity="auto", longest_wait="30m")
    site.last_event_comes()
    site.time_passes(minutes=40)
    site.passes()
    site.account.ends(site.job("ladder-1"), "Stopped")
    site.last_event_comes()


def _left_for_on_demand_goes_on(site: Site) -> None:
    assert site.run("ladder").place.capacity == "on-demand"
    _completes(site, "ladder", "ladder-2")


# In a queue


def _service_job(site: Site) -> ModelServiceJob:
    [found] = [each for each in site.account.batch.jobs.values() if not each.over]
    return found


def _turn(site: Site, steps: int) -> str:
    job = site.account.batch.has_its_turn(_service_job(site))
    _trains(site, job.name, steps)
    return job.name


def _queued(site: Site) -> None:
    _launches(site, "queued", capacity="on-demand", queue="gpu", share="vision", priority=3)
    job = _turn(site, 7)
    site.passes()
    site.account.batch.preempts(_service_job(site))
    site.account.ends(site.job(job), "Stopped")
    site.account.batch.catches_up()
    site.passes()


def _queued_goes_on(site: Site) -> None:
    job = _turn(site, 3)
    site.passes()
    assert site.run("queued").training_job == job
    site.account.ends(site.job(job), "Completed")
    site.account.batch.catches_up()
    site.passes()
    _has_completed(site, "queued")
    cost = site.run("queued").cost
    assert cost is not None
    assert cost.redone_steps == 2, "of the job that was preempted 7 steps are known, and 5 were saved"


def _preempted_often(site: Site) -> None:
    """Let AWS Batch preempt the job more often than its attempt lists."""
    _launches(site, "patient", capacity="on-demand", queue="gpu", share="vision")
    for _ in range(55):
        job = _turn(site, 1)
        site.passes()
        site.account.batch.preempts(_service_job(site))
        site.account.ends(site.job(job), "Stopped")
        site.account.batch.catches_up()


def _preempted_often_goes_on(site: Site) -> None:
    attempt = site.record.runs.attempt("patient", 1)
    assert attempt is not None
    assert attempt.training_jobs.earlier.names
    job = _turn(site, 5)
    site.account.ends(site.job(job), "Completed")
    site.account.batch.catches_up()
    site.passes()
    _has_completed(site, "patient")
    assert site.run("patient").interruptions == 55


# On EC2


def _instance(site: Site, fleet: str, name: str) -> None:
    site.ec2.launches(fleet, name)


def _reports(site: Site, run: str, **training: object) -> None:
    record = site.fleets.record(run)
    assert record is not None
    now = site.account.now()
    report = replace(record.training, heartbeat_at=now.timestamp(), **training)  # type: ignore[arg-type]
    site.fleets.write_record(replace(record, training=report), now=now)


def _takes_up(site: Site, run: str) -> None:
    """Let the instance i-1 take lease and volume of a run, and train."""
    record = site.fleets.record(run)
    assert record is not None
    now = site.account.now()
    volume = CurrentVolume(id="vol-1", zone="us-east-1a", size_gb=100)
    lease = Lease("i-1", 1, now.timestamp() + 600)
    site.fleets.write_record(replace(record, volume=volume, lease=lease, fence=1), now=now)
    _reports(site, run, state="training", step=70, durable_step=60)


def _on_ec2(site: Site) -> None:
    _launches(site, "fleet", backend="ec2", instance_types=["g5.xlarge"], metrics={}, max_cost=None)
    _instance(site, "fleet-1", "i-1")
    if site.makes:
        _takes_up(site, "fleet")
    site.time_passes(minutes=5)
    site.passes()


def _on_ec2_goes_on(site: Site) -> None:
    run = site.run("fleet")
    assert (run.state, run.volume and run.volume.id) == (RunState.TRAINING, "vol-1")
    site.asks({"action": "stop", "run": "fleet"})
    record = site.fleets.record("fleet")
    assert record is not None
    assert record.stop_requested
    site.ec2.ends("i-1")
    for _ in range(3):
        site.time_passes(minutes=10)
        site.passes()
    assert site.run("fleet").end_reason is EndReason.STOPPED_BY_USER
    _is_resumed(site, "fleet")
    _instance(site, "fleet-2", "i-2")
    site.time_passes(minutes=5)
    site.passes()
    _reports(site, "fleet", state="finished", exit_code=0)
    for _ in range(3):
        site.time_passes(minutes=10)
        site.passes()
    _has_completed(site, "fleet")
    record = site.fleets.record("fleet")
    assert record is not None
    assert (record.ended, record.volume and record.volume.id, record.training.durable_step) == (True, "vol-1", 60)


def _limited_on_ec2(site: Site) -> None:
    """Let a run on a fleet spend most of its max_cost. The price of its volume is not known."""
    volume = {"size_gb": 10, "type": "io2", "iops": 100}
    _launches(
        site, "thrifty", backend="ec2", instance_types=["g6.xlarge"], metrics={}, max_cost=0.5, max_wait="5d",
        volume=volume,
    )  # fmt: skip
    _instance(site, "fleet-1", "i-1")
    if site.makes:
        _takes_up(site, "thrifty")
    for _ in range(2):
        site.time_passes(minutes=10)
        site.passes()


def _limited_on_ec2_goes_on(site: Site) -> None:
    site.time_passes(minutes=50)
    site.passes()
    record = site.fleets.record("thrifty")
    assert record is not None
    assert record.stop_requested
    site.ec2.ends("i-1")
    for _ in range(3):
        site.time_passes(minutes=10)
        site.passes()
    run = site.run("thrifty")
    assert (run.state, run.end_reason) == (RunState.STOPPED, EndReason.MAX_COST)
    assert run.cost is not None
    assert run.cost.billed_usd is not None
    assert run.cost.billed_usd < 0.5


def _resumed_on_ec2(site: Site) -> None:
    """Let a run on a fleet be stopped and resumed. It has its volume and waits for an instance."""
    _launches(site, "again", backend="ec2", instance_types=["g6.xlarge"], metrics={}, max_cost=20, max_wait="5d")
    _instance(site, "fleet-1", "i-1")
    if site.makes:
        _takes_up(site, "again")
    site.time_passes(minutes=10)
    site.passes()
    site.asks({"action": "stop", "run": "again"})
    site.ec2.ends("i-1")
    for _ in range(3):
        site.time_passes(minutes=10)
        site.passes()
    site.asks({"action": "resume", "run": "again"})


def _resumed_on_ec2_goes_on(site: Site) -> None:
    site.time_passes(hours=10)
    site.passes()
    _instance(site, "fleet-2", "i-2")
    site.time_passes(minutes=5)
    site.passes()
    _reports(site, "again", state="finished", exit_code=0)
    for _ in range(3):
        site.time_passes(minutes=10)
        site.passes()
    _has_completed(site, "again")


def _leaves_spot_on_ec2(site: Site) -> None:
    """Let a run on a fleet wait for spot capacity until its deadline asks it to go on demand."""
    _launches(
        site, "either", backend="ec2", instance_types=["g6.xlarge"], metrics={}, max_cost=20, capacity="auto",
        longest_wait="30m", max_price=0.4, deadline="20h", work="3h",
    )  # fmt: skip
    site.time_passes(hours=16.5)
    site.passes()


def _leaves_spot_on_ec2_goes_on(site: Site) -> None:
    for _ in range(3):
        site.time_passes(minutes=5)
        site.passes()
    run = site.run("either")
    assert (run.attempt, run.place.capacity, run.job_id) == (2, "on-demand", "fleet-2")
    _instance(site, "fleet-2", "i-1")
    _takes_up(site, "either")
    site.time_passes(minutes=5)
    site.passes()
    _reports(site, "either", state="finished", exit_code=0)
    for _ in range(3):
        site.time_passes(minutes=10)
        site.passes()
    _has_completed(site, "either")


def _taken_often(site: Site) -> None:
    """Let EC2 take more instances than the fleet's history lists."""
    _launches(site, "taken", backend="ec2", instance_types=["g5.xlarge"], metrics={}, max_cost=None)
    for number in range(55):
        _instance(site, "fleet-1", f"i-{number}")
        site.time_passes(minutes=5)
        site.ec2.ends(f"i-{number}", reason="Server.SpotInstanceTermination")
        site.time_passes(minutes=15)
        site.passes()


def _taken_often_goes_on(site: Site) -> None:
    history = site.fleets.history("taken", 1)
    assert history is not None
    assert history.earlier_instances is not None
    _instance(site, "fleet-1", "i-last")
    site.time_passes(minutes=5)
    site.passes()
    _reports(site, "taken", state="finished", exit_code=0)
    for _ in range(3):
        site.time_passes(minutes=10)
        site.passes()
    _has_completed(site, "taken")
    assert site.run("taken").interruptions == 55


def _group_on_ec2(site: Site) -> None:
    _launches(site, "pair", backend="ec2", instance_types=["g5.xlarge"], metrics={}, max_cost=None, runs=2)
    _instance(site, "fleet-1", "i-1")
    _instance(site, "fleet-2", "i-2")
    site.time_passes(minutes=5)
    site.passes()
    site.ec2.ends("i-1", reason="Server.SpotInstanceTermination")
    _instance(site, "fleet-1", "i-3")
    site.time_passes(minutes=5)
    site.passes()
    if site.makes:
        _reports(site, "pair-1", state="failed", exit_code=1, failure="ValueError: no such file", script_failures=3)
    for _ in range(3):
        site.time_passes(minutes=10)
        site.passes()


def _group_on_ec2_goes_on(site: Site) -> None:
    assert site.run("pair-1").end_reason is EndReason.SCRIPT_FAILED
    _reports(site, "pair-2", state="finished", exit_code=0)
    _is_resumed(site, "pair-1")
    _instance(site, "fleet-3", "i-4")
    site.time_passes(minutes=5)
    site.passes()
    _reports(site, "pair-1", state="finished", exit_code=0)
    for _ in range(3):
        site.time_passes(minutes=10)
        site.passes()
    _has_completed(site, "pair-1")
    _has_completed(site, "pair-2")


# Another client's


def _world(site: Site, run: str, *names: str, **training: object) -> None:
    """Let nodes train together, the first of them as the leader."""
    record = site.fleets.record(run)
    assert record is not None
    now = site.account.now()
    lease = Lease(names[0], record.fence + 1, now.timestamp() + 30, "10.0.0.1") if names else None
    nodes = tuple(Node(name, f"10.0.0.{number}") for number, name in enumerate(names, start=1))
    following = replace(record, lease=lease, fence=record.fence + 1, nodes=nodes, world=names, booted=names)
    site.fleets.write_record(following, now=now)
    _reports(site, run, **training)


def _nodes_on_ec2(site: Site) -> None:
    """Let three nodes leave a first place, train at the next one, lose one after a notice, and have one missing."""
    _launches(
        site, "nodes", backend="ec2", instance_types=["g5.xlarge"], metrics={}, max_cost=None, max_wait="5d",
        nodes={"min": 2, "max": 3}, nodes_wait="15m", distributed="torchrun", volume={"size_gb": 80},
        network={"placement": "cluster"},
    )  # fmt: skip
    _instance(site, "fleet-1", "i-alone")
    for _ in range(2):
        site.time_passes(minutes=10)
        site.passes()
    for name in ("i-1", "i-2", "i-3", "i-4"):
        _instance(site, "fleet-2", name)
    site.time_passes(minutes=4)
    if site.makes:
        _world(site, "nodes", "i-1", "i-2", "i-3", "i-4", state="training", step=70, uploaded_step=60)
    site.passes()
    site.time_passes(minutes=4)
    if site.makes:
        left = Departure("i-3", site.account.now().timestamp())
        _world(site, "nodes", "i-1", "i-2", state="training", noticed=(left,), interruptions=1)
    site.ec2.ends("i-3", reason="Server.SpotInstanceTermination")
    site.passes()


def _nodes_on_ec2_goes_on(site: Site) -> None:
    run = site.run("nodes")
    assert (run.state, run.job_id, run.interruptions) == (RunState.TRAINING, "fleet-2", 1)
    assert site.ec2.instances["i-alone"].ended is not None
    site.ec2.ends("i-2", reason="Server.SpotInstanceTermination")
    site.ec2.ends("i-4", reason="Server.SpotInstanceTermination")
    _world(site, "nodes", "i-1", state="waiting")
    for _ in range(2):
        site.time_passes(minutes=8)
        site.passes()
    assert site.run("nodes").job_id == "fleet-3"
    assert site.run("nodes").interruptions == 3
    site.asks({"action": "stop", "run": "nodes"})
    for _ in range(3):
        site.time_passes(minutes=10)
        site.passes()
    assert site.run("nodes").end_reason is EndReason.STOPPED_BY_USER
    _is_resumed(site, "nodes")
    for name in ("i-5", "i-6"):
        _instance(site, "fleet-4", name)
    site.time_passes(minutes=5)
    site.passes()
    _world(site, "nodes", "i-5", "i-6", state="finished", exit_code=0)
    for _ in range(3):
        site.time_passes(minutes=10)
        site.passes()
    _has_completed(site, "nodes")
    assert {each.id for each in site.ec2.fleets.values() if not each.deleted} == set()


def _adopted(site: Site) -> None:
    site.account.is_made_by_hand(_ADOPTED, tags={DEPLOYMENT_TAG: "spotkeep"})
    site.passes()


def _adopted_goes_on(site: Site) -> None:
    assert site.run(_ADOPTED).adopted
    site.account.ends(site.job(_ADOPTED), "Completed")
    site.last_event_comes()
    _has_completed(site, _ADOPTED)


# Sweeps and schedules


def _swept(site: Site) -> None:
    search = {
        "parameters": {"lr": [0.1, 0.2]},
        "search": "grid",
        "parallel": 1,
        "objective": {"metric": "loss", "goal": "minimize"},
        "notify_trials": True,
    }
    _launches(site, "search", sweep=search)
    site.launcher_goes_on()
    _trains(site, "search-1-1", 5)
    site.account.ends(site.job("search-1-1"), "Completed")
    site.last_event_comes()
    site.launcher_goes_on()
    _trains(site, "search-2-1", 5)
    site.last_event_comes()


def _swept_goes_on(site: Site) -> None:
    _fails(site, "search-2-1")
    site.launcher_goes_on()
    sweep, trials = _sweep(site)
    assert sweep.state.ended
    assert (sweep.best and sweep.best.number, len(trials)) == (1, 2)
    site.asks({"action": "resume", "sweep": "search"})
    site.launcher_goes_on()
    _completes(site, "search-2", "search-2-2")
    site.launcher_goes_on()
    sweep, trials = _sweep(site)
    assert (sweep.state, sweep.counts.completed) == (SweepState.COMPLETED, 2)


def _being_halved(site: Site) -> None:
    search = {
        "parameters": {"lr": {"uniform": [0.1, 1.0]}},
        "search": "asha",
        "trials": 3,
        "parallel": 2,
        "asha": {"min_steps": 5, "max_steps": 45},
        "objective": {"metric": "loss", "goal": "minimize"},
    }
    _launches(site, "search", sweep=search)
    site.time_passes(minutes=1)
    site.passes()
    site.launcher_goes_on()
    for name in ("search-1-1", "search-2-1"):
        _trains(site, name, 5)
        site.account.says(site.job(name), "paused", step=5)
        site.account.ends(site.job(name), "Completed")
        site.last_event_comes()
        site.launcher_goes_on()
    site.asks({"action": "pause", "sweep": "search"})
    site.launcher_goes_on()


def _being_halved_goes_on(site: Site) -> None:
    sweep, trials = _sweep(site)
    assert sweep.stop_requested_at is not None
    assert {trial.number: trial.values for trial in trials if trial.values} == {1: {5: 0.5}, 2: {5: 0.5}}
    for job in [job for job in site.account.launched if job.live]:
        site.account.ends(job, "Stopped")
        site.last_event_comes()
        site.launcher_goes_on()
    sweep, _ = _sweep(site)
    assert sweep.state is SweepState.PAUSED
    site.asks({"action": "resume", "sweep": "search"})
    site.launcher_goes_on()
    for _ in range(6):
        site.time_passes(minutes=1)
        site.passes()
        site.launcher_goes_on()
        for job in [job for job in site.account.launched if job.live]:
            _trains(site, job.name, 45)
            site.account.says(job, "exit", code=0)
            site.account.ends(job, "Completed")
            site.last_event_comes()
            site.launcher_goes_on()
    sweep, trials = _sweep(site)
    assert (sweep.state, sweep.counts.completed > 0, len(trials)) == (SweepState.COMPLETED, True, 3)


def _sweep(site: Site) -> tuple[Sweep, list[Trial]]:
    sweep, trials = site.record.sweeps.with_trials("search")
    assert sweep is not None
    return sweep, trials


def _scheduled(site: Site) -> None:
    site.asks({"name": "nightly", "token": "token-nightly", **_RICH, "schedule": "rate(1 day)"})
    site.time_passes(days=1)
    site.fires("nightly")
    site.passes()


def _scheduled_goes_on(site: Site) -> None:
    [schedule], [first] = site.record.schedules.list(), site.record.runs.list()
    assert first.schedule == schedule.schedule
    _completes(site, first.run, first.job_name)
    site.time_passes(days=1)
    site.fires("nightly")
    [second] = [run for run in site.record.runs.list() if run.run != first.run]
    assert second.schedule == schedule.schedule
    _completes(site, second.run, second.job_name)
    site.asks({"action": "remove-schedule", "schedule": schedule.schedule})
    assert site.record.schedules.get(schedule.schedule) is None


# Warm pools


def _pooled(site: Site) -> None:
    _launches(site, "warm", capacity="on-demand", keep_alive="30m")
    _trains(site, "warm-1", 5)
    site.account.ends(site.job("warm-1"), "Completed")
    site.last_event_comes()


def _pooled_goes_on(site: Site) -> None:
    _has_completed(site, "warm")
    site.asks({"action": "extend-pool", "run": "warm", "for": "20m"})
    site.time_passes(minutes=45)
    site.pool_is_checked("warm", 1)
    pool = site.record.pools.get("warm", 1)
    assert pool is not None
    assert (pool.state, pool.keep_alive_seconds, pool.reminders) == (PoolState.AVAILABLE, 3000, 1)
    site.time_passes(minutes=10)
    site.account.pools_expire()
    site.pool_is_checked("warm", 1)
    pool = site.record.pools.get("warm", 1)
    assert pool is not None
    assert pool.state is PoolState.ENDED
    assert site.account.published["warm/pool-expired/1"] == 1


def _handed_on(site: Site) -> None:
    _pooled(site)
    _launches(site, "next", capacity="on-demand", keep_alive="10m")
    _trains(site, "next-1", 5)
    site.account.ends(site.job("next-1"), "Completed")
    site.last_event_comes()
    site.pool_is_checked("warm", 1)
    site.asks({"action": "stop-pool", "run": "next"})


def _handed_on_goes_on(site: Site) -> None:
    before, pool = site.record.pools.get("warm", 1), site.record.pools.get("next", 1)
    assert before is not None
    assert pool is not None
    assert (before.state, before.reused_by) == (PoolState.REUSED, "next-1")
    assert pool.chain_since == before.chain_since
    site.account.pools_expire()
    site.time_passes(minutes=15)
    site.account.pools_expire()
    site.passes()
    pool = site.record.pools.get("next", 1)
    assert pool is not None
    assert (pool.state, pool.end_reason) == (PoolState.ENDED, PoolEndReason.STOPPED_BY_USER)


# The deployment's own records


def _maintained(site: Site) -> None:
    _launches(site, "last")
    _launches(site, "other")
    _trains(site, "last-1", 5)
    site.account.is_made_by_hand("lost-1", tags={DEPLOYMENT_TAG: "spotkeep"}, environment={"SPOTKEEP_RUN": "lost"})
    site.passes()
    left = iter([100.0, 100.0])
    site.passes(seconds_left=lambda: next(left, 0.0))
    site.deletion_begins()


def _maintained_goes_on(site: Site) -> None:
    record = site.record.deployment
    assert record.price_book("us-east-1") is not None
    report = record.last_orphan_report()
    assert report is not None
    assert not report.unreadable, report.unreadable
    assert record.pass_places().begun
    assert record.deletion() is not None
    record.forget_deletion()
    site.time_passes(hours=2)
    site.passes()
    assert not record.pass_places().begun
    assert record.last_orphan_report() != report
    _completes(site, "last", "last-1")
    _completes(site, "other", "other-1")
    assert site.record.claims.slots_taken() == 0


STORIES: Final[dict[str, Story]] = {
    "hung": Story(begin=_hung, go_on=_hung_goes_on),
    "live-on-sagemaker": Story(begin=_live, go_on=_live_goes_on),
    "ended": Story(begin=_ended, go_on=_ended_goes_on),
    "paused": Story(begin=_paused, go_on=_paused_goes_on),
    "being-stopped": Story(begin=_being_stopped, go_on=_being_stopped_goes_on),
    "out-of-retries": Story(begin=_out_of_retries, go_on=_out_of_retries_goes_on),
    "not-notified-yet": Story(begin=_not_notified_yet, go_on=_not_notified_yet_goes_on),
    "steered": Story(begin=_steered, go_on=_steered_goes_on),
    "waiting-for-quota": Story(begin=_waiting_for_quota, go_on=_waiting_for_quota_goes_on),
    "asked-again": Story(begin=_asked_again, go_on=_asked_again_goes_on),
    "left-for-on-demand": Story(begin=_left_for_on_demand, go_on=_left_for_on_demand_goes_on),
    "queued": Story(begin=_queued, go_on=_queued_goes_on),
    "preempted-often": Story(begin=_preempted_often, go_on=_preempted_often_goes_on),
    "limited-on-ec2": Story(begin=_limited_on_ec2, go_on=_limited_on_ec2_goes_on),
    "resumed-on-ec2": Story(begin=_resumed_on_ec2, go_on=_resumed_on_ec2_goes_on),
    "leaves-spot-on-ec2": Story(begin=_leaves_spot_on_ec2, go_on=_leaves_spot_on_ec2_goes_on),
    "taken-often": Story(begin=_taken_often, go_on=_taken_often_goes_on),
    "on-ec2": Story(begin=_on_ec2, go_on=_on_ec2_goes_on),
    "nodes-on-ec2": Story(begin=_nodes_on_ec2, go_on=_nodes_on_ec2_goes_on),
    "group-on-ec2": Story(begin=_group_on_ec2, go_on=_group_on_ec2_goes_on),
    "adopted": Story(begin=_adopted, go_on=_adopted_goes_on),
    "sweep": Story(begin=_swept, go_on=_swept_goes_on),
    "sweep-being-paused": Story(begin=_being_halved, go_on=_being_halved_goes_on),
    "schedule": Story(begin=_scheduled, go_on=_scheduled_goes_on),
    "warm-pool": Story(begin=_pooled, go_on=_pooled_goes_on),
    "pool-handed-on": Story(begin=_handed_on, go_on=_handed_on_goes_on),
    "deployment": Story(begin=_maintained, go_on=_maintained_goes_on),
}
