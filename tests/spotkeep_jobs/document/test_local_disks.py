"""Types with disks of their own: what the launch says of a volume that they do not get."""

from __future__ import annotations

from typing import Any

import botocore.session
import pytest

from spotkeep_jobs.document.deployment_defaults import DeploymentDefaults
from spotkeep_jobs.document.local_disks import has_local_disks, larger_disks, local_disks_gb
from spotkeep_jobs.document.validation import Validation, validate

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1"
NOT_IN_THE_TABLE = {"ml.p6e-gb200.36xlarge"}


def judged(**fields: Any) -> Validation:
    return validate(
        {"name": "first", "command": "python train.py", "image": IMAGE, **fields},
        defaults=DeploymentDefaults(fleet_instance_types=("m5.xlarge",)),
    )


@pytest.mark.parametrize(
    ("instance_type", "expected"),
    [
        ("ml.m5.xlarge", False),
        ("ml.p3.2xlarge", False),
        ("ml.m7i-flex.large", False),
        ("ml.g4dn.xlarge", True),
        ("ml.p3dn.24xlarge", True),
        ("ml.p4de.24xlarge", True),
        ("ml.p6e-gb200.36xlarge", True),
        ("ml.g6e.xlarge", True),
        ("ml.r5d.large", True),
        ("ml.trn1.2xlarge", True),
    ],
)
def test_types_with_local_disks_are_known(instance_type: str, expected: bool) -> None:
    assert has_local_disks(instance_type) is expected


def test_the_table_has_every_type_that_sagemaker_trains_on_and_no_other() -> None:
    model = botocore.session.get_session().get_service_model("sagemaker")
    types = model.shape_for("TrainingInstanceType").enum  # type: ignore[attr-defined]
    own = {each for each in types if has_local_disks(each)}
    assert {each for each in types if local_disks_gb(each) is not None} == own - NOT_IN_THE_TABLE


@pytest.mark.parametrize(
    ("instance_type", "gb", "fix"),
    [
        ("ml.g5.xlarge", 251, "Choose ml.g5.2xlarge, or give 250 at most"),
        ("ml.g5.2xlarge", 3_000, "Choose ml.g5.12xlarge, or give 450 at most"),
        ("ml.p4d.24xlarge", 8_001, "Choose a type without disks of its own, or give 8,000 at most"),
    ],
)
def test_more_than_its_disks_hold_is_refused_with_the_type_that_has_it(instance_type: str, gb: int, fix: str) -> None:
    [problem] = judged(instance_type=instance_type, volume_size_gb=gb).problems
    assert (problem.field, problem.found) == ("volume_size_gb", f"{gb:,}")
    assert instance_type in problem.problem
    assert fix in problem.fix


def test_every_type_of_a_ladder_is_asked_and_each_is_named_once() -> None:
    ladder = [
        {"capacity": "spot", "instance_types": ["ml.g5.xlarge"]},
        {"capacity": "on-demand", "instance_types": ["ml.g5.xlarge", "ml.m5.xlarge", "ml.g4dn.xlarge"]},
    ]
    problems = judged(ladder=ladder, volume_size_gb=300).problems
    assert [problem.problem.split()[3] for problem in problems] == ["ml.g5.xlarge", "ml.g4dn.xlarge"]


def test_a_volume_that_is_asked_for_and_not_given_is_warned_of() -> None:
    [warning] = judged(instance_type="ml.g5.xlarge", volume_size_gb=100).warnings
    assert "volume_size_gb 100 has no effect on ml.g5.xlarge" in warning
    assert "250 GB" in warning
    [unknown] = judged(instance_type="ml.p6e-gb200.36xlarge", volume_size_gb=100).warnings
    assert "has no effect" in unknown
    for fields in ({"instance_type": "ml.g5.xlarge"}, {"instance_type": "ml.m5.xlarge", "volume_size_gb": 100}):
        assert judged(**fields).warnings == ()


def test_on_ec2_a_volume_is_a_volume_whatever_disks_there_are() -> None:
    on_ec2 = {"backend": "ec2", "instance_types": ["g5.xlarge", "g5.2xlarge"], "volume": {"size_gb": 500}}
    assert judged(**on_ec2).problems == ()


def test_the_next_larger_disks_are_of_the_same_family() -> None:
    assert larger_disks("ml.g5.xlarge", than_gb=1) == "ml.g5.xlarge"
    assert larger_disks("ml.g5.xlarge", than_gb=7_601) is None
    assert larger_disks("ml.m5.xlarge", than_gb=1) is None
