"""Launcher and tracker on real fleets: real clients, real instances that boot the deployed user data, real volumes."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fleet.credentials import place_credentials_function
from spotkeep_constructs.training_bundle import bundle_bytes
from spotkeep_fleet.tags import RUN_TAG
from spotkeep_fleet.user_data import BootInputs, user_data
from spotkeep_jobs.backends.ec2.ec2_api import BotoEc2Api
from spotkeep_jobs.backends.ec2.history import MAX_FUTILE_INSTANCES
from spotkeep_jobs.backends.ec2.jobs import FleetJobs
from spotkeep_jobs.backends.ec2.launch import FleetPlatform
from spotkeep_jobs.backends.ec2.records import DynamoFleetRecords
from spotkeep_jobs.backends.sagemaker.api import SageMakerTrainingJobs
from spotkeep_jobs.backends.sagemaker.request import JobPlatform
from spotkeep_jobs.document.deployment import Deployment
from spotkeep_jobs.document.deployment_defaults import DeploymentDefaults
from spotkeep_jobs.pools.pool_watch import PoolWatch
from spotkeep_jobs.progress.training_logs import CloudWatchJobLogs
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.states import EndReason, NotificationKind, RunState, TimelineKind
from spotkeep_jobs.runs.launch import Fleets, Launcher
from spotkeep_jobs.runs.reconcile import RunObserver
from spotkeep_local.fleet_control import FleetControl
from spotkeep_local.lifecycle import LocalAws

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[4]
PRICES = {"m5.large": 0.096}
# Slow until it is interrupted, so that there is time to do it.
SCRIPT = """
import os, sys, time
from spotkeep import Checkpointer
state = {"total": 0}
with Checkpointer(state, every_steps=2) as checkpointer:
    pause = 0.0 if state["total"] else 0.05
    for step in checkpointer.steps(int(os.environ["STEPS"])):
        state["total"] += step
        time.sleep(pause)
        if step == int(os.environ.get("FAIL_AT", -1)):
            sys.exit("told to fail")
with open(os.path.join(os.environ["SM_MODEL_DIR"], "total"), "w") as file:
    file.write(str(state["total"]))
