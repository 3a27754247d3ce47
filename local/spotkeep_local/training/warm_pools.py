"""SageMaker's warm pools, with the rules of their reuse.

    InUse ----> Available ----> Reused        by a job that matches. Its own pool is then InUse
      |             |
      +-------------+---------> Terminated    its time is over, it was updated to 0, or the job left none

A pool keeps the host, with its image, its home and its cache directory. The image here is the byte code of the
environment, which a fresh host has to make. Data, model and checkpoints of a job leave with the job.

Source: https://docs.aws.amazon.com/sagemaker/latest/dg/train-warm-pools.html
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from spotkeep_local.training.job import PoolStatus
from spotkeep_local.training.request_rules import instance_count, is_spot, keep_alive_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from spotkeep_local.training.job import Ending, TrainingJob, WarmPool

LONGEST_CHAIN_SECONDS = 28 * 24 * 3600.0
"""The longest time that instances are handed on from job to job, in seconds."""
CACHE_DIRECTORY = "sagemaker/warmpoolcache"
"""The cache directory below `/opt/ml`. The next job on the same host finds the files that a job puts there.
Source: https://docs.aws.amazon.com/sagemaker/latest/dg/train-warm-pools.html (Using persistent cache)"""
_STAYS_WITH_A_HOST = ("home", "image")


def expires_at(job: TrainingJob) -> float | None:
    """Return the time when a job's pool ends by itself, in epoch seconds. None where none waits."""
    pool = job.warm_pool
    if pool is None or pool.status is not PoolStatus.AVAILABLE or pool.kept_since is None:
        return None
    return min(pool.kept_since + keep_alive_seconds(job.request), pool.chain_since + LONGEST_CHAIN_SECONDS)


def instances_in_pools(jobs: Iterable[TrainingJob]) -> int:
    """Return the used part of the quota "... for training warm pool usage"."""
    taken = (PoolStatus.IN_USE, PoolStatus.AVAILABLE)
    return sum(
        instance_count(job.request) for job in jobs if job.warm_pool is not None and job.warm_pool.status in taken
    )


def pool_for(request: dict[str, Any], jobs: Iterable[TrainingJob], *, now: float) -> TrainingJob | None:
    """Return the job with the waiting pool that a new job takes over.

    Of several that match, the longest waiting one wins.
    """
    if is_spot(request):
        return None
    waiting = [
        job
        for job in jobs
        if (end := expires_at(job)) is not None and now < end and _criteria(job.request) == _criteria(request)
    ]
    return min(waiting, key=lambda job: (job.updated_at, job.name), default=None)


def pool_after(job: TrainingJob, ending: Ending, *, has_hosts: bool, now: float) -> WarmPool | None:
    """Return a job's pool when the job has ended.

    Args:
        job: The job.
        ending: The end of the job.
        has_hosts: True where its hosts are still there.
        now: The time.
    """
    if job.warm_pool is None:
        return None
    retained = ending.failure_reason is None or ending.failure_reason.startswith("AlgorithmError")
    if retained and has_hosts:
        return replace(job.warm_pool, status=PoolStatus.AVAILABLE, kept_since=now)
    return job.warm_pool.over(PoolStatus.TERMINATED, now=now)


def strip_host(folder: Path) -> None:
    """Remove all files of a host except those that stay with it, which are image, home and the cache directory."""
    cache = folder / "ml" / CACHE_DIRECTORY
    kept = folder / "cache"
    if cache.is_dir():
        cache.rename(kept)
    for entry in folder.iterdir():
        if entry.name not in (*_STAYS_WITH_A_HOST, "cache"):
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink()
    if kept.is_dir():
        cache.parent.mkdir(parents=True)
        kept.rename(cache)


def _criteria(request: dict[str, Any]) -> tuple[object, ...]:
    """Return the values that must be the same in a job that takes a pool and the one that left it."""
    resources, network = request["ResourceConfig"], request.get("VpcConfig", {})
    return (
        request["RoleArn"],
        instance_count(request),
        resources.get("InstanceType"),
        tuple(preference["InstanceType"] for preference in resources.get("InstancePreferences", [])),
        resources.get("VolumeKmsKeyId"),
        resources.get("VolumeSizeInGB"),
        frozenset(network.get("SecurityGroupIds", [])),
        frozenset(network.get("Subnets", [])),
        request.get("EnableInterContainerTrafficEncryption", False),
        request.get("EnableNetworkIsolation", False),
        request.get("SessionChainingConfig", {}).get("EnableSessionTagChaining", False),
    )
