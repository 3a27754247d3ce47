"""Runs that wait without a job: for quota, or for capacity. Launcher and controller as deployed, on a model of AWS."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from controller.events import Hint, Subject
from controller.full_pass import FullPass
from controller.reconciliation import reconcile_hint
from spotkeep_jobs.document.capacity import fallbacks_of, longest_wait_without_a_job
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.record.record import QuotaWait, Run, RunChange
from spotkeep_jobs.record.states import EndReason, NotificationKind, RunState, TimelineKind
from spotkeep_jobs.runs.launch import Launcher
from spotkeep_jobs.runs.launch_completion import has_waited_enough, wait_for_quota
from spotkeep_jobs.runs.run_actions import RunActions
from tests.models.control_plane import ControlPlane
from tests.models.faults import Process

SPOT = {"capacity": "spot", "max_run": "4h", "max_wait": "10h"}


class Deployment(ControlPlane):
    """What users and AWS do to it."""

    def launched(self, run: str, **fields: Any) -> Run:
        document = {"name": "first", "run": run, "command": "python train.py", "capacity": "on-demand", "max_run": "4h"}
        return Launcher(self.launcher).launch(document | fields, default_token=f"token-{run}").run

    def passes(self, *, every: int = 5, **delta: float) -> None:
        """Let time go by, with a pass over everything every five minutes, as in a deployment, or as a test says."""
        end = self.service.seconds + timedelta(**delta).total_seconds()
        while self.service.seconds < end:
            self.service.seconds = min(self.service.seconds + 60 * every, end)
            assert FullPass(self.controller).run().failures == {}

    def ends(self, job: str) -> None:
        """End a job, and let the controller hear of it."""
        self.service.becomes(job, "Completed")
        self.hears_of(job)

    def fails(self, job: str, reason: str) -> None:
        self.service.becomes(job, "Failed", failure=reason)
        self.hears_of(job)

    def hears_of(self, job: str) -> None:
        reconcile_hint(Hint(subject=Subject.TRAINING_JOB, name=job), deployment=self.controller)

    def run(self, run: str) -> Run:
        return self.record.runs.get(run)  # type: ignore[return-value]

    @property
    def creates(self) -> int:
        return self.service.calls["CreateTrainingJob"]


@pytest.fixture
def deployment() -> Deployment:
    return Deployment()


def test_a_run_that_the_quota_has_no_room_for_waits_and_is_not_failed(deployment: Deployment) -> None:
    deployment.service.quota = 1
    deployment.launched("one")
    run = deployment.launched("two")
    assert (run.state, run.job_id, run.end_reason) == (RunState.WAITING, None, None)
    assert "is 1 Instances, with current utilization of 1" in run.quota_wait.reason
    entries = [entry.text for entry in deployment.record.runs.timeline("two") if entry.kind is TimelineKind.QUOTA_WAIT]
    assert entries == [f"Waits for room in the account's quota: {run.quota_wait.reason}"]
    deployment.passes(hours=1, every=20)
    assert deployment.service.live == ["one-1"]
    assert len([each for each in deployment.record.runs.timeline("two") if each.kind is TimelineKind.QUOTA_WAIT]) == 1


def test_the_end_of_a_job_creates_the_job_that_waited_longest(deployment: Deployment) -> None:
    deployment.service.quota = 1
    for name in ("one", "two", "three"):
        deployment.launched(name)
        deployment.service.seconds += 1
    deployment.ends("one-1")
    assert deployment.service.live == ["two-1"]
    assert deployment.run("two").quota_wait is None
    deployment.ends("two-1")
    assert deployment.service.live == ["three-1"]


def test_a_pass_creates_it_where_the_event_was_lost(deployment: Deployment) -> None:
    deployment.service.quota = 1
    deployment.launched("one")
    deployment.launched("two")
    deployment.service.becomes("one-1", "Completed")
    deployment.passes(minutes=5)
    assert deployment.service.live == ["two-1"]
    deployment.passes(minutes=5)
    deployment.service.becomes("two-1", "Completed")
    deployment.passes(minutes=5)
    assert deployment.run("two").state is RunState.COMPLETED


def test_all_that_wait_cost_a_pass_one_call(deployment: Deployment) -> None:
    deployment.service.quota = 1
    for number in range(10):
        deployment.launched(f"run-{number}")
    before = deployment.creates
    deployment.passes(minutes=5)
    assert deployment.creates == before + 1


def test_each_quota_has_its_own_order(deployment: Deployment) -> None:
    deployment.service.quota = 1
    deployment.launched("one")
    deployment.launched("large", instance_type="ml.g5.xlarge")
    deployment.launched("small")
    before = deployment.creates
    deployment.passes(minutes=5)
    assert deployment.creates == before + 2


def test_a_launch_that_is_called_again_asks_for_no_more_than_one(deployment: Deployment) -> None:
    deployment.service.quota = 1
    deployment.launched("one")
    deployment.launched("two")
    before = deployment.creates
    assert deployment.launched("two").state is RunState.WAITING
    assert deployment.creates == before


def test_a_stop_ends_a_run_that_waits_at_once(deployment: Deployment) -> None:
    deployment.service.quota = 1
    deployment.launched("one")
    deployment.launched("two")
    RunActions(deployment.launcher).stop("two")
    run = deployment.run("two")
    assert (run.state, run.end_reason, run.quota_wait) == (RunState.STOPPED, EndReason.STOPPED_BY_USER, None)
    deployment.ends("one-1")
    assert deployment.service.live == []


@pytest.mark.parametrize(
    ("fields", "hours"), [({}, 24), (SPOT, 6), ({"capacity": "auto", "longest_wait": "3h", "spot_only": True}, 3)]
)
def test_it_waits_for_as_long_as_it_may(deployment: Deployment, fields: dict[str, Any], hours: int) -> None:
    """A day on demand; on spot until what is left of max_wait is its max_run; a ladder's longest_wait."""
    deployment.service.used_by_others = deployment.service.quota
    deployment.launched("one", **fields)
    deployment.passes(hours=hours, minutes=-10, every=60)
    assert deployment.run("one").state is RunState.WAITING
    deployment.passes(minutes=15)
    run = deployment.run("one")
    assert (run.state, run.end_reason) == (RunState.FAILED, EndReason.QUOTA)
    assert deployment.record.claims.checkpoint_lock_owner(run.checkpoint_uri) is None


