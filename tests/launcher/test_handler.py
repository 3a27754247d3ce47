"""The launcher's entry point: payloads in, answers out, and what it says in its logs and metrics."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from launcher import actions
from launcher import handler as entry
from spotkeep_jobs.backends.session_manager import Session
from spotkeep_jobs.document.deployment_facts import SpendingLimits
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.errors import AwsBusyError, Problem, RequestRefusedError
from spotkeep_jobs.pools.matching import PoolMatch
from spotkeep_jobs.record.fields import Caller
from spotkeep_jobs.record.ids import ASKED_BY_A_USER, Origin
from spotkeep_jobs.record.record import Metric, Place, Plan, Pool, PoolTraits, Run, RunGroup, ScriptMetrics
from spotkeep_jobs.record.states import RunState
from spotkeep_jobs.runs import shells
from spotkeep_jobs.runs.acceptance import MAY_LAUNCH_AGAIN
from spotkeep_jobs.runs.launch import ValidDocument
from spotkeep_jobs.runs.launch_completion import Launched, LaunchUnfinishedError
from spotkeep_jobs.runs.shells import Shell
from tests.models.functions import Context

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
DOCUMENT = {"name": "first", "command": "python train.py", "environment": {"HF_TOKEN": "hunter2"}}


class ScriptedPools:
    """What users do with pools, as far as the entry point sees it."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.fails: Exception | None = None
        self.unreadable: dict[str, str] = {}
        traits = PoolTraits(role_arn="role", instance_type="ml.m5.xlarge", instance_count=1, volume_size_gb=30)
        self.pool = Pool(
            run="old", attempt=1, name="old", job_name="old-1", traits=traits, kept_since=NOON - timedelta(minutes=30),
            keep_alive_seconds=2400, kept_until=NOON + timedelta(minutes=10), chain_since=NOON - timedelta(hours=1),
            usd_per_hour=0.23,
        )  # fmt: skip

    def pools(self, *, unreadable: dict[str, str]) -> list[Pool]:
        unreadable.update(self.unreadable)
        self.calls.append(("pools",))
        return [self.pool]

    def match(self, request: JobRequest) -> list[PoolMatch]:
        self.calls.append(("match", request.name))
        if self.fails is not None:
            raise self.fails
        return [PoolMatch(pool=self.pool, differences=())]

    def extend(self, *, run: str, seconds: int, kept_until: datetime | None) -> Pool:
        self.calls.append(("extend", run, seconds, kept_until))
        return self.pool

    def stop(self, *, run: str) -> Pool:
        self.calls.append(("stop", run))
        return self.pool


