"""One run is brought up to date, whatever other function works on it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from spotkeep_jobs.errors import RunChangedError
from spotkeep_jobs.record.states import EndReason, NotificationKind, RunState, TimelineKind
from spotkeep_jobs.runs.run_reconciler import MOST_UNFINISHED_READINGS, run_of_job
from tests.models.faults import Fault

RUN = "digits-1a2b3c4d"


@pytest.mark.parametrize(
    ("job_name", "run"),
    [
        ("digits-1a2b3c4d-1", "digits-1a2b3c4d"), ("a-10", "a"), ("a-1-2", "a-1"), ("pytorch-training", None),
        ("digits-0", None), ("digits-", None), ("-1", None), ("", None), ("a-01", None), ("digits-1\n", None),
    ],
)  # fmt: skip
def test_a_job_name_names_its_run(job_name: str, run: str | None) -> None:
    assert run_of_job(job_name) == run


@pytest.mark.parametrize("job_name", ["a-strangers-1", "no-number", "x"])
def test_a_strangers_job_is_no_runs(world: Any, job_name: str) -> None:
    assert world.runs.reconcile_job(job_name) is None


def test_an_ended_run_is_not_described_again(world: Any, make: Any) -> None:
    run = world.launch(make.run(), make.attempt())
    world.sagemaker.has_job(run.job_name, ("Completed", 1.0))
    world.runs.reconcile(RUN)

    def fail(operation: str) -> None:
        raise AssertionError(operation)

    world.sagemaker.before_call = fail
    assert world.runs.reconcile(RUN).changes == 0


def test_the_slower_of_two_reads_again_and_decides_again(world: Any, make: Any) -> None:
    """The user asks to stop between the controller's read and its write: neither is lost."""
    run = world.launch(make.run(), make.attempt())
    world.sagemaker.has_job(run.job_name, ("Training", 1.0))

    def the_user_stops(operation: str) -> None:
        if operation == "TransactWriteItems":
            world.dynamodb.before_call = lambda operation: None
            world.table.runs.request_stop(run=RUN, now=world.clock())

    world.dynamodb.before_call = the_user_stops
    run_item = world.runs.reconcile(RUN).run
    assert (run_item.state, run_item.asked_to_end.at) == (RunState.STOPPING, world.clock())
    assert run_item.started_at is not None


def test_a_run_that_keeps_changing_is_given_up_loudly(world: Any, make: Any) -> None:
    run = world.launch(make.run(), make.attempt())
    world.sagemaker.has_job(run.job_name, ("Training", 1.0))

    def never(operation: str) -> None:
        if operation == "TransactWriteItems":
            raise make.error(operation, "TransactionCanceledException", CancellationReasons=[])

    world.dynamodb.before_call = never
    with pytest.raises(RunChangedError):
        world.runs.reconcile(RUN)


def test_a_throttled_table_is_the_callers_to_retry_and_leaves_the_record_whole(world: Any, make: Any) -> None:
    run = world.launch(make.run(), make.attempt())
    world.sagemaker.has_job(run.job_name, ("Completed", 1.0))
    for operation in ("Query", "TransactWriteItems"):

        def throttle(called: str, operation: str = operation) -> None:
            if called == operation:
                raise make.error(operation, "ThrottlingException")

        world.dynamodb.before_call = throttle
        with pytest.raises(Exception, match="ThrottlingException"):
            world.runs.reconcile(RUN)
        world.dynamodb.before_call = lambda operation: None
        left = world.table.runs.get(RUN)
        assert left.model_copy(update={"log_reading": None, "updated_at": run.updated_at}) == run
    assert world.runs.reconcile(RUN).run.state is RunState.COMPLETED


