from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_local.training.job import (
    Ending,
    LocalJobFacts,
    ProcessLifetime,
    SecondaryStatus,
    Status,
    TrainingJob,
    advance,
    exit_ending,
)

S = SecondaryStatus


def job_through(*path: tuple[SecondaryStatus, float], spot: bool = True) -> TrainingJob:
    job = TrainingJob(
        name="job",
        arn="arn:aws:sagemaker:us-east-1:000000000000:training-job/job",
        request={"EnableManagedSpotTraining": spot},
        created_at=0.0,
        updated_at=0.0,
    )
    for secondary, now in path:
        job = advance(job, secondary, now=now)
    return job


INTERRUPTED_ONCE = (
    (S.STARTING, 0),
    (S.DOWNLOADING, 10),
    (S.TRAINING, 20),
    (S.INTERRUPTED, 50),
    (S.STARTING, 150),
    (S.DOWNLOADING, 150),
    (S.TRAINING, 160),
    (S.UPLOADING, 200),
    (S.COMPLETED, 210),
)


def test_training_time_runs_from_the_first_instance_to_the_end():
    assert job_through(*INTERRUPTED_ONCE).training_time_seconds(now=999) == 200


def test_billable_time_leaves_waiting_out_and_holds_the_spot_discount():
    assert job_through(*INTERRUPTED_ONCE).billable_time_seconds(now=999) == 30
    assert job_through(*INTERRUPTED_ONCE, spot=False).billable_time_seconds(now=999) == 100


def test_what_counts_against_the_runtime_limit_adds_up_over_restarts():
    job = job_through(*INTERRUPTED_ONCE)
    assert job.running_seconds(now=999) == 90
    assert job.training_seconds(now=999) == 70


def test_a_job_that_never_had_capacity_has_no_times():
    job = job_through((S.STARTING, 0), (S.MAX_WAIT_EXCEEDED, 60))
    assert (job.training_time_seconds(999), job.billable_time_seconds(999)) == (None, None)


@pytest.mark.parametrize(
    ("secondary", "status"),
    [
        (S.COMPLETED, Status.COMPLETED),
        (S.FAILED, Status.FAILED),
        (S.STOPPED, Status.STOPPED),
        (S.MAX_RUNTIME_EXCEEDED, Status.STOPPED),
        (S.MAX_WAIT_EXCEEDED, Status.STOPPED),
        (S.STOPPING, Status.STOPPING),
        (S.INTERRUPTED, Status.IN_PROGRESS),
    ],
)
def test_the_status_follows_from_the_secondary_status(secondary, status):
    assert job_through((S.STARTING, 0), (secondary, 1)).status is status


def test_a_job_that_is_stopping_stays_so_while_it_uploads():
    assert job_through((S.TRAINING, 0), (S.STOPPING, 1), (S.UPLOADING, 2)).status is Status.STOPPING


def test_exit_codes_become_endings():
    assert exit_ending(exit_code=0, failure_text="ignored") == Ending(secondary=S.COMPLETED)
    failed = exit_ending(exit_code=2, failure_text="x" * 5000)
    assert failed.secondary is S.FAILED
    assert failed.failure_reason == f"AlgorithmError: {'x' * 1024}, exit code: 2"


live = st.sampled_from([S.STARTING, S.DOWNLOADING, S.TRAINING, S.INTERRUPTED, S.STOPPING, S.UPLOADING])
steps = st.tuples(live, st.floats(min_value=0, max_value=1000))


@given(st.lists(steps, min_size=1, max_size=12))
def test_a_status_begins_where_the_last_one_ended_and_no_more_is_billed_than_there_was(steps):
    times = accumulate(seconds for _, seconds in steps)
    path = [(secondary, now) for (secondary, _), now in zip(steps, times, strict=True)]
    job = job_through(*path)
    assert all(before.end == after.start for before, after in pairwise(job.transitions))
    now = path[-1][1]
    assert job.running_seconds(now) <= now + 1e-6
    assert (job.billable_time_seconds(now) or 0) <= now + 1


def test_facts_survive_their_journey_as_json():
    facts = LocalJobFacts(
        job_name="job",
        status="Completed",
        secondary_status="Completed",
        isolation="namespace",
        lifetimes=(ProcessLifetime(pid=1, started_at=3.0, last_step_seen=4),),
    )
    assert LocalJobFacts.from_document(facts.to_document()) == facts
