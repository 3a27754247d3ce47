"""The seam to the function `search`, on a real client: answers are read, errors are distinguished."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.response import StreamingBody
from botocore.stub import ANY, Stubber

from spotkeep_jobs.deployment import Clients
from spotkeep_jobs.errors import AwsBusyError, AwsRefusedError, SearchError
from spotkeep_jobs.record.states import TrialState
from spotkeep_jobs.sweeps.search.search import Begin, TrialResult
from spotkeep_jobs.sweeps.search.tpe_function import TpeFunction
from spotkeep_jobs.sweeps.search.tpe_request import TpeRequest

from .searching import plan

SEARCHED = plan({"lr": {"log_uniform": [1e-5, 1e-2]}}, search="tpe", goal="minimize", seed=3)


def answer(document: object) -> dict[str, Any]:
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    return {"StatusCode": 200, "Payload": StreamingBody(io.BytesIO(content), len(content))}


@pytest.fixture
def invoked() -> Iterator[Stubber]:
    client = boto3.client("lambda", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    with Stubber(client) as stubbed:
        yield stubbed


def ask(invoked: Stubber, trials: tuple[TrialResult, ...] = ()) -> Any:
    return TpeFunction(lambda: invoked.client, function="spotkeep-search")(SEARCHED, trials, 2)


def test_the_trials_so_far_are_the_question_and_moves_the_answer(invoked: Stubber) -> None:
    trials = (
        TrialResult(number=2, parameters={"lr": 1e-3}, state=TrialState.RUNNING, values={}),
        TrialResult(
            number=1, parameters={"lr": 1e-4}, state=TrialState.COMPLETED, values={1: 0.5, 2: 0.4, 3: math.nan}
        ),
    )
    question = TpeRequest.of(SEARCHED, trials=trials, free=2)
    assert [(each.number, each.value) for each in question.begun] == [(1, 0.4), (2, None)]
    largest = TpeRequest.of(replace(SEARCHED, goal="maximize"), trials=trials, free=2)
    assert largest.begun[0].value == 0.5
    invoked.add_response(
        "invoke",
        answer({"chosen": [{"number": 3, "parameters": {"lr": 0.005}}]}),
        {"FunctionName": "spotkeep-search", "Payload": question.model_dump_json().encode()},
    )
    assert ask(invoked, trials) == (Begin(number=3, parameters={"lr": 0.005}, pause_at_step=None),)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"errorType": "Runtime.ExitError", "errorMessage": "it was killed"}, "Runtime.ExitError: it was killed"),
        ({"errorMessage": "Task timed out after 50.00 seconds"}, "Task timed out"),
        (b"\xff not JSON", "it failed, with"),
        ([1], "it failed, with"),
    ],
)
def test_a_function_that_fails_is_a_search_that_is_not_known(invoked: Stubber, content: object, said: str) -> None:
    invoked.add_response("invoke", {**answer(content), "FunctionError": "Unhandled"}, ANY_REQUEST)
    with pytest.raises(SearchError, match=rf"the function spotkeep-search chose no trials: .*{said}"):
        ask(invoked)


def test_an_answer_that_is_none_is_a_search_that_is_not_known(invoked: Stubber) -> None:
    invoked.add_response("invoke", answer({"trials": []}), ANY_REQUEST)
    with pytest.raises(SearchError, match="its answer cannot be read: Field required"):
        ask(invoked)


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("ResourceNotFoundException", 404, AwsRefusedError),
        ("AccessDeniedException", 403, AwsRefusedError),
        ("TooManyRequestsException", 429, AwsBusyError),
        ("ServiceException", 500, AwsBusyError),
    ],
)
def test_what_calling_again_does_not_mend_is_refused(
    invoked: Stubber, code: str, status: int, kind: type[Exception]
) -> None:
    invoked.add_client_error("invoke", service_error_code=code, service_message="why", http_status_code=status)
    with pytest.raises(kind, match=f"Invoke failed with {code}: why"):
        ask(invoked)


def test_a_lost_connection_is_worth_a_second_try() -> None:
    nowhere = boto3.client(
        "lambda", region_name="us-east-1", endpoint_url="http://127.0.0.1:1", aws_access_key_id="a",
        aws_secret_access_key="b", config=Config(retries={"total_max_attempts": 1}),
    )  # fmt: skip
    with pytest.raises(AwsBusyError, match="EndpointConnectionError"):
        TpeFunction(lambda: nowhere, function="spotkeep-search")(SEARCHED, (), 1)


def test_one_answer_is_waited_for_and_no_more() -> None:
    """A second try would begin when the launcher's minute is over."""
    environment = {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    with pytest.MonkeyPatch.context() as patched:
        for name, value in environment.items():
            patched.setenv(name, value)
        config: Any = Clients().search_function.meta.config
    assert config.retries["total_max_attempts"] == 1
    assert config.read_timeout + config.connect_timeout < 60


ANY_REQUEST = {"FunctionName": "spotkeep-search", "Payload": ANY}
