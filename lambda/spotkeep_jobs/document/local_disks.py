"""Which of SageMaker's instance types have NVMe disks of their own, and how much they hold. Pure.

A job on such a type gets no EBS volume: "Available storage is fixed to the NVMe-type instance's storage capacity". So
its `VolumeSizeInGB` has no effect, and SageMaker refuses a volume key for it: its disks encrypt in hardware.

Sources:
    https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ResourceConfig.html (VolumeSizeInGB, VolumeKmsKeyId)
    DescribeInstanceTypes, `InstanceStorageInfo.TotalSizeInGB`, as recorded in moto 5.2.5 (2026-10-27), which does not
    have p6e-gb200
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

# A `d` among the attributes (g4dn, p4d, r5d) says so, and these families have them without saying.
_LOCAL_DISK_TYPE: Final = re.compile(r"ml\.(?:[a-z]+\d+[a-z]*d[a-z]*|g[5-9]\w*|gr6\w*|p[5-9][\w-]*|trn\w+|i\d\w*)\.\w+")

_GB: Final[Mapping[str, Mapping[str, int]]] = {
    "g4dn": {"xlarge": 125, "2xlarge": 225, "4xlarge": 225, "8xlarge": 900, "12xlarge": 900, "16xlarge": 900},
    "g5": {
        "xlarge": 250, "2xlarge": 450, "4xlarge": 600, "8xlarge": 900, "12xlarge": 3_800, "16xlarge": 1_900,
        "24xlarge": 3_800, "48xlarge": 7_600,
    },
    "g6": {
        "xlarge": 250, "2xlarge": 450, "4xlarge": 600, "8xlarge": 900, "12xlarge": 3_760, "16xlarge": 1_880,
        "24xlarge": 3_760, "48xlarge": 7_520,
    },
    "g6e": {
        "xlarge": 250, "2xlarge": 450, "4xlarge": 600, "8xlarge": 900, "12xlarge": 3_800, "16xlarge": 1_900,
        "24xlarge": 3_800, "48xlarge": 7_600,
    },
    "g7": {
        "2xlarge": 440, "4xlarge": 875, "8xlarge": 930, "12xlarge": 1_900, "24xlarge": 3_800, "48xlarge": 7_600,
    },
    "g7e": {
        "2xlarge": 1_900, "4xlarge": 1_900, "8xlarge": 1_900, "12xlarge": 3_800, "24xlarge": 7_600, "48xlarge": 15_200,
    },
    "p3dn": {"24xlarge": 1_800},
    "p4d": {"24xlarge": 8_000},
    "p4de": {"24xlarge": 8_000},
    "p5": {"4xlarge": 3_800, "48xlarge": 30_400},
    "p5e": {"48xlarge": 30_400},
    "p5en": {"48xlarge": 30_400},
    "p6-b200": {"48xlarge": 30_400},
    "p6-b300": {"48xlarge": 30_400},
    "r5d": {
        "large": 75, "xlarge": 150, "2xlarge": 300, "4xlarge": 600, "8xlarge": 1_200, "12xlarge": 1_800,
        "16xlarge": 2_400, "24xlarge": 3_600,
    },
    "trn1": {"2xlarge": 474, "32xlarge": 7_600},
    "trn1n": {"32xlarge": 7_600},
    "trn2": {"48xlarge": 7_600},
}  # fmt: skip


def has_local_disks(instance_type: str) -> bool:
    """Return whether a type brings NVMe disks of its own, which no volume key may be named for."""
    return _LOCAL_DISK_TYPE.fullmatch(instance_type) is not None


def local_disks_gb(instance_type: str) -> int | None:
    """Return how much a type's own disks hold together, in GB; None of one that has none, or is not known here."""
    family, _, size = instance_type.removeprefix("ml.").partition(".")
    return _GB.get(family, {}).get(size)


def larger_disks(instance_type: str, *, than_gb: int) -> str | None:
    """Return the type of the same family with the smallest disks that hold so much; None where there is none.

    Args:
        instance_type: `ml.g5.xlarge`.
        than_gb: what they must hold, in GB.
    """
    family = instance_type.removeprefix("ml.").partition(".")[0]
    enough = [(gb, size) for size, gb in _GB.get(family, {}).items() if gb >= than_gb]
    return f"ml.{family}.{min(enough)[1]}" if enough else None
