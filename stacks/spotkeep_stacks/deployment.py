"""The stacks of a deployment, in an order in which each needs only those before it.

A stack holds one construct and nothing else. Its id is `Default`, which adds nothing to logical ids, since the stack
has a name of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import App, Environment, IPolicyValidationPlugin, PermissionsBoundary, Stack, Tags, Validations

from spotkeep_constructs.control_plane import Control
from spotkeep_constructs.deployment_build import DeploymentBuild, Project
from spotkeep_constructs.launching import Launching
from spotkeep_constructs.settings import Settings
from spotkeep_constructs.spot_compute import SpotCompute
from spotkeep_constructs.storage import Storage
from spotkeep_fleet.tags import DEPLOYMENT_TAG


def place_stacks(
    app: App,
    *,
    settings: Settings,
    project: Project,
    rules: Sequence[IPolicyValidationPlugin],
) -> None:
    """Place Storage, Compute (where the deployment has fleets), Jobs and Events.

    Args:
        app: The CDK app.
        settings: The deployment's settings.
        project: The directories of code and built archives.
        rules: The rules for the templates.
    """
    build = DeploymentBuild(settings=settings, project=project)
    boundary = settings.permissions_boundary_arn

    def stack(name: str, description: str) -> Stack:
        return Stack(
            app,
            f"{settings.stack_prefix}-{name}",
            description=f"Spotkeep: {description}",
            env=Environment(account=settings.account, region=settings.region),
            permissions_boundary=PermissionsBoundary.from_arn(boundary) if boundary else None,
        )

    storage = Storage(stack("Storage", "checkpoints and the record of runs"), "Default", settings=settings)
    compute = None
    if settings.ec2_fleets:
        of_compute = stack("Compute", "what EC2 spot instances start from and may do")
        compute = SpotCompute(
            of_compute,
            "Default",
            build=build,
            platform=build.platform(of_compute),
            storage=storage,
        )
    of_jobs = stack("Jobs", "the launcher and what training jobs need")
    launching = Launching(
        of_jobs,
        "Default",
        build=build,
        platform=build.platform(of_jobs),
        storage=storage,
        compute=compute,
    )
    of_events = stack("Events", "reconciles runs and notifies their users")
    Control(
        of_events,
        "Default",
        settings=settings,
        platform=build.platform(of_events),
        storage=storage,
        compute=compute,
        launching=launching,
    )
    Tags.of(app).add(DEPLOYMENT_TAG, settings.deployment)
    Validations.of(app).add_plugins(*rules)
