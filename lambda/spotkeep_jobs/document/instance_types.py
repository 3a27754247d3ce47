"""The instance types of training jobs, and their GPUs. Data only.

A test compares the types with `TrainingInstanceType` of botocore's model of SageMaker. A new type of AWS counts as
known as soon as the deployment knows its price.

Sources:
    https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ResourceConfig.html (InstanceType)

    https://aws.amazon.com/ec2/instance-types/ (GPUs of each type)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

TRAINING_SIZES: Final[Mapping[str, str]] = {
    "c4": "xlarge 2xlarge 4xlarge 8xlarge",
    "c5": "xlarge 2xlarge 4xlarge 9xlarge 18xlarge",
    "c5n": "xlarge 2xlarge 4xlarge 9xlarge 18xlarge",
    "c6i": "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 32xlarge",
    "c7i": "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 48xlarge",
    "c7i-flex": "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge",
    "c8i": "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 32xlarge 48xlarge 96xlarge",
    "c8i-flex": "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge",
    "g4dn": "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge",
    "g5": "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 48xlarge",
    "g6": "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 48xlarge",
    "g6e": "xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 48xlarge",
    "g7": "2xlarge 4xlarge 8xlarge 12xlarge 24xlarge 48xlarge",
    "g7e": "2xlarge 4xlarge 8xlarge 12xlarge 24xlarge 48xlarge",
    "m4": "xlarge 2xlarge 4xlarge 10xlarge 16xlarge",
    "m5": "large xlarge 2xlarge 4xlarge 12xlarge 24xlarge",
    "m6i": "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 32xlarge",
    "m7i": "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 48xlarge",
    "m7i-flex": "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge",
    "m8i": "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 32xlarge 48xlarge 96xlarge",
    "m8i-flex": "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge",
    "p2": "xlarge 8xlarge 16xlarge",
    "p3": "2xlarge 8xlarge 16xlarge",
    "p3dn": "24xlarge",
    "p4d": "24xlarge",
    "p4de": "24xlarge",
    "p5": "4xlarge 48xlarge",
    "p5e": "48xlarge",
    "p5en": "48xlarge",
    "p6-b200": "48xlarge",
    "p6-b300": "48xlarge",
    "p6e-gb200": "36xlarge",
    "r5": "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge",
    "r5d": "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge",
    "r6i": "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 32xlarge",
    "r7i": "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 48xlarge",
    "r8i": "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge 24xlarge 32xlarge 48xlarge 96xlarge",
    "r8i-flex": "large xlarge 2xlarge 4xlarge 8xlarge 12xlarge 16xlarge",
    "t3": "medium large xlarge 2xlarge",
    "trn1": "2xlarge 32xlarge",
    "trn1n": "32xlarge",
    "trn2": "48xlarge",
}
"""The sizes of each family."""
TRAINING_TYPES: Final = tuple(
    f"ml.{family}.{size}" for family, sizes in TRAINING_SIZES.items() for size in sizes.split()
)
_GPUS: Final[Mapping[str, Mapping[str, int]]] = {
    "g3": {"8xlarge": 2, "16xlarge": 4},
    "g4ad": {"8xlarge": 2, "16xlarge": 4},
    "g4dn": {"12xlarge": 4, "metal": 8},
    "g5": {"12xlarge": 4, "24xlarge": 4, "48xlarge": 8},
    "g5g": {"16xlarge": 2, "metal": 2},
    "g6": {"12xlarge": 4, "24xlarge": 4, "48xlarge": 8},
    "g6e": {"12xlarge": 4, "24xlarge": 4, "48xlarge": 8},
    "g7": {"12xlarge": 2, "24xlarge": 4, "48xlarge": 8},
    "g7e": {"12xlarge": 2, "24xlarge": 4, "48xlarge": 8},
    "p2": {"8xlarge": 8, "16xlarge": 16},
    "p3": {"8xlarge": 4, "16xlarge": 8},
    "p3dn": {"24xlarge": 8},
    "p4d": {"24xlarge": 8},
    "p4de": {"24xlarge": 8},
    "p5": {"48xlarge": 8},
    "p5e": {"48xlarge": 8},
    "p5en": {"48xlarge": 8},
    "p6-b200": {"48xlarge": 8},
    "p6-b300": {"48xlarge": 8},
    "p6e-gb200": {"36xlarge": 4},
}
"""The number of GPUs of types with several."""


def several_gpus(instance_type: str) -> int | None:
    """Return the number of GPUs of a type that has more than one. None for any other type.

    Args:
        instance_type: A type of SageMaker or EC2. Example: `ml.g5.12xlarge`.
    """
    family, _, size = instance_type.removeprefix("ml.").partition(".")
    return _GPUS.get(family, {}).get(size)


def is_training_type(instance_type: str, *, priced: Iterable[str]) -> bool:
    """Return True if SageMaker trains on a type, by the table or by the types that the deployment knows a price of."""
    return instance_type in TRAINING_TYPES or instance_type in priced


def nearest_types(instance_type: str) -> list[str]:
    """Return up to three types of training jobs that resemble a name. Those of the same family come first."""
    family = instance_type.removeprefix("ml.").partition(".")[0]
    same = [f"ml.{family}.{size}" for size in TRAINING_SIZES.get(family, "").split()]
    near = difflib.get_close_matches(instance_type, same or TRAINING_TYPES, n=3, cutoff=0.5)
    return near or same[:3]
