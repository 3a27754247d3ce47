"""The launcher's actions on documents, runs, sweeps, warm pools and schedules.

The launcher first refuses a caller without a right to the run, sweep or schedule.
No environment variable and no hyperparameter of a job is ever logged.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from botocore.exceptions import BotoCoreError, ClientError

from launcher import answers
from launcher.payload import (
    DocumentAction,
    PoolEnd,
    PoolExtension,
    PriorityChange,
    RunAction,
    ScheduleFiring,
    ScheduleRemoval,
    ShellOpening,
    SweepAction,
    SweepAdvance,
    plan_of,
)
from spotkeep_jobs.deployment import Deployment
from spotkeep_jobs.document.request import JobRequest, kind_of
from spotkeep_jobs.errors import AwsCallError, Problem, RequestRefusedError, RunChangedError
from spotkeep_jobs.pools.matching import PoolMatch
from spotkeep_jobs.pools.pool_actions import PoolActions
from spotkeep_jobs.record.fields import Caller
from spotkeep_jobs.record.ids import ASKED_BY_A_USER, Origin
from spotkeep_jobs.record.record import Plan
from spotkeep_jobs.record.states import SweepState
from spotkeep_jobs.record.sweep_store import SweepChangedError
from spotkeep_jobs.runs import run_actions, shells
from spotkeep_jobs.runs.acceptance import MAY_EXTEND_AGAIN, MAY_LAUNCH_AGAIN, launches_again, token_of_call
from spotkeep_jobs.runs.callers import authorize, authorize_for_run
from spotkeep_jobs.runs.launch import Launcher
from spotkeep_jobs.runs.run_actions import RunActions
from spotkeep_jobs.schedules.scheduled_launches import ScheduledLaunches
from spotkeep_jobs.settings import LauncherSettings
from spotkeep_jobs.sweeps.actions import SweepActions
from spotkeep_jobs.sweeps.advance import NO_TIME_LEFT, Sweeps
from spotkeep_jobs.sweeps.launch import SweepLaunch
from spotkeep_jobs.sweeps.launcher_function import MOST_IN_A_ROW

_SERVICE: Final = os.environ.get("POWERTOOLS_SERVICE_NAME", "launcher")

logger = Logger(service=_SERVICE)
metrics = Metrics(namespace=os.environ.get("POWERTOOLS_METRICS_NAMESPACE", "Spotkeep"), service=_SERVICE)


@dataclass(frozen=True, kw_only=True)
class ActionContext:
    """The deployment, the caller and the time of one action.

    By default the next steps of a sweep wait for the controller's next pass.

    Attributes:
        deployment: The deployment.
        request_id: The token of a document without one.
        caller: The caller, if known.
        origin: The schedule that fires, or would fire, in the case of a launch.
        seconds_left: Returns the seconds that the function still has for the runs of a sweep.
        go_on: Invokes the function once more, for the remaining work on a sweep.
    """

    deployment: Deployment[LauncherSettings]
    request_id: str
    caller: Caller | None = None
    origin: Origin = ASKED_BY_A_USER
    seconds_left: Callable[[], float] = lambda: math.inf
    go_on: Callable[[SweepAdvance], None] = lambda _asked: None


def count(metric: str) -> None:
    """Count that something happened, in CloudWatch."""
    metrics.add_metric(name=metric, unit=MetricUnit.Count, value=1)


def answer_document(asked: DocumentAction, context: ActionContext) -> answers.Answer:
    """Launch or judge a document.

    Args:
        asked: The document, and which of the two.
        context: The deployment and the caller.

    Raises:
        RequestRefusedError: Nothing was done. It carries every problem.
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
    launch = Launcher(context.deployment).launch(
        document, default_token=context.request_id, plan=plan, caller=context.caller, origin=context.origin
    )
    for run in launch.runs:
        logger.append_keys(run=run.run, attempt=run.attempt)
        logger.info("replayed" if launch.replayed else "launched", job_id=run.job_id, owner=run.owner)
        count("LaunchReplayed" if launch.replayed else "LaunchAccepted")
    return answers.launched(launch)


def _judge(document: object, context: ActionContext) -> answers.Answer:
    valid = Launcher(context.deployment).validate(document, caller=context.caller, origin=context.origin)
    count("DocumentValidated")
    without_pools = valid.request.backend == "ec2" or valid.request.queue is not None
    matches, troubles = ((), ()) if without_pools else _matches(valid.request, context)
    return answers.valid(valid, troubles, matches=matches, now=context.deployment.now())


