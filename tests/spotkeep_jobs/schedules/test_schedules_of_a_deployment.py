"""Schedules from their launch to their removal, on the launcher as deployed, on a model of AWS."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from launcher import handler
from launcher.actions import ActionContext
from spotkeep_jobs.backends.job_files import SpecStore
from spotkeep_jobs.errors import RequestRefusedError, RunChangedError
from spotkeep_jobs.record.fields import Caller
from spotkeep_jobs.record.schedule import Schedule
from spotkeep_jobs.runs.callers import CallerRules
from spotkeep_jobs.runs.launch_completion import LaunchUnfinishedError
from spotkeep_jobs.schedules.scheduled_launches import Firing, ScheduledLaunches
from spotkeep_jobs.stack_deletion.stack_requests import Stacks
from spotkeep_jobs.sweeps.launcher_function import launcher_of
from tests.models.control_plane import ControlPlane
from tests.models.faults import client_error
from tests.models.s3 import BUCKET, RefusedPuts

NIGHTLY = "cron(0 2 * * ? *)"
DOCUMENT = {
    "name": "digits", "run": "nightly", "command": "python train.py", "max_run": "1h", "token": "token",
    "schedule": NIGHTLY,
}  # fmt: skip
ADA = Caller.of("arn:aws:sts::123456789012:assumed-role/Vision/ada", verified=True)
BOB = Caller.of("arn:aws:sts::123456789012:assumed-role/Speech/bob", verified=True)
RULES = CallerRules(team_members={"vision": ["arn:aws:sts::*:assumed-role/Vision/*"]})


class Deployment(ControlPlane):
    """What users and EventBridge Scheduler do to it."""

    def asked(self, caller: Caller | None = None, **fields: Any) -> dict[str, Any]:
        return self.answered(
            {name: value for name, value in {**DOCUMENT, **fields}.items() if value is not None}, caller
        )

    def answered(self, payload: Any, caller: Caller | None = None) -> dict[str, Any]:
        return handler.answer_to(payload, ActionContext(deployment=self.launcher, request_id="request", caller=caller))

    def fires(self, at: str, schedule: str = "nightly") -> dict[str, Any]:
        """Let the schedule fire, as Scheduler invokes the launcher."""
        payload = self.service.schedules.fire(schedule, at)
        assert payload is not None
        return self.invoked(payload)

    def firing_tomorrow(self) -> Firing:
        firing = ScheduledLaunches(self.launcher).firing("nightly", self.at(days=1))
        assert firing is not None
        return firing

    def invoked(self, payload: dict[str, Any]) -> dict[str, Any]:
        return handler.answer_event(payload, request_id="request", seconds_left=lambda: math.inf)

    @property
    def schedule(self) -> Schedule:
        schedule = self.record.schedules.get("nightly")
        assert schedule is not None
        return schedule

    @property
    def runs(self) -> list[str]:
        return sorted(run.run for run in self.record.runs.list(limit=100))

    def at(self, days: float) -> str:
        """A time so many days from now, as Scheduler writes it, when it has come."""
        self.service.seconds += timedelta(days=days).total_seconds()
        return f"{self.service.now():%Y-%m-%dT%H:%M:%SZ}"


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Deployment:
    deployment = Deployment()
    monkeypatch.setattr(handler, "current_deployment", lambda: deployment.launcher)
    return deployment


def refusal(deployment: Deployment, caller: Caller | None = None, **fields: Any) -> list[tuple[str, str]]:
    with pytest.raises(RequestRefusedError) as refused:
        deployment.asked(caller, **fields)
    return [(problem.field, problem.problem) for problem in refused.value.problems]


def verifying(deployment: Deployment) -> None:
    """Let the deployment verify who calls from now on."""
    settings = {
        "verify_callers": True,
        "team_members": RULES.team_members,
        "administrators": tuple(RULES.administrators),
    }
    launcher = deployment.launcher
    verifying = replace(launcher, settings=launcher.settings.model_copy(update=settings))
    verifying.__dict__.update({"table": launcher.table, "platform": launcher.platform, "defaults": launcher.defaults})
    verifying.__dict__["prices"] = launcher.prices
    deployment.launcher = verifying


def test_a_schedule_launches_nothing_until_it_fires(deployment: Deployment) -> None:
    answer = deployment.asked()
    assert answer["schedule"]["schedule"] == "nightly"
    assert answer["schedule"]["next_firing"].endswith("T02:00:00+00:00")
    assert deployment.runs == []
    made = deployment.service.schedules.recurring["nightly"]
    assert (made["GroupName"], made["ScheduleExpression"]) == ("launches", NIGHTLY)
    assert made["ScheduleExpressionTimezone"] == "UTC"
    assert made["FlexibleTimeWindow"] == {"Mode": "OFF"}
    assert made["Target"]["DeadLetterConfig"] == {"Arn": "queue"}
    assert made["Target"]["RetryPolicy"] == {"MaximumRetryAttempts": 20, "MaximumEventAgeInSeconds": 3600}
    assert "StartDate" not in made


def test_the_same_firing_is_the_same_run_and_another_firing_another_run(deployment: Deployment) -> None:
    deployment.asked()
    first = deployment.at(days=1)
    assert deployment.fires(first)["replayed"] is False
    assert deployment.fires(first)["replayed"] is True
    second = deployment.at(days=1)
    run = deployment.fires(second)["run"]
    assert deployment.runs == sorted([run, deployment.runs[0]])
    assert len(deployment.runs) == len(deployment.service.jobs) == 2
    assert run == f"nightly-{deployment.service.now():%Y%m%d-%H%M}"
    assert (deployment.schedule.last_launched, deployment.schedule.last_refusal) == (run, None)
    # A late try of the first firing changes nothing that a later one has written.
    assert deployment.fires(first)["replayed"] is True
    assert deployment.schedule.last_launched == run


def test_a_sweep_is_launched_whole_at_each_firing(deployment: Deployment) -> None:
    deployment.asked(name="{parameters.city}", sweep={"trials": [{"city": "berlin"}, {"city": "paris"}], "parallel": 2})
    handler.launcher_function.cache_clear()
    for _ in range(2):
        at = deployment.at(days=1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(handler, "launcher_function", lambda: launcher_of(deployment.controller))
            sweep = deployment.fires(at)["sweep"]
        deployment.advance_sweeps()
        assert sweep == f"nightly-{deployment.service.now():%Y%m%d-%H%M}"
        assert {f"{sweep}-1", f"{sweep}-2"} <= {job.request["TrainingJobName"].removesuffix("-1")
                                                for job in deployment.service.jobs.values()}  # fmt: skip
        assert deployment.schedule.last_launched == sweep


def test_a_schedule_that_is_not_known_or_was_removed_does_nothing(deployment: Deployment) -> None:
    deployment.asked()
    payload = deployment.service.schedules.fire("nightly", deployment.at(days=1))
    assert payload is not None
    removed = deployment.answered({"action": "remove-schedule", "schedule": "nightly"})
    assert removed == {"ok": True, "schedule": "nightly"}
    assert deployment.service.schedules.recurring == {}
    for late in (
        payload,
        {**payload, "schedule": "another"},
        {**payload, "schedule": 5},
        {"action": payload["action"]},
    ):
        assert "ignored" in deployment.invoked(late)
    assert deployment.runs == []


@pytest.mark.parametrize(
    "firing", [None, 5, "today", "2026-11-26T02:00:00", "1999-01-01T00:00:00Z", "2199-01-01T00:00:00Z"]
)
def test_a_firing_outside_of_the_schedules_life_does_nothing(deployment: Deployment, firing: object) -> None:
    deployment.asked()
    assert "ignored" in deployment.invoked({"action": "launch-scheduled", "schedule": "nightly", "firing": firing})


def test_what_would_be_refused_today_is_not_scheduled_and_every_problem_is_named(deployment: Deployment) -> None:
    found = refusal(
        deployment, schedule={"expression": "cron(0 2 * * *)", "timezone": "Europe/Nowhere", "every": 5},
        max_run="99 days", deadline="2027-01-01T00:00:00Z",
    )  # fmt: skip
    assert {field for field, _ in found} == {
        "schedule.expression", "schedule.timezone", "schedule.every", "max_run", "deadline"
    }  # fmt: skip
    assert deployment.service.schedules.recurring == {}
    assert list(deployment.record.schedules.list()) == []


def test_a_schedule_that_never_fires_any_more_is_refused(deployment: Deployment) -> None:
    assert refusal(deployment, schedule="cron(0 0 30 2 ? *)") == [("schedule", "never fires any more")]


def test_its_name_leaves_room_for_the_time_of_a_firing(deployment: Deployment) -> None:
    assert refusal(deployment, run="n" * 39)[0] == (
        "run", "has 39 characters; with the time of a firing behind it 38 fit"
    )  # fmt: skip
    assert deployment.asked(run="n" * 38)["ok"]
    sweep = {"trials": [{"lr": 0.1}]}
    assert refusal(deployment, run="m" * 37, sweep=sweep)[0][1].endswith("36 fit")
    assert deployment.asked(run="m" * 36, sweep=sweep)["ok"]


def test_without_a_name_it_is_named_after_the_job_and_its_token(deployment: Deployment) -> None:
    assert deployment.asked(run=None)["schedule"]["schedule"].startswith("digits-")


def test_the_same_token_again_is_the_same_schedule_and_not_another_document(deployment: Deployment) -> None:
    assert not deployment.asked()["replayed"]
    assert deployment.asked()["replayed"]
    assert refusal(deployment, max_run="2h") == [
        ("token", "was used before, for schedule nightly, with another document")
    ]
    assert refusal(deployment, token="another") == [("run", "is the name of a schedule that exists already")]


def test_days_of_the_week_that_aws_counts_otherwise_are_a_warning(deployment: Deployment) -> None:
    for action in ("validate", "launch"):
        warning, *_ = deployment.asked(action=action, schedule="cron(0 2 ? * 1-5 *)")["warnings"]
        assert "fires on SUN-THU" in warning


def test_a_rate_begins_after_its_interval(deployment: Deployment) -> None:
    answer = deployment.asked(schedule="rate(6 hours)")
    begins = deployment.schedule.begins_at
    assert timedelta(0) <= deployment.service.now() + timedelta(hours=6) - begins < timedelta(seconds=1)
    assert deployment.service.schedules.recurring["nightly"]["StartDate"] == begins
    assert answer["schedule"]["next_firing"] == begins.isoformat()


def test_what_aws_refuses_is_not_recorded(deployment: Deployment) -> None:
    deployment.service.schedules.refuses = "Invalid Schedule Expression"
    [(field, problem)] = refusal(deployment)
    assert (field, "Invalid Schedule Expression" in problem) == ("schedule", True)
    assert list(deployment.record.schedules.list()) == []


def test_a_schedule_whose_making_has_no_answer_is_made_by_the_same_call_again(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def throttled(**_schedule: Any) -> None:
        raise client_error("CreateSchedule", "ThrottlingException")

    with monkeypatch.context() as patch:
        patch.setattr(deployment.service.schedules, "create_schedule", throttled)
        with pytest.raises(LaunchUnfinishedError, match=r"The schedule is recorded.*token token$") as unfinished:
            deployment.asked()
    assert "controller" not in str(unfinished.value)
    assert deployment.service.schedules.recurring == {}
    assert deployment.asked()["ok"]
    assert list(deployment.service.schedules.recurring) == ["nightly"]


def test_a_schedule_whose_transaction_meets_a_launch_is_recorded_at_the_next_try(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever begins asks for the deletion of the deployment, and of two that ask at once DynamoDB refuses one."""
    reasons: Any = [{"Code": "None"}, {"Code": "TransactionConflict"}]
    busy = client_error("TransactWriteItems", "TransactionCanceledException", CancellationReasons=reasons)
    write, met = deployment.service.transact_write_items, iter([busy])

    def once_busy(**asked: Any) -> Any:
        for error in met:
            raise error
        return write(**asked)

    with monkeypatch.context() as patch:
        patch.setattr(deployment.service, "transact_write_items", Mock(side_effect=busy), raising=False)
        with pytest.raises(LaunchUnfinishedError, match=r"recorded nothing\. Call again.*token token$"):
            deployment.asked()
        patch.setattr(deployment.service, "transact_write_items", Mock(side_effect=once_busy), raising=False)
        assert deployment.asked()["ok"]
    assert list(deployment.service.schedules.recurring) == ["nightly"]
    assert deployment.schedule.schedule == "nightly"


