"""Every example's job file is one that the launcher would accept, with nothing to warn about."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotkeep_cli.launching.job_file import read_job_file
from spotkeep_cli.launching.preparation import prepare
from spotkeep_constructs.settings import Settings
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
from spotkeep_jobs.document.request import validate

JOB_FILES = sorted((Path(__file__).parents[2] / "examples").glob("*/job.yaml"))
DEFAULTS = DeploymentDefaults(
    image=Settings.model_fields["default_image"]
    .default.replace("{account}", 12 * "1")
    .replace("{region}", "eu-west-1"),
    instance_type="ml.m5.xlarge",
    checkpoint_bucket="checkpoints",
    max_run_limit_seconds=432_000,
    fleet_instance_types=("m5.large",),
)


def test_there_are_examples() -> None:
    assert {path.parent.name for path in JOB_FILES} >= {"digits", "keras-cifar10", "pytorch-digits", "pytorch-resnet"}


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: path.parent.name)
def test_an_example_would_be_launched(path: Path) -> None:
    prepared = prepare(read_job_file(path), deployment=None, new_token=lambda: "token")
    validation = validate(prepared.payload, defaults=DEFAULTS)
    assert validation.problems == ()
    assert validation.warnings == ()


def test_the_example_for_gpus_gets_an_image_for_gpus() -> None:
    [path] = [each for each in JOB_FILES if each.parent.name == "pytorch-resnet"]
    prepared = prepare(read_job_file(path), deployment=None, new_token=lambda: "token")
    assert "-gpu-" in str(validate(prepared.payload, defaults=DEFAULTS).accepted().image)
