"""`spotkeep drill`: asks, takes the instance away, follows, judges."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spotkeep_cli.drill.recovery import DrillState
from spotkeep_cli.errors import ExitCode
from tests.spotkeep_cli.conftest import FakeDrill

RUN = "digits-1a2b3c4d"


def state(**changes: Any) -> DrillState:
    fields: dict[str, Any] = {
        "at": 0.0,
        "experiment": "running",
        "instances": {"i-1": "eu-central-1a"},
        "holder": "i-1",
        "step": 40,
        "durable_step": 40,
    }
    return DrillState(**fields | changes)


BACK = [
    state(),
    state(instances={}, holder=None),
    state(instances={"i-2": "eu-central-1b"}, holder="i-2", step=41),
]


@pytest.fixture
def drill(deployment: Any, make: Any) -> Any:
    deployment.dynamodb.add(make.run(RUN))
    drill = deployment.drills.setdefault(RUN, FakeDrill([]))
    drill.states = list(BACK)
    return drill


def test_it_asks_before_it_takes_anything_away(spotkeep: Any, drill: Any) -> None:
    assert spotkeep("drill", RUN, stdin="n\n").exit_code in (ExitCode.NOT_CONFIRMED, ExitCode.USAGE)
    assert drill.started == []


def test_a_run_that_comes_back_passes(spotkeep: Any, drill: Any) -> None:
    result = spotkeep("drill", RUN, "--yes")
    assert result.exit_code == ExitCode.DONE, result.output
    assert drill.started == ["i-1"]
    assert drill.spared == []
    assert f"PASS  {RUN} trains again" in result.output
    assert "another zone (eu-central-1b)" in result.output
    assert "Trained twice: 0 steps" in result.output
    for phase in ("notice", "let go", "gone", "replaced", "taken up", "training"):
        assert phase in result.output
    assert f"spotkeep describe {RUN}" in result.output


def test_programs_get_phases_and_verdict(spotkeep: Any, drill: Any) -> None:
    assert drill.states
    document = json.loads(spotkeep("drill", RUN, "--yes", "--json").stdout)
    assert document["recovered"] is True
    assert document["steps_lost"] == 0
    assert [entry["phase"] for entry in document["phases"]][-1] == "training"
    assert document["replacement_zone"] == "eu-central-1b"


def test_a_drill_whose_instance_was_not_taken_fails_and_spares_it_from_the_next_experiment(
    spotkeep: Any, drill: Any
) -> None:
    drill.states = [state(), state(experiment="failed", reason="no role")]
    result = spotkeep("drill", RUN, "--yes")
    assert result.exit_code == ExitCode.DRILL_FAILED
    assert "FAIL" in result.output
    assert "no role" in result.output
    assert drill.spared == ["i-1"]