def test_attempts_are_billed_together_and_interruptions_add_up(world: Any, make: Any) -> None:
    run = world.launch(make.run(), make.attempt())
    facts = {"TrainingTimeInSeconds": 1000, "BillableTimeInSeconds": 400}
    world.sagemaker.has_job(
        run.job_name, ("Training", 0.0), ("Interrupted", 10.0), ("Training", 12.0), ("Failed", 17.0),
        FailureReason="AlgorithmError: 1", **facts,
    )  # fmt: skip
    world.logs.lines[run.job_name] = [
        make.line("start", 0), make.line("resume", 0, step=0), make.line("progress", 10, step=100),
        make.line("start", 12), make.line("resume", 12, step=100), make.line("progress", 17, step=150),
    ]  # fmt: skip
    failed = world.runs.reconcile(RUN).run
    assert failed.end_reason is EndReason.SCRIPT_FAILED

    world.clock.pass_by(hours=1)
    second = make.attempt(attempt=2, job_id=make.arn(f"{RUN}-2"))
    world.table.runs.begin_attempt(run=failed, attempt=second)
    world.sagemaker.has_job(second.job_name, ("Training", 61.0), ("Completed", 70.0), **facts)
    world.logs.lines[second.job_name] = [
        make.line("start", 61), make.line("resume", 61, step=120), make.line("finish", 70, step=300),
    ]  # fmt: skip
    done = world.runs.reconcile_job(second.job_name).run
    assert (done.state, done.interruptions, done.attempt) == (RunState.COMPLETED, 1, 2)
    assert (done.cost.billed_seconds, done.cost.training_seconds) == (800, 2000)
    assert done.cost.redone_steps == 30
    assert [attempt.state for attempt in world.table.runs.attempts(RUN)] == [RunState.FAILED, RunState.COMPLETED]
    world.outbox.deliver_all()
    sent = [notification.notification_id for notification in world.topic.published]
    assert sent == [f"{RUN}/failed/1", f"{RUN}/completed/2"]


def pausing(world: Any, make: Any, *lines: str, pause_at_step: int | None = 1000) -> None:
    """A run that shall pause, whose job SageMaker calls completed; and its log."""
    asked = {} if pause_at_step is None else {"pause_at_step": pause_at_step}
    run = world.launch(make.run(request={**make.run().request, **asked}), make.attempt())
    model = {"TrainingTimeInSeconds": 600, "ModelArtifacts": {"S3ModelArtifacts": "s3://m"}}
    world.sagemaker.has_job(run.job_name, ("Training", 1.0), ("Completed", 11.0), **model)
    world.logs.lines[run.job_name] = list(lines)


def test_a_script_that_paused_stops_its_run_and_one_notification_says_how_it_goes_on(world: Any, make: Any) -> None:
    pausing(world, make, make.line("start", 1), make.line("paused", 10, step=1000), make.line("exit", 10, code=0))
    paused = world.runs.reconcile(RUN).run
    attempt = world.table.runs.attempt(RUN, 1)
    assert (paused.state, paused.end_reason, paused.paused_at_step) == (RunState.STOPPED, EndReason.PAUSED, 1000)
    assert (paused.output_uri, world.table.claims.checkpoint_lock_owner(paused.checkpoint_uri)) == (None, None)
    assert (attempt.end_reason, attempt.ending.paused_at_step) == (EndReason.PAUSED, 1000)
    assert world.table.runs.timeline(RUN)[-1].text == "Paused at step 1,000"
    [notification] = world.table.notifications.of_run(RUN)
    assert (notification.kind.value, notification.attributes["reason"]) == ("stopped", "PAUSED")
    assert "paused at step 1,000" in notification.subject
    assert f"spotkeep resume {RUN} --set pause_at_step=2000" in notification.body


def test_a_script_may_pause_beyond_the_step_that_was_asked_for(world: Any, make: Any) -> None:
    """It began with a checkpoint beyond it; or pauses of its own accord."""
    pausing(world, make, make.line("paused", 10, step=1500), make.line("exit", 10, code=0), pause_at_step=None)
    assert world.runs.reconcile(RUN).run.paused_at_step == 1500


def test_a_script_that_was_done_before_it_came_to_its_pause_has_completed(world: Any, make: Any) -> None:
    pausing(world, make, make.line("start", 1), make.line("finish", 10, step=900), make.line("exit", 10, code=0))
    done = world.runs.reconcile(RUN).run
    assert (done.state, done.paused_at_step, done.output_uri) == (RunState.COMPLETED, None, "s3://m")


