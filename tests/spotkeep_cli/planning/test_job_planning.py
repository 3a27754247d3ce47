"""Which instance types a plan is about: those a job may get on spot, in its own order."""

from typing import Any

import pytest

from spotkeep_cli.planning.job_planning import types_of
from spotkeep_jobs.document.request import JobRequest


def on_spot(*types: str) -> dict[str, Any]:
    return {"capacity": "spot", "instance_types": list(types)}


def on_demand(*types: str) -> dict[str, Any]:
    return {"capacity": "on-demand", "instance_types": list(types)}


@pytest.mark.parametrize(
    ("fields", "types"),
    [
        pytest.param({"instance_type": "ml.a"}, ["ml.a"], id="one type"),
        pytest.param({"instance_type": "ml.a", "instance_types": ["ml.b", "ml.a"]}, ["ml.b", "ml.a"], id="several"),
        pytest.param(
            {"capacity": "auto", "ladder": [on_spot("ml.a", "ml.b"), on_spot("ml.b", "ml.c"), on_demand("ml.d")]},
            ["ml.a", "ml.b", "ml.c"],
            id="a ladder: its fallbacks on spot, each type once",
        ),
        pytest.param(
            {"capacity": "auto", "ladder": [on_demand("ml.d", "ml.e")]}, ["ml.d", "ml.e"], id="a ladder without spot"
        ),
    ],
)
def test_the_types_of_a_plan(fields: dict[str, Any], types: list[str]) -> None:
    assert types_of(JobRequest.model_validate({"name": "a", **fields})) == types
