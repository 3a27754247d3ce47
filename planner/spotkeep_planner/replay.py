"""Plays a policy on a trace, exactly and for many windows at once.

Time runs in the ticks of the trace. At the start of a tick a policy sees the past, the zones with capacity in that
tick, and their prices. It chooses nothing, spot in one zone, or on-demand for the tick. A change costs a restart,
during which capacity is paid and no work is done. Spot capacity that is absent in a tick was taken at its start. The
work since the last checkpoint is then lost, unless the job saves on the notice. Capacity is billed to the second, until
the work is done. On-demand capacity is always there.

The windows are independent. Each is an element of every array, and ends when its work is done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from spotkeep_planner.errors import PlanError
from spotkeep_planner.job import PlannedJob, running_times_s
from spotkeep_planner.traces import BoolArray, CapacityTrace, FloatArray, same_clock

IntArray = NDArray[np.int64]

WAIT = -1
"""Use nothing. Zones are 0 and above."""
ON_DEMAND = -2
"""Use on-demand capacity."""

_SECONDS_PER_HOUR = 3600.0
_NOTHING_LEFT_S = 1e-6


class Windows:
    """The places and times at which a job could have run, as some zones of one time and the ticks of its starts.

    Args:
        traces: One a zone. They are cut to the time they share.
        starts: The tick of each start in that shared time.
        on_demand_price: USD per hour.

    Attributes:
        zones: Their names.
        available: (zones, ticks), True where capacity could be had and kept.
        spot_price: (zones, ticks), USD per hour.
        starts: (windows,) the tick of each start.
        tick_s: Seconds a tick.
        on_demand_price: USD per hour.
    """

    def __init__(
        self, traces: Sequence[CapacityTrace], *, starts: Sequence[int] | IntArray, on_demand_price: float
    ) -> None:
        cut = same_clock(traces)
        self.traces = cut
        self.zones = tuple(trace.zone for trace in cut)
        self.available = np.stack([trace.available for trace in cut])
        self.spot_price = np.stack([trace.spot_price for trace in cut])
        self.tick_s = cut[0].tick_s
        self.starts = np.asarray(starts, dtype=np.int64)
        self.on_demand_price = on_demand_price
        for array in (self.available, self.spot_price, self.starts):
            array.setflags(write=False)
        if self.starts.ndim != 1 or not len(self.starts):
            raise PlanError("at least one start is needed")
        if self.starts.min() < 0 or self.starts.max() >= self.available.shape[1]:
            raise PlanError(
                f"starts go from {self.starts.min()} to {self.starts.max()}; "
                f"the trace has {self.available.shape[1]} ticks"
            )

    def __len__(self) -> int:
        return len(self.starts)

    def ticks_for(self, job: PlannedJob) -> int:
        """Return how many decisions there are until the deadline."""
        ticks = math.ceil(job.deadline_s / self.tick_s)
        last = int(self.starts.max()) + ticks
        if last > self.available.shape[1]:
            raise PlanError(
                f"a window of {ticks} ticks from tick {self.starts.max()} needs {last} ticks, "
                f"the trace has {self.available.shape[1]}: start earlier, or give a longer trace"
            )
        return ticks

    def at(self, tick: int) -> tuple[BoolArray, FloatArray]:
        """Return capacity and USD per hour in a tick, each (windows, zones)."""
        now = self.starts + tick
        return self.available[:, now].T, self.spot_price[:, now].T

    def pasts(self) -> tuple[Past, ...]:
        """Return the past that each window may know, which is the ticks before its start."""
        return tuple(
            Past(
                available=self.available[:, :start],
                spot_price=self.spot_price[:, :start],
                tick_s=self.tick_s,
                start_tick=start,
                first_tick_at=self.traces[0].start,
            )
            for start in self.starts.tolist()
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Past:
    """The known past before a window starts. Nothing later is in it.

    Attributes:
        available: (zones, ticks before the start).
        spot_price: (zones, ticks before the start), USD per hour.
        tick_s: Seconds a tick.
        start_tick: The tick of the start, that is, the number of ticks before it.
        first_tick_at: The beginning of the first of them.
        price_now: (zones,) USD per hour, where prices are known and capacity is not.
        chance_now: (zones,) the chance of capacity at the start, where that is known and the ticks before are not. NaN
            where it is not known either.
    """

    available: BoolArray
    spot_price: FloatArray
    tick_s: float
    start_tick: int
    first_tick_at: datetime
    price_now: FloatArray | None = None
    chance_now: FloatArray | None = None

    @classmethod
    def without_capacity(
        cls,
        *,
        tick_s: float,
        now: datetime,
        zones: int = 1,
        price_now: FloatArray | None = None,
        chance_now: FloatArray | None = None,
    ) -> Past:
        """Return a past in which capacity was not watched.

        Args:
            tick_s: Seconds a tick.
            now: The time at which the run starts.
            zones: The number of zones. Not needed with prices.
            price_now: See the class.
            chance_now: See the class.
        """
        count = zones if price_now is None else len(price_now)
        return cls(
            available=np.zeros((count, 0), dtype=np.bool_),
            spot_price=np.zeros((count, 0)),
            tick_s=tick_s,
            start_tick=0,
            first_tick_at=now,
            price_now=price_now,
            chance_now=chance_now,
        )

    def of_zone(self, zone: int) -> Past:
        """Return the known past of one zone alone."""
        one = slice(zone, zone + 1)
        return Past(
            available=self.available[one],
            spot_price=self.spot_price[one],
            tick_s=self.tick_s,
            start_tick=self.start_tick,
            first_tick_at=self.first_tick_at,
            price_now=None if self.price_now is None else self.price_now[one],
            chance_now=None if self.chance_now is None else self.chance_now[one],
        )

    def moment(self, tick: int) -> datetime:
        """Return when a tick begins."""
        return self.first_tick_at + timedelta(seconds=tick * self.tick_s)


@dataclass(frozen=True, kw_only=True, eq=False)
class Observation:
    """The view of a policy at the start of a tick. One element a window unless said otherwise.

    Attributes:
        tick: Ticks since the start, as one number for all windows.
        tick_s: Seconds a tick.
        time_left_s: Until the deadline. One number for all windows.
        work_left_s: Work that is not done, if nothing is lost.
        work_left_if_lost_s: Work that is not done, if the capacity in use vanished now.
        using: The capacity that was used in the tick before and still is there, as a zone's number, `WAIT` or
            `ON_DEMAND`.
        restart_left_s: The rest of the restart of the capacity in use.
        available: (windows, zones), True where there is capacity in this tick.
        spot_price: (windows, zones) USD per hour in this tick.
    """

    tick: int
    tick_s: float
    time_left_s: float
    work_left_s: FloatArray
    work_left_if_lost_s: FloatArray
    using: IntArray
    restart_left_s: FloatArray
    available: BoolArray
    spot_price: FloatArray


Decide = Callable[[Observation], IntArray]
"""A policy at work on some windows, which chooses a zone's number, `WAIT` or `ON_DEMAND` for each in this tick.

