"""Two ways to call the launcher.

One is its URL, where AWS names the caller. The other is a direct invocation, where there is no URL.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.exceptions import ClientError, HTTPClientError, NoCredentialsError
from botocore.exceptions import ConnectionError as AwsConnectionError
from botocore.httpsession import URLLib3Session

from spotkeep_cli.aws.calls import ClientFactory, repeat_hint, translated_aws_errors
from spotkeep_cli.bounded_reading import read_answer
from spotkeep_cli.errors import CommandLineError, LauncherError, NoConnectionError

if TYPE_CHECKING:
    from botocore.credentials import Credentials

    from spotkeep_cli.aws.connection_options import ConnectionOptions

_ATTEMPTS = 4
_CONNECT_SECONDS = 5
_ANSWER_SECONDS = 120
"""Seconds to wait for an answer. They are more than the launcher may take, so no late answer is given up."""
_MOST_ANSWER_BYTES = 8 * 1024 * 1024
"""A function's answer has at most 6 MB."""
_UNFINISHED = {"LaunchUnfinishedError", "Sandbox.Timedout", "Runtime.ExitError"}
"""The launcher does not know if the request came through. Asking again is how one finds out."""
_CODES = {403: "AccessDeniedException", 413: "RequestTooLargeException", 429: "TooManyRequestsException"}


class _UnfinishedError(LauncherError):
    """The launcher could not report if it completed the request."""


def ask_until_answered(
    call: LauncherCall, payload: Mapping[str, Any], *, sleep: Callable[[float], None]
) -> dict[str, Any]:
    """Ask, and ask again where the connection broke or AWS was busy.

    A launch carries its token, so the same payload again answers the same and launches nothing twice.

    Raises:
        LauncherError: The function failed, or its answer is not a JSON object.
        NoConnectionError: The call did not come through.
    """
    for attempt in range(_ATTEMPTS - 1):
        try:
            return call.ask(payload)
        except (NoConnectionError, LauncherError) as error:
            if not _worth_repeating(error):
                raise
        sleep(2**attempt / 2)
    return call.ask(payload)


def _worth_repeating(error: CommandLineError) -> bool:
    if isinstance(error, _UnfinishedError):
        return True
    cause = error.__cause__
    if isinstance(cause, ClientError):
        status = cause.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return status == 429 or status >= 500
    return isinstance(cause, AwsConnectionError | HTTPClientError)


