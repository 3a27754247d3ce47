"""The job that is planned, with its work, its deadline, and the cost of a restart and of a save."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spotkeep_planner.errors import PlanError


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    """One training job as a policy sees it. All durations are in seconds.

    Attributes:
        work_s: Training time without any interruption, without saves.
        deadline_s: From the start of the first attempt to the end of the last.
        restart_s: From asking for capacity to working, with start-up and the loading of the last checkpoint, billed on
            every change of capacity.
        checkpoint_interval_s: Work between two saves. 0 means that every moment's work is durable at once.
        checkpoint_cost_s: The time for which training stands still for a save.
        saves_on_notice: True if an interruption comes with a notice in which the job saves. Else the work since the
            last save is lost.
    """

    work_s: float
    deadline_s: float
    restart_s: float = 720.0
    checkpoint_interval_s: float = 0.0
    checkpoint_cost_s: float = 0.0
    saves_on_notice: bool = False

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be {rule}, found {value!r}"
            for name, value, rule, right in (
                ("work_s", self.work_s, "a positive number", self.work_s > 0),
                ("deadline_s", self.deadline_s, "a positive number", self.deadline_s > 0),
                ("restart_s", self.restart_s, "0 or more", self.restart_s >= 0),
                ("checkpoint_interval_s", self.checkpoint_interval_s, "0 or more", self.checkpoint_interval_s >= 0),
                ("checkpoint_cost_s", self.checkpoint_cost_s, "0 or more", self.checkpoint_cost_s >= 0),
            )
            if not (right and math.isfinite(value))
        ]
        if self.checkpoint_cost_s > 0 and self.checkpoint_interval_s == 0:
            problems.append(
                "checkpoint_interval_s must be given where checkpoint_cost_s is: saving all the time costs all the time"
            )
        if problems:
            raise PlanError("; ".join(problems))

    @property
    def cycle_s(self) -> float:
        """The time from one save to the next, which is the work between them and the save itself."""
        return self.checkpoint_interval_s + self.checkpoint_cost_s

    @property
    def uninterrupted_s(self) -> float:
        """The shortest time in which the job can be done, with one start, all its saves and no interruption."""
        return self.restart_s + self.running_time_s(self.work_s)

    def running_time_s(self, work_s: float) -> float:
        """Return how long some work takes from a fresh start, saves included. None follows the end."""
        if self.checkpoint_cost_s == 0 or work_s <= 0:
            return max(0.0, work_s)
        saves = math.ceil(work_s / self.checkpoint_interval_s) - 1
        return work_s + saves * self.checkpoint_cost_s


def running_times_s(work_s: NDArray[np.float64], *, job: PlannedJob) -> NDArray[np.float64]:
    """Return `PlannedJob.running_time_s` for many amounts of work."""
    if job.checkpoint_cost_s == 0:
        return work_s
    saves = np.maximum(0.0, np.ceil(work_s / job.checkpoint_interval_s) - 1.0)
    return np.asarray(work_s + saves * job.checkpoint_cost_s, dtype=np.float64)
