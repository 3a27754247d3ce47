"""`spotkeep priority`, and what `ps`, `describe` and `logs` show of a run in a queue."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from spotkeep_cli.errors import ExitCode
from spotkeep_jobs.record.record import PhaseSpan, QueuedTrainingJob, QueuePlace, TrainingJobs

RUN = "digits-1a2b3c4d"
PLACE = QueuePlace(queue="gpu", share="vision", priority=7)


@pytest.fixture
def queued(deployment: Any, make: Any) -> str:
    run = make.run(RUN, queue=PLACE, training_job="AWSBatchdigits-2")
    jobs = tuple(
        QueuedTrainingJob(
            name=f"AWSBatchdigits-{number}",
            phases=(PhaseSpan(phase="TRAINING", started_at=run.created_at + timedelta(hours=number)),),
        )
        for number in (1, 2)
    )
    deployment.dynamodb.add(run, attempts=[make.attempt(RUN, queue=PLACE, training_jobs=TrainingJobs(listed=jobs))])
    return RUN


def test_it_asks_the_launcher_and_says_what_is_so_now(spotkeep: Any, deployment: Any, queued: str) -> None:
    deployment.answers["priority"] = {"ok": True, "run": RUN, "queue": {**PLACE.model_dump(), "priority": 9}}
    result = spotkeep("priority", queued[:8], "9")
    assert result.exit_code == ExitCode.DONE, result.output
    assert deployment.invocations == [{"action": "priority", "run": RUN, "priority": 9}]
    assert f"{RUN} has priority 9 in queue gpu, share vision." in result.stdout
    assert json.loads(spotkeep("priority", queued, "9", "--json").stdout)["queue"]["priority"] == 9


def test_what_is_no_priority_is_no_call(spotkeep: Any, deployment: Any, queued: str) -> None:
    assert spotkeep("priority", queued, "10000").exit_code == ExitCode.USAGE
    assert deployment.invocations == []


def test_ps_has_a_column_of_queues_where_a_run_is_in_one(
    spotkeep: Any, deployment: Any, make: Any, queued: str
) -> None:
    assert "gpu/vision 7" in spotkeep("ps").stdout
    deployment.dynamodb.add(make.run("other-1a2b3c4d"))
    assert "QUEUE" in spotkeep("ps").stdout


def test_describe_says_where_it_waits_and_what_batch_named(spotkeep: Any, queued: str) -> None:
    shown = spotkeep("describe", queued).stdout
    assert "gpu, share vision, priority 7" in shown
    assert "AWSBatchdigits-2" in shown


def test_logs_reads_all_training_jobs_of_an_attempt(spotkeep: Any, deployment: Any, queued: str) -> None:
    deployment.logs.later = {f"AWSBatchdigits-{number}": [[f"line of {number}"]] for number in (1, 2)}
    shown = spotkeep("logs", queued).stdout
    assert "line of 1" in shown
    assert "line of 2" in shown
