"""A search on EC2: trials pause where asha asks them to, and the best goes on, on the volume that it had."""

from __future__ import annotations

import uuid

import pytest

from spotkeep_jobs.record.states import SweepState, TrialState

from .conftest import OnEc2, until

pytestmark = pytest.mark.long

SCRIPT = """\
import argparse
from spotkeep import Checkpointer

options = argparse.ArgumentParser()
options.add_argument("--gain", type=int)
gain = options.parse_args().gain
done = {"count": 0}
with Checkpointer({"done": done}, every_steps=2) as checkpointer:
    for step in checkpointer.steps(18):
        done["count"] += 1
        checkpointer.log(gained=gain * done["count"])
"""


def ended(on_ec2: OnEc2, name: str) -> bool:
    on_ec2.app.invoke("controller", {})
    sweep = on_ec2.app.table.sweeps.get(name)
    return sweep is not None and sweep.state.ended


def test_trials_pause_and_the_best_goes_on(on_ec2: OnEc2) -> None:
    app, name = on_ec2.app, f"search-{uuid.uuid4().hex[:8]}"
    app.launch(
        name=name,
        run=name,
        command="python3 train.py",
        source=app.upload_source(name, {"train.py": SCRIPT}),
        backend="ec2",
        instance_types=["m5.large", "m6i.large"],
        volume={"size_gb": 1, "when_done": "delete"},
        environment={"SPOTKEEP_PROGRESS_SECONDS": "0"},
        max_run="10m",
        sweep={
            "parameters": {"gain": [1, 2, 3]},
            "search": "asha",
            "asha": {"min_steps": 6, "max_steps": 18},
            "trials": 3,
            "objective": {"metric": "gained", "goal": "maximize"},
        },
    )
    until(lambda: ended(on_ec2, name), lambda: f"the end of {app.table.sweeps.with_trials(name)}", pause_seconds=2)
    sweep, trials = app.table.sweeps.with_trials(name)
    assert sweep is not None
    assert sweep.state is SweepState.COMPLETED, trials
    best = next(trial for trial in trials if trial.parameters["gain"] == 3)
    assert sweep.best is not None
    assert (sweep.best.number, sweep.best.value) == (best.number, 54)
    assert {trial.parameters["gain"]: (trial.state, trial.best, trial.step) for trial in trials} == {
        1: (TrialState.PAUSED, 6, 6),
        2: (TrialState.PAUSED, 12, 6),
        3: (TrialState.COMPLETED, 54, 18),
    }
    for trial in trials:
        measured = app.table.runs.metrics(trial.run)
        assert measured is not None
        gain = int(str(trial.parameters["gain"]))
        assert dict(measured.metrics["gained"].points) == {
            step: gain * step for step in range(1, (trial.step or 0) + 1)
        }
    assert [len(app.table.runs.attempts(trial.run)) for trial in trials] == [1 + (trial is best) for trial in trials]
    assert on_ec2.live_fleets() == []
    assert sweep.cost is not None
    assert sweep.cost.redone_steps == 0
