"""The parts that the stacks of a deployment share. They are the code of functions, jobs and instances."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from constructs import Construct

from spotkeep_constructs.carried import cache_folder, carried, source_root, state_folder
from spotkeep_constructs.dependency_layer import DependencyLayer, LambdaTarget, LayerBuilder, UvLayerBuilder
from spotkeep_constructs.job_function import FunctionCode, FunctionPlatform, code_files
from spotkeep_constructs.log_retention import log_retention
from spotkeep_constructs.settings import Settings
from spotkeep_constructs.training_bundle import PackedBundle
from spotkeep_jobs.settings import LauncherSettings


@dataclass(frozen=True, kw_only=True)
class Project:
    """The directories that a synth reads and writes.

    Attributes:
        functions: Source root of the functions, with a package for each.
        jobs: Source root of the library that the functions share.
        planner: Source root of the planner, with the steering that the functions carry.
        training: Source root of the code inside jobs and on instances.
        lock: Hashed requirements of the functions.
        search_lock: Hashed requirements of the function that searches by TPE.
        layers: Directory of built dependency layers, one folder a hash.
        archives: Directory of packed code, one folder a hash.
        uv_cache: Directory of uv's downloads.
    """

    functions: Path
    jobs: Path
    planner: Path
    training: Path
    lock: Path
    search_lock: Path
    layers: Path
    archives: Path
    uv_cache: Path

    @classmethod
    def at(cls, root: Path) -> Self:
        """Return the project of a CDK app. Its sources are those of the installed Spotkeep, a checkout or a wheel.

        Args:
            root: The directory that holds cdk.json. Everything is built in its `state_folder`.
        """
        state = state_folder(root)
        return cls(
            functions=carried("lambda"),
            jobs=source_root("spotkeep_jobs"),
            planner=source_root("spotkeep_planner"),
            training=source_root("spotkeep"),
            lock=carried("locks/lambda.txt"),
            search_lock=carried("locks/search.txt"),
            layers=state / "layers",
            archives=state / "archives",
            uv_cache=cache_folder(root) / "uv",
        )


AWS_SERVICES = (
    "batch",
    "cloudformation",
    "dynamodb",
    "ec2",
    "efs",
    "fsx",
    "kms",
    "lambda",
    "logs",
    "pricing",
    "s3",
    "sagemaker",
    "scheduler",
    "secretsmanager",
    "sns",
    "sqs",
    "ssm",
    "sts",
)
"""The AWS services that functions make clients of. The layer holds boto3's descriptions of these alone.

No service is needed for the functions' credentials, since Lambda passes them in the environment.
"""


@dataclass(frozen=True, kw_only=True)
class DeploymentBuild:
    """The code that the functions, jobs and instances of a deployment run, in any of its stacks.

    Attributes:
        settings: The deployment's settings.
        project: The directories of code and built archives.
        build_layer: The builder of the dependency layer, uv by default.
    """

    settings: Settings
    project: Project
    build_layer: LayerBuilder | None = None

    @cached_property
    def code(self) -> FunctionCode:
        """The functions' code, packed once for all stacks."""
        project = self.project
        return FunctionCode.pack(
            code_files(project.functions, jobs=project.jobs, planner=project.planner, training=project.training),
            variables=_packed_variables(self.settings),
            archives=project.archives,
        )

    @cached_property
    def training_bundle(self) -> PackedBundle:
        """The bundle that jobs and instances run, packed once for all stacks."""
        return PackedBundle.pack(self.project.training, archives=self.project.archives)

    def platform(self, scope: Construct) -> FunctionPlatform:
        """Place a stack's dependency layer, and return the platform that its functions share.

        Args:
            scope: The stack.
        """
        return self._on_layer(scope, "Dependencies", lock=self.project.lock, services=AWS_SERVICES)

    def search_platform(self, scope: Construct) -> FunctionPlatform:
        """Place the layer of the function that searches by TPE, since Optuna is larger than all other packages.

        Args:
            scope: The stack.
        """
        return self._on_layer(scope, "SearchDependencies", lock=self.project.search_lock, services=())

    def _on_layer(self, scope: Construct, name: str, *, lock: Path, services: Collection[str]) -> FunctionPlatform:
        settings = self.settings
        target = LambdaTarget.of_this_deployment()
        layer = DependencyLayer(
            scope,
            name,
            lock=lock,
            target=target,
            services=services,
            archives=self.project.layers,
            build=self.build_layer or UvLayerBuilder(cache_directory=self.project.uv_cache),
        )
        return FunctionPlatform(
            target=target,
            layer=layer.layer,
            code=self.code,
            log_retention=log_retention(settings.log_retention_days),
        )


def _packed_variables(settings: Settings) -> dict[str, str]:
    """Return the possibly long settings, which functions read from their code instead of their environments."""
    return LauncherSettings.variables(
        prices=settings.prices,
        spending_limits={
            "allowed_instance_types": settings.allowed_instance_types,
            "run_cost_limit_usd": settings.run_cost_limit_usd,
            "volume_size_limit_gb": settings.volume_size_limit_gb,
            "volume_iops_limit": settings.volume_iops_limit,
            "runs_in_flight_limit": settings.runs_in_flight_limit,
        },
        default_instance_type=settings.default_instance_type,
        max_run_limit_seconds=settings.max_run_limit_seconds,
        max_keep_alive_seconds=settings.max_keep_alive_seconds,
        data_locations=settings.data_locations,
        subnet_ids=settings.training_subnet_ids,
        security_group_ids=settings.training_security_group_ids,
        verify_callers=settings.verify_callers,
        team_members=settings.team_members,
        administrators=settings.administrators,
        shells=settings.shells,
        mlflow_arns=settings.mlflow_arns,
        file_systems=settings.file_systems,
        secrets=settings.secrets,
        secret_key_arns=settings.secret_key_arns,
        queues={name: queue.model_dump() for name, queue in settings.queues.items()} or None,
        **(_packed_of_fleets(settings) if settings.ec2_fleets else {}),
    )


def _packed_of_fleets(settings: Settings) -> dict[str, object]:
    subnets = dict(zip(settings.vpc_subnet_ids, settings.vpc_availability_zones, strict=True))
    return {
        "fleet_instance_types": settings.spot_instance_types,
        # Those of a network that is created are known at the deployment alone.
        "fleet_subnets": subnets or None,
        "fleet_volume_kms_key_arn": settings.volume_kms_key_arn,
        "volume_retention_days": settings.volume_retention_days,
    }
