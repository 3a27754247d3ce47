"""What AWS and Spotkeep take at most. AWS's own limits where they are tighter than botocore's client-side ones.

Sources:
    https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateTrainingJob.html
    https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_StoppingCondition.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

DAY_SECONDS: Final = 86_400
DEFAULT_MAX_RUN_SECONDS: Final = DAY_SECONDS
MAX_RUN_SECONDS: Final = 28 * DAY_SECONDS
MAX_WAIT_SECONDS: Final = 30 * DAY_SECONDS
"""SageMaker ends any training job after 30 days in total, so a longer wait could never be used."""
MAX_KEEP_ALIVE_SECONDS: Final = 3_600
NO_CHECKPOINTS_SPOT_SECONDS: Final = 3_600
MAX_INSTANCES: Final = 20
MAX_INSTANCE_TYPES: Final = 5
MAX_FLEET_TYPES: Final = 40
BACKENDS: Final = ("sagemaker", "ec2")
MAX_FALLBACKS: Final = 10
MAX_ATTEMPTS: Final = 100
MAX_RUNS: Final = 16
MAX_PRIORITY: Final = 9_999
"""The highest of a service job: https://docs.aws.amazon.com/batch/latest/APIReference/API_SubmitServiceJob.html"""
"""They are recorded in one DynamoDB transaction, of at most 100 items, and created one by one within a minute."""
MAX_SCRIPT_RETRIES: Final = 10
MAX_STEP: Final = 2**53 - 1
"""Up to here every whole number has its own in JSON, and so in a job's events."""
DEFAULT_LONGEST_WAIT_SECONDS: Final = 3_600
SHORTEST_WAIT_SECONDS: Final = 300
"""The controller reconciles every five minutes: a shorter wait could not be kept."""
MAX_COST_USD: Final = 1_000_000
MAX_DEADLINE_SECONDS: Final = 365 * DAY_SECONDS
DEFAULT_RESTART_SECONDS: Final = 720
"""Start-up (AWS measures 2 to 3 minutes), the end of the job before, and the loading of a large checkpoint."""
MAX_RESTART_SECONDS: Final = DAY_SECONDS
MAX_VOLUME_GB: Final = 16_384
MAX_EBS_GB: Final = 65_536
DEFAULT_EBS_GB: Final = 100


class EbsLimits(NamedTuple):
    """What EBS takes of a volume type.

    Attributes:
        size_gb: Lowest and highest size, GiB.
        iops: Lowest and highest provisioned IOPS; None where there are none to provision.
        iops_per_gb: The most IOPS for each GiB.

    Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateVolume.html
    """

    size_gb: tuple[int, int]
    iops: tuple[int, int] | None = None
    iops_per_gb: int = 0


EBS_LIMITS: Final[Mapping[str, EbsLimits]] = {
    "gp3": EbsLimits((1, 65_536), (3_000, 80_000), 500),
    "gp2": EbsLimits((1, 16_384)),
    "io2": EbsLimits((4, 65_536), (100, 256_000), 1_000),
    "io1": EbsLimits((4, 16_384), (100, 64_000), 50),
    "st1": EbsLimits((125, 16_384)),
    "sc1": EbsLimits((125, 16_384)),
}


GP3_IOPS_PER_THROUGHPUT: Final = 4
"""Each MiB/s of gp3 beyond the first 125 asks for 4 IOPS: "Amazon EBS General Purpose SSD volumes"."""
MAX_HYPERPARAMETERS: Final = 100
MAX_ENVIRONMENT: Final = 100
MAX_CHANNELS: Final = 20
MAX_METRICS: Final = 40
MAX_METRIC_NAME: Final = 100
"""SageMaker takes 255; what a job says of itself is read with names of at most 100."""
MAX_METRIC_PATTERN: Final = 500
METRICS_VARIABLE: Final = "SPOTKEEP_METRICS"
"""The environment variables in which the job finds them: this name, an underscore and a number from 1."""
MAX_VARIABLE: Final = 512
MAX_METRICS_VARIABLES: Final = 20
MAX_TAGS: Final = 50
MAX_COMMAND_WORDS: Final = 99
"""SageMaker takes 100 container arguments; the first one is the `--` in front of the command."""
MAX_REQUIREMENTS: Final = 40
"""Two words each of the 100 that SageMaker takes as the container's entry point, beside Spotkeep's own."""
MAX_RUN_ID_LENGTH: Final = 52
MAX_NAME_LENGTH: Final = 43
"""Leaves room for the `-` and 8 hex digits that make a run id of a name."""
RESERVED_CHANNELS: Final = ("spotkeep", "source", "spotkeep-parameters")


RESERVED_VARIABLES: Final = (
    "SPOTKEEP_RUN",
    "SPOTKEEP_ATTEMPT",
    "SPOTKEEP_LAUNCH",
    "SPOTKEEP_RUN_INDEX",
    "SPOTKEEP_RUN_COUNT",
    "SPOTKEEP_SOURCE_GIT_URL",
    "SPOTKEEP_SOURCE_GIT_COMMIT",
    "SPOTKEEP_SOURCE_SHA256",
    "SPOTKEEP_CHECKPOINT_DIR",
    "SPOTKEEP_EVENTS",
    "SPOTKEEP_PAUSE_AT_STEP",
    "SAGEMAKER_BASE_DIR",
    "TRAINING_JOB_NAME",
    "TRAINING_JOB_ARN",
)


RESERVED_VARIABLE_PREFIXES: Final = ("SM_", f"{METRICS_VARIABLE}_")
RESERVED_TAG_PREFIXES: Final = ("aws:", "spotkeep:")
RUN_ID_HEX_DIGITS: Final = 8

MLFLOW_ARN: Final = r"arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:[0-9]{12}:mlflow-(tracking-server|app)/[A-Za-z0-9-]+"
"""The ARN of a tracking server or an app of SageMaker's MLflow.

Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_AIMlflowConfig.html (MlflowResourceArn)
"""