def test_one_that_is_not_the_first_ends_in_time_too(deployment: Deployment) -> None:
    deployment.service.used_by_others = deployment.service.quota
    deployment.launched("patient")
    deployment.launched("other", **SPOT)
    deployment.launched("hurried", capacity="spot", max_run="4h", max_wait="5h")
    deployment.passes(hours=1, minutes=5, every=65)
    states = {name: deployment.run(name).state for name in ("patient", "other", "hurried")}
    assert states == {"patient": RunState.WAITING, "other": RunState.WAITING, "hurried": RunState.FAILED}


def test_the_wait_counts_as_a_part_of_max_wait(deployment: Deployment) -> None:
    deployment.service.used_by_others = deployment.service.quota
    deployment.launched("one", **SPOT)
    deployment.passes(hours=3, every=30)
    deployment.service.used_by_others = 0
    deployment.passes(minutes=5)
    [request] = deployment.service.requests
    assert request["StoppingCondition"]["MaxRuntimeInSeconds"] == 4 * 3600
    assert 6.9 * 3600 <= request["StoppingCondition"]["MaxWaitTimeInSeconds"] <= 7 * 3600
    attempt = deployment.record.runs.attempt("one", 1)
    assert attempt.job_request == request


def test_a_long_wait_is_notified_once_and_says_which_quota(deployment: Deployment) -> None:
    deployment.service.used_by_others = deployment.service.quota
    deployment.launched("one", waiting_too_long="1h", notify=["waiting-too-long"])
    deployment.passes(hours=5, every=30)
    [notification] = deployment.record.notifications.of_run("one")
    assert notification.kind is NotificationKind.WAITING_TOO_LONG
    assert "waiting long for quota" in notification.subject
    assert "ml.m5.xlarge for training job usage" in notification.body


def test_a_function_that_dies_while_it_asks_again_leaves_the_run_to_the_next(deployment: Deployment) -> None:
    deployment.service.quota = 1
    deployment.launched("one")
    deployment.launched("two")
    run, attempt = deployment.run("two"), deployment.record.runs.attempt("two", 1)
    now: datetime = deployment.service.clock()
    deployment.record.runs.commit(RunChange(run=run, attempt=attempt.model_copy(update={"create_begun_at": now})))
    deployment.ends("one-1")
    assert deployment.service.live == []
    deployment.passes(minutes=10)
    assert deployment.service.live == ["two-1"]


def test_a_job_whose_creation_was_not_recorded_ends_the_wait_of_its_run_and_of_those_behind_it(
    deployment: Deployment,
) -> None:
    """The function died when SageMaker had created the job; the controller sees the job, and asks for the next one."""
    deployment.service.used_by_others, deployment.service.quota = 1, 1
    deployment.launched("one")
    deployment.service.seconds += 1
    deployment.launched("two")
    deployment.service.used_by_others, deployment.service.quota = 0, 2
    deployment.service.seconds += 300
    dies = Process("controller", lambda: FullPass(deployment.controller).run(), began=0, timeout=240, skew=0.0)
    while "one-1" not in deployment.service.jobs:
        dies.go_on(1)
    dies.die()
    deployment.hears_of("one-1")
    assert (deployment.run("one").state, deployment.run("one").quota_wait) == (RunState.WAITING, None)
    deployment.passes(minutes=10)
    assert deployment.service.live == ["one-1", "two-1"]


