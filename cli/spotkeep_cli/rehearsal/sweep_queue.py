"""The queue in which a sweep is rehearsed.

Its trials borrow instances, and another share takes its instances back meanwhile. The queue has instances for half of
the trials that the sweep has under way at a time. So trials wait in it. Some of the instances belong to a second share,
which lends them. A trial that ends leaves its instance to a waiting one. The second share's jobs find no free instance,
so AWS Batch preempts trials.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from botocore.config import Config

from spotkeep_cli.errors import UsageError
from spotkeep_cli.rehearsal.interruption_points import LOCAL_NOTICE_SECONDS
from spotkeep_cli.rehearsal.sweep_verdict import TrialServiceJob
from spotkeep_jobs.document.queue import job_queue_name
from spotkeep_jobs.sweeps.document import read_sweep

if TYPE_CHECKING:
    from spotkeep_cli.rehearsal.engine import Rehearsal

SHARE_OF_OTHERS: Final = "others"
OF_ONE_JOB: Final[Mapping[str, Any]] = dict.fromkeys(
    ("sweep", "hyperparameters", "environment", "metrics", "max_wait", "priority", "distributed")
)
"""The fields of a sweep's job file that one of a single job on demand has not. None takes a field away."""
_FEWEST_PLACES: Final = 2
"""One for a trial, one for a job of the other share."""
_MOST_OTHERS: Final = 2
_DISPATCHED: Final = ("SCHEDULED", "STARTING", "RUNNING")
_SECONDS_OF_OTHERS: Final = 5
_LATER_THAN_SPOT_SECONDS: Final = 5.0
_PATIENT: Final = Config(retries={"mode": "standard", "total_max_attempts": 12})
"""A retry configuration with many attempts.

AWS Batch throttles calls by chance here, including those of the rehearsal. Five attempts may all be refused.
"""


