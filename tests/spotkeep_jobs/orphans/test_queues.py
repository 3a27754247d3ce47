"""Orphans in a queue: service jobs, and the training jobs that AWS Batch named, of no live run; and what is none."""

from __future__ import annotations

from typing import Any

import pytest

from spotkeep_jobs.record.deployment_records import OrphanKind, OrphanOutcome
from spotkeep_jobs.record.record import Ending, RunChange
from spotkeep_jobs.record.states import EndReason, RunState
from tests.spotkeep_jobs.runs.test_runs_in_a_queue import RUN, Site

from .test_collector import Pass


class QueuePass(Pass):
    """A launched run in a queue, and the controller's pass over orphans."""

    queue_names = ("gpu",)

    def __init__(self, world: Any, make: Any) -> None:
        super().__init__(world, make)
        self.site = Site(world)
        self.site.launch()

    def run_ends(self) -> None:
        """End the run in the record, whatever the reason, while its service job lives."""
        table = self.site.table
        end = {"state": RunState.FAILED, "ending": Ending(at=self.site.clock(), reason=EndReason.JOB_VANISHED)}
        run, attempt = self.site.run.model_copy(update=end), table.runs.attempt(RUN, 1).model_copy(update=end)
        table.runs.commit(RunChange(run=run, attempt=attempt))

    def found_later(self, **delta: float) -> dict[tuple[OrphanKind, str], OrphanOutcome]:
        self.later(**delta)
        return self.found()


@pytest.fixture
def passing(world: Any, make: Any) -> QueuePass:
    return QueuePass(world, make)


def test_what_a_live_run_has_is_left_alone(passing: QueuePass) -> None:
    assert passing.found_later(hours=2) == {}
    passing.site.trains()
    assert passing.found_later(hours=2) == {}
    passing.site.is_preempted()
    passing.site.passes()
    assert passing.found_later(hours=2) == {}
    assert not passing.site.service_job.terminated


@pytest.mark.parametrize("tags_handed_on", [False, True])
def test_what_outlives_its_run_is_ended(passing: QueuePass, tags_handed_on: bool) -> None:
    site = passing.site
    site.batch.hands_tags_on = tags_handed_on
    site.trains()
    site.passes()
    passing.run_ends()
    training_job = site.service_job.training_job
    assert training_job is not None
    # A search finds a training job by its tags; where it has none, the end of its service job is its end.
    by_its_tags = {(OrphanKind.OUTLIVING_JOB, training_job.name): OrphanOutcome.REMOVED} if tags_handed_on else {}
    assert passing.found_later(hours=2) == {
        **by_its_tags,
        (OrphanKind.OUTLIVING_JOB, site.service_job.job_id): OrphanOutcome.REMOVED,
    }
    assert training_job.status == "Stopping"
    assert site.service_job.terminated
    assert site.run.state is RunState.FAILED


def test_a_service_job_that_no_run_knows_is_ended_and_a_strangers_is_not(passing: QueuePass) -> None:
    site = passing.site
    submission = {
        "jobName": "lost-1",
        "jobQueue": "spotkeep_gpu",
        "quotaShareName": "vision",
        "schedulingPriority": 0,
        "serviceRequestPayload": '{"Environment": {"SPOTKEEP_RUN": "lost", "SPOTKEEP_LAUNCH": "lost"}}',
        "clientToken": "lost",
        "tags": {"spotkeep:deployment": "spotkeep"},
    }
    lost = site.batch.submit_service_job(**submission)["jobId"]
    theirs = site.batch.submit_service_job(**{**submission, "clientToken": "x", "tags": {}})["jobId"]
    of_the_sdk = {"serviceRequestPayload": "{}", "clientToken": "sdk"}
    other_clients = site.batch.submit_service_job(**{**submission, **of_the_sdk})["jobId"]
    assert passing.found_later(minutes=30) == {}
    assert passing.found_later(hours=2) == {(OrphanKind.UNRECORDED_JOB, lost): OrphanOutcome.REMOVED}
    assert [site.batch.jobs[each].terminated for each in (lost, theirs, other_clients)] == [True, False, False]
    assert site.table.runs.get(RUN) is not None
