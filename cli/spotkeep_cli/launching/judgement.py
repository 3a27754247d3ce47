"""Asks whether a job would be launched: the deployment's launcher where there is one, the same rules here where not."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from spotkeep_cli.errors import NoConnectionError
from spotkeep_cli.launching.answers import problems_from_answer, read_answer, refused
from spotkeep_cli.launching.kept_pools import matches_from_answer
from spotkeep_cli.launching.plain_values import plain
from spotkeep_cli.launching.preparation import PreparedJob, prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_cli.launching.job_file import JobDocument
    from spotkeep_cli.seams import Invocation
    from spotkeep_jobs.errors import Problem
    from spotkeep_jobs.pools.matching import PoolMatch

_SOME_IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/default:latest"
_SOME_INSTANCE_TYPE = "ml.m5.xlarge"
_SOME_EC2_TYPE = "m5.xlarge"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What would become of a job.

    Attributes:
        request: The request with every default filled in; empty if it is refused or the launcher did not say.
        problems: Why it would be refused.
        warnings: What is allowed and probably not meant.
        usd_per_hour: The on-demand price of one instance, where the deployment knows it.
        pools: The warm pools there are, held against the job; those it would take come first.
        worst_case_usd: What the run can come to in instance time; None without a deployment.
        limits: What a run may spend in the deployment, by the settings' names; empty without one.
        sweep: What a sweep asks for, with its defaults; `request` is then its first trial's. None for a run.
        most_trials: How many trials a sweep can have.
        schedule: When a schedule fires; `request` is then what it launches first.
        spot_offers: What spot capacity costs now, for a run on EC2: by type and zone, the cheapest first.
    """

    request: Mapping[str, Any]
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    usd_per_hour: float | None = None
    worst_case_usd: float | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)
    pools: tuple[PoolMatch, ...] = ()
    spot_offers: tuple[Mapping[str, Any], ...] = ()
    sweep: Mapping[str, Any] | None = None
    most_trials: int | None = None
    schedule: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class JudgedJob:
    """A job file that was judged as well as that can be done from here.

    Attributes:
        prepared: The job.
        judgement: What would become of it.
        deployment: Whose launcher judged it; None where it was judged here.
        unreachable: Why no launcher judged it, in words; empty where one did.
    """

    prepared: PreparedJob
    judgement: Judgement
    deployment: DeploymentClient | None = None
    unreachable: str = ""


def judge(document: JobDocument, *, invocation: Invocation) -> JudgedJob:
    """Ask the deployment's launcher; where it cannot be reached, apply its rules here."""
    new_token = invocation.seams.new_token
    try:
        deployment = invocation.deployment()
        prepared = prepare(document, deployment=deployment, new_token=new_token)
        judgement = judge_by_launcher(deployment, prepared)
    except NoConnectionError as error:
        prepared = prepare(document, deployment=None, new_token=new_token)
        return JudgedJob(prepared=prepared, judgement=judge_here(prepared), unreachable=error.message)
    return JudgedJob(prepared=prepared, judgement=judgement, deployment=deployment)


def judge_or_refuse(
    document: JobDocument, *, deployment: DeploymentClient, new_token: Callable[[], str], what: str
) -> tuple[PreparedJob, Judgement]:
    """Prepare a job file and ask the deployment's launcher.

    Args:
        document: The job file.
        deployment: Where it would run.
        new_token: Makes an idempotency token, for a job file without one.
        what: What does not happen if it is refused: `nothing was launched`.

    Raises:
        RefusedError: It would be refused; carries every problem, with its line.
    """
    prepared = prepare(document, deployment=deployment, new_token=new_token)
    judgement = judge_by_launcher(deployment, prepared)
    if judgement.problems:
        raise refused(list(judgement.problems), what=what, document=document)
    return prepared, judgement


