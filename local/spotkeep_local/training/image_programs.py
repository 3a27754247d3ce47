"""Which program of this machine stands for an image's own entry point. Pure.

SageMaker runs `docker run <image> train` for a job without ContainerEntrypoint. Here are no images: a program that was
named for one runs with the argument `train`, on the same `/opt/ml`.
Source: https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-training-algo-dockerfile.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotkeep_local.service_base.aws_service import ValidationError

Programs = Mapping[str, tuple[str, ...]]
"""The words of a program by image: whole, or without its registry: `sagemaker-xgboost:1.7-1`."""


def program_of(request: Mapping[str, Any], *, programs: Programs) -> tuple[str, ...] | None:
    """Return the command line that a job runs: its own, or that of its image; None where neither is known.

    Args:
        request: A CreateTrainingJob request.
        programs: What stands for images.
    """
    algorithm = request["AlgorithmSpecification"]
    arguments = algorithm.get("ContainerArguments")
    if "ContainerEntrypoint" in algorithm:
        return (*algorithm["ContainerEntrypoint"], *(arguments or ()))
    image = algorithm.get("TrainingImage", "")
    program = programs.get(image) or programs.get(image.partition("/")[2])
    return None if program is None else (*program, *(arguments or ("train",)))


def named_program(request: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Read an image and its program.

    Raises:
        ValidationError: One of the two is missing.
    """
    image, program = request.get("image"), request.get("program")
    if not isinstance(image, str) or not image:
        raise ValidationError(f"image must be the name of an image, found {image!r}")
    if not isinstance(program, list) or not program or not all(isinstance(word, str) for word in program):
        raise ValidationError(f"program must be a list of words, found {program!r}")
    return image, tuple(program)