def test_a_job_that_sagemaker_had_no_capacity_for_is_followed_by_another_later(deployment: Deployment) -> None:
    deployment.launched("one")
    deployment.fails("one-1", "CapacityError: none")
    run = deployment.run("one")
    assert (run.state, run.attempt, run.job_id) == (RunState.WAITING, 2, None)
    assert deployment.service.live == []
    deployment.passes(minutes=5)
    assert deployment.service.live == ["one-2"]
    deployment.fails("one-2", "CapacityError: none")
    deployment.passes(minutes=5)
    assert deployment.service.live == []
    deployment.passes(minutes=5)
    assert deployment.service.live == ["one-3"]
    deployment.ends("one-3")
    assert deployment.run("one").state is RunState.COMPLETED


def test_a_pass_that_notifies_of_a_long_wait_asks_for_the_next_job_as_well(deployment: Deployment) -> None:
    deployment.launched("one", waiting_too_long="1h", notify=["waiting-too-long"])
    deployment.service.seconds += timedelta(minutes=58).total_seconds()
    deployment.fails("one-1", "CapacityError: none")
    deployment.passes(minutes=5)
    assert len(deployment.record.notifications.of_run("one")) == 1
    assert deployment.service.live == ["one-2"]


def test_a_stop_ends_a_run_that_waits_for_its_next_job_at_once(deployment: Deployment) -> None:
    deployment.launched("one")
    deployment.fails("one-1", "CapacityError: none")
    RunActions(deployment.launcher).stop("one")
    run = deployment.run("one")
    assert (run.state, run.end_reason) == (RunState.STOPPED, EndReason.STOPPED_BY_USER)
    deployment.passes(minutes=10)
    assert deployment.service.live == []


def test_a_wait_for_capacity_over_several_jobs_is_notified_once(deployment: Deployment) -> None:
    deployment.launched("one", waiting_too_long="1h", notify=["waiting-too-long"])
    for number in range(1, 8):
        while deployment.service.live != [f"one-{number}"]:
            deployment.passes(minutes=5)
        deployment.fails(f"one-{number}", "CapacityError: none")
    [notification] = deployment.record.notifications.of_run("one")
    assert "waiting long for capacity" in notification.subject


def test_on_spot_the_wait_is_a_part_of_max_wait(deployment: Deployment) -> None:
    deployment.launched("one", **SPOT)
    deployment.fails("one-1", "CapacityError: none")
    deployment.passes(minutes=5)
    stopping = deployment.service.requests[-1]["StoppingCondition"]
    assert stopping == {"MaxRuntimeInSeconds": 4 * 3600, "MaxWaitTimeInSeconds": 10 * 3600 - 300}


def test_a_wait_is_over_at_its_longest_or_at_the_runs_deadline(make: Any) -> None:
    request = JobRequest.model_validate({"name": "digits", "command": "python train.py", "capacity": "spot"})
    longest = longest_wait_without_a_job(request)
    waits = make.run(quota_wait=QuotaWait(since=make.noon, refused_at=make.noon, reason="the quota is used up"))
    due = {"deadline_at": make.noon + longest / 2}
    a_moment = timedelta(seconds=1)
    for run, end in ((waits, longest), (waits.model_copy(update=due), longest / 2)):
        assert has_waited_enough(run, request=request, now=make.noon + end)
        assert not has_waited_enough(run, request=request, now=make.noon + end - a_moment)


def test_only_a_run_that_waits_for_quota_can_have_waited_enough(make: Any) -> None:
    waits = make.run(quota_wait=QuotaWait(since=make.noon, refused_at=make.noon, reason="the quota is used up"))
    assert has_waited_enough(waits, request=None, now=make.noon)
    assert not has_waited_enough(make.run(), request=None, now=make.noon + timedelta(days=400))


def test_a_run_waits_for_quota_on_the_last_of_its_fallbacks_alone(make: Any) -> None:
    document = {"name": "digits", "command": "python train.py", "capacity": "auto", "instance_type": "ml.m5.xlarge"}
    request = JobRequest.model_validate(document)
    assert len(fallbacks_of(request)) == 2
    refused = {"request": request, "reason": "the quota is used up", "now": make.noon}
    assert wait_for_quota(make.run(), attempt=make.attempt(fallback=0), **refused) is None
    assert wait_for_quota(make.run(), attempt=make.attempt(fallback=1), **refused) is not None
    refused["request"] = None
    assert wait_for_quota(make.run(), attempt=make.attempt(fallback=1), **refused) is None
