"""Launches runs. A run never has more than one live job, whatever is retried, lost or called twice (I1).

The order of the steps ensures this. The launcher first keeps the job's training spec in S3. If S3 refuses it, nothing
is recorded. The launcher then records the run in one conditional transaction, with its token and its checkpoint lock.
The record holds the exact CreateTrainingJob request under a deterministic name. Only then does the launcher create the
job. This covers the following cases.

- The same token comes again. The launcher finds the record, launches nothing and gives the same answer. For an hour
  this also holds for the same document with `run` and without a token (`acceptance`).
- Two calls come at once. One of them records the run, and both may create the job. SageMaker accepts only one of the
  two equal names.
- The answer of CreateTrainingJob is lost. SageMaker answers the retry that the name is taken. The launcher then
  describes the job, recognises it by its launch's id, and answers with it.
- One document asks for several runs. They are recorded in one transaction, all of them or none. Each is then completed
  alone.
- A launcher dies between record and create. The run stays in LAUNCHING. The next call with the token, or the
  controller, completes it (`LaunchCompletion`).
- A stop arrives halfway through a launch. The stop is recorded first. The function that creates the job afterwards sees
  it and stops the job.
- A run without a job ends only when no function can still be creating one. The function that wrote an attempt may
  create its job. Any other function first records that it begins to. So a refusal, or a stop, knows the other functions
  at work. It leaves the end to the controller until they are over.

A resume begins a new attempt of a run, and may change some fields of its request. The work and its place may change,
but not the run's identity. A run that failed by a bug in its script goes on from its last checkpoint with another
source. The changed request is judged as a whole, by the rules of a launch.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from spotkeep_jobs.backends.batch.service_job import (
    MAX_PAYLOAD_BYTES,
    MAX_SUBMISSION_BYTES,
    fits,
    shortened,
    sizes_of,
)
from spotkeep_jobs.backends.ec2.checks import Offer
from spotkeep_jobs.backends.ec2.launch import fleet_launch, job_request_of
from spotkeep_jobs.backends.sagemaker.training_job import (
    LAUNCH_ID_HEX_DIGITS,
    build_training_job_request,
    checkpoint_uri_for,
    job_name_for,
    marks_of,
    output_prefix_for,
    run_id_for,
    spec_of,
)
from spotkeep_jobs.document.capacity import NextJob, fallbacks_of, first_job, price_of, shortest_job_seconds
from spotkeep_jobs.document.command import SpecObject
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults, SpendingLimits
from spotkeep_jobs.document.fleet import no_fleets
from spotkeep_jobs.document.reading import outlined, shown
from spotkeep_jobs.document.request import JobRequest, validate
from spotkeep_jobs.document.spending import worst_case_usd
from spotkeep_jobs.errors import (
    AwsBusyError,
    AwsRefusedError,
    CheckpointPrefixTakenError,
    IdReservedError,
    Problem,
    RequestRefusedError,
    RunExistsError,
    RunsInFlightError,
)
from spotkeep_jobs.record.fields import Caller, with_changes
from spotkeep_jobs.record.ids import ASKED_BY_A_USER, Origin
from spotkeep_jobs.record.record import Attempt, Place, Plan, QueuePlace, Run, RunGroup, Steered, TimelineEntry
from spotkeep_jobs.record.run_store import NewRun, Opened
from spotkeep_jobs.record.states import EndReason, TimelineKind
from spotkeep_jobs.record.table_client import until_written
from spotkeep_jobs.runs.acceptance import (
    FILLED_IN,
    Acceptance,
    GroupMember,
    checkpoint_prefix_taken,
    id_is_reserved,
    is_repeated,
    left_out,
    members_of,
    refuse_other_document,
    run_exists,
    runs_in_flight,
)
from spotkeep_jobs.runs.ending import request_of
from spotkeep_jobs.runs.launch_completion import (
    REFUSED,
    LaunchCompletion,
    Launched,
    is_recorded,
    not_recorded,
    refused_by_its_backend,
    unfinished_without_an_answer,
)
from spotkeep_jobs.runs.rules import stays_near
from spotkeep_jobs.runs.steering import no_time_for_spot, steered_entry

if TYPE_CHECKING:
    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.settings import LauncherSettings

_NAMES_IT: Final = "is what the run, its jobs and its checkpoints are called by"
_WHOSE: Final = "says whose the run is, and with it who may act on it and where its files are"
_SEVERAL: Final = "is of a launch of several runs"
_GOES_ON: Final = "says where its checkpoints are, and a resumed run goes on from these"
_STAYS: Final[Mapping[str, str]] = {
    "name": _NAMES_IT,
    "run": _NAMES_IT,
    "token": _NAMES_IT,
    "owner": _WHOSE,
    "team": _WHOSE,
    "tags": _WHOSE,
    "backend": _GOES_ON,
    "checkpoints": _GOES_ON,
    "checkpoint_prefix": _GOES_ON,
    "volume": _GOES_ON,
    "runs": _SEVERAL,
    "on_demand_base": _SEVERAL,
}
_TYPES: Final = ("instance_type", "instance_types")


def fields_that_stay(changes: Mapping[str, Any]) -> list[Problem]:
    """Return the fields among the changes that a resume may not change.

    Args:
        changes: New values by field.
    """
    return [
        Problem(
            field=field,
            found=outlined(changes[field]),
            problem=f"is not changed by a resume: it {reason}",
            fix="Remove it; or launch a new run, with checkpoint_prefix to go on from this one's checkpoints.",
        )
        for field, reason in _STAYS.items()
        if field in changes
    ]


def changed_document(
    recorded: Mapping[str, Any], changes: Mapping[str, Any], *, defaults: DeploymentDefaults
) -> dict[str, Any]:
    """Return a run's request with its changes, to be judged.

    Some values of the deployment follow from other fields and are filled in again. For example, the image follows from
    the instance types, and the longest wait follows from the longest run.

    Args:
        recorded: The request, as the run item has it.
        changes: New values by field, with None to remove a value or to let the deployment fill it in.
        defaults: The values that the deployment fills in.
    """
    document = dict(recorded)
    if changes and not any(field in changes for field in _STAYS):
        for field in sorted(FILLED_IN - changes.keys()):
            rest = {name: value for name, value in document.items() if name != field}
            filled_in = validate(rest, defaults=defaults).request
            if filled_in is not None and filled_in.as_document().get(field) == recorded.get(field):
                document = rest
    if any(field in changes for field in _TYPES):
        document = {name: value for name, value in document.items() if name not in _TYPES}
    return {name: value for name, value in {**document, **changes}.items() if value is not None}


def changes_in_words(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return the names of the changed fields, without their values. A timeline must not show an environment.

    Args:
        before: The request as it was recorded.
        after: The request as it is recorded now.
    """
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return ", ".join(f"source ({_version(after.get(name))})" if name == "source" else name for name in changed)


