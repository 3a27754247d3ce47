"""Invokes the function `search`, which chooses trials by tpe. No other module invokes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pydantic import ValidationError

from spotkeep_jobs.errors import SearchError
from spotkeep_jobs.sweeps.search.search import Begin, Move, SearchPlan, TrialResult
from spotkeep_jobs.sweeps.search.tpe_request import TpeAnswer, TpeRequest
from spotkeep_jobs.temporary_errors import typed_errors

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.settings import LauncherSettings

Tpe = Callable[[SearchPlan, Sequence[TrialResult], int], Sequence[Move]]
"""Chooses the next trials of a search by tpe."""


def tpe_of(deployment: Deployment[LauncherSettings]) -> Tpe | None:
    """Return the search by tpe. None in a deployment without the function `search`."""
    function = deployment.settings.tpe_search_function
    return None if function is None else TpeFunction(lambda: deployment.clients.search_function, function=function)


class TpeFunction:
    """The function, on a boto3 client that is made when it is first needed. Most sweeps need none."""

    def __init__(self, make_client: Callable[[], LambdaClient], *, function: str) -> None:
        """Bind the function.

        Args:
            make_client: Makes the client, which asks once.
            function: The function's name.
        """
        self._make_client = make_client
        self._function = function

    def __call__(self, plan: SearchPlan, trials: Sequence[TrialResult], free: int, /) -> Sequence[Begin]:
        """Return the trials that begin now.

        Args:
            plan: The plan of the search, by tpe.
            trials: Those begun, in any order.
            free: The number of further trials that may run.

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
    """Return the message of Lambda about a function that failed.

    Source: https://docs.aws.amazon.com/lambda/latest/dg/python-exceptions.html
    """
    try:
        said = json.loads(content)
        return f"{said.get('errorType', 'it failed')}: {said['errorMessage']}"[:500]
    except (ValueError, LookupError, AttributeError):
        return f"it failed, with {content[:200]!r}"
