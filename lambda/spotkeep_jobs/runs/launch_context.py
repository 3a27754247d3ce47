"""What all that users ask the launcher for acts on: made once, and passed to each part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotkeep_jobs.backends.backend import Backends
    from spotkeep_jobs.document.deployment_facts import DeploymentDefaults, DeploymentPolicy
    from spotkeep_jobs.record.run_table import RunTable


@dataclass(frozen=True, kw_only=True)
class LaunchContext:
    """A deployment, as its launcher sees it.

    Attributes:
        table: Where runs are recorded.
        backends: Where their jobs are or will be.
        deployment: Its name, prices and limits.
        defaults: What it fills into a document and insists on.
        now: The time, aware.
        pause: Waits before the next try of a transaction that met another one.
    """

    table: RunTable
    backends: Backends
    deployment: DeploymentPolicy
    defaults: DeploymentDefaults
    now: Callable[[], datetime]
    pause: Callable[[int], None]