class ScriptedLauncher:
    """The use case, as far as the entry point sees it."""

    def __init__(self) -> None:
        self.settings = SimpleNamespace(verify_callers=False)
        self.pools = ScriptedPools()
        self.calls: list[tuple[Any, ...]] = []
        self.fails: Exception | None = None
        self.replayed = False
        self.plan: Plan | None = None
        self.caller: Caller | None = None
        self.authorized: list[tuple[str, Caller | None]] = []
        self.others: tuple[Run, ...] = ()
        self.run = Run(
            run="first",
            name="first",
            place=Place(capacity="spot", instance_type="ml.m5.xlarge"),
            job_name="first-1",
            job_id="arn:job",
            created_at=NOON,
            updated_at=NOON,
            checkpoint_uri="s3://b/runs/first/checkpoints/",
            output_prefix="s3://b/runs/first/output/",
            token="t",
            request={"name": "first"},
        )

    def authorize(self, _deployment: object, run: str, *, caller: Caller | None) -> None:
        self.authorized.append((run, caller))

    def launch(
        self,
        document: object,
        *,
        default_token: str,
        origin: Origin,
        plan: Plan | None = None,
        caller: Caller | None = None,
    ) -> Launched:
        assert origin == ASKED_BY_A_USER
        self.plan, self.caller = plan, caller
        self._called("launch", document, default_token)
        return Launched(run=self.run, others=self.others, replayed=self.replayed, warnings=("mind this",))

    def validate(self, document: object, *, origin: Origin, caller: Caller | None = None) -> ValidDocument:
        assert origin == ASKED_BY_A_USER
        self._called("validate", document)
        return ValidDocument(
            request=JobRequest.model_validate(DOCUMENT),
            warnings=("mind this",),
            offers=(),
            usd_per_hour=0.23,
            worst_case_usd=5.52,
            limits=SpendingLimits(run_cost_limit_usd=100.0),
        )

    def now(self) -> datetime:
        return NOON

    def resume(self, run: str, *, changes: Mapping[str, Any]) -> Launched:
        self._called("resume", run, *([changes] if changes else []))
        return Launched(run=self.run, replayed=self.replayed)

    def replay_notifications(self, run: str) -> tuple[str, ...]:
        self._called("replay-notifications", run)
        return (f"{run}/completed/1",)

    def stop(self, run: str) -> Run:
        self._called("stop", run)
        return self.run.model_copy(update={"state": RunState.STOPPING})

    def open(self, _deployment: object, run: str, *, command: str | None, host: int, asked_by: str | None) -> Shell:
        self._called("shell", run, command, host, asked_by)
        session = Session(id="s-1", token="let-me-in", stream_url="wss://somewhere")
        return Shell(run=run, session=session, parameters={"Target": "i-1", "Reason": "spotkeep shell first"})

    def describe(self, run: str) -> tuple[Run, ScriptMetrics | None]:
        self._called("describe", run)
        loss = Metric(goal="minimize", last_step=2, last=0.5, best_step=1, best=0.25)
        return self.run, ScriptMetrics(metrics={"loss": loss})

    def _called(self, *call: Any) -> None:
        self.calls.append(call)
        if self.fails is not None:
            raise self.fails


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> ScriptedLauncher:
    scripted = ScriptedLauncher()
    monkeypatch.setattr(entry, "current_deployment", lambda: scripted)
    for name, stand_in in {"Launcher": scripted, "RunActions": scripted, "PoolActions": scripted.pools}.items():
        monkeypatch.setattr(actions, name, lambda _deployment, stand_in=stand_in: stand_in)
    monkeypatch.setattr(actions, "authorize_for_run", scripted.authorize)
    monkeypatch.setattr(shells, "open_shell", scripted.open)
    return scripted


def invoke(event: object) -> dict[str, Any]:
    answer = entry.handler(event, Context())
    return json.loads(json.dumps(answer))  # type: ignore[no-any-return]


def refused_fields(answer: dict[str, Any]) -> list[str]:
    assert (answer["ok"], answer["error"]) == (False, "refused")
    return [problem["field"] for problem in answer["problems"]]


def a_plan(**changes: Any) -> dict[str, Any]:
    """A plan as the command line sends it, of the smallest table there is."""
    cells = [[0], [0], [0], [0]]
    table = {
        "version": 1, "age_edges_s": [3600], "work_step_s": 60, "from_nothing_s": cells, "from_on_demand_s": cells,
        "zones": ["any"], "horizons_s": [3600], "lasting_s": [[[3600], [3600]]], "slack_step_s": 60,
        "restart_usd": [[0]],
    }  # fmt: skip
    finish = {"p10": 3600, "p50": 3700, "p90": 3900}
    plan = {
        "made_at": "2026-11-21T12:00:00+00:00",
        "table": table,
        "finish_seconds": finish,
        "chance_of_on_demand": 0.1,
    }
    return plan | changes


