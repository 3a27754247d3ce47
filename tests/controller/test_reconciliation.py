"""The controller on events: what they name is reconciled, once for each job, and what failed comes again."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller import handler as entry
from controller import reconciliation
from controller.events import CLOCK_EVENT, TRAINING_JOB_CHANGED, Hint
from spotkeep_fleet.tags import ATTEMPT_TAG, DEPLOYMENT_TAG, RUN_TAG
from spotkeep_jobs.backends.ec2.ec2_api import Ec2Api, tag_list
from spotkeep_jobs.backends.ec2.jobs import FleetOwners
from spotkeep_jobs.deployment import Deployment
from spotkeep_jobs.errors import AwsBusyError
from spotkeep_jobs.record.states import RunState
from spotkeep_jobs.runs.run_reconciler import RunReconciler
from spotkeep_jobs.settings import ControllerSettings
from tests.models.clock import NOON
from tests.models.ec2 import Ec2, ModelFleet
from tests.models.faults import Fault, Faults, client_error
from tests.models.functions import Context
from tests.spotkeep_jobs.conftest import Make, World

make = Make()
MODEL = "s3://b/runs/digits/output/digits-1/output/model.tar.gz"


@dataclass
class Stage:
    """A controller on models of AWS, with a run whose job SageMaker knows."""

    world: World = field(default_factory=World)

    def __post_init__(self) -> None:
        self.run = self.world.launch(make.run("digits", request={}), make.attempt("digits"))
        self.sagemaker, self.table = self.world.sagemaker, self.world.table

    def completes(self) -> None:
        """The job completes."""
        self.sagemaker.has_job(
            "digits-1", ("Training", 0.0), ("Completed", 0.0), TrainingTimeInSeconds=600, BillableTimeInSeconds=180,
            ModelArtifacts={"S3ModelArtifacts": MODEL},
        )  # fmt: skip

    def sent(self) -> list[str]:
        return [notification.notification_id for notification in self.world.topic.published]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    stage = Stage()
    monkeypatch.setattr(entry, "current_deployment", lambda: stage.world.controller)
    return stage


def training_event(job_name: str = "digits-1") -> dict[str, Any]:
    return {
        "version": "0", "id": "1", "source": "aws.sagemaker", "detail-type": TRAINING_JOB_CHANGED,
        "detail": {"TrainingJobName": job_name, "TrainingJobStatus": "Failed"},
    }  # fmt: skip


def batch(*bodies: object) -> dict[str, Any]:
    """A batch as Lambda takes it from the queue; its messages are called m0, m1, ..."""
    return {
        "Records": [
            {
                "messageId": f"m{number}", "receiptHandle": "r", "eventSource": "aws:sqs",
                "body": body if isinstance(body, str) else json.dumps(body),
            }
            for number, body in enumerate(bodies)
        ]
    }  # fmt: skip


def given_back(answer: dict[str, Any]) -> list[str]:
    """The messages that Lambda leaves in the queue."""
    assert list(answer) == ["batchItemFailures"]
    return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


def call(event: object) -> dict[str, Any]:
    answer: dict[str, Any] = entry.handler(event, Context())
    return answer


def test_an_event_is_a_hint_and_describe_is_the_fact(stage: Stage) -> None:
    """The event says Failed, SageMaker says Completed: the run completed."""
    stage.completes()
    assert call(training_event()) == {
        "ok": True, "run": "digits", "state": "COMPLETED", "changes": 1, "notifications_sent": ["digits/completed/1"],
    }  # fmt: skip
    run_item = stage.table.runs.get("digits")
    assert run_item is not None
    assert (run_item.state, run_item.output_uri) == (RunState.COMPLETED, MODEL)


def test_another_deployments_job_is_ignored_quietly(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(training_event("strangers-model-7"))["ignored"]
    said = capsys.readouterr().out
    assert "strangers-model-7" not in said
    assert '"EventForeign"' in said


def test_what_sagemaker_cannot_answer_is_raised_to_the_sender_of_a_bare_event(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.sagemaker.withheld["digits-1"] = "ThrottlingException"
    with pytest.raises(AwsBusyError):
        call(training_event())
    assert '"EventFailed"' in capsys.readouterr().out
    assert stage.table.runs.get("digits") == stage.run


def test_a_burst_of_events_for_one_job_describes_it_once(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.completes()
    assert given_back(call(batch(*[training_event()] * 10))) == []
    assert stage.sagemaker.described == ["digits-1"]
    run_item = stage.table.runs.get("digits")
    assert run_item is not None
    assert run_item.state is RunState.COMPLETED
    assert stage.sent() == ["digits/completed/1"]
    assert '"RunChanged":[1.0]' in capsys.readouterr().out.replace(" ", "")


def test_the_queue_keeps_the_messages_of_the_job_that_failed_and_no_others(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.sagemaker.withheld["digits-1"] = "ThrottlingException"
    mixed = batch(training_event(), "junk", training_event("strangers-model-7"), training_event())
    assert given_back(call(mixed)) == ["m0", "m3"]
    said = capsys.readouterr().out.replace(" ", "")
    for metric in ('"EventFailed":[2.0]', '"EventRefused":[1.0]', '"EventForeign":[1.0]'):
        assert metric in said
    stage.sagemaker.withheld.clear()
    stage.completes()
    assert given_back(call(batch(training_event(), training_event()))) == []
    assert stage.sent() == ["digits/completed/1"]


FLEETS = [f"fleet-a1b2c3d4-0000-4000-8000-00000000000{number}" for number in range(4)]


def owners(faults: Faults, jobs: dict[str, str]) -> FleetOwners:
    """The owners of the account's fleets: the attempts of this deployment, and others."""
    ec2: Any = Ec2(faults)
    ec2.page_size = len(FLEETS)
    for fleet_id in FLEETS:
        run, _, attempt = jobs.get(fleet_id, "").rpartition("-")
        tags = {DEPLOYMENT_TAG: "spotkeep", RUN_TAG: run, ATTEMPT_TAG: attempt} if run else {"Name": "web"}
        request = {
            "ClientToken": fleet_id, "TagSpecifications": [{"ResourceType": "fleet", "Tags": tag_list(tags)}],
        }  # fmt: skip
        ec2.fleets[fleet_id] = ModelFleet(id=fleet_id, request=request, created=NOON)
    return FleetOwners(Ec2Api(lambda: ec2), deployment="spotkeep")


