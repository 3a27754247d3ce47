"""What would be larger than its record is refused at the edge, with the field's name (I7)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from launcher import handler as launcher_handler
from launcher.actions import ActionContext
from spotkeep_jobs.document.request import validate
from spotkeep_jobs.errors import RequestRefusedError
from spotkeep_jobs.record.fields import MAX_DOCUMENT_BYTES, MAX_JOB_REQUEST_BYTES, MAX_SWEEP_BYTES
from tests.models.control_plane import ControlPlane

DOCUMENT: dict[str, Any] = {"name": "first", "run": "first", "token": "t", "command": "x", "capacity": "on-demand"}


def launched(plane: ControlPlane, **fields: Any) -> Any:
    context = ActionContext(deployment=plane.launcher, request_id="request")
    return launcher_handler.answer_to({**DOCUMENT, **fields}, context)


def listed(trials: int, parameters: int = 10, value: str = "x" * 30) -> dict[str, Any]:
    """A sweep that lists trials."""
    each = {f"parameter_{n}": value for n in range(parameters)}
    return {"trials": [each | {"seed": n} for n in range(trials)]}


FACE = "\N{GRINNING FACE}"
"""It takes twelve bytes of JSON."""


def values(name: str, number: int = 999) -> list[str]:
    return [name * 240 + str(n) for n in range(number)]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"sweep": listed(1000)}, "sweep.trials"),
        ({"sweep": listed(2, parameters=80, value="x" * 250)}, "sweep.trials"),
        (
            {"sweep": {"parameters": {"a": values("x"), "b": values("y")}, "search": "random", "trials": 9}},
            "sweep.parameters",
        ),
        (
            {"sweep": {"parameters": {f"p{n}": values("x", 2) for n in range(90)}, "search": "random", "trials": 9}},
            "sweep.parameters",
        ),
        ({"environment": {f"N{n}": FACE * 200 for n in range(90)}}, "environment"),
        ({"hyperparameters": {f"h{n}": FACE * 128 for n in range(100)}}, "hyperparameters"),
        ({"schedule": "rate(1 day)", "sweep": listed(1000)}, "sweep.trials"),
    ],
    ids=[
        "listed trials", "the parameters of one trial", "listed values", "the longest parameters of a trial",
        "an environment", "hyperparameters", "what a schedule launches",
    ],
)  # fmt: skip
def test_what_no_record_takes_is_refused_with_its_field(fields: dict[str, Any], field: str) -> None:
    """Once a sweep of 454 KB was answered with DynamoDB's own error."""
    plane = ControlPlane()
    with pytest.raises(RequestRefusedError) as refused:
        launched(plane, **fields)
    [problem] = {problem.field: problem for problem in refused.value.problems}.values()
    assert problem.field == field
    assert "record takes" in problem.problem
    assert not plane.service.dynamodb.items, "nothing was recorded"


@pytest.mark.parametrize(("runs", "taken"), [(1, True), (8, True), (15, False)])
def test_several_runs_share_what_one_transaction_takes(runs: int, taken: bool) -> None:
    environment = {f"N{n}": "x" * 500 for n in range(95)}
    hyperparameters = {f"h{n}": "x" * 255 for n in range(80)}
    document = {**DOCUMENT, "backend": "ec2", "instance_types": ["g5.xlarge"], "runs": runs}
    problems = validate(document | {"environment": environment, "hyperparameters": hyperparameters}).problems
    assert [each.field for each in problems if "record takes" in each.problem] == ([] if taken else ["environment"])


def test_the_largest_document_that_is_taken_is_launched_and_interrupted_as_any_other() -> None:
    """Up to its bound a document fits, with all that its job's request adds to it."""
    plane = ControlPlane()
    fields = {
        "environment": {f"N{n}": FACE * 120 for n in range(70)},
        "hyperparameters": {f"h{n}": "x" * 255 for n in range(100)},
        "metrics": {f"m{n}": f"m{n}=([0-9.]+)" + "x" * 400 for n in range(20)},
    }
    launched(plane, **fields)
    attempt = plane.record.runs.attempt("first", 1)
    assert attempt is not None
    size = len(json.dumps(plane.record.runs.get("first").request))  # type: ignore[union-attr]
    assert 0.7 * MAX_DOCUMENT_BYTES < size <= MAX_DOCUMENT_BYTES
    assert len(json.dumps(attempt.job_request)) < size + 50_000 <= MAX_JOB_REQUEST_BYTES


def test_the_largest_sweep_that_is_taken_is_launched() -> None:
    plane = ControlPlane()
    sweep = listed(590)
    assert 0.9 * MAX_SWEEP_BYTES < len(json.dumps(sweep)) < MAX_SWEEP_BYTES
    assert launched(plane, sweep=sweep)["state"] == "RUNNING"


def test_a_plan_is_of_one_run() -> None:
    plane = ControlPlane()
    with pytest.raises(RequestRefusedError) as refused:
        launched(plane, backend="ec2", runs=2, plan={"made_at": "2026-11-21T12:00:00Z"})
    assert "plan" in {problem.field for problem in refused.value.problems}
