"""Makes a run of a training job that another client created with the deployment's tag.

Other clients are, for example, the SageMaker SDK, the console or a pipeline. From then on the job belongs to a run like
any other. The run has a timeline, notifications, a warm pool, a bill, and the commands `describe`, `logs` and `stop`.
Features that the client did not ask for stay missing, and the timeline says so. Spotkeep's agent does not run in the
job, so the run's steps are not known. Without a checkpoint prefix, an interruption starts the training from the
beginning. Spotkeep cannot create a next job, because there is no job file.

The tag is the only condition, and Spotkeep asks SageMaker for it. An event or a search result that names a job is only
a hint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.backends.sagemaker.training_job import DEPLOYMENT_TAG, RUN_VARIABLE
from spotkeep_jobs.document.times import DAY_SECONDS
from spotkeep_jobs.errors import CheckpointPrefixTakenError, RunExistsError, isolated
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.record import DEFAULT_NOTIFY, Attempt, Place, Run
from spotkeep_jobs.record.run_store import NewRun
from spotkeep_jobs.record.states import RunState

if TYPE_CHECKING:
    from spotkeep_jobs.backends.backend import JobView
    from spotkeep_jobs.backends.sagemaker.api import AdoptableJob
    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.settings import ControllerSettings

_OWNER_TAG: Final = "spotkeep:owner"
_NAMES_OF_BATCH: Final = "AWSBatch"
_EXECUTION_TAG: Final = "sagemaker:pipeline-execution-arn"
"""The tag of a pipeline's jobs. Source: `sagemaker/core/lineage/artifact.py` of the SageMaker SDK 3."""


@dataclass(frozen=True)
class Adoption:
    """Records runs of the jobs of other clients. It creates, changes and stops nothing at SageMaker."""

    deployment: Deployment[ControllerSettings]

    def adopt(self, job_name: str) -> str | None:
        """Record the run of a job, unless it is recorded.

        Args:
            job_name: The job's name.

        Returns:
            The run's id. None for a job that is not there, has not the deployment's tag, or is one of a launcher's.

        Raises:
            AwsCallError: SageMaker refused or could not answer.
        """
        recorded = self.deployment.table.runs.get(job_name)
        if recorded is not None:
            return recorded.run if recorded.adopted else None
        job = self.deployment.training_jobs.adoptable(job_name)
        if job is None or not may_be_adopted(job.view):
            return None
        tags = self.deployment.training_jobs.tags(job.view.job_id)
        if tags.get(DEPLOYMENT_TAG) != self.deployment.name:
            return None
        self._record(job, tags=tags)
        return job_name

    def adopt_found(self, found: Mapping[str, JobView], *, failures: dict[str, str]) -> list[str]:
        """Record a run for each job in progress that has no run because its events were lost.

        Args:
            found: Jobs with the deployment's tag by name, from SageMaker's search index.
            failures: Receives each job that could not be recorded, with the reason. The other jobs are recorded all the
                same.

        Returns:
            The ids of the runs.
        """
        adopted: list[str] = []

        def adopt(name: str) -> None:
            if self.deployment.table.runs.get(name) is None and (run := self.adopt(name)) is not None:
                adopted.append(run)

        for name in (name for name, job in found.items() if may_be_adopted(job)):
            isolated(failures, f"job {name}", partial(adopt, name))
        return adopted

    def _record(self, job: AdoptableJob, *, tags: Mapping[str, str]) -> None:
        new = new_run_of(job, tags=tags, now=self.deployment.now())
        try:
            self.deployment.table.runs.open([new])
        except CheckpointPrefixTakenError as error:
            # It writes there whatever is recorded; its lock would keep the run from being known at all.
            self.deployment.table.runs.open([_without_lock(new, owned_by=error.owned_by)])
        except RunExistsError:
            return  # Another function was faster.


def may_be_adopted(job: JobView) -> bool:
    """Return True if another client created a job. A job of the launcher has its run's mark in its environment."""
    return RUN_VARIABLE not in job.environment


