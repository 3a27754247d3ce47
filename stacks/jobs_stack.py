"""What launches jobs: the launcher, the roles jobs run with, what they start with, and the users' policies."""

from __future__ import annotations

from typing import Any

from aws_cdk import Stack
from constructs import Construct

from spotkeep_constructs.function_build import FunctionBuild
from spotkeep_constructs.launching import Launching
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
        build: FunctionBuild,
        storage: Storage,
        compute: SpotCompute | None,
        **kwargs: Any,
    ) -> None:
        """Place the stack.

        Args:
            scope: The app.
            id: Stack id.
            build: The deployment's settings, and what its functions are built of.
            storage: The bucket and the table.
            compute: What EC2 instances need; None where the deployment has no fleets.
            kwargs: What every `aws_cdk.Stack` takes.
        """
        super().__init__(scope, id, description="Spotkeep: the launcher and what training jobs need", **kwargs)
        self.launching = Launching(
            self,
            "Default",
            settings=build.settings,
            project=build.project,
            platform=build.platform(self),
            search_platform=build.search_platform(self) if build.settings.tpe_search else None,
            storage=storage,
            compute=compute,
        )