def test_a_firing_whose_spec_s3_refuses_launches_nothing_and_keeps_the_reason(deployment: Deployment) -> None:
    deployment.asked()
    s3 = RefusedPuts("KMS.DisabledException", "key/1 is disabled.", 400)
    deployment.launcher.__dict__["specs"] = SpecStore(lambda: s3)  # type: ignore[arg-type,return-value]
    answer = deployment.fires(deployment.at(days=1))
    assert (answer["ok"], [problem["field"] for problem in answer["problems"]]) == (False, ["(S3)"])
    assert "key/1 is disabled" in (deployment.schedule.last_refusal or "")
    assert deployment.runs == []
    s3.error = ("SlowDown", "Reduce your request rate.", 503)
    at = deployment.at(days=1)
    with pytest.raises(LaunchUnfinishedError, match="recorded nothing"):
        deployment.fires(at)
    s3.error = ()
    assert deployment.fires(at)["replayed"] is False
    assert deployment.schedule.last_refusal is None


class TestAFiringThatIsRefused:
    """It launches nothing; the schedule's owner is notified by the controller's next pass, like of anything."""

    @pytest.fixture
    def refused(self, deployment: Deployment) -> Deployment:
        """A schedule whose first run still trains where the next one would."""
        deployment.asked(checkpoint_prefix=f"s3://{BUCKET}/runs/nightly/checkpoints/")
        assert deployment.fires(deployment.at(days=1))["ok"]
        return deployment

    def sent(self, deployment: Deployment) -> list[str]:
        return [each.notification_id for each in deployment.record.notifications.of_run("nightly")]

    def test_says_why_and_is_notified_once_while_the_reason_is_the_same(self, refused: Deployment) -> None:
        first = refused.at(days=1)
        for at in (first, first, refused.at(days=1)):
            assert not refused.fires(at)["ok"]
        assert len(refused.runs) == 1
        assert refused.schedule.last_launched is None
        assert "belongs to the live run" in (refused.schedule.last_refusal or "")
        (notification,) = refused.record.notifications.of_run("nightly")
        assert notification.subject == "[spotkeep] nightly launched nothing: its job file is refused"
        assert "belongs to the live run nightly-" in " ".join(notification.body.split())
        assert "It fires again at " in notification.body
        assert notification.attributes["status"] == "failed"

    def test_is_notified_again_after_a_launch(self, refused: Deployment) -> None:
        assert not refused.fires(refused.at(days=1))["ok"]
        firing = refused.firing_tomorrow()
        ScheduledLaunches(refused.launcher).keep(firing, launched="nightly-now")
        assert not refused.fires(refused.at(days=1))["ok"]
        assert len(self.sent(refused)) == 2

    def test_is_not_notified_where_the_job_file_asks_for_nothing_of_what_fails(self, deployment: Deployment) -> None:
        deployment.asked(checkpoint_prefix=f"s3://{BUCKET}/runs/nightly/checkpoints/", notify=["completed"])
        assert deployment.fires(deployment.at(days=1))["ok"]
        assert not deployment.fires(deployment.at(days=1))["ok"]
        assert self.sent(deployment) == []

    def test_is_kept_for_the_next_try_where_the_table_was_busy(self, refused: Deployment) -> None:
        """Lambda tries an event again whose function failed."""
        firing = refused.firing_tomorrow()
        reasons: Any = [{"Code": "TransactionConflict"}, {"Code": "None"}]
        busy = client_error("TransactWriteItems", "TransactionCanceledException", CancellationReasons=reasons)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(refused.service, "transact_write_items", Mock(side_effect=busy), raising=False)
            with pytest.raises(RunChangedError):
                ScheduledLaunches(refused.launcher).keep(firing, refusal="its image is not allowed")
        assert self.sent(refused) == []
        ScheduledLaunches(refused.launcher).keep(firing, refusal="its image is not allowed")
        assert len(self.sent(refused)) == 1

    def test_is_not_notified_of_a_schedule_that_was_removed_meanwhile(self, refused: Deployment) -> None:
        firing = refused.firing_tomorrow()
        ScheduledLaunches(refused.launcher).remove(firing.schedule)
        ScheduledLaunches(refused.launcher).keep(firing, refusal="its image is not allowed")
        assert (self.sent(refused), refused.record.schedules.get("nightly")) == ([], None)