def test_several_runs_are_answered_one_by_one(launcher: ScriptedLauncher) -> None:
    def numbered(index: int) -> Run:
        group = RunGroup(id="seeds", index=index, size=2)
        return launcher.run.model_copy(update={"run": f"seeds-{index}", "job_name": f"seeds-{index}-1", "group": group})

    launcher.run, launcher.others = numbered(1), (numbered(2),)
    answer = invoke(DOCUMENT)
    assert (answer["ok"], answer["group"], answer["replayed"], answer["warnings"]) == (
        True,
        "seeds",
        False,
        ["mind this", MAY_LAUNCH_AGAIN],
    )
    assert [run["run"] for run in answer["runs"]] == ["seeds-1", "seeds-2"]
    assert [run["job_name"] for run in answer["runs"]] == ["seeds-1-1", "seeds-2-1"]
    assert answer["next"][0]["command"] == "spotkeep ps"


def test_the_plan_travels_beside_the_document(launcher: ScriptedLauncher) -> None:
    assert invoke({**DOCUMENT, "plan": a_plan()})["ok"] is True
    [(_, document, _)] = launcher.calls
    assert document == DOCUMENT
    assert launcher.plan is not None
    assert launcher.plan.table == a_plan()["table"]


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        ("cheap", "cannot be read"),
        (a_plan(made_at="noon"), r"cannot be read \(made_at"),
        (a_plan(table={"version": 7}), "has version 7"),
        (a_plan(table=a_plan()["table"] | {"zones": ["a", "b"], "lasting_s": [[[1], [1]]] * 2}), "chooses among zones"),
        (a_plan(rests_on=["x" * 70_000]), "65,536 are allowed"),
    ],
)
def test_a_plan_that_cannot_be_used_is_refused_with_all_else_that_is_wrong(
    launcher: ScriptedLauncher, plan: object, problem: str
) -> None:
    answer = invoke({**DOCUMENT, "plan": plan})
    assert refused_fields(answer) == ["plan"]
    assert re.search(problem, answer["problems"][0]["problem"])
    launcher.fails = RequestRefusedError([Problem(field="name", found="1", problem="is wrong", fix="Mend it.")])
    assert refused_fields(invoke({**DOCUMENT, "plan": plan})) == ["name", "plan"]
    assert {call[0] for call in launcher.calls} == {"validate"}


def test_a_document_is_launched_and_answered(launcher: ScriptedLauncher) -> None:
    assert invoke(DOCUMENT) == {
        "ok": True,
        "run": "first",
        "state": "LAUNCHING",
        "job_name": "first-1",
        "job_id": "arn:job",
        "attempt": 1,
        "capacity": "spot",
        "instance_type": "ml.m5.xlarge",
        "waits_for_quota": None,
        "queue": None,
        "checkpoint_uri": "s3://b/runs/first/checkpoints/",
        "output_uri": "s3://b/runs/first/output/first-1/output/model.tar.gz",
        "replayed": False,
        "warnings": ["mind this", MAY_LAUNCH_AGAIN],
        "next": [
            {"what": "See where it stands", "command": "spotkeep describe first"},
            {"what": "Read its log", "command": "spotkeep logs first"},
            {"what": "Stop it", "command": "spotkeep stop first"},
        ],
    }


def test_the_request_id_is_the_token_of_a_document_without_one_and_the_action_is_no_field_of_it(
    launcher: ScriptedLauncher,
) -> None:
    for event in (DOCUMENT, {"action": "launch", **DOCUMENT}, {"action": "validate", **DOCUMENT}):
        invoke(event)
    launched = ("launch", DOCUMENT, Context().aws_request_id)
    assert launcher.calls == [launched, launched, ("validate", DOCUMENT)]


def test_validating_answers_with_the_defaults_filled_in_and_the_pools_there_are(launcher: ScriptedLauncher) -> None:
    answer = invoke({"action": "validate", **DOCUMENT})
    assert (answer["ok"], answer["request"]["capacity"], answer["usd_per_hour"]) == (True, "spot", 0.23)
    assert answer["warnings"] == ["mind this"]
    [match] = answer["pools"]
    assert (match["fits"], match["differences"]) == (True, [])
    pool = match["pool"]
    assert (pool["run"], pool["seconds_left"], pool["idle_so_far_usd"]) == ("old", 600, 0.115)


