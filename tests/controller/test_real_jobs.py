"""The controller reconciles real training jobs of the local AWS: what it records is what happened."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from spotkeep_jobs.backends.sagemaker.request import marks_of
from spotkeep_jobs.functions.controller_settings import ControllerSettings
from spotkeep_jobs.functions.controller_wiring import ControllerParts, wired
from spotkeep_jobs.record.record import Attempt, Run
from spotkeep_jobs.record.states import EndReason, NotificationKind, RunState, TimelineKind
from spotkeep_local.capacity import CapacityScript, Interruption
from spotkeep_local.control import LocalControl

pytestmark = pytest.mark.long

PATIENCE_SECONDS = 40.0

SCRIPT = """
import json, os, pathlib, sys, time

base = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
saved = base / "checkpoints" / "step"

def say(event, **fields):
    document = {"event": event, "time": time.time(), "launch": os.environ["SPOTKEEP_LAUNCH"], **fields}
    print("spotkeep-event: " + json.dumps(document), flush=True)

say("start")
first = int(saved.read_text()) // 5 * 5 if saved.exists() else 0
say("resume", step=first)
total = int(sys.argv[2])
for step in range(first + 1, total + 1):
    time.sleep(0.05)
    saved.write_text(str(step))
    say("progress", step=step, total_steps=total)
