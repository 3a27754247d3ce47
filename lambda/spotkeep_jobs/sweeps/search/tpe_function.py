"""The function `search`, which chooses trials by tpe: the only module that invokes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from botocore.config import Config
from pydantic import ValidationError

from spotkeep_jobs.errors import SearchError
from spotkeep_jobs.sweeps.search.moves import Begin, TrialResult
from spotkeep_jobs.sweeps.search.search import SearchPlan
from spotkeep_jobs.sweeps.search.tpe_request import LONGEST_CHOICE_SECONDS, TpeAnswer, TpeRequest
from spotkeep_jobs.temporary_errors import typed_errors

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient


def invocation_config() -> Config:
    """Return how the client must be set up: it waits for one answer, and the sweep's next advance asks again."""
    return Config(
        retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=3, read_timeout=LONGEST_CHOICE_SECONDS
    )


class TpeFunction:
    """The function, on a boto3 client that is made when it is first needed: most sweeps need none."""

    def __init__(self, make_client: Callable[[], LambdaClient], *, function: str) -> None:
        """Bind the function.

        Args:
            make_client: Makes the client, with `invocation_config`.
            function: The function's name.
        """
        self._make_client = make_client
        self._function = function

    def __call__(self, plan: SearchPlan, trials: Sequence[TrialResult], free: int, /) -> Sequence[Begin]:
        """Return the trials that begin now.

        Args:
            plan: What is searched, by tpe.
            trials: Those that were begun, in any order.
            free: How many more trials may run.

        Returns:
            At most `free` trials, and no more than the function chooses at once.

        Raises:
            SearchError: The function failed, or its answer is none.
            AwsRefusedError: The function is not there, or may not be invoked.
            AwsBusyError: AWS could not answer.
        """
        request = TpeRequest.of(plan, trials=trials, free=free)
        with typed_errors("invoke"):
            answer = self._make_client().invoke(FunctionName=self._function, Payload=request.model_dump_json().encode())
            content = answer["Payload"].read()
        if "FunctionError" in answer:
            raise SearchError(function=self._function, reason=_failure(content))
        try:
            return TpeAnswer.model_validate_json(content).chosen
        except ValidationError as error:
            reason = f"its answer cannot be read: {error.errors(include_url=False)[0]['msg']}"
            raise SearchError(function=self._function, reason=reason) from error


def _failure(content: bytes) -> str:
    """Return what Lambda says of a function that failed.

    Source: https://docs.aws.amazon.com/lambda/latest/dg/python-exceptions.html
    """
    try:
        said = json.loads(content)
        return f"{said.get('errorType', 'it failed')}: {said['errorMessage']}"[:500]
    except (ValueError, LookupError, AttributeError):
        return f"it failed, with {content[:200]!r}"
