"""A job file names secrets that its deployment lets jobs read, and a refusal shows no value in the place of a name."""

from __future__ import annotations

from typing import Any

import pytest

from spotkeep_jobs.document.command import training_spec_of
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
from spotkeep_jobs.document.request import Validation, validate
from spotkeep_jobs.errors import Problem

ARN = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:team/github-Ab12Cd"
ARN_OF_HF = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:hf-Zz99Yy"
SETTING = ("hf", ARN)
COMMIT = "0f4b7c1d2e3a49586776859403a2b1c0d9e8f7a6"
DOCUMENT = {"name": "first", "command": "python train.py"}


def judged(*, setting: tuple[str, ...] | None = SETTING, **fields: Any) -> Validation:
    defaults = DeploymentDefaults(
        image="123456789012.dkr.ecr.eu-west-1.amazonaws.com/some:1",
        instance_type="ml.m5.xlarge",
        fleet_instance_types=("m5.xlarge",),
        secrets=setting,
        region="eu-west-1",
    )
    return validate({**DOCUMENT, **fields}, defaults=defaults)


def the_problem(**fields: Any) -> Problem:
    (problem,) = judged(**fields).problems
    return problem


@pytest.mark.parametrize("backend", ["sagemaker", "ec2"])
@pytest.mark.parametrize("secret", ["hf", "hf:token::", ARN_OF_HF, ARN, f"{ARN}:token::", "team/github"])
def test_a_secret_that_the_setting_names_is_a_reference_in_the_spec(backend: str, secret: str) -> None:
    request = judged(backend=backend, secrets={"HF_TOKEN": secret}).accepted()
    assert training_spec_of(request).secrets == {"HF_TOKEN": secret}
    assert request.as_document()["secrets"] == {"HF_TOKEN": secret}


def test_the_token_of_a_private_repository_is_one_too() -> None:
    source = {"git": "https://github.com/team/training.git", "commit": COMMIT, "secret": f"{ARN}:token::"}
    spec = training_spec_of(judged(source=source).accepted())
    assert spec.source is not None
    assert (spec.source.git_secret, spec.secret_references) == (f"{ARN}:token::", (f"{ARN}:token::",))
    for git in ("ssh://git@github.com/team/training.git", "git@github.com:team/training.git"):
        problem = the_problem(source={**source, "git": git})
        assert (problem.field, problem.found) == ("source.secret", f"git: {git}")


@pytest.mark.parametrize(
    "secret",
    [
        "hf2",
        "team/other",
        "arn:aws:secretsmanager:us-east-1:123456789012:secret:hf-Zz99Yy",
        "arn:aws:secretsmanager:eu-west-1:210987654321:secret:team/github-Ab12Cd",
    ],
)
def test_any_other_is_refused_with_the_setting(secret: str) -> None:
    source = {"git": "https://github.com/team/training.git", "commit": COMMIT, "secret": secret}
    problems = judged(secrets={"HF_TOKEN": secret}, source=source).problems
    assert [problem.field for problem in problems] == ["secrets.HF_TOKEN", "source.secret"]
    for problem in problems:
        assert "is not among the secrets that jobs may read: hf, arn:aws:secretsmanager" in problem.problem
        assert "setting secrets" in problem.fix
    assert "names none" in the_problem(setting=(), secrets={"HF_TOKEN": secret}).problem
    assert judged(setting=None, secrets={"HF_TOKEN": secret}).accepted()


@pytest.mark.parametrize(
    "value", ["hf_MARKER0123", "MARKER with blanks", "arn:MARKER", 17, ["MARKER"], {"a": "MARKER"}]
)
def test_a_value_in_the_place_of_a_reference_is_described_and_not_shown(value: object) -> None:
    source = {"git": "https://github.com/team/training.git", "commit": COMMIT, "secret": value}
    problems = [*judged(secrets={"HF_TOKEN": value}).problems, *judged(source=source).problems]
    assert [problem.field for problem in problems] == ["secrets.HF_TOKEN", "source.secret"]
    assert "MARKER" not in repr(problems)


@pytest.mark.parametrize(
    "name", ["SM_TOKEN", "AWS_SECRET_ACCESS_KEY", "SPOTKEEP_TOKEN", "TRAINING_JOB_NAME", "1ST", "a-b", ""]
)
def test_the_name_of_a_variable_that_is_none_or_taken_is_refused(name: str) -> None:
    (problem,) = judged(secrets={name: "hf"}).problems
    assert problem.field.startswith("secrets")
    assert problem.fix == "Rename the variable."


def test_a_variable_has_one_value() -> None:
    problem = the_problem(secrets={"HF_TOKEN": "hf"}, environment={"HF_TOKEN": "x"})
    assert (problem.field, problem.problem) == ("secrets.HF_TOKEN", "is a variable that environment sets")
    problem = the_problem(secrets={"MLFLOW_TRACKING_URI": "hf"}, mlflow="https://mlflow.example.com")
    assert (problem.field, problem.problem) == ("secrets.MLFLOW_TRACKING_URI", "is a variable that mlflow sets")
    problem = the_problem(secrets={"WANDB_PROJECT": "hf"}, wandb="digits", environment={"WANDB_MODE": "offline"})
    assert (problem.field, problem.problem) == ("secrets.WANDB_PROJECT", "is a variable that wandb sets")


def test_without_a_command_nothing_reads_secrets() -> None:
    problem = the_problem(command=None, image="123456789012.dkr.ecr.eu-west-1.amazonaws.com/a:1", secrets={"A": "hf"})
    assert (problem.field, problem.found) == ("secrets", "A")
    assert "has no effect without a command" in problem.problem


def test_there_are_at_most_twenty() -> None:
    assert judged(secrets={f"A{number}": "hf" for number in range(20)}).accepted()
    assert the_problem(secrets={f"A{number}": "hf" for number in range(21)}).field == "secrets"


def test_a_variable_that_looks_like_a_secret_is_a_warning_that_names_the_field() -> None:
    (warning,) = judged(environment={"HF_TOKEN": "x"}).warnings
    assert warning.endswith("Store each in AWS Secrets Manager and name it in secrets instead.")
