"""The credentials of this instance's run, which a function gives to an instance that proves which one it is."""

from __future__ import annotations

import logging
import time
from typing import Callable

from spotkeep_agent.errors import AgentError, CredentialsUnavailableError
from spotkeep_fleet.run_session import AUDIENCE_HEADER, PROOF_BODY, PROOF_CONTENT_TYPE, PROOF_HEADERS
from spotkeep_fleet.signed_fetch import Credentials, FetchError, read_credentials, signed_headers

from .calls import AwsCalls
from .credentials import CurrentCredentials

RENEW_SECONDS = 900.0
"""A quarter of the credentials' hour. For so long the function may be out of reach without harm."""
_logger = logging.getLogger("spotkeep.agent")

_TRIES = 12
_LONGEST_PAUSE_SECONDS = 20.0


class RunCredentials:
    """Asks for the credentials of the run.

    Args:
        calls: With the instance's own credentials.
        function: The name of the function `instance_credentials` of the deployment.
    """

    def __init__(self, calls: AwsCalls, *, function: str) -> None:
        self._calls = calls
        self._function = function

    def fetch(self) -> Credentials:
        """Return new credentials.

        Raises:
            FetchError: If there is no answer, or a refusal.
        """
        try:
            answer = self._calls.invoke(self._function, {"headers": self._proof()})
        except AgentError as error:
            raise FetchError(str(error)) from error
        if answer.get("ok") is not True:
            raise FetchError(f"{self._function} gives none: {answer.get('error')}: {answer.get('problem')}")
        try:
            return read_credentials(answer["credentials"])
        except (ValueError, KeyError, TypeError) as error:
            raise FetchError(f"{self._function} answered no credentials: {error!r}") from error

    def _proof(self) -> dict[str, str]:
        """Sign a request for sts:GetCallerIdentity, which the function sends to STS."""
        signed = signed_headers(
            method="POST",
            url=self._calls.endpoint("sts") + "/",
            region=self._calls.region,
            service="sts",
            headers={"content-type": PROOF_CONTENT_TYPE, AUDIENCE_HEADER: self._function},
            body=PROOF_BODY,
            credentials=self._calls.credentials.get(),
            at=time.time(),
        )
        return {name: signed[name] for name in PROOF_HEADERS if name in signed}


def wait_for(credentials: CurrentCredentials, *, sleep: Callable[[float], None]) -> None:
    """Wait for credentials, up to some three minutes.

    EC2 may not know a new instance yet. Lambda may throttle the function when all instances of an interrupted zone
    invoke it.

    Raises:
        CredentialsUnavailableError: There are none. The message has the last reason.
    """
    problem = ""
    for attempt in range(_TRIES):
        if attempt:
            sleep(min(2.0**attempt, _LONGEST_PAUSE_SECONDS))
        try:
            credentials.get()
        except FetchError as error:
            problem = str(error)
            _logger.warning("no credentials of the run yet: %s", problem)
        else:
            return
    raise CredentialsUnavailableError(f"this instance gets no credentials of its run: {problem}")
