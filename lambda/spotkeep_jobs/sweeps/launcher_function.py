"""Asks the launcher's function to advance a sweep: what the controller does when a trial ends, and with each pass."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.temporary_errors import typed_errors

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

ADVANCE: Final = "advance-sweep"
"""The action of the launcher. It does only what the record asks for, so it may be asked for at any time."""


class LauncherFunction:
    """The launcher, invoked asynchronously: Lambda tries again what fails, and a pass of the controller after that."""

    def __init__(self, client: Callable[[], LambdaClient], *, function_name: str) -> None:
        """Bind the function.

        Args:
            client: Makes the Lambda client, when it is needed.
            function_name: The launcher's name.
        """
        self._client = client
        self._function_name = function_name

    def advance(self, sweep: str, *, ended_runs: Collection[str] | None = None) -> None:
        """Ask the launcher to advance a sweep.

        Args:
            sweep: Its id.
            ended_runs: The runs of trials that something happened to; None to have them all read.

        Raises:
            AwsCallError: Lambda did not take it; a later pass asks again.
        """
        payload = {"action": ADVANCE, "sweep": sweep} | ({} if ended_runs is None else {"runs": sorted(ended_runs)})
        with typed_errors("invoke"):
            self._client().invoke(
                FunctionName=self._function_name, InvocationType="Event", Payload=json.dumps(payload).encode()
            )
