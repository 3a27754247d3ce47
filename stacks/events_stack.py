"""What keeps runs as their records say and notifies people; and the connection, when all is there."""

from __future__ import annotations

from aws_cdk import Environment, PermissionsBoundary, Stack
from constructs import Construct

from spotkeep_constructs.control import Control
from spotkeep_constructs.function_build import FunctionBuild
from spotkeep_constructs.launching import Launching
from spotkeep_constructs.settings import Settings
from spotkeep_constructs.spot_compute import SpotCompute
from spotkeep_constructs.storage import Storage


class EventsStack(Stack):
    """What keeps runs as their records say and notifies people; and the connection, when all is there.

    Attributes:
        control: The controller, the notifications, the connection.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        settings: Settings,
        build: FunctionBuild,
        storage: Storage,
        compute: SpotCompute | None,
        launching: Launching,
        env: Environment,
        permissions_boundary: PermissionsBoundary | None,
    ) -> None:
        """Place the stack.

        Args:
            scope: The app.
            id: Stack id.
            settings: The deployment's settings.
            build: What the functions are built of.
            storage: The bucket and the table.
            compute: What EC2 instances need; None where the deployment has no fleets.
            launching: The launcher and what jobs need.
            env: Account and region.
            permissions_boundary: Bounds every role of the stack.
        """
        super().__init__(
            scope,
            id,
            env=env,
            permissions_boundary=permissions_boundary,
            description="Spotkeep: follows training jobs and tells their users",
        )
        # The id `Default` adds nothing to logical ids: the stack has a name of its own.
        self.control = Control(
            self,
            "Default",
            settings=settings,
            platform=build.platform(self),
            storage=storage,
            compute=compute,
            launching=launching,
        )
