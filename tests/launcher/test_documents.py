"""A call that its client repeats is the same launch, or its answer says that it is another one.

The AWS CLI and the SDKs repeat a call by themselves when the connection breaks after the function has answered. Each of
their tries has a request id of its own; the tries of one asynchronous invocation, which AWS Lambda makes, share one.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from controller.events import Hint, Subject
from controller.reconciliation import reconcile_hint
from launcher import handler as launcher_handler
from launcher.actions import ActionContext
from spotkeep_jobs.errors import RequestRefusedError
from spotkeep_jobs.judge import judge
from spotkeep_jobs.record.fields import Caller
from spotkeep_jobs.runs.acceptance import MAY_EXTEND_AGAIN, MAY_LAUNCH_AGAIN, REPEATED_WITHIN
from spotkeep_jobs.runs.launch_completion import LaunchUnfinishedError
from spotkeep_jobs.sweeps.advance import Sweeps
from tests.models.clock import NOON
from tests.models.control_plane import DEFAULTS, ControlPlane
from tests.models.deployment import end_run

JOB: dict[str, Any] = {"name": "digits", "command": "python train.py"}
SWEEP = {**JOB, "sweep": {"trials": [{"seed": 1}, {"seed": 2}], "parallel": 1}}
SCHEDULE = {**JOB, "schedule": "cron(0 2 * * ? *)"}
KINDS = pytest.mark.parametrize("document", [JOB, SWEEP, SCHEDULE], ids=["a job", "a sweep", "a schedule"])


class Client(ControlPlane):
    """Calls the launcher, each time with another request id."""

    def __init__(self) -> None:
        super().__init__()
        self._request_ids = (f"request-{number}" for number in itertools.count(1))

    def asks(self, payload: dict[str, Any], *, request_id: str | None = None, caller: str | None = None) -> Any:
        context = ActionContext(
            deployment=self.launcher,
            request_id=request_id or next(self._request_ids),
            caller=None if caller is None else Caller.of(f"arn:aws:iam::123456789012:user/{caller}", verified=False),
        )
        return launcher_handler.answer_to(payload, context)

    def jobs(self) -> list[str]:
        return [job.name for job in self.service.jobs.values()]


def what(answer: dict[str, Any]) -> Any:
    return answer.get("sweep") or answer.get("schedule", {}).get("schedule") or answer["run"]


def refusal(client: Client, payload: dict[str, Any], **call: Any) -> str:
    with pytest.raises(RequestRefusedError) as refused:
        client.asks(payload, **call)
    return str(refused.value)


@KINDS
def test_without_run_or_token_each_call_is_a_launch_and_its_answer_says_so(document: dict[str, Any]) -> None:
    client = Client()
    first, second = client.asks(document), client.asks(document)
    assert what(first) != what(second)
    assert first["warnings"][-1] == second["warnings"][-1] == MAY_LAUNCH_AGAIN


@KINDS
@pytest.mark.parametrize("name", [{"run": "first"}, {"token": "monday"}, {"run": "first", "token": "monday"}])
def test_with_run_or_token_the_same_call_again_answers_the_same(document: dict[str, Any], name: dict[str, str]) -> None:
    client = Client()
    first = client.asks({**document, **name})
    jobs = client.jobs()
    second = client.asks({**document, **name})
    assert (first["replayed"], second["replayed"], what(second)) == (False, True, what(first))
    assert client.jobs() == jobs
    assert MAY_LAUNCH_AGAIN not in [*first["warnings"], *second["warnings"]]


def test_the_tries_of_one_asynchronous_invocation_are_one_launch() -> None:
    client = Client()
    first, second = (client.asks(JOB, request_id="of-the-event") for _ in range(2))
    assert (second["replayed"], second["run"]) == (True, first["run"])


@pytest.mark.parametrize("document", [JOB, SWEEP], ids=["a job", "a sweep"])
def test_run_alone_is_the_same_call_for_an_hour_and_then_an_id_that_is_taken(document: dict[str, Any]) -> None:
    """Who launches the old job file the next day, `run` and all, launches nothing: no answer may pass for a launch."""
    client = Client()
    named = {**document, "run": "first"}
    client.asks(named)
    client.service.seconds += REPEATED_WITHIN.total_seconds()
    assert client.asks(named)["replayed"]
    client.service.seconds += 60
    assert "exists already" in refusal(client, named)


@pytest.mark.parametrize("change", [{"max_run": "2h"}, {"caller": "grace"}])
def test_another_document_or_another_caller_is_no_repeat(change: dict[str, str]) -> None:
    client = Client()
    client.asks({**JOB, "run": "first"}, caller="ada")
    caller = change.get("caller", "ada")
    document = {**JOB, "run": "first", **{name: value for name, value in change.items() if name != "caller"}}
    assert "exists already" in refusal(client, document, caller=caller)


def test_a_launch_that_aws_refused_is_refused_again_and_says_how_it_goes_on() -> None:
    client = Client()
    client.service.refuses = ("ValidationException", "no such role")
    named = {**JOB, "run": "first"}
    first, second = refusal(client, named), refusal(client, named)
    assert "no such role" in first
    assert first == second
    client.service.refuses = None
    assert "spotkeep resume first" in second
    assert client.asks({"action": "resume", "run": "first"})["attempt"] == 2


def test_a_judgement_of_a_document_needs_no_token() -> None:
    assert MAY_LAUNCH_AGAIN not in Client().asks({"action": "validate", **JOB})["warnings"]


def test_a_launch_that_is_not_finished_names_the_token_that_finishes_it() -> None:
    client = Client()
    client.service.refuses = ("ThrottlingException", "slow down")
    with pytest.raises(LaunchUnfinishedError, match="token of-the-event"):
        client.asks(JOB, request_id="of-the-event")
    client.service.refuses = None
    answer = client.asks({**JOB, "token": "of-the-event"})
    assert (answer["replayed"], client.jobs()) == (True, [answer["job_name"]])


@pytest.mark.parametrize("changes", [{}, {"max_run": "2h"}])
def test_a_resume_that_is_called_again_answers_the_same(changes: dict[str, str]) -> None:
    """Once the second try was refused, because the run trains: as if the resume had failed."""
    client = Client()
    client.asks({**JOB, "run": "first"})
    end_run(client.record, client.service, "first")
    resume = {"action": "resume", "run": "first", "changes": changes}
    first, second = client.asks(resume), client.asks(resume)
    assert [(each["attempt"], each["replayed"]) for each in (first, second)] == [(2, False), (2, True)]
    assert "is not over" in refusal(client, {**resume, "changes": {"max_run": "3h"}})
    client.service.seconds += REPEATED_WITHIN.total_seconds() + 60
    assert "is not over" in refusal(client, resume), "hours later it is another wish"


def test_a_resume_that_meets_a_stop_is_no_repeat() -> None:
    client = Client()
    client.asks({**JOB, "run": "first"})
    end_run(client.record, client.service, "first")
    client.asks({"action": "resume", "run": "first"})
    client.asks({"action": "stop", "run": "first"})
    assert "is not over" in refusal(client, {"action": "resume", "run": "first"})


@pytest.mark.parametrize("changes", [{}, {"max_run": "2h"}])
def test_a_sweep_that_is_resumed_again_answers_the_same(changes: dict[str, str]) -> None:
    client = Client()
    client.asks({**SWEEP, "run": "lr"})
    client.asks({"action": "pause", "sweep": "lr"})
    end_run(client.record, client.service, "lr-1")
    Sweeps(client.launcher).advance("lr", ended_runs=["lr-1"])
    resume = {"action": "resume", "sweep": "lr", "changes": changes}
    first, second = client.asks(resume), client.asks(resume)
    assert first["state"] == second["state"] == "RUNNING"
    assert client.record.sweeps.get("lr").part == 2  # type: ignore[union-attr]
    assert "is not over" in refusal(client, {**resume, "changes": {"max_run": "3h"}})


def test_a_pool_is_extended_once_where_the_call_says_when_it_was_seen_to_end() -> None:
    client = Client()
    client.asks({**JOB, "run": "first", "capacity": "on-demand", "keep_alive": "10m"})
    job = client.service.jobs["first-1"]
    client.service.gets_capacity(job)
    client.service.ends(job, "Completed")
    reconcile_hint(Hint(subject=Subject.TRAINING_JOB, name=job.name), deployment=client.controller)
    [pool] = client.asks({"action": "pools"})["pools"]
    extend = {"action": "extend-pool", "run": "first", "for": "10m"}
    once = {**extend, "kept_until": pool["kept_until"]}
    assert [client.asks(once)["pool"]["keep_alive_seconds"] for _ in range(3)] == [1200, 1200, 1200]
    again = client.asks(extend)
    assert (again["pool"]["keep_alive_seconds"], again["warnings"]) == (1800, [MAY_EXTEND_AGAIN])
    assert "kept_until" in refusal(client, {**extend, "kept_until": "noon"})


WRONG = {"max_wait": "1h", "capacity": "on-demand", "environment": {"SM_X": "1"}, "nmae": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        {**JOB, **WRONG},
        {**SWEEP, **WRONG},
        {**SWEEP, "sweep": {"trials": [{"seed": 1}], "search": "grid"}, "runs": 2, "max_run": "soon"},
        {**SWEEP, "environment": {"SEED": "{parameters.sed}"}},
        {**SCHEDULE, **WRONG, "schedule": "cron(0 2)"},
        {**SCHEDULE, **SWEEP, "deadline": "2026-11-22T08:00:00Z"},
    ],
    ids=["job", "trials", "sweep", "placeholder", "schedule", "schedule of a sweep"],
)
def test_a_document_is_refused_as_it_is_judged_with_the_facts_of_the_deployment(wrong: dict[str, Any]) -> None:
    client = Client()
    judged = judge(wrong, DEFAULTS, now=client.launcher.now(), tpe=False)
    assert judged.problems
    assert judged.request is None
    with pytest.raises(RequestRefusedError) as refused:
        client.asks({"action": "validate", **wrong})
    assert [*refused.value.problems] == [*judged.problems]


@KINDS
def test_an_accepted_document_is_filled_in_and_warned_of_as_it_is_judged(document: dict[str, Any]) -> None:
    client = Client()
    document = {**document, "run": "first", "token": "monday", "environment": {"API_TOKEN": "x"}, "max_run": "6d"}
    answer = client.asks({"action": "validate", **document})
    judged = judge(document, DEFAULTS, now=client.launcher.now(), tpe=False)
    assert judged.request is not None
    own = {"run", "token"} if "schedule" in document else set()
    request = judged.request.as_document()
    assert {name: value for name, value in answer["request"].items() if name not in own} == {
        name: value for name, value in request.items() if name not in own
    }
    assert answer["warnings"] == [*judged.warnings]


@KINDS
def test_without_a_deployment_its_facts_are_taken_for_granted(document: dict[str, Any]) -> None:
    judged = judge({**document, "token": "monday"}, None, now=NOON)
    assert (judged.problems, judged.warnings) == ((), ())
    assert judged.request is not None
    assert (judged.request.image, judged.request.types) == (None, ("ml.m5.xlarge",))
    assert (judged.sweep is not None, judged.schedule is not None) == ("sweep" in document, "schedule" in document)


@pytest.mark.parametrize("document", [None, 7, "job", [JOB], {}, {"schedule": None, "sweep": None}])
def test_anything_can_be_judged(document: object) -> None:
    assert judge(document, None, now=NOON).problems
