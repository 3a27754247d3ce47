"""Advances sweeps, which means that it takes over the outcomes of trials, begins the next ones and serves their tasks.

The launcher advances a sweep when it is launched. The controller asks for another advance when the run of a trial has
ended. Each pass of the controller asks for one too, until nothing is left to do. All of it may happen twice or at the
same time. The record changes by one conditional transaction. The run of a trial has an id and a token of its own, so a
second call that opens it finds it. Work that a launcher has left undone at its death is done by the next one.

A run belongs to a trial if the record of the run says so (`Trial.has`). A run that only has the id is never read,
stopped or resumed as the trial's. The sweep treats it as absent, and the trial with that id fails when its own run
cannot be opened.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.errors import RequestRefusedError, UnreadableRecordError, isolated
from spotkeep_jobs.notifications.texts.sweeps import sweep_ending_notification, sweep_max_cost_near_notification
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.ids import Origin
from spotkeep_jobs.record.record import Notification, Run, in_utc_milliseconds
from spotkeep_jobs.record.states import NotificationKind, PoolState, SweepState, TrialState
from spotkeep_jobs.record.sweep import Sweep, SweepChange, Trial
from spotkeep_jobs.record.sweep_store import MOST_TRIALS_A_CHANGE, SweepChangedError
from spotkeep_jobs.record.table_client import RecordRefusedError, until_written
from spotkeep_jobs.runs.acceptance import Acceptance
from spotkeep_jobs.runs.launch import Launcher
from spotkeep_jobs.runs.launch_completion import LaunchUnfinishedError
from spotkeep_jobs.runs.run_actions import RunActions
from spotkeep_jobs.sweeps.budget import (
    max_cost_of,
    most_is_spent,
    spent_in_words,
    spent_usd,
    with_reserve,
    within_budget,
)
from spotkeep_jobs.sweeps.decision import (
    Seen,
    SeenRun,
    Task,
    between_jobs,
    failed,
    free_places,
    paced,
    results_of,
    settled,
    stopping,
    summed_up,
    task_of,
    with_moves,
    with_resumed,
)
from spotkeep_jobs.sweeps.document import SweepRequest
from spotkeep_jobs.sweeps.resumed_trials import changes_of_resume, next_to_go_on, waits_to_go_on
from spotkeep_jobs.sweeps.search.search import Move, TrialResult, is_exhausted, next_moves
from spotkeep_jobs.sweeps.search.tpe_function import tpe_of
from spotkeep_jobs.sweeps.trial_documents import trial_document

if TYPE_CHECKING:
    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.settings import LauncherSettings

MOST_ROUNDS: Final = 100
"""The bound of an advance that would never end. A round that changes nothing ends an advance anyway."""
_ASKED_AGAIN_AFTER_SECONDS: Final = 1.0
"""The length of a wait, in seconds, before the function checks its remaining time."""
NO_TIME_LEFT: Final = "there is no time left"
FOLLOWS_WITHIN: Final = timedelta(minutes=2)
"""The time within which a function that was asked to go on with a sweep begins and ends. Then another may be asked."""


@dataclass(kw_only=True)
class Advanced:
    """The outcome of an advance.

    Attributes:
        sweep: The sweep's item.
        opened: Runs that were opened.
        resumed: Runs that go on.
        stopped: Runs that were asked to stop.
        refused: Runs that were not opened or resumed, and the reasons.
        waits_because: The reason for which some of the work is left. The next advance goes on with it.
    """

    sweep: Sweep
    opened: list[str] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    waits_because: str | None = None


@dataclass(frozen=True)
class Sweeps:
    """Advances sweeps."""

    deployment: Deployment[LauncherSettings]

    def advance(
        self,
        sweep: str,
        *,
        ended_runs: Collection[str] | None = None,
        seconds_left: Callable[[], float] = lambda: math.inf,
        most_tasks: int | None = None,
    ) -> Advanced | None:
        """Do all that a sweep needs now.

        Args:
            sweep: Its id.
            ended_runs: The runs of trials that something happened to. The others are taken to be as they were. None to
                read them all.
            seconds_left: Returns the seconds that the function still has, before each run is opened, resumed or
                stopped, and while a run waits for its moment.
            most_tasks: At most so many runs are opened, resumed or stopped. None for all.

        Returns:
            The outcome. None when there is no such sweep.

        Raises:
            SweepChangedError: The sweep kept changing under every try.
            SearchError: The search could not say which trials follow.
            UnreadableRecordError: A record of the sweep cannot be read. Where the sweep stops, the other trials were
                stopped.
            RecordRefusedError: DynamoDB does not take a record. The trials that were to stop were stopped all the same.
        """
        done: Advanced | None = None
        tasks_left = itertools.count() if most_tasks is None else iter(range(most_tasks))
        for _ in range(MOST_ROUNDS):
            step = until_written(
                lambda: self._step(sweep, only=ended_runs, most_tasks=most_tasks, seconds_left=seconds_left),
                changed=SweepChangedError,
                pause=self.deployment.pause,
            )
            if step is None:
                return None
            done = Advanced(sweep=step.sweep) if done is None else done
            done.sweep = step.sweep
            again = self._act(step, done, seconds_left=seconds_left, tasks_left=tasks_left)
            if not again or done.waits_because is not None:
                break
        return done

    def asks_to_go_on(self, sweep: str, *, follows: bool, seconds_left: Callable[[], float]) -> bool:
        """Return True if this function, which has no time left, is to ask another to go on with a sweep. Record it.

        A hundred trials that end at once have their sweep advanced by a hundred functions. Only one of them asks
        another to follow it. The next may ask when the next moment for a job is free, or when the follower's time is
        over.

        Args:
            sweep: The sweep's id.
            follows: True if another function without time asked this one.
            seconds_left: Returns the seconds that this function still has.

        Raises:
            SweepChangedError: The sweep kept changing under every try.
        """

        def ask() -> Sweep | None:
            item, now = self.deployment.table.sweeps.get(sweep), self.deployment.now()
            if item is None or item.state.ended:
                return None
            if not follows and item.followed_until is not None and item.followed_until > now:
                return None
            asked = with_changes(item, followed_until=in_utc_milliseconds(now + FOLLOWS_WITHIN))
            return self.deployment.table.sweeps.commit(SweepChange(sweep=asked))

        asked = until_written(ask, changed=SweepChangedError, pause=self.deployment.pause)
        if asked is not None and asked.state is SweepState.RUNNING:
            self._waits_until(asked.next_job_at, seconds_left=seconds_left)
        return asked is not None

    def _step(
        self,
        sweep_id: str,
        *,
        only: Collection[str] | None,
        most_tasks: int | None,
        seconds_left: Callable[[], float],
    ) -> _Step | None:
        """Read, decide and write once."""
        try:
            sweep, trials = self.deployment.table.sweeps.with_trials(sweep_id)
        except UnreadableRecordError as error:
            self._stop_readable(sweep_id, unreadable=error)
            raise
        if sweep is None:
            return None
        now = self.deployment.now()
        request = SweepRequest.model_validate(sweep.document["sweep"])
        seen = self._seen(trials, only=only)
        after, followed = settled(sweep, request=request, trials=trials, seen=self._at(now, seen))
        free = _free(after, request, trials, followed)
        if again := next_to_go_on(after, followed, free=free):
            seen |= self._seen(again, only={trial.run for trial in again})
            # A user may have resumed one by itself: then it trains, whatever is left.
            after, followed = settled(after, request=request, trials=followed, seen=self._at(now, seen))
            free = _free(after, request, trials, followed)
            goes_on = {trial.number for trial in next_to_go_on(after, followed, free=free) if trial.run in seen}
            resumed = with_resumed(after, trials=followed, numbers=goes_on, now=now)
            after, followed = self._within_budget(after, request, before=followed, trials=resumed, now=now)
            free = _free(after, request, trials, followed)
        moves = self._moves(request, followed, free=free) if free > 0 else ()
        begun = with_moves(after, trials=followed, moves=moves, now=now)
        after, followed = self._within_budget(after, request, before=followed, trials=begun, now=now)
        waits = any(waits_to_go_on(trial, sweep=after) for trial in followed)
        over = not moves and not waits and free > 0 and _is_over(request, results_of(followed, request))
        after = summed_up(after, request=request, trials=followed, search_is_over=over, now=now)
        after, notifications = self._notified(before=sweep, after=after, trials=followed, now=now)
        known = {trial.number: trial for trial in trials}
        changed = [trial for trial in followed if known.get(trial.number) != trial]
        written, rest = changed[:MOST_TRIALS_A_CHANGE], changed[MOST_TRIALS_A_CHANGE:]
        # What does not fit into one transaction is found again in the next round.
        followed = tuple(known.get(trial.number, trial) if trial in rest else trial for trial in followed)
        # Where the sweep begins to stop, each of its trials is to stop.
        all_may = only is None or after.state is not sweep.state
        may_ask = frozenset(trial.number for trial in (followed if all_may else changed))
        asking = [
            trial
            for trial in followed
            if trial.number in may_ask and task_of(trial, seen.get(trial.run), sweep=after) in {Task.OPEN, Task.RESUME}
        ]
        after, moments = paced(
            after, asking=asking[:most_tasks], now=self.deployment.now(), within_seconds=seconds_left()
        )
        if changed or after != sweep:
            change = SweepChange(
                sweep=with_changes(after, updated_at=now), trials=tuple(written), notifications=notifications
            )
            try:
                after = self.deployment.table.sweeps.commit(change)
            except RecordRefusedError as refused:
                if after.state is SweepState.STOPPING:
                    self.stop_trials(trials, refused=refused)
                raise
        return _Step(
            sweep=after,
            request=request,
            trials=followed,
            seen=seen,
            may_ask=may_ask,
            moments=moments,
            changed=bool(changed),
        )

    def _stop_readable(self, sweep_id: str, *, unreadable: UnreadableRecordError) -> None:
        """Stop the trials of a stopping sweep, except those with records that cannot be read.

        Nothing else is known for certain.
        """
        sweep, trials = self.deployment.table.sweeps.with_trials(sweep_id, unreadable={})
        if sweep is not None and sweep.state is SweepState.STOPPING:
            self.stop_trials(trials, refused=unreadable)

    def stop_trials(self, trials: Sequence[Trial], *, refused: RecordRefusedError | UnreadableRecordError) -> None:
        """Stop the runs of trials without a record that says why, where there can be none.

        Args:
            trials: All of a sweep's that can be read.
            refused: The reason why there is none. DynamoDB does not take the sweep's record, or a trial's cannot be
                read. The trials that could not be stopped are added to it.
        """
        failures: dict[str, str] = {}
        for trial in trials:
            if trial.state is TrialState.RUNNING:
                isolated(failures, trial.run, functools.partial(self._stop, trial))
        for name, why in failures.items():
            refused.add_note(f"stopping {name}: {why}")

    def _stop(self, trial: Trial) -> None:
        run = self.deployment.table.runs.get(trial.run)
        if run is not None and trial.has(run):
            RunActions(self.deployment).stop(trial.run)

    def _seen(self, trials: Sequence[Trial], *, only: Collection[str] | None) -> dict[str, SeenRun | None]:
        seen: dict[str, SeenRun | None] = {}
        for trial in trials:
            asked_for = trial.state is TrialState.RUNNING if only is None else trial.run in only
            try:
                pools_over = self._pools_over(trial) if asked_for or only is None else frozenset()
                if not (asked_for or pools_over):
                    continue
                run, metrics, _ = self.deployment.table.runs.with_metrics_and_notifications(trial.run)
            except UnreadableRecordError:
                continue  # It is taken to be as it was. Passes over the runs report it.
            seen[trial.run] = None
            if run is not None and trial.has(run):
                seen[trial.run] = SeenRun(run=run, metrics=metrics, pools_over=pools_over)
        return seen

    def _pools_over(self, trial: Trial) -> frozenset[int]:
        """Return which of the warm pools that a trial may have left are on the bill of its run now."""
        pools = {attempt: self.deployment.table.pools.get(trial.run, attempt) for attempt in trial.pools}
        return frozenset(
            attempt for attempt, pool in pools.items() if pool is None or pool.state is not PoolState.AVAILABLE
        )

    def _at(self, now: datetime, runs: Mapping[str, SeenRun | None]) -> Seen:
        return Seen(runs=runs, prices=self.deployment.prices, now=now)

    def _within_budget(
        self, sweep: Sweep, request: SweepRequest, *, before: Sequence[Trial], trials: Sequence[Trial], now: datetime
    ) -> tuple[Sweep, tuple[Trial, ...]]:
        """Let as many trials begin, or go on, as max_cost pays for. Where it pays for none, the sweep stops."""
        limit = max_cost_of(sweep)
        if limit is None:
            return sweep, tuple(trials)
        known = {trial.number: trial for trial in before}
        reserved = [
            self._with_reserve(sweep, request, trial) if _begins(trial, known.get(trial.number)) else trial
            for trial in trials
        ]
        kept, lacking = within_budget(sweep, before=before, after=reserved, now=now)
        waits = any(trial.state is TrialState.RUNNING or trial.pools for trial in kept)
        if lacking and not waits and sweep.state is SweepState.RUNNING:
            because = spent_in_words(limit, spent=spent_usd(kept, now=now), reserved=lacking)
            sweep = stopping(sweep, as_=SweepState.STOPPED, because=because, now=now)
        return sweep, kept

    def _with_reserve(self, sweep: Sweep, request: SweepRequest, trial: Trial) -> Trial:
        document = trial_document(sweep.document, request, trial=trial, token=sweep.token, owner=sweep.owner)
        # What is left may be too little for it: then it needs more than that, and not nothing.
        judged = Acceptance(self.deployment).judged({**document, "max_cost": None}, caller=sweep.launched_by)
        return with_reserve(trial, judged.request, prices=self.deployment.prices, parallel=request.parallel)

    def _moves(self, request: SweepRequest, trials: Sequence[Trial], *, free: int) -> Sequence[Move]:
        plan = request.plan
        if plan is None:
            return request.listed_begins(begun=len(trials))[:free]
        results = results_of(trials, request)
        if plan.search == "tpe" and (tpe := tpe_of(self.deployment)) is not None:
            return tpe(plan, results, free)
        return next_moves(plan, trials=results, free=free)

    def _notified(
        self, *, before: Sweep, after: Sweep, trials: Sequence[Trial], now: datetime
    ) -> tuple[Sweep, tuple[Notification, ...]]:
        notifications = []
        if most_is_spent(after, trials, now=now) and not after.state.ended:
            after = with_changes(after, max_cost_is_near=True)
            limit = max_cost_of(after)
            if limit is not None and NotificationKind.MAX_COST_NEAR in after.notify:
                notifications.append(
                    sweep_max_cost_near_notification(
                        sweep=after,
                        spent_usd=spent_usd(trials, now=now),
                        max_cost_usd=limit,
                        deployment=self.deployment.name,
                        now=now,
                    )
                )
        if after.state.ended and not before.state.ended:
            ending = sweep_ending_notification(sweep=after, deployment=self.deployment.name, now=now)
            notifications += [] if ending is None else [ending]
        return after, tuple(notifications)

    def _act(
        self, step: _Step, done: Advanced, *, seconds_left: Callable[[], float], tasks_left: Iterator[int]
    ) -> bool:
        """Serve the tasks of the trials. Return True if something is to be decided again."""
        refused: list[Trial] = []
        unwritten: RecordRefusedError | None = None
        earliest: datetime | None = None
        apart = between_jobs(step.sweep.document)
        # What is to stop costs money, and needs no moment.
        for trial in sorted(step.trials, key=lambda trial: trial.stop_because is None):
            if trial.number not in step.may_ask or trial.state is not TrialState.RUNNING:
                continue
            moment = step.moments.get(trial.number)
            try:
                task = task_of(trial, step.seen.get(trial.run) or self._read(trial), sweep=step.sweep)
            except UnreadableRecordError as error:
                done.refused[trial.run] = str(error)
                continue
            if task is None:
                continue
            if done.waits_because is not None and task is not Task.STOP:
                break
            needs_moment = bool(apart) and task is not Task.STOP
            comes = not (needs_moment and moment is None) and seconds_left() > 0 and next(tasks_left, None) is not None
            if moment is not None and earliest is not None:
                moment = max(moment, earliest)  # The job before may have come late.
            if not comes or not self._waits_until(moment, seconds_left=seconds_left):
                done.waits_because = NO_TIME_LEFT
                break
            if moment is not None:
                earliest = self.deployment.now() + apart
            try:
                self._do(task, trial, step, done)
            except UnreadableRecordError as error:
                done.refused[trial.run] = str(error)  # It keeps no other from being stopped.
            except RequestRefusedError as error:
                if error.temporary:
                    done.waits_because = str(error)
                    break
                found = self.deployment.table.runs.get(trial.run)
                if _goes_on(found, task, trial):
                    continue  # Another launcher was faster.
                reason = _id_taken(found) if found is not None and not trial.has(found) else str(error)
                done.refused[trial.run] = reason
                refused.append(failed(trial, reason=reason))
            except LaunchUnfinishedError as error:
                # It is recorded, and the controller completes it; AWS is busy, so the others wait for the next advance.
                # But what is to stop is billed, and AWS may refuse this one alone.
                done.waits_because = str(error)
                if task is not Task.STOP:
                    break
            except RecordRefusedError as error:
                if task is not Task.STOP:
                    raise
                unwritten = unwritten or error  # Its job was asked to end.
        if refused:
            until_written(
                lambda: self._record_refused(step.sweep.sweep, refused),
                changed=SweepChangedError,
                pause=self.deployment.pause,
            )
        if unwritten is not None:
            raise unwritten
        return bool(refused) or step.changed

    def _waits_until(self, moment: datetime | None, *, seconds_left: Callable[[], float]) -> bool:
        """Wait until a moment. Return False if the function's time is over before it."""
        seconds = 0.0 if moment is None else (moment - self.deployment.now()).total_seconds()
        while seconds > 0:
            if seconds_left() <= 0:
                return False
            self.deployment.wait(min(seconds, _ASKED_AGAIN_AFTER_SECONDS))
            seconds -= _ASKED_AGAIN_AFTER_SECONDS
        return True

    def _do(self, task: Task, trial: Trial, step: _Step, done: Advanced) -> None:
        sweep = step.sweep
        document = trial_document(sweep.document, step.request, trial=trial, token=sweep.token, owner=sweep.owner)
        match task:
            case Task.OPEN:
                Launcher(self.deployment).launch(
                    document,
                    default_token=document["token"],
                    caller=sweep.launched_by,
                    origin=Origin(trial=trial.place),
                )
                done.opened.append(trial.run)
            case Task.RESUME:
                RunActions(self.deployment).resume(trial.run, changes=changes_of_resume(sweep, document=document))
                done.resumed.append(trial.run)
            case Task.STOP:
                RunActions(self.deployment).stop(trial.run)
                done.stopped.append(trial.run)

    def _read(self, trial: Trial) -> SeenRun | None:
        """Read the run of a trial that an earlier advance may have opened, or that is to go on."""
        found = self.deployment.table.runs.trial_run(trial.sweep, trial.number)
        return None if found is None else SeenRun(run=found)

    def _record_refused(self, sweep_id: str, refused: Sequence[Trial]) -> None:
        sweep, trials = self.deployment.table.sweeps.with_trials(sweep_id)
        if sweep is None:
            return
        asked = {trial.number: trial for trial in refused}
        same = [
            asked[trial.number]
            for trial in trials
            if trial.number in asked
            and trial.state is TrialState.RUNNING
            and trial.attempt == asked[trial.number].attempt
        ]
        if same:
            changed = with_changes(sweep, updated_at=self.deployment.now())
            self.deployment.table.sweeps.commit(SweepChange(sweep=changed, trials=tuple(same[:MOST_TRIALS_A_CHANGE])))


