"""What the settings mean for a stack's functions: processor, dependencies, logs."""

from __future__ import annotations

import json

from aws_cdk import aws_logs as logs
from constructs import Construct

from spotkeep_constructs.dependency_layer import DependencyLayer, LayerBuilder
from spotkeep_constructs.job_function import FunctionPlatform
from spotkeep_constructs.lambda_target import LambdaTarget
from stacks.project import Project
from stacks.settings import Settings

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


def packed_variables(settings: Settings) -> dict[str, str]:
    """What every function that acts on runs reads beside its environment: what a team may make long.

    Args:
        settings: The deployment's settings.
    """
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
    }
    if settings.ec2_fleets:
        variables["SPOTKEEP_FLEET_INSTANCE_TYPES"] = json.dumps(settings.spot_instance_types)
    return variables


def function_platform(
    scope: Construct, *, settings: Settings, project: Project, build_layer: LayerBuilder
) -> FunctionPlatform:
    """Places a stack's dependency layer and says what its functions share.

    Args:
        scope: The stack.
        settings: The deployment's settings.
        project: Where code is found and kept.
        build_layer: Builds the dependency layer.
    """
    target = (
        LambdaTarget.host() if settings.lambda_platform == "host" else LambdaTarget.aws(settings.lambda_architecture)
    )
    layer = DependencyLayer(
        scope,
        "Dependencies",
        lock=project.lock,
        target=target,
        services=AWS_SERVICES,
        archives=project.layers,
        build=build_layer,
    )
    return FunctionPlatform(
        target=target,
        layer=layer.layer,
        source_root=project.functions,
        planner_root=project.planner,
        training_root=project.training,
        archives=project.archives,
        log_retention=log_retention(settings.log_retention_days),
    )


def log_retention(days: int) -> logs.RetentionDays:
    """The CDK's name of a retention.

    Args:
        days: One that CloudWatch Logs accepts, as the settings make sure.
    """
    return _RETENTIONS[days]


_RETENTIONS = {
    1: logs.RetentionDays.ONE_DAY,
    3: logs.RetentionDays.THREE_DAYS,
    5: logs.RetentionDays.FIVE_DAYS,
    7: logs.RetentionDays.ONE_WEEK,
    14: logs.RetentionDays.TWO_WEEKS,
    30: logs.RetentionDays.ONE_MONTH,
    60: logs.RetentionDays.TWO_MONTHS,
    90: logs.RetentionDays.THREE_MONTHS,
    120: logs.RetentionDays.FOUR_MONTHS,
    150: logs.RetentionDays.FIVE_MONTHS,
    180: logs.RetentionDays.SIX_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
    400: logs.RetentionDays.THIRTEEN_MONTHS,
    545: logs.RetentionDays.EIGHTEEN_MONTHS,
    731: logs.RetentionDays.TWO_YEARS,
    1096: logs.RetentionDays.THREE_YEARS,
    1827: logs.RetentionDays.FIVE_YEARS,
    2192: logs.RetentionDays.SIX_YEARS,
    2557: logs.RetentionDays.SEVEN_YEARS,
    2922: logs.RetentionDays.EIGHT_YEARS,
    3288: logs.RetentionDays.NINE_YEARS,
    3653: logs.RetentionDays.TEN_YEARS,
}
