"""A deployment on a local AWS as far as an agent sees it: bundle, record, launch template, and the fleet of one run.

Made without the CDK, so that what is measured and tested is the instance: its user data, its agent, its volume.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spotkeep_fleet.record import FleetRecord, new_record
from spotkeep_fleet.tags import ATTEMPT_TAG, CHECKPOINTS_TAG, DEPLOYMENT_TAG, RUN_TAG
from spotkeep_fleet.user_data import BootInputs, user_data
from spotkeep_jobs.backends.ec2.fleet_table import FleetTable
from spotkeep_local.control import FleetControl
from spotkeep_local.ec2.market import SpotPoolChange
from tests.models.credentials_function import place_credentials_function
from tests.models.granted import make_role
from tests.models.run_table import make_run_table

if TYPE_CHECKING:
    from spotkeep_fleet.instance_job import InstanceJob
    from spotkeep_local.lifecycle import LocalAws

ZONES: Final = ("us-east-1a", "us-east-1b")
_EVENT: Final = "spotkeep-event: "
_POLL_SECONDS = 0.25
_PATIENCE_SECONDS = 600.0


class Site:
    """The deployment, and what becomes of its run.

    Args:
        local: The local AWS.

    Attributes:
        control: Takes capacity away.
        run: The run's id.
        bucket: For bundle, checkpoints and output.
    """

    def __init__(self, local: LocalAws) -> None:
        self.session = local.session()
        self.ec2: Any = self.session.client("ec2")
        self.control = FleetControl(local)
        self.run = f"run-{uuid.uuid4().hex[:8]}"
        self.bucket = f"bucket-{uuid.uuid4().hex[:8]}"
        self.group = f"/spotkeep/{self.run}"
        table = f"runs-{uuid.uuid4().hex[:8]}"
        self._fleets: list[str] = []
        dynamodb: Any = self.session.client("dynamodb")
        self._records = FleetTable(dynamodb, table_name=table, retention_days=1)
        s3, logs, iam = (self.session.client(name) for name in ("s3", "logs", "iam"))
        s3.create_bucket(Bucket=self.bucket)
        # Here, because it starts Node, which takes seconds: most tests of a file that needs this run elsewhere.
        from spotkeep_constructs.training_bundle import bundle_bytes

        bundle = bundle_bytes(Path(__file__).parents[2] / "training")
        s3.put_object(Bucket=self.bucket, Key="spotkeep.pyz", Body=bundle)
        make_run_table(dynamodb, table)
        logs.create_log_group(logGroupName=self.group)
        make_role(local, self.run, service="ec2.amazonaws.com")
        iam.create_instance_profile(InstanceProfileName=self.run)
        iam.add_role_to_instance_profile(InstanceProfileName=self.run, RoleName=self.run)
        function = f"{self.run}-instance_credentials"
        place_credentials_function(local, name=function, instance_role=self.run, deployment="spotkeep")
        self._inputs = BootInputs(
            bundle_uri=f"s3://{self.bucket}/spotkeep.pyz",
            bundle_sha256=hashlib.sha256(bundle).hexdigest(),
            region="us-east-1",
            run_table=table,
            deployment="spotkeep",
            credentials_function=function,
        )

    def launch(self, job: InstanceJob, *, ami: str = "ami-00000000000000001") -> str:
        """Open the run's record, create its fleet, and return the fleet's id.

        The nodes of a job are in one zone, and in a security group of their own.

        Args:
            job: What its instances do.
            ami: What they start from.
        """
        opening = new_record(run=self.run)
        self._records.write_with_job(opening, job=job, over=None, now=datetime.now(tz=UTC))
        own = {
            RUN_TAG: self.run,
            DEPLOYMENT_TAG: "spotkeep",
            ATTEMPT_TAG: str(job.attempt),
            CHECKPOINTS_TAG: f"runs/{self.run}/checkpoints",
        }
        tags = [{"Key": key, "Value": value} for key, value in own.items()]
        made = self.ec2.create_launch_template(
            LaunchTemplateName=self.run,
            LaunchTemplateData={
                "ImageId": ami,
                "InstanceType": "m5.large",
                "UserData": base64.b64encode(user_data(self._inputs).encode()).decode(),
                "MetadataOptions": {"HttpTokens": "required", "InstanceMetadataTags": "enabled"},
                "IamInstanceProfile": {"Name": self.run},
                "TagSpecifications": [{"ResourceType": "instance", "Tags": tags}],
                **({} if job.nodes is None else {"SecurityGroupIds": [self._group_of_nodes()]}),
            },
        )
        template = {"LaunchTemplateId": made["LaunchTemplate"]["LaunchTemplateId"], "Version": "$Latest"}
        zones, count = (ZONES, 1) if job.nodes is None else (ZONES[:1], job.nodes.at_most)
        overrides = [{"InstanceType": "m5.large", "AvailabilityZone": zone} for zone in zones]
        found = self.ec2.create_fleet(
            Type="maintain",
            SpotOptions={"AllocationStrategy": "price-capacity-optimized"},
            LaunchTemplateConfigs=[{"LaunchTemplateSpecification": template, "Overrides": overrides}],
            TargetCapacitySpecification={"TotalTargetCapacity": count, "DefaultTargetCapacityType": "spot"},
        )
        self._fleets.append(found["FleetId"])
        return str(found["FleetId"])

    def _group_of_nodes(self) -> str:
        """Make a security group whose members reach each other, and return its id."""
        vpc = self.ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"][0]["VpcId"]
        made = self.ec2.create_security_group(GroupName=self.run, Description="nodes", VpcId=vpc)["GroupId"]
        within = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": made}]}
        self.ec2.authorize_security_group_ingress(GroupId=made, IpPermissions=[within])
        return str(made)

    @property
    def record(self) -> FleetRecord:
        """The fleet record."""
        found = self._records.record(self.run)
        if found is None:
            raise LookupError(f"run {self.run} has no fleet record")
        return found

    def instance(self, fleet: str, *, other_than: tuple[str, ...] = ()) -> dict[str, Any]:
        """Wait for an instance of the fleet, and return it as DescribeInstances shows it."""

        def found() -> dict[str, Any] | None:
            for active in self.ec2.describe_fleet_instances(FleetId=fleet)["ActiveInstances"]:
                if active["InstanceId"] not in other_than:
                    described = self.ec2.describe_instances(InstanceIds=[active["InstanceId"]])
                    instance: dict[str, Any] = described["Reservations"][0]["Instances"][0]
                    return instance
            return None

        return self.wait(found, "an instance")  # type: ignore[no-any-return]

    def console(self, instance: dict[str, Any]) -> str:
        """Return what an instance's user data printed."""
        return str(self.ec2.get_console_output(InstanceId=instance["InstanceId"]).get("Output", ""))

    def events(self, instance: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the job events that an instance printed."""
        for line in self.console(instance).splitlines():
            if line.startswith(_EVENT):
                yield json.loads(line[len(_EVENT) :])

    def wait_for(self, instance: dict[str, Any], event: str, **fields: Any) -> dict[str, Any]:
        """Wait until an instance reports something, and return the event."""

        def reported() -> dict[str, Any] | None:
            for found in self.events(instance):
                if found["event"] == event and all(found.get(name) == value for name, value in fields.items()):
                    return found
            return None

        return self.wait(reported, event, lambda: self.console(instance))  # type: ignore[no-any-return]

    def wait(self, condition: Callable[[], Any], what: str, said: Callable[[], str] = lambda: "") -> Any:
        """Wait until a condition gives something.

        Raises:
            AssertionError: If it does not in ten minutes.
        """
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not (found := condition()):
            if time.monotonic() >= deadline:
                raise AssertionError(f"waited in vain for {what}\n{said()}")
            time.sleep(_POLL_SECONDS)
        return found

    def volumes(self) -> list[dict[str, Any]]:
        """Return the run's volumes."""
        found = self.ec2.describe_volumes(Filters=[{"Name": f"tag:{RUN_TAG}", "Values": [self.run]}])
        return list(found["Volumes"])

    def log(self) -> list[str]:
        """Return the run's log."""
        found = self.session.client("logs").filter_log_events(logGroupName=self.group)
        return [event["message"] for event in found["events"]]

    def fill(self, zone: str, *, room: int = 0) -> None:
        """Leave a zone room for so many spot instances; -1 for any number."""
        self.control.change_pool(SpotPoolChange(zone=zone, capacity=room))

    def close(self) -> None:
        """End the fleets with their instances."""
        self.ec2.delete_fleets(FleetIds=self._fleets, TerminateInstances=True)