def fleet_event(fleet_id: str, sub_type: str = "launched") -> dict[str, Any]:
    return {
        "source": "aws.ec2fleet", "detail-type": "EC2 Fleet Instance Change", "detail": {"sub-type": sub_type},
        "resources": [f"arn:aws:ec2:us-east-1:123456789012:fleet/{fleet_id}"],
    }  # fmt: skip


def agent_event(run: str) -> dict[str, Any]:
    detail = {"run": run, "attempt": 1, "event": "left"}
    return {"source": "spotkeep.agent", "detail-type": "Spotkeep Instance Change", "detail": detail}


def test_a_busy_accounts_batch_asks_ec2_once_and_reconciles_each_attempt_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults()
    stage.world.controller.__dict__["fleet_owners"] = owners(faults, {FLEETS[0]: "digits-1", FLEETS[1]: "letters-1"})
    reconciled: list[str] = []
    monkeypatch.setattr(RunReconciler, "reconcile_job", lambda _self, job_name: reconciled.append(job_name))
    events = [*map(fleet_event, FLEETS), agent_event("digits"), *map(fleet_event, FLEETS), agent_event("letters")]
    assert given_back(call(batch(*events))) == []
    assert faults.calls == ["DescribeFleets"]
    assert reconciled == ["digits-1", "letters-1"]


def test_fleets_that_ec2_says_nothing_of_are_asked_for_again_and_the_rest_of_the_batch_is_followed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults()
    faults.strike(Fault.REFUSED)
    stage.world.controller.__dict__["fleet_owners"] = owners(faults, {})
    stage.completes()
    events = [fleet_event(FLEETS[0]), training_event(), fleet_event(FLEETS[1])]
    assert given_back(call(batch(*events))) == ["m0", "m2"]
    assert stage.sagemaker.described == ["digits-1"]