def surprises_of(job: AdoptableJob, *, tags: Mapping[str, str]) -> list[str]:
    """Name each difference from a user's expectation, and the setting to change. See docs/other-clients.md.

    Args:
        job: SageMaker's description of the job.
        tags: The job's tags.
    """
    said = []
    if job.starts_by_sdk and (job.checkpoint_uri is not None or job.capacity == "spot"):
        said.append("its script gets no SIGTERM, unless the trainer's command begins with exec")
    if job.checkpoint_uri is not None and job.tuning_job is not None:
        said.append("all jobs of the tuning job have its checkpoint prefix: keep each in a folder of its own")
    elif job.checkpoint_uri is not None and _lacks_its_execution(job.checkpoint_uri, job=job, tags=tags):
        lacks = "its checkpoint prefix lacks the id of the pipeline's execution"
        said.append(f"{lacks}: a later execution goes on where this one ends")
    if job.view.name.startswith(_NAMES_OF_BATCH) and (job.longest_seconds or 0) > DAY_SECONDS:
        said.append("a TrainingQueue ends it after a day, unless it was submitted with a longer timeout")
    return said


def _lacks_its_execution(checkpoint_uri: str, *, job: AdoptableJob, tags: Mapping[str, str]) -> bool:
    """Return whether a pipeline made a job, and the prefix does not hold the id of the pipeline's execution."""
    # Pipelines give such names, unless the user gives another.
    named = re.match(r"pipelines-([a-z0-9]{12})-", job.view.name)
    execution = tags.get(_EXECUTION_TAG, "").rpartition("/")[2] or (named[1] if named else "")
    return bool(execution) and execution not in checkpoint_uri


def new_run_of(job: AdoptableJob, *, tags: Mapping[str, str], now: datetime) -> NewRun:
    """Make the run of another client's job, and the run's only attempt.

    Args:
        job: SageMaker's description of the job.
        tags: The job's tags, of which `spotkeep:owner` names the owner.
        now: The time.
    """
    view = job.view
    attempt = Attempt(
        run=view.name,
        attempt=1,
        job_name=view.name,
        job_id=view.job_id,
        place=Place(
            capacity=job.capacity,
            instance_type=view.instance_type or "unknown",
            instance_count=view.instance_count,
        ),
        created_at=view.created_at,
        launched_at=view.created_at,
    )
    run = Run(
        run=view.name,
        name=job.tuning_job or view.name,
        owner=tags.get(_OWNER_TAG),
        adopted=True,
        state=RunState.LAUNCHING,
        place=attempt.place,
        job_name=view.name,
        job_id=view.job_id,
        created_at=view.created_at,
        updated_at=now,
        checkpoint_uri=job.checkpoint_uri or "",
        output_prefix=job.output_prefix,
        # A tuning job makes hundreds of jobs: each is a line of `spotkeep ps`, and none of them a mail.
        notify=() if job.tuning_job else DEFAULT_NOTIFY,
        token=f"adopted:{view.job_id}",
        request={},
    )
    return NewRun(run=run, attempt=attempt, opened=_opened(job, tags=tags))


def _opened(job: AdoptableJob, *, tags: Mapping[str, str]) -> str:
    maker = "another client" if job.tuning_job is None else f"tuning job {job.tuning_job}"
    said = [f"{maker} created training job {job.view.name} with the deployment's tag".capitalize()]
    if job.checkpoint_uri is None and job.capacity == "spot":
        said.append("it has no checkpoint prefix, so an interruption starts it anew")
    elif job.checkpoint_uri is None:
        said.append("it has no checkpoint prefix")
    said += surprises_of(job, tags=tags)
    return "; ".join([*said, "how many steps it trains is not known, and it cannot be resumed"])


def _without_lock(new: NewRun, *, owned_by: str) -> NewRun:
    opened = f"{new.opened}; it writes the checkpoints of {owned_by}, {new.run.checkpoint_uri}, which is not over"
    return NewRun(run=with_changes(new.run, checkpoint_uri=""), attempt=new.attempt, opened=opened)