def judge_by_launcher(deployment: DeploymentClient, prepared: PreparedJob) -> Judgement:
    """Ask the deployment's launcher, which knows its limits and the other runs. Launches nothing."""
    payload, problems = plain(prepared.payload)
    if problems:
        named = {problem.field for problem in problems}
        others = [problem for problem in judge_here(prepared).problems if problem.field not in named]
        return Judgement(request={}, problems=(*problems, *others))
    answer = deployment.invoke_launcher({"action": "validate", **payload})
    if answer.get("ok") is False:
        return Judgement(
            request={},
            problems=(*prepared.problems, *problems_from_answer(answer.get("problems") or [])),
            warnings=(*prepared.warnings, *problems_from_answer(answer.get("warnings") or [])),
        )
    answer = read_answer(answer, what="the job was not judged", document=prepared.document)
    price = answer.get("usd_per_hour")
    return Judgement(
        request=answer.get("request") or judge_here(prepared).request,
        problems=prepared.problems,
        warnings=(*prepared.warnings, *problems_from_answer(answer.get("warnings") or [])),
        usd_per_hour=float(price) if isinstance(price, int | float) else None,
        worst_case_usd=answer.get("worst_case_usd"),
        limits=answer.get("limits") or {},
        pools=matches_from_answer(answer),
        spot_offers=tuple(answer.get("spot_offers") or ()),
        sweep=answer.get("sweep"),
        most_trials=answer.get("most_trials"),
        schedule=answer.get("schedule"),
    )


def judge_here(prepared: PreparedJob) -> Judgement:
    """Apply the launcher's rules without a deployment; what only a deployment knows is taken for granted."""
    from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
    from spotkeep_jobs.document.validation import validate
    from spotkeep_jobs.schedules.document import is_scheduled
    from spotkeep_jobs.sweeps.document import is_sweep

    if is_scheduled(prepared.payload):
        return _judge_schedule_here(prepared)
    if is_sweep(prepared.payload):
        return _judge_sweep_here(prepared)
    defaults = DeploymentDefaults(
        image=_SOME_IMAGE, instance_type=_SOME_INSTANCE_TYPE, fleet_instance_types=(_SOME_EC2_TYPE,)
    )
    validation = validate(prepared.payload, defaults=defaults)
    request = validation.request.as_document() if validation.request is not None else {}
    if request.get("image") == _SOME_IMAGE:
        del request["image"]  # It stands for the deployment's, which is not known here.
    return Judgement(
        request=request,
        problems=(*prepared.problems, *validation.problems),
        warnings=(*prepared.warnings, *problems_from_answer(validation.warnings)),
    )


def _judge_schedule_here(prepared: PreparedJob) -> Judgement:
    from spotkeep_jobs.schedules.document import read_schedule
    from spotkeep_jobs.schedules.expression import expression_warnings

    request, problems = read_schedule(prepared.payload, now=datetime.now(UTC))
    warnings = [] if request is None else problems_from_answer([*expression_warnings(request.expression)])
    launched = {name: value for name, value in prepared.payload.items() if name != "schedule"}
    judgement = judge_here(replace(prepared, payload=launched))
    return replace(
        judgement,
        problems=(*problems, *judgement.problems),
        warnings=(*warnings, *judgement.warnings),
        schedule=None if request is None else request.model_dump(mode="json"),
    )


def _judge_sweep_here(prepared: PreparedJob) -> Judgement:
    """Judge the first trial as the job that it is, or the template where the sweep is wrong."""
    from spotkeep_jobs.sweeps.document import read_sweep
    from spotkeep_jobs.sweeps.first_trials import first_trials
    from spotkeep_jobs.sweeps.trial_documents import placeholder_problems

    payload = prepared.payload
    sweep, problems = read_sweep(payload, tpe=True)
    if sweep is None or problems:
        template = {name: value for name, value in payload.items() if name != "sweep"}
        judgement = judge_here(replace(prepared, payload=template))
        return replace(judgement, request={}, problems=(*problems, *judgement.problems))
    first = first_trials(payload, sweep, token=str(payload["token"]), owner=None)[0]
    judgement = judge_here(replace(prepared, payload=dict(first.document)))
    return replace(
        judgement,
        problems=(*placeholder_problems(payload, first.parameters), *judgement.problems),
        sweep=sweep.model_dump(mode="json", exclude_none=True),
        most_trials=sweep.most_trials,
    )