def test_pools_that_cannot_be_read_are_a_warning_not_a_refusal(launcher: ScriptedLauncher) -> None:
    launcher.pools.fails = AwsBusyError(operation="DescribeTrainingJob", code="Throttling", reason="slow down")
    answer = invoke({"action": "validate", **DOCUMENT})
    assert (answer["ok"], answer["pools"]) == (True, [])
    assert "could not be read" in answer["warnings"][-1]


def test_pools_are_listed_extended_and_ended(launcher: ScriptedLauncher) -> None:
    launcher.pools.unreadable = {"warm pool 1 of run newer": "form 2"}
    listed = invoke({"action": "pools"})
    assert [pool["run"] for pool in listed["pools"]] == ["old"]
    assert listed["unreadable"] == {"warm pool 1 of run newer": "form 2"}
    assert invoke({"action": "extend-pool", "run": "old", "for": "10m"})["pool"]["run"] == "old"
    assert invoke({"action": "stop-pool", "run": "old"})["run"] == "old"
    assert launcher.pools.calls == [("pools",), ("extend", "old", 600, None), ("stop", "old")]


@pytest.mark.parametrize("action", ["stop", "resume", "describe", "replay-notifications"])
def test_an_action_on_a_run_takes_the_run(launcher: ScriptedLauncher, action: str) -> None:
    answer = invoke({"action": action, "run": "first"})
    assert launcher.calls == [(action, "first")]
    assert (answer["ok"], answer["run"]) == (True, "first")


@pytest.mark.parametrize("state", [RunState.COMPLETED, RunState.FAILED, RunState.STOPPED])
def test_the_next_commands_fit_the_state(launcher: ScriptedLauncher, state: RunState) -> None:
    launcher.run = launcher.run.model_copy(update={"state": state})
    described = invoke({"action": "describe", "run": "first"})
    assert described["metrics"]["loss"]["best"] == 0.25
    commands = [step["command"] for step in described["next"]]
    assert ("spotkeep resume first" in commands) == (state is not RunState.COMPLETED)
    assert "spotkeep stop first" not in commands


@pytest.mark.parametrize(
    ("payload", "fields"),
    [
        ({"action": "stpo", "run": "first"}, ["action"]),
        ({"action": "stop", "run": ["first"], "force": True}, ["'force'", "run"]),
        ({"action": "resume", "run": "first", "changes": ["command"]}, ["changes"]),
        ({"action": "stop-pool", "run": 7}, ["run"]),
        ({"action": "shell", "run": 7, "host": 0}, ["run", "host"]),
    ],
)
def test_what_cannot_be_read_as_an_action_does_nothing(
    launcher: ScriptedLauncher, payload: dict[str, Any], fields: list[str]
) -> None:
    """What is wrong with each action is in `test_payload`."""
    assert refused_fields(invoke(payload)) == fields
    assert (launcher.calls, launcher.pools.calls) == ([], [])


def test_a_refusal_is_an_answer_with_every_problem(launcher: ScriptedLauncher) -> None:
    problem = Problem(field="max_run", found="'4 hours'", problem="is wrong", fix="Write 4h.")
    launcher.fails = RequestRefusedError([problem, problem], warnings=["mind this"])
    assert invoke(DOCUMENT) == {
        "ok": False,
        "error": "refused",
        "problems": [{"field": "max_run", "found": "'4 hours'", "problem": "is wrong", "fix": "Write 4h."}] * 2,
        "temporary": False,
        "warnings": ["mind this"],
    }


