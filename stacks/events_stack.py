"""What keeps runs as their records say and notifies people; and the connection, when all is there."""

from __future__ import annotations

from typing import Any

from aws_cdk import Stack
from constructs import Construct

from spotkeep_constructs.control import Control
from spotkeep_constructs.function_build import FunctionBuild
from spotkeep_constructs.launching import Launching
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
        build: FunctionBuild,
        storage: Storage,
        compute: SpotCompute | None,
        launching: Launching,
        **kwargs: Any,
    ) -> None:
        """Place the stack.

        Args:
            scope: The app.
            id: Stack id.
            build: The deployment's settings, and what its functions are built of.
            storage: The bucket and the table.
            compute: What EC2 instances need; None where the deployment has no fleets.
            launching: The launcher and what jobs need.
            kwargs: What every `aws_cdk.Stack` takes.
        """
        super().__init__(scope, id, description="Spotkeep: reconciles runs and notifies their users", **kwargs)
        self.control = Control(
            self,
            "Default",
            settings=build.settings,
            platform=build.platform(self),
            storage=storage,
            compute=compute,
            launching=launching,
        )
