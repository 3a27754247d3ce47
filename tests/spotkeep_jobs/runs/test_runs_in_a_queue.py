"""A run in a queue of AWS Batch's: one service job, training jobs one after another, one bill, one writer (I1)."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controller.events import hint_of
from controller.full_pass import FullPass
from controller.reconciliation import reconcile_hint
from spotkeep_jobs.backends.job_files import SpecStore
from spotkeep_jobs.backends.sagemaker.training_job import RESTARTS
from spotkeep_jobs.backends.session_manager import Session
from spotkeep_jobs.document.queue import Queue, Share
from spotkeep_jobs.errors import RequestRefusedError
from spotkeep_jobs.record.record import Ending, Run, RunChange
from spotkeep_jobs.record.states import EndReason, RunState, TimelineKind
from spotkeep_jobs.runs.launch import Launcher, ValidDocument
from spotkeep_jobs.runs.launch_completion import LaunchUnfinishedError
from spotkeep_jobs.runs.run_actions import RunActions, change_priority
from spotkeep_jobs.runs.shells import open_shell
from tests.models.batch import MISFIT, NO_CAPACITY, ModelServiceJob
from tests.models.deployment import DEFAULTS, PLATFORM, PRICES, launcher_on
from tests.models.faults import Fault, client_error
from tests.models.file_systems import FileSystemSite
from tests.models.s3 import Objects

RUN = "first"
QUEUES = {"gpu": Queue(types={"ml.m5.xlarge": 4}, shares={"vision": Share(types={"ml.m5.xlarge": 4})})}
DOCUMENT = {
    "name": RUN, "run": RUN, "token": "token-1", "command": "python train.py", "queue": "gpu", "priority": 7,
    "capacity": "on-demand", "max_run": "4h",
    "notify": ["completed", "failed", "stopped", "interrupted", "resumed"],
}  # fmt: skip


class Site:
    """A launcher and a controller, on one account."""

    def __init__(self, world: Any) -> None:
        self.world, self.table, self.clock = world, world.table, world.clock
        self.sagemaker, self.batch, self.faults = world.sagemaker, world.batch, world.faults
        self.objects = Objects(self.faults)
        self.launcher = launcher_on(
            self.table,
            self.sagemaker,
            queues=world.queues,
            defaults=replace(DEFAULTS, queues=QUEUES, prices=PRICES),
            specs=SpecStore(lambda: self.objects),  # type: ignore[arg-type,return-value]
        )
        self.full_pass = FullPass(world.controller, search_from=1)

    def launch(self, **fields: Any) -> Run:
        return Launcher(self.launcher).launch(DOCUMENT | fields, default_token="token-1").run

    def validates(self, **fields: Any) -> ValidDocument:
        return Launcher(self.launcher).validate(DOCUMENT | fields)

    def passes(self, **later: float) -> Run:
        self.clock.time += timedelta(**later)
        report = self.full_pass.run()
        assert not report.failures
        return self.run

    @property
    def run(self) -> Run:
        return self.table.runs.get(RUN)  # type: ignore[return-value]

    @property
    def service_job(self) -> ModelServiceJob:
        """The only one."""
        (job,) = self.batch.jobs.values()
        return job

    def trains(self, steps: int = 20) -> None:
        """It has its turn, gets its instances and trains."""
        job = self.batch.has_its_turn(self.service_job)
        self.sagemaker.gets_capacity(job)
        self.sagemaker.trains(job, steps)

    def fails(self) -> Run:
        """Its script fails."""
        self.trains()
        self.sagemaker.ends(self.service_job.training_job, "Failed", failure="AlgorithmError: exit 1")
        return self.passes(minutes=1)

    def is_preempted(self) -> None:
        """It is stopped, saves, and goes back to the queue."""
        self.batch.preempts(self.service_job)
        self.clock.seconds += 20
        self.sagemaker.ends(self.service_job.training_job, "Stopped")
        self.batch.catches_up()

    def timeline(self) -> list[str]:
        return [entry.text for entry in self.table.runs.timeline(RUN)]


@pytest.fixture(params=[False, True], ids=["training jobs without tags", "tags handed on"])
def site(world: Any, request: pytest.FixtureRequest) -> Site:
    """AWS does not say whether AWS Batch gives the tags of a service job to its training jobs."""
    site = Site(world)
    site.batch.hands_tags_on = request.param
    return site


def test_the_launcher_submits_and_batch_makes_the_training_job(site: Site) -> None:
    run = site.launch()
    job = site.service_job
    assert (job.name, job.queue, job.share, job.priority) == ("first-1", "spotkeep_gpu", "vision", 7)
    assert job.tags["spotkeep:run"] == RUN
    assert job.request["Environment"]["SPOTKEEP_RUN"] == RUN
    assert run.job_id == job.arn
    assert not site.sagemaker.requests
    waits = site.passes(minutes=1)
    assert (waits.state, waits.place.queue and waits.place.queue.share) == (RunState.WAITING, "vision")
    assert "AWS Batch took the job into queue gpu, share vision, priority 7" in site.timeline()
    assert "Waits in the queue for its turn" in site.timeline()


def test_a_preempted_run_goes_back_to_the_queue_and_goes_on(site: Site) -> None:
    site.launch()
    site.trains(22)
    assert site.passes().training_job == site.service_job.training_job.name  # type: ignore[union-attr]
    site.batch.preempts(site.service_job)
    # Its training job saves; that Batch stopped it, and not its user, is known when it is over.
    assert site.passes(seconds=20).state is RunState.TRAINING
    site.sagemaker.ends(site.service_job.training_job, "Stopped")
    assert site.passes(seconds=20).state is RunState.INTERRUPTED
    site.clock.time += timedelta(hours=1)
    site.trains(10)
    assert site.passes().state is RunState.TRAINING
    site.is_preempted()
    site.passes()
    site.trains(10)
    site.sagemaker.ends(site.service_job.training_job, "Completed")
    ended = site.passes(minutes=1)
    assert (ended.state, ended.end_reason) == (RunState.COMPLETED, EndReason.COMPLETED)
    assert (ended.interruptions, ended.attempt) == (2, 1)
    made = site.service_job.made
    assert len(made) == 3
    assert ended.cost.billed_seconds == sum(job.billable_seconds for job in made)
    assert ended.cost.training_seconds == sum(job.trained_seconds for job in made)
    assert ended.cost.redone_steps == site.sagemaker.redone[RUN]
    assert ended.cost.waited_seconds > 3_600
    assert ended.cost.saved_seconds <= 0
    kinds = [entry.kind for entry in site.table.runs.timeline(RUN)]
    assert kinds.count(TimelineKind.INTERRUPTED) == kinds.count(TimelineKind.RESUMED) == 2
    sent = sorted(each.notification_id for each in site.table.notifications.of_run(RUN))
    assert sent == [
        "first/completed/1", "first/interrupted/1-1", "first/interrupted/1-2", "first/resumed/1-1", "first/resumed/1-2",
    ]  # fmt: skip


def test_a_bill_stands_when_training_jobs_are_forgotten(site: Site) -> None:
    """Batch names the latest of the preempted ones, and users delete what they like."""
    site.launch()
    for _ in range(5):
        site.trains(10)
        site.passes()
        site.is_preempted()
        site.passes()
        site.sagemaker.is_deleted(site.service_job.training_job)
    site.trains(5)
    site.sagemaker.ends(site.service_job.training_job, "Completed")
    ended = site.passes(minutes=1)
    assert (ended.state, ended.interruptions) == (RunState.COMPLETED, 5)
    assert ended.cost.billed_seconds == sum(job.billable_seconds for job in site.service_job.made)


def test_a_training_job_without_capacity_leaves_no_trace(site: Site) -> None:
    site.launch()
    site.passes()
    for _ in range(2):
        job = site.batch.has_its_turn(site.service_job)
        assert site.passes(minutes=5).state is RunState.WAITING
        site.sagemaker.ends(job, "Failed", failure="CapacityError: no instances")
        assert site.passes(minutes=5).state is RunState.WAITING
    site.trains()
    site.sagemaker.ends(site.service_job.training_job, "Completed")
    ended = site.passes(minutes=1)
    assert (ended.state, ended.interruptions) == (RunState.COMPLETED, 0)


@pytest.mark.parametrize("phase", ["waits", "trains", "waits again"])
def test_a_stop_ends_it_wherever_it_is_and_no_training_job_follows(site: Site, phase: str) -> None:
    site.launch()
    if phase != "waits":
        site.trains()
        site.passes()
    if phase == "waits again":
        site.is_preempted()
        site.passes()
    assert RunActions(site.launcher).stop(RUN).state is RunState.STOPPING
    assert site.service_job.terminated
    if phase == "trains":
        assert site.passes(seconds=10).state is RunState.STOPPING, "it is not over while it saves"
        assert site.table.claims.checkpoint_lock_owner(site.run.checkpoint_uri) == RUN
        site.sagemaker.ends(site.service_job.training_job, "Stopped")
    ended = site.passes(minutes=1)
    assert (ended.state, ended.end_reason) == (RunState.STOPPED, EndReason.STOPPED_BY_USER)
    assert ended.interruptions == (phase == "waits again")
    assert not site.batch.unfinished
    assert site.table.claims.checkpoint_lock_owner(ended.checkpoint_uri) is None


def test_the_end_of_a_training_job_is_not_the_end_before_batch_says_so(site: Site) -> None:
    site.launch()
    site.trains()
    site.passes()
    site.sagemaker.replicas_lag = True
    site.sagemaker.ends(site.service_job.training_job, "Failed", failure="AlgorithmError: exit 1")
    assert site.passes(minutes=2).state is RunState.TRAINING
    site.sagemaker.replicas_lag = False
    ended = site.passes()
    assert (ended.state, ended.end_reason) == (RunState.FAILED, EndReason.SCRIPT_FAILED)
    assert ended.failure_reason == "AlgorithmError: exit 1"


class TestAnErrorOfSageMakersOwn:
    """Batch tries the service job again, as often as SageMaker would; then another service job follows."""

    def strikes(self, site: Site, *, steps: int = 12) -> None:
        job = site.batch.has_its_turn([each for each in site.batch.jobs.values() if each.waits][-1])
        site.sagemaker.gets_capacity(job)
        site.sagemaker.trains(job, steps)
        site.passes()
        site.sagemaker.has_an_error(job)
        site.batch.catches_up()

    def test_it_is_an_interruption_and_the_same_service_job_goes_on(self, site: Site) -> None:
        site.launch()
        assert "RetryStrategy" not in site.service_job.request, "both together would multiply"
        self.strikes(site)
        assert site.passes().state is RunState.INTERRUPTED
        site.trains(10)
        site.sagemaker.ends(site.service_job.training_job, "Completed")
        ended = site.passes(minutes=1)
        assert (ended.state, ended.interruptions, ended.attempt) == (RunState.COMPLETED, 1, 1)
        assert ended.cost.billed_seconds == sum(job.billable_seconds for job in site.service_job.made)
        assert ended.cost.redone_steps == site.sagemaker.redone[RUN] == 2
        (sent,) = [each for each in site.table.notifications.of_run(RUN) if each.kind.value == "interrupted"]
        assert "InternalServerError" in sent.body
        assert "another job of the queue" not in sent.body

    def test_another_service_job_follows_one_that_is_given_up(self, site: Site) -> None:
        site.launch()
        for _ in range(1 + RESTARTS):
            self.strikes(site)
        again = site.passes(minutes=1)
        assert (again.attempt, again.state.ended) == (2, False)
        first, second = site.batch.jobs.values()
        assert (first.status, second.name) == ("FAILED", "first-2")
        assert site.table.claims.checkpoint_lock_owner(again.checkpoint_uri) == RUN, "I1"
        assert not site.table.notifications.of_run(RUN) or "first/failed/1" not in [
            each.notification_id for each in site.table.notifications.of_run(RUN)
        ]

    def test_a_user_who_stops_it_then_has_stopped_it(self, site: Site) -> None:
        site.launch()
        self.strikes(site)
        RunActions(site.launcher).stop(RUN)
        ended = site.passes(minutes=1)
        assert (ended.state, ended.end_reason, ended.interruptions) == (RunState.STOPPED, EndReason.STOPPED_BY_USER, 1)

    def test_a_failed_script_is_not_tried_again(self, site: Site) -> None:
        site.launch()
        ended = site.fails()
        assert (ended.state, ended.end_reason) == (RunState.FAILED, EndReason.SCRIPT_FAILED)
        assert len(site.service_job.made) == 1


MANY = {f"VARIABLE_{number}": "x" * 500 for number in range(20)}


def test_a_failed_script_is_retried_in_the_same_queue_with_the_newest_priority_and_the_same_file(site: Site) -> None:
    site.launch(script_retries=1, environment=MANY)
    change_priority(site.launcher, RUN, priority=9)
    site.fails()
    again = site.run
    assert (again.attempt, again.state) == (2, RunState.LAUNCHING)
    first, second = site.batch.jobs.values()
    assert (second.name, second.queue, second.share, second.priority) == ("first-2", first.queue, first.share, 9)
    assert second.token != first.token
    assert second.request["InputDataConfig"] == first.request["InputDataConfig"]
    assert len(site.objects.contents) == 1


def test_a_job_in_a_queue_mounts_a_file_system_too(site: Site) -> None:
    found, lustre = FileSystemSite.made(), "fs-0123456789abcdef0"
    found.add_lustre(lustre)
    network: Any = {"subnet_ids": ("subnet-b", "subnet-a"), "security_group_ids": ("sg-ours",)}
    site.launcher = launcher_on(
        site.table,
        site.sagemaker,
        queues=site.world.queues,
        settings={"file_systems": (lustre,), **network},
        clients={"fsx": found.fsx, "efs": found.efs, "ec2": found.ec2},
        platform=replace(PLATFORM, **network),
        defaults=replace(DEFAULTS, queues=QUEUES, prices=PRICES, file_systems=(lustre,), training_network=True),
    )
    site.launch(channels={"train": {"fsx": lustre, "path": "/abcdefgh"}})
    request = site.service_job.request
    assert request["VpcConfig"]["Subnets"] == ["subnet-a"]
    assert request["InputDataConfig"][-1]["DataSource"]["FileSystemDataSource"]["FileSystemId"] == lustre


class TestALongRequest:
    """AWS Batch takes 10 KiB. The runner reads the rest from the training spec."""

    def test_its_file_is_kept_before_it_is_recorded(self, site: Site) -> None:
        site.launch(environment=MANY, hyperparameters={"lr": "0.1"})
        ((key, content),) = site.objects.contents.items()
        assert key.startswith(f"specs/{RUN}/")
        assert json.loads(content)["environment"].items() >= MANY.items()
        request = site.service_job.request
        assert request["HyperParameters"] == {"lr": "0.1"}
        assert not request["Environment"].keys() & MANY.keys()
        assert request["InputDataConfig"][1]["ChannelName"] == "spotkeep-spec"
        assert request["InputDataConfig"][1]["DataSource"]["S3DataSource"]["S3Uri"] == f"s3://checkpoints/{key}"

    def test_a_resume_with_other_variables_reads_another(self, site: Site) -> None:
        site.launch(environment=MANY)
        site.fails()
        RunActions(site.launcher).resume(RUN, changes={"environment": MANY | {"FIXED": "yes"}})
        first, second = site.batch.jobs.values()
        assert second.request["InputDataConfig"][1] != first.request["InputDataConfig"][1]
        assert [b"FIXED" in content for content in site.objects.contents.values()] == [False, True]

    def test_nothing_is_recorded_where_s3_does_not_take_it(self, site: Site) -> None:
        site.faults.strike(Fault.REFUSED, operation="PutObject")
        with pytest.raises(LaunchUnfinishedError):
            site.launch(environment=MANY)
        assert (site.table.runs.get(RUN), site.batch.jobs) == (None, {})
        assert site.launch(environment=MANY).state is RunState.LAUNCHING

    @pytest.mark.parametrize("asks", ["launch", "validate"])
    def test_what_cannot_move_is_refused_before_anything_is_recorded(self, site: Site, asks: str) -> None:
        channels = [{"name": f"data-{number}", "uri": f"s3://checkpoints/{'x' * 700}"} for number in range(17)]
        ask = {"launch": site.launch, "validate": site.validates}[asks]
        with pytest.raises(RequestRefusedError) as refused:
            ask(channels=channels)
        (problem,) = refused.value.problems
        assert problem.field == "queue"
        assert problem.problem.startswith(
            "takes requests of 10,240 bytes at most (AWS Batch), and of 30,720 with tags; the largest parts of this "
            "job's have InputDataConfig 1"
        )
        assert (site.table.runs.get(RUN), site.batch.jobs, site.objects.contents) == (None, {}, {})

    @pytest.mark.parametrize("letter", ["x", "é"])
    def test_so_are_tags_that_the_whole_call_has_no_room_for(self, site: Site, letter: str) -> None:
        tags = {f"{number:02}" + letter * 126: letter * 256 for number in range(46)}
        if letter == "x":  # About 19 KB of them.
            assert site.launch(tags=tags, environment=MANY).state is RunState.LAUNCHING
            return
        with pytest.raises(RequestRefusedError) as refused:
            site.launch(tags=tags)
        assert "the largest parts of this job's have Tags 3" in refused.value.problems[0].problem
        assert (site.table.runs.get(RUN), site.batch.jobs) == (None, {})


def test_what_batch_refuses_ends_the_launch(site: Site) -> None:
    site.batch.queues = {"spotkeep_other": ("vision",)}
    with pytest.raises(RequestRefusedError) as refused:
        site.launch()
    (problem,) = refused.value.problems
    assert (problem.field, problem.found) == ("(AWS Batch)", "service job first-1 in queue gpu")
    assert "does not exist" in problem.problem


class TestOneWriter:
    """I1: whatever is retried, lost or called twice, a run has one live service job."""

    def test_a_lost_answer_is_found_again(self, site: Site) -> None:
        site.faults.strike(Fault.ANSWER_LOST, operation="SubmitServiceJob")
        with pytest.raises(LaunchUnfinishedError):
            site.launch()
        assert site.launch().job_id == site.service_job.arn

    @pytest.mark.parametrize("rejects", [False, True])
    @pytest.mark.parametrize("later", [{"seconds": 5}, {"minutes": 6}, {"hours": 30}])
    def test_however_late_the_next_function_is(self, site: Site, later: dict[str, int], rejects: bool) -> None:
        """Soon the token is remembered and the list is late; later it is the other way round."""
        site.batch.rejects_repeats, site.sagemaker.replicas_lag = rejects, True
        site.faults.strike(Fault.ANSWER_LOST, operation="SubmitServiceJob")
        with pytest.raises(LaunchUnfinishedError):
            site.launch()
        site.clock.time += timedelta(**later)
        site.full_pass.run()
        site.clock.time += timedelta(minutes=6)
        site.full_pass.run()
        assert len(site.batch.jobs) == 1
        assert site.run.job_id == site.service_job.arn

    def test_a_function_that_dies_before_it_submits_leaves_it_to_the_next(self, site: Site) -> None:
        site.faults.strike(Fault.REFUSED, operation="SubmitServiceJob")
        with pytest.raises(LaunchUnfinishedError):
            site.launch()
        assert not site.batch.jobs
        assert site.passes(minutes=6).job_id == site.service_job.arn

    def test_a_service_job_of_the_same_name_is_a_strangers(self, site: Site) -> None:
        stranger = {
            "jobName": "first-1",
            "jobQueue": "spotkeep_gpu",
            "quotaShareName": "vision",
            "schedulingPriority": 0,
            "serviceRequestPayload": '{"Environment": {"SPOTKEEP_RUN": "first"}}',
            "clientToken": "theirs",
            "tags": {"spotkeep:run": RUN},
        }
        theirs = site.batch.submit_service_job(**stranger)["jobId"]
        no_request = {"serviceRequestPayload": "[]", "clientToken": "also theirs"}
        not_json = site.batch.submit_service_job(**{**stranger, **no_request})["jobId"]
        run = site.launch()
        (ours,) = [job for job in site.batch.jobs.values() if job.job_id not in (theirs, not_json)]
        assert run.job_id == ours.arn
        RunActions(site.launcher).stop(RUN)
        assert [job.terminated for job in site.batch.jobs.values()] == [False, False, True]

    def test_of_two_of_one_launch_the_older_one_goes_on(self, site: Site) -> None:
        """Should Batch forget a token and list late at once."""
        site.faults.strike(Fault.ANSWER_LOST, operation="SubmitServiceJob")
        with pytest.raises(LaunchUnfinishedError):
            site.launch()
        first = site.service_job
        twice = replace(first, job_id="later", created=first.created + 60)
        site.batch.jobs["later"] = twice
        site.clock.time += timedelta(minutes=6)
        site.full_pass.run()
        assert (first.terminated, twice.terminated) == (False, True)
        assert site.run.job_id == first.arn

    def test_a_training_job_of_the_runs_name_is_not_taken_for_it(self, site: Site) -> None:
        site.launch()
        site.sagemaker.has_job("first-1", ("Training", 1.0))
        assert site.passes(minutes=5).state is RunState.WAITING


def test_a_resumed_run_is_a_new_service_job_in_the_queue_that_it_names_now(site: Site) -> None:
    site.launch()
    site.trains()
    RunActions(site.launcher).stop(RUN)
    site.sagemaker.ends(site.service_job.training_job, "Stopped")
    site.passes(minutes=1)
    resumed = RunActions(site.launcher).resume(RUN, changes={"priority": 9}).run
    assert (resumed.attempt, resumed.place.queue and resumed.place.queue.priority) == (2, 9)
    newest = list(site.batch.jobs.values())[-1]
    assert (newest.name, newest.priority) == ("first-2", 9)


def test_i1_a_live_service_job_is_not_resumed_beside(site: Site) -> None:
    """Its run ended in the record, whatever the reason."""
    site.launch()
    site.trains()
    run, attempt = site.run, site.table.runs.attempt(RUN, 1)
    end = {"state": RunState.FAILED, "ending": Ending(at=site.clock(), reason=EndReason.JOB_VANISHED)}
    site.table.runs.commit(RunChange(run=run.model_copy(update=end), attempt=attempt.model_copy(update=end)))
    with pytest.raises(RequestRefusedError, match="is not over"):
        RunActions(site.launcher).resume(RUN)


class TestAtTheFront:
    """A job that can never have its turn blocks those behind it: its users are notified once (I4), with what to do."""

    def test_its_users_are_notified_once_however_often_batch_says_so(self, site: Site) -> None:
        site.launch(notify=["queue-blocked", "failed"])
        for _ in range(3):
            site.batch.never_fits(site.service_job)
            site.passes(minutes=5)
        assert site.run.waits_because is not None
        (sent,) = site.table.notifications.of_run(RUN)
        assert sent.notification_id == "first/queue-blocked/1"
        body = " ".join(sent.body.split())
        assert "at the front of share vision of the queue gpu and can never have its turn" in body
        assert "QUOTA_MANAGEMENT_LIMIT_EXCEEDED" in body
        assert f"spotkeep stop {RUN}" in body
        assert len([text for text in site.timeline() if text.startswith("Can never have its turn")]) == 1

    def test_the_event_has_it_seen_at_once(self, site: Site) -> None:
        site.launch(notify=["queue-blocked"])
        site.batch.never_fits(site.service_job)
        blocked = site.sagemaker.events[-1]
        assert blocked["detail-type"] == "Batch Service Job Queue Blocked"
        reconcile_hint(hint_of(blocked), deployment=site.world.controller)
        reconcile_hint(hint_of(blocked), deployment=site.world.controller)
        assert [each.notification_id for each in site.world.topic.published] == ["first/queue-blocked/1"]

    def test_a_run_that_waits_for_others_is_not_one(self, site: Site) -> None:
        site.launch(notify=["queue-blocked"])
        job = site.batch.has_its_turn(site.service_job)
        site.sagemaker.ends(job, "Failed", failure="CapacityError: no instances")
        site.passes(minutes=5)
        assert site.run.waits_because.startswith("CAPACITY:")
        assert not site.table.notifications.of_run(RUN)

    @pytest.mark.parametrize("terminated", [False, True])
    @pytest.mark.parametrize(
        ("reason", "end_reason", "state"),
        [
            (MISFIT, EndReason.NEVER_FITS, RunState.FAILED),
            (NO_CAPACITY, EndReason.MAX_WAIT_EXCEEDED, RunState.STOPPED),
        ],
    )
    def test_one_that_a_limit_of_its_queue_ended_names_it(
        self, site: Site, reason: str, end_reason: EndReason, state: RunState, terminated: bool
    ) -> None:
        site.launch()
        site.passes()
        site.batch.ends_at_the_front(site.service_job, reason, terminated=terminated)
        ended = site.passes(minutes=1)
        assert (ended.state, ended.end_reason) == (state, end_reason)
        assert reason in (ended.failure_reason or "")
        assert site.table.claims.checkpoint_lock_owner(ended.checkpoint_uri) is None
        assert len(site.batch.jobs) == 1, "no other follows"

    def test_one_that_was_preempted_before_is_named_the_same(self, site: Site) -> None:
        site.launch()
        site.trains()
        site.passes()
        site.is_preempted()
        site.passes()
        site.batch.ends_at_the_front(site.service_job, NO_CAPACITY, terminated=False)
        assert site.passes(minutes=1).end_reason is EndReason.MAX_WAIT_EXCEEDED


class TestPriority:
    def test_it_is_changed_at_batch_and_in_the_record(self, site: Site) -> None:
        site.launch()
        changed = change_priority(site.launcher, RUN, priority=9)
        assert (changed.place.queue and changed.place.queue.priority, site.service_job.priority) == (9, 9)
        assert "Has priority 9 in queue gpu, share vision, instead of 7" in site.timeline()
        assert change_priority(site.launcher, RUN, priority=9).version == changed.version
        assert changed.request["priority"] == 9

    @pytest.mark.parametrize("priority", [-1, 10_000, "9", True])
    def test_what_is_no_priority_is_refused(self, site: Site, priority: object) -> None:
        site.launch()
        with pytest.raises(RequestRefusedError, match="is no priority: a whole number from 0 to 9999"):
            change_priority(site.launcher, RUN, priority=priority)

    def test_a_run_without_a_queue_has_none(self, site: Site) -> None:
        site.launch(queue=None, priority=None)
        with pytest.raises(RequestRefusedError, match="is in no queue"):
            change_priority(site.launcher, RUN, priority=9)


class TestHowLongItTrains:
    def test_max_run_counts_all_training_jobs(self, site: Site) -> None:
        """SageMaker would let each of them train for max_run."""
        site.launch(max_run="30m")
        for _ in range(3):
            site.trains()
            site.clock.time += timedelta(minutes=9)
            site.is_preempted()
            site.passes()
        site.trains()
        assert site.passes(minutes=1).state is RunState.TRAINING
        stopping = site.passes(minutes=4)
        assert stopping.state is RunState.STOPPING or site.passes().state is RunState.STOPPING
        site.sagemaker.ends(site.service_job.training_job, "Stopped")
        ended = site.passes(minutes=1)
        assert (ended.state, ended.end_reason) == (RunState.STOPPED, EndReason.MAX_RUNTIME_EXCEEDED)
        assert "Has trained the 30m that it may: its job is asked to end" in site.timeline()

    def test_max_cost_counts_all_training_jobs(self, site: Site) -> None:
        site.launch(max_cost=0.1)
        for _ in range(2):
            site.trains()
            site.clock.time += timedelta(minutes=10)
            site.is_preempted()
            site.passes()
        site.trains()
        site.passes(minutes=7)
        site.passes()
        site.sagemaker.ends(site.service_job.training_job, "Stopped")
        assert site.passes(minutes=1).end_reason is EndReason.MAX_COST


class TestAShell:
    """IAM lets the launcher change training jobs with the deployment's tag alone."""

    def opens(self, site: Site) -> Any:
        sessions = Sessions()
        parts = launcher_on(
            site.table,
            site.sagemaker,
            queues=site.world.queues,
            defaults=replace(DEFAULTS, queues=QUEUES, prices=PRICES, shells=True),
            sessions=sessions,
        )
        return open_shell(parts, RUN, command=None, host=1, asked_by=None)

    def by_the_tag_alone(self, site: Site) -> None:
        def judge(operation: str) -> None:
            if operation == "UpdateTrainingJob" and not site.batch.hands_tags_on:
                raise client_error(operation, "AccessDeniedException", "not authorized")

        site.sagemaker.before_call = judge

    def test_opens_in_a_job_that_asked_for_it_and_in_one_with_tags(self, site: Site) -> None:
        site.launch(debug=not site.batch.hands_tags_on)
        site.trains()
        site.passes()
        self.by_the_tag_alone(site)
        assert self.opens(site).parameters["Target"].endswith("_algo-1")

    def test_says_what_to_do_where_remote_debugging_cannot_be_switched_on(self, site: Site) -> None:
        site.launch()
        site.trains()
        site.passes()
        self.by_the_tag_alone(site)
        if site.batch.hands_tags_on:
            self.opens(site)
            return
        with pytest.raises(RequestRefusedError) as refused:
            self.opens(site)
        [problem] = refused.value.problems
        assert (problem.field, problem.temporary) == ("debug", False)
        assert "spotkeep resume first --set debug=true" in problem.fix


class Sessions:
    """Starts sessions."""

    def start(self, _parameters: Any, /) -> Session:
        return Session(id="s-1", token="let-me-in", stream_url="wss://somewhere")