@pytest.mark.parametrize("known", ["nothing", "no end"])
def test_where_the_log_is_not_known_to_its_end_a_run_that_shall_pause_has(world: Any, make: Any, known: str) -> None:
    """A resume of one that was done trains nothing; one that counted as completed could not be resumed."""
    pausing(world, make, make.line("start", 1), make.line("progress", 9, step=998))
    for _ in range(MOST_UNFINISHED_READINGS if known == "nothing" else 0):
        world.faults.strike(Fault.REFUSED, operation="FilterLogEvents")
        world.runs.reconcile(RUN)
    paused = world.runs.reconcile(RUN).run
    assert (paused.state, paused.end_reason, paused.paused_at_step) == (RunState.STOPPED, EndReason.PAUSED, 1000)


def test_a_run_that_shall_not_pause_completes_whatever_is_known_of_its_log(world: Any, make: Any) -> None:
    pausing(world, make, make.line("start", 1), pause_at_step=None)
    assert world.runs.reconcile(RUN).run.state is RunState.COMPLETED


def interrupted_and_over(world: Any, make: Any) -> None:
    """A run whose job was interrupted once, trained 20 steps again, and has ended."""
    run = world.launch(make.run(), make.attempt())
    world.sagemaker.has_job(
        run.job_name, ("Training", 0.0), ("Interrupted", 10.0), ("Training", 12.0), ("Completed", 17.0),
        TrainingTimeInSeconds=900, BillableTimeInSeconds=300,
    )  # fmt: skip
    world.logs.lines[run.job_name] = [
        make.line("start", 0), make.line("resume", 0, step=0), make.line("progress", 10, step=100),
        make.line("start", 12), make.line("resume", 12, step=80), make.line("finish", 17, step=150),
    ]  # fmt: skip


@pytest.mark.parametrize("operation", ["DescribeLogStreams", "FilterLogEvents"])
@pytest.mark.parametrize("unanswered", range(1, MOST_UNFINISHED_READINGS))
def test_an_end_waits_for_a_log_that_is_not_answered_and_its_bill_is_whole(
    world: Any, make: Any, operation: str, unanswered: int
) -> None:
    interrupted_and_over(world, make)
    for _ in range(unanswered):
        world.faults.strike(Fault.REFUSED, operation=operation)
        waiting = world.runs.reconcile(RUN)
        assert (waiting.run.state.ended, waiting.changes) == (False, 0)
        assert not world.table.notifications.of_run(RUN)
    done = world.runs.reconcile(RUN).run
    assert (done.state, done.cost.redone_steps, done.log_reading) == (RunState.COMPLETED, 20, None)


def test_an_end_is_not_held_up_by_a_log_that_is_never_answered_and_says_that_it_is_unknown(
    world: Any, make: Any
) -> None:
    interrupted_and_over(world, make)
    for _ in range(MOST_UNFINISHED_READINGS):
        world.faults.strike(Fault.REFUSED, operation="FilterLogEvents")
        run = world.runs.reconcile(RUN).run
    assert (run.state, run.cost.redone_steps, run.log_reading) == (RunState.COMPLETED, None, None)
    assert not world.table.runs.attempt(RUN, 1).usage.log_complete
    assert len(world.table.notifications.of_run(RUN)) == 1


def test_an_end_does_not_wait_for_a_log_that_cannot_be_asked_for(world: Any, make: Any) -> None:
    run = world.launch(make.run(), make.attempt(job_request=None))
    world.sagemaker.has_job(run.job_name, ("Training", 0.0), ("Completed", 17.0))
    assert world.runs.reconcile(RUN).run.state is RunState.COMPLETED


