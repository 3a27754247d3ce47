"""The steering of a run that is under way, by the last safe moment for on-demand and a solved policy in a small table.

The guard decides from the clock and the work left alone. A choice may turn out as badly as it can until the next
decision. It is safe when on-demand capacity still finishes the job in time after that. The rule knows no trace, no
model and no price, so no mistake in those can miss a deadline. It takes for granted that on-demand capacity starts when
it is asked for, and within the restart time.

The planner fits and solves with arrays. Its result is a threshold of slack for each age of the capacity and each amount
of work left. That fits into a few kilobytes of JSON. This module reads it with the standard library alone, so that a
Lambda function can steer a run. Each decision passes the guard, and gives its reason in words for the run's timeline.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from spotkeep_planner.errors import DecisionTableError


class Choice(Enum):
    """The capacity to use until the next decision."""

    WAIT = "wait"
    SPOT = "spot"
    ON_DEMAND = "on-demand"


@dataclass(frozen=True, kw_only=True)
class DeadlineClock:
    """The state of a run against its deadline. All durations are in seconds.

    Attributes:
        time_left_s: Until the deadline.
        work_left_s: Work that is not done, as if nothing happened to the capacity in use.
        work_left_if_lost_s: Work that is not done if the capacity in use vanished now, so that only durable work
            counts.
        restart_s: From asking for capacity to working, the loading of a checkpoint included.
        restart_left_s: The rest of the restart of the capacity in use. 0 when it works.
        decision_interval_s: Until the next decision.
    """

    time_left_s: float
    work_left_s: float
    work_left_if_lost_s: float
    restart_s: float
    restart_left_s: float
    decision_interval_s: float


def is_safe(choice: Choice, *, using: Choice, clock: DeadlineClock, kept_until_next_decision_s: float = 0.0) -> bool:
    """Return True if a choice leaves enough time to finish on demand, should it go as badly as it can.

    Args:
        choice: The choice under consideration.
        using: The capacity in use now, or `Choice.WAIT` when there is none, or when it was just taken.
        clock: The state of the run.
        kept_until_next_decision_s: Work on spot in this interval that is sure to be durable at its end. 0, the default,
            assumes that capacity is taken at once. A replay that knows a tick to be whole may say more.

    Returns:
        True for on-demand always, as nothing is safer. For waiting and spot, True when on-demand can still be started
        at the next decision.
    """
    if choice is Choice.ON_DEMAND:
        return True
    if choice is Choice.SPOT and using is Choice.SPOT:
        # Capacity that is kept may hold work that is not durable: it counts as done only where it is sure to be kept.
        left_after_s = clock.work_left_if_lost_s - kept_until_next_decision_s
    else:
        # Leaving capacity of one's own accord saves first: the work done counts.
        left_after_s = clock.work_left_s - (kept_until_next_decision_s if choice is Choice.SPOT else 0.0)
    return clock.time_left_s - clock.decision_interval_s >= clock.restart_s + max(0.0, left_after_s)


def last_safe_wait_s(clock: DeadlineClock) -> float:
    """Return how long a run without capacity may still wait before on-demand must be started. Never negative."""
    return max(0.0, clock.time_left_s - clock.restart_s - clock.work_left_if_lost_s)


VERSION = 1
_ALWAYS_S = 10**9
"""Stands for an infinite threshold, which JSON cannot hold."""


@dataclass(frozen=True, kw_only=True)
class ZoneView:
    """The knowledge of a zone now.

    Attributes:
        available: True if it has spot capacity.
        age_s: The seconds for which that has been so.
        spot_price: USD per hour.
    """

    available: bool
    age_s: float
    spot_price: float


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A decision, and its reason.

    Attributes:
        choice: The capacity to use until the next decision.
        zone: The zone to use, for spot.
        reason: A sentence for a timeline.
        slack_s: The time to spare beyond the work left, in seconds.
        threshold_s: The slack below which on-demand is used, in seconds.
    """

    choice: Choice
    zone: int | None
    reason: str
    slack_s: float
    threshold_s: float


