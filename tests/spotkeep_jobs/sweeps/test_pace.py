"""A sweep asks for its trials' jobs a little slower than AWS takes them, whichever functions do."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from spotkeep_jobs.record.states import TrialState
from spotkeep_jobs.record.sweep import Sweep, Trial
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

    def __init__(self) -> None:
        self.service = Account()
        self.plane = ControlPlane(self.service, sleep=self._sleep)
        sweep = {"trials": [{"seed": seed} for seed in range(8)], "parallel": 4}
        asked = {"name": "s", "run": "s", "command": "x", "capacity": "on-demand", "sweep": sweep}
        self.plane.launching.sweeps.launch.launch(asked, default_token="token")

    def advance(self, **how: Any) -> str | None:
        """Let the launcher advance the sweep; return why it could not do all."""
        advanced = self.plane.launching.sweeps.advance.advance("s", **how)
        assert advanced is not None
        return advanced.waits_because

    def complete(self, *numbers: int) -> None:
        for number in numbers:
            job = self.service.jobs[f"s-{number}-1"]
            self.service.becomes(job.name, "Completed")
            self.plane.parts.runs.reconcile(job.run)

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
    assert deployment.advance(has_time=lambda: deployment.service.seconds < 2) == "there is no time left"
    assert list(deployment.service.jobs) == ["s-1-1", "s-2-1"]
    recorded = deployment.plane.record.sweep_and_trials("s")[1]
    assert [trial.state for trial in recorded] == [TrialState.RUNNING] * 4
    deployment.service.seconds += 300
    assert deployment.advance() is None
    assert [job.created for job in deployment.service.jobs.values()][2:] == [302.25, 303.5]
