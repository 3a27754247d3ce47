"""Which image a job gets that names none, and when a named one does not fit its instance types."""

from __future__ import annotations

from typing import Any

import botocore.session
import pytest

from spotkeep_jobs.document.deployment_defaults import DeploymentDefaults
from spotkeep_jobs.document.training_image import processor_of
from spotkeep_jobs.document.validation import Validation, validate

REGISTRY = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
DEFAULT = f"{REGISTRY}/pytorch-training:2.8.0-{{processor}}-py312"
ON_CPU = f"{REGISTRY}/pytorch-training:2.8.0-cpu-py312"
ON_GPU = f"{REGISTRY}/pytorch-training:2.8.0-gpu-py312"


def judged(default: str | None = DEFAULT, **fields: Any) -> Validation:
    return validate(
        {"name": "first", "command": "python train.py", **fields},
        defaults=DeploymentDefaults(image=default, instance_type="ml.m5.xlarge", checkpoint_bucket="checkpoints"),
    )


@pytest.mark.parametrize(
    ("fields", "image"),
    [
        ({}, ON_CPU),
        ({"instance_type": "ml.c7i.large"}, ON_CPU),
        ({"instance_type": "ml.g5.2xlarge"}, ON_GPU),
        ({"instance_type": "ml.p6-b200.48xlarge"}, ON_GPU),
        # The image for GPUs starts without one too; that for CPUs would leave a GPU unused.
        ({"instance_types": ["ml.m5.xlarge", "ml.g4dn.xlarge"], "capacity": "auto"}, ON_GPU),
        ({"ladder": [{"instance_type": "ml.g5.xlarge"}]}, ON_GPU),
        ({"instance_type": "ml.g5.xlarge", "image": f"{REGISTRY}/mine:1"}, f"{REGISTRY}/mine:1"),
    ],
)
def test_the_default_image_follows_the_instance_types(fields: dict[str, Any], image: str) -> None:
    validation = judged(**fields)
    assert validation.accepted().image == image
    assert validation.warnings == ()


@pytest.mark.parametrize("instance_type", ["ml.trn1.2xlarge", "ml.trn2.48xlarge", "ml.p6e-gb200.36xlarge"])
def test_a_type_that_no_default_image_fits_needs_an_image_of_its_own(instance_type: str) -> None:
    [problem] = judged(instance_type=instance_type).problems
    assert problem.field == "image"
    assert instance_type in problem.problem
    assert judged(instance_type=instance_type, image=f"{REGISTRY}/mine:1").problems == ()


def test_a_default_image_without_a_place_for_the_processor_is_for_every_type() -> None:
    assert judged(f"{REGISTRY}/ours:1", instance_type="ml.trn1.2xlarge").accepted().image == f"{REGISTRY}/ours:1"


def test_a_deployment_without_a_default_image_needs_one_in_the_job() -> None:
    [problem] = judged(None).problems
    assert (problem.field, problem.problem) == ("image", "is required: this deployment has no default image")


@pytest.mark.parametrize(
    ("image", "types", "says"),
    [
        (ON_CPU, ["ml.g5.2xlarge"], "ml.g5.2xlarge has NVIDIA GPUs"),
        (ON_CPU, ["ml.m5.xlarge", "ml.g5.2xlarge"], "ml.g5.2xlarge has NVIDIA GPUs"),
        (ON_GPU, ["ml.m5.xlarge"], "ml.m5.xlarge has CPUs only"),
        ("me/train:cuda12", ["ml.m5.xlarge"], "ml.m5.xlarge has CPUs only"),
        (f"{REGISTRY}/pytorch-training-neuronx:2.8", ["ml.g5.xlarge"], "ml.g5.xlarge has NVIDIA GPUs"),
        (ON_GPU, ["ml.trn1.2xlarge"], "ml.trn1.2xlarge has AWS Neuron devices"),
        (f"{REGISTRY}/pytorch-training-arm64:2.8-gpu-py312", ["ml.g5.xlarge"], "ml.g5.xlarge has x86-64 processors"),
        (f"{REGISTRY}/mine:1-x86_64", ["ml.p6e-gb200.36xlarge"], "ml.p6e-gb200.36xlarge has Arm processors"),
    ],
)
def test_an_image_that_by_its_name_does_not_fit_is_warned_of(image: str, types: list[str], says: str) -> None:
    validation = judged(image=image, instance_types=types, capacity="auto")
    assert validation.accepted().image == image
    [warning] = [each for each in validation.warnings if "Amazon ECR" not in each]
    assert image in warning
    assert says in warning


@pytest.mark.parametrize(
    ("image", "types"),
    [
        (ON_GPU, ["ml.m5.xlarge", "ml.g5.2xlarge"]),
        (f"{REGISTRY}/resnet:v2", ["ml.g5.2xlarge"]),
        (f"{REGISTRY}/train@sha256:{'cpu0' * 16}", ["ml.g5.2xlarge"]),
        (f"{REGISTRY}/gpucpu:1", ["ml.m5.xlarge"]),
        (f"{REGISTRY}/cpu-and-gpu:1", ["ml.m5.xlarge"]),
    ],
)
def test_an_image_whose_name_says_nothing_else_is_taken_as_it_is(image: str, types: list[str]) -> None:
    assert judged(image=image, instance_types=types, capacity="auto").warnings == ()


def test_a_misfit_of_the_deployments_own_image_is_warned_of_too() -> None:
    [warning] = judged(ON_CPU, instance_type="ml.g5.xlarge").warnings
    assert "ml.g5.xlarge has NVIDIA GPUs" in warning


def test_every_type_that_sagemaker_trains_on_is_known() -> None:
    model = botocore.session.get_session().get_service_model("sagemaker")
    types = model.shape_for("TrainingInstanceType").enum  # type: ignore[attr-defined]
    families: dict[str, set[str]] = {}
    for name in types:
        families.setdefault(processor_of(name), set()).add(name.split(".")[1])
    assert families["neuron"] == {"trn1", "trn1n", "trn2"}
    assert {family[0] for family in families["gpu"]} == {"g", "p"}
    assert {family[0] for family in families["cpu"]} == {"c", "m", "r", "t"}