@dataclass(frozen=True, kw_only=True)
class DecisionTable:
    """A solved policy.

    Attributes:
        age_edges_s: The ends of the age bands of capacity, of which the last is open.
        work_step_s: The work between two columns, in seconds.
        from_nothing_s: The slack in seconds below which on-demand is started, with nothing in use. It has a row for
            each cell (droughts by age, then runs by age) and a column for each step of work left.
        from_on_demand_s: The same with on-demand in use.
        zones: The zones it was solved for.
        horizons_s: The horizons of `lasting_s`.
        lasting_s: For each zone and age band, how long a run goes on, within each horizon.
        slack_step_s: The slack between two columns of `restart_usd`.
        restart_usd: The cost of a restart beyond its price, in slack, for each step of work left and of slack.
    """

    age_edges_s: tuple[float, ...]
    work_step_s: float
    from_nothing_s: tuple[tuple[float, ...], ...]
    from_on_demand_s: tuple[tuple[float, ...], ...]
    zones: tuple[str, ...]
    horizons_s: tuple[float, ...]
    lasting_s: tuple[tuple[tuple[float, ...], ...], ...]
    slack_step_s: float
    restart_usd: tuple[tuple[float, ...], ...]

    def decide(
        self,
        clock: DeadlineClock,
        *,
        using: Choice,
        using_zone: int | None,
        zones: Sequence[ZoneView],
        any_age_s: float,
        spot_is_kept: bool = False,
    ) -> Decision:
        """Return the capacity to use until the next decision.

        Args:
            clock: The state of the run.
            using: The capacity that is in use, and still there.
            using_zone: The zone in use, for spot.
            zones: The knowledge of each zone now, in the order of the table.
            any_age_s: The seconds for which there has been capacity in some zone, or in none.
            spot_is_kept: True if spot that is there now is sure to be there, and its work durable, at the next
                decision. Only a replay knows.
        """
        some = any(zone.available for zone in zones)
        leaving_s = clock.restart_left_s if using is Choice.ON_DEMAND else 0.0
        slack_s = clock.time_left_s - clock.work_left_s - leaving_s
        bands = len(self.age_edges_s) + 1
        cell = (bands if some else 0) + bisect_right(self.age_edges_s, any_age_s)
        rows = self.from_on_demand_s if using is Choice.ON_DEMAND else self.from_nothing_s
        threshold_s = _at(rows[cell], clock.work_left_s, step=self.work_step_s)
        zone: int | None = None
        if using is Choice.SPOT or (some and slack_s >= threshold_s):
            choice, zone = Choice.SPOT, self.best_zone(clock, using_zone=using_zone, zones=zones, slack_s=slack_s)
            reason = self._why_spot(using=using, using_zone=using_zone, zone=zone, slack_s=slack_s)
        elif slack_s < threshold_s:
            choice = Choice.ON_DEMAND
            reason = f"{spoken_time(slack_s)} to spare, and on-demand pays {_below(threshold_s)}"
        else:
            choice = Choice.WAIT
            reason = (
                f"no spot capacity for {spoken_time(any_age_s)}; {spoken_time(slack_s)} to spare, "
                f"on-demand {_below(threshold_s)}"
            )
        if choice is Choice.SPOT and not self._is_safe(clock, zone, using_zone=using_zone, spot_is_kept=spot_is_kept):
            # A move that is too late to risk is no reason to give up the capacity in use.
            stays = using is Choice.SPOT and self._is_safe(
                clock, using_zone, using_zone=using_zone, spot_is_kept=spot_is_kept
            )
            zone, choice = (using_zone, choice) if stays else (None, Choice.ON_DEMAND)
            reason = self._why_guarded(clock, slack_s=slack_s)
        elif choice is Choice.WAIT and not is_safe(choice, using=using, clock=clock):
            choice, reason = Choice.ON_DEMAND, self._why_guarded(clock, slack_s=slack_s)
        return Decision(choice=choice, zone=zone, reason=reason, slack_s=slack_s, threshold_s=threshold_s)

    def best_zone(
        self, clock: DeadlineClock, *, using_zone: int | None, zones: Sequence[ZoneView], slack_s: float
    ) -> int | None:
        """Return the zone where an hour of work costs least for as long as capacity lasts there. None if none has any.

        A zone in use is left only for one that pays for the restart and for the slack it uses up.
        """
        there = [number for number, zone in enumerate(zones) if zone.available]
        if not there:
            return None
        left_s = max(clock.work_left_s, clock.decision_interval_s)
        row = self.restart_usd[min(_nearest(clock.work_left_s, step=self.work_step_s), len(self.restart_usd) - 1)]
        slack_usd = row[min(max(0, int(slack_s / self.slack_step_s)), len(row) - 1)]
        restart_h = clock.restart_s / 3600
        horizon = min(bisect_right(self.horizons_s, left_s - 1e-9), len(self.horizons_s) - 1)
        lasting_h = [
            min(rows[bisect_right(self.age_edges_s, zone.age_s)][horizon], left_s) / 3600
            for rows, zone in zip(self.lasting_s, zones, strict=True)
        ]

        def hourly(number: int) -> float:
            useful_h = max(lasting_h[number] - restart_h, 0.1 * lasting_h[number])
            return (zones[number].spot_price * lasting_h[number] + slack_usd) / useful_h

        best = min(there, key=hourly)
        if using_zone is None or using_zone not in there:
            return best
        together_h = 1.0 / (1.0 / lasting_h[using_zone] + 1.0 / lasting_h[best])
        moving_usd = zones[best].spot_price * (together_h + restart_h) + slack_usd
        return best if moving_usd < zones[using_zone].spot_price * together_h else using_zone

    def as_one_source(self) -> DecisionTable:
        """Return the same policy without zones, for a cloud that chooses the zone, as managed spot does."""
        longest = tuple((row[-1],) for row in self.lasting_s[0])
        return replace(
            self, zones=("any",), horizons_s=self.horizons_s[-1:], lasting_s=(longest,), restart_usd=((0.0,),)
        )

    def as_document(self) -> dict[str, Any]:
        """Return the table as JSON, in whole seconds."""
        return {
            "version": VERSION,
            "age_edges_s": list(self.age_edges_s),
            "work_step_s": self.work_step_s,
            "from_nothing_s": [[_whole(value) for value in row] for row in self.from_nothing_s],
            "from_on_demand_s": [[_whole(value) for value in row] for row in self.from_on_demand_s],
            "zones": list(self.zones),
            "horizons_s": list(self.horizons_s),
            "lasting_s": [[[_whole(value) for value in row] for row in zone] for zone in self.lasting_s],
            "slack_step_s": self.slack_step_s,
            "restart_usd": [[float(f"{value:.3g}") for value in row] for row in self.restart_usd],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> DecisionTable:
        """Read a document of `as_document`.

        Raises:
            DecisionTableError: It is of another version, or damaged.
        """
        if document.get("version") != VERSION:
            raise DecisionTableError(
                f"the decision table has version {document.get('version')!r}, this code reads {VERSION}: "
                "plan the run again"
            )
        try:
            table = cls(
                age_edges_s=tuple(map(float, document["age_edges_s"])),
                work_step_s=float(document["work_step_s"]),
                from_nothing_s=_rows(document["from_nothing_s"]),
                from_on_demand_s=_rows(document["from_on_demand_s"]),
                zones=tuple(map(str, document["zones"])),
                horizons_s=tuple(map(float, document["horizons_s"])),
                lasting_s=tuple(_rows(zone) for zone in document["lasting_s"]),
                slack_step_s=float(document["slack_step_s"]),
                restart_usd=_rows(document["restart_usd"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DecisionTableError(f"the decision table is damaged ({error!r}): plan the run again") from error
        cells = 2 * (len(table.age_edges_s) + 1)
        if not (
            len(table.from_nothing_s) == len(table.from_on_demand_s) == cells
            and all(table.from_nothing_s)
            and all(table.from_on_demand_s)
            and len(table.lasting_s) == len(table.zones)
            and all(table.restart_usd)
            and table.work_step_s > 0
            and table.slack_step_s > 0
        ):
            raise DecisionTableError("the decision table is damaged (rows are missing): plan the run again")
        return table

    def _is_safe(self, clock: DeadlineClock, zone: int | None, *, using_zone: int | None, spot_is_kept: bool) -> bool:
        staying = zone == using_zone
        starting_s = clock.restart_left_s if staying else clock.restart_s
        return is_safe(
            Choice.SPOT,
            using=Choice.SPOT if staying else Choice.WAIT,
            clock=clock,
            kept_until_next_decision_s=max(0.0, clock.decision_interval_s - starting_s) if spot_is_kept else 0.0,
        )

    def _why_guarded(self, clock: DeadlineClock, *, slack_s: float) -> str:
        restart = f"a restart takes {spoken_time(clock.restart_s)}"
        return f"the last safe moment for on-demand: {spoken_time(slack_s)} to spare, {restart}"

    def _why_spot(self, *, using: Choice, using_zone: int | None, zone: int | None, slack_s: float) -> str:
        name = self.zones[zone] if zone is not None else "?"
        if len(self.zones) == 1:
            return f"spot is there, {spoken_time(slack_s)} to spare"
        if using is Choice.SPOT and zone == using_zone:
            return f"spot in {name} is there, {spoken_time(slack_s)} to spare"
        if using is Choice.SPOT and using_zone is not None:
            return f"from {self.zones[using_zone]} to {name}: cheaper by more than the restart costs"
        return f"spot in {name}, {spoken_time(slack_s)} to spare"


def _at(row: Sequence[float], work_s: float, *, step: float) -> float:
    return row[min(_nearest(work_s, step=step), len(row) - 1)]


def _nearest(value: float, *, step: float) -> int:
    return max(0, round(value / step))


def _whole(value: float) -> int:
    return max(
        -_ALWAYS_S, min(_ALWAYS_S, round(value)) if abs(value) < _ALWAYS_S else (_ALWAYS_S if value > 0 else -_ALWAYS_S)
    )


def _below(threshold_s: float) -> str:
    if threshold_s >= _ALWAYS_S:
        return "whatever is to spare"
    return f"below {spoken_time(threshold_s)}" if threshold_s > 0 else "at the last safe moment"


def _rows(rows: Any) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(map(float, row)) for row in rows)


def spoken_time(seconds: float) -> str:
    """Return a duration in a reason, such as `12 min` or `8.0 h`."""
    return f"{seconds / 3600:.1f} h" if abs(seconds) >= 3570 else f"{seconds / 60:.0f} min"
