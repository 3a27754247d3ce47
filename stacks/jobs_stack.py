"""What launches jobs: the launcher, the roles jobs run with, what they start with, and the users' policies."""

from __future__ import annotations

from aws_cdk import Environment, PermissionsBoundary, Stack
from constructs import Construct

from spotkeep_constructs.function_build import FunctionBuild
from spotkeep_constructs.launching import Launching
from spotkeep_constructs.project import Project
from spotkeep_constructs.settings import Settings
from spotkeep_constructs.spot_compute import SpotCompute
from spotkeep_constructs.storage import Storage


class JobsStack(Stack):
    """What launches jobs: the launcher, the roles jobs run with, what they start with, and the users' policies.

    Attributes:
        launching: The launcher and what jobs need.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        settings: Settings,
        project: Project,
        build: FunctionBuild,
        storage: Storage,
        compute: SpotCompute | None,
        env: Environment,
        permissions_boundary: PermissionsBoundary | None,
    ) -> None:
        """Place the stack.

        Args:
            scope: The app.
            id: Stack id.
            settings: The deployment's settings.
            project: Where code is found and kept.
            build: What the functions are built of.
            storage: The bucket and the table.
            compute: What EC2 instances need; None where the deployment has no fleets.
            env: Account and region.
            permissions_boundary: Bounds every role of the stack.
        """
        super().__init__(
            scope,
            id,
            env=env,
            permissions_boundary=permissions_boundary,
            description="Spotkeep: the launcher and what training jobs need",
        )
        # The id `Default` adds nothing to logical ids: the stack has a name of its own.
        self.launching = Launching(
            self,
            "Default",
            settings=settings,
            project=project,
            platform=build.platform(self),
            search_platform=build.search_platform(self) if settings.tpe_search else None,
            storage=storage,
            compute=compute,
        )
