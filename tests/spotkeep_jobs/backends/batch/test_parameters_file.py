"""What AWS Batch has no room for moves to a file, and the runner makes of both what SageMaker would have been given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from spotkeep.runner.layout import JobLayout
from spotkeep.runner.parameters_file import take_over_parameters
from spotkeep_jobs.backends.batch.parameters_file import PARAMETERS_CHANNEL, fits, with_parameters_file
from spotkeep_jobs.backends.batch.service_job import MAX_PAYLOAD_BYTES, payload_of

MARKS = {"SPOTKEEP_RUN": "first", "SPOTKEEP_ATTEMPT": "1", "SPOTKEEP_LAUNCH": "0" * 32}
PARAMETERS_URI = "s3://checkpoints/parameters/first/"
SOURCE = {"ChannelName": "source"}
names = st.text("ABCDEFGH_", min_size=1, max_size=30)
variables = st.dictionaries(names, st.text(max_size=512), max_size=25)
hyperparameters = st.dictionaries(names, st.text(max_size=2_500), max_size=8)


def request_with(environment: dict[str, str], hyperparameters: dict[str, str]) -> dict[str, Any]:
    return {
        "TrainingJobName": "first-1",
        "Environment": environment | MARKS,
        "HyperParameters": hyperparameters,
        "InputDataConfig": [SOURCE],
    }


def as_the_runner_finds_it(request: dict[str, Any], content: bytes, base: Path) -> tuple[dict[str, str], Any]:
    """Return the environment and the hyperparameters of the training."""
    layout = JobLayout(base=base)
    layout.configuration.mkdir(parents=True)
    layout.hyperparameters.write_text(json.dumps(request["HyperParameters"]))
    layout.parameters.mkdir(parents=True)
    (layout.parameters / "0123.json").write_bytes(content)
    environment = dict(request["Environment"])
    take_over_parameters(layout, environment)
    return environment, json.loads(layout.hyperparameters.read_text())


@settings(max_examples=30)
@given(variables, hyperparameters)
@example({}, {f"NAME_{number}": "é" * 2_500 for number in range(100)})
@example({f"NAME_{number}": "x" * 512 for number in range(97)}, {"lr": "0.1"})
def test_nothing_is_lost_and_everything_fits(
    tmp_path_factory: Any, environment: dict[str, str], hyperparameters: dict[str, str]
) -> None:
    request = request_with(environment, hyperparameters)
    short, file = with_parameters_file(request, parameters_uri=PARAMETERS_URI)
    assert fits(short)
    assert MARKS.items() <= short["Environment"].items()
    if file is None:
        assert short == request
        return
    found = as_the_runner_finds_it(short, file.content, tmp_path_factory.mktemp("job"))
    assert found == (request["Environment"], hyperparameters)
    assert (short, file) == with_parameters_file(request, parameters_uri=PARAMETERS_URI)


def test_the_file_is_a_channel_and_hyperparameters_stay_where_sagemaker_shows_them_if_there_is_room() -> None:
    environment = {f"NAME_{number}": "x" * 512 for number in range(30)}
    short, file = with_parameters_file(request_with(environment, {"lr": "0.1"}), parameters_uri=PARAMETERS_URI)
    assert short["HyperParameters"] == {"lr": "0.1"}
    assert json.loads(file.content) == {"environment": environment, "hyperparameters": {}}
    assert file.uri.startswith(PARAMETERS_URI)
    source, parameters = short["InputDataConfig"]
    assert source == SOURCE
    assert (parameters["ChannelName"], parameters["DataSource"]["S3DataSource"]["S3Uri"]) == (
        PARAMETERS_CHANNEL,
        file.uri,
    )


def test_the_request_of_a_later_job_has_room_for_a_longer_number() -> None:
    request = request_with({"NAME": ""}, {})
    request["Environment"]["NAME"] = "x" * (MAX_PAYLOAD_BYTES - len(payload_of(request)))
    assert len(payload_of(request)) == MAX_PAYLOAD_BYTES
    assert not fits(request)
