"""What a job document may hold, and that every problem of one is named at once (I7)."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
from spotkeep_jobs.document.request import MAX_PROBLEMS, JobRequest, Validation, validate
from spotkeep_jobs.document.times import StuckRequest
from spotkeep_jobs.errors import RequestRefusedError

DEFAULTS = DeploymentDefaults(
    image="123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1",
    instance_type="ml.m5.xlarge",
    checkpoint_bucket="checkpoints",
)
MINIMAL: dict[str, Any] = {"name": "first", "command": "python train.py"}


def judged(**fields: Any) -> Validation:
    return validate(MINIMAL | fields, defaults=DEFAULTS)


def problem_fields(validation: Validation) -> list[str]:
    return [problem.field for problem in validation.problems]


def the_problem(**fields: Any) -> tuple[str, str]:
    """The field and the whole text of the only problem."""
    validation = judged(**fields)
    assert validation.request is None
    [problem] = validation.problems
    return problem.field, str(problem)


# Defaults


def test_a_name_and_a_command_are_enough() -> None:
    request = judged().accepted()
    assert request.command == ("python", "train.py")
    assert request.capacity == "spot"
    assert request.image == DEFAULTS.image
    assert request.types == ("ml.m5.xlarge",)
    assert (request.instance_count, request.volume_size_gb) == (1, 30)
    assert (request.max_run, request.max_wait, request.keep_alive) == (86_400, 172_800, 0)
    assert request.checkpoints is True
    by_default = [
        "completed", "failed", "stopped", "stuck", "log-refused", "queue-blocked", "pool-expiring", "pool-expired",
    ]  # fmt: skip
    assert [str(kind) for kind in request.notify] == by_default


@pytest.mark.parametrize("field", ["waiting_too_long", "checkpoint_stale"])
def test_what_is_long_for_a_notification_is_a_duration_from_five_minutes_on(field: str) -> None:
    assert getattr(judged(**{field: "45m"}).accepted(), field) == 2_700
    assert getattr(judged().accepted(), field) is None
    assert problem_fields(judged(**{field: "4m"})) == [field]


def test_the_account_limit_lowers_the_default_of_max_run_but_not_a_wish() -> None:
    limited = DeploymentDefaults(image="i", instance_type="ml.m5.large", max_run_limit_seconds=7_200)
    assert validate(MINIMAL, defaults=limited).accepted().max_run == 7_200
    [problem] = validate(MINIMAL | {"max_run": "3h"}, defaults=limited).problems
    assert problem.field == "max_run"
    assert "2h" in problem.problem


def test_what_has_no_default_in_the_deployment_is_asked_for() -> None:
    assert problem_fields(validate(MINIMAL)) == ["image", "instance_types"]


def test_an_empty_field_of_a_yaml_file_counts_as_left_out() -> None:
    assert judged(run=None, max_wait=None, channels=None).accepted() == judged().accepted()


@pytest.mark.parametrize("install", ["auto", "none", "requirements/train.txt", ["timm==1.0.9", "einops"]])
def test_what_is_installed_is_a_word_a_file_or_a_list(install: Any) -> None:
    request = judged(install=install, source=f"s3://code/{'0' * 64}.tar.gz").accepted()
    assert request.requirements == (tuple(install) if isinstance(install, list) else ())
    assert type(request).model_validate(request.as_document()) == request
    assert judged(install=["timm"]).accepted().requirements == ("timm",), "a list needs no source"


@pytest.mark.parametrize(
    "install",
    ["/etc/requirements.txt", "../requirements.txt", "-r", ".", "a\nb", "a" * 257, [], ["--index-url"], [" "], [3],
     ["a\nb"], ["a"] * 41, 3, {"file": "requirements.txt"}],
)  # fmt: skip
def test_what_cannot_be_installed_is_refused(install: object) -> None:
    assert problem_fields(judged(install=install, source=f"s3://code/{'0' * 64}.tar.gz")) in (
        ["install"],
        ["install[0]"],
    )


TRACKING = "arn:aws:sagemaker:eu-west-1:123456789012:mlflow-tracking-server/experiments"
ON_EC2 = {"backend": "ec2", "instance_type": "m5.xlarge"}


@pytest.mark.parametrize(
    ("mlflow", "place"),
    [
        ("https://mlflow.example.com", ("https://mlflow.example.com", None)),
        (
            {"tracking_uri": "http://10.0.0.7:5000/team", "experiment": "digits"},
            ("http://10.0.0.7:5000/team", "digits"),
        ),
        ({"tracking_uri": TRACKING}, (TRACKING, None)),
        (None, None),
    ],
)
def test_mlflow_is_an_address_alone_or_with_its_experiment(
    mlflow: object, place: tuple[str, str | None] | None
) -> None:
    request = judged(mlflow=mlflow).accepted()
    found = request.mlflow
    assert (found and (found.tracking_uri, found.experiment)) == place
    assert type(request).model_validate(request.as_document()) == request


@pytest.mark.parametrize(
    "uri",
    ["mlflow.example.com", "https://ada:secret@mlflow.example.com", "file:///tmp/mlruns", "https://" + "a" * 510, 3,
     "arn:aws:sagemaker:eu-west-1:123456789012:training-job/digits-1", "https://a b"],
)  # fmt: skip
def test_what_is_no_tracking_server_is_refused(uri: object) -> None:
    [problem] = judged(mlflow={"tracking_uri": uri}).problems
    assert problem.field == "mlflow.tracking_uri"


def test_a_tracking_server_of_sagemakers_is_one_that_the_jobs_role_may_log_to() -> None:
    asked = MINIMAL | {"mlflow": TRACKING}
    assert validate(asked, defaults=replace(DEFAULTS, mlflow_arns=(TRACKING,))).accepted()
    for others in ((), (TRACKING + "-2",)):
        [problem] = validate(asked, defaults=replace(DEFAULTS, mlflow_arns=others)).problems
        assert (problem.field, "mlflow_arns" in problem.fix) == ("mlflow.tracking_uri", True)
    defaults = replace(DEFAULTS, mlflow_arns=(TRACKING,), fleet_instance_types=())
    [problem] = validate(asked | ON_EC2, defaults=defaults).problems
    assert "a script on an instance has none" in problem.problem
    assert validate(MINIMAL | ON_EC2 | {"mlflow": "https://mlflow.example.com"}, defaults=defaults).accepted()


def test_where_mlflow_logs_to_is_said_once() -> None:
    field, text = the_problem(mlflow="https://a.example.com", environment={"MLFLOW_TRACKING_URI": "https://secret"})
    assert field == "environment.MLFLOW_TRACKING_URI"
    assert "secret" not in text
    assert judged(mlflow="https://a.example.com", environment={"MLFLOW_EXPERIMENT_NAME": "digits"}).accepted()


@pytest.mark.parametrize(
    ("wandb", "place"),
    [("digits", ("digits", None)), ({"project": "digits", "entity": "vision-team"}, ("digits", "vision-team"))],
)
def test_a_project_of_weights_and_biases_is_a_name_alone_or_with_its_owner(wandb: Any, place: tuple[str, Any]) -> None:
    request = judged(wandb=wandb).accepted()
    assert request.wandb is not None
    assert (request.wandb.project, request.wandb.entity) == place
    assert type(request).model_validate(request.as_document()) == request


@pytest.mark.parametrize(
    ("fields", "warned"),
    [({}, True), ({"environment": {"WANDB_MODE": "offline"}}, False), ({"secrets": {"WANDB_API_KEY": "key"}}, False)],
)
def test_weights_and_biases_without_an_api_key_is_warned_of(fields: dict[str, Any], warned: bool) -> None:
    warnings = judged(wandb="digits", **fields).warnings
    assert any("secrets: WANDB_API_KEY" in each for each in warnings) == warned


@pytest.mark.parametrize("name", ["", "a b", "vision/digits", "a:b", "x" * 129, 3])
def test_what_is_no_project_of_weights_and_biases_is_refused(name: object) -> None:
    assert problem_fields(judged(wandb={"project": name})) == ["wandb.project"]
    assert problem_fields(judged(wandb={"project": "digits", "entity": name})) == ["wandb.entity"]


def test_the_variables_of_weights_and_biases_are_set_once() -> None:
    for name in ("WANDB_PROJECT", "WANDB_RUN_ID", "WANDB_RESUME"):
        field, text = the_problem(wandb="digits", environment={name: "mine"})
        assert field == f"environment.{name}"
        assert "is given together with wandb" in text
    assert judged(
        wandb="digits", environment={"WANDB_ENTITY": "a", "WANDB_NAME": "b", "WANDB_MODE": "offline"}
    ).accepted()
    assert judged(environment={"WANDB_PROJECT": "mine"}).accepted()


@pytest.mark.parametrize("backend", [{}, ON_EC2])
def test_a_shell_is_asked_for_where_the_deployment_opens_shells(backend: dict[str, Any]) -> None:
    asked = MINIMAL | {"debug": True} | backend
    for shells in (True, None):
        assert validate(asked, defaults=replace(DEFAULTS, shells=shells, fleet_instance_types=())).accepted().debug
    [problem] = validate(asked, defaults=replace(DEFAULTS, shells=False, fleet_instance_types=())).problems
    assert (problem.field, "-c shells=true" in problem.fix) == ("debug", True)
    assert validate(MINIMAL, defaults=replace(DEFAULTS, shells=False)).problems == ()


def test_in_a_container_of_awss_algorithms_no_shell_is_opened() -> None:
    channels = {"train": "s3://data/train/"}
    field, text = the_problem(command=None, algorithm="xgboost-1.7", debug=True, channels=channels)
    assert (field, "xgboost-1.7" in text) == ("debug", True)


def test_a_machine_is_set_up_by_a_command() -> None:
    assert judged(setup="python fetch.py --to 'a b'").accepted().setup == ("python", "fetch.py", "--to", "a b")
    assert judged().accepted().setup is None
    assert problem_fields(judged(setup=["x" * 257])) == ["setup"]
    assert problem_fields(judged(setup="")) == ["setup"]


def test_a_text_of_several_lines_is_a_block_and_stays_one_in_the_record() -> None:
    block, setup = "cd src\npython train.py\n", "apt-get update\napt-get install -y x\n"
    request = judged(command=block, setup=setup).accepted()
    assert (request.command, request.setup) == (block, setup)
    assert JobRequest.model_validate(request.as_document()) == request
    field, text = the_problem(setup="apt-get update && apt-get install -y x")
    assert field == "setup"
    assert "no shell reads a text of one line" in text
    assert "`setup: |`" in text


@pytest.mark.parametrize(
    ("fields", "warns"),
    [
        ({"command": "cd src\npython train.py\n"}, True),
        ({"command": 'cd src\npython train.py "$@"\n'}, False),
        ({"command": 'cd src\npython train.py --config "$SM_HPS"\n'}, False),
        ({"command": "cd src\npython train.py\n", "arguments": "none"}, False),
        ({"command": "python train.py \\\n  --epochs 3\n"}, False),
    ],
)
def test_hyperparameters_that_a_block_does_not_use_are_a_warning(fields: dict[str, Any], warns: bool) -> None:
    found = [each for each in judged(**fields, hyperparameters={"lr": 0.1}).warnings if "hyperparameters (lr)" in each]
    assert len(found) == warns


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ("python a.py &\npython b.py &\nwait\n", "a bare `wait`"),
        ("for i in 1 2; do python train.py $i & done; wait\necho done\n", "a bare `wait`"),
        ("python prepare.py && python train.py\necho done\n", "python prepare.py"),
        ("cd src && torchrun train.py && aws s3 sync a b; echo done\n", "torchrun train.py"),
        ("sudo apt-get update && echo ok\npython train.py\n", "sudo apt-get update"),
        ("python prepare.py &&\n  echo ok\npython train.py\n", "python prepare.py"),
        ("python a.py &\nwait $!\n", None),
        ("python a.py & wait -n\n", None),
        ("wait\npython a.py\n", None),
        ("python prepare.py && python train.py\n", None),
        ("for i in 1 2; do\n  python a.py && python b.py\ndone\n", None),
        ("if python a.py && python b.py; then echo yes; fi\n", None),
        ("python a.py && echo yes || exit 1\npython train.py\n", None),
        ("[ -f x ] && source x\ntest -d y && python y.py\npython train.py 'a && b'\n# python a && b\n", None),
    ],
)
def test_a_failure_that_bash_passes_over_is_a_warning(block: str, says: str | None) -> None:
    found = judged(command=block).warnings
    assert [says in each for each in found] == ([True] if says else [])
    in_setup = [each for each in judged(command="python train.py", setup=block).warnings if each.startswith("setup")]
    assert len(in_setup) == (1 if says else 0)


def test_a_second_python_script_among_the_words_is_a_warning() -> None:
    [warning] = judged(command="python prepare.py --all python3 train.py").warnings
    assert "the words python3 train.py as arguments" in warning
    [warning] = judged(command="python -m prepare python -m train").warnings
    assert "the words python -m as arguments" in warning
    assert judged(command="python train.py --model python").warnings == ()
    assert judged(command="python -m torch.distributed.run --no-python python -m train").warnings == ()


def test_a_list_of_commands_is_refused_for_a_list_is_the_words_of_one() -> None:
    for command in (["python prepare.py", "python train.py"], ["python train.py"], "'python train.py' --lr 0.1"):
        field, text = the_problem(command=command)
        assert field == "command"
        assert "A list holds the words of one command" in text
    assert judged(command=["/opt/my tools/train", "a b"]).accepted().command == ("/opt/my tools/train", "a b")


@pytest.mark.parametrize(
    ("command", "warns"),
    [
        (["python", "prepare.py", "&&", "make"], "the word && as it is"),
        (["python", "train.py", ">", "log.txt"], "the word > as it is"),
        (["python", "train.py", "--out", "$SM_MODEL_DIR/x"], "the word $SM_MODEL_DIR/x as it is"),
        (["python", "train.py", "--lr 0.1"], "'--lr 0.1' as one word"),
        (["bash", "-c", "a && b", "$HOME"], None),
        (["python", "train.py", "--re", "^a$|$b", "--text", "one --lr 1", "a && b"], None),
    ],
)
def test_a_list_with_words_for_a_shell_is_a_warning(command: list[str], warns: str | None) -> None:
    found = judged(command=command).warnings
    assert [warns in each for each in found] == ([True] if warns else [])


# Every listed refusal, with both ways out where there are two


@pytest.mark.parametrize(
    ("fields", "field", "says"),
    [
        ({"keep_alive": "30m"}, "keep_alive", ["keep spot and remove keep_alive", "choose capacity: on-demand"]),
        ({"max_run": "2h", "max_wait": "2h"}, "max_wait", ["not above max_run (2h)"]),
        ({"capacity": "on-demand", "max_wait": "2d"}, "max_wait", ["without spot"]),
        ({"checkpoints": False, "max_run": "1h"}, "max_run", ["without checkpoints", "on-demand"]),
        ({"checkpoints": False, "max_run": "30m", "max_wait": "2h"}, "max_wait", ["without checkpoints", "on-demand"]),
        ({"instance_types": ["ml.m5.large", "ml.m5.xlarge"]}, "instance_types", ["takes one", "capacity: auto"]),
        ({"deadline": "2026-12-01"}, "deadline", ["is a day without a time"]),
        ({"deadline": "2026-12-01T08:00:00"}, "deadline", ["without a time zone"]),
        ({"deadline": "2026-13-01T08:00:00Z"}, "deadline", ["is not a time"]),
        ({"deadline": "soon"}, "deadline", ["is not a duration"]),
        ({"deadline": True}, "deadline", ["is not a duration"]),
        ({"deadline": "0h"}, "deadline", ["is out of range"]),
        ({"deadline": "0001-01-01T00:00:00+14:00"}, "deadline", ["is a time no calendar holds"]),
        ({"instance_type": "m5.xlarge"}, "instance_type", ["Write ml.m5.xlarge"]),
        ({"instance_type": "ML.G5.XLarge"}, "instance_type", ["Write ml.g5.xlarge"]),
        ({"instance_type": "gpu"}, "instance_type", ["ml.<family>"]),
        ({"install": "requirements/train.txt"}, "install", ["no source"]),
    ],
)
def test_refuses_and_says_what_to_do(fields: dict[str, Any], field: str, says: list[str]) -> None:
    found, text = the_problem(**fields)
    assert found == field
    assert [words for words in says if words not in text] == []


def test_a_hyperparameter_at_the_top_is_named_with_its_place() -> None:
    """As it is written by `--set steps=60`."""
    (found,) = judged(hyperparameters={"steps": 30}, steps=60).problems
    assert (found.field, found.fix) == ("steps", "Did you mean `hyperparameters.steps`?")


def test_what_is_just_right_is_accepted() -> None:
    assert judged(keep_alive="30m", capacity="on-demand").accepted().keep_alive == 1_800
    assert judged(max_run="2h", max_wait=7_201).accepted().max_wait == 7_201
    assert judged(capacity="on-demand").accepted().max_wait is None
    assert judged(checkpoints=False, max_run="50m").accepted().max_wait == 3_600
    assert judged(checkpoints=False, capacity="on-demand").accepted().max_run == 86_400


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("name", ["a" * 44, "under_score", "-a", "a-", ""]),
        ("run", ["r" * 53, "a/b"]),
        ("owner", ["a;b"]),
        ("token", ["a b"]),
        ("command", ["unclosed 'quote", "", [], ["x"] * 100, ["python", "x" * 257], 5]),
        ("source", ["https://example.com/a.git", ".", "s3://code/a.tar", "s3://code/a.tar.gz", 5]),
        ("image", ["https://example.com/x", "x" * 256]),
        ("checkpoints", ["yes"]),
        ("capacity", ["cheap"]),
        ("keep_alive", ["61m"]),
        ("metrics", [5, ["loss", 5], {f"m{i}": {} for i in range(41)}]),
        ("pause_at_step", [0, 1.5, "soon", True, 2**53]),
        ("stuck", [True, [30]]),
        ("checkpoint_prefix", ["s3://other", "s3://other/", "s3://other/a//b/", "s3://other/../x/"]),
        ("max_cost", ["10 USD", 0]),
        ("max_attempts", [0]),
        ("script_retries", [11]),
        ("ladder", [[], [{"instance_type": "ml.g5.xlarge"}] * 11]),
    ],
)
def test_a_value_that_its_field_does_not_take_is_refused(field: str, values: list[object]) -> None:
    for value in values:
        found, text = the_problem(**{"capacity": "on-demand", field: value})
        assert found == field
        assert text.endswith((".", "?"))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"hyperparameters": {"k" * 257: 1}}, f"hyperparameters.{'k' * 64}"),
        ({"hyperparameters": {"": 1}}, "hyperparameters.''"),
        ({"hyperparameters": {"lr": "x" * 257}}, "hyperparameters.lr"),
        ({"hyperparameters": {"lr": "two\nlines"}}, "hyperparameters.lr"),
        ({"hyperparameters": {"lr": None}}, "hyperparameters.lr"),
        ({"hyperparameters": {"lr": [1]}}, "hyperparameters.lr"),
        ({"hyperparameters": {f"h{i}": i for i in range(101)}}, "hyperparameters"),
        ({"environment": {"A": "x" * 513}}, "environment.A"),
        ({"environment": {"1A": "x"}}, "environment.1A"),
        ({"environment": {"A": "nul\0"}}, "environment.A"),
        ({"environment": json.loads('{"A": 12e4567}')}, "environment.A"),
        ({"command": ["python", "train.py", math.nan]}, "command"),
        ({"environment": {"SPOTKEEP_RUN": "x"}}, "environment.SPOTKEEP_RUN"),
        ({"environment": {"SM_MODEL_DIR": "x"}}, "environment.SM_MODEL_DIR"),
        ({"environment": {"SPOTKEEP_TRAINING_SPEC": "x"}}, "environment.SPOTKEEP_TRAINING_SPEC"),
        ({"environment": {f"V{i}": i for i in range(98)}}, "environment"),
        ({"metrics": {"loss": "([0-9.]+)"}, "environment": {f"V{i}": i for i in range(97)}}, "environment"),
        ({"channels": {f"c{i}": "s3://data/x" for i in range(20)}}, "channels"),
        ({"channels": {"source": "s3://data/x"}}, "channels.source.name"),
        ({"channels": {"a b": "s3://data/x"}}, "channels.a b.name"),
        ({"channels": {"c" * 65: "s3://data/x"}}, f"channels.{'c' * 65}.name"),
        ({"channels": [{"name": "train", "uri": "s3://data/x"}] * 2}, "channels"),
        ({"channels": {"train": {"uri": "s3://data/x", "input_mode": "file"}}}, "channels.train.input_mode"),
        ({"channels": {"train": {"name": "x", "uri": "s3://data/x"}}}, "channels"),
        ({"channels": {"train": "s3://data/x//y/"}}, "channels.train.uri"),
        ({"channels": {"train": "s3://data//x/"}}, "channels.train.uri"),
        ({"metrics": {"": {}}}, "metrics.''"),
        ({"metrics": {"two\nlines": {}}}, "metrics.two"),
        ({"metrics": {"m" * 101: {}}}, f"metrics.{'m' * 60}"),
        ({"metrics": {"loss": {"goal": "least"}}}, "metrics.loss.goal"),
        ({"metrics": {"loss": {"regex": "x"}}}, "metrics.loss.regex"),
        ({"metrics": {"loss": {"step": "epoch ([0-9]+)"}}}, "metrics.loss.step"),
        ({"tags": {f"t{i}": i for i in range(47)}}, "tags"),
        ({"tags": {"aws:x": "1"}}, "tags.aws:x"),
        ({"tags": {"spotkeep:run": "1"}}, "tags.spotkeep:run"),
        ({"tags": {"a": "!"}}, "tags.a"),
        ({"source": {"git": "https://example.com/a.git", "commit": "main"}}, "source.commit"),
        ({"source": {"git": "https://me:secret@example.com/a.git", "commit": "a" * 40}}, "source.git"),
        ({"source": {"git": "--upload-pack=x", "commit": "a" * 40}}, "source.git"),
        ({"source": {"git": "https://example.com/a.git"}}, "source.commit"),
        ({"source": {"uri": "s3://code/a.tar.gz"}}, "source.sha256"),
        ({"source": {"uri": "s3://code//a.tar.gz", "sha256": "0" * 64}}, "source"),
        ({"source": {"uri": "s3://code/a.tar.gz", "sha256": "0" * 40}}, "source.sha256"),
        ({"source": {"uri": "s3://code/a.py", "sha256": "0" * 64}}, "source.uri"),
        ({"source": {"sha256": "0" * 64}}, "source.uri"),
        ({"source": {"uri": "s3://code/a.zip", "sha256": "0" * 64, "commit": "0" * 40}}, "source.commit"),
        ({"notify": ["finished"]}, "notify[0]"),
        ({"notify": ["failed", "failed"]}, "notify"),
        ({"ladder": [{"capacity": "on-demand"}]}, "ladder[0].instance_types"),
        (
            {
                "ladder": [
                    {
                        "instance_types": [f"ml.g{n}.xlarge" for n in ("4dn", 5, 6, "6e")]
                        + ["ml.g5.2xlarge", "ml.g6.2xlarge"]
                    }
                ]
            },
            "ladder[0].instance_types",
        ),
        ({"ladder": [{"instance_type": "g5.xlarge"}]}, "ladder[0].instance_type"),
        (
            {"ladder": [{"instance_types": ["ml.g5.xlarge"], "instance_type": "ml.g5.xlarge"}]},
            "ladder[0].instance_type",
        ),
        ({"ladder": [{"instance_type": "ml.g5.xlarge", "longest_wait": "1m"}]}, "ladder[0].longest_wait"),
        ({"ladder": [{"instance_type": "ml.g5.xlarge", "max_wait": "1h"}]}, "ladder[0].max_wait"),
        ({"ladder": [{"instance_type": "ml.g5.xlarge"}], "instance_type": "ml.g5.xlarge"}, "instance_types"),
        ({"ladder": [{"instance_type": "ml.g5.xlarge"}], "capacity": "spot"}, "ladder"),
        ({"longest_wait": "1h"}, "longest_wait"),
        ({"capacity": "auto", "max_wait": "2d"}, "max_wait"),
        ({"capacity": "auto", "keep_alive": "10m"}, "keep_alive"),
        ({"capacity": "auto", "checkpoints": False, "max_run": "2h"}, "max_run"),
        ({"capacity": "on-demand", "spot_only": True}, "capacity"),
        (
            {"ladder": [{"instance_type": "ml.g5.xlarge", "capacity": "on-demand"}], "spot_only": True},
            "ladder[0].capacity",
        ),
        ({"max_total_run": "1h"}, "max_total_run"),
        ({"max_total_run": "2h", "max_run": "1h", "checkpoints": False, "capacity": "on-demand"}, "max_total_run"),
        ({"max_cost": 10}, "max_cost"),
        (
            {"checkpoint_prefix": "s3://checkpoints/runs/x/checkpoints/", "checkpoints": False, "max_run": "30m"},
            "checkpoint_prefix",
        ),
    ],
)
def test_refuses(fields: dict[str, Any], field: str) -> None:
    found, text = the_problem(**fields)
    assert found.startswith(field[:70])
    assert text.endswith((".", "?"))


@pytest.mark.parametrize(
    "pattern",
    ["loss=[0-9.]+", "loss=([0-9.]+", "(?i)loss=([0-9.]+)", "(?P<loss>[0-9.]+)", "(a)(?=b)", r"(a)\1", "[[a]([0-9]+)",
     "(" * 249 + ")" * 249 + "*" * 9, "(a)" + "b" * 498, "(a)\n"],
)  # fmt: skip
def test_a_pattern_that_only_some_regular_expressions_know_or_that_finds_nothing_is_refused(pattern: str) -> None:
    assert the_problem(metrics={"loss": pattern})[0] == "metrics.loss.pattern"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("loss", {"loss": {}}),
        (["loss", "accuracy"], {"loss": {}, "accuracy": {}}),
        ({"loss": None}, {"loss": {}}),
        ({"loss": r"loss[:=] *\(?([0-9.eE+-]+)"}, {"loss": {"pattern": r"loss[:=] *\(?([0-9.eE+-]+)"}}),
        ({"loss": {"pattern": r"a\\(?:b|c)([0-9]+)", "goal": "minimize"}},) * 2,
        ({"loss": {"pattern": "l=(.+)", "step": "epoch ([0-9]+)", "goal": "maximize"}},) * 2,
    ],
)
def test_metrics_are_names_patterns_or_both(written: object, read: dict[str, Any]) -> None:
    request = judged(metrics=written).accepted()
    assert request.as_document()["metrics"] == read


@given(st.text(alphabet="()[]{}?:*+|\\.^$ab01=-, é", max_size=60) | st.text(max_size=30))
def test_any_pattern_is_refused_or_finds_a_group(pattern: str) -> None:
    validation = judged(metrics={"loss": pattern})
    if validation.request is not None:
        assert re.compile(pattern).groups >= 1
        assert "(?i)" not in pattern


@pytest.mark.parametrize("uri", ["https://data.s3.amazonaws.com/x", "s3://", "s3://UP/x", "s3://a..b/x"])
def test_uris_other_than_s3_are_refused_everywhere(uri: str) -> None:
    validation = judged(channels={"train": uri}, checkpoint_prefix=uri, source=uri)
    assert problem_fields(validation) == ["source", "channels.train.uri", "checkpoint_prefix"]


def test_on_demand_takes_five_instance_types() -> None:
    types = [f"ml.m5.{size}large" for size in ("", "x", "2x", "4x", "12x", "24x")]
    assert judged(instance_types=types[:5], capacity="on-demand").accepted().types == tuple(types[:5])
    assert the_problem(instance_types=types, capacity="on-demand")[0] == "instance_types"
    assert the_problem(instance_types=[types[0]] * 2, capacity="on-demand")[0] == "instance_types"
    assert the_problem(instance_types=types[:1], instance_type=types[0])[0] == "instance_type"


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("instance_count", 0, "1 to 20"),
        ("instance_count", 21, "1 to 20"),
        ("instance_count", True, "whole number"),
        ("instance_count", 1.0, "whole number"),
        ("volume_size_gb", 0, "1 to 16384"),
        ("volume_size_gb", 16_385, "1 to 16384"),
        ("volume_size_gb", "30GB", "Write 30"),
        ("volume_size_gb", "1 TB", "Write 1024"),
        ("max_run", "29d", "28d"),
        ("max_run", 0, "1s to 28d"),
        ("max_run", 10**30, "far too long"),
        ("max_wait", "31d", "30d"),
    ],
)
def test_sizes_and_durations_are_in_range_and_in_their_unit(field: str, value: object, says: str) -> None:
    found, text = the_problem(**{field: value})
    assert found == field
    assert says in text


# Unknown fields


@pytest.mark.parametrize(
    ("unknown", "meant"),
    [
        ("capcity", "capacity"),
        ("maxRun", "max_run"),
        ("MaxRuntimeInSeconds", "max_run"),
        ("use_spot_instances", "capacity"),
    ],
)
def test_an_unknown_field_is_named_with_the_nearest_known_one(unknown: str, meant: str) -> None:
    field, text = the_problem(**{unknown: 1})
    assert field == unknown
    assert f"Did you mean `{meant}`?" in text


def test_unknown_fields_inside_channels_and_sources_are_named_too() -> None:
    validation = judged(
        channels={"train": {"uri": "s3://data/x", "mode": "File"}},
        source={"git": "https://example.com/a.git", "comit": "a" * 40},
    )
    assert problem_fields(validation) == ["source.commit", "source.comit", "channels.train.mode"]
    assert "Did you mean `commit`?" in validation.problems[1].fix
    assert "Did you mean `input_mode`?" in validation.problems[2].fix


def test_a_field_that_resembles_nothing_gets_the_list() -> None:
    assert "Known are: name, command" in the_problem(zzzz=1)[1]


# All at once


def test_i7_every_problem_is_named_at_once() -> None:
    validation = validate(
        {
            "nme": "x",
            "command": "'",
            "max_run": "4 hours",
            "instance_types": ["m5.large", "ml.m5.large", "x"],
            "keep_alive": "10m",
            "hyperparameters": {"a": "x" * 300, "b": "y" * 300},
            "tags": {"aws:a": 1},
        },
        defaults=DEFAULTS,
    )
    assert validation.request is None
    assert set(problem_fields(validation)) == {
        "name", "command", "max_run", "instance_types[0]", "instance_types[2]", "hyperparameters.a",
        "hyperparameters.b", "tags.aws:a", "nme", "keep_alive",
    }  # fmt: skip
    with pytest.raises(RequestRefusedError) as caught:
        validation.accepted()
    assert caught.value.problems == validation.problems


def test_a_rule_between_fields_waits_for_the_fields_it_reads_and_hides_nothing_of_the_others() -> None:
    assert problem_fields(judged(keep_alive="soon")) == ["keep_alive"]
    assert problem_fields(judged(capacity="sopt", keep_alive="10m")) == ["capacity"]
    assert problem_fields(judged(max_price="cheap", rebalance="leave")) == ["max_price", "rebalance"]
    assert problem_fields(judged(share=5, priority=7)) == ["share", "priority"]


def test_the_list_of_problems_is_bounded() -> None:
    validation = judged(**{f"x{i}": i for i in range(1_000)})
    assert len(validation.problems) == MAX_PROBLEMS + 1
    assert "more problems than are shown" in validation.problems[-1].problem


@pytest.mark.parametrize("document", [None, "x", [MINIMAL]])
def test_a_document_that_is_no_object_is_refused(document: object) -> None:
    [problem] = validate(document, defaults=DEFAULTS).problems
    assert "JSON object" in problem.problem


# Secrets


def test_values_of_variables_and_hyperparameters_are_never_repeated() -> None:
    secret = "hunter2" * 100
    validation = judged(
        environment={"A": secret, "B": [secret]}, hyperparameters={"a": secret, "b": {"c": secret}, "d": [secret]}
    )
    assert len(validation.problems) == 5
    assert "hunter2" not in json.dumps([problem.as_document() for problem in validation.problems])
    assert "hunter2" not in json.dumps([p.as_document() for p in judged(environment=secret).problems])


def test_nor_are_those_of_a_misspelled_field() -> None:
    validation = judged(enviroment={"PASSWORD": "hunter2"}, hyperparams=[{"key": "hunter2"}])
    assert problem_fields(validation) == ["enviroment", "hyperparams"]
    assert "hunter2" not in str(validation.problems)
    assert validation.problems[0].found == "an object of 1 entry"
    assert "Did you mean `environment`?" in str(validation.problems[0])


def test_a_variable_that_looks_like_a_secret_is_warned_of() -> None:
    validation = judged(environment={"HF_TOKEN": "x", "TOKENIZERS_PARALLELISM": "false"})
    [warning] = validation.warnings
    assert "HF_TOKEN" in warning
    assert "TOKENIZERS" not in warning


# A pause


def test_a_run_trains_to_its_end_unless_it_shall_pause_with_a_checkpoint() -> None:
    assert judged().accepted().pause_at_step is None
    assert judged(pause_at_step=1000).accepted().pause_at_step == 1000
    field, text = the_problem(pause_at_step=1000, checkpoints=False, max_run="30m")
    assert field == "pause_at_step"
    assert "checkpoints: false" in text


# The rules hold for anything

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
known_fields = st.sampled_from(sorted(JobRequest.model_fields))
hostile_documents = json_values | st.dictionaries(known_fields | st.text(st.characters(codec=None)), json_values)


@given(document=hostile_documents)
def test_any_document_gets_a_structured_judgement(document: object) -> None:
    validation = validate(document, defaults=DEFAULTS)
    assert (validation.request is None) == bool(validation.problems)
    answer = json.dumps([problem.as_document() for problem in validation.problems])
    assert json.loads(answer) == [problem.as_document() for problem in validation.problems]
    for problem in validation.problems:
        assert problem.field
        assert problem.problem
        assert problem.fix
        assert len(problem.found) <= 200


def test_a_document_nested_beyond_reason_is_refused() -> None:
    nested: Any = "x"
    for _ in range(50_000):
        nested = [nested]
    for field in ("name", "hyperparameters", "channels", "instance_types", "command"):
        assert judged(**{field: nested}).request is None
    for _ in range(50_000):  # Taken apart by hand: freeing it recursively would exhaust the stack.
        nested = nested[0]


def test_names_that_are_no_unicode_are_refused_anywhere() -> None:
    broken = "\ud800"
    for fields in (
        {broken: 1}, {"hyperparameters": {broken: 1}}, {"environment": {broken: 1}}, {"source": {broken: 1}},
        {"channels": {broken: "s3://data/x"}}, {"channels": {"a": {broken: 1}}}, {"name": broken},
        {"command": [broken]},
    ):  # fmt: skip
        validation = judged(**fields)
        assert validation.request is None
        json.dumps([problem.as_document() for problem in validation.problems]).encode()


def test_a_number_too_large_to_print_is_refused() -> None:
    assert problem_fields(judged(instance_count=10**5_000)) == ["instance_count"]
    assert problem_fields(judged(hyperparameters={"a": 10**5_000})) == ["hyperparameters.a"]


def test_what_was_accepted_is_accepted_again_as_recorded() -> None:
    request = judged(
        channels={"train": {"uri": "s3://data/x", "input_mode": "FastFile"}},
        source={"git": "git@example.com:a/b.git", "commit": "a" * 40},
        hyperparameters={"lr": 0.1, "flag": True},
        instance_type="ml.g5.xlarge",
    ).accepted()
    recorded = json.loads(json.dumps(request.as_document()))
    assert validate(recorded, defaults=DEFAULTS).accepted() == request


# Deadlines and budgets

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
PRICED = replace(DEFAULTS, prices={"ml.m5.xlarge": 0.23})


def launched_at_noon(**fields: Any) -> Validation:
    return validate(MINIMAL | {"max_run": "4h"} | fields, defaults=PRICED, now=NOON)


def test_a_deadline_is_a_duration_or_a_time_with_its_zone_and_chooses_the_fallbacks() -> None:
    request = launched_at_noon(deadline="9h").accepted()
    assert (request.deadline, request.capacity, request.max_wait) == (32_400, "auto", None)
    left_out = launched_at_noon(deadline="9h", capacity=None).accepted()
    assert left_out.capacity == "auto", "a field without a value is left out"
    assert request.deadline_at(NOON) == NOON + timedelta(hours=9)
    absolute = launched_at_noon(deadline="2026-11-21T23:00:00+02:00").accepted()
    assert absolute.deadline_at(NOON) == NOON + timedelta(hours=9)
    assert JobRequest.model_validate(json.loads(json.dumps(absolute.as_document()))) == absolute


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"capacity": "spot"}, "deadline"),
        ({"spot_only": True}, "deadline"),
        ({"checkpoints": False, "max_run": "50m"}, "deadline"),
        ({"ladder": [{"instance_type": "ml.m5.xlarge"}]}, "ladder[0].capacity"),
    ],
)
def test_a_deadline_needs_a_way_to_go_on_demand(fields: dict[str, Any], field: str) -> None:
    assert problem_fields(launched_at_noon(deadline="9h", **fields)) == [field]


@pytest.mark.parametrize(
    ("fields", "needed"),
    [
        ({}, "4h12m"),
        ({"work": "2h"}, "2h12m"),
        ({"work": "2h", "restart": "20m"}, "2h20m"),
        ({"max_total_run": "10h"}, "10h36m"),
        ({"deadline": "2026-11-21T11:00:00Z"}, "4h12m"),
    ],
)
def test_a_deadline_that_cannot_be_kept_is_refused_with_the_earliest(fields: dict[str, Any], needed: str) -> None:
    [problem] = launched_at_noon(**{"deadline": "2h11m"} | fields).problems
    assert problem.field == "deadline"
    assert f"take {needed}" in problem.problem
    assert f"Give {needed} or more" in problem.fix
    assert ("work" in problem.fix) == ("work" not in fields)


def test_the_least_that_is_enough_is_accepted_and_what_was_accepted_stays_so() -> None:
    assert launched_at_noon(deadline="4h12m").problems == ()
    assert launched_at_noon(deadline="9h", capacity="on-demand").problems == ()
    assert problem_fields(launched_at_noon(deadline="3h", capacity="on-demand")) == ["deadline"]
    assert problem_fields(launched_at_noon(work="5h")) == ["work"]
    assert launched_at_noon(work="5h", max_total_run="6h").problems == ()
    assert validate(MINIMAL | {"deadline": "2020-01-01T00:00:00Z"}, defaults=PRICED).problems == ()


def test_max_cost_is_what_budget_was_and_ends_the_run() -> None:
    [problem] = launched_at_noon(budget=5).problems
    assert (problem.field, problem.problem) == ("budget", "is not a field any more")
    assert problem.fix == "Write max_cost: it notifies at 80% as budget did, and ends the run when all is spent."
    [problem] = launched_at_noon(notify=["budget-near"]).problems
    assert "max-cost-near" in problem.fix


def test_money_that_may_end_before_the_work_is_warned_of() -> None:
    [warning] = launched_at_noon(deadline="9h", max_cost=0.5).warnings
    assert "max_cost 0.50 USD may end the run before its deadline is kept" in warning
    assert "0.97 USD" in warning
    [warning] = launched_at_noon(capacity="on-demand", work="4h", max_cost=0.5).warnings
    assert "max_cost 0.50 USD may end the run before its work is done" in warning
    assert launched_at_noon(capacity="on-demand", max_cost=0.5).warnings == ()


class TestWarmPoolsAndTeams:
    def test_a_pool_is_kept_no_longer_than_the_deployment_allows(self) -> None:
        defaults = replace(DEFAULTS, max_keep_alive_seconds=900)
        document = {**MINIMAL, "capacity": "on-demand", "keep_alive": "30m"}
        [problem] = validate(document, defaults=defaults).problems
        assert (problem.field, problem.found) == ("keep_alive", "30m")
        assert "15m" in problem.problem
        assert validate({**document, "keep_alive": "15m"}, defaults=defaults).problems == ()

    def test_several_types_with_a_pool_are_warned_of(self) -> None:
        several = {"capacity": "on-demand", "keep_alive": "5m", "instance_types": ["ml.m5.xlarge", "ml.c5.xlarge"]}
        assert any("several instance types" in warning for warning in judged(**several).warnings)
        single = several | {"instance_types": ["ml.m5.xlarge"]}
        assert not any("several instance types" in warning for warning in judged(**single).warnings)

    def test_a_team_is_one_with_a_role_of_its_own(self) -> None:
        defaults = replace(DEFAULTS, teams=("vision", "speech"))
        assert validate({**MINIMAL, "team": "vision"}, defaults=defaults).accepted().team == "vision"
        [problem] = validate({**MINIMAL, "team": "visoin"}, defaults=defaults).problems
        assert (problem.field, problem.fix) == ("team", "Did you mean `vision`?")
        [problem] = validate({**MINIMAL, "team": "vision"}, defaults=replace(DEFAULTS, teams=())).problems
        assert "isolated_teams" in problem.fix
        assert judged(team="vision").accepted().team == "vision", "without a deployment any team may be right"
        assert problem_fields(judged(team="Vision Lab")) == ["team"]


def test_a_limit_for_a_training_that_hangs() -> None:
    assert judged().accepted().stuck is None
    assert judged(stuck="30m").accepted().stuck == StuckRequest(after=1800)
    given = {"after": 90, "restart": True, "at_most": 5}
    assert judged(stuck=given).accepted().stuck == StuckRequest(after=90, restart=True, at_most=5)
    assert judged(stuck="30m", instance_count=2).accepted().stuck == StuckRequest(after=1800)


@pytest.mark.parametrize(
    ("fields", "field", "text"),
    [
        *(
            ({"stuck": value}, "stuck.after", text)
            for value, text in (("soon", "not a duration"), (59, "1m to 28d"), ("29d", "1m to 28d"))
        ),
        ({"stuck": {"restart": True}}, "stuck.after", "is required"),
        ({"stuck": {"after": "1m", "restart": True, "at_most": 21}}, "stuck.at_most", "20"),
        ({"stuck": {"after": "1m", "restart": "yes"}}, "stuck.restart", "true or false"),
        ({"stuck": "2h", "max_run": "1h"}, "stuck.after", "is longer than max_run (1h)"),
        ({"stuck": {"after": 60, "restart": True}, "instance_count": 2}, "stuck.restart", "2 instances"),
        ({"stuck": {"after": "1m", "at_most": 2}}, "stuck.at_most", "is given without restart: true"),
    ],
)
def test_a_limit_for_a_training_that_hangs_which_could_not_work(fields: Any, field: str, text: str) -> None:
    named, said = the_problem(**fields)
    assert named == field
    assert text in said