@dataclass(frozen=True, kw_only=True)
class RehearsedQueue:
    """The queue, and its division into shares.

    Attributes:
        name: As the job file names it.
        share: The sweep's, as the job file names it.
        instance_type: The trials'.
        parallel: Number of trials that the sweep has under way at a time.
        instances: Number of instances of a trial.
    """

    name: str
    share: str
    instance_type: str
    parallel: int
    instances: int

    @property
    def places(self) -> int:
        """Number of jobs that the queue has instances for, where each job has as many as a trial.

        Fewer jobs fit than want instances.
        """
        return max(_FEWEST_PLACES, self.parallel // 2)

    @property
    def others(self) -> int:
        """Number of these places that belong to the other share."""
        return min(_MOST_OTHERS, self.places // 2)

    @property
    def setting(self) -> dict[str, Any]:
        """The setting `queues` of the deployment."""

        def of(jobs: int) -> dict[str, int]:
            return {self.instance_type: jobs * self.instances}

        shares = {
            self.share: {"types": of(self.places - self.others)},
            SHARE_OF_OTHERS: {"types": of(self.others), "lending": "lend"},
        }
        return {self.name: {"types": of(self.places), "shares": shares}}

    def trials_environment(self, environment: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the environment of the sweep's job file with a shorter time to save than SageMaker's 120 seconds.

        A job that is asked to stop waits so long before it ends. Spot is gone before.
        """
        return {**(environment or {}), "SPOTKEEP_NOTICE_SECONDS": str(LOCAL_NOTICE_SECONDS + _LATER_THAN_SPOT_SECONDS)}

    def others_job(self) -> dict[str, Any]:
        """Return the fields of a job file that make it one of the other share's jobs. None takes a field away."""
        return {
            **OF_ONE_JOB,
            "command": f"sleep {_SECONDS_OF_OTHERS}",
            "capacity": "on-demand",
            "share": SHARE_OF_OTHERS,
        }


def queue_of(fields: Mapping[str, Any]) -> RehearsedQueue | None:
    """Return the queue that the job file of a sweep names. None of one that names none.

    Args:
        fields: The job file's.

    Raises:
        UsageError: Nothing could be borrowed in it.
    """
    request, _problems = read_sweep(fields, tpe=True)
    if fields.get("queue") is None or request is None:
        return None
    share, instance_type = fields.get("share"), fields.get("instance_type")
    if not isinstance(share, str) or share == SHARE_OF_OTHERS or not isinstance(instance_type, str):
        raise UsageError(
            f"a rehearsal of a sweep in a queue needs its `share`, which is not {SHARE_OF_OTHERS!r}, and its "
            f"`instance_type`; found share {share!r} and instance_type {instance_type!r}",
            hint="--set share=research --set instance_type=ml.m5.large",
        )
    if request.parallel < _FEWEST_PLACES:
        raise UsageError(
            f"a rehearsal of a sweep in a queue needs two trials at a time, found sweep.parallel {request.parallel}",
            hint="--set sweep.parallel=4, or --set queue=null to rehearse it without a queue",
        )
    return RehearsedQueue(
        name=str(fields["queue"]),
        share=share,
        instance_type=instance_type,
        parallel=request.parallel,
        instances=int(fields.get("instance_count") or 1),
    )


def settings_of(fields: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the settings of the deployment in which the sweep of a job file is rehearsed."""
    queue = queue_of(fields)
    return {} if queue is None else {"queues": json.dumps(queue.setting)}


class OtherShare:
    """Launches the other share's jobs when its instances are lent, and reads the states of all jobs from AWS Batch.

    Args:
        rehearsal: The rehearsal.
        queue: The queue.
    """

    def __init__(self, rehearsal: Rehearsal, queue: RehearsedQueue) -> None:
        self._rehearsal, self._queue = rehearsal, queue
        self._batch = rehearsal.session.client("batch", config=_PATIENT)
        self._job_queue = job_queue_name(deployment=rehearsal.deployment.name, queue=queue.name)
        self._runs: list[str] = []
        self._took_instances_back = False

    def launch_when_lent(self) -> None:
        """Launch the share's jobs if trials have its instances.

        It launches them once more when they have ended and preempted no trial. A trial with an instance may end before
        AWS Batch has the jobs. The jobs then take that instance.
        """
        if self._took_instances_back or not all(self._rehearsal.run(run).state.ended for run in self._runs):
            return
        if self._with_instances() > self._queue.places - self._queue.others:
            self._took_instances_back = bool(self._runs) and any(job.preemptions for job in self.service_jobs())
            if not self._took_instances_back:
                self._launch()

    def states(self) -> Counter[str]:
        """Wait until its jobs have ended, and count the states of their runs."""
        if not self._runs:
            return Counter()
        return Counter(run.state.value for run in self._rehearsal.follow(*self._runs).values())

    def service_jobs(self) -> Iterator[TrialServiceJob]:
        """Yield AWS Batch's description of each service job of the sweep."""
        for summary in self._summaries():
            described = self._batch.describe_service_job(jobId=summary["jobId"])
            preemptions = described.get("preemptionSummary", {}).get("preemptedAttemptCount", 0)
            yield TrialServiceJob(name=summary["jobName"], preemptions=preemptions)

    def _launch(self) -> None:
        for _ in range(self._queue.others):
            run = self._rehearsal.add_run(f"-others-{len(self._runs) + 1}")
            self._rehearsal.deployment.launch(run=run, **self._queue.others_job())
            self._runs.append(run)
        self._rehearsal.view.note("another share wants back what it lends")

    def _with_instances(self) -> int:
        """Return the number of trials with instances. Their service jobs were dispatched and are not over."""
        return sum(summary["status"] in _DISPATCHED for summary in self._summaries())

    def _summaries(self) -> Iterator[Mapping[str, Any]]:
        """Yield the service jobs of the sweep as ListServiceJobs gives them.

        With a filter, the call lists those in every status.
        """
        pages = self._batch.get_paginator("list_service_jobs").paginate(
            jobQueue=self._job_queue, filters=[{"name": "JOB_NAME", "values": [f"{self._rehearsal.first}-*"]}]
        )
        for page in pages:
            yield from page["jobSummaryList"]