class TestWhereCallersAreVerified:
    @pytest.fixture(autouse=True)
    def _verified(self, deployment: Deployment) -> None:
        verifying(deployment)

    def test_each_launch_is_its_callers_alone(self, deployment: Deployment) -> None:
        deployment.asked(ADA)
        assert (deployment.schedule.owner, deployment.schedule.launched_by) == ("ada", ADA)
        run = deployment.record.runs.get(deployment.fires(deployment.at(days=1))["run"])
        assert run is not None
        assert (run.owner, run.launched_by) == ("ada", ADA)

    def test_another_owner_and_another_team_are_refused(self, deployment: Deployment) -> None:
        assert [field for field, _ in refusal(deployment, BOB, owner="ada", team="vision")] == ["owner", "team"]
        assert [field for field, _ in refusal(deployment)] == ["(caller)"]

    def test_the_launch_of_a_firing_cannot_be_asked_for_at_the_url(self, deployment: Deployment) -> None:
        deployment.asked(ADA)
        payload = deployment.service.schedules.fire("nightly", deployment.at(days=1))
        with pytest.raises(RequestRefusedError, match="is not one of"):
            deployment.answered(payload, BOB)
        assert deployment.runs == []

    def test_only_owner_team_and_administrators_remove_it(self, deployment: Deployment) -> None:
        deployment.asked(ADA, team="vision")

        def remove(caller: Caller | None) -> Any:
            return deployment.answered({"action": "remove-schedule", "schedule": "nightly"}, caller)

        for stranger in (BOB, None):
            with pytest.raises(RequestRefusedError):
                remove(stranger)
        assert ADA is not None
        teammate = replace(ADA, arn=ADA.arn.replace("ada", "eve"), name="eve")
        assert remove(teammate)["ok"]