class DirectInvocation:
    """`lambda:InvokeFunction`, as `aws lambda invoke` does.

    Args:
        function: The launcher's name.
        client: Makes boto3 clients.
        options: The user's options for the deployment, for hints.
    """

    def __init__(self, function: str, *, client: ClientFactory, options: ConnectionOptions) -> None:
        self._function = function
        self._options = options
        # botocore would repeat a call whose answer is late; here each repeat is ours, and the last error is raised.
        config = Config(
            read_timeout=_ANSWER_SECONDS,
            connect_timeout=_CONNECT_SECONDS,
            retries={"mode": "standard", "total_max_attempts": 1},
        )
        self._client = client("lambda", config=config)

    def ask(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Ask once, and return the answer.

        Raises:
            LauncherError: The function failed, or its answer is not a JSON object.
            NoConnectionError: The call did not come through.
        """
        function = self._function
        with translated_aws_errors(f"invoking {function}", options=self._options, payload=payload):
            answer = self._client.invoke(FunctionName=function, Payload=_as_json(payload))
        content = _read(answer["Payload"], function=function)
        document = _parsed(content, function=function)
        if "FunctionError" in answer:
            kind = document.get("errorType", "error") if isinstance(document, dict) else "error"
            words = str(document.get("errorMessage", document) if isinstance(document, dict) else document)
            message = f"{function} failed with {kind}: {words.splitlines()[0] if words else 'no message'}"
            if kind in _UNFINISHED:
                raise _UnfinishedError(message, hint=repeat_hint(payload))
            raise LauncherError(message, hint=f"its log says more: aws logs tail /aws/lambda/{function}")
        return _an_object(document, function=function)


@dataclass(frozen=True, kw_only=True)
class LauncherUrl:
    """The URL of the launcher, and the identity of its caller.

    Attributes:
        url: The function's URL.
        region: The region of the deployment, which the signature names.
        credentials: Credentials to sign with. None where there are none.
        proxies: Proxies by URL scheme.
        ca_bundle: A file of certificates to trust. Botocore's own when left out.
    """

    url: str
    region: str
    credentials: Callable[[], Credentials | None]
    proxies: Mapping[str, str]
    ca_bundle: str | None = None


class UrlCall:
    """A signed POST to the launcher's URL. AWS verifies the signature and names the caller to the function.

    Source: https://docs.aws.amazon.com/lambda/latest/dg/urls-invocation.html

    Args:
        where: The URL with region, credentials and proxies.
        function: The launcher's name, for messages.
        options: The user's options for the deployment, for hints.
    """

    def __init__(self, where: LauncherUrl, *, function: str, options: ConnectionOptions) -> None:
        self._where = where
        self._function = function
        self._options = options
        self._http = URLLib3Session(
            # The types' stubs know one of the two forms that each takes.
            verify=where.ca_bundle or True,  # type: ignore[arg-type]
            proxies=dict(where.proxies),
            timeout=(_CONNECT_SECONDS, _ANSWER_SECONDS),  # type: ignore[arg-type]
        )

    def ask(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Ask once, and return the answer.

        Raises:
            LauncherError: The function failed, or its answer is not a JSON object.
            NoConnectionError: The call did not come through.
        """
        function = self._function
        with translated_aws_errors(f"calling {function}", options=self._options, payload=payload):
            answer = self._http.send(self._signed(_as_json(payload)))
            content = _read(answer.raw, function=function)
            if answer.status_code not in (200, 400):
                raise _failure(answer.status_code, answer.headers, content, function=function, payload=payload)
        return _an_object(_parsed(content, function=function), function=function)

    def _signed(self, body: bytes) -> Any:
        credentials = self._where.credentials()
        if credentials is None:
            raise NoCredentialsError
        headers = {"content-type": "application/json"}
        request = AWSRequest("POST", self._where.url, headers=headers, data=body, stream_output=True)
        SigV4Auth(credentials.get_frozen_credentials(), "lambda", self._where.region).add_auth(request)
        return request.prepare()


LauncherCall: TypeAlias = DirectInvocation | UrlCall
"""One way to the launcher."""


def _failure(
    status: int, headers: Mapping[str, str], content: bytes, *, function: str, payload: Mapping[str, Any]
) -> _UnfinishedError | ClientError:
    """Return the meaning of a status other than the launcher's own."""
    try:
        document = json.loads(content)
    except ValueError:
        document = None
    words = document if isinstance(document, dict) else {}
    message = str(words.get("message") or words.get("Message") or f"HTTP status {status}").splitlines()[0]
    if status in (502, 504):
        # The function raised, or ran out of time: what it has done is recorded, and asking again finds out.
        hint = f"{repeat_hint(payload)}; its log says more: aws logs tail /aws/lambda/{function}"
        return _UnfinishedError(f"{function} failed: {message}", hint=hint)
    code = str(headers.get("x-amzn-errortype") or _CODES.get(status, "ServiceException")).partition(":")[0]
    return ClientError(
        {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}},  # type: ignore[typeddict-item]
        "InvokeFunctionUrl",
    )


def _as_json(payload: Mapping[str, Any]) -> bytes:
    return json.dumps(payload).encode()


def _read(answer: Any, *, function: str) -> bytes:
    try:
        return read_answer(answer, most_bytes=_MOST_ANSWER_BYTES)
    except OSError as error:
        raise LauncherError(f"the answer of {function} cannot be read: {error.strerror}") from error


def _parsed(content: bytes, *, function: str) -> Any:
    try:
        return json.loads(content)
    except ValueError as error:
        raise LauncherError(
            f"{function} answered {content[:80]!r}, which is not JSON", hint=f"read its log: /aws/lambda/{function}"
        ) from error


def _an_object(document: Any, *, function: str) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise LauncherError(f"{function} answered {document!r}, not an object", hint="is the deployment up to date?")
    return document
