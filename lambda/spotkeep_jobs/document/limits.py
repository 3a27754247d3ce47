"""What AWS and Spotkeep take at most, where several modules ask. A limit of one field alone stands with the field.

AWS's own limits where they are tighter than botocore's client-side ones.

Sources:
    https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateTrainingJob.html
    https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_StoppingCondition.html
"""

from __future__ import annotations

from typing import Final

DAY_SECONDS: Final = 86_400
MAX_WAIT_SECONDS: Final = 30 * DAY_SECONDS
"""SageMaker ends any training job after 30 days in total, so a longer wait could never be used."""
MAX_KEEP_ALIVE_SECONDS: Final = 3_600
NO_CHECKPOINTS_SPOT_SECONDS: Final = 3_600
MAX_DEADLINE_SECONDS: Final = 365 * DAY_SECONDS
DEFAULT_RESTART_SECONDS: Final = 720
"""Start-up (AWS measures 2 to 3 minutes), the end of the job before, and the loading of a large checkpoint."""
MAX_FALLBACKS: Final = 10
MAX_RUNS: Final = 15
"""They are recorded in one DynamoDB transaction, of at most 100 items, and created one by one within a minute."""
MAX_PRIORITY: Final = 9_999
"""The highest of a service job: https://docs.aws.amazon.com/batch/latest/APIReference/API_SubmitServiceJob.html"""
MAX_HYPERPARAMETERS: Final = 100
MAX_VARIABLE: Final = 512
MAX_COMMAND_WORDS: Final = 99
MAX_WORD: Final = 256
"""The most characters of a word of a command, and of a requirement."""
MAX_BLOCK: Final = 25_000
"""The most characters of a block of lines for bash."""
MAX_REQUIREMENTS: Final = 40
LONGEST_CHOICE_SECONDS: Final = 50
"""How long the function `search` may take to choose trials; the launcher that waits for it has a minute."""
MAX_RUN_ID_LENGTH: Final = 52
RUN_ID_HEX_DIGITS: Final = 8
MLFLOW_ARN: Final = r"arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:[0-9]{12}:mlflow-(tracking-server|app)/[A-Za-z0-9-]{1,256}"
"""The ARN of a tracking server or an app of SageMaker's MLflow.

Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_AIMlflowConfig.html (MlflowResourceArn)
"""
