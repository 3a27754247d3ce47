"""The judgement of a document, which is a job, a sweep, or a schedule of either. Pure.

`judge` answers by a deployment's facts, or without a deployment. The launcher adds the problems that only AWS and the
run table can know. These are taken ids, prefixes of other runs, volumes, and offers of EC2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
from spotkeep_jobs.document.request import JobRequest, kind_of, validate
from spotkeep_jobs.errors import Problem
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.schedules.document import ScheduleRequest, launched_by_a_schedule, read_schedule
from spotkeep_jobs.schedules.expression import expression_warnings
from spotkeep_jobs.sweeps.budget import parallel_problems
from spotkeep_jobs.sweeps.document import SweepRequest, read_sweep, sweep_warnings
from spotkeep_jobs.sweeps.trial_documents import first_trials, judged_trials, placeholder_problems

_SOME_IMAGE: Final = "123456789012.dkr.ecr.us-east-1.amazonaws.com/default:latest"
_SOME_DEPLOYMENT: Final = DeploymentDefaults(
    image=_SOME_IMAGE,
    instance_type="ml.m5.xlarge",
    fleet_instance_types=("m5.xlarge",),
    prices_are_known=False,
)
"""Stands for a deployment where there is none. It has defaults and no bounds."""


@dataclass(frozen=True, kw_only=True)
class JudgedDocument:
    """The judgement of a document.

    Attributes:
        request: The job's request with every default filled in, a sweep's first trial's, or None where the document is
            refused.
        problems: The reasons for a refusal, empty where the document is accepted.
        warnings: Probable mistakes, in sentences.
        sweep: The sweep, or None for a job and for a refused sweep.
        schedule: The schedule, or None for a job or a sweep, and where the schedule cannot be read.
    """

    request: JobRequest | None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()
    sweep: SweepRequest | None = None
    schedule: ScheduleRequest | None = None


def judge(
    payload: Any,
    deployment: DeploymentDefaults | None,
    *,
    now: datetime,
    token: str = "",
    owner: str | None = None,
    tpe: bool = True,
) -> JudgedDocument:
    """Judge a document as a whole, and return all of its problems at once.

    Args:
        payload: The document, of any type.
        deployment: The facts of the deployment, or None where there is no deployment.
        now: The time of the launch.
        token: The token of a document without one, from which ids follow.
        owner: The owner of a sweep's trials, where that is known.
        tpe: True when the deployment has the function that tpe searches with.
    """
    match kind_of(payload):
        case "schedule":
            return _judge_schedule(payload, deployment, now=now, token=token, owner=owner, tpe=tpe)
        case "sweep":
            return _judge_sweep(payload, deployment, now=now, token=token, owner=owner, tpe=tpe)
        case "job":
            return _judge_job(payload, deployment, now=now)


def _judge_job(payload: object, deployment: DeploymentDefaults | None, *, now: datetime) -> JudgedDocument:
    validation = validate(payload, defaults=deployment or _SOME_DEPLOYMENT, now=now)
    return JudgedDocument(
        request=_of_the_document(validation.request), problems=validation.problems, warnings=validation.warnings
    )


def _of_the_document(request: JobRequest | None) -> JobRequest | None:
    """Return a request without the image that stands for a deployment's."""
    if request is None or request.image != _SOME_IMAGE:
        return request
    return with_changes(request, image=None)


def _judge_schedule(
    document: Mapping[str, Any], deployment: DeploymentDefaults | None, *, now: datetime, **launch: Any
) -> JudgedDocument:
    schedule, problems = read_schedule(document, now=now)
    warnings = () if schedule is None else tuple(expression_warnings(schedule.expression))
    launched = judge(launched_by_a_schedule(document), deployment, now=now, **launch)
    return replace(
        launched,
        problems=(*problems, *launched.problems),
        warnings=(*warnings, *launched.warnings),
        schedule=schedule,
    )


def _judge_sweep(
    document: Mapping[str, Any],
    deployment: DeploymentDefaults | None,
    *,
    now: datetime,
    token: str,
    owner: str | None,
    tpe: bool,
) -> JudgedDocument:
    """Judge the documents of the first trials, or the template of all where the sweep is wrong."""
    sweep, problems = read_sweep(document, tpe=tpe)
    if sweep is None or problems:
        template = {name: value for name, value in document.items() if name != "sweep"}
        judged = _judge_job(template, deployment, now=now)
        return replace(judged, request=None, problems=(*problems, *judged.problems))
    facts = deployment or _SOME_DEPLOYMENT
    trials = first_trials(document, sweep, token=str(document.get("token") or token), owner=owner)
    judged_as = judged_trials(trials, judge=lambda each: validate(each, defaults=facts, now=now))
    problems = [*placeholder_problems(document, trials[0].parameters), *judged_as.problems]
    max_cost = document.get("max_cost")
    if max_cost is not None and not judged_as.problems and facts.prices_are_known:
        parallel = min(sweep.parallel, sweep.most_trials)
        problems += parallel_problems(
            limit=float(max_cost), spent=0.0, parallel=parallel, requests=judged_as.requests, prices=facts.prices
        )
    limit = None if problems or max_cost is None else float(max_cost)
    of_the_sweep = sweep_warnings(sweep, trials=judged_as.requests, max_cost=limit, prices=facts.prices)
    return JudgedDocument(
        request=None if problems else _of_the_document(judged_as.requests[0]),
        problems=tuple(problems),
        warnings=tuple(dict.fromkeys((*judged_as.warnings, *of_the_sweep))),
        sweep=sweep,
    )
