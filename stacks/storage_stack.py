"""What must outlive everything else: checkpoints and the record of runs."""

from __future__ import annotations

from aws_cdk import Environment, PermissionsBoundary, Stack
from constructs import Construct

from spotkeep_constructs.settings import Settings
from spotkeep_constructs.storage import Storage


class StorageStack(Stack):
    """What must outlive everything else: checkpoints and the record of runs.

    Attributes:
        storage: The bucket and the table.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        settings: Settings,
        env: Environment,
        permissions_boundary: PermissionsBoundary | None,
    ) -> None:
        """Place the stack.

        Args:
            scope: The app.
            id: Stack id.
            settings: The deployment's settings.
            env: Account and region.
            permissions_boundary: Bounds every role of the stack.
        """
        super().__init__(
            scope,
            id,
            env=env,
            permissions_boundary=permissions_boundary,
            description="Spotkeep: checkpoints and the record of runs",
        )
        # The id `Default` adds nothing to logical ids: the stack has a name of its own.
        self.storage = Storage(self, "Default", settings=settings)
