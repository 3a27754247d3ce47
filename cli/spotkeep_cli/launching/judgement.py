"""Asks for the judgement on a job.

The deployment's launcher judges it. Without a deployment, the same rules judge it on this machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from spotkeep_cli.errors import NoConnectionError
from spotkeep_cli.launching.answers import problems_from_answer, read_answer, refused
from spotkeep_cli.launching.job_checks import missing_scripts
from spotkeep_cli.launching.json_values import plain
from spotkeep_cli.launching.preparation import PreparedJob, prepare
from spotkeep_jobs.pools.matching import PoolMatch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_cli.launching.job_file import JobDocument
    from spotkeep_cli.seams import Invocation
    from spotkeep_jobs.errors import Problem
    from spotkeep_jobs.record.record import Run

LIKE_KEEP_ALIVE_SECONDS = 1800
"""Seconds that `--like` keeps the next pool, where neither the job file nor the other run gives a time."""

_ASKED_FOR = ("instance_count", "volume_size_gb", "team")


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The judgement on a job before its launch.

    Attributes:
        request: The request with every default filled in, or empty if the job is refused or the launcher gave none.
        problems: The reasons of a refusal.
        warnings: Settings that are allowed and probably not meant.
        usd_per_hour: The on-demand price of one instance in USD an hour, where the deployment knows it.
        pools: The warm pools of the deployment, compared with the job. Those it would take come first.
        worst_case_usd: The highest cost of the run in instance time, in USD. None without a deployment.
        limits: Spending limits of a run in the deployment, by the settings' names. Empty without a deployment.
        sweep: The sweep with its defaults. `request` is then its first trial's. None for a run.
        most_trials: The largest number of trials of a sweep.
        schedule: The times of a schedule. `request` is then its first launch.
        spot_offers: The present price of spot capacity for a run on EC2, by type and zone, the cheapest first.
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
    """A job file that was judged as far as possible from here.

    Attributes:
        prepared: The job.
        judgement: The judgement on the job.
        deployment: The deployment of the launcher that judged it. None where it was judged here.
        unreachable: The reason, in words, that no launcher judged it. Empty where one did.
    """

    prepared: PreparedJob
    judgement: Judgement
    deployment: DeploymentClient | None = None
    unreachable: str = ""


def judge(document: JobDocument, *, invocation: Invocation) -> JudgedJob:
    """Ask the deployment's launcher. If it cannot be reached, apply its rules here."""
    new_token, now = invocation.seams.new_token, invocation.seams.now()
    try:
        deployment = invocation.deployment()
        prepared = prepare(document, deployment=deployment, new_token=new_token)
        judgement = judge_by_launcher(deployment, prepared, now=now)
    except NoConnectionError as error:
        prepared = prepare(document, deployment=None, new_token=new_token)
        return JudgedJob(prepared=prepared, judgement=judge_here(prepared, now=now), unreachable=error.message)
    return JudgedJob(prepared=prepared, judgement=judgement, deployment=deployment)


def judge_or_refuse(
    document: JobDocument, *, deployment: DeploymentClient, new_token: Callable[[], str], what: str
) -> tuple[PreparedJob, Judgement]:
    """Prepare a job file and ask the deployment's launcher.

    Args:
        document: The job file.
        deployment: The deployment that it would run in.
        new_token: Makes an idempotency token, for a job file without one.
        what: The effect of a refusal in words, for example `nothing was launched`.

    Raises:
        RefusedError: The launcher would refuse it. The error carries every problem, with its line.
    """
    prepared = prepare(document, deployment=deployment, new_token=new_token)
    judgement = judge_by_launcher(deployment, prepared, now=datetime.now(UTC))
    if judgement.problems:
        raise refused(list(judgement.problems), what=what, document=document)
    return prepared, judgement


def judge_by_launcher(deployment: DeploymentClient, prepared: PreparedJob, *, now: datetime) -> Judgement:
    """Ask the deployment's launcher. It knows its limits and the other runs. Launches nothing."""
    payload, problems = plain(prepared.payload)
    if problems:
        named = {problem.field for problem in problems}
        others = [problem for problem in judge_here(prepared, now=now).problems if problem.field not in named]
        return Judgement(request={}, problems=(*problems, *others))
    answer = deployment.invoke_launcher({"action": "validate", **payload})
    if answer.get("ok") is False:
        return Judgement(
            request={},
            problems=(*_found_here(prepared), *problems_from_answer(answer.get("problems") or [])),
            warnings=(*prepared.warnings, *problems_from_answer(answer.get("warnings") or [])),
        )
    answer = read_answer(answer, what="the job was not judged", document=prepared.document)
    price = answer.get("usd_per_hour")
    return Judgement(
        request=answer.get("request") or judge_here(prepared, now=now).request,
        problems=_found_here(prepared),
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


def judge_here(prepared: PreparedJob, *, now: datetime) -> Judgement:
    """Apply the launcher's rules without a deployment. A fact that only a deployment knows is taken for granted.

    Args:
        prepared: The job.
        now: The time, aware.
    """
    from spotkeep_jobs.judge import judge as judge_document

    judged = judge_document(prepared.payload, None, now=now)
    return Judgement(
        request={} if judged.request is None else judged.request.as_document(),
        problems=(*_found_here(prepared), *judged.problems),
        warnings=(*prepared.warnings, *problems_from_answer(judged.warnings)),
        sweep=None if judged.sweep is None else judged.sweep.model_dump(mode="json", exclude_none=True),
        most_trials=None if judged.sweep is None else judged.sweep.most_trials,
        schedule=None if judged.schedule is None else judged.schedule.model_dump(mode="json"),
    )


def _found_here(prepared: PreparedJob) -> tuple[Problem, ...]:
    """Return the problems that only this machine can see."""
    return (*prepared.problems, *missing_scripts(prepared))


def matches_from_answer(answer: Mapping[str, Any]) -> tuple[PoolMatch, ...]:
    """Return the pools of an answer to `validate`, each held against the job."""
    return TypeAdapter(tuple[PoolMatch, ...]).validate_python(answer.get("pools") or ())


def match_document(match: PoolMatch) -> dict[str, Any]:
    """Return a match for programs."""
    return {
        "fits": match.fits,
        "differences": [difference.as_document() for difference in match.differences],
        "pool": match.pool.model_dump(mode="json"),
    }


def overrides_like(run: Run, document: JobDocument) -> dict[str, Any]:
    """Return the fields that a job takes over from a run, to fit the warm pool that the run left.

    They are the fields that SageMaker compares and a job file can set. The role, the network and the key are the
    deployment's.

    Args:
        run: The run that left the pool.
        document: The job file. It keeps all its other fields, including `keep_alive`.

    Returns:
        Fields and their values. None takes a field away.
    """
    asked = run.request
    fields: dict[str, Any] = {"capacity": "on-demand", "instance_type": run.place.instance_type, "instance_types": None}
    fields |= {name: asked.get(name) for name in _ASKED_FOR}
    fields |= dict.fromkeys(("ladder", "longest_wait", "spot_only", "max_wait"))
    if not document.fields.get("keep_alive"):
        fields["keep_alive"] = asked.get("keep_alive") or LIKE_KEEP_ALIVE_SECONDS
    return fields
