"""What a deployment lets a run spend at most: the ceilings as the settings name them, and who is above them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final


@dataclass(frozen=True, kw_only=True)
class SpendingLimits:
    """The ceilings of a deployment; each attribute is the setting of the same name. None: no ceiling.

    Attributes:
        allowed_instance_types: Shell patterns; a type of SageMaker or EC2 is allowed where one of them matches it.
        run_cost_limit_usd: What a run may cost in the worst case, over all its attempts.
        volume_size_limit_gb: Storage of each instance of a job, in GB, or of the volume of a run on EC2, in GiB.
        volume_iops_limit: Provisioned IOPS of the volume of a run on EC2.
        runs_in_flight_limit: How many runs of the deployment may be under way at a time.
    """

    allowed_instance_types: tuple[str, ...] = ("*",)
    run_cost_limit_usd: float | None = None
    volume_size_limit_gb: int | None = None
    volume_iops_limit: int | None = None
    runs_in_flight_limit: int | None = None

    def forbidden(self, instance_types: Sequence[str]) -> tuple[str, ...]:
        """Return those of some instance types that no pattern allows, in their order."""
        return tuple(
            each
            for each in instance_types
            if not any(fnmatchcase(each, pattern) for pattern in self.allowed_instance_types)
        )


NO_LIMITS: Final = SpendingLimits()
