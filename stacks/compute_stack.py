"""What EC2 instances start from and may do. The fleet that uses it comes with a run and leaves with it."""

from __future__ import annotations

from aws_cdk import Environment, PermissionsBoundary, Stack
from constructs import Construct

from spotkeep_constructs.function_build import FunctionBuild
from spotkeep_constructs.project import Project
from spotkeep_constructs.settings import Settings
from spotkeep_constructs.spot_compute import SpotCompute
from spotkeep_constructs.storage import Storage


class ComputeStack(Stack):
    """What EC2 instances start from and may do. The fleet that uses it comes with a run and leaves with it.

    Attributes:
        compute: The network, the roles, the launch template.
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
            env: Account and region.
            permissions_boundary: Bounds every role of the stack.
        """
        super().__init__(
            scope,
            id,
            env=env,
            permissions_boundary=permissions_boundary,
            description="Spotkeep: what EC2 spot instances start from and may do",
        )
        # The id `Default` adds nothing to logical ids: the stack has a name of its own.
        self.compute = SpotCompute(
            self, "Default", settings=settings, project=project, platform=build.platform(self), storage=storage
        )
