"""What a job depends on of AWS's built-in algorithms: which save checkpoints, and which train on GPUs alone. Data only.

Sources:
    https://docs.aws.amazon.com/sagemaker/latest/dg/model-checkpoints.html (Frameworks and algorithms: image
    classification, object detection, semantic segmentation, XGBoost 0.90-1 or later)
    https://docs.aws.amazon.com/sagemaker/latest/dg/common-info-all-im-models.html (the instance classes)
"""

from __future__ import annotations

import re
from typing import Final

_SAVING: Final = frozenset({"image-classification", "object-detection", "semantic-segmentation", "xgboost"})
_ON_GPUS: Final = frozenset({"image-classification", "object-detection", "semantic-segmentation", "seq2seq"})
_VERSION: Final = re.compile(r"-(?=\d)")


def saves_checkpoints(algorithm: str) -> bool:
    """Return whether AWS documents that an algorithm saves checkpoints and goes on from them.

    Args:
        algorithm: its name in the table of images: `xgboost-1.7-1`.
    """
    return _family(algorithm) in _SAVING


def needs_gpus(algorithm: str) -> bool:
    """Return whether AWS documents that an algorithm trains on NVIDIA GPUs alone.

    Args:
        algorithm: its name in the table of images: `seq2seq-1`.
    """
    return _family(algorithm) in _ON_GPUS


def _family(algorithm: str) -> str:
    return _VERSION.split(algorithm, maxsplit=1)[0]
