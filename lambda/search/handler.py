"""The Lambda entry point: the launcher asks which trials of a sweep by TPE follow.

It knows no run and calls nothing of AWS: all it needs is in the event. What it cannot read is raised, for only the
launcher invokes it, and the two are deployed together.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from aws_lambda_powertools import Logger

from search.tpe import chosen_trials
from spotkeep_jobs.sweeps.search.tpe_request import TpeAnswer, TpeRequest

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

_SERVICE: Final = os.environ.get("POWERTOOLS_SERVICE_NAME", "search")

logger = Logger(service=_SERVICE)


@logger.inject_lambda_context(clear_state=True)
def handler(event: object, context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001 -- Lambda passes it
    """Answer which trials follow.

    Args:
        event: A `TpeRequest`.
        context: Lambda's.

    Returns:
        A `TpeAnswer`.

    Raises:
        pydantic.ValidationError: The event is no such request.
    """
    request = TpeRequest.model_validate(event)
    answer = TpeAnswer(chosen=tuple(chosen_trials(request)))
    logger.info("chose trials", begun=len(request.begun), free=request.free, chosen=len(answer.chosen))
    return answer.model_dump(mode="json")
