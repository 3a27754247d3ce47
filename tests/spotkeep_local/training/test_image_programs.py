"""Which program stands for an image's own entry point."""

from __future__ import annotations

from typing import Any

import pytest

from spotkeep_local.service_base.aws_service import ValidationError
from spotkeep_local.training.image_programs import named_program, program_of

PROGRAMS = {"sagemaker-xgboost:1.7-1": ("/opt/train", "--quiet"), "mine:1": ("mine.sh",)}
IN_US = "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"


@pytest.mark.parametrize(
    ("algorithm", "command"),
    [
        ({"TrainingImage": IN_US}, ("/opt/train", "--quiet", "train")),
        ({"TrainingImage": "mine:1"}, ("mine.sh", "train")),
        ({"TrainingImage": "mine:1", "ContainerArguments": ["serve"]}, ("mine.sh", "serve")),
        ({"TrainingImage": "mine:1", "ContainerEntrypoint": ["a"], "ContainerArguments": ["b"]}, ("a", "b")),
        ({"TrainingImage": "mine:1", "ContainerEntrypoint": ["a"]}, ("a",)),
        ({"TrainingImage": "mine:2"}, None),
        ({}, None),
    ],
)
def test_an_entry_point_of_the_request_wins_then_the_program_of_the_image(
    algorithm: dict[str, Any], command: tuple[str, ...] | None
) -> None:
    assert program_of({"AlgorithmSpecification": algorithm}, programs=PROGRAMS) == command


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"program": ["a"]}, "image must be"),
        ({"image": "", "program": ["a"]}, "image must be"),
        ({"image": "a", "program": []}, "program must be"),
        ({"image": "a", "program": "words"}, "program must be"),
        ({"image": "a", "program": [1]}, "program must be"),
    ],
)
def test_an_image_or_a_program_that_is_missing_is_refused(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        named_program(asked)