def test_a_caller_who_was_not_verified_when_they_asked_is_unknown_to_a_deployment_that_verifies(
    deployment: Deployment,
) -> None:
    assert ADA is not None
    deployment.asked(replace(ADA, verified=False))
    verifying(deployment)
    assert not deployment.fires(deployment.at(days=1))["ok"]
    assert "(caller)" in (deployment.schedule.last_refusal or "")


def test_the_deletion_of_the_deployment_forgets_its_schedules(deployment: Deployment) -> None:
    deployment.asked()
    deployment.shutdown(Stacks(lambda: pytest.fail("no stack is asked for"))).stop_everything()
    assert list(deployment.record.schedules.list()) == []
    assert "ignored" in deployment.fires(deployment.at(days=1))


def test_the_source_of_a_schedule_is_no_orphan_before_its_first_run(deployment: Deployment) -> None:
    key = "sources/nightly/" + "0" * 64 + ".tar.gz"
    deployment.asked(source=f"s3://{BUCKET}/{key}")
    deployment.service.objects.written[key] = deployment.service.now()
    deployment.service.seconds += timedelta(days=3).total_seconds()
    report = deployment.pass_over_orphans()
    assert report is not None
    assert report.handled == ()
    deployment.record.schedules.forget("nightly")
    deployment.service.seconds += timedelta(days=1).total_seconds()
    report = deployment.pass_over_orphans()
    assert report is not None
    assert [each.finding.subject for each in report.handled] == [f"s3://{BUCKET}/sources/nightly/"]
