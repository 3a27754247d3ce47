"""Launches what a document asks for, or judges it only: a job, a sweep, or a schedule of either."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from launcher import answers
from launcher.context import ActionContext, count, logger
from launcher.payload import DocumentAction, SweepAdvance
from launcher.plan import plan_of
from spotkeep_jobs.document.request import JobRequest, kind_of
from spotkeep_jobs.errors import AwsCallError, Problem, RequestRefusedError
from spotkeep_jobs.pools.matching import PoolMatch
from spotkeep_jobs.record.ids import Origin
from spotkeep_jobs.record.record import Plan
from spotkeep_jobs.record.run_table_errors import RunChangedError
from spotkeep_jobs.runs.repeated_calls import MAY_LAUNCH_AGAIN, launches_again, token_of_call


def answer_document(asked: DocumentAction, context: ActionContext) -> answers.Answer:
    """Launch or judge a document.

    Args:
        asked: The document, and which of the two.
        context: What it stands on.

    Raises:
        RequestRefusedError: Nothing was done; it carries every problem.
        LaunchUnfinishedError: AWS did not answer for certain.
    """
    token = token_of_call(asked.document, request_id=context.request_id, caller=context.caller)
    answer = _answer(asked, replace(context, request_id=token))
    if asked.action == "launch" and launches_again(asked.document):
        answer["warnings"] = [*answer["warnings"], MAY_LAUNCH_AGAIN]
    return answer


def _answer(asked: DocumentAction, context: ActionContext) -> answers.Answer:
    kind = kind_of(asked.document)
    if kind == "schedule":
        return _schedule(asked, context)
    judged_only = asked.action == "validate"
    if kind == "sweep":
        return (_judge_sweep if judged_only else _launch_sweep)(asked.document, context)
    document, plan, problems = plan_of(asked.document)
    if problems:
        raise _refused_with(problems, document, context)
    return _judge(document, context) if judged_only else _launch(document, plan, context)


def _launch(document: object, plan: Plan | None, context: ActionContext) -> answers.Answer:
    launch = context.parts.launcher.launch(
        document, default_token=context.request_id, plan=plan, caller=context.caller, origin=context.origin
    )
    for run in launch.runs:
        logger.append_keys(run=run.run, attempt=run.attempt)
        logger.info("replayed" if launch.replayed else "launched", job_arn=run.job_arn, owner=run.owner)
        count("LaunchReplayed" if launch.replayed else "LaunchAccepted")
    return answers.launched(launch)


def _judge(document: object, context: ActionContext) -> answers.Answer:
    valid = context.parts.launcher.validate(document, caller=context.caller, origin=context.origin)
    count("DocumentValidated")
    without_pools = valid.request.backend == "ec2" or valid.request.queue is not None
    matches, troubles = ((), ()) if without_pools else _matches(valid.request, context)
    return answers.valid(valid, troubles, matches=matches, now=context.parts.now())


def _matches(request: JobRequest, context: ActionContext) -> tuple[Sequence[PoolMatch], tuple[str, ...]]:
    """Return the pools held against a job; a judgement of the job does not fail because they could not be read."""
    try:
        return context.parts.pools.match(request), ()
    except (AwsCallError, RunChangedError, ClientError, BotoCoreError) as error:
        logger.warning("warm pools not read", problem=str(error))
        return (), ("the warm pools could not be read; the job may take one all the same",)


def _refused_with(problems: Sequence[Problem], document: object, context: ActionContext) -> RequestRefusedError:
    """Return a plan that cannot be used, and all that is wrong with the document beside it (I7)."""
    try:
        valid = context.parts.launcher.validate(document, caller=context.caller, origin=context.origin)
    except RequestRefusedError as error:
        return RequestRefusedError([*error.problems, *problems], warnings=error.warnings)
    return RequestRefusedError(problems, warnings=valid.warnings)


def _judge_sweep(document: Any, context: ActionContext) -> answers.Answer:
    valid = context.parts.sweeps.launch.validate(
        document, caller=context.caller, default_token=context.request_id, origin=context.origin
    )
    count("DocumentValidated")
    return answers.judged_sweep(valid, now=context.parts.now())


def _launch_sweep(document: Any, context: ActionContext) -> answers.Answer:
    launch = context.parts.sweeps.launch.launch(
        document, default_token=context.request_id, caller=context.caller, origin=context.origin
    )
    sweep = launch.advanced.sweep
    logger.append_keys(sweep=sweep.sweep)
    logger.info("replayed" if launch.replayed else "launched", owner=sweep.owner)
    count("LaunchReplayed" if launch.replayed else "LaunchAccepted")
    if not sweep.state.ended:
        context.go_on(SweepAdvance(sweep=sweep.sweep))
    return answers.launched_sweep(launch)


def _schedule(asked: DocumentAction, context: ActionContext) -> answers.Answer:
    """Judge what a schedule would launch first, and record the schedule where that is asked for."""
    parts = context.parts
    read = parts.schedules.read(asked.document, default_token=context.request_id, caller=context.caller)
    origin = Origin(schedule=None if read.schedule is None else read.schedule.schedule)
    try:
        judging = replace(context, origin=origin)
        valid = answer_document(replace(asked, document=read.judged, action="validate"), judging)
    except RequestRefusedError as error:
        raise RequestRefusedError(
            [*read.problems, *error.problems], warnings=[*read.warnings, *error.warnings]
        ) from None
    valid["warnings"] = [*read.warnings, *valid["warnings"]]
    if read.problems or read.schedule is None:
        raise RequestRefusedError(read.problems, warnings=valid["warnings"])
    if asked.action == "validate":
        return {**valid, "schedule": answers.schedule_document(read.schedule, next_firing=read.first_firing)}
    schedule, replayed = parts.schedules.begin(read.schedule)
    logger.info("replayed" if replayed else "scheduled", schedule=schedule.schedule, owner=schedule.owner)
    count("LaunchReplayed" if replayed else "ScheduleAccepted")
    return answers.scheduled(schedule, now=parts.now(), replayed=replayed, warnings=valid["warnings"])
