"""What the settings mean for a stack's functions: processor, dependencies, logs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property

from constructs import Construct

from spotkeep_constructs.dependency_layer import DependencyLayer, LayerBuilder
from spotkeep_constructs.function_code import FunctionCode, code_files
from spotkeep_constructs.job_function import FunctionPlatform
from spotkeep_constructs.lambda_target import LambdaTarget
from spotkeep_constructs.log_retention import log_retention
from spotkeep_constructs.project import Project
from spotkeep_constructs.settings import Settings

RUN_RETENTION_DAYS = 365
"""An ended run stays in the run table for a year: what a year of runs costs there is cents."""

AWS_SERVICES = (
    "cloudformation",
    "dynamodb",
    "ec2",
    "logs",
    "pricing",
    "s3",
    "sagemaker",
    "scheduler",
    "secretsmanager",
    "sns",
    "sqs",
    "sts",
)
"""The services that functions make clients of; the layer describes no other to boto3.

What the functions' credentials need is not among them: Lambda hands them over in the environment.
"""


@dataclass(frozen=True, kw_only=True)
class FunctionBuild:
    """What the functions of a deployment are built of, whatever stack they are in.

    Attributes:
        settings: The deployment's settings.
        project: Where code is found and kept.
        build_layer: Builds the dependency layer.
    """

    settings: Settings
    project: Project
    build_layer: LayerBuilder

    @cached_property
    def code(self) -> FunctionCode:
        """The functions' code, packed once for all stacks."""
        project = self.project
        return FunctionCode.pack(
            code_files(project.functions, planner=project.planner, training=project.training),
            variables=_packed_variables(self.settings),
            archives=project.archives,
        )

    def platform(self, scope: Construct) -> FunctionPlatform:
        """Places a stack's dependency layer and says what its functions share.

        Args:
            scope: The stack.
        """
        settings = self.settings
        target = (
            LambdaTarget.host()
            if settings.lambda_platform == "host"
            # Arm would save a fifth of the functions' bill, which is cents beside what they launch.
            else LambdaTarget.aws("x86_64")
        )
        layer = DependencyLayer(
            scope,
            "Dependencies",
            lock=self.project.lock,
            target=target,
            services=AWS_SERVICES,
            archives=self.project.layers,
            build=self.build_layer,
        )
        return FunctionPlatform(
            target=target,
            layer=layer.layer,
            code=self.code,
            log_retention=log_retention(settings.log_retention_days),
        )


def _packed_variables(settings: Settings) -> dict[str, str]:
    """What the functions read beside their environments: what a team may make long."""
    limits = {
        "allowed_instance_types": settings.allowed_instance_types,
        "run_cost_limit_usd": settings.run_cost_limit_usd,
        "volume_size_limit_gb": settings.volume_size_limit_gb,
        "volume_iops_limit": settings.volume_iops_limit,
        "runs_in_flight_limit": settings.runs_in_flight_limit,
    }
    variables = {
        "SPOTKEEP_PRICES": json.dumps(settings.prices, sort_keys=True),
        "SPOTKEEP_SPENDING_LIMITS": json.dumps(limits),
        "SPOTKEEP_DEFAULT_INSTANCE_TYPE": settings.default_instance_type,
        "SPOTKEEP_MAX_RUN_LIMIT_SECONDS": str(settings.max_run_limit_seconds),
        "SPOTKEEP_MAX_KEEP_ALIVE_SECONDS": str(settings.max_keep_alive_seconds),
        "SPOTKEEP_DATA_LOCATIONS": json.dumps(settings.data_locations),
        "SPOTKEEP_SUBNET_IDS": ",".join(settings.training_subnet_ids),
        "SPOTKEEP_SECURITY_GROUP_IDS": ",".join(settings.training_security_group_ids),
        "SPOTKEEP_VERIFY_CALLERS": json.dumps(settings.verify_callers),
        "SPOTKEEP_TEAM_MEMBERS": json.dumps(settings.team_members, sort_keys=True),
        "SPOTKEEP_ADMINISTRATORS": json.dumps(settings.administrators),
    }
    if settings.ec2_fleets:
        variables["SPOTKEEP_FLEET_INSTANCE_TYPES"] = json.dumps(settings.spot_instance_types)
    return variables
