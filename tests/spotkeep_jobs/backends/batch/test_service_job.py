"""A request for which AWS Batch has no room loses what the training spec holds as well, and no more than it must."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from spotkeep_fleet.training_spec import SPEC_VARIABLE
from spotkeep_jobs.backends.batch.service_job import MAX_PAYLOAD_BYTES, fits, payload_of, shortened

MARKS = {"SPOTKEEP_RUN": "first", "SPOTKEEP_ATTEMPT": "1", "SPOTKEEP_LAUNCH": "0" * 32}
KEPT = MARKS | {SPEC_VARIABLE: f"/opt/ml/input/data/spotkeep-spec/{'0' * 64}.json"}
names = st.text("ABCDEFGH_", min_size=1, max_size=30)
variables = st.dictionaries(names, st.text(max_size=512), max_size=25)
hyperparameters = st.dictionaries(names, st.text(max_size=2_500), max_size=8)


def request_with(environment: dict[str, str], hyperparameters: dict[str, str]) -> dict[str, Any]:
    return {
        "TrainingJobName": "first-1",
        "Environment": environment | KEPT,
        "HyperParameters": hyperparameters,
    }


@settings(max_examples=30)
@given(variables, hyperparameters)
@example({}, {f"NAME_{number}": "é" * 2_500 for number in range(100)})
@example({f"NAME_{number}": "x" * 512 for number in range(97)}, {"lr": "0.1"})
def test_everything_fits_and_its_job_is_known_and_finds_its_spec(
    environment: dict[str, str], hyperparameters: dict[str, str]
) -> None:
    request = request_with(environment, hyperparameters)
    short = shortened(request)
    assert fits(short)
    assert short["Environment"] in (request["Environment"], KEPT)
    assert short["HyperParameters"] in (hyperparameters, {})
    assert shortened(short) == short
    if fits(request):
        assert short == request


def test_hyperparameters_stay_where_sagemaker_shows_them_if_there_is_room() -> None:
    environment = {f"NAME_{number}": "x" * 512 for number in range(30)}
    short = shortened(request_with(environment, {"lr": "0.1"}))
    assert (short["Environment"], short["HyperParameters"]) == (KEPT, {"lr": "0.1"})


def test_the_request_of_a_later_job_has_room_for_a_longer_number() -> None:
    request = request_with({"NAME": ""}, {})
    request["Environment"]["NAME"] = "x" * (MAX_PAYLOAD_BYTES - len(payload_of(request)))
    assert len(payload_of(request)) == MAX_PAYLOAD_BYTES
    assert not fits(request)
