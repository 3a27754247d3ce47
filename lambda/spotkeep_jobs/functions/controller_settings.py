"""The controller's settings, read once from the environment that its constructs set."""

from __future__ import annotations

from spotkeep_jobs.document.deployment_policy import PoolRules
from spotkeep_jobs.functions.environment import ControllerEnvironment


class ControllerSettings(ControllerEnvironment):
    """The environment, and what follows from it."""

    @property
    def pool_rules(self) -> PoolRules:
        """What this deployment wants of warm pools."""
        return PoolRules(
            reminder_lead_seconds=self.pool_reminder_seconds,
            idle_limit_seconds=self.pool_idle_limit_seconds,
        )
