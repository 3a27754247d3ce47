"""Sweeps through the launcher's entry point: payloads in, answers out, and who may act on whose."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from launcher import handler as entry
from spotkeep_jobs.errors import AwsBusyError
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.sweep import SweepChange, Trial
from spotkeep_jobs.runs.callers import CallerRules
from spotkeep_jobs.runs.run_reconciler import RunReconciler
from spotkeep_jobs.sweeps.launcher_function import MOST_IN_A_ROW
from tests.models.deployment import DEFAULTS, PRICES, controller_on, launcher_on
from tests.models.dynamodb import InMemoryDynamoDb
from tests.models.functions import Context, answered
from tests.models.sagemaker import SageMaker

ADA = "arn:aws:sts::111122223333:assumed-role/Vision/ada"
GRACE = "arn:aws:sts::111122223333:assumed-role/Speech/grace"
DOCUMENT = {
    "name": "digits", "run": "digits", "command": "python train.py",
    "sweep": {"trials": [{"lr": 1}, {"lr": 2}, {"lr": 3}], "parallel": 2},
}  # fmt: skip


class Launcher:
    """The function on models of AWS, and the invocations of itself that it asks for."""

    def __init__(self, rules: CallerRules | None = None) -> None:
        self.sagemaker, self.context = SageMaker(), Context()
        self.table = RunTable.of(client=InMemoryDynamoDb(), table_name="runs")  # type: ignore[arg-type]
        defaults = replace(DEFAULTS, teams=("speech", "vision"), prices=PRICES)
        self.launcher = launcher_on(self.table, self.sagemaker, defaults=defaults, callers=rules)
        self.asked_again: list[str] = []
        self.in_a_row: list[int] = []
        self.of_runs: list[list[str] | None] = []
        self.lambda_is_busy = False

    def advance(self, sweep: str, *, ended_runs: Any = None, in_a_row: int = 0) -> None:
        """Stand for the function itself, as `LauncherFunction` invokes it."""
        if self.lambda_is_busy:
            raise AwsBusyError(operation="Invoke", code="TooManyRequestsException", reason="Rate exceeded")
        self.asked_again.append(sweep)
        self.in_a_row.append(in_a_row)
        self.of_runs.append(ended_runs)

    def __call__(self, payload: object) -> dict[str, Any]:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(entry, "current_deployment", lambda: self.launcher)
            patched.setattr(entry, "launcher_function", lambda: self)
            answer: dict[str, Any] = answered(entry.handler(payload, self.context))
        return answer

    def by_url(self, payload: object, *, caller: str) -> dict[str, Any]:
        identity = {"iam": {"userArn": caller}}
        event = {
            "requestContext": {"http": {"method": "POST", "path": "/"}, "authorizer": identity},
            "body": json.dumps(payload),
        }
        body: dict[str, Any] = json.loads(self(event)["body"])
        return body


@pytest.fixture
def launcher() -> Launcher:
    return Launcher()


def test_a_launch_answers_with_its_first_trial_and_has_the_others_begun_by_another_invocation(
    launcher: Launcher,
) -> None:
    answer = launcher(DOCUMENT)
    assert (answer["ok"], answer["sweep"], answer["replayed"]) == (True, "digits", False)
    assert launcher.sagemaker.live == ["digits-1-1"]
    assert launcher.asked_again == ["digits"]
    assert {step["command"] for step in answer["next"]} >= {"spotkeep describe digits", "spotkeep pause digits"}

    launcher({"action": "advance-sweep", "sweep": "digits"})
    assert launcher.sagemaker.live == ["digits-1-1", "digits-2-1"]

    launcher.lambda_is_busy = True
    assert launcher({**DOCUMENT, "run": "another"})["ok"], "the next pass of the controller has them begun"


def test_an_advance_that_has_no_time_left_asks_for_another_until_a_pass_begins_anew(launcher: Launcher) -> None:
    launcher(DOCUMENT)
    launcher.context.remaining_milliseconds = 5_000
    launcher({"action": "advance-sweep", "sweep": "digits"})
    assert launcher.sagemaker.live == ["digits-1-1"]
    assert launcher.in_a_row == [0, 1]
    launcher({"action": "advance-sweep", "sweep": "digits", "in_a_row": MOST_IN_A_ROW - 1})
    assert launcher.in_a_row == [0, 1, MOST_IN_A_ROW]
    launcher({"action": "advance-sweep", "sweep": "digits", "in_a_row": MOST_IN_A_ROW})
    assert launcher.in_a_row == [0, 1, MOST_IN_A_ROW]


def test_validate_says_what_would_be_launched_and_launches_nothing(launcher: Launcher) -> None:
    answer = launcher({"action": "validate", **DOCUMENT})
    assert (answer["ok"], answer["most_trials"], answer["request"]["run"]) == (True, 3, "digits-1")
    assert answer["request"]["hyperparameters"] == {"lr": "1"}
    assert launcher.table.sweeps.get("digits") is None


@pytest.mark.parametrize(("action", "state"), [("pause", "PAUSED"), ("stop", "STOPPED")])
def test_a_sweep_is_stopped_described_and_resumed(launcher: Launcher, action: str, state: str) -> None:
    launcher(DOCUMENT)
    launcher({"action": "advance-sweep", "sweep": "digits"})
    assert launcher({"action": action, "sweep": "digits"})["state"] == "STOPPING"
    assert launcher.sagemaker.stopped == ["digits-1-1", "digits-2-1"]
    described = launcher({"action": "describe", "sweep": "digits"})
    assert described["record"]["stops_as"] == state
    assert [trial["parameters"] for trial in described["each_trial"]] == [{"lr": 1}, {"lr": 2}]
    refused = launcher({"action": "resume", "sweep": "digits"})
    assert "is not over: it is STOPPING" in refused["problems"][0]["problem"]


@pytest.mark.parametrize("way", ["invoked", "by its URL"])
def test_a_sweep_larger_than_an_answer_is_described_page_by_page(launcher: Launcher, way: str) -> None:
    """Lambda answers with 6 MB; of trials as large as they can be, each page has fewer."""
    launcher(DOCUMENT)
    sweep = launcher.table.sweeps.get("digits")
    assert sweep is not None
    long = {f"parameter {n}": '"' * 90 for n in range(70)}
    for first in range(1, 1_401, 50):
        trials = tuple(
            Trial(sweep="digits", number=n, run=f"digits-{n}", parameters={"lr": n} | (long if n <= 600 else {}))
            for n in range(first, first + 50)
        )
        sweep = launcher.table.sweeps.commit(SweepChange(sweep=sweep, trials=trials))
    payload, numbers, pages = {"action": "describe", "sweep": "digits"}, [], 0
    while payload is not None:
        answer = launcher(payload) if way == "invoked" else launcher.by_url(payload, caller=ADA)
        assert answer["record"]["sweep"] == "digits"
        numbers += [trial["number"] for trial in answer["each_trial"]]
        payload, pages = answer["next_page"], pages + 1
    assert numbers == list(range(1, 1_401))
    assert pages > 3


@pytest.mark.parametrize("given", [0, -1, "2", 1.5, True])
def test_a_page_begins_with_the_number_of_a_trial(launcher: Launcher, given: object) -> None:
    answer = launcher({"action": "describe", "sweep": "digits", "from": given})
    assert [problem["field"] for problem in answer["problems"]] == ["from"]


def test_a_page_behind_the_last_trial_is_empty(launcher: Launcher) -> None:
    launcher(DOCUMENT)
    answer = launcher({"action": "describe", "sweep": "digits", "from": 9_999})
    assert (answer["each_trial"], answer["next_page"]) == ([], None)


def test_the_sweep_of_a_trial_that_a_user_resumes_hears_of_it_and_counts_what_it_costs(launcher: Launcher) -> None:
    launcher({**DOCUMENT, "max_cost": 5, "capacity": "on-demand"})
    launcher({"action": "stop", "run": "digits-1"})
    launcher.sagemaker.becomes("digits-1-1", "Stopped")
    RunReconciler(controller_on(launcher.table, launcher.sagemaker)).reconcile("digits-1")
    launcher({"action": "advance-sweep", "sweep": "digits", "runs": ["digits-1"]})
    assert launcher({"action": "resume", "run": "digits-1"})["ok"]
    assert launcher.of_runs[-1] == ["digits-1"]
    launcher({"action": "advance-sweep", "sweep": "digits", "runs": ["digits-1"]})
    described = launcher({"action": "describe", "sweep": "digits"})
    assert described["each_trial"][0]["state"] == "RUNNING"


def test_what_is_no_sweep_is_refused_and_to_advance_it_does_nothing(launcher: Launcher) -> None:
    for action in ("stop", "pause", "resume", "describe"):
        answer = launcher({"action": action, "sweep": "other"})
        assert (answer["ok"], answer["problems"][0]["field"]) == (False, "sweep")
    assert launcher({"action": "advance-sweep", "sweep": "other"}) == {
        "ok": True, "ignored": "no sweep of this deployment"
    }  # fmt: skip
    assert not launcher({"action": "advance-sweep", "sweep": 3})["ok"]


def test_a_sweep_is_its_callers_and_so_are_its_trials() -> None:
    launcher = Launcher(CallerRules(team_members={}))
    assert launcher.by_url(DOCUMENT, caller=ADA)["ok"]
    # The controller names no caller: what it asks for is what the record asks for.
    launcher({"action": "advance-sweep", "sweep": "digits"})
    sweep, trial = launcher.table.sweeps.get("digits"), launcher.table.runs.get("digits-2")
    assert sweep is not None
    assert trial is not None
    assert (sweep.owner, trial.owner, trial.launched_by) == ("ada", "ada", sweep.launched_by)

    for action in ("stop", "pause", "resume"):
        refused = launcher.by_url({"action": action, "sweep": "digits"}, caller=GRACE)
        assert "belongs to ada" in refused["problems"][0]["problem"]
    assert launcher.by_url({"action": "stop", "sweep": "digits"}, caller=ADA)["ok"]


def test_a_sweep_in_anothers_name_is_refused() -> None:
    launcher = Launcher(CallerRules(team_members={}))
    answer = launcher.by_url({**DOCUMENT, "owner": "grace"}, caller=ADA)
    assert [problem["field"] for problem in answer["problems"]] == ["owner"]
    assert launcher.table.sweeps.get("digits") is None
