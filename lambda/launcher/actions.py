"""Acts on what is there already: runs, sweeps, warm pools, schedules. Who may not act on it is refused first."""

from __future__ import annotations

from dataclasses import replace

from launcher import answers
from launcher.context import ActionContext, count, logger
from launcher.documents import answer_document
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
)
from spotkeep_jobs.errors import RequestRefusedError
from spotkeep_jobs.record.ids import Origin
from spotkeep_jobs.record.states import SweepState
from spotkeep_jobs.record.sweep_table import SweepChangedError
from spotkeep_jobs.runs.repeated_calls import MAY_EXTEND_AGAIN
from spotkeep_jobs.sweeps.advance import NO_TIME_LEFT
from spotkeep_jobs.sweeps.launcher_function import MOST_IN_A_ROW


def act_on_run(asked: RunAction, context: ActionContext) -> answers.Answer:
    """Stop, resume or describe a run, or send its notifications again."""
    runs = context.parts.runs
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
        answer = answers.launched(launch)
        count("ResumeReplayed" if launch.replayed else "ResumeAccepted")
        if (trial := launch.run.trial) is not None:
            # Its sweep counts what it costs while it trains, and not only when it has ended.
            context.go_on(SweepAdvance(sweep=trial.sweep, ended_runs=[asked.run]))
    logger.info(asked.action, state=answer["state"], attempt=answer["attempt"])
    return answer


def change_priority(asked: PriorityChange, context: ActionContext) -> answers.Answer:
    """Give a run in a queue another priority."""
    _authorize(asked.run, context)
    answer = answers.acted_on(context.parts.priorities.change(asked.run, priority=asked.priority))
    count("PriorityChanged")
    logger.info("priority", queue=answer["queue"])
    return answer


def open_shell(asked: ShellOpening, context: ActionContext) -> answers.Answer:
    """Open a shell in a run."""
    _authorize(asked.run, context)
    asked_by = None if context.caller is None else context.caller.name
    shell = context.parts.shells.open(asked.run, command=asked.command, host=asked.host, asked_by=asked_by)
    count("ShellOpened")
    logger.info("shell", session=shell.session.id, target=shell.parameters["Target"])
    return answers.shell_opened(shell)


def list_pools(context: ActionContext) -> answers.Answer:
    """List the warm pools."""
    count("PoolsListed")
    unreadable: dict[str, str] = {}
    found = context.parts.pools.pools(unreadable=unreadable)
    return answers.pools(found, unreadable=unreadable, now=context.parts.now())


def extend_pool(asked: PoolExtension, context: ActionContext) -> answers.Answer:
    """Keep a warm pool for longer."""
    _authorize(asked.run, context)
    pool = context.parts.pools.extend(run=asked.run, seconds=asked.seconds, kept_until=asked.kept_until)
    count("PoolExtended")
    logger.info("extend-pool", state=pool.state, kept_until=pool.kept_until.isoformat())
    warnings = [MAY_EXTEND_AGAIN] if asked.kept_until is None else []
    return {**answers.pool_changed(pool, now=context.parts.now()), "warnings": warnings}


def stop_pool(asked: PoolEnd, context: ActionContext) -> answers.Answer:
    """End a warm pool."""
    _authorize(asked.run, context)
    pool = context.parts.pools.stop(run=asked.run)
    count("PoolStopped")
    logger.info("stop-pool", state=pool.state, kept_until=pool.kept_until.isoformat())
    return answers.pool_changed(pool, now=context.parts.now())


def act_on_sweep(asked: SweepAction, context: ActionContext) -> answers.Answer:
    """Stop, pause, resume or describe a sweep."""
    logger.append_keys(sweep=asked.sweep)
    sweeps = context.parts.sweeps.actions
    item = sweeps.known(asked.sweep)
    if asked.action == "describe":
        count("SweepDescribed")
        return answers.described_sweep(item, sweeps.trials(asked.sweep), first=asked.first)
    context.parts.access.authorize_for(asked.sweep, owner=item.owner, team=item.team, caller=context.caller)
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
    """Begin a sweep's next trials, or end it: as its record says."""
    logger.append_keys(sweep=asked.sweep)
    count("SweepAdvanced")
    advance = context.parts.sweeps.advance
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
    """Remove a schedule; what it has launched goes on."""
    parts = context.parts
    schedule = parts.schedules.known(asked.schedule)
    logger.append_keys(schedule=schedule.schedule)
    parts.access.authorize_for(schedule.schedule, owner=schedule.owner, team=schedule.team, caller=context.caller)
    parts.schedules.remove(schedule)
    logger.info("remove-schedule")
    count("ScheduleRemoved")
    return {"ok": True, "schedule": schedule.schedule}


def launch_scheduled(asked: ScheduleFiring, context: ActionContext) -> answers.Answer:
    """Launch what a schedule holds, in the name of its owner."""
    schedules = context.parts.schedules
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
    """Refuse a caller who may not act on a run."""
    logger.append_keys(run=run)
    context.parts.access.authorize(run, caller=context.caller)
