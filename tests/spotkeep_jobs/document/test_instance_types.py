"""The types that SageMaker trains on are those of botocore. Another name is refused with near ones."""

from __future__ import annotations

from datetime import UTC, datetime

import botocore.session
import pytest

from spotkeep_jobs.document.deployment_facts import DeploymentDefaults, SpendingLimits
from spotkeep_jobs.document.instance_types import TRAINING_TYPES, nearest_types, several_gpus
from spotkeep_jobs.document.request import validate
from spotkeep_jobs.document.spending import cost_problems
from spotkeep_jobs.judge import judge

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def test_the_table_is_the_one_of_botocore() -> None:
    model = botocore.session.get_session().get_service_model("sagemaker")
    shape = model.shape_for("TrainingInstanceType")
    assert sorted(TRAINING_TYPES) == sorted(shape.metadata["enum"])


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("ml.m5.huge", "ml.m5.large"),
        ("ml.g5.xlarg", "ml.g5.xlarge"),
        ("ml.m5.8xlarge", "ml.m5.xlarge"),
        ("ml.g55.xlarge", "ml.g5.xlarge"),
    ],
)
def test_a_type_that_does_not_exist_has_near_names(name: str, near: str) -> None:
    assert near in nearest_types(name)


@pytest.mark.parametrize("fields", [{"instance_type": "ml.m5.huge"}, {"instance_types": ["ml.m5.huge"]}])
def test_it_is_refused_with_them_unless_the_deployment_knows_its_price(fields: dict[str, object]) -> None:
    document = {
        "name": "digits",
        "command": "python train.py",
        "image": "1.dkr.ecr.us-east-1.amazonaws.com/a",
        **fields,
    }
    judged = judge(document, None, now=NOW)
    [problem] = judged.problems
    assert (problem.field, problem.found) == ("instance_types", "'ml.m5.huge'")
    assert "ml.m5.large" in problem.fix
    known = DeploymentDefaults(prices={"ml.m5.huge": 1.0}, checkpoint_bucket="a-bucket")
    assert judge(document, known, now=NOW).problems == ()
    assert judge({**document, **dict.fromkeys(fields), "instance_type": "ml.m5.large"}, None, now=NOW).problems == ()


def test_a_type_that_does_not_exist_is_refused_for_itself_and_not_for_its_price() -> None:
    request = validate({"name": "digits", "command": "python train.py", "instance_type": "ml.m5.huge"}).draft
    assert request is not None
    limits = SpendingLimits(run_cost_limit_usd=1.0)
    assert list(cost_problems(request, limits=limits, prices={}, now=NOW)) == []


def test_a_fleet_takes_types_of_ec2() -> None:
    document = {"name": "digits", "command": "python train.py", "backend": "ec2", "instance_types": ["m7a.xlarge"]}
    assert judge(document, None, now=NOW).problems == ()


def test_the_gpus_of_a_type_with_several_are_known() -> None:
    assert (several_gpus("ml.g5.12xlarge"), several_gpus("p4d.24xlarge"), several_gpus("ml.g5.xlarge")) == (4, 8, None)
    assert all(several_gpus(each) for each in TRAINING_TYPES if each.startswith(("ml.p4", "ml.p6")))
    assert [several_gpus(f"ml.g7.{size}xlarge") for size in (8, 12, 24, 48)] == [None, 2, 4, 8]


def test_each_family_with_gpus_that_sagemaker_trains_on_has_a_type_with_several() -> None:
    """NVIDIA's families begin with g or p. A new one of botocore fails here until its figures are in the table."""
    families = {each.split(".")[1] for each in TRAINING_TYPES if each[3] in "gp"}
    assert {family for family in families if not any(map(several_gpus, _types_of(family)))} == set()


def _types_of(family: str) -> list[str]:
    return [each for each in TRAINING_TYPES if each.startswith(f"ml.{family}.")]


@pytest.mark.parametrize("sweep", [{}, {"sweep": {"parameters": {"lr": [0.1, 0.2]}, "search": "grid"}}])
def test_max_cost_without_a_deployment_is_a_warning(sweep: dict[str, object]) -> None:
    document = {
        "name": "digits",
        "command": "python train.py",
        "instance_type": "ml.g6e.xlarge",
        "max_cost": 20,
        "hyperparameters": {"lr": "{lr}"} if sweep else {},
        **sweep,
    }
    judged = judge(document, None, now=NOW)
    assert judged.problems == ()
    assert any("max_cost 20.00 USD is not judged without a deployment" in warning for warning in judged.warnings)
    [problem] = judge(document, DeploymentDefaults(image="a/b:1", checkpoint_bucket="a"), now=NOW).problems[:1]
    assert problem.field == "max_cost"
