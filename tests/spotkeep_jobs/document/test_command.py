"""Jobs without a command: which image runs by itself, what it may be given, and what is named as missing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
from spotkeep_jobs.document.framework_images import ALGORITHM_IMAGES
from spotkeep_jobs.document.image import saves_checkpoints
from spotkeep_jobs.document.request import Validation, validate

DATA = {"train": {"uri": "s3://data/train/", "content_type": "text/csv"}}
MINE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1"


def judged(**fields: Any) -> Validation:
    return validate(
        {"name": "first", **fields},
        defaults=DeploymentDefaults(image="default:1", instance_type="ml.m5.xlarge", region="us-east-1"),
    )


def refused_fields(**fields: Any) -> list[str]:
    return [problem.field for problem in judged(**fields).problems]


def test_a_command_or_an_image_that_runs_by_itself_is_required() -> None:
    [problem] = judged().problems
    assert (problem.field, problem.problem) == ("command", "is required")
    assert judged(image=MINE).accepted().image == MINE


def test_a_command_that_is_missing_is_named_beside_a_field_that_cannot_be_read() -> None:
    assert sorted(refused_fields(max_run="-1")) == ["command", "max_run"]
    assert refused_fields(command=[], max_run="-1") == ["command", "max_run"]


def test_the_deployments_default_image_is_for_commands_alone() -> None:
    assert judged(command="python a.py").accepted().image == "default:1"
    assert refused_fields(instance_type="ml.m5.xlarge") == ["command"]


@pytest.mark.parametrize(
    ("algorithm", "name", "image"),
    [
        ("xgboost-1.7", "xgboost-1.7-1", "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1"),
        ("blazingtext", "blazingtext-1", "811284229777.dkr.ecr.us-east-1.amazonaws.com/blazingtext:1"),
        ("linear-learner", "linear-learner-1", "382416733822.dkr.ecr.us-east-1.amazonaws.com/linear-learner:1"),
    ],
)
def test_an_algorithm_is_the_newest_image_that_its_name_means(algorithm: str, name: str, image: str) -> None:
    request = judged(algorithm=algorithm, channels=DATA, max_run="30m").accepted()
    assert (request.algorithm, request.image) == (name, image)


def test_an_algorithm_that_the_table_lacks_is_refused_with_those_it_has() -> None:
    [problem] = judged(algorithm="xgbost", channels=DATA).problems
    assert problem.field == "algorithm"
    assert "linear-learner-1" in problem.fix


@given(algorithm=st.sampled_from(sorted(ALGORITHM_IMAGES)), capacity=st.sampled_from(["spot", "on-demand"]))
def test_what_was_recorded_reads_the_same_again(algorithm: str, capacity: str) -> None:
    validation = judged(algorithm=algorithm, channels=DATA, max_run="30m", capacity=capacity)
    request = validation.accepted()
    assert request.checkpoints == saves_checkpoints(algorithm)
    assert judged(**{**request.as_document(), "name": "first"}).accepted() == request


class TestCheckpointsOfAlgorithms:
    def test_one_that_saves_none_is_limited_on_spot_to_an_hour(self) -> None:
        request = judged(algorithm="kmeans", channels=DATA, max_run="50m").accepted()
        assert (request.checkpoints, request.max_wait) == (False, 3_600)
        assert refused_fields(algorithm="kmeans", channels=DATA, max_run="2h") == ["max_run"]
        assert refused_fields(algorithm="kmeans", channels=DATA, max_run="50m", max_wait="2h") == ["max_wait"]
        assert judged(algorithm="kmeans", channels=DATA, max_run="2h", capacity="on-demand").problems == ()

    def test_one_that_saves_them_is_not(self) -> None:
        assert judged(algorithm="xgboost", channels=DATA, max_run="20h").accepted().checkpoints

    def test_asking_for_them_where_there_are_none_is_refused(self) -> None:
        assert refused_fields(algorithm="pca", channels=DATA, max_run="30m", checkpoints=True) == ["checkpoints"]


def test_every_field_that_only_the_runner_gives_an_effect_is_refused_at_once() -> None:
    assert refused_fields(
        image=MINE,
        source={"git": "https://example.com/a.git", "commit": "0" * 40},
        install=["timm"],
        setup="make",
        arguments="none",
        pause_at_step=1000,
        stuck="30m",
        checkpoint_stale="1h",
        metrics={"loss": None, "accuracy": {"pattern": "acc=([0-9.]+)", "goal": "maximize"}, "error": "e=([0-9.]+)"},
        notify=["completed", "checkpoint-stale"],
    ) == [
        "source", "install", "setup", "arguments", "pause_at_step", "stuck", "checkpoint_stale", "metrics.loss",
        "metrics.accuracy", "notify",
    ]  # fmt: skip


def test_an_algorithm_takes_no_command_image_framework_or_metrics_and_needs_data() -> None:
    assert refused_fields(
        algorithm="xgboost", command="python a.py", image=MINE, framework="xgboost", metrics={"e": "e=([0-9.]+)"}
    ) == ["framework", "command", "framework", "image", "channels", "metrics"]


def test_it_is_sagemakers_alone() -> None:
    fields = {"backend": "ec2", "instance_type": "m5.large"}
    assert {"command", "algorithm"} <= set(refused_fields(**fields, algorithm="xgboost", channels=DATA))
    assert "channels.train.content_type" in refused_fields(**fields, command="python a.py", channels=DATA)


def test_what_is_missing_is_named() -> None:
    [missing] = judged(algorithm="xgboost", channels=DATA).warnings
    assert "no save on a notice, no steps and progress, no metrics" in missing
    [_, own_doing] = judged(image=MINE).warnings
    assert "/opt/ml/checkpoints" in own_doing


def test_an_algorithm_for_gpus_on_a_cpu_is_warned_of() -> None:
    assert any(
        "GPUs alone; ml.m5.xlarge has none" in w
        for w in judged(algorithm="seq2seq", channels=DATA, max_run="30m").warnings
    )
    warnings = judged(algorithm="seq2seq", channels=DATA, max_run="30m", instance_type="ml.g5.xlarge").warnings
    assert not any("GPUs alone" in warning for warning in warnings)


def test_no_region_without_an_image_is_accepted() -> None:
    defaults = DeploymentDefaults(instance_type="ml.m5.xlarge", region="me-central-1")
    [problem] = validate(
        {"name": "first", "algorithm": "lda", "channels": DATA, "max_run": "30m"}, defaults=defaults
    ).problems
    assert (problem.field, problem.problem) == ("algorithm", "has no image in me-central-1")