def _version(source: object) -> str:
    """Return the beginning of the hash that pins a source."""
    if not isinstance(source, Mapping):
        return "none"
    return str(source.get("sha256") or source.get("commit"))[:12]


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
        if _leaves_money_for_its_end_alone(run, request):
            raise RequestRefusedError([_spent_already(request, spent_usd=spent_usd)])
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
            request,
            prices=self.deployment.prices,
            spent_usd=spent_usd,
            on_demand_because=on_demand_because,
            begun_at=now,
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
                instance_count=request.hosts,
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
                platform=self.deployment.platform_for(request),
                run=run,
                attempt=attempt,
                launch_id=launch_id,
            )
        platform = self.deployment.fleet_platform_for(request)
        if platform is None:
            raise RequestRefusedError([no_fleets()])
        launch = fleet_launch(
            request=request,
            job=job,
            platform=platform,
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
            "administrator compare its policies, the bucket's and the key's with `spotkeep help roles`, or deploy the "
            f"app again, {again}"
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


def _leaves_money_for_its_end_alone(run: Run, request: JobRequest) -> bool:
    """Return True if max_cost ended a run on a fleet, and the changed request has neither more money nor other types.

    The rest of the money pays for the end of a fleet, and for its storage meanwhile.
    """
    if request.backend != "ec2" or request.max_cost is None or run.end_reason is not EndReason.MAX_COST:
        return False
    before = request_of(run)
    return before is not None and request.types == before.types and request.max_cost <= (before.max_cost or 0.0)


def _spent_already(request: JobRequest, *, spent_usd: float) -> Problem:
    """Return the problem that the run has already spent its max_cost."""
    return Problem(
        field="max_cost",
        found=shown(request.max_cost),
        problem=f"is spent: the run has cost {spent_usd:.2f} USD",
        fix="Give more to go on: spotkeep resume RUN --set max_cost=... Or launch a new run with a new max_cost, and "
        "checkpoint_prefix to go on from this one's checkpoints.",
    )


@dataclass(frozen=True, kw_only=True)
class ValidDocument:
    """A document that would be launched.

    Attributes:
        request: The document's request, with every default filled in.
        warnings: Settings that are allowed but probably not meant.
        offers: The present price of spot capacity by type and zone, for a run on EC2.
        usd_per_hour: The on-demand price of one instance of the most expensive possible type, in US dollars per hour,
            if known.
        worst_case_usd: The most that the run can cost, in US dollars of instance time.
        limits: The deployment's limits on the cost of a run.
    """

    request: JobRequest
    warnings: tuple[str, ...]
    offers: Sequence[Offer]
    usd_per_hour: float | None
    worst_case_usd: float
    limits: SpendingLimits


@dataclass(frozen=True)
class Launcher:
    """Launches runs."""

    deployment: Deployment[LauncherSettings]

    def launch(
        self,
        document: object,
        *,
        default_token: str,
        plan: Plan | None = None,
        caller: Caller | None = None,
        origin: Origin = ASKED_BY_A_USER,
    ) -> Launched:
        """Launch the run a document asks for, or answer with the one its token launched before.

        Args:
            document: A job document, of any type.
            default_token: The token of a document that has none.
            plan: The plan of the run, which steers a run with a deadline.
            caller: The caller, if known.
            origin: The sweep or schedule that causes the launch and reserves its own ids, or a user's own request.

        Raises:
            RequestRefusedError: Nothing was launched. The error carries every problem.
            LaunchUnfinishedError: AWS gave no certain answer. It says if the run is recorded. Call again with the same
                token.
        """
        acceptance, deployment = Acceptance(self.deployment), self.deployment
        validation = acceptance.judged(document, caller=caller, default_token=default_token)
        request = acceptance.accepted(validation, default_token=default_token, caller=caller, origin=origin)
        checked = acceptance.check(request)
        warnings = (*validation.warnings, *checked.warnings)
        by_its_name = request.run is not None and request.token is None
        token = request.token or default_token
        run_id = request.run or run_id_for(name=request.name, token=token)
        request = with_changes(request, run=run_id, token=token)
        members = members_of(request)
        if checked.problems and not acceptance.was_launched(members[0].request):
            raise RequestRefusedError(checked.problems, warnings=warnings)
        attempts, launching = NewAttempts(deployment), f"launching run {run_id!r}"
        with unfinished_without_an_answer(launching, then=not_recorded(token)):
            new = [attempts.of_new_run(member, plan=plan, caller=caller, origin=origin) for member in members]
            self._keep_spec(members[0].request)
            opened = self._open(request, new, origin=origin, warnings=warnings)
        replayed = opened[0].replayed
        if replayed:
            if by_its_name and not is_repeated(launched_at=opened[0].run.created_at, now=deployment.now()):
                raise RequestRefusedError([run_exists(opened[0].run.run)], warnings=warnings)
            for each, member in zip(opened, members, strict=False):
                refuse_other_document(each.run, member.request, left_out=left_out(document), runs=len(members))
        completion, then = LaunchCompletion(deployment), is_recorded("run", token=token, completes="creates its job")
        with unfinished_without_an_answer(launching, then=then):
            first, *others = [
                completion.complete(each.run.run, read=(each.run, each.attempt), wrote_attempt=not replayed)
                for each in opened
            ]
        refused = [run for run in (first, *others) if run.end_reason in REFUSED]
        if len(refused) == len(members):
            raise RequestRefusedError([refused_by_its_backend(run) for run in refused])
        some_refused = [f"{run.run} was refused by EC2, the others were not: {run.failure_reason}" for run in refused]
        return Launched(run=first, others=tuple(others), replayed=replayed, warnings=(*warnings, *some_refused))

    def validate(
        self, document: object, *, caller: Caller | None = None, origin: Origin = ASKED_BY_A_USER
    ) -> ValidDocument:
        """Judge a document as `launch` would, without launching.

        Args:
            document: A job document, of any type.
            caller: The caller, if known.
            origin: The sweep or schedule that would cause the launch, or a user's own request.

        Raises:
            RequestRefusedError: The launch would be refused. The error carries every problem.
        """
        acceptance, policy = Acceptance(self.deployment), self.deployment.policy
        validation = acceptance.judged(document, caller=caller)
        request = acceptance.accepted(validation, caller=caller, origin=origin)
        checked = acceptance.check(request)
        warnings = (*validation.warnings, *checked.warnings)
        taken, too_long = acceptance.taken(request, origin=origin), NewAttempts(self.deployment).too_long(request)
        if problems := [*checked.problems, *taken, *too_long]:
            raise RequestRefusedError(problems, warnings=warnings)
        types = [each for fallback in fallbacks_of(request) for each in fallback.instance_types]
        return ValidDocument(
            request=request,
            warnings=warnings,
            offers=checked.offers,
            usd_per_hour=price_of(types, prices=policy.prices),
            worst_case_usd=worst_case_usd(request, prices=policy.prices, now=self.deployment.now()),
            limits=policy.limits,
        )

    def _keep_spec(self, first: JobRequest) -> None:
        """Keep the training spec in S3, so that a job with a recorded request finds its spec.

        Args:
            first: The request of the first run. Several runs as one are EC2's alone, which has its specs elsewhere.

        Raises:
            RequestRefusedError: S3 refuses the spec.
            AwsBusyError: S3 could not answer.
        """
        try:
            NewAttempts(self.deployment).keep_spec(first, run=first.run or "")
        except (RequestRefusedError, AwsBusyError):
            # An earlier call with the token kept the spec before it recorded the run.
            if not Acceptance(self.deployment).was_launched(first):
                raise

    def _open(
        self, request: JobRequest, new: Sequence[NewRun], *, origin: Origin, warnings: tuple[str, ...]
    ) -> tuple[Opened, ...]:
        limit = self.deployment.policy.limits.runs_in_flight_limit
        try:
            return until_written(
                lambda: self.deployment.table.runs.open(new, in_flight_limit=limit), pause=self.deployment.pause
            )
        except RunsInFlightError as error:
            problem = runs_in_flight(error.in_flight, limit=error.limit, asked=len(new))
            raise RequestRefusedError([problem], warnings=warnings) from None
        except RunExistsError as error:
            problems = Acceptance(self.deployment).taken(request, origin=origin) or [run_exists(error.run)]
            raise RequestRefusedError(problems, warnings=warnings) from None
        except IdReservedError as error:
            problems = Acceptance(self.deployment).taken(request, origin=origin) or [id_is_reserved(error.name)]
            raise RequestRefusedError(problems, warnings=warnings) from None
        except CheckpointPrefixTakenError as error:
            problem = checkpoint_prefix_taken(error.checkpoint_uri, error.owned_by)
            raise RequestRefusedError([problem], warnings=warnings) from None
