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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spotkeep_jobs.backends.ec2.checks import Offer
from spotkeep_jobs.backends.sagemaker.request import run_id_for
from spotkeep_jobs.document.capacity import fallbacks_of, price_of
from spotkeep_jobs.document.deployment_facts import SpendingLimits
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.spending import worst_case_usd
from spotkeep_jobs.errors import AwsBusyError, RequestRefusedError
from spotkeep_jobs.record.caller import Caller
from spotkeep_jobs.record.ids import ASKED_BY_A_USER, Origin
from spotkeep_jobs.record.record import Plan
from spotkeep_jobs.record.run_store import NewRun, Opened
from spotkeep_jobs.record.run_table_errors import (
    CheckpointPrefixTakenError,
    IdReservedError,
    RunExistsError,
    RunsInFlightError,
)
from spotkeep_jobs.record.table_client import until_written
from spotkeep_jobs.runs.acceptance import (
    Acceptance,
    checkpoint_prefix_taken,
    id_is_reserved,
    is_repeated,
    left_out,
    members_of,
    refuse_other_document,
    run_exists,
    runs_in_flight,
)
from spotkeep_jobs.runs.launch_completion import (
    REFUSED,
    LaunchCompletion,
    Launched,
    is_recorded,
    not_recorded,
    refused_by_its_backend,
    unfinished_without_an_answer,
)
from spotkeep_jobs.runs.new_attempts import NewAttempts
from spotkeep_jobs.with_changes import with_changes

if TYPE_CHECKING:
    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.settings import LauncherSettings


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
        new = [attempts.of_new_run(member, plan=plan, caller=caller, origin=origin) for member in members]
        with unfinished_without_an_answer(launching, then=not_recorded(token)):
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