def _matches(request: JobRequest, context: ActionContext) -> tuple[Sequence[PoolMatch], tuple[str, ...]]:
    """Return the pools held against a job. Pools that cannot be read are a warning, and fail no judgement."""
    try:
        return PoolActions(context.deployment).match(request), ()
    except (AwsCallError, RunChangedError, ClientError, BotoCoreError) as error:
        logger.warning("warm pools not read", problem=str(error))
        return (), ("the warm pools could not be read; the job may take one all the same",)


def _refused_with(problems: Sequence[Problem], document: object, context: ActionContext) -> RequestRefusedError:
    """Return a plan that cannot be used, and all that is wrong with the document beside it (I7)."""
    try:
        valid = Launcher(context.deployment).validate(document, caller=context.caller, origin=context.origin)
    except RequestRefusedError as error:
        return RequestRefusedError([*error.problems, *problems], warnings=error.warnings)
    return RequestRefusedError(problems, warnings=valid.warnings)


def _judge_sweep(document: Any, context: ActionContext) -> answers.Answer:
    valid = SweepLaunch(context.deployment).validate(
        document, caller=context.caller, default_token=context.request_id, origin=context.origin
    )
    count("DocumentValidated")
    return answers.judged_sweep(valid, now=context.deployment.now())


def _launch_sweep(document: Any, context: ActionContext) -> answers.Answer:
    launch = SweepLaunch(context.deployment).launch(
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
    """Judge the document of the schedule's first firing, and record the schedule if that is asked for."""
    deployment, schedules = context.deployment, ScheduledLaunches(context.deployment)
    read = schedules.read(asked.document, default_token=context.request_id, caller=context.caller)
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
    schedule, replayed = schedules.begin(read.schedule)
    logger.info("replayed" if replayed else "scheduled", schedule=schedule.schedule, owner=schedule.owner)
    count("LaunchReplayed" if replayed else "ScheduleAccepted")
    return answers.scheduled(schedule, now=deployment.now(), replayed=replayed, warnings=valid["warnings"])


def act_on_run(asked: RunAction, context: ActionContext) -> answers.Answer:
    """Stop, resume or describe a run, or send its notifications again."""
    runs = RunActions(context.deployment)
    if asked.action == "describe":
        logger.append_keys(run=asked.run)
        count("RunDescribed")
        return answers.described(*runs.describe(asked.run))
    _authorize(asked.run, context)
    if asked.action == "replay-notifications":
        notification_ids = runs.replay_notifications(asked.run)
        count("NotificationsReplayed")
        logger.info(asked.action, notification_ids=notification_ids)
        return answers.replayed(asked.run, notification_ids)
    if asked.action == "stop":
        answer = answers.acted_on(runs.stop(asked.run))
        count("StopRequested")
    else:
        launch = runs.resume(asked.run, changes=asked.changes)
        answer = answers.resumed(launch)
        count("ResumeReplayed" if launch.replayed else "ResumeAccepted")
        if (trial := launch.run.trial) is not None:
            # Its sweep counts what it costs while it trains, and not only when it has ended.
            context.go_on(SweepAdvance(sweep=trial.sweep, ended_runs=[asked.run]))
    logger.info(asked.action, state=answer["state"], attempt=answer["attempt"])
    return answer


def change_priority(asked: PriorityChange, context: ActionContext) -> answers.Answer:
    """Give a run in a queue another priority."""
    _authorize(asked.run, context)
    answer = answers.acted_on(run_actions.change_priority(context.deployment, asked.run, priority=asked.priority))
    count("PriorityChanged")
    logger.info("priority", queue=answer["queue"])
    return answer


def open_shell(asked: ShellOpening, context: ActionContext) -> answers.Answer:
    """Open a shell in a run."""
    _authorize(asked.run, context)
    asked_by = None if context.caller is None else context.caller.name
    shell = shells.open_shell(context.deployment, asked.run, command=asked.command, host=asked.host, asked_by=asked_by)
    count("ShellOpened")
    logger.info("shell", session=shell.session.id, target=shell.parameters["Target"])
    return answers.shell_opened(shell)


def list_pools(context: ActionContext) -> answers.Answer:
    """List the warm pools."""
    count("PoolsListed")
    unreadable: dict[str, str] = {}
    found = PoolActions(context.deployment).pools(unreadable=unreadable)
    return answers.pools(found, unreadable=unreadable, now=context.deployment.now())


def extend_pool(asked: PoolExtension, context: ActionContext) -> answers.Answer:
    """Keep a warm pool for longer."""
    _authorize(asked.run, context)
    pool = PoolActions(context.deployment).extend(run=asked.run, seconds=asked.seconds, kept_until=asked.kept_until)
    count("PoolExtended")
    logger.info("extend-pool", state=pool.state, kept_until=pool.kept_until.isoformat())
    warnings = [MAY_EXTEND_AGAIN] if asked.kept_until is None else []
    return {**answers.pool_changed(pool, now=context.deployment.now()), "warnings": warnings}


def stop_pool(asked: PoolEnd, context: ActionContext) -> answers.Answer:
    """End a warm pool."""
    _authorize(asked.run, context)
    pool = PoolActions(context.deployment).stop(run=asked.run)
    count("PoolStopped")
    logger.info("stop-pool", state=pool.state, kept_until=pool.kept_until.isoformat())
    return answers.pool_changed(pool, now=context.deployment.now())


def act_on_sweep(asked: SweepAction, context: ActionContext) -> answers.Answer:
    """Stop, pause, resume or describe a sweep."""
    logger.append_keys(sweep=asked.sweep)
    sweeps = SweepActions(context.deployment)
    item = sweeps.known(asked.sweep)
    if asked.action == "describe":
        count("SweepDescribed")
        return answers.described_sweep(item, sweeps.trials(asked.sweep), first=asked.first)
    authorize(context.deployment, asked.sweep, owner=item.owner, team=item.team, caller=context.caller)
    if asked.action == "resume":
        advanced = sweeps.resume(asked.sweep, changes=asked.changes, seconds_left=context.seconds_left)
        count("ResumeAccepted")
    else:
        as_ = SweepState.PAUSED if asked.action == "pause" else SweepState.STOPPED
        advanced = sweeps.stop(asked.sweep, as_=as_, seconds_left=context.seconds_left)
        count("StopRequested")
    logger.info(asked.action, state=advanced.sweep.state)
    if advanced.waits_because is not None:
        context.go_on(SweepAdvance(sweep=asked.sweep))
    return answers.sweep_stands(advanced.sweep)


def advance_sweep(asked: SweepAdvance, context: ActionContext) -> answers.Answer:
    """Begin a sweep's next trials, or end it, as its record says."""
    logger.append_keys(sweep=asked.sweep)
    count("SweepAdvanced")
    advance = Sweeps(context.deployment)
    advanced = advance.advance(asked.sweep, ended_runs=asked.ended_runs, seconds_left=context.seconds_left)
    if advanced is None:
        return {"ok": True, "ignored": "no sweep of this deployment"}
    logger.info(
        "advanced",
        state=advanced.sweep.state,
        opened=advanced.opened,
        resumed=advanced.resumed,
        stopped=advanced.stopped,
        refused=sorted(advanced.refused),
        waits_because=advanced.waits_because,
    )
    if advanced.waits_because == NO_TIME_LEFT and asked.in_a_row < MOST_IN_A_ROW:
        try:
            follows = asked.in_a_row > 0
            goes_on = advance.asks_to_go_on(asked.sweep, follows=follows, seconds_left=context.seconds_left)
        except SweepChangedError as error:
            logger.warning("the controller's next pass advances the sweep", problem=str(error))
            goes_on = False
        if goes_on:
            context.go_on(SweepAdvance(sweep=asked.sweep, in_a_row=asked.in_a_row + 1))
    return answers.sweep_stands(advanced.sweep)


def remove_schedule(asked: ScheduleRemoval, context: ActionContext) -> answers.Answer:
    """Remove a schedule. Its runs and sweeps go on."""
    schedules = ScheduledLaunches(context.deployment)
    schedule = schedules.known(asked.schedule)
    logger.append_keys(schedule=schedule.schedule)
    authorize(context.deployment, schedule.schedule, owner=schedule.owner, team=schedule.team, caller=context.caller)
    schedules.remove(schedule)
    logger.info("remove-schedule")
    count("ScheduleRemoved")
    return {"ok": True, "schedule": schedule.schedule}


def launch_scheduled(asked: ScheduleFiring, context: ActionContext) -> answers.Answer:
    """Launch the document of a schedule, in the name of its owner."""
    schedules = ScheduledLaunches(context.deployment)
    firing = schedules.firing(asked.schedule, asked.firing)
    if firing is None:
        return {"ok": True, "ignored": "no schedule of this deployment fires then"}
    logger.append_keys(schedule=firing.schedule.schedule)
    launch = DocumentAction(document=firing.document, action="launch")
    try:
        origin = Origin(schedule=firing.schedule.schedule)
        answer = answer_document(launch, replace(context, caller=firing.caller, origin=origin))
    except RequestRefusedError as error:
        schedules.keep(firing, refusal=str(error))
        count("ScheduledLaunchRefused")
        raise
    schedules.keep(firing, launched=str(answer.get("sweep") or answer.get("group") or answer["run"]))
    return answer


def _authorize(run: str, context: ActionContext) -> None:
    """Refuse a caller without a right to the run."""
    logger.append_keys(run=run)
    authorize_for_run(context.deployment, run, caller=context.caller)