A zone without capacity means waiting.
"""


class Policy(Protocol):
    """A way to decide. Tables show its `name`."""

    @property
    def name(self) -> str:
        """The name in tables."""
        ...

    def begin(self, *, job: PlannedJob, pasts: Sequence[Past], on_demand_price: float) -> Decide:
        """Get ready for some windows.

        Args:
            job: The job.
            pasts: For each window, the known past before it starts.
            on_demand_price: USD per hour.
        """
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Course:
    """The way of all windows to their ends, at some times.

    Attributes:
        at_s: (times,) seconds from the start.
        done_s: (times, windows) work that is done by then and not lost so far.
        cost_usd: (times, windows) for all capacity until then.
    """

    at_s: FloatArray
    done_s: FloatArray
    cost_usd: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcomes:
    """The results of a policy. Every array has one element a window.

    Attributes:
        cost_usd: For all capacity used.
        finish_s: From the start to the end of the work.
        missed: True where the deadline passed before the work was done.
        interruptions: The number of times that spot capacity in use was taken.
        restarts: The number of times that capacity was started.
        spot_s: Time on spot capacity.
        on_demand_s: Time on on-demand capacity.
        waiting_s: Time without capacity.
        lost_work_s: Work that was done again.
        course: The way there. None where none was asked for.
    """

    cost_usd: FloatArray
    finish_s: FloatArray
    missed: BoolArray
    interruptions: IntArray
    restarts: IntArray
    spot_s: FloatArray
    on_demand_s: FloatArray
    waiting_s: FloatArray
    lost_work_s: FloatArray
    course: Course | None = None

    @property
    def used_on_demand(self) -> BoolArray:
        """True where on-demand capacity was used at all."""
        return self.on_demand_s > 0


class ReplayedCapacity(Protocol):
    """The capacity on which a job is played, as windows of a trace (`Windows`) or imagined ones (`forecast`)."""

    tick_s: float
    on_demand_price: float

    def __len__(self) -> int:
        """Return how many windows there are."""
        ...

    def ticks_for(self, job: PlannedJob) -> int:
        """Return how many decisions there are until the deadline.

        Raises:
            PlanError: A window reaches beyond the known time.
        """
        ...

    def at(self, tick: int) -> tuple[BoolArray, FloatArray]:
        """Return capacity and USD per hour in a tick, each (windows, zones)."""
        ...

    def pasts(self) -> tuple[Past, ...]:
        """Return the past that each window may know, which is the ticks before its start."""
        ...


def replay(job: PlannedJob, windows: ReplayedCapacity, policy: Policy, *, times: int = 0) -> Outcomes:
    """Play a policy on every window.

    A job that is not done at its deadline has missed it. It is finished on demand from there, so that its cost and its
    end are known.

    Args:
        job: The job.
        windows: The capacity.
        policy: The policy.
        times: The number of times at which the course of the windows is kept, and their end. 0 for no course.

    Raises:
        PlanError: A window reaches beyond the end of the trace, or the policy chose a zone that does not exist.
    """
    ticks = windows.ticks_for(job)
    decide = policy.begin(job=job, pasts=windows.pasts(), on_demand_price=windows.on_demand_price)
    fleet = _Fleet(job, count=len(windows), on_demand_price=windows.on_demand_price)
    seen: list[tuple[float, FloatArray, FloatArray]] = []
    for tick in range(ticks):
        available, price = windows.at(tick)
        fleet.take_away(available)
        time_left_s = job.deadline_s - tick * windows.tick_s
        chosen = decide(
            fleet.observation(
                tick=tick, tick_s=windows.tick_s, time_left_s=time_left_s, available=available, price=price
            )
        )
        fleet.change_to(chosen, available=available)
        fleet.work(min(windows.tick_s, time_left_s), price=price)
        is_last = not fleet.unfinished.any() or tick == ticks - 1
        if times and (is_last or not (tick + 1) % math.ceil(ticks / times)):
            seen.append((min((tick + 1) * windows.tick_s, job.deadline_s), *fleet.so_far()))
        if is_last:
            break
    outcomes = fleet.finish_on_demand()
    if not seen:
        return outcomes
    at_s, done_s, cost_usd = zip(*seen, strict=True)
    return replace(outcomes, course=Course(at_s=np.array(at_s), done_s=np.stack(done_s), cost_usd=np.stack(cost_usd)))


class _Fleet:
    """The state of all windows, and the three things that happen in a tick."""

    def __init__(self, job: PlannedJob, *, count: int, on_demand_price: float) -> None:
        self._job = job
        self._on_demand_price = on_demand_price
        self.unfinished = np.ones(count, dtype=np.bool_)
        self._using = np.full(count, WAIT, dtype=np.int64)
        # Work left when the capacity in use began to work; how long it has worked since; its restart still to come.
        self._base_s = np.full(count, float(job.work_s))
        self._ran_s = np.zeros(count)
        self._restart_left_s = np.zeros(count)
        self._elapsed_s = np.zeros(count)
        self._cost = np.zeros(count)
        self._interruptions = np.zeros(count, dtype=np.int64)
        self._restarts = np.zeros(count, dtype=np.int64)
        self._spot_s = np.zeros(count)
        self._on_demand_s = np.zeros(count)
        self._waiting_s = np.zeros(count)
        self._lost_s = np.zeros(count)

    def observation(
        self, *, tick: int, tick_s: float, time_left_s: float, available: BoolArray, price: FloatArray
    ) -> Observation:
        return Observation(
            tick=tick,
            tick_s=tick_s,
            time_left_s=time_left_s,
            work_left_s=self._base_s - self._done_s(),
            work_left_if_lost_s=self._base_s - self._kept_s(),
            using=self._using.copy(),
            restart_left_s=self._restart_left_s.copy(),
            available=available,
            spot_price=price,
        )

    def take_away(self, available: BoolArray) -> None:
        """Take away spot capacity that is not there in this tick, and with it the work that was not durable."""
        on_spot = self.unfinished & (self._using >= 0)
        taken = on_spot & ~available[np.arange(len(available)), np.maximum(self._using, 0)]
        if not taken.any():
            return
        done, kept = self._done_s(), self._kept_s()
        self._lost_s += np.where(taken, done - kept, 0.0)
        self._interruptions += taken
        self._start_again(taken, done_s=kept)
        self._using[taken] = WAIT

    def change_to(self, chosen: IntArray, *, available: BoolArray) -> None:
        """Change capacity. Capacity that a policy gives up saves first, and new capacity needs a restart."""
        chosen = np.asarray(chosen, dtype=np.int64)
        zones = available.shape[1]
        if chosen.max() >= zones or chosen.min() < ON_DEMAND:
            raise PlanError(f"a policy chose zone {chosen.max()}; there are {zones}")
        there = (chosen < 0) | available[np.arange(len(available)), np.maximum(chosen, 0)]
        chosen = np.where(there, chosen, WAIT)
        changed = self.unfinished & (chosen != self._using)
        if not changed.any():
            return
        saves = changed & (self._ran_s > 0) & (self._job.checkpoint_cost_s > 0)
        self._start_again(changed, done_s=self._done_s())
        started = changed & (chosen != WAIT)
        self._restarts += started
        self._restart_left_s[started] = self._job.restart_s
        # The save before leaving is made on the old capacity, whose second is worth about what the new one's is.
        self._restart_left_s[started & saves] += self._job.checkpoint_cost_s
        self._using[changed] = chosen[changed]

    def work(self, seconds: float, *, price: FloatArray) -> None:
        """Let a tick pass. A job that gets done stops paying at that moment."""
        busy = self.unfinished & (self._using != WAIT)
        to_end_s = self._restart_left_s + running_times_s(self._base_s, job=self._job) - self._ran_s
        used_s = np.where(busy, np.minimum(seconds, to_end_s), 0.0)
        restarting_s = np.minimum(used_s, self._restart_left_s)
        self._restart_left_s -= restarting_s
        self._ran_s += used_s - restarting_s
        on_spot = busy & (self._using >= 0)
        spot_price = price[np.arange(len(price)), np.maximum(self._using, 0)]
        hourly = np.where(on_spot, spot_price, self._on_demand_price)
        self._cost += used_s * hourly / _SECONDS_PER_HOUR
        self._spot_s += np.where(on_spot, used_s, 0.0)
        self._on_demand_s += np.where(on_spot, 0.0, used_s)
        self._waiting_s += np.where(self.unfinished & ~busy, seconds, 0.0)
        self._elapsed_s += np.where(busy, used_s, np.where(self.unfinished, seconds, 0.0))
        self.unfinished &= ~(busy & (to_end_s <= seconds + _NOTHING_LEFT_S))

    def so_far(self) -> tuple[FloatArray, FloatArray]:
        """Return the work that is done and the cost until now."""
        done_s = self._job.work_s - self._base_s + self._done_s()
        return np.where(self.unfinished, done_s, float(self._job.work_s)), self._cost.copy()

    def finish_on_demand(self) -> Outcomes:
        late = self.unfinished.copy()
        if late.any():
            elsewhere = late & (self._using != ON_DEMAND)
            self._start_again(elsewhere, done_s=self._done_s())
            self._restart_left_s[elsewhere] = self._job.restart_s
            self._restarts += elsewhere
            rest_s = np.where(
                late, self._restart_left_s + running_times_s(self._base_s, job=self._job) - self._ran_s, 0.0
            )
            self._cost += rest_s * self._on_demand_price / _SECONDS_PER_HOUR
            self._on_demand_s += rest_s
            self._elapsed_s += rest_s
        return Outcomes(
            cost_usd=self._cost,
            finish_s=self._elapsed_s,
            missed=late,
            interruptions=self._interruptions,
            restarts=self._restarts,
            spot_s=self._spot_s,
            on_demand_s=self._on_demand_s,
            waiting_s=self._waiting_s,
            lost_work_s=self._lost_s,
        )

    def _start_again(self, which: BoolArray, *, done_s: FloatArray) -> None:
        self._base_s = np.where(which, self._base_s - done_s, self._base_s)
        self._ran_s[which] = 0.0
        self._restart_left_s[which] = 0.0

    def _done_s(self) -> FloatArray:
        """Return the work done since the capacity in use began, as whole cycles and the working part of the last."""
        job = self._job
        if job.checkpoint_cost_s == 0:
            return self._ran_s.copy()
        cycles = np.floor(self._ran_s / job.cycle_s)
        return cycles * job.checkpoint_interval_s + np.minimum(
            self._ran_s - cycles * job.cycle_s, job.checkpoint_interval_s
        )

    def _kept_s(self) -> FloatArray:
        """Return the durable part of that."""
        job = self._job
        if job.saves_on_notice or job.checkpoint_interval_s == 0:
            return self._done_s()
        return np.floor(self._ran_s / job.cycle_s) * job.checkpoint_interval_s
