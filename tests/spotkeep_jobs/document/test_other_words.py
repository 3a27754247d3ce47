"""Words of Weights & Biases, SkyPilot and other tools are answered with the field or the form that is meant."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from spotkeep_jobs.judge import judge

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
JOB: dict[str, Any] = {"name": "digits", "command": "python train.py"}


def fixes(document: dict[str, Any]) -> dict[str, str]:
    """The fix of each problem, by its field."""
    return {each.field: each.fix for each in judge(document, None, now=NOW).problems}


@pytest.mark.parametrize(
    ("field", "value", "meant"),
    [
        ("requirements", ["numpy"], "`install`"),
        ("gpus", 4, "`instance_type`"),
        ("resources", {"accelerators": "A100:8"}, "`instance_type`"),
        ("num_nodes", 2, "`instance_count`"),
        ("warm_pool", True, "`keep_alive`"),
        ("processes", 3, "Write distributed: {launcher: torchrun, processes: 3}."),
        ("nproc_per_node", 8, "Write distributed: {launcher: torchrun, processes: 8}."),
        ("launcher", "torchrun", "Write distributed: 'torchrun'."),
        ("workdir", ".", "`source`"),
        ("envs", {"A": "1"}, "`environment`"),
        ("file_mounts", {}, "`channels`"),
        ("run", "python train.py --lr 0.1", "Write it as `command`."),
        ("run", "pip install -r requirements.txt\npython train.py --epochs 100\n", "Write it as `command`."),
        ("framework", "scikit-learn", "Write sklearn."),
        ("framework", "scikit-learn-1.4", "Write sklearn-1.4."),
        ("framework", "torch", "Write pytorch."),
    ],
)
def test_a_word_of_another_tool_is_answered_with_ours(field: str, value: object, meant: str) -> None:
    assert meant in fixes({**JOB, field: value})[field]


@pytest.mark.parametrize(
    ("parameter", "meant"),
    [
        ({"min": 0.1, "max": 0.2}, "Write {uniform: [0.1, 0.2]}."),
        ({"min": 1, "max": 9}, "Write {int_uniform: [1, 9]}."),
        ({"distribution": "log_uniform_values", "min": 0.001, "max": 0.1}, "Write {log_uniform: [0.001, 0.1]}."),
        ({"values": [1, 2]}, "Write the list alone: [1, 2]."),
        ({"value": 3}, "One value for all trials is a hyperparameter."),
        ({"min": "a", "max": True}, "Write a list of values"),
    ],
)
def test_a_parameter_of_weights_and_biases_is_answered_with_its_form(parameter: dict[str, Any], meant: str) -> None:
    document = {**JOB, "sweep": {"search": "random", "trials": 4, "parameters": {"lr": parameter}}}
    assert meant in fixes(document)["sweep.parameters.lr"]


@pytest.mark.parametrize(("field", "meant"), [("method", "search"), ("metric", "objective"), ("run_cap", "trials")])
def test_a_field_of_its_sweeps_too(field: str, meant: str) -> None:
    document = {**JOB, "sweep": {"parameters": {"lr": [1, 2]}, "search": "grid", field: "bayes"}}
    assert f"`{meant}`" in fixes(document)[f"sweep.{field}"]


def test_the_name_of_an_objective_is_its_metric() -> None:
    document = {**JOB, "sweep": {"parameters": {"lr": [1, 2]}, "search": "grid", "objective": {"name": "loss"}}}
    assert fixes(document)["sweep.objective.name"] == "Did you mean `metric`?"
