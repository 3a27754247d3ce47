"""What a launch warns of in a search by asha."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spotkeep_jobs.judge import judge
from tests.models.clock import NOON
from tests.models.deployment import DEFAULTS, PRICES

ASHA: dict[str, Any] = {
    "parameters": {"lr": {"log_uniform": [1e-4, 1e-1]}}, "search": "asha", "trials": 27, "parallel": 2,
    "asha": {"min_steps": 100, "max_steps": 2700}, "objective": {"metric": "loss", "goal": "minimize"},
}  # fmt: skip


def warned(sweep: dict[str, Any], **fields: Any) -> str:
    """The warnings about asha of a document that is accepted."""
    document = {"name": "digits", "command": "python train.py", "instance_type": "ml.m5.xlarge"} | fields
    judged = judge(document | {"sweep": ASHA | sweep}, replace(DEFAULTS, prices=PRICES), now=NOON, token="t")
    assert judged.problems == ()
    return "\n".join(each for each in judged.warnings if "asha" in each)


@pytest.mark.parametrize(
    ("sweep", "said"),
    [
        ({}, ""),
        ({"trials": 26}, "asha trains none of 26 trials for max_steps (2,700 steps). The best of them pause at step "
         "900. Give 27 trials or more"),
        ({"trials": 2}, "pause at step 100."),
        ({"trials": 26, "asha": {"min_steps": 300, "max_steps": 2700}}, ""),
        ({"parameters": {"lr": [0.1, 0.2]}}, "asha trains none of 2 trials"),
        ({"trials": 2, "asha": {"min_steps": 100, "max_steps": 100}}, ""),
        ({"search": "random", "asha": None, "trials": 2}, ""),
    ],
)  # fmt: skip
def test_a_search_with_too_few_trials_trains_none_to_its_end(sweep: dict[str, Any], said: str) -> None:
    found = warned(sweep)
    assert said in found
    assert bool(found) == bool(said)


def test_money_that_does_not_pay_for_a_whole_training_is_named_where_the_work_is_known() -> None:
    # 27 trials to 100 steps, 9 to 300, 3 to 900 and 1 to 2,700 are 8,100 steps, three whole trainings.
    whole = 10 * PRICES["ml.m5.xlarge"]
    assert warned({}, work="10h", max_cost=3.1 * whole) == ""
    assert warned({}, max_cost=whole) == ""
    assert f"the trials cost about {3 * whole:.2f} USD on demand (work)" in warned({}, work="10h", max_cost=whole)


@pytest.mark.parametrize(
    ("metric", "is_warned"),
    [("loss=(.*)", True), ({"pattern": "loss=(.*)", "step": "step (.*)"}, False), (None, False)],
)
def test_an_objective_that_is_found_without_a_step_is_warned_of(metric: Any, is_warned: bool) -> None:
    found = warned({}, metrics={"loss": metric, "accuracy": "accuracy=(.*)"})
    assert ("metrics.loss is found in the script's lines, without a step" in found) == is_warned