def of_dynamodb(code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "TransactWriteItems")


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (
            LaunchUnfinishedError(
                "launching run 'first'",
                cause=AwsBusyError(operation="CreateTrainingJob", code="ThrottlingException", reason="Rate exceeded"),
                then="Call again with the same document and token 1",
            ),
            "Rate exceeded.*same document and token",
        ),
        (of_dynamodb("ThrottlingException", "slow down"), "slow down"),
        (EndpointConnectionError(endpoint_url="https://dynamodb.us-east-1.amazonaws.com"), "dynamodb"),
    ],
)
def test_what_aws_did_not_do_for_certain_is_raised_so_that_lambda_tries_again(
    launcher: ScriptedLauncher, failure: Exception, says: str
) -> None:
    """At the URL Lambda makes the status 502 of it, which is asked again, and the alarm on errors rings."""
    launcher.fails = failure
    at_the_url = {"requestContext": {"http": {"method": "POST"}}, "body": json.dumps(DOCUMENT)}
    for event in (DOCUMENT, at_the_url):
        with pytest.raises(LaunchUnfinishedError, match=f"(?s){says}"):
            invoke(event)
    launcher.fails = None
    assert invoke(at_the_url)["statusCode"] == 200


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (DOCUMENT, "the answer for 'first'.*same document and token "),
        ({"action": "stop", "run": "first"}, r"the answer for 'first'.*Call again\. The controller"),
    ],
)
def test_a_table_that_is_throttled_leaves_open_what_is_recorded(
    launcher: ScriptedLauncher, monkeypatch: pytest.MonkeyPatch, payload: dict[str, Any], says: str
) -> None:
    def throttled(*_: object) -> None:
        raise of_dynamodb("ThrottlingException", "slow down")

    monkeypatch.setattr("launcher.handler.answer_to", throttled)
    with pytest.raises(LaunchUnfinishedError, match=f"{says}") as caught:
        invoke(payload)
    assert "It is not known if the request was recorded" in str(caught.value)


def test_a_run_table_that_may_not_be_used_is_an_error_that_calling_again_does_not_mend(
    launcher: ScriptedLauncher,
) -> None:
    launcher.fails = of_dynamodb("AccessDeniedException", "no")
    with pytest.raises(ClientError):
        invoke(DOCUMENT)


def test_a_shell_is_answered_with_what_its_plugin_takes_and_its_token_is_not_logged(
    launcher: ScriptedLauncher, caplog: pytest.LogCaptureFixture
) -> None:
    answer = invoke({"action": "shell", "run": "first", "command": "nvidia-smi", "host": 2})
    assert launcher.calls == [("shell", "first", "nvidia-smi", 2, None)]
    assert launcher.authorized == [("first", None)]
    assert answer["session"] == {"SessionId": "s-1", "TokenValue": "let-me-in", "StreamUrl": "wss://somewhere"}
    assert answer["parameters"]["Target"] == "i-1"
    logged = [record for record in caplog.records if record.getMessage() == "shell"]
    assert [vars(record)["session"] for record in logged] == ["s-1"]
    assert "let-me-in" not in str([vars(record) for record in logged])
    assert "nvidia-smi" not in str([vars(record) for record in logged])


@pytest.mark.parametrize(
    ("event", "metric"),
    [
        (DOCUMENT, "LaunchAccepted"),
        (DOCUMENT, "LaunchReplayed"),
        ({"action": "validate", **DOCUMENT}, "DocumentValidated"),
        ({"action": "stop", "run": "first"}, "StopRequested"),
        ({"action": "resume", "run": "first"}, "ResumeAccepted"),
        ({"action": "describe", "run": "first"}, "RunDescribed"),
        ({"action": "shell", "run": "first"}, "ShellOpened"),
        ({"action": "fly"}, "LaunchRefused"),
    ],
)
def test_every_outcome_is_counted(
    launcher: ScriptedLauncher, capsys: pytest.CaptureFixture[str], event: object, metric: str
) -> None:
    launcher.replayed = metric == "LaunchReplayed"
    invoke(event)
    counted = [line for line in map(json.loads, capsys.readouterr().out.splitlines()) if metric in line]
    assert [line[metric] for line in counted] == [[1.0]]
    assert counted[0]["_aws"]["CloudWatchMetrics"][0]["Namespace"] == "Spotkeep"


