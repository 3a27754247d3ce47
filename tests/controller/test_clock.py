"""The controller on the clock and CloudFormation: bounded by its time, failing only after all else is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from controller import handler as entry
from controller.events import CLEAR_DELETION, CLOCK_EVENT
from controller.full_pass import PassFailedError
from controller.reconciliation import PassReport
from spotkeep_jobs.record.deployment_records import (
    Finding,
    Handled,
    OrphanKind,
    OrphanOutcome,
    OrphanReport,
    OrphanRule,
    StackRequest,
)
from spotkeep_jobs.stack_deletion.shutdown import Alive
from spotkeep_jobs.stack_deletion.stack_requests import stack_request
from tests.models.functions import Context


class ScriptedPass:
    """The pass, as far as the entry point sees it."""

    def __init__(self, report: PassReport) -> None:
        self._report = report
        self.had_time: bool | None = None

    def run(self, *, seconds_left: Callable[[], float], may_send: Callable[[], bool]) -> PassReport:
        self.had_time = seconds_left() > 0
        assert may_send()
        return self._report

    def read_prices(self, report: PassReport) -> None:
        report.failures |= self._report.failures


@dataclass
class ScriptedShutdown:
    """The end of the deployment, as far as the entry point sees it."""

    waiting: StackRequest | None = None
    alive: Alive = field(default_factory=Alive)
    asked: list[str] = field(default_factory=list)

    def begin(self, request: StackRequest) -> bool:
        self.asked.append(request.kind)
        return request.kind == "Delete"

    def pending(self) -> StackRequest | None:
        return self.waiting

    def stop_everything(self) -> Alive:
        self.asked.append("stop")
        return self.alive

    def clear(self) -> str:
        self.asked.append("clear")
        return "it is cleared"

    def answer_if_over(self, request: StackRequest) -> Alive:
        self.asked.append(f"answer {request.request_id}")
        return self.alive


def call(
    monkeypatch: pytest.MonkeyPatch,
    report: PassReport,
    context: Context | None = None,
    *,
    shutdown: ScriptedShutdown | None = None,
    event: object = None,
) -> tuple[Any, Any]:
    full_pass = ScriptedPass(report)
    monkeypatch.setattr(entry, "current_shutdown", lambda: shutdown or ScriptedShutdown())
    monkeypatch.setattr(entry, "current_full_pass", lambda: full_pass)
    return entry.handler(event or CLOCK_EVENT, context or Context()), full_pass


def test_a_pass_is_answered_with_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, full_pass = call(monkeypatch, PassReport(runs=3, changes=2, completed=1, pools=4, notifications_sent=1))
    assert answer == {
        "ok": True, "runs": 3, "changes": 2, "completed": 1, "pools": 4, "notifications_sent": 1,
        "left": 0, "orphans": None,
    }  # fmt: skip
    assert full_pass.had_time
    _, full_pass = call(monkeypatch, PassReport(), Context(remaining_milliseconds=20_000))
    assert full_pass.had_time is False, "the end of its time is kept for sending"


def of_cloudformation(kind: str) -> dict[str, str]:
    return {
        "RequestType": kind, "RequestId": "r-1", "StackId": "arn:aws:cloudformation:us-east-1:1:stack/S/1",
        "LogicalResourceId": "Shutdown", "ResponseURL": "https://answers.example.com/1",
    }  # fmt: skip


def test_a_deployment_that_is_made_has_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    shutdown = ScriptedShutdown()
    answer, full_pass = call(monkeypatch, PassReport(), shutdown=shutdown, event=of_cloudformation("Create"))
    assert answer == {"ok": True, "answered": "Create"}
    assert (shutdown.asked, full_pass.had_time) == (["Create"], None)


@pytest.mark.parametrize(("kind", "reads"), [("Create", True), ("Update", True), ("Delete", False)])
def test_it_reads_the_prices_once_it_answered_and_one_that_goes_does_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str, reads: bool
) -> None:
    class AlreadyGone(ScriptedShutdown):
        def begin(self, request: StackRequest) -> bool:
            return False  # a deletion of the resource alone: answered

    report = PassReport(failures={"prices": "ClientError: the table is not there yet"})
    answer, _ = call(monkeypatch, report, shutdown=AlreadyGone(), event=of_cloudformation(kind))
    # What fails is in the log and fails no deployment.
    assert answer == {"ok": True, "answered": kind}
    assert ("prices not read" in caplog.messages) == reads


def test_one_that_is_deleted_is_asked_to_stop_passed_over_and_then_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    shutdown = ScriptedShutdown()
    _, full_pass = call(monkeypatch, PassReport(), shutdown=shutdown, event=of_cloudformation("Delete"))
    assert shutdown.asked == ["Delete", "stop", "answer r-1"]
    assert full_pass.had_time


def test_every_pass_goes_on_with_a_deletion_and_says_what_could_not_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = stack_request(of_cloudformation("Delete"), now=NOON)
    shutdown = ScriptedShutdown(waiting=waiting, alive=Alive(runs=["a"], failures={"run a": "slow down"}))
    with pytest.raises(PassFailedError, match="run a: slow down"):
        call(monkeypatch, PassReport(), shutdown=shutdown)
    assert shutdown.asked == ["stop", "answer r-1"]


def test_failures_are_raised_together_after_metrics_and_logs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    report = PassReport(runs=3, failures={"run a": "AwsBusyError: slow down", "outbox": "ClientError: no"})
    with pytest.raises(PassFailedError, match="run a: AwsBusyError: slow down; outbox") as raised:
        call(monkeypatch, report)
    assert raised.value.failures == report.failures
    said = capsys.readouterr().out
    assert '"PassFailures":[2.0]' in said.replace(" ", "")
    logged = [vars(record)["problem"] for record in caplog.records if record.msg == "not reconciled"]
    assert logged == list(report.failures.values())


NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def handled(outcome: OrphanOutcome, *, kind: OrphanKind = OrphanKind.UNRECORDED_JOB) -> Handled:
    finding = Finding(
        kind=kind, rule=OrphanRule.REMOVE, subject="stray-1", since=NOON, says="training job stray-1 belongs to no run",
        risk="bills", mend="aws sagemaker stop-training-job --training-job-name stray-1", usd_per_hour=0.23,
    )  # fmt: skip
    return Handled(finding=finding, outcome=outcome)


def test_what_was_orphaned_is_counted_logged_and_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    report = OrphanReport(
        begun_at=NOON,
        removes=True,
        handled=(handled(OrphanOutcome.REMOVED), handled(OrphanOutcome.REPORTED, kind=OrphanKind.IDLE_POOL)),
        unreadable={"warm pools": "AccessDenied"},
    )
    answer, _ = call(monkeypatch, PassReport(orphans=report))
    assert answer["orphans"] == {"found": 2, "wrong": 1, "removed": 1, "reported": 1}
    said = capsys.readouterr().out.replace(" ", "")
    assert '"OrphansFound":[1.0]' in said
    assert '"OrphansRemoved":[1.0]' in said
    assert '"OrphansNotRemoved":[1.0]' in said, "what could not be read may hold anything"
    assert '"OrphansUsdPerHour":[0.23]' in said, "a pool that waits as it was asked to is no orphan"
    logged = [(record.levelname, record.msg) for record in caplog.records if "stray-1" in record.msg]
    assert logged == [
        ("WARNING", "training job stray-1 belongs to no run"),
        ("INFO", "training job stray-1 belongs to no run"),
    ]
    assert [vars(record)["what"] for record in caplog.records if record.msg == "not read"] == ["warm pools"]


def test_an_account_in_order_writes_no_metric_that_would_be_billed_and_what_was_not_removed_is_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call(monkeypatch, PassReport(orphans=OrphanReport(begun_at=NOON, removes=True)))
    said = capsys.readouterr().out
    assert "OrphansFound" in said
    assert "OrphansNotRemoved" not in said
    assert "OrphansUsdPerHour" not in said
    left = (handled(OrphanOutcome.FAILED), handled(OrphanOutcome.FAILED))
    call(monkeypatch, PassReport(orphans=OrphanReport(begun_at=NOON, removes=True, handled=left)))
    assert '"OrphansNotRemoved":[2.0]' in capsys.readouterr().out.replace(" ", "")


def test_prices_that_aws_does_not_give_are_no_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answer, _ = call(monkeypatch, PassReport(prices_unread="the prices could not be read"))
    assert answer["ok"]
    assert [record.levelname for record in caplog.records if record.msg == "prices not read"] == ["WARNING"]


def test_a_deletion_that_cannot_be_read_keeps_no_pass_from_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unreadable(ScriptedShutdown):
        def pending(self) -> StackRequest | None:
            raise ValueError("form 2")

    with pytest.raises(PassFailedError, match="deletion of the deployment: ValueError: form 2"):
        call(monkeypatch, PassReport(runs=3), shutdown=Unreadable())


def test_who_runs_the_deployment_has_a_failed_deletion_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    shutdown = ScriptedShutdown()
    answer, full_pass = call(monkeypatch, PassReport(), shutdown=shutdown, event=CLEAR_DELETION)
    assert (answer, shutdown.asked) == ({"ok": True, "deletion": "it is cleared"}, ["clear"])
    assert full_pass.had_time is None, "nothing else is done"
