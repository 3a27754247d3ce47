"""The training spec: what is written is read, and all that is wrong with one is said at once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_fleet.errors import DocumentError
from spotkeep_fleet.ranks import RANK_LAUNCHERS, Ranks
from spotkeep_fleet.training_spec import (
    ARGUMENTS,
    HangLimit,
    JobSource,
    MlflowPlace,
    RunNumber,
    SearchedMetric,
    TrainingSpec,
    WandbPlace,
    decode_spec,
    encode_spec,
    spec_file_name,
)

TEXT = st.text(max_size=8)
WORDS = st.one_of(st.lists(TEXT, min_size=1, max_size=3).map(tuple), st.text(min_size=1, max_size=8))
SPECS = st.builds(
    TrainingSpec,
    command=WORDS,
    environment=st.dictionaries(TEXT, TEXT, max_size=2),
    hyperparameters=st.dictionaries(TEXT, TEXT, max_size=2),
    arguments=st.sampled_from(ARGUMENTS),
    install=TEXT,
    requirements=st.lists(TEXT, max_size=2).map(tuple),
    setup=WORDS,
    environments=st.none() | TEXT,
    warm_pool=st.booleans(),
    source=st.sampled_from(
        [
            None,
            JobSource(uri="s3://bucket/a.tar.gz", sha256="0" * 64),
            JobSource(git_url="https://x/y.git", git_commit="a" * 40),
        ]
    ),
    metrics=st.dictionaries(TEXT, st.builds(SearchedMetric, pattern=TEXT, step=st.none() | TEXT), max_size=2),
    pause_at_step=st.none() | st.integers(1, 10**6),
    stuck=st.none() | st.builds(HangLimit, st.integers(60, 10**6), st.booleans(), st.integers(1, 20)),
    number=st.none() | st.builds(RunNumber, index=st.integers(1, 3), count=st.integers(1, 3)),
    mlflow=st.none() | st.builds(MlflowPlace, tracking_uri=TEXT, experiment=st.none() | TEXT),
    wandb=st.none() | st.builds(WandbPlace, project=TEXT, entity=st.none() | TEXT),
    distributed=st.none()
    | st.builds(Ranks, launcher=st.sampled_from(RANK_LAUNCHERS), processes=st.none() | st.integers(1, 512)),
)


@given(SPECS)
def test_a_spec_that_is_written_is_read(spec: TrainingSpec) -> None:
    content = encode_spec(spec)
    assert decode_spec(content.decode()) == spec
    assert content == encode_spec(decode_spec(content.decode()))


def test_the_name_of_its_file_follows_from_its_bytes() -> None:
    one, other = (encode_spec(TrainingSpec((command,))) for command in ("true", "false"))
    assert spec_file_name(one) == spec_file_name(encode_spec(TrainingSpec(("true",))))
    assert spec_file_name(one) != spec_file_name(other)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"command": []}, "command is empty"),
        ({"arguments": "all"}, "'all'; use one of hyperparameters, json, none"),
        ({"source": {"git_url": "https://x/y.git", "git_commit": "main"}}, "use 40 hexadecimal digits"),
        ({"source": {"uri": "s3://bucket/a.tar.gz"}}, "source.sha256 is None; use 64 hexadecimal digits"),
        ({"source": {}}, "must name either uri or git_url"),
        ({"metrics": {"loss": {"pattern": 3}}}, "metrics.loss.pattern is a int, not a text"),
        ({"metrics": {"loss": "loss=(.)"}}, "metrics.loss is a str, not a JSON object"),
        ({"metrics": {"\ud800": {"pattern": "a"}}}, "holds a name that is no text"),
        ({"stuck": {"restart": True}}, "stuck.after_seconds is missing"),
        ({"stuck": {"after_seconds": 0}}, "stuck.after_seconds is 0"),
        ({"number": {"index": 0, "count": 1}}, "number.index is 0"),
        ({"mlflow": {}}, "mlflow.tracking_uri is missing"),
        ({"wandb": {}}, "wandb.project is missing"),
        ({"distributed": {"launcher": "srun"}}, "distributed.launcher is 'srun'; use one of torchrun, mpi"),
        ({"distributed": {"processes": 0}}, "distributed.processes is 0; use 1 or more"),
    ],
)
def test_a_bad_spec_is_refused(change: dict[str, Any], problem: str) -> None:
    document = {**TrainingSpec(("true",)).document(), **change}
    with pytest.raises(DocumentError, match=problem):
        decode_spec(json.dumps(document))


def test_a_run_of_weights_and_biases_has_the_id_of_the_run_and_a_name_and_a_mode_that_the_user_may_choose() -> None:
    spec = TrainingSpec(("true",), environment={"WANDB_NAME": "mine"}, wandb=WandbPlace("digits", "vision"))
    assert spec.script_variables(run="digits-1") == {
        "WANDB_PROJECT": "digits", "WANDB_ENTITY": "vision", "WANDB_RUN_ID": "digits-1", "WANDB_RESUME": "allow",
        "WANDB_NAME": "mine", "WANDB_MODE": "online",
    }  # fmt: skip
    by_hand = TrainingSpec(("true",), wandb=WandbPlace("digits")).script_variables(run=None)
    assert by_hand == {"WANDB_PROJECT": "digits", "WANDB_MODE": "online"}