say("finish", step=total)
(base / "model" / "weights").write_text("done")
sys.exit(int(sys.argv[1]))
"""


@dataclass
class Site:
    """A run table, a topic with a subscriber, and the local AWS's own SageMaker."""

    local: Any
    parts: ControllerParts
    bucket: str
    queue: str

    def client(self, service: str) -> Any:
        return self.local.session().client(service)

    def launch(self, *, exit_code: int = 0, steps: int = 30, script: CapacityScript | None = None) -> Run:
        """Record a run and create its job, as the launcher does."""
        run = f"real-{uuid.uuid4().hex[:8]}"
        now = datetime.now(UTC)
        shared: dict[str, Any] = {"capacity": "spot", "instance_type": "ml.m5.xlarge", "created_at": now}
        head = Run(
            run=run, name="real", job_name=f"{run}-1", updated_at=now, token=run, request={},
            checkpoint_uri=f"s3://{self.bucket}/runs/{run}/checkpoints/",
            output_prefix=f"s3://{self.bucket}/runs/{run}/output/", notify=tuple(NotificationKind), **shared,
        )  # fmt: skip
        marks = marks_of(run=run, attempt=1, launch_id=uuid.uuid4().hex)
        attempt = Attempt(run=run, attempt=1, job_name=head.job_name, job_request={"Environment": marks}, **shared)
        self.parts.table.open_run(run=head, attempt=attempt)
        if script is not None:
            LocalControl(self.local).script_capacity(run=run, script=script)
        self.client("s3").put_object(Bucket=self.bucket, Key="code/train.py", Body=SCRIPT.encode())
        code: Any = {"S3DataType": "S3Prefix", "S3Uri": f"s3://{self.bucket}/code/"}
        answer = self.client("sagemaker").create_training_job(
            TrainingJobName=head.job_name,
            AlgorithmSpecification={
                "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
                "TrainingInputMode": "File",
                "ContainerEntrypoint": ["python3", "/opt/ml/input/data/code/train.py"],
                "ContainerArguments": [str(exit_code), str(steps)],
            },
            RoleArn="arn:aws:iam::123456789012:role/execution",
            Environment=marks,
            InputDataConfig=[{"ChannelName": "code", "DataSource": {"S3DataSource": code}}],
            OutputDataConfig={"S3OutputPath": head.output_prefix},
            CheckpointConfig={"S3Uri": head.checkpoint_uri},
            ResourceConfig={"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
            StoppingCondition={"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 7200},
            EnableManagedSpotTraining=True,
        )
        return self.parts.table.record_job_created(run=run, attempt=1, job_arn=answer["TrainingJobArn"], now=now)

    def follow_until(self, run: Run, happened: Callable[[Run], bool]) -> Run:
        """Observe the run as often as events would come, until its record says something."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            observed = self.parts.runs.observe_job(run.job_name)
            assert observed is not None
            if happened(observed.run):
                return observed.run
            time.sleep(0.05)
        raise AssertionError(f"gave up waiting for {run.run}: {self.parts.table.get(run.run)}")

    def mails(self) -> list[dict[str, Any]]:
        answer = self.client("sqs").receive_message(QueueUrl=self.queue, MaxNumberOfMessages=10)
        return [json.loads(message["Body"]) for message in answer.get("Messages", [])]


@pytest.fixture
def site(local_aws: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    for name, value in local_aws.environment().items():
        monkeypatch.setenv(name, value)
    # Another test's session has that test's credentials.
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    session, suffix = local_aws.session(), uuid.uuid4().hex[:8]
    dynamodb, sns, sqs = (session.client(service) for service in ("dynamodb", "sns", "sqs"))
    names = ("pk", "sk", "listing", "created_at", "in_flight", "updated_at")
    indexes = {"by-created": ("listing", "created_at"), "in-flight": ("in_flight", "updated_at")}

    def keys(partition: str, sort: str) -> list[dict[str, str]]:
        return [{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": sort, "KeyType": "RANGE"}]

    dynamodb.create_table(
        TableName=f"runs-{suffix}",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": attribute, "AttributeType": "S"} for attribute in names],
        KeySchema=keys("pk", "sk"),
        GlobalSecondaryIndexes=[
            {"IndexName": index, "KeySchema": keys(*fields), "Projection": {"ProjectionType": "ALL"}}
            for index, fields in indexes.items()
        ],
    )
    session.client("s3").create_bucket(Bucket=f"bucket-{suffix}")
    topic = sns.create_topic(Name=f"notifications-{suffix}")["TopicArn"]
    queue = sqs.create_queue(QueueName=f"subscriber-{suffix}")["QueueUrl"]
    queue_arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue_arn)
    settings = ControllerSettings(
        deployment="spotkeep", run_table=f"runs-{suffix}", notification_topic_arn=topic,
        dead_notification_queue_url=queue, prices='{"ml.m5.xlarge": 0.23}',
        pool_schedule_group="pools", pool_schedule_role_arn="role", pool_schedule_dead_letter_arn="queue",
        pool_schedule_function_arn="function", checkpoint_bucket="checkpoints", training_bundle_uri="s3://checkpoints/bundles/0123/spotkeep.pyz",
        training_bundle_asset_uri="s3://assets/4567.pyz",
    )  # fmt: skip
    yield Site(local_aws, wired(settings), f"bucket-{suffix}", queue)
    dynamodb.delete_table(TableName=f"runs-{suffix}")


def ended(run: Run) -> bool:
    return run.state.ended


def test_an_interrupted_job_is_told_with_what_it_repeated(site: Site) -> None:
    loss = Interruption(at_step=18, notice=True, notice_seconds=0.1, capacity_returns_after_seconds=0.5)
    run = site.launch(script=CapacityScript(interruptions=(loss,)))
    done = site.follow_until(run, ended)
    assert (done.state, done.interruptions) == (RunState.COMPLETED, 1)
    assert done.cost is not None
    assert done.cost.redone_steps is not None
    assert 3 <= done.cost.redone_steps <= 8
    assert done.output_uri is not None
    kinds = [entry.kind for entry in site.parts.table.timeline(run.run)]
    for kind in (TimelineKind.INTERRUPTED, TimelineKind.RESUMED, TimelineKind.STEP_RESUMED, TimelineKind.ENDED):
        assert kind in kinds
    site.parts.outbox.deliver_all()
    mails = {mail["MessageAttributes"]["status"]["Value"]: mail["Message"] for mail in site.mails()}
    assert set(mails) == {"interrupted", "resumed", "completed"}
    assert f"{done.cost.redone_steps} steps were trained twice" in mails["completed"]
    assert done.output_uri in mails["completed"]


def test_a_failing_script_is_told_with_its_reason(site: Site) -> None:
    done = site.follow_until(site.launch(exit_code=3), ended)
    assert (done.state, done.end_reason) == (RunState.FAILED, EndReason.SCRIPT_FAILED)
    assert done.failure_reason is not None
    [notification] = site.parts.table.notifications(done.run)
    assert done.failure_reason.splitlines()[0][:40] in notification.body


def test_a_users_stop_is_told_apart(site: Site) -> None:
    run = site.launch(steps=10_000)  # It does not end by itself, however slow the machine is.
    site.follow_until(run, lambda head: head.state is RunState.TRAINING)
    site.client("sagemaker").stop_training_job(TrainingJobName=run.job_name)
    done = site.follow_until(run, ended)
    assert (done.state, done.end_reason) == (RunState.STOPPED, EndReason.STOPPED_BY_USER)