def test_an_answer_lost_after_the_write_is_found_written(
    world: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = world.launch(make.run(), make.attempt())
    world.sagemaker.has_job(run.job_name, ("Completed", 1.0))
    write = world.dynamodb.transact_write_items

    def write_and_lose_the_answer(**request: Any) -> None:
        write(**request)
        raise ConnectionError("the answer is lost")

    with monkeypatch.context() as patch:
        patch.setattr(world.dynamodb, "transact_write_items", write_and_lose_the_answer)
        with pytest.raises(ConnectionError):
            world.runs.reconcile(RUN)
    assert world.runs.reconcile(RUN).changes == 0
    assert len(world.table.notifications.of_run(RUN)) == 1


def measures(world: Any, make: Any, **fields: Any) -> Any:
    """A run that trains, and prints a value of its loss every minute."""
    document = {"name": "first", "command": "train", **fields}
    run = world.launch(make.run(request=document), make.attempt())
    world.sagemaker.has_job(run.job_name, ("Training", 0.0))
    world.logs.lines[run.job_name] = [
        make.line("start", 0), make.line("resume", 0, step=0),
        *(make.line("progress", step, step=step, metrics={"loss": 100 - step}) for step in range(1, 60)),
    ]  # fmt: skip
    return run


def test_metrics_that_the_job_file_names_are_followed_while_it_trains(world: Any, make: Any) -> None:
    measures(world, make, metrics={"loss": {"goal": "minimize"}})
    world.clock.pass_by(minutes=9)
    world.runs.reconcile(RUN)
    assert world.table.runs.metrics(RUN) is None
    world.clock.pass_by(minutes=1)
    world.runs.reconcile(RUN)
    followed = world.table.runs.metrics(RUN).metrics["loss"]
    assert (followed.last_step, followed.best, followed.goal) == (59, 41, "minimize")
    assert world.table.runs.attempt(RUN, 1).log_read_at == world.clock()
    asked = len(world.logs.queries)
    world.clock.pass_by(minutes=5)
    world.runs.reconcile(RUN)
    assert len(world.logs.queries) == asked


def test_any_metrics_are_in_the_record_when_it_ends_and_in_its_notification(world: Any, make: Any) -> None:
    run = measures(world, make)
    world.clock.pass_by(minutes=30)
    world.runs.reconcile(RUN)
    assert world.table.runs.metrics(RUN) is None
    world.sagemaker.has_job(run.job_name, ("Training", 0.0), ("Completed", 60.0), TrainingTimeInSeconds=3600)
    world.runs.reconcile(RUN)
    assert world.table.runs.metrics(RUN).metrics["loss"].last == 41
    [notification] = world.table.notifications.of_run(RUN)
    assert "Metrics\n  loss         41 at step 59" in notification.body
    loss = {"goal": None, "last_step": 59, "last": 41.0, "best_step": None, "best": None}
    assert notification.facts["metrics"]["loss"] == loss


def test_metrics_of_the_attempts_of_a_run_are_one_curve(world: Any, make: Any) -> None:
    run = measures(world, make, metrics=["loss"])
    world.sagemaker.has_job(run.job_name, ("Training", 0.0), ("Failed", 60.0), FailureReason="AlgorithmError: 1")
    failed = world.runs.reconcile(RUN).run
    second = make.attempt(attempt=2, job_id=make.arn(f"{RUN}-2"))
    world.table.runs.begin_attempt(run=failed, attempt=second)
    world.sagemaker.has_job(second.job_name, ("Training", 61.0), ("Completed", 70.0))
    world.logs.lines[second.job_name] = [
        make.line("start", 61), make.line("resume", 61, step=50),
        make.line("progress", 62, step=51, metrics={"loss": 7}),
    ]  # fmt: skip
    world.runs.reconcile(RUN)
    loss = world.table.runs.metrics(RUN).metrics["loss"]
    assert (loss.last_step, loss.last) == (51, 7)
    assert [step for step, _ in loss.points] == list(range(1, 52))


def test_a_log_that_is_not_answered_leaves_the_metrics_as_they_were(world: Any, make: Any) -> None:
    run = measures(world, make, metrics=["loss"])
    world.clock.pass_by(minutes=10)
    world.runs.reconcile(RUN)
    known = world.table.runs.metrics(RUN)
    world.sagemaker.has_job(run.job_name, ("Training", 0.0), ("Completed", 60.0))
    for _ in range(MOST_UNFINISHED_READINGS):
        world.faults.strike(Fault.REFUSED, operation="FilterLogEvents")
        world.runs.reconcile(RUN)
    assert world.table.runs.metrics(RUN) == known
    assert "loss         41 at step 59" in world.table.notifications.of_run(RUN)[0].body


def may_hang(world: Any, make: Any, *lines: str, **fields: Any) -> Any:
    """A run that trains, whose job file has a limit for a training that hangs."""
    document = {"name": "first", "command": "train", "stuck": {"after": 600, "restart": True}, **fields}
    run = world.launch(make.run(request=document, notify=("stuck", "failed")), make.attempt())
    world.sagemaker.has_job(run.job_name, ("Training", 0.0))
    world.logs.lines[run.job_name] = [make.line("start", 0), make.line("resume", 0, step=0), *lines]
    return run


def test_a_training_that_stands_still_is_notified_and_counted_once(world: Any, make: Any) -> None:
    hung = make.line("stuck", 10, seconds=600.2, restarts=0, at_most=3)
    run = may_hang(world, make)
    world.clock.pass_by(minutes=9)
    world.runs.reconcile(RUN)
    assert world.logs.queries == []
    world.logs.lines[run.job_name].append(hung)
    for _ in range(4):
        world.clock.pass_by(minutes=5)
        world.runs.reconcile(RUN)
    hangs = world.table.runs.get(RUN).hangs
    assert (hangs.count, hangs.restarts) == (1, 1)
    assert hangs.still_since == make.noon + timedelta(seconds=600 - 600.2)
    [notification] = world.table.notifications.of_run(RUN)
    assert (notification.kind, notification.nth) == (NotificationKind.STUCK, 1)
    world.logs.lines[run.job_name] += [
        make.line("start", 30),
        make.line("stuck", 45, seconds=601, restarts=1, at_most=3),
    ]
    world.sagemaker.has_job(run.job_name, ("Training", 0.0), ("Completed", 60.0), TrainingTimeInSeconds=3600)
    world.clock.pass_by(minutes=60)
    ended = world.runs.reconcile(RUN).run
    assert ended.hangs.model_dump(exclude={"newest_at"}) == {"count": 2, "restarts": 2, "still_since": None}
    assert [each.nth for each in world.table.notifications.of_run(RUN)] == [1, 2]
    entries = [each.text for each in world.table.runs.timeline(RUN) if each.kind is TimelineKind.STUCK]
    assert entries == [
        "Stood still: no step and no line of output for 10 min; its command starts again from its checkpoint, "
        "1 of at most 3 times",
        "Stood still: no step and no line of output for 10 min; its command starts again from its checkpoint, "
        "2 of at most 3 times",
    ]


def test_a_training_that_moves_again_stands_still_no_more(world: Any, make: Any) -> None:
    lines = make.line("stuck", 10, seconds=600), make.line("moves-again", 11)
    may_hang(world, make, lines[0])
    world.clock.pass_by(minutes=10)
    assert world.runs.reconcile(RUN).run.hangs.still_since == make.noon
    world.logs.lines[f"{RUN}-1"].append(lines[1])
    world.clock.pass_by(minutes=5)
    moved = world.runs.reconcile(RUN).run.hangs
    assert (moved.count, moved.restarts, moved.still_since) == (1, 0, None)


def test_the_last_of_the_starts_after_a_hang_is_no_start(world: Any, make: Any) -> None:
    may_hang(world, make, make.line("stuck", 10, seconds=600, restarts=3, at_most=3))
    world.clock.pass_by(minutes=10)
    assert world.runs.reconcile(RUN).run.hangs.restarts == 0
    [entry] = [each.text for each in world.table.runs.timeline(RUN) if each.kind is TimelineKind.STUCK]
    assert entry.endswith("; its command has started again 3 times for that, so its job fails")


def test_a_script_cannot_report_a_hang_that_its_job_file_does_not_watch_for(world: Any, make: Any) -> None:
    run = may_hang(world, make, make.line("stuck", 10, seconds=600), stuck=None)
    world.sagemaker.has_job(run.job_name, ("Training", 0.0), ("Completed", 60.0), TrainingTimeInSeconds=3600)
    assert world.runs.reconcile(RUN).run.hangs.count == 0
    assert world.table.notifications.of_run(RUN) == []


def test_with_metrics_the_log_is_still_read_at_each_pass_for_a_hang(world: Any, make: Any) -> None:
    may_hang(world, make, metrics=["loss"])
    world.clock.pass_by(minutes=10)
    for _ in range(3):
        world.runs.reconcile(RUN)
        assert world.table.runs.attempt(RUN, 1).log_read_at == world.clock()
        world.clock.pass_by(minutes=5)
