"""Until when AWS patches its images: the table, what a launch says of it, and what `make check-dates` prints."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from spotkeep_constructs.settings import Settings
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
from spotkeep_jobs.document.framework_images import FRAMEWORK_IMAGES, PATCHED_UNTIL
from spotkeep_jobs.document.image import patch_warnings, patched_until
from spotkeep_jobs.document.request import validate

from .image_dates import WARNED_BEFORE, lines

ROOT = Path(__file__).resolve().parents[3]
AWS = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
OLD = f"{AWS}/pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-sagemaker"
NEWEST = list(PATCHED_UNTIL)[-1]
DAY = timedelta(days=1)


def test_the_table_names_images_that_are_there_and_grows_later() -> None:
    assert PATCHED_UNTIL.keys() <= FRAMEWORK_IMAGES.keys()
    assert list(PATCHED_UNTIL.values()) == sorted(PATCHED_UNTIL.values())


def test_the_default_image_is_the_one_that_is_patched_for_longest() -> None:
    default = Settings().default_image
    assert default.rpartition("/")[2] == FRAMEWORK_IMAGES[NEWEST].path


@pytest.mark.parametrize(
    ("image", "last"),
    [
        (OLD, date(2026, 8, 6)),
        (f"{AWS}/pytorch-training:2.10.0-cpu-py313", date(2027, 1, 21)),
        ("626614931356.dkr.ecr.af-south-1.amazonaws.com/pytorch-training:2.9.0-cpu-py312", date(2026, 10, 15)),
        # One's own of the same name may be patched by its owner; of others the day is not known.
        ("123456789012.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-gpu-py312", None),
        (f"{AWS}/tensorflow-training:2.19.0-gpu-py312", None),
        (f"{AWS}/pytorch-training:2.7.1-gpu-py312", None),
        ("pytorch/pytorch:2.8.0", None),
    ],
)
def test_the_day_is_known_of_aws_own_images_alone(image: str, last: date | None) -> None:
    assert patched_until(image) == last


def test_a_launch_with_an_image_that_is_patched_no_more_warns_with_the_day_and_the_newest() -> None:
    last = PATCHED_UNTIL["pytorch-2.8.0"]
    assert list(patch_warnings(OLD, today=last)) == []
    [warning] = patch_warnings(OLD, today=last + DAY)
    assert "has not patched pytorch-2.8.0 since 2026-08-06" in warning
    assert f"framework: {NEWEST}, patched until {PATCHED_UNTIL[NEWEST]}" in warning


@pytest.mark.parametrize("named", [{"image": OLD}, {"framework": "pytorch-2.8"}, {}])
def test_wherever_the_image_comes_from(named: dict[str, str]) -> None:
    defaults = DeploymentDefaults(image=OLD, instance_type="ml.g5.xlarge", region="us-east-1")
    document = {"name": "first", "command": "python train.py", **named}
    judged = [
        validate(document, defaults=defaults, now=datetime(2026, month, 1, tzinfo=UTC)).warnings for month in (8, 9)
    ]
    assert [any("has not patched" in warning for warning in warnings) for warnings in judged] == [False, True]


def test_the_check_warns_sixty_days_before_and_says_what_to_do() -> None:
    last = PATCHED_UNTIL[NEWEST]
    early, late = list(lines(last - WARNED_BEFORE - DAY)), list(lines(last - WARNED_BEFORE))
    past = list(lines(last + DAY))
    assert early[-1].endswith("good")
    assert late[-2].endswith("WARNING: 60 days left")
    assert past[-2].endswith("WARNING: past")
    assert late[-1].startswith(f"{NEWEST} is the default image")


def test_ci_prints_it() -> None:
    assert "make check-dates" in (ROOT / ".ci" / "run").read_text()
