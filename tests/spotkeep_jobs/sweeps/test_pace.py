"""A sweep asks for its trials' jobs a little slower than AWS takes them, whichever functions do."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from launcher.actions import ActionContext, advance_sweep
from launcher.payload import SweepAdvance, read_own_event
from spotkeep_jobs.errors import RequestRefusedError
from spotkeep_jobs.record.states import TrialState
from spotkeep_jobs.record.sweep import Sweep, Trial
from spotkeep_jobs.runs.run_reconciler import RunReconciler
from spotkeep_jobs.sweeps.advance import FOLLOWS_WITHIN, Sweeps
from spotkeep_jobs.sweeps.launch import SweepLaunch
from spotkeep_jobs.sweeps.launcher_function import MOST_IN_A_ROW, launcher_of
from spotkeep_jobs.sweeps.pace import CREATIONS_A_SECOND, SUBMISSIONS_A_SECOND, between_jobs, paced
from spotkeep_local.access.call_rates import CALLS_A_SECOND
from tests.models.account import Account
from tests.models.clock import NOON
from tests.models.control_plane import ControlPlane

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
