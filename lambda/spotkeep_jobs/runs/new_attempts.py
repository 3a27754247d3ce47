"""The run item and the attempt that a launch records before it creates a job, with the exact request of the job.

This module records nothing itself. The training spec of SageMaker's jobs is kept in S3 before the record, so a job with
a recorded request finds its spec.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from spotkeep_jobs.backends.batch.service_job import (
    MAX_PAYLOAD_BYTES,
    MAX_SUBMISSION_BYTES,
    fits,
    shortened,
    sizes_of,
)
from spotkeep_jobs.backends.ec2.launch import fleet_launch, job_request_of
from spotkeep_jobs.backends.job_spec import SpecObject
from spotkeep_jobs.backends.sagemaker.request import (
    LAUNCH_ID_HEX_DIGITS,
    build_training_job_request,
    checkpoint_uri_for,
    job_name_for,
    marks_of,
    output_prefix_for,
    run_id_for,
    spec_of,
)
from spotkeep_jobs.document.capacity import NextJob, first_job, shortest_job_seconds
from spotkeep_jobs.document.fleet import no_fleets
from spotkeep_jobs.document.reading import shown
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.errors import AwsRefusedError, Problem, RequestRefusedError
from spotkeep_jobs.record.caller import Caller
from spotkeep_jobs.record.ids import ASKED_BY_A_USER, Origin
from spotkeep_jobs.record.record import Attempt, Place, Plan, QueuePlace, Run, RunGroup, Steered, TimelineEntry
from spotkeep_jobs.record.run_store import NewRun
from spotkeep_jobs.record.states import TimelineKind
from spotkeep_jobs.runs.acceptance import GroupMember
from spotkeep_jobs.runs.max_cost import stays_near
from spotkeep_jobs.runs.request_changes import changes_in_words
from spotkeep_jobs.runs.steering import no_time_for_spot, steered_entry
from spotkeep_jobs.with_changes import with_changes

if TYPE_CHECKING:
    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.settings import LauncherSettings


@dataclass(frozen=True)
class NewAttempts:
    """Makes the records of new runs and attempts."""

    deployment: Deployment[LauncherSettings]

    def checkpoint_uri(self, request: JobRequest, *, run: str) -> str:
        """Return the address of a run's checkpoints."""
        return checkpoint_uri_for(request=request, run=run, platform=self.deployment.platform)

    def too_long(self, request: JobRequest) -> list[Problem]:
        """Return that AWS Batch would not take the request of a run's first job, if it would not."""
        place = _place_of(request)
        if place is None:
            return []
        run = request.run or run_id_for(name=request.name, token=request.token or "")
        job = first_job(request, prices=self.deployment.prices)
        launch_id = "0" * LAUNCH_ID_HEX_DIGITS
        job_request = self._job_request(request, job=job, run=run, attempt=1, launch_id=launch_id, group=None)
        try:
            _in_queue(request, job_request, place)
        except RequestRefusedError as error:
            return list(error.problems)
        return []

    def of_new_run(
        self, member: GroupMember, *, plan: Plan | None, caller: Caller | None, origin: Origin = ASKED_BY_A_USER
    ) -> NewRun:
        """Make a new run with its first attempt.

        Args:
            member: The request of the run.
            plan: The plan of the run, if any.
            caller: The caller, if known.
            origin: The sweep or schedule that causes the launch, or a user's own request.

        Raises:
            RequestRefusedError: AWS Batch would not take the request of its job.
        """
        request = member.request
        run = request.run or ""
        now = self.deployment.now()
        deadline_at = request.deadline_at(now)
        no_spot = no_time_for_spot(request, deadline_at=deadline_at, now=now)
        attempt = self._new_attempt(request, run=run, number=1, on_demand_because=no_spot, group=member.group)
        run_item = Run(
            run=run,
            name=request.name,
            owner=request.owner,
            launched_by=caller,
            group=member.group,
            trial=origin.trial,
            schedule=origin.schedule,
            place=attempt.place,
            job_name=attempt.job_name,
            created_at=attempt.created_at,
            updated_at=attempt.created_at,
            checkpoint_uri=self.checkpoint_uri(request, run=run),
            output_prefix=output_prefix_for(request=request, run=run, platform=self.deployment.platform),
            notify=request.notify,
            deadline_at=deadline_at,
            steered=_steered(no_spot, at=now),
            token=request.token or "",
            request=request.as_document(),
        )
        timeline = _steered_from_the_start(run_item, attempt)
        return NewRun(run=run_item, attempt=attempt, plan=plan, timeline=timeline)

    def of_ended_run(
        self, run: Run, request: JobRequest, *, spent_usd: float, changed: bool
    ) -> tuple[Run, Attempt, tuple[TimelineEntry, ...]]:
        """Make the next attempt of a run that has ended, with the run item's new deadline and the timeline's entries.

        Args:
            run: The run item.
            request: Its request, validated again.
            spent_usd: The cost of the run so far, in US dollars.
            changed: True if the request replaces the recorded one.

        Raises:
            RequestRefusedError: The run has spent its max_cost, or AWS Batch would not take the request of its job.
        """
        now = self.deployment.now()
        deadline_at = request.deadline_at(now)
        no_spot = no_time_for_spot(request, deadline_at=deadline_at, now=now)
        attempt = with_changes(
            self._new_attempt(
                request,
                run=run.run,
                number=run.attempt + 1,
                spent_usd=spent_usd,
                on_demand_because=no_spot,
                group=run.group,
            ),
            resumed=True,
        )
        run = with_changes(
            run,
            deadline_at=deadline_at,
            steered=_steered(no_spot, at=now),
            max_cost_is_near=run.max_cost_is_near
            and stays_near(request.max_cost, before=run.request.get("max_cost"), spent_usd=spent_usd),
            training_job=None,
            instance_time=None,
        )
        timeline = _steered_from_the_start(run, attempt)
        if changed:
            document = request.as_document()
            timeline += _changed(run, attempt, document)
            run = with_changes(run, request=document, notify=request.notify)
        return run, attempt, timeline

    def keep_spec(self, request: JobRequest, *, run: str) -> None:
        """Keep the training spec of a run's jobs in S3. An instance of EC2 gets it in the run table instead.

        Raises:
            RequestRefusedError: S3 refuses it.
            AwsBusyError: S3 could not answer. Call again.
        """
        if request.backend != "sagemaker":
            return
        spec = spec_of(request=request, platform=self.deployment.platform, run=run)
        if spec is None:
            return
        try:
            self.deployment.specs.keep(spec)
        except AwsRefusedError as error:
            raise RequestRefusedError([_spec_refused(spec, error)]) from error

    def _new_attempt(
        self,
        request: JobRequest,
        *,
        run: str,
        number: int,
        spent_usd: float = 0.0,
        on_demand_because: str | None = None,
        group: RunGroup | None = None,
    ) -> Attempt:
        now = self.deployment.now()
        job = first_job(
            request, prices=self.deployment.prices, spent_usd=spent_usd, on_demand_because=on_demand_because
        )
        if job.max_run_seconds < shortest_job_seconds(request):
            raise RequestRefusedError([_spent_already(request, spent_usd=spent_usd)])
        launch_id = secrets.token_hex(LAUNCH_ID_HEX_DIGITS // 2)
        job_request = self._job_request(request, job=job, run=run, attempt=number, launch_id=launch_id, group=group)
        queue = _place_of(request)
        if queue is not None:
            job_request = _in_queue(request, job_request, queue)
        return Attempt(
            run=run,
            attempt=number,
            fallback=job.position,
            job_name=job_name_for(run=run, attempt=number),
            place=Place(
                backend=request.backend,
                queue=queue,
                capacity=job.fallback.capacity,
                instance_type=job.fallback.instance_types[0],
                instance_count=request.instance_count,
            ),
            created_at=now,
            job_request=job_request,
        )

    def _job_request(
        self, request: JobRequest, *, job: NextJob, run: str, attempt: int, launch_id: str, group: RunGroup | None
    ) -> dict[str, Any]:
        if request.backend == "sagemaker":
            return build_training_job_request(
                request=request,
                job=job,
                platform=self.deployment.platform,
                run=run,
                attempt=attempt,
                launch_id=launch_id,
            )
        if self.deployment.fleet_platform is None:
            raise RequestRefusedError([no_fleets()])
        launch = fleet_launch(
            request=request,
            job=job,
            platform=self.deployment.fleet_platform,
            deployment=self.deployment.platform.deployment,
            run=run,
            attempt=attempt,
            launch_id=launch_id,
            checkpoint_uri=self.checkpoint_uri(request, run=run),
            output_prefix=output_prefix_for(request=request, run=run, platform=self.deployment.platform),
            group=group,
        )
        return job_request_of(launch, marks=marks_of(run=run, attempt=attempt, launch_id=launch_id))


def _in_queue(request: JobRequest, job_request: Mapping[str, Any], place: QueuePlace) -> dict[str, Any]:
    """Return the request as AWS Batch takes it.

    Raises:
        RequestRefusedError: It would not take it.
    """
    short = dict(job_request) if request.command is None else shortened(job_request)
    if not fits(short):
        raise RequestRefusedError([_too_long(place, short)])
    return short


def _too_long(place: QueuePlace, job_request: Mapping[str, Any]) -> Problem:
    """Return the problem that AWS Batch refuses the job's request, even without the parts in the training spec."""
    return Problem(
        field="queue",
        found=shown(place.queue),
        problem=f"takes requests of {MAX_PAYLOAD_BYTES:,} bytes at most (AWS Batch), and of "
        f"{MAX_SUBMISSION_BYTES:,} with tags; the largest parts of this job's have {sizes_of(job_request)}",
        fix="Shorten them: a file of the source may hold what they say.",
    )


def _place_of(request: JobRequest) -> QueuePlace | None:
    if request.queue is None or request.share is None:
        return None
    return QueuePlace(queue=request.queue, share=request.share, priority=request.priority or 0)


def _steered(on_demand_because: str | None, *, at: datetime) -> Steered | None:
    if on_demand_because is None:
        return None
    return Steered(choice="on-demand", reason=on_demand_because, decided_at=at)


def _steered_from_the_start(run: Run, attempt: Attempt) -> tuple[TimelineEntry, ...]:
    if run.steered is None:
        return ()
    text = f"On demand from the start: {run.steered.reason}"
    return (steered_entry(run=run.run, attempt=attempt.attempt, text=text, at=run.steered.decided_at),)


def _changed(run: Run, attempt: Attempt, document: Mapping[str, Any]) -> tuple[TimelineEntry, ...]:
    changes = changes_in_words(run.request, document)
    if not changes:
        return ()
    return (
        TimelineEntry(
            run=run.run,
            attempt=attempt.attempt,
            at=attempt.created_at,
            kind=TimelineKind.REQUEST_CHANGED,
            text=f"Goes on with changes in {changes}",
        ),
    )


def _spec_refused(spec: SpecObject, error: AwsRefusedError) -> Problem:
    """Return the problem that S3 does not take a training spec."""
    again = "then launch again."
    fix = f"Have an administrator correct that, {again}"
    if error.code.startswith("AccessDenied"):
        fix = (
            "The launcher's role needs s3:PutObject there, and kms:GenerateDataKey on the bucket's key. Have an "
            "administrator compare its policies, the bucket's and the key's with docs/roles.md, or deploy the app "
            f"again, {again}"
        )
    elif error.code.startswith("KMS."):
        fix = f"Have an administrator enable the bucket's KMS key, or cancel its deletion, {again}"
    elif error.code == "NoSuchBucket":
        fix = f"Have an administrator deploy the app again (cdk deploy --all), {again}"
    return Problem(
        field="(S3)",
        found=spec.uri,
        problem=f"is where the job's training spec belongs, and S3 refused it ({error.code}: {error.reason}). Nothing "
        "was launched, and nothing is recorded",
        fix=fix,
    )


def _spent_already(request: JobRequest, *, spent_usd: float) -> Problem:
    """Return the problem that the run has already spent its max_cost."""
    return Problem(
        field="max_cost",
        found=shown(request.max_cost),
        problem=f"is spent: the run has cost {spent_usd:.2f} USD",
        fix="Launch a new run with a new max_cost, and checkpoint_prefix to go on from this one's checkpoints.",
    )