@dataclass(frozen=True, kw_only=True)
class _Step:
    sweep: Sweep
    request: SweepRequest
    trials: Sequence[Trial]
    seen: Mapping[str, SeenRun | None]
    may_ask: frozenset[int]
    """Numbers of the trials that may have a task.

    These are all trials. Where only some runs were read and the sweep's state is as it was, these are the changed ones.
    """
    moments: Mapping[int, datetime]
    """The times from which trials may have their jobs, by their numbers."""
    changed: bool


def _goes_on(run: Run | None, task: Task, trial: Trial) -> bool:
    """Return True if the run of a trial already does its task, because another launcher or a user had it do so."""
    if run is None or not trial.has(run) or run.attempt < trial.attempt:
        return False
    return task is not Task.OPEN or not run.state.ended


def _id_taken(other: Run) -> str:
    return f"id taken: run {other.run} is no trial of this sweep"


def _differ(before: Sequence[Trial], after: Sequence[Trial]) -> int:
    return sum(old != new for old, new in zip(before, after, strict=True))


def _begins(trial: Trial, before: Trial | None) -> bool:
    """Return True if a trial is to train that did not before."""
    return trial.state is TrialState.RUNNING and (before is None or before.state is not TrialState.RUNNING)


def _free(sweep: Sweep, request: SweepRequest, before: Sequence[Trial], after: Sequence[Trial]) -> int:
    """Return how many more trials may run, of those that fit into one transaction."""
    return min(free_places(sweep, request, after), MOST_TRIALS_A_CHANGE - _differ(before, after))


def _is_over(request: SweepRequest, results: Sequence[TrialResult]) -> bool:
    plan = request.plan
    return len(results) >= len(request.listed) if plan is None else is_exhausted(plan, trials=results)
