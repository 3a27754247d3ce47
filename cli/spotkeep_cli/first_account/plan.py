"""The jobs of the first paid hour, with the highest cost of each. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

NAME: Final = "first-account"
"""The name of all its runs. Their ids begin with it."""
_MINUTE: Final = 60


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The durations of the hour.

    Attributes:
        step_seconds: The seconds of one step of the probe.
        keep_alive_seconds: The keep-alive period of the warm pool that is left to expire.
        extend_after_seconds: The seconds from the job's end to the extension of that pool.
        extend_seconds: The seconds of the extension.
        patience_seconds: The longest wait for one job, or for the end of a pool, beyond its own time.
    """

    step_seconds: float
    keep_alive_seconds: int
    extend_after_seconds: int
    extend_seconds: int
    patience_seconds: float


ON_AWS: Final = Pace(
    step_seconds=1.0, keep_alive_seconds=300, extend_after_seconds=90, extend_seconds=120, patience_seconds=45 * _MINUTE
)
ON_LOCAL_AWS: Final = Pace(
    step_seconds=0.1, keep_alive_seconds=20, extend_after_seconds=2, extend_seconds=10, patience_seconds=5 * _MINUTE
)


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """The choices of the person, and the parts of the deployment.

    Attributes:
        session: The ending of the ids of this hour's runs, such as `1a2b3c`.
        instance_type: The type of the training jobs, such as `ml.m5.large`.
        queue: A queue of the deployment. None to run no job in one.
        share: The share of the queue. None for its only one.
        fleets: True where the deployment has EC2 fleets.
        drills: True where the deployment can interrupt an instance.
    """

    session: str
    instance_type: str
    queue: str | None = None
    share: str | None = None
    fleets: bool
    drills: bool


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    """One job of the hour.

    Attributes:
        kind: Its kind, such as `pool`. Questions name it.
        shows: Its purpose in words.
        document: The job document.
        attempts: The number of its training jobs. A resume adds one.
        extended_seconds: The seconds by which its warm pool is extended.
        usd_at_most: Its highest cost in US dollars, by the price list. None where it is left out.
        left_out: The reason that it is not run. Empty for a job that is.
    """

    kind: str
    shows: str
    document: Mapping[str, Any] = field(default_factory=dict)
    attempts: int = 1
    extended_seconds: int = 0
    usd_at_most: float | None = None
    left_out: str = ""

    @property
    def run(self) -> str:
        """The id of its run."""
        return str(self.document.get("run", ""))

    @property
    def runs_on(self) -> str:
        """Its instances in words."""
        kind = self.document.get("instance_type") or " or ".join(self.document.get("instance_types", ()))
        count = self.document.get("instance_count", 1)
        return f"{count} x {kind}" if count > 1 else str(kind)


def planned_jobs(wishes: Wishes, *, pace: Pace) -> tuple[PlannedJob, ...]:
    """Return the jobs of the hour in their order, without their cost.

    Args:
        wishes: The choices of the person, and the parts of the deployment.
        pace: The durations.
    """
    on_demand: dict[str, Any] = {"capacity": "on-demand", "instance_type": wishes.instance_type}

    def job(
        kind: str, shows: str, steps: int, *, attempts: int = 1, extended_seconds: int = 0, **fields: Any
    ) -> PlannedJob:
        own = {
            "name": NAME,
            "run": f"{NAME}-{kind}-{wishes.session}",
            "command": f"python3 probe.py {steps} --seconds {pace.step_seconds:g}",
            "source": ".",
            "max_run": "10m",
            "notify": [],
        }
        return PlannedJob(
            kind=kind, shows=shows, document={**own, **fields}, attempts=attempts, extended_seconds=extended_seconds
        )

    jobs = [
        job(
            "pool",
            "an on-demand job whose warm pool is extended and expires",
            20,
            extended_seconds=pace.extend_seconds,
            keep_alive=f"{pace.keep_alive_seconds}s",
            volume_size_gb=32,  # No other job of the hour may take its pool.
            **on_demand,
        ),
        job(
            "spot",
            "a managed spot job that pauses at a step and is resumed",
            60,
            attempts=2,
            capacity="spot",
            instance_type=wishes.instance_type,
            max_wait="40m",
            pause_at_step=30,
        ),
        job(
            "stop",
            "a job that is stopped, and resumed on its own warm pool",
            400,
            attempts=2,
            keep_alive="10m",
            volume_size_gb=31,
            **on_demand,
        ),
        job("hosts", "the names of two hosts", 0, instance_count=2, distributed="none", checkpoints=False, **on_demand),
    ]
    if wishes.queue is None:
        jobs.append(PlannedJob(kind="queue", shows="a job in a queue", left_out="no queue was named: --queue NAME"))
    else:
        share: dict[str, Any] = {} if wishes.share is None else {"share": wishes.share}
        jobs.append(job("queue", "a job in a queue", 20, queue=wishes.queue, **share, **on_demand))
    drilled = ", interrupted by a drill" if wishes.drills else ""
    shows = f"a spot instance of an EC2 fleet{drilled}"
    if wishes.fleets:
        volume = {"size_gb": 1, "when_done": "delete"}
        types = ["m5.large", "m6i.large"]
        jobs.append(job("fleet", shows, 400, backend="ec2", instance_types=types, max_wait="40m", volume=volume))
    else:
        jobs.append(PlannedJob(kind="fleet", shows=shows, left_out="the deployment has no fleets"))
    return tuple(jobs)


def priced(job: PlannedJob, *, worst_case_usd: float | None, usd_per_hour: float | None) -> PlannedJob:
    """Return a job with its highest cost, or left out where its price is not known.

    Args:
        job: The job.
        worst_case_usd: The highest cost of one attempt, as the launcher states it.
        usd_per_hour: The on-demand price of one instance.
    """
    if worst_case_usd is None or usd_per_hour is None:
        return replace(job, left_out="the price of its instance is not known: name it in the setting prices")
    extension = job.extended_seconds * usd_per_hour / 3600
    return replace(job, usd_at_most=job.attempts * worst_case_usd + extension)


def sum_usd(jobs: Sequence[PlannedJob]) -> float:
    """Return the highest cost of all jobs."""
    return sum(job.usd_at_most or 0.0 for job in jobs)


def passes_ceiling(*, spent_usd: float, usd_per_hour: float, ceiling_usd: float) -> bool:
    """Return True if the cost passes the ceiling within the next two minutes.

    Args:
        spent_usd: The cost so far, by the records.
        usd_per_hour: The cost of an hour of all instances at work.
        ceiling_usd: The ceiling.
    """
    return spent_usd + usd_per_hour * 2 * _MINUTE / 3600 > ceiling_usd
