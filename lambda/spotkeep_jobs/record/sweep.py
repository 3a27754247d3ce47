"""The record of a sweep, with one item for the sweep and one for each chosen trial. Pure types.

A search has no state but these items. The next trials are computed from them at each step. A trial's training is a run
like any other, with a record of its own.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

from pydantic import Field

from spotkeep_jobs.record.fields import MAX_PARAMETERS_BYTES, MAX_SWEEP_BYTES, AtMost, Caller, Id, Label, Words
from spotkeep_jobs.record.record import Cost, Kinds, Notification, Record, Run, TrialPlace, UtcTime
from spotkeep_jobs.record.states import EndReason, SweepState, TrialState

ParameterValue: TypeAlias = bool | int | float | str
"""A value of a trial's parameter."""
Parameters: TypeAlias = Annotated[dict[str, ParameterValue], AtMost(MAX_PARAMETERS_BYTES)]
"""The parameters of one trial, by their names."""


class Spending(Record):
    """The cost of a trial that is on no bill yet, at the on-demand price of its instances."""

    usd: float
    """US dollars, up to when it last lost its instances."""
    usd_per_second: float = 0.0
    since: UtcTime | None = None
    """The time since when it has its present instances. None while it has none."""


MOST_POOLS: Final = 64
"""A pool is over an hour or so after its job, so there are few. A trial that goes on may not take the one before."""


class Trial(Record):
    """One trial of a sweep, with its parameters, the task of its run, and the outcome."""

    sweep: Id
    number: int
    """From 1, in the order in which trials were chosen."""
    run: Id
    parameters: Parameters
    state: TrialState = TrialState.RUNNING
    attempt: int = 1
    """The first attempt of its run that works on its present or next task.

    While the trial runs and its run has no such attempt, the launcher is to open or resume the run."""
    pause_at_step: int | None = None
    """The step at which it pauses. None where it trains to its end."""
    part: int = 1
    """The part of its sweep that last began it or let it go on."""
    max_cost_usd: float | None = None
    """US dollars that the sweep had left when the trial was chosen. A resume of the sweep may have raised them."""
    values: Annotated[dict[int, float], AtMost(64)] = Field(default_factory=dict)
    """The objective by completed steps, at the step where the trial was to pause, and at later pauses."""
    best: float | None = None
    """The best value of the objective so far."""
    best_step: int | None = None
    step: int | None = None
    """Completed steps, as they were last seen."""
    went_on_at_step: int | None = None
    """Its `step` when its sweep last let it go on. None where it never did."""
    stop_because: Words | None = None
    """The reason why the sweep asked its run to stop. None where it did not."""
    goes_on_with_sweep: bool = False
    """True when it was stopped only because its sweep was. It goes on when the sweep does."""
    end_reason: EndReason | None = None
    """The reason why its run last ended. None while it runs, and where no run could be opened."""
    failure_reason: Words | None = None
    ended_at: UtcTime | None = None
    """The time when its run last ended, or paused."""
    cost: Cost | None = None
    """The cost of its run, with all attempts. None until the first one has ended."""
    spending: Spending | None = None
    """The cost of its live run beside that, in a sweep with a max_cost."""
    unbilled_usd: float = 0.0
    """The cost of its run up to its last end, in US dollars, where the bill of one of its jobs never came.

    Then its `cost` has no sum."""
    reserved_usd: float = 0.0
    """US dollars that it may still cost, while it trains, until a stop takes effect. For a sweep with a max_cost."""
    pool_usd: float = 0.0
    """US dollars that the warm pool of its job may still cost."""
    pools: Annotated[tuple[int, ...], AtMost(MOST_POOLS)] = ()
    """The attempts of its run that may have left a warm pool that is not on its bill yet."""

    @property
    def place(self) -> TrialPlace:
        """The trial's place in its sweep, as the record of its run has it."""
        return TrialPlace(sweep=self.sweep, number=self.number)

    def has(self, run: Run) -> bool:
        """Say whether a run is this trial's. Its record says so. Another run may have such an id."""
        return run.trial == self.place


class BestTrial(Record):
    """The trial with the best value of the objective."""

    number: int
    run: Id
    value: float
    step: int | None = None
    parameters: Parameters


class TrialCounts(Record):
    """The number of a sweep's trials in each state."""

    running: int = 0
    paused: int = 0
    completed: int = 0
    failed: int = 0
    stopped: int = 0

    @property
    def chosen(self) -> int:
        """The number of all trials."""
        return self.running + self.paused + self.completed + self.failed + self.stopped


class Sweep(Record):
    """The sweep item, with the user's request and the state of the sweep.

    `version` counts the changes. Every write names the version that it was decided on (optimistic locking).
    """

    sweep: Id
    name: Label
    owner: Label | None = None
    launched_by: Caller | None = None
    team: Label | None = None
    schedule: Id | None = None
    """The schedule that launched it. None for a user's launch."""
    state: SweepState = SweepState.RUNNING
    stops_as: SweepState | None = None
    """While it stops, its state for the time when no trial runs any more."""
    stop_requested_at: UtcTime | None = None
    ended_because: Words | None = None
    """The reason why it ended, or stops, where its search is not simply over."""
    warning: Words | None = None
    """The reason for which its search does not work as it is meant, such as trials that never pause. None for none."""
    part: int = 1
    """The number of its beginnings, with the launch and each resume. Each part has an ending of its own."""
    resumed_at: UtcTime | None = None
    """The time of its last resume. A client may repeat that call."""
    changed: Annotated[dict[Id, int], AtMost(100)] = Field(default_factory=dict)
    """The fields of its trials' documents that a resume has changed, each with the part that last changed it."""
    created_at: UtcTime
    updated_at: UtcTime
    ended_at: UtcTime | None = None
    notify: Kinds = ()
    next_job_at: UtcTime | None = None
    """The earliest time to ask AWS for the next job of a trial. None where it may be at any time."""
    followed_until: UtcTime | None = None
    """The time until which another function goes on with it, at the request of one that had no time left."""
    max_cost_is_near: bool = False
    """True when most of its max_cost is spent. A notification followed where one was asked for."""
    counts: TrialCounts = TrialCounts()
    best: BestTrial | None = None
    cost: Cost | None = None
    """The sum over its trials' runs. None until an attempt of one has ended."""
    awaits_pools: bool = False
    """True while a warm pool of a trial may not be on the bill yet. Passes then examine the sweep after its end."""
    token: Label
    document: Annotated[dict[str, Any], AtMost(MAX_SWEEP_BYTES)]
    """The launched document, a job document with `sweep`."""
    version: int = 0

    @property
    def can_go_on(self) -> bool:
        """True when it has ended, and a resume without changes has something to do."""
        return self.state.ended and (self.state is not SweepState.COMPLETED or self.counts.failed > 0)

    @property
    def best_to_finish(self) -> BestTrial | None:
        """The best trial of a search by asha that has ended without a whole training. None for another sweep."""
        search = (self.document.get("sweep") or {}).get("search")
        return self.best if self.state.ended and search == "asha" and not self.counts.completed else None

    @property
    def options_to_finish(self) -> str:
        """The options of the resume that trains that trial to its end, with money of its own where there is a bound."""
        limit = self.document.get("max_cost")
        return "--set pause_at_step=" + ("" if limit is None else f" --set max_cost={float(limit):g}")


class SweepChange(Record):
    """One step of a sweep's record, written in one transaction, on the version that it was decided on."""

    sweep: Sweep
    trials: tuple[Trial, ...] = ()
    """Those that are new or changed."""
    notifications: tuple[Notification, ...] = ()
