"""Systems Manager's sessions. No other module calls its client.

A session is a shell, or one command, in a container of a training job or on an instance. It needs no open port, because
the agent there holds a connection to AWS. The token of a session lets its holder in once. It is not logged.

Source: https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_StartSession.html
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spotkeep_jobs.temporary_errors import typed_errors

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient

NOT_CONNECTED: Final = "TargetNotConnected"
"""The code of StartSession's error for a target with an agent that has no connection to AWS."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """A session that was started.

    Attributes:
        id: Its id.
        token: The secret that lets its holder in.
        stream_url: The WebSocket address of the session.
    """

    id: str
    token: str = field(repr=False)
    stream_url: str


class SessionManager:
    """The interface to Systems Manager.

    Its boto3 client is created at its first use, because most invocations need none.
    """

    def __init__(self, make_client: Callable[[], SSMClient]) -> None:
        self._make_client = make_client

    def start(self, parameters: Mapping[str, Any], /) -> Session:
        """Start a session.

        Args:
            parameters: The parameters of StartSession.

        Raises:
            AwsRefusedError: The target is not there, its agent is not connected (`NOT_CONNECTED`), or IAM denied it.
            AwsBusyError: AWS could not answer.
        """
        with typed_errors("start_session"):
            answer = self._make_client().start_session(**parameters)
        return Session(id=answer["SessionId"], token=answer["TokenValue"], stream_url=answer["StreamUrl"])
