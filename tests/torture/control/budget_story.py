"""Stories of sweeps with a max_cost: those of sweeps, in which jobs are billed by the clock.

What all trials of a sweep have cost, by AWS's own count, is never more than its max_cost (docs/sweeps.md says what that
rests on). The story keeps to what it rests on, and to nothing else: a pass of the controller, which gets through, comes
every five minutes, and a job that is asked to stop ends within 120 seconds. Between two passes everything may happen
that happens in the other stories: capacity comes and goes, events are lost, functions die, calls are throttled. But for
what is outside of the promise: no record is written by a newer version, which no function of this one stops a trial by.
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from spotkeep_jobs.backends.backend import STOPS_WITHIN_SECONDS
from spotkeep_jobs.document.capacity import BETWEEN_PASSES_SECONDS
from tests.models.control_plane import PRICES
from tests.models.sagemaker import SPOT_SHARE, ModelJob
from tests.torture.control.story import QUIET, Circumstances, circumstances
from tests.torture.control.sweep_story import SWEEPS, SweepStory, names

_MOMENT_SECONDS: Final = 40
"""Time goes by in such parts, and what happens between two passes takes no longer than one."""
_ROUNDED_USD: Final = 0.001
"""SageMaker bills whole seconds."""
_LIMITS: Final = (0.12, 0.2, 0.4, 1.0)
_BESIDES: Final[tuple[dict[str, Any], ...]] = (
    {"capacity": "spot"},
    {"capacity": "on-demand"},
    {"capacity": "on-demand", "keep_alive": "10m"},
    {"capacity": "auto", "longest_wait": "30m"},
)


class BudgetStory(SweepStory):
    """One story.

    Attributes:
        limits: What each sweep may cost, in US dollars.
        besides: What else its document says.
    """

    limits: dict[str, float]
    besides: dict[str, dict[str, Any]]

    def __init__(self) -> None:
        super().__init__()
        self.service.bills_by_the_clock = True
        self.limits = dict.fromkeys(SWEEPS, max(_LIMITS))
        self.besides = {}
        self._passed = 0.0
        self._keeps_pace = False

    @initialize(
        limits=st.fixed_dictionaries({name: st.sampled_from(_LIMITS) for name in SWEEPS}),
        besides=st.fixed_dictionaries({name: st.sampled_from(_BESIDES) for name in SWEEPS}),
    )
    def sweeps_have_a_max_cost(self, limits: dict[str, float], besides: dict[str, dict[str, Any]]) -> None:
        self.besides = besides
        self.limits = limits
        for name in SWEEPS:
            self.a_user_launches_a_sweep(name=name)

    @rule(name=names, limit=st.sampled_from(_LIMITS), how=circumstances)
    def a_user_gives_another_max_cost(self, name: str, limit: float, how: Circumstances = QUIET) -> None:
        document = {"action": "resume", "sweep": name, "changes": {"max_cost": limit}}
        self._invoke("launcher", lambda: self._answer(document), how=how)

    @rule(minutes=st.sampled_from([10, 45, 120]))
    def trainings_go_on(self, minutes: int) -> None:
        """Let all jobs have their instances, and time go by."""
        for service_job in self.service.batch.unfinished:
            if service_job.waits:
                self.service.batch.has_its_turn(service_job)
        for job in self.service.launched:
            if job.status == "InProgress" and not job.on_instances:
                self.service.gets_capacity(job)
                self._keep_pace()
        self._let_pass(60.0 * minutes)

    @invariant()
    def no_sweep_costs_more_than_it_may(self) -> None:
        self._keep_pace()
        for sweep, _ in self._sweeps():
            limit = sweep.document.get("max_cost")
            if limit is None:
                continue
            cost = sum(self._cost_usd(job) for job in self._all_jobs() if self._is_of(job.run, sweep.sweep))
            assert cost <= limit + _ROUNDED_USD, f"{sweep.sweep} may cost {limit} USD, and has cost {cost:.4f}"
            self.happenings["sweeps that cost more than half of what they may"] += cost > limit / 2

    def a_newer_version_writes_records(self, **_how: Any) -> None:
        """Leave this rule of the other stories out: a trial whose record cannot be read is not stopped."""

    def _asks_besides(self, name: str) -> dict[str, Any]:
        besides = self.besides.get(name, {})
        return {"max_cost": self.limits[name], "max_run": "5d", **besides}

    def _let_pass(self, seconds: float) -> None:
        ends = self.service.seconds + seconds
        while self.service.seconds < ends:
            self.service.seconds = min(ends, self.service.seconds + _MOMENT_SECONDS)
            self._keep_pace()

    def _keep_pace(self) -> None:
        """End what stops, and make a pass if one is due: what the promise rests on."""
        if self._keeps_pace:
            return
        self._keeps_pace = True
        for job in self.service.launched:
            since = job.stopping_since
            if since is not None and self.service.seconds - since >= STOPS_WITHIN_SECONDS - 2 * _MOMENT_SECONDS:
                self.service.ends(job, "Stopped")
        if self.service.seconds - self._passed >= BETWEEN_PASSES_SECONDS - 2 * _MOMENT_SECONDS:
            unsureness, self.service.unsureness = self.service.unsureness, None
            self.service.dynamodb.let_indexes_catch_up()
            self._passed = self.service.seconds
            self._invoke("controller", self._pass_over_runs)
            self._deliver()
            self.service.unsureness = unsureness
        self._keeps_pace = False

    def _all_jobs(self) -> list[ModelJob]:
        return [*self.service.launched, *(job for job in self.service.deleted if not job.by_hand)]

    def _cost_usd(self, job: ModelJob) -> float:
        """Return what a job has cost until now, with its warm pool."""
        seconds = float(job.billable_seconds)
        if job.instances_since is not None:
            now = self.service.seconds - job.instances_since
            seconds = (job.seconds_with_instances + now) * (SPOT_SHARE if job.spot else 1.0)
        self.service.pools_expire()
        idle = self.service.seconds - job.pool_since if job.pool == "Available" else job.pool_idle_seconds
        return (seconds + idle) * PRICES[self._type_of(job)] / 3600
