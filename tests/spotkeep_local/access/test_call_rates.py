"""No second has more calls than AWS takes, and no call is refused that AWS would take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_local import lifecycle
from spotkeep_local.access.call_rates import CALLS_A_SECOND, SERVICES, CallCounts, CallRates
from spotkeep_local.control import LocalControl
from spotkeep_local.options import ServerOptions
from spotkeep_local.service_base.clients import service_model
from tests.discarding import discard

# In eighths of a second, which floats hold exactly.
CALLS = st.lists(st.tuples(st.integers(0, 12), st.sampled_from(["CreateTrainingJob", "SubmitServiceJob", "Search"])))


@given(CALLS)
def test_a_second_has_as_many_calls_as_are_taken_and_the_rest_is_refused(calls: list[tuple[int, str]]) -> None:
    rates = CallRates()
    now = 0.0
    came: list[tuple[float, str]] = []
    taken: list[tuple[float, str]] = []
    for pause, operation in calls:
        now += pause / 8
        limit = CALLS_A_SECOND.get(operation)
        room = limit is None or taken_within(taken, operation, until=now) < limit
        assert rates.takes(operation, at=now) is room
        came.append((now, operation))
        taken += [(now, operation)] if room else []
    counts = rates.counts()
    assert sum(counts.throttled.values()) == len(came) - len(taken)
    assert counts.most_in_a_second == {
        operation: max(taken_within(came, operation, until=at) for at, name in came if name == operation)
        for operation in {name for _, name in came}
    }


def taken_within(calls: list[tuple[float, str]], operation: str, *, until: float) -> int:
    return sum(name == operation and until - 1 < at <= until for at, name in calls)


def test_counting_begins_anew_and_the_rates_do_not() -> None:
    rates = CallRates({"Search": 1})
    assert [rates.takes("Search", at=at) for at in (0.0, 0.5)] == [True, False]
    assert rates.counts() == CallCounts(most_in_a_second={"Search": 2}, throttled={"Search": 1})
    assert rates.counts() == CallCounts()
    assert not rates.takes("Search", at=0.9)
    assert rates.takes("Search", at=1.0)


def test_without_limits_all_is_taken_and_counted() -> None:
    rates = CallRates({})
    assert all(rates.takes("CreateTrainingJob", at=0.0) for _ in range(9))
    assert rates.counts() == CallCounts(most_in_a_second={"CreateTrainingJob": 9})


def test_what_has_a_rate_is_an_operation_of_the_services_that_are_held_to_it() -> None:
    names = {name for service in SERVICES for name in service_model(service).operation_names}
    assert CALLS_A_SECOND.keys() <= names


@pytest.fixture
def rated_aws(tmp_path: Path) -> Iterator[lifecycle.LocalAws]:
    options = ServerOptions(**{**ServerOptions.fast().__dict__, "call_rates": True})
    local = lifecycle.start(tmp_path, port=lifecycle.free_port(), options=options)
    yield local
    discard(local)


def test_a_client_that_calls_too_fast_gets_the_throttle_of_the_service(rated_aws: lifecycle.LocalAws) -> None:
    batch = rated_aws.session().client("batch", config=Config(retries={"total_max_attempts": 1}))

    def submit(number: int) -> tuple[str, int]:
        with pytest.raises(ClientError) as refused:
            batch.submit_service_job(
                jobName=f"job-{number}",
                jobQueue="none",
                serviceRequestPayload="{}",
                serviceJobType="SAGEMAKER_TRAINING",
                clientToken=f"token-{number}",
            )
        answer = refused.value.response
        return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]

    # Beside each other, so that more than five come within a second on a busy machine as well.
    with ThreadPoolExecutor(8) as pool:
        answers = Counter(pool.map(submit, range(40)))
    throttled = answers[("TooManyRequestsException", 429)]
    # There is no such queue, which Batch says of those that it takes.
    assert answers == {("TooManyRequestsException", 429): throttled, ("ClientException", 400): 40 - throttled}
    counts = LocalControl(rated_aws).call_counts()
    assert counts.throttled == {"SubmitServiceJob": throttled}
    assert counts.most_in_a_second["SubmitServiceJob"] > 5
