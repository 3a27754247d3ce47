"""Which service runs an attempt: SageMaker, or an EC2 fleet. Both answer the same questions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotkeep_jobs.backends.sagemaker.api import TrainingJobs
    from spotkeep_jobs.record.record import Attempt, Run


@dataclass(frozen=True, kw_only=True)
class JobBackends:
    """The services that run attempts.

    Attributes:
        sagemaker: Training jobs.
        ec2: Fleets of one instance.
    """

    sagemaker: TrainingJobs
    ec2: TrainingJobs

    def of(self, attempt: Attempt | Run) -> TrainingJobs:
        """The service that runs an attempt, or a run's current one."""
        return self.ec2 if attempt.backend == "ec2" else self.sagemaker