"""


class Region:
    """What a deployment has, made by hand, and the parts of its functions on real clients."""

    def __init__(self, local: LocalAws) -> None:
        name = f"fleets-{uuid.uuid4().hex[:8]}"
        session = local.session()
        self.ec2 = session.client("ec2")
        self.control = FleetControl(local)
        self.s3 = session.client("s3")
        dynamodb, logs, iam = (session.client(service) for service in ("dynamodb", "logs", "iam"))
        self.bucket = name
        self.s3.create_bucket(Bucket=name)
        bundle = bundle_bytes(ROOT / "training")
        self.s3.put_object(Bucket=name, Key="spotkeep.pyz", Body=bundle)
        dynamodb.create_table(
            TableName=name,
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("pk", "sk")],
            BillingMode="PAY_PER_REQUEST",
        )
        logs.create_log_group(logGroupName=f"/spotkeep/{name}")
        iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": []}))
        iam.create_instance_profile(InstanceProfileName=name)
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
        function = f"{name}-instance_credentials"
        place_credentials_function(local, name=function, instance_role=name, deployment="spotkeep")
        boot = user_data(
            BootInputs(
                bundle_uri=f"s3://{name}/spotkeep.pyz",
                bundle_sha256=hashlib.sha256(bundle).hexdigest(),
                region="us-east-1",
                run_table=name,
                deployment="spotkeep",
                credentials_function=function,
            )
        )
        self.template = self.ec2.create_launch_template(
            LaunchTemplateName=name,
            VersionDescription="deployed",
            LaunchTemplateData={
                "ImageId": "ami-00000000000000001",
                "UserData": base64.b64encode(boot.encode()).decode(),
                "MetadataOptions": {"HttpTokens": "required", "InstanceMetadataTags": "enabled"},
                "IamInstanceProfile": {"Name": name},
                "InstanceInitiatedShutdownBehavior": "terminate",
            },
        )["LaunchTemplate"]["LaunchTemplateId"]
        subnets = {
            subnet["SubnetId"]: subnet["AvailabilityZone"]
            for subnet in self.ec2.describe_subnets(Filters=[{"Name": "default-for-az", "Values": ["true"]}])["Subnets"]
        }
        self.table = RunTable(client=dynamodb, table_name=name)
        self.records = DynamoFleetRecords(dynamodb, table_name=name, retention_days=90)
        jobs = SageMakerTrainingJobs(session.client("sagemaker"))
        deployment = Deployment(name="spotkeep", prices=PRICES)
        self.jobs = FleetJobs(
            ec2=BotoEc2Api(lambda: self.ec2), records=self.records, deployment="spotkeep", prices=PRICES, now=_now
        )
        platform = FleetPlatform(
            launch_template_id=self.template,
            subnets=subnets,
            instance_types=("m5.large",),
            log_group=f"/spotkeep/{name}",
        )
        self.launcher = Launcher(
            keep_bundle=lambda: None,
            table=self.table,
            jobs=jobs,
            platform=JobPlatform(
                deployment="spotkeep",
                checkpoint_bucket=name,
                execution_role_arn="arn:aws:iam::000000000000:role/unused",
                training_bundle_uri=f"s3://{name}/spotkeep.pyz",
            ),
            defaults=DeploymentDefaults(checkpoint_bucket=name, fleet_instance_types=("m5.large",)),
            prices=PRICES,
            now=_now,
            fleets=Fleets(platform=platform, jobs=self.jobs),
        )
        pools = PoolWatch(table=self.table, jobs=jobs, schedules=None, deployment=deployment, clock=_now)
        self.observer = RunObserver(
            keep_bundle=lambda: None,
            table=self.table,
            jobs=jobs,
            logs=CloudWatchJobLogs(logs),
            deployment=deployment,
            clock=_now,
            pools=pools,
            fleets=self.jobs,
            fleet_logs=CloudWatchJobLogs(logs, group=f"/spotkeep/{name}"),
        )

    def launch(self, steps: int, **fields: Any) -> Run:
        environment = {"STEPS": steps, "SPOTKEEP_PROGRESS_SECONDS": "0", **fields.pop("environment", {})}
        document = {
            "name": "count",
            "backend": "ec2",
            "command": "python3 train.py",
            "source": self.upload_source(),
            "environment": environment,
            "volume": {"size_gb": 1},
            "notify": ["completed", "failed", "stopped", "interrupted", "resumed"],
            **fields,
        }
        return self.launcher.launch(document, default_token=uuid.uuid4().hex).run

    def upload_source(self) -> dict[str, str]:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as tar:
            member = tarfile.TarInfo("train.py")
            member.size = len(SCRIPT.encode())
            tar.addfile(member, io.BytesIO(SCRIPT.encode()))
        self.s3.put_object(Bucket=self.bucket, Key="source.tar.gz", Body=archive.getvalue())
        sha256 = hashlib.sha256(archive.getvalue()).hexdigest()
        return {"uri": f"s3://{self.bucket}/source.tar.gz", "sha256": sha256}

    def follow_until(self, run: Run, happened: Callable[[Run], Any], what: str) -> Run:
        """Look as the tracker does, again and again."""
        for _ in range(6000):
            observed = self.observer.observe(run.run)
            assert observed is not None
            run = observed.run
            if happened(run):
                return run
            time.sleep(0.1)
        raise AssertionError(f"waited in vain for {what}: {run}\n{self.said(run)}")

    def instances(self, run: Run) -> list[dict[str, Any]]:
        found = self.ec2.describe_instances(Filters=[{"Name": f"tag:{RUN_TAG}", "Values": [run.run]}])
        return [each for reservation in found["Reservations"] for each in reservation["Instances"]]

    def said(self, run: Run) -> str:
        outputs = [
            self.ec2.get_console_output(InstanceId=each["InstanceId"]).get("Output", "") for each in self.instances(run)
        ]
        return "\n---\n".join(outputs)

    def fleet_state(self, run: Run) -> str:
        return str(self.ec2.describe_fleets(FleetIds=[run.job_arn])["Fleets"][0]["FleetState"])


def _now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def region(local_aws: LocalAws) -> Iterator[Region]:
    region = Region(local_aws)
    yield region
    fleets = [fleet["FleetId"] for fleet in region.ec2.describe_fleets()["Fleets"]]
    if fleets:
        region.ec2.delete_fleets(FleetIds=fleets, TerminateInstances=True)


def test_an_agent_that_cannot_be_had_ends_the_run_and_not_the_account(region: Region) -> None:
    region.s3.put_object(Bucket=region.bucket, Key="spotkeep.pyz", Body=b"another one")
    run = region.launch(steps=10)
    ended = region.follow_until(run, lambda head: head.state.ended, "the end")
    assert (ended.state, ended.end_reason) == (RunState.FAILED, EndReason.INPUT_ERROR)
    assert "spotkeep.pyz is not what was deployed: its SHA-256 is" in (ended.failure_reason or "")
    assert region.fleet_state(ended).startswith("deleted")
    instances = region.instances(run)
    assert MAX_FUTILE_INSTANCES <= len(instances) <= MAX_FUTILE_INSTANCES + 1
    assert {each["State"]["Name"] for each in instances} <= {"shutting-down", "terminated"}
    assert [notification.kind for notification in region.table.notifications(run.run)] == [NotificationKind.FAILED]
    volumes = region.ec2.describe_volumes(Filters=[{"Name": f"tag:{RUN_TAG}", "Values": [run.run]}])["Volumes"]
    assert volumes == []


def test_a_run_trains_is_interrupted_goes_on_and_leaves_nothing_that_bills(region: Region) -> None:
    run = region.launch(steps=120)
    training = region.follow_until(run, lambda head: head.state is RunState.TRAINING, "the training")
    region.follow_until(run, lambda _: '"event":"saved"' in region.said(run), "a checkpoint")
    first = region.instances(training)[0]
    region.control.interrupt(first["InstanceId"], notice=False)
    ended = region.follow_until(run, lambda head: head.state.ended, "the end")
    assert (ended.state, ended.end_reason, ended.interruptions) == (RunState.COMPLETED, EndReason.COMPLETED, 1)
    assert region.fleet_state(ended).startswith("deleted")
    assert {each["State"]["Name"] for each in region.instances(run)} <= {"shutting-down", "terminated"}
    kinds = [entry.kind for entry in region.table.timeline(run.run)]
    assert kinds.index(TimelineKind.INTERRUPTED) < kinds.index(TimelineKind.RESUMED) < kinds.index(TimelineKind.ENDED)
    told = [notification.kind for notification in region.table.notifications(run.run)]
    assert told == [NotificationKind.INTERRUPTED, NotificationKind.RESUMED, NotificationKind.COMPLETED]
    assert ended.output_uri is not None
    assert ended.cost is not None
    history = region.records.history(run.run, 1)
    assert history is not None
    assert history.charges is not None
    taken, last = history.lives
    assert (taken.taken, last.taken) == (True, False)
    seconds = max(60.0, ((last.ended_at or last.launched_at) - last.launched_at).total_seconds())
    assert history.charges.instances_usd == pytest.approx(0.03 * seconds / 3600, abs=1e-6), "the first one was free"
