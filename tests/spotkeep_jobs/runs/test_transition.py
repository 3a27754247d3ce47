"""What the record becomes: endings distinguished, and one record whatever happens to the events (I4)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotkeep_jobs.document.deployment_facts import DeploymentPolicy
from spotkeep_jobs.errors import AwsBusyError
from spotkeep_jobs.progress.job_log import JobLog
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.record import AskedToEnd, Attempt, Place, Run, RunChange
from spotkeep_jobs.record.states import EndReason, NotificationKind, RunState, TimelineKind
from spotkeep_jobs.runs.ending import ended_without_job, request_of
from spotkeep_jobs.runs.rules import JobFacts, RunFacts
from spotkeep_jobs.runs.transition import VANISHED_AFTER, decide
from tests.models.faults import client_error
from tests.models.sagemaker import launch_marks

DEPLOYMENT = DeploymentPolicy(name="spotkeep", prices={"ml.m5.xlarge": 0.23})
EVERY_NOTIFICATION = tuple(NotificationKind)

LIFE = (
    ("Starting", 0.0),
    ("Downloading", 2.0),
    ("Training", 3.0),
    ("Interrupted", 10.0),
    ("Starting", 10.5),
    ("Downloading", 15.0),
    ("Training", 16.0),
    ("Interrupted", 20.0),
    ("Starting", 20.5),
    ("Downloading", 25.0),
    ("Training", 26.0),
    ("Uploading", 40.0),
)


def launched(make: Any, **fields: Any) -> tuple[Run, Attempt]:
    arn = make.arn("digits-1a2b3c4d-1")
    run = make.run(job_id=arn, **fields)
    return run, make.attempt(job_id=arn, launched_at=make.noon)


def decided(run: Run, attempt: Attempt, job: Any, make: Any, **more: Any) -> list[RunChange]:
    facts = {"run": run, "request": request_of(run), "attempt": attempt, "deployment": DEPLOYMENT}
    facts |= {"now": make.noon + timedelta(hours=2)} | more
    return decide(RunFacts(**facts) if job is None else JobFacts(**{"log": JobLog()} | facts, job=job))


def without_job(make: Any) -> RunFacts:
    return RunFacts(run=make.run(), request=None, attempt=make.attempt(), deployment=DEPLOYMENT, now=make.noon)


class TestWhereARunIs:
    @pytest.mark.parametrize(
        ("story", "state"),
        [
            ((), RunState.WAITING),
            (LIFE[:1], RunState.WAITING),
            (LIFE[:2], RunState.TRAINING),
            (LIFE[:4], RunState.INTERRUPTED),
            (LIFE[:5], RunState.INTERRUPTED),
            (LIFE[:6], RunState.TRAINING),
            (LIFE, RunState.TRAINING),
        ],
    )
    def test_it_follows_the_secondary_status(self, make: Any, story: Any, state: RunState) -> None:
        run, attempt = launched(make)
        [change] = decided(run, attempt, make.job(*story), make)
        assert (change.run.state, change.attempt.state) == (state, state)

    def test_a_status_that_aws_adds_one_day_leaves_it_where_it_was(self, make: Any) -> None:
        run, attempt = launched(make)
        [change] = decided(run, attempt, make.job(*LIFE[:3]), make)
        [later] = decided(change.run, change.attempt, make.job(*LIFE[:3], ("Meditating", 5.0)), make)
        assert later.run.state is RunState.TRAINING

    def test_it_is_stopping_when_sagemaker_says_so_or_the_user_asked(self, make: Any) -> None:
        run, attempt = launched(make)
        [change] = decided(run, attempt, make.job(*LIFE[:3], status="Stopping"), make)
        assert change.run.state is RunState.STOPPING
        asked = AskedToEnd(at=make.noon, reason=EndReason.STOPPED_BY_USER, text="A user asked")
        run, attempt = launched(make, asked_to_end=asked)
        [change] = decided(run, attempt, make.job(*LIFE[:3]), make)
        assert change.run.state is RunState.STOPPING

    def test_nothing_new_is_nothing_written(self, make: Any) -> None:
        run, attempt = launched(make)
        job = make.job(*LIFE)
        [change] = decided(run, attempt, job, make)
        assert decided(change.run, change.attempt, job, make) == []

    def test_an_answer_older_than_the_record_is_not_believed(self, make: Any) -> None:
        run, attempt = launched(make)
        [change] = decided(run, attempt, make.job(*LIFE[:7]), make)
        assert decided(change.run, change.attempt, make.job(*LIFE[:4]), make) == []

    def test_a_strangers_job_of_the_same_name_is_no_runs(self, make: Any) -> None:
        forgotten = launch_marks("digits-1a2b3c4d-1") | {"SPOTKEEP_LAUNCH": "of a run long forgotten"}
        assert decided(make.run(), make.attempt(), make.job(*LIFE, Environment=forgotten), make) == []
        run, attempt = launched(make)
        assert decided(run, attempt, make.job(*LIFE, TrainingJobArn="arn:of:another"), make) == []

    def test_a_launch_that_was_cut_short_after_create_finds_its_job(self, make: Any) -> None:
        [change] = decided(make.run(), make.attempt(), make.job(*LIFE[:2]), make)
        assert change.run.job_id == change.attempt.job_id == make.arn("digits-1a2b3c4d-1")

    @pytest.mark.parametrize("story", [LIFE[:2], LIFE * 8], ids=["short", "more phases than one change holds"])
    def test_the_timeline_says_once_that_the_job_was_created_whichever_function_records_it_first(
        self, make: Any, story: Any
    ) -> None:
        job = make.job(*story)
        for run, attempt, times in ((make.run(), make.attempt(), 1), (*launched(make), 0)):
            entries = [entry for change in decided(run, attempt, job, make) for entry in change.timeline]
            created = [entry for entry in entries if entry.kind is TimelineKind.JOB_CREATED]
            assert len(created) == times
            assert entries[:times] == created
        [change, *_] = decided(make.run(), make.attempt(), job, make)
        entry = change.timeline[0]
        assert (entry.text, entry.at) == ("SageMaker accepted training job digits-1a2b3c4d-1", job.created_at)


class TestEndings:
    @pytest.mark.parametrize(
        ("status", "secondary", "failure", "reason", "state"),
        [
            ("Completed", "Completed", None, EndReason.COMPLETED, RunState.COMPLETED),
            ("Failed", "Failed", "AlgorithmError: exit code 1", EndReason.SCRIPT_FAILED, RunState.FAILED),
            ("Failed", "Failed", "ClientError: no data", EndReason.INPUT_ERROR, RunState.FAILED),
            ("Failed", "Failed", "UnknownError: oh", EndReason.PLATFORM_ERROR, RunState.FAILED),
            ("Failed", "Failed", None, EndReason.PLATFORM_ERROR, RunState.FAILED),
            ("Stopped", "Stopped", None, EndReason.STOPPED_BY_USER, RunState.STOPPED),
            ("Stopped", "MaxRuntimeExceeded", None, EndReason.MAX_RUNTIME_EXCEEDED, RunState.STOPPED),
            ("Stopped", "MaxWaitTimeExceeded", None, EndReason.MAX_WAIT_EXCEEDED, RunState.STOPPED),
            ("Deleting", "Completed", None, EndReason.COMPLETED, RunState.COMPLETED),
            ("Deleting", "Unknown", None, EndReason.JOB_VANISHED, RunState.FAILED),
        ],
    )
    def test_they_are_distinguished(
        self, make: Any, status: str, secondary: str, failure: str | None, reason: EndReason, state: RunState
    ) -> None:
        run, attempt = launched(make)
        job = make.job(*LIFE, (secondary, 41.0), status=status, FailureReason=failure)
        [change] = decided(run, attempt, job, make)
        assert (change.run.end_reason, change.attempt.end_reason) == (reason, reason)
        assert (change.run.state, change.attempt.state) == (state, state)
        assert change.run.failure_reason == failure
        assert [notification.kind.value for notification in change.notifications] == [state.value.lower()]
        assert change.ends_run

    def test_a_limit_only_the_transitions_tell_of_is_not_a_users_stop(self, make: Any) -> None:
        job = make.job(*LIFE, ("MaxWaitTimeExceeded", 41.0), status="Stopped", SecondaryStatus="Stopped")
        assert job.end_reason is EndReason.MAX_WAIT_EXCEEDED

    def test_an_ending_is_final(self, make: Any) -> None:
        run, attempt = launched(make)
        [change] = decided(run, attempt, make.job(*LIFE, ("Completed", 41.0)), make)
        other = make.job(*LIFE, ("Failed", 41.0))
        assert decided(change.run, change.attempt, other, make) == []

    def test_a_job_that_is_gone_is_given_time_to_appear_then_the_run_failed(self, make: Any) -> None:
        run, attempt = launched(make)
        just_launched = make.noon + VANISHED_AFTER - timedelta(seconds=1)
        assert decided(run, attempt, None, make, now=just_launched) == []
        [change] = decided(run, attempt, None, make, now=make.noon + VANISHED_AFTER)
        assert (change.run.state, change.run.end_reason) == (RunState.FAILED, EndReason.JOB_VANISHED)
        assert change.run.cost is None
        assert "not known" in change.notifications[0].body

    def test_a_launch_without_a_job_is_left_to_the_launcher(self, make: Any) -> None:
        assert decided(make.run(), make.attempt(), None, make) == []

    def test_a_refused_launch_is_notified_and_costs_nothing(self, make: Any) -> None:
        change = ended_without_job(without_job(make), reason=EndReason.LAUNCH_REFUSED, failure_reason="quota is 0")
        assert (change.run.state, change.run.end_reason) == (RunState.FAILED, EndReason.LAUNCH_REFUSED)
        assert change.run.cost.billed_usd == 0
        assert "quota is 0" in change.notifications[0].body

    def test_the_model_is_named_when_there_can_be_one(self, make: Any) -> None:
        run, attempt = launched(make)
        end = (*LIFE, ("Completed", 41.0))
        model = {"ModelArtifacts": {"S3ModelArtifacts": "s3://b/m.tar.gz"}}
        trained = make.job(*end, **model, TrainingTimeInSeconds=60)
        assert decided(run, attempt, trained, make)[-1].run.output_uri == "s3://b/m.tar.gz"
        failed = make.job(*LIFE, ("Failed", 41.0), **model, TrainingTimeInSeconds=60)
        assert decided(run, attempt, failed, make)[-1].run.output_uri is None

    def test_the_bill_is_for_the_instance_type_that_sagemaker_selected(self, make: Any) -> None:
        run, attempt = launched(make, capacity="on-demand", instance_type="ml.p5.48xlarge")
        attempt = with_changes(attempt, place=Place(capacity="on-demand", instance_type="ml.p5.48xlarge"))
        job = make.job(*LIFE, ("Completed", 41.0), TrainingTimeInSeconds=3600, BillableTimeInSeconds=3600)
        ended = decided(run, attempt, job, make)[-1]
        assert ended.run.place.instance_type == ended.attempt.place.instance_type == "ml.m5.xlarge"
        assert ended.run.cost.billed_usd == pytest.approx(0.23)
        assert "1 x ml.m5.xlarge" in ended.notifications[0].body

    def test_before_sagemaker_selected_a_type_the_first_choice_stands(self, make: Any) -> None:
        run, attempt = launched(make)
        [change] = decided(run, attempt, make.job(("Starting", 0.0), ResourceConfig={}), make)
        assert change.run.place.instance_type == change.attempt.place.instance_type == "ml.m5.xlarge"

    def test_no_notification_without_a_request_for_it(self, make: Any) -> None:
        run, attempt = launched(make, notify=(NotificationKind.FAILED,))
        [change] = decided(run, attempt, make.job(*LIFE, ("Completed", 41.0)), make)
        assert change.notifications == ()


class TestTheTimeline:
    def test_it_tells_interruptions_and_resumes_apart_from_first_starts(self, make: Any) -> None:
        run, attempt = launched(make)
        log = make.log(
            make.line("resume", 3.1, step=0),
            make.line("resume", 16.5, step=40),
            make.line("resume", 26.5, step=1200),
        )
        [change] = decided(run, attempt, make.job(*LIFE, ("Completed", 41.0)), make, log=log)
        kinds = [entry.kind for entry in sorted(change.timeline, key=lambda entry: entry.at)]
        assert kinds == [
            TimelineKind.STARTING, TimelineKind.DOWNLOADING, TimelineKind.TRAINING, TimelineKind.STEP_RESUMED,
            TimelineKind.INTERRUPTED, TimelineKind.STARTING, TimelineKind.DOWNLOADING, TimelineKind.RESUMED,
            TimelineKind.STEP_RESUMED, TimelineKind.INTERRUPTED, TimelineKind.STARTING, TimelineKind.DOWNLOADING,
            TimelineKind.RESUMED, TimelineKind.STEP_RESUMED, TimelineKind.UPLOADING, TimelineKind.ENDED,
        ]  # fmt: skip
        assert [entry.step for entry in change.timeline if entry.step is not None] == [0, 40, 1200]
        assert change.run.interruptions == 2

    @pytest.mark.parametrize(("code", "said"), [(0, 1), (75, 0)])
    def test_it_says_of_a_script_that_only_counts_as_done_that_it_does(self, make: Any, code: int, said: int) -> None:
        run, attempt = launched(make)
        log = make.log(make.line("exit-on-notice", 40.0, code=code, in_a_row=3), make.line("exit", 40.0, code=code))
        [change] = decided(run, attempt, make.job(*LIFE, ("Completed", 41.0)), make, log=log)
        doubts = [entry.text for entry in change.timeline if entry.kind is TimelineKind.END_DOUBTFUL]
        assert len(doubts) == said
        assert all("did not say that it is done: it counts as done" in text for text in doubts)
        [notification] = change.notifications
        assert ("did not say that it is done" in " ".join(notification.body.split())) == bool(said)

    def test_it_says_which_training_of_a_script_with_several_went_on(self, make: Any) -> None:
        run, attempt = launched(make)
        log = make.log(
            make.line("resume", 3.1, step=20, training="fold-1"), make.line("resume", 3.2, step=0, training="a\x1bb")
        )
        [change] = decided(run, attempt, make.job(*LIFE, ("Completed", 41.0)), make, log=log)
        texts = [entry.text for entry in change.timeline if entry.kind is TimelineKind.STEP_RESUMED]
        assert texts == ["The script went on from step 20 of fold-1", r"The script began a\x1bb from the beginning"]

    def test_a_very_long_story_is_written_in_portions_that_one_transaction_can_take(self, make: Any) -> None:
        world = make.world()
        run = world.launch(make.run(notify=EVERY_NOTIFICATION), make.attempt())
        story = [("Starting", 0.0)]
        for life in range(50):
            story += [("Training", 10.0 * life + 1), ("Interrupted", 10.0 * life + 5), ("Starting", 10.0 * life + 6)]
        story += [("Training", 2000.0), ("Completed", 2001.0)]
        world.sagemaker.has_job(run.job_name, *story)
        world.logs.lines[run.job_name] = [make.line("resume", 10.0 * life + 1.5, step=life) for life in range(51)]
        observed = world.runs.reconcile(run.run)
        assert observed.run.state is RunState.COMPLETED
        assert observed.run.interruptions == 50
        entries = world.table.runs.timeline(run.run)
        assert sum(entry.kind is TimelineKind.INTERRUPTED for entry in entries) == 50
        assert sum(entry.kind is TimelineKind.STEP_RESUMED for entry in entries) == 51
        world.outbox.deliver_all()
        assert len(world.topic.published) == 101

    def test_happenings_of_one_millisecond_do_not_break_the_transaction(self, make: Any) -> None:
        world = make.world()
        run = world.launch(make.run(), make.attempt())
        story = ("Starting", "LaunchingMLInstances", "PreparingTrainingStack", "Starting")
        world.sagemaker.has_job(run.job_name, *((status, 0.0) for status in story))
        assert world.runs.reconcile(run.run).run.state is RunState.WAITING


TRAINED = {"TrainingTimeInSeconds": 1500, "BillableTimeInSeconds": 600}
ENDINGS: dict[str, dict[str, Any]] = {
    "Completed": {**TRAINED, "ModelArtifacts": {"S3ModelArtifacts": "s3://b/m"}},
    "Failed": {**TRAINED, "FailureReason": "AlgorithmError: exit code 1", "BillableTimeInSeconds": 500},
    "Stopped": TRAINED,
    "MaxRuntimeExceeded": TRAINED,
    "MaxWaitTimeExceeded": {},
}


def all_that_is_recorded(world: Any, run: str) -> dict[str, Any]:
    """All of a record that may not depend on how, when and how often the events came."""
    transient = {"created_at", "claimed_at", "sent_at", "state", "message_id", "deliveries"}
    return {
        "run": world.table.runs.get(run).model_dump(exclude={"version", "updated_at"}),
        "attempts": world.table.runs.attempts(run),
        "timeline": world.table.runs.timeline(run),
        "notifications": [each.model_dump(exclude=transient) for each in world.table.notifications.of_run(run)],
        "published": sorted((each.notification_id, each.body) for each in world.topic.published),
    }


@functools.cache
def recorded_in_order(make: Any, ending: str) -> dict[str, Any]:
    """What is recorded where one event comes after each happening."""
    world = make.world()
    for happens in living(world, make, ending):
        happens()
        world.runs.reconcile_job("digits-1a2b3c4d-1")
        world.outbox.deliver_run("digits-1a2b3c4d")
    return all_that_is_recorded(world, "digits-1a2b3c4d")


def living(world: Any, make: Any, ending: str) -> list[Callable[[], object]]:
    """Launch a run; return what happens to its job, one after the other."""
    run = world.launch(make.run(notify=EVERY_NOTIFICATION), make.attempt())
    world.logs.lines[run.job_name] = [
        make.line("start", 3.0), make.line("resume", 3.1, step=0), make.line("progress", 9.9, step=100),
        make.line("start", 16.0), make.line("resume", 16.2, step=80), make.line("progress", 19.9, step=140),
        make.line("start", 26.0), make.line("resume", 26.2, step=140), make.line("finish", 39.9, step=300),
    ]  # fmt: skip
    lives = functools.partial(world.sagemaker.has_job, run.job_name)
    return [
        *(functools.partial(lives, *LIFE[:length]) for length in range(1, len(LIFE) + 1)),
        functools.partial(lives, *LIFE, (ending, 41.0), **ENDINGS[ending]),
    ]


class TestAnyOrderOfEvents:
    """Events come twice, late, out of order or not at all; a pass comes at last."""

    @given(data=st.data(), ending=st.sampled_from(sorted(ENDINGS)))
    @settings(max_examples=30)
    def test_i4_they_lead_to_one_record_and_each_notification_goes_out_once(
        self, make: Any, data: st.DataObject, ending: str
    ) -> None:
        world = make.world()
        story = living(world, make, ending)
        # For each status: how many events arrive while it is the newest. Late ones are events of a later status.
        arrivals = data.draw(st.lists(st.integers(0, 3), min_size=len(story), max_size=len(story)))
        faults = data.draw(st.lists(st.sampled_from(["throttle", "race", "crash", "fine"]), max_size=40))

        def an_event() -> None:
            world.runs.reconcile_job("digits-1a2b3c4d-1")
            world.outbox.deliver_run("digits-1a2b3c4d")

        for happens, count in zip(story, arrivals, strict=True):
            happens()
            for _ in range(count):
                world.clock.pass_by(seconds=7)
                with_fault(world, faults.pop() if faults else "fine", an_event)
        for run in list(world.table.runs.in_flight()):
            world.runs.reconcile(run)
        world.clock.pass_by(hours=1)
        world.outbox.deliver_all()

        assert all_that_is_recorded(world, "digits-1a2b3c4d") == recorded_in_order(make, ending)
        ids = [notification.notification_id for notification in world.topic.published]
        assert len(ids) == len(set(ids)) == 5

    @given(
        arrivals=st.lists(st.integers(0, 3), min_size=len(LIFE) + 1, max_size=len(LIFE) + 1),
        seconds=st.integers(1, 400),
    )
    @settings(max_examples=20)
    def test_i4_each_time_that_a_training_stood_still_is_counted_and_notified_once(
        self, make: Any, arrivals: list[int], seconds: int
    ) -> None:
        """Its log is read now and then while it lives, and once more at its end."""
        world = make.world()
        request = {"name": "digits", "command": "train", "stuck": {"after": 60, "restart": True, "at_most": 2}}
        run = world.launch(make.run(request=request, notify=(NotificationKind.STUCK,)), make.attempt())
        hung = [(9.0, 0), (19.0, 1), (33.0, 1), (39.0, 2)]
        lives = functools.partial(world.sagemaker.has_job, run.job_name)
        stories = [*(LIFE[:length] for length in range(1, len(LIFE) + 1)), (*LIFE, ("Failed", 41.0))]
        for story, count in zip(stories, arrivals, strict=True):
            lives(*story, **(ENDINGS["Failed"] if story[-1][0] == "Failed" else {}))
            world.logs.lines[run.job_name] = [
                make.line("start", 3.0),
                *(
                    make.line("stuck", at, seconds=60, restarts=restarts, at_most=2)
                    for at, restarts in hung
                    if at < story[-1][1]
                ),
            ]
            for _ in range(count):
                world.clock.pass_by(seconds=seconds)
                world.runs.reconcile(run.run)
        ended = world.runs.reconcile(run.run).run
        assert (ended.hangs.count, ended.hangs.restarts, ended.hangs.still_since) == (4, 3, None)
        world.outbox.deliver_all()
        published = [notification.notification_id for notification in world.topic.published]
        assert published == [f"{run.run}/stuck/1-{nth}" for nth in range(1, 5)]
        entries = [entry.at for entry in world.table.runs.timeline(run.run) if entry.kind is TimelineKind.STUCK]
        assert entries == [make.noon + timedelta(minutes=at) for at, _ in hung]


def with_fault(world: Any, fault: str, act: Any) -> None:
    """Do something while the platform misbehaves in one way; what the function cannot finish, it raises."""
    if fault == "throttle":

        def refuse(operation: str) -> None:
            raise client_error(operation, "ThrottlingException")

        world.sagemaker.before_call = refuse
    elif fault == "race":

        def another_function_is_faster(operation: str) -> None:
            if operation == "TransactWriteItems":
                world.dynamodb.before_call = lambda operation: None
                world.runs.reconcile("digits-1a2b3c4d")

        world.dynamodb.before_call = another_function_is_faster
    elif fault == "crash":

        def die(operation: str) -> None:
            if operation == "TransactWriteItems":
                raise ConnectionError("the function is gone")

        world.dynamodb.before_call = die
    try:
        act()
    except (AwsBusyError, ConnectionError):
        assert fault in {"throttle", "crash"}
    finally:
        world.sagemaker.before_call = world.dynamodb.before_call = lambda operation: None
