"""The function `search`, deployed with its own layer: Optuna runs in it, and answers what the launcher asks."""

from __future__ import annotations

import pytest

from spotkeep_jobs.record.states import TrialState
from spotkeep_jobs.sweeps.search.search import SearchPlan, TrialResult
from spotkeep_jobs.sweeps.search.tpe_function import TpeFunction
from spotkeep_jobs.sweeps.space import Space

from .conftest import DeployedApp


@pytest.mark.long
def test_a_deployment_with_tpe_search_chooses_trials_by_it(deployed_app: DeployedApp) -> None:
    function = TpeFunction(lambda: deployed_app.client("lambda"), function="spotkeep-search")
    space = Space.model_validate({"lr": {"log_uniform": [1e-5, 1e-2]}, "depth": [18, 34, 50]})
    plan = SearchPlan(space=space, search="tpe", trials=6, goal="minimize")
    trials: list[TrialResult] = []
    while begun := function(plan, trials, 7):
        trials += [
            TrialResult(
                number=each.number,
                parameters=each.parameters,
                state=TrialState.COMPLETED,
                values={100: float(each.parameters["lr"])},
            )
            for each in begun
        ]
    assert [trial.number for trial in trials] == list(range(1, 7))
    assert len({trial.parameters["lr"] for trial in trials}) == 6
