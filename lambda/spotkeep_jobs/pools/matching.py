"""Finds the warm pool that a training job would take, by AWS's criteria, and every criterion that differs. Pure.

A job takes a pool when all criteria are the same as in the earlier job. Image, command, hyperparameters, environment,
data and tags do not matter. The owner of the job does not matter either, as pools are shared by role and settings.

Source: https://docs.aws.amazon.com/sagemaker/latest/dg/train-warm-pools.html (Matching training jobs)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from spotkeep_jobs.backends.sagemaker.training_job import traits_of
from spotkeep_jobs.record.record import Pool, PoolTraits
from spotkeep_jobs.record.states import PoolState


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A criterion that keeps a job from a pool.

    Attributes:
        criterion: Its name in CreateTrainingJob, such as `ResourceConfig.InstanceType`.
        wanted: The value that the job asks for.
        offered: The value of the pool.
    """

    criterion: str
    wanted: str
    offered: str

    def __str__(self) -> str:
        return f"{self.criterion}: the job asks for {self.wanted}, the pool has {self.offered}"

    def as_document(self) -> dict[str, str]:
        """Return the difference as it stands in an answer."""
        return {"criterion": self.criterion, "wanted": self.wanted, "offered": self.offered}


@dataclass(frozen=True, kw_only=True)
class PoolMatch:
    """A pool, held against a job.

    Attributes:
        pool: The pool.
        differences: Every criterion that differs. Empty when the job would take it.
    """

    pool: Pool
    differences: tuple[Difference, ...]

    @property
    def fits(self) -> bool:
        """True when the job would take the pool."""
        return not self.differences


def differences(*, wanted: PoolTraits, offered: PoolTraits) -> tuple[Difference, ...]:
    """Return every criterion in which a job differs from the job that left a pool, in AWS's order."""
    return tuple(
        Difference(criterion=criterion, wanted=show(ours), offered=show(theirs))
        for criterion, field, show in _CRITERIA
        if (ours := getattr(wanted, field)) != (theirs := getattr(offered, field))
    )


def match(document: Mapping[str, Any], *, pools: Sequence[Pool], now: datetime) -> list[PoolMatch]:
    """Compare a job with pools.

    Args:
        document: The job's CreateTrainingJob request.
        pools: The pools, of which those that are not available any more are left out.
        now: The time, after which an expired pool is left out.

    Returns:
        First the pools that the job would take, the longest kept before the others. AWS does not document the choice
        between several fitting pools.
    """
    matches = []
    for pool in pools:
        if pool.state is not PoolState.AVAILABLE or pool.kept_until <= now or pool.asked_to_end is not None:
            continue
        found = list(_unfit(document))
        wanted = traits_of(document)
        if wanted is not None:
            found += differences(wanted=wanted, offered=pool.traits)
        matches.append(PoolMatch(pool=pool, differences=tuple(found)))
    return sorted(matches, key=lambda each: (len(each.differences), -each.pool.kept_until.timestamp()))


def _unfit(document: Mapping[str, Any]) -> list[Difference]:
    """Return the differences that keep a job from any pool at all."""
    found = []
    if document.get("EnableManagedSpotTraining"):
        found.append(Difference(criterion="EnableManagedSpotTraining", wanted="spot", offered="on-demand instances"))
    if traits_of(document) is None:
        found.append(
            Difference(
                criterion="ResourceConfig", wanted="a heterogeneous cluster", offered="instances of a single type"
            )
        )
    return found


def _plain(value: object) -> str:
    return str(value)


def _gigabytes(value: object) -> str:
    return f"{value} GB"


def _listed(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) and value else "none"


def _key(value: object) -> str:
    return str(value) if value else "AWS's own key"


def _switch(value: object) -> str:
    return "on" if value else "off"


_CRITERIA: Final[tuple[tuple[str, str, Callable[[object], str]], ...]] = (
    ("RoleArn", "role_arn", _plain),
    ("ResourceConfig.InstanceCount", "instance_count", _plain),
    ("ResourceConfig.InstanceType", "instance_type", _plain),
    ("ResourceConfig.VolumeKmsKeyId", "volume_kms_key_id", _key),
    ("ResourceConfig.VolumeSizeInGB", "volume_size_gb", _gigabytes),
    ("VpcConfig.SecurityGroupIds", "security_group_ids", _listed),
    ("VpcConfig.Subnets", "subnets", _listed),
    ("EnableInterContainerTrafficEncryption", "inter_container_encryption", _switch),
    ("EnableNetworkIsolation", "network_isolation", _switch),
    ("SessionChainingConfig.EnableSessionTagChaining", "session_tag_chaining", _switch),
)
