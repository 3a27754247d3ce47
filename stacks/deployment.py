"""The whole of a deployment: its stacks, each needing only those before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aws_cdk import App, Environment, IPolicyValidationPlugin, PermissionsBoundary, Tags, Validations

from spotkeep_constructs.dependency_layer import LayerBuilder, UvLayerBuilder
from spotkeep_constructs.function_build import FunctionBuild
from spotkeep_constructs.project import Project
from spotkeep_constructs.settings import Settings
from stacks.compute_stack import ComputeStack
from stacks.events_stack import EventsStack
from stacks.jobs_stack import JobsStack
from stacks.storage_stack import StorageStack


class Deployment:
    """Storage, Compute (where it has fleets), Jobs and Events of one deployment."""

    def __init__(
        self,
        app: App,
        *,
        settings: Settings,
        project: Project,
        rules: Sequence[IPolicyValidationPlugin],
        build_layer: LayerBuilder | None = None,
    ) -> None:
        """Place the stacks.

        Args:
            app: The CDK app.
            settings: What to deploy.
            project: Where code is found and kept.
            rules: What synthesis holds the templates to.
            build_layer: Builds the dependency layer. Default: uv does.
        """
        build = FunctionBuild(
            settings=settings,
            project=project,
            build_layer=build_layer or UvLayerBuilder(cache_directory=project.uv_cache),
        )
        boundary = settings.permissions_boundary_arn
        every_stack: dict[str, Any] = {
            "env": Environment(account=settings.account, region=settings.region),
            "permissions_boundary": PermissionsBoundary.from_arn(boundary) if boundary else None,
        }
        prefix = settings.stack_prefix

        storage = StorageStack(app, f"{prefix}-Storage", settings=settings, **every_stack).storage
        compute = (
            ComputeStack(app, f"{prefix}-Compute", build=build, storage=storage, **every_stack).compute
            if settings.ec2_fleets
            else None
        )
        launching = JobsStack(
            app, f"{prefix}-Jobs", build=build, storage=storage, compute=compute, **every_stack
        ).launching
        EventsStack(
            app, f"{prefix}-Events", build=build, storage=storage, compute=compute, launching=launching, **every_stack
        )
        Tags.of(app).add("spotkeep:deployment", settings.deployment)
        Validations.of(app).add_plugins(*rules)
