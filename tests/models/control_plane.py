"""Launcher and controller as they are deployed, on the model of an account: what stories and measurements stand on."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from spotkeep_jobs.backends.job_files import SpecStore
from spotkeep_jobs.backends.sagemaker.training_job import JobPlatform
from spotkeep_jobs.cost.prices import KnownPrices
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
from spotkeep_jobs.document.queue import Queue, Share
from spotkeep_jobs.orphans.collector import orphan_collector
from spotkeep_jobs.record.deployment_records import OrphanReport, PriceBook, StoragePrices
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.stack_deletion.shutdown import Shutdown
from spotkeep_jobs.stack_deletion.stack_requests import Stacks
from spotkeep_jobs.sweeps.advance import Sweeps
from tests.models.account import Account
from tests.models.clock import NOON
from tests.models.deployment import LAUNCHER, controller_on, launcher_on
from tests.models.ec2 import TEMPLATE, Ec2
from tests.models.s3 import BUCKET

PRICES: Final = {"ml.m5.xlarge": 0.23, "ml.g5.xlarge": 1.4}
FLEET_PRICES: Final = {"g5.xlarge": 1.0, "g6.xlarge": 0.8}
FLEET_STORAGE: Final = StoragePrices(ebs_gp3=0.0876, ebs_gp3_throughput=40.96, ebs_snapshot=0.073)
"""The prices of a deployment with fleets."""
PLATFORM: Final = JobPlatform(
    deployment="spotkeep",
    checkpoint_bucket=BUCKET,
    execution_role_arn="arn:aws:iam::123456789012:role/spotkeep-execution",
    training_bundle_uri="s3://assets/0123abcd.pyz",
)
DEFAULTS: Final = DeploymentDefaults(
    image="image", instance_type="ml.m5.xlarge", checkpoint_bucket=BUCKET, prices=PRICES
)
TIMEOUT_SECONDS: Final = {"launcher": 60, "controller": 240}
"""As the stacks set them; a test holds them against the templates."""
QUEUES: Final = {"gpu": Queue(types={"ml.m5.xlarge": 4}, shares={"vision": Share(types={"ml.m5.xlarge": 4})})}
BETWEEN_ORPHAN_PASSES: Final = timedelta(minutes=5)
"""Longer than a pass over orphans lives, whatever its clock: two never overlap. A deployment makes one an hour."""


class ControlPlane:
    """A deployment on the model of an account.

    Attributes:
        service: The account.
        table: The run table, as the functions see it.
        record: The run table, for who judges: its calls are not counted and meet no fault.
        controller: The deployment, as its controller sees it.
        launcher: The deployment, as its launcher sees it.
        ec2: EC2, where the deployment has fleets.
    """

    def __init__(
        self,
        service: Account | None = None,
        *,
        sleep: Callable[[float], None] = lambda _seconds: None,
        has_fleets: bool = False,
    ) -> None:
        """Make the deployment.

        Args:
            service: The account; None for one of its own.
            sleep: Lets a function wait for so many seconds.
            has_fleets: Whether the deployment has fleets.
        """
        self.service = service or Account()
        self.table = RunTable.of(client=self.service, table_name="runs")  # type: ignore[arg-type]
        self.record = RunTable.of(client=self.service.dynamodb, table_name="runs")  # type: ignore[arg-type]
        service = self.service
        clients: dict[str, Any] = {
            "batch": service.batch,
            "dynamodb": service,
            "functions": service.functions,
            "s3": service.objects,
            "scheduler": service.schedules,
            "sns": service,
            "sqs": service.dead_letters,
        }
        settings: dict[str, Any] = {"checkpoint_bucket": BUCKET, "queues": QUEUES}
        defaults, made = DEFAULTS, dict[str, Any]()
        prices = KnownPrices(PRICES, region="us-east-1")
        self.ec2 = Ec2(service.counted, time=service.time)
        if has_fleets:
            user_data = base64.b64encode(LAUNCHER.training_bundle_uri.encode()).decode()
            self.ec2.versions[1]["LaunchTemplateData"]["UserData"] = user_data
            clients["ec2"] = self.ec2
            prices = KnownPrices(PRICES | FLEET_PRICES, region="us-east-1")
            prices.book = PriceBook(region="us-east-1", fetched_at=NOON, storage=FLEET_STORAGE)
            defaults = replace(DEFAULTS, prices=prices, fleet_instance_types=tuple(FLEET_PRICES))
            settings |= {
                "launch_template_id": TEMPLATE,
                "fleet_subnets": {"subnet-a": "us-east-1a", "subnet-b": "us-east-1b"},
                "fleet_instance_types": tuple(FLEET_PRICES),
            }
            made = {"fleet_checks": None}
        self.controller = controller_on(
            self.table,
            service,
            settings=settings | {"deployment_metrics": False},
            clients=clients,
            now=service.clock,
            prices=prices,
        )
        self.launcher = launcher_on(
            self.table,
            service,
            settings=settings,
            clients=clients,
            now=service.clock,
            sleep=sleep,
            platform=PLATFORM,
            defaults=defaults,
            prices=prices,
            specs=SpecStore(lambda: service.objects),  # type: ignore[arg-type, return-value]
            **made,
        )

    def shutdown(self, stacks: Stacks) -> Shutdown:
        """Return what ends the deployment's runs when CloudFormation deletes it.

        Args:
            stacks: CloudFormation.
        """
        return Shutdown(self.controller, stacks)

    def advance_sweeps(self, *, seconds_left: Callable[[], float] = lambda: math.inf) -> None:
        """Let the launcher do what the controller has asked it to do about sweeps."""
        self.service.functions.deliver(
            lambda asked: Sweeps(self.launcher).advance(
                asked["sweep"], ended_runs=asked.get("runs"), seconds_left=seconds_left
            )
        )

    def pass_over_orphans(self) -> OrphanReport | None:
        """Make the controller's pass over orphans, if one is due."""
        return replace(orphan_collector(self.controller), every=BETWEEN_ORPHAN_PASSES).collect_if_due()
