"""What becomes of a sweep and its trials, from their records and from what their runs are now.

A sweep asks for its trials' jobs a little slower than AWS takes them, whichever functions do.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from launcher.actions import ActionContext, advance_sweep
from launcher.payload import SweepAdvance, read_own_event
from spotkeep_jobs.errors import RequestRefusedError
from spotkeep_jobs.record.record import Metric, ScriptMetrics
from spotkeep_jobs.record.states import EndReason, RunState, SweepState, TrialState
from spotkeep_jobs.record.sweep import Sweep, Trial
from spotkeep_jobs.runs.run_reconciler import RunReconciler
from spotkeep_jobs.sweeps.advance import FOLLOWS_WITHIN, Sweeps
from spotkeep_jobs.sweeps.decision import (
    CREATIONS_A_SECOND,
    SUBMISSIONS_A_SECOND,
    Seen,
    SeenRun,
    Task,
    between_jobs,
    failed,
    paced,
    results_of,
    settled,
    summed_up,
    task_of,
)
from spotkeep_jobs.sweeps.document import Objective, SweepRequest
from spotkeep_jobs.sweeps.launch import SweepLaunch
from spotkeep_jobs.sweeps.launcher_function import MOST_IN_A_ROW, launcher_of
from spotkeep_jobs.sweeps.search.search import Promote, next_moves
from spotkeep_local.access.call_rates import CALLS_A_SECOND
from tests.models.account import Account
from tests.models.clock import NOON
from tests.models.control_plane import PRICES, ControlPlane

SPACE = {"lr": {"log_uniform": [1e-4, 1e-1]}}
RANDOM = SweepRequest.model_validate(
    {"parameters": SPACE, "search": "random", "trials": 10, "objective": {"metric": "loss", "goal": "minimize"}}
)
ASHA = SweepRequest.model_validate(
    {
        "parameters": SPACE,
        "search": "asha",
        "trials": 10,
        "objective": {"metric": "loss", "goal": "minimize"},
        "asha": {"min_steps": 10, "max_steps": 90},
    }
)


def sweep(**fields: Any) -> Sweep:
    facts: dict[str, Any] = {
        "sweep": "s",
        "name": "s",
        "created_at": NOON,
        "updated_at": NOON,
        "token": "t",
        "document": {"max_cost": 10},
    }
    return Sweep(**facts | fields)


def trial(number: int = 1, **fields: Any) -> Trial:
    facts: dict[str, Any] = {"sweep": "s", "number": number, "run": f"s-{number}", "parameters": {"lr": 0.01}}
    return Trial(**facts | fields)


def failed_trials(*reasons: str) -> tuple[Trial, ...]:
    return tuple(
        trial(number, state=TrialState.FAILED, failure_reason=reason) for number, reason in enumerate(reasons, start=1)
    )


def ends_as(trials: tuple[Trial, ...], **of_sweep: Any) -> Sweep:
    return summed_up(sweep(**of_sweep), request=RANDOM, trials=trials, search_is_over=True, now=NOON)


class TestResults:
    def test_a_search_sees_the_best_value_of_a_trial_at_the_step_where_it_was(self) -> None:
        reported = [trial(best=0.25, best_step=300, values={10: 0.9}), trial(2, best=0.25), trial(3)]
        assert [(seen.number, seen.parameters, seen.values) for seen in results_of(reported, RANDOM)] == [
            (1, {"lr": 0.01}, {300: 0.25}),
            (2, {"lr": 0.01}, {0: 0.25}),
            (3, {"lr": 0.01}, {}),
        ]

    def test_asha_sees_the_values_where_trials_paused(self) -> None:
        [seen] = results_of([trial(best=0.25, best_step=300, values={10: 0.9})], ASHA)
        assert seen.values == {10: 0.9}


class TestTrials:
    def followed(self, make: Any, *, metrics: ScriptMetrics | None = None, **of_run: Any) -> Trial:
        run = make.run("s-1", ended_at=NOON, **of_run)
        seen = {"s-1": SeenRun(run=run, metrics=metrics)}
        _, [found] = settled(sweep(), request=RANDOM, trials=[trial()], seen=Seen(runs=seen, prices=PRICES, now=NOON))
        return found

    def test_one_that_failed_says_why(self, make: Any) -> None:
        end = {"state": RunState.FAILED, "end_reason": EndReason.SCRIPT_FAILED}
        found = self.followed(make, **end, failure_reason="exit code 3")
        assert (found.state, found.failure_reason) == (TrialState.FAILED, f"{EndReason.SCRIPT_FAILED}: exit code 3")
        assert self.followed(make, **end).failure_reason == EndReason.SCRIPT_FAILED.value

    def test_one_that_completed_has_no_reason(self, make: Any) -> None:
        found = self.followed(
            make, state=RunState.COMPLETED, end_reason=EndReason.COMPLETED, failure_reason="of an earlier attempt"
        )
        assert (found.state, found.failure_reason, found.attempt) == (TrialState.COMPLETED, None, 2)

    @pytest.mark.parametrize(
        ("measured", "best"),
        [
            ({"best": 0.2, "best_step": 40}, (0.2, 40)),
            ({}, (0.3, 90)),
        ],
    )
    def test_its_best_is_the_metrics_best_or_else_the_last(
        self, measured: dict[str, Any], best: tuple[float, int], make: Any
    ) -> None:
        metrics = ScriptMetrics(metrics={"loss": Metric(last=0.3, last_step=90, **measured)})
        found = self.followed(make, metrics=metrics, state=RunState.COMPLETED, end_reason=EndReason.COMPLETED)
        assert (found.best, found.best_step, found.step) == (*best, 90)

    def test_one_whose_run_could_not_be_opened_has_failed_for_that(self) -> None:
        found = failed(trial(), reason="the launcher refused it")
        assert (found.state, found.failure_reason) == (TrialState.FAILED, "the launcher refused it")

    def test_what_it_asks_for(self, make: Any) -> None:
        assert task_of(trial(), None, sweep=sweep()) is Task.OPEN
        ended = SeenRun(run=make.run("s-1", state=RunState.STOPPED, attempt=1))
        assert task_of(trial(attempt=2), ended, sweep=sweep()) is Task.RESUME
        assert task_of(trial(attempt=1), ended, sweep=sweep()) is None
        trains = SeenRun(run=make.run("s-1", state=RunState.TRAINING, attempt=1))
        assert task_of(trial(attempt=2), trains, sweep=sweep()) is None
        assert task_of(trial(stop_because="in vain"), trains, sweep=sweep()) is Task.STOP


class TestPauses:
    """Asha, which pauses trials after 10 and 30 steps."""

    def paused(self, make: Any, *, at: int | None, request: SweepRequest = ASHA) -> Trial:
        end = {"state": RunState.STOPPED, "end_reason": EndReason.PAUSED, "ended_at": NOON, "paused_at_step": at}
        metrics = ScriptMetrics(metrics={"loss": Metric(last=0.3, last_step=at or 10)})
        seen = {"s-1": SeenRun(run=make.run("s-1", **end), metrics=metrics)}
        _, [found] = settled(
            sweep(), request=request, trials=[trial(pause_at_step=10)], seen=Seen(runs=seen, prices=PRICES, now=NOON)
        )
        return found

    @pytest.mark.parametrize("at", [None, 10, 29])
    def test_a_trial_has_a_value_where_it_was_to_pause(self, at: int | None, make: Any) -> None:
        found = self.paused(make, at=at)
        assert (found.state, found.values) == (TrialState.PAUSED, {10: 0.3})

    @pytest.mark.parametrize("at", [30, 75])
    def test_one_that_could_not_save_until_it_had_passed_its_next_pause_is_compared_there_too(
        self, at: int, make: Any
    ) -> None:
        found = self.paused(make, at=at)
        assert found.values == {10: 0.3, 30: 0.3}
        others = [trial(number, state=TrialState.PAUSED, values={10: 0.5, 30: 0.5}) for number in (2, 3)]
        assert ASHA.plan is not None
        moves = next_moves(ASHA.plan, trials=results_of([found, *others], ASHA), free=1)
        assert moves == (Promote(number=1, pause_at_step=None),), "its run refuses to pause at 30 steps once more"

    def test_a_search_that_pauses_no_trial_compares_none_on_its_way(self, make: Any) -> None:
        assert self.paused(make, at=75, request=RANDOM).values == {10: 0.3}


class TestFailures:
    def test_three_before_any_trial_has_come_anywhere_end_the_sweep_with_the_last_ones_reason(self) -> None:
        now = NOON + timedelta(minutes=1)
        trials = failed_trials("first", "second", "third")
        found, _ = settled(sweep(), request=RANDOM, trials=trials, seen=Seen(runs={}, prices=PRICES, now=now))
        assert (found.state, found.stops_as) == (SweepState.STOPPING, SweepState.FAILED)
        assert found.ended_because == "3 trials failed and no other came further, the last one with: third"
        assert found.stop_requested_at == now

    @pytest.mark.parametrize("further", [{"state": TrialState.PAUSED}, {"state": TrialState.COMPLETED}, {"best": 0.5}])
    def test_one_that_came_further_lets_it_go_on(self, further: dict[str, Any]) -> None:
        trials = (*failed_trials("first", "second", "third"), trial(4, **further))
        found, _ = settled(sweep(), request=RANDOM, trials=trials, seen=Seen(runs={}, prices=PRICES, now=NOON))
        assert found.state is SweepState.RUNNING

    def test_two_do_not_end_it(self) -> None:
        found, _ = settled(
            sweep(),
            request=RANDOM,
            trials=failed_trials("first", "second"),
            seen=Seen(runs={}, prices=PRICES, now=NOON),
        )
        assert found.state is SweepState.RUNNING


class TestBest:
    @pytest.mark.parametrize(("goal", "number"), [("minimize", 2), ("maximize", 3)])
    def test_it_is_the_smallest_or_the_largest_value_and_of_equals_the_first(self, goal: str, number: int) -> None:
        request = RANDOM.model_copy(update={"objective": Objective.model_validate({"metric": "loss", "goal": goal})})
        values = {1: 0.5, 2: 0.2, 3: 0.9, 4: 0.2, 5: 0.9}
        trials = [trial(each, best=value, best_step=each, state=TrialState.PAUSED) for each, value in values.items()]
        found = summed_up(sweep(), request=request, trials=trials, search_is_over=False, now=NOON).best
        assert found is not None
        assert (found.number, found.value, found.step) == (number, values[number], number)

    def test_without_an_objective_there_is_none(self) -> None:
        aimless = RANDOM.model_copy(update={"objective": None})
        trials = [trial(best=0.5)]
        assert summed_up(sweep(), request=aimless, trials=trials, search_is_over=False, now=NOON).best is None


class TestEnd:
    def test_a_search_that_is_over_completes_when_no_trial_runs(self) -> None:
        found = ends_as((trial(state=TrialState.COMPLETED),))
        assert (found.state, found.ended_because, found.ended_at) == (SweepState.COMPLETED, None, NOON)
        assert ends_as((trial(),)).state is SweepState.RUNNING

    def test_with_some_failures_it_has_completed_and_with_nothing_else_it_has_failed(self) -> None:
        some = (*failed_trials("first"), trial(2, state=TrialState.COMPLETED))
        assert (ends_as(some).state, ends_as(some).ended_because) == (SweepState.COMPLETED, None)
        all_of_them = ends_as(failed_trials("first", "second"))
        assert (all_of_them.state, all_of_them.ended_because) == (SweepState.FAILED, "all 2 trials failed")

    def test_one_that_stops_ends_as_what_it_stops_as(self) -> None:
        over = (trial(state=TrialState.STOPPED),)
        as_failed = ends_as(over, state=SweepState.STOPPING, stops_as=SweepState.FAILED)
        assert (as_failed.state, as_failed.stops_as, as_failed.ended_at) == (SweepState.FAILED, None, NOON)
        assert ends_as(over, state=SweepState.STOPPING).state is SweepState.STOPPED

    def test_one_that_has_ended_stays_as_it_is(self) -> None:
        found = ends_as((trial(state=TrialState.COMPLETED),), state=SweepState.STOPPED, ended_at=NOON)
        assert found.state is SweepState.STOPPED


IN_A_QUEUE = {"queue": "gpu", "share": "vision"}
APART = timedelta(seconds=0.25)


def sweep_of(document: dict[str, Any], **fields: Any) -> Sweep:
    return Sweep(sweep="s", name="s", created_at=NOON, updated_at=NOON, token="token", document=document, **fields)


def trials(*numbers: int) -> list[Trial]:
    return [Trial(sweep="s", number=number, run=f"s-{number}", parameters={}) for number in numbers]


def test_it_is_slower_than_the_rates_of_aws() -> None:
    assert {"CreateTrainingJob": CREATIONS_A_SECOND, "SubmitServiceJob": SUBMISSIONS_A_SECOND}.items() <= (
        CALLS_A_SECOND.items()
    )
    assert between_jobs({}) == timedelta(seconds=1.25)
    assert between_jobs(IN_A_QUEUE) == APART
    assert between_jobs({"backend": "ec2"}) == timedelta(0)


def test_each_trial_has_its_moment_and_the_next_function_goes_on_after_them() -> None:
    first, moments = paced(sweep_of(IN_A_QUEUE), asking=trials(4, 7), now=NOON)
    assert moments == {4: NOON, 7: NOON + APART}
    assert first.next_job_at == NOON + 2 * APART
    _, moments = paced(first, asking=trials(8), now=NOON)
    assert moments == {8: NOON + 2 * APART}


def test_moments_that_went_by_unused_are_not_made_up_for() -> None:
    later = NOON + timedelta(hours=1)
    _, moments = paced(sweep_of(IN_A_QUEUE, next_job_at=NOON), asking=trials(1, 2), now=later)
    assert moments == {1: later, 2: later + APART}


@pytest.mark.parametrize("document", [{"backend": "ec2"}, IN_A_QUEUE])
def test_without_a_pace_or_a_trial_that_asks_nothing_changes(document: dict[str, Any]) -> None:
    sweep = sweep_of(document)
    assert paced(sweep, asking=trials(1) if "backend" in document else [], now=NOON) == (sweep, {})


class Deployment:
    """Launcher and record on a model of AWS, where waiting takes time."""

    def __init__(self, *, trials: int = 8, parallel: int = 4) -> None:
        self.service = Account()
        self.plane = ControlPlane(self.service, sleep=self._sleep)
        sweep = {"trials": [{"seed": seed} for seed in range(trials)], "parallel": parallel}
        asked = {"name": "s", "run": "s", "command": "x", "capacity": "on-demand", "sweep": sweep}
        SweepLaunch(self.plane.launcher).launch(asked, default_token="token")

    def advance(self, **how: Any) -> str | None:
        """Let the launcher advance the sweep; return why it could not do all."""
        advanced = Sweeps(self.plane.launcher).advance("s", **how)
        assert advanced is not None
        return advanced.waits_because

    def invoke(self, asked: dict[str, Any], *, lambda_lasts: float = 45) -> None:
        """Let Lambda invoke the launcher, which may ask to be invoked once more."""
        ends = self.service.seconds + lambda_lasts
        context = ActionContext(
            deployment=self.plane.launcher,
            request_id="request",
            seconds_left=lambda: ends - self.service.seconds,
            go_on=lambda rest: launcher_of(self.plane.controller).advance(rest.sweep, in_a_row=rest.in_a_row),
        )
        event = read_own_event(asked)
        assert isinstance(event, SweepAdvance)
        advance_sweep(event, context)

    def deliver(self) -> int:
        """Let all invocations come that wait, and those that they ask for; return how many there were."""
        invocations = 0
        while self.service.functions.waiting:
            self.service.functions.deliver(self.invoke)
            invocations += 1
        return invocations

    def complete(self, *numbers: int) -> None:
        for number in numbers:
            job = self.service.jobs[f"s-{number}-1"]
            self.service.becomes(job.name, "Completed")
            RunReconciler(self.plane.controller).reconcile(job.run)

    def _sleep(self, seconds: float) -> None:
        self.service.seconds += seconds


def test_a_sweep_creates_its_first_jobs_one_after_the_other() -> None:
    deployment = Deployment()
    assert deployment.advance() is None
    created = [job.created for job in deployment.service.jobs.values()]
    assert created == [0.0, 1.25, 2.5, 3.75]


def test_functions_that_advance_a_sweep_at_the_same_time_keep_the_pace_together() -> None:
    deployment = Deployment()
    deployment.advance()
    began = deployment.service.seconds
    deployment.complete(1, 2)
    for number in (1, 2):
        deployment.service.seconds = began  # Both functions begin now.
        deployment.advance(ended_runs=[f"s-{number}"])
    created = [deployment.service.jobs[f"s-{number}-1"].created - began for number in (5, 6)]
    assert created == [1.25, 2.5]


def test_what_a_function_has_no_time_for_has_its_job_later() -> None:
    deployment = Deployment()
    assert deployment.advance(seconds_left=lambda: 2 - deployment.service.seconds) == "there is no time left"
    assert list(deployment.service.jobs) == ["s-1-1", "s-2-1"]
    recorded = deployment.plane.record.sweeps.with_trials("s")[1]
    assert [trial.state for trial in recorded] == [TrialState.RUNNING] * 4
    deployment.service.seconds += 300
    assert deployment.advance() is None
    assert [job.created for job in deployment.service.jobs.values()][2:] == [301.25, 302.5]


def test_two_hundred_trials_at_once_begin_in_the_time_that_the_rate_allows_without_a_pass() -> None:
    deployment = Deployment(trials=200, parallel=200)
    launcher_of(deployment.plane.controller).advance("s")
    invocations = deployment.deliver()
    created = [job.created for job in deployment.service.jobs.values()]
    assert len(created) == 200
    assert min(after - before for before, after in pairwise(created)) >= 1 / CREATIONS_A_SECOND
    assert created[-1] == pytest.approx(200 * 1.25, abs=2)
    assert invocations == 6


def test_a_row_of_functions_has_an_end_and_the_next_pass_begins_another() -> None:
    deployment = Deployment(trials=500, parallel=500)
    launcher_of(deployment.plane.controller).advance("s")
    assert deployment.deliver() == 1 + MOST_IN_A_ROW
    begun = len(deployment.service.jobs)
    assert 1 + MOST_IN_A_ROW < 16, "where Lambda takes it for a loop"
    assert begun * 1.25 > 300, "a pass comes before its end"
    deployment.service.seconds += 300
    launcher_of(deployment.plane.controller).advance("s")
    deployment.deliver()
    assert len(deployment.service.jobs) == 500


def test_of_many_functions_that_have_no_time_left_one_is_followed() -> None:
    deployment = Deployment(trials=200, parallel=100)
    launcher_of(deployment.plane.controller).advance("s")
    deployment.deliver()
    deployment.service.seconds += 3600
    for number in range(1, 101):
        deployment.complete(number)
    began = deployment.service.seconds
    for number in range(1, 101):
        deployment.service.seconds = began  # All functions begin now.
        deployment.invoke({"action": "advance-sweep", "sweep": "s", "runs": [f"s-{number}"]})
    assert len(deployment.service.functions.waiting) == 1
    deployment.deliver()
    created = [job.created - began for job in deployment.service.jobs.values()][100:]
    assert len(created) == 100
    assert created[-1] == pytest.approx(100 * 1.25, abs=50)


def test_a_pass_beside_a_row_of_functions_begins_no_other() -> None:
    deployment = Deployment(trials=200, parallel=200)
    deployment.invoke({"action": "advance-sweep", "sweep": "s"})
    assert deployment.service.functions.waiting == [{"action": "advance-sweep", "sweep": "s", "in_a_row": 1}]
    deployment.invoke({"action": "advance-sweep", "sweep": "s"})
    assert len(deployment.service.functions.waiting) == 1
    deployment.service.seconds += FOLLOWS_WITHIN.total_seconds()
    deployment.invoke({"action": "advance-sweep", "sweep": "s"})
    assert len(deployment.service.functions.waiting) == 2, "what was asked for has not come"


@pytest.mark.parametrize("in_a_row", [-1, "3", 1.5])
def test_a_row_is_counted_by_the_deployment_alone(in_a_row: object) -> None:
    with pytest.raises(RequestRefusedError, match="in_a_row"):
        read_own_event({"action": "advance-sweep", "sweep": "s", "in_a_row": in_a_row})