@pytest.fixture
def local_environment(local_aws: Any) -> dict[str, str]:
    """The environment of the function on the local AWS, with a run table of its own."""
    return {
        **os.environ,
        **local_aws.environment(),
        "SPOTKEEP_DEPLOYMENT": "spotkeep",
        "SPOTKEEP_RUN_TABLE": "no-such-table",
        "SPOTKEEP_CHECKPOINT_BUCKET": "checkpoints",
        "SPOTKEEP_EXECUTION_ROLE_ARN": "arn:aws:iam::123456789012:role/execution",
        "SPOTKEEP_TRAINING_BUNDLE_URI": "s3://checkpoints/bundles/0123/spotkeep.pyz",
        "SPOTKEEP_TRAINING_BUNDLE_ASSET_URI": "s3://assets/4567.pyz",
        "SPOTKEEP_DEFAULT_IMAGE": "123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1",
        "SPOTKEEP_DEFAULT_INSTANCE_TYPE": "ml.m5.xlarge",
        "SPOTKEEP_SCHEDULE_GROUP": "spotkeep-launches",
        "SPOTKEEP_SCHEDULE_ROLE_ARN": "arn:aws:iam::123456789012:role/schedules",
        "SPOTKEEP_SCHEDULE_DEAD_LETTER_ARN": "arn:aws:sqs:us-east-1:123456789012:failures",
        "SPOTKEEP_SCHEDULE_FUNCTION_ARN": "arn:aws:lambda:us-east-1:123456789012:function:spotkeep-launcher",
        "POWERTOOLS_SERVICE_NAME": "launcher",
        "POWERTOOLS_METRICS_NAMESPACE": "Spotkeep",
    }


IN_A_PROCESS_OF_ITS_OWN = """
import json, sys
from dataclasses import dataclass
from launcher.handler import handler

@dataclass
class Context:
    aws_request_id: str = "request-1"
    function_name: str = "f"
    memory_limit_in_mb: int = 512
    invoked_function_arn: str = "arn"

for event in json.loads(sys.argv[1]):
    try:
        answer = handler(event, Context())
    except Exception as error:
        answer = type(error).__name__
    print("ANSWER", json.dumps(answer))
print("MODULES", json.dumps(sorted(sys.modules)))
"""


def in_a_process_of_its_own(environment: dict[str, str], *events: object) -> tuple[list[Any], list[str], str]:
    """The answers, the modules that were imported, and all that was said."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", IN_A_PROCESS_OF_ITS_OWN, json.dumps(events)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    lines = done.stdout.splitlines()
    answers = [json.loads(line.removeprefix("ANSWER ")) for line in lines if line.startswith("ANSWER ")]
    [modules] = [json.loads(line.removeprefix("MODULES ")) for line in lines if line.startswith("MODULES ")]
    said = "\n".join(line for line in lines if not line.startswith(("ANSWER", "MODULES"))) + done.stderr
    return answers, modules, said


def test_the_function_logs_no_value_of_a_variable_or_hyperparameter_and_needs_no_tracing_library(
    local_environment: dict[str, str],
) -> None:
    secret = "hunter2"
    environment = local_environment | {"POWERTOOLS_LOG_LEVEL": "DEBUG", "POWERTOOLS_LOGGER_LOG_EVENT": "true"}
    answers, modules, said = in_a_process_of_its_own(
        environment,
        {**DOCUMENT, "environment": {"A": secret}, "hyperparameters": {"a": secret}},
        {**DOCUMENT, "environment": {"A": secret * 100}, "hyperparameters": {"a": [secret]}},
        {"action": "validate", **DOCUMENT, "environment": {"A": secret}},
    )
    assert isinstance(answers[0], str)  # There is no such table: raised, and its traceback is not the document's.
    assert refused_fields(answers[1]) == ["hyperparameters.a", "environment.A"]
    assert answers[2]["request"]["environment"] == {"A": secret}
    assert "refused" in said
    assert secret not in said
    assert not [module for module in modules if module.startswith("aws_xray_sdk")]
