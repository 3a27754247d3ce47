"""Asks the launcher's function to advance a sweep.

The controller does when a trial ends and with each pass, and the launcher itself where it has no time left.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.temporary_errors import typed_errors

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.settings import ControllerSettings

ADVANCE: Final = "advance-sweep"
"""The action of the launcher. It does only the work that the record asks for, so it may be called at any time."""
MOST_IN_A_ROW: Final = 10
"""The number of times that the launcher goes on by itself with a sweep, one function after the other.

Then a pass of the controller, which comes every five minutes, begins anew. Lambda ends a function that invokes itself
about 16 times in a row.

Source: https://docs.aws.amazon.com/lambda/latest/dg/invocation-recursion.html
"""


def launcher_of(deployment: Deployment[ControllerSettings]) -> LauncherFunction:
    """Return the launcher, as the controller invokes it."""
    return LauncherFunction(lambda: deployment.clients.functions, function_name=deployment.settings.launcher_function)


class LauncherFunction:
    """The launcher, invoked asynchronously.

    Lambda retries a call that fails, and after that a pass of the controller asks again.
    """

    def __init__(self, client: Callable[[], LambdaClient], *, function_name: str) -> None:
        """Bind the function.

        Args:
            client: Makes the Lambda client, when it is needed.
            function_name: The launcher's name.
        """
        self._client = client
        self._function_name = function_name

    def advance(self, sweep: str, *, ended_runs: Collection[str] | None = None, in_a_row: int = 0) -> None:
        """Ask the launcher to advance a sweep.

        Args:
            sweep: Its id.
            ended_runs: The runs of trials that something happened to. None to have them all read.
            in_a_row: The number of functions before it that had no time left and asked the next.

        Raises:
            AwsCallError: Lambda did not take it. A later pass asks again.
        """
        payload: dict[str, object] = {"action": ADVANCE, "sweep": sweep}
        payload |= ({} if ended_runs is None else {"runs": sorted(ended_runs)}) | (
            {"in_a_row": in_a_row} if in_a_row else {}
        )
        with typed_errors("invoke"):
            self._client().invoke(
                FunctionName=self._function_name, InvocationType="Event", Payload=json.dumps(payload).encode()
            )
