"""What must outlive everything else: checkpoints and the record of runs."""

from __future__ import annotations

from typing import Any

from aws_cdk import Stack
from constructs import Construct

from spotkeep_constructs.settings import Settings
from spotkeep_constructs.storage import Storage


class StorageStack(Stack):
    """What must outlive everything else: checkpoints and the record of runs.

    Attributes:
        storage: The bucket and the table.
    """

    def __init__(self, scope: Construct, id: str, *, settings: Settings, **kwargs: Any) -> None:  # noqa: A002
        """Place the stack.

        Args:
            scope: The app.
            id: Stack id.
            settings: The deployment's settings.
            kwargs: What every `aws_cdk.Stack` takes.
        """
        super().__init__(scope, id, description="Spotkeep: checkpoints and the record of runs", **kwargs)
        # The id `Default` adds nothing to logical ids: the stack has a name of its own.
        self.storage = Storage(self, "Default", settings=settings)
