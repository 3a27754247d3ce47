"""What a run may read and write is judged before anything is paid, in IAM's own terms."""

from __future__ import annotations

from typing import Any

import pytest

from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
from spotkeep_jobs.document.request import Validation, validate
from spotkeep_jobs.errors import Problem

ON_SAGEMAKER = {"name": "first", "command": "python train.py"}
ON_EC2 = {**ON_SAGEMAKER, "backend": "ec2"}
LOCATIONS = ("s3://lab-data/", "s3://shared-data/cifar10/")


def judged(document: dict[str, Any] = ON_SAGEMAKER, *, locations: Any = LOCATIONS, **fields: Any) -> Validation:
    defaults = DeploymentDefaults(
        image="some/image:1",
        instance_type="ml.m5.xlarge",
        checkpoint_bucket="checkpoints",
        data_locations=locations,
        fleet_instance_types=("m5.xlarge",),
    )
    return validate({**document, **fields}, defaults=defaults)


def the_problem(**fields: Any) -> Problem:
    (problem,) = judged(**fields).problems
    return problem


@pytest.mark.parametrize("document", [ON_SAGEMAKER, ON_EC2])
@pytest.mark.parametrize(
    "uri",
    ["s3://lab-data", "s3://lab-data/any/where", "s3://shared-data/cifar10/", "s3://checkpoints/runs/old/output/"],
)
def test_data_of_the_deployment_and_of_its_setting_is_read_on_both_backends(document: dict[str, Any], uri: str) -> None:
    assert judged(document, channels={"train": uri}).accepted()


@pytest.mark.parametrize("document", [ON_SAGEMAKER, ON_EC2])
@pytest.mark.parametrize(
    "uri",
    [
        "s3://other/",
        "s3://lab-data-2/",
        "s3://shared-data/",
        "s3://shared-data/cifar100/",
        "s3://checkpoints/data/",
        "s3://checkpoints/specs/other/",
    ],
)
def test_data_elsewhere_is_refused_on_both_backends_and_the_setting_is_named(
    document: dict[str, Any], uri: str
) -> None:
    (problem,) = judged(document, channels={"train": uri}).problems
    assert problem.field == "channels.train.uri"
    assert "s3://checkpoints/runs/, s3://lab-data/, s3://shared-data/cifar10/" in problem.problem
    assert f"Name {uri} in the deployment's setting data_locations" in problem.fix


@pytest.mark.parametrize("uri", ["s3://shared-data/cifar10", "s3://checkpoints/runs"])
def test_a_listing_of_more_than_a_folder_is_refused_with_the_slash_that_it_lacks(uri: str) -> None:
    assert f"Write {uri}/" in the_problem(channels={"train": uri}).fix


def pinned(uri: str) -> dict[str, str]:
    return {"uri": uri, "sha256": "0" * 64}


def test_an_object_is_named_by_its_folder() -> None:
    assert "Name s3://code/team/ in" in the_problem(source=pinned("s3://code/team/train.tar.gz")).fix
    assert "Name s3://code/ in" in the_problem(source=pinned("s3://code/train.tar.gz")).fix
    assert judged(source=pinned("s3://lab-data/train.tar.gz"), channels={"train": "s3://lab-data/x.csv"}).accepted()


def test_all_that_cannot_be_read_or_written_is_reported_at_once_with_all_else_that_is_wrong() -> None:
    problems = judged(
        keep_alive="10m",
        source=pinned("s3://code/train.zip"),
        channels={"train": "s3://one/", "test": "s3://two/", "good": "s3://lab-data/"},
        checkpoint_prefix="s3://other/model/",
    ).problems
    fields = ["keep_alive", "source", "channels.train.uri", "channels.test.uri", "checkpoint_prefix"]
    assert [problem.field for problem in problems] == fields


def test_of_many_locations_a_few_are_named() -> None:
    many = tuple(f"s3://data-{number}/" for number in range(50))
    problem = the_problem(locations=many, channels={"train": "s3://other/"}).problem
    assert problem.endswith("s3://data-0/, s3://data-1/ and 48 more")


def test_where_the_deployment_is_not_known_nothing_is_said_of_its_permissions() -> None:
    assert judged(locations=None, channels={"train": "s3://other/"}).accepted()


@pytest.mark.parametrize("document", [ON_SAGEMAKER, ON_EC2])
@pytest.mark.parametrize(
    "prefix",
    [
        "s3://lab-data/mine/",
        "s3://other/runs/old/checkpoints/",
        "s3://checkpoints/runs/",
        "s3://checkpoints/runs/a/output/",
        "s3://checkpoints/runs/a/checkpoints/b/",
    ],
)
def test_checkpoints_go_where_both_roles_write_them_and_so_no_prefix_lies_inside_another(
    document: dict[str, Any], prefix: str
) -> None:
    (problem,) = judged(document, checkpoint_prefix=prefix).problems
    assert problem.field == "checkpoint_prefix"
    assert "s3://checkpoints/runs/<run>/checkpoints/" in problem.fix
    good = judged(document, checkpoint_prefix="s3://checkpoints/runs/old/checkpoints")
    assert good.accepted().checkpoint_prefix == "s3://checkpoints/runs/old/checkpoints/"
