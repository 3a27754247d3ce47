"""What EC2 instances start from and may do. The fleet that uses it comes with a run and leaves with it."""

from __future__ import annotations

from typing import Any

from aws_cdk import Stack
from constructs import Construct

from spotkeep_constructs.function_build import FunctionBuild
from spotkeep_constructs.spot_compute import SpotCompute
from spotkeep_constructs.storage import Storage


class ComputeStack(Stack):
    """What EC2 instances start from and may do. The fleet that uses it comes with a run and leaves with it.

    Attributes:
        compute: The network, the roles, the launch template.
    """

    def __init__(self, scope: Construct, id: str, *, build: FunctionBuild, storage: Storage, **kwargs: Any) -> None:  # noqa: A002
        """Place the stack.

        Args:
            scope: The app.
            id: Stack id.
            build: The deployment's settings, and what its functions are built of.
            storage: The bucket and the table.
            kwargs: What every `aws_cdk.Stack` takes.
        """
        super().__init__(scope, id, description="Spotkeep: what EC2 spot instances start from and may do", **kwargs)
        self.compute = SpotCompute(
            self,
            "Default",
            settings=build.settings,
            project=build.project,
            platform=build.platform(self),
            storage=storage,
        )