def test_a_bare_event_of_a_fleet_is_followed_to_its_attempt(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.world.controller.__dict__["fleet_owners"] = owners(Faults(), {FLEETS[0]: "digits-1"})
    stage.completes()
    assert call(fleet_event(FLEETS[0]))["run"] == "digits"
    assert call(fleet_event(FLEETS[1]))["ignored"] == "the fleet belongs to no run of this deployment"


def test_a_topic_that_refuses_does_not_undo_the_record(stage: Stage) -> None:
    def refuse(operation: str) -> None:
        raise client_error(operation, "Throttled")

    stage.completes()
    stage.world.topic.before_call = refuse
    assert call(training_event())["notifications_sent"] == []
    stage.world.topic.before_call = lambda _operation: None
    assert call(training_event())["notifications_sent"] == ["digits/completed/1"]


@given(
    junk=st.recursive(
        st.none() | st.integers() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
        max_leaves=6,
    ).filter(lambda event: event not in (None, {}, CLOCK_EVENT))
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_junk_is_answered_and_touches_nothing(junk: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def untouched() -> Deployment[ControllerSettings]:
        raise AssertionError("junk reached the record")

    with monkeypatch.context() as patch:
        patch.setattr(entry, "current_deployment", untouched)
        answer = call(junk)
    assert (answer["ok"], answer["error"]) == (False, "unknown-event")
    assert answer["problem"]


BODIES = st.one_of(
    st.sampled_from(["job-1", "job-2", "job-3", "strangers-1", "failing-1", "failing-2"]).map(training_event),
    st.sampled_from(["null", "{", "[1]", '{"source": "custom.app"}', ""]),
)


@given(bodies=st.lists(BODIES, max_size=10))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_any_batch_reconciles_each_job_once_and_gives_back_what_failed(
    bodies: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    reconciled: list[str] = []

    def reconcile(hint: Hint, *, deployment: object) -> dict[str, Any]:
        reconciled.append(hint.name)
        if hint.name.startswith("failing"):
            raise AwsBusyError(operation="Describe", code="ThrottlingException", reason="Rate exceeded")
        return {"ok": True}

    named = {
        f"m{number}": body["detail"]["TrainingJobName"]
        for number, body in enumerate(bodies)
        if not isinstance(body, str)
    }
    with monkeypatch.context() as patch:
        patch.setattr(entry, "current_deployment", lambda: None)
        patch.setattr(reconciliation, "reconcile_hint", reconcile)
        kept = given_back(call(batch(*bodies)))
    assert sorted(reconciled) == sorted(set(named.values()))
    assert sorted(kept) == sorted(message for message, job in named.items() if job.startswith("failing"))


def test_a_batch_of_nothing_but_junk_is_done_with_and_needs_no_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    def untouched() -> Deployment[ControllerSettings]:
        raise AssertionError("junk reached the record")

    monkeypatch.setattr(entry, "current_deployment", untouched)
    assert given_back(call(batch("junk", "{}"))) == []
    assert given_back(call({"Records": []})) == []


def test_the_first_event_of_another_clients_job_with_our_tag_makes_it_a_run(stage: Stage) -> None:
    name = "pytorch-training-2026-11-24"
    tags = {"spotkeep:deployment": "spotkeep"}
    stage.sagemaker.has_job(
        name, ("Training", 0.0), ("Completed", 1.0), TrainingTimeInSeconds=60, BillableTimeInSeconds=60,
        request={"Environment": {}, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]},
    )  # fmt: skip
    event = training_event(name)
    event["detail"]["Tags"] = tags
    assert entry.handler(batch(event, event), Context()) == {"batchItemFailures": []}
    assert stage.sent() == [f"{name}/completed/1"]
    assert entry.handler(event, Context())["notifications_sent"] == []


class TestATrainingJobOfAQueue:
    """AWS Batch names it, and may give it no tags: its marks lead to the run, and the run's record decides."""

    NAME = "AWSBatchdigits-188b610a69aa8380ca5b0a7aba3f81cb8"

    def exists(self, stage: Stage, *, run: str) -> None:
        stage.sagemaker.has_job(
            self.NAME, ("Training", 0.0), request={"Environment": {"SPOTKEEP_RUN": run}, "Tags": []}
        )

    def test_its_event_reconciles_the_run_that_its_environment_names(self, stage: Stage) -> None:
        self.exists(stage, run="digits")
        stage.completes()
        assert entry.handler(training_event(self.NAME), Context())["state"] == "COMPLETED"

    def test_that_name_is_a_hint_and_changes_nothing_by_itself(self, stage: Stage) -> None:
        self.exists(stage, run="digits")
        before = stage.table.runs.get("digits")
        stage.sagemaker.has_job("digits-1", ("Pending", 0.0))
        entry.handler(training_event(self.NAME), Context())
        after = stage.table.runs.get("digits")
        assert before is not None
        assert after is not None
        assert (after.state.ended, after.job_id, after.training_job) == (False, before.job_id, None)

    @pytest.mark.parametrize("run", ["unknown", "no run\n"])
    def test_a_strangers_is_none_of_ours(self, stage: Stage, run: str) -> None:
        self.exists(stage, run=run)
        assert "ignored" in entry.handler(training_event(self.NAME), Context())
        assert stage.table.runs.get(self.NAME) is None

    @pytest.mark.parametrize("of", ["another deployment", "a deployment without queues", "a client"])
    def test_sagemaker_is_not_asked_about(self, stage: Stage, of: str) -> None:
        event = training_event("theirs" if of == "a client" else self.NAME)
        if of == "another deployment":
            event["detail"]["Tags"] = {"spotkeep:deployment": "production"}
        if of == "a deployment without queues":
            queues = replace(stage.world.controller.queues, has_queues=False)
            stage.world.controller.__dict__["queues"] = queues
        stage.sagemaker.described.clear()
        assert "ignored" in entry.handler(event, Context())
        assert stage.sagemaker.described == []


def test_an_event_that_claims_our_tag_falsely_makes_no_run(stage: Stage) -> None:
    stage.sagemaker.has_job("theirs", ("Training", 0.0), request={"Environment": {}, "Tags": []})
    event = training_event("theirs")
    event["detail"]["Tags"] = {"spotkeep:deployment": "spotkeep"}
    assert "ignored" in entry.handler(event, Context())
    assert stage.table.runs.get("theirs") is None
