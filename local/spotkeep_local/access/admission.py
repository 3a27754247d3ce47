"""The rules for the requests that the local AWS answers, applied before any service sees them.

A web page of any site can send requests to a port of this machine, and so can every process and every user of it.
Behind the port, a few requests create a function and invoke it. So each request must show that its client is meant to
have access.

- Its `Host` is this port on loopback. A page whose name was rebound to 127.0.0.1 sends its own name.

- It has neither `Origin` nor a `Sec-Fetch-` header. Browsers add them, clients of AWS do not.

- It names an access key that this local AWS issued, with its session token where it has one (`issued_credentials`).

- Operations that AWS does not have, such as scripted capacity and interruptions, need the key of the person at the
  command line.

Answers carry no CORS headers. WebSockets are not subject to CORS, and are refused altogether.

Two kinds of requests need no key. The health page shows the server's process and the random text that it was started
with. The address at which CloudFormation waits for a custom resource carries a random token of its own, as AWS's
presigned one does.

Sources: "Forbidden request header" in MDN. "Common errors" in the references of IAM, DynamoDB, S3 and EC2.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from spotkeep_local.principals import access_key_id_of, session_token_of
from spotkeep_local.service_base.error_answers import ErrorForm, error_answer, error_form

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from spotkeep_local.principals import AccessKey
    from spotkeep_local.service_base.error_answers import ErrorAnswer

HEALTH_PATH = "/_spotkeep/health"
_RESPONSES_OF_CUSTOM_RESOURCES = "/_ministack/cfn-response/"
_LOG = logging.getLogger(__name__)
_DENIED = ("AccessDenied", "UnauthorizedOperation", "AccessDenied", "AccessDeniedException")


class Refusal(Enum):
    """The reasons for refusing a request.

    Each has the error codes of S3, EC2, the query protocol and the others, and a sentence.
    """

    FOREIGN_HOST = (_DENIED, "The local AWS answers requests to its own address on this machine only.")
    BROWSER = (_DENIED, "The local AWS answers no requests of web pages.")
    UNSIGNED = (
        ("AccessDenied", "AuthFailure", "MissingAuthenticationToken", "MissingAuthenticationTokenException"),
        "The request is not signed. `spotkeep local env` prints the credentials of the local AWS.",
    )
    UNKNOWN_KEY = (
        ("InvalidAccessKeyId", "AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException"),
        "The security token included in the request is invalid: this local AWS did not issue the access key. "
        "`spotkeep local env` prints the one it did.",
    )
    NOT_THE_PERSON = (_DENIED, "Functions, instances and jobs cannot control the local AWS itself.")
    EXPIRED = (
        ("ExpiredToken", "RequestExpired", "ExpiredToken", "ExpiredTokenException"),
        "The security token included in the request is expired.",
    )


@dataclass(frozen=True, kw_only=True)
class Request:
    """The parts of a request that decide about its admission.

    Attributes:
        headers: The headers by their names in lower case. The values of a repeated one are joined by `, `, as HTTP has
            it.
        query: The query as sent, without the question mark.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    query: str = ""


def refusal(request: Request, *, port: int, find: Callable[[str], AccessKey | None], now: float) -> Refusal | None:
    """Decide about a request.

    Args:
        request: The request as it arrived.
        port: The port of the local AWS.
        find: Returns the key with an id. None when it was not issued.
        now: The time in epoch seconds.

    Returns:
        The refusal. None for a request that is answered.
    """
    headers = request.headers
    if headers.get("host", "").lower() not in {f"{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]")}:
        return Refusal.FOREIGN_HOST
    if "origin" in headers or any(name.startswith("sec-fetch-") for name in headers):
        return Refusal.BROWSER
    if needs_no_key(request.method, request.path):
        return None
    access_key_id = access_key_id_of(headers, request.query)
    if access_key_id is None:
        return Refusal.UNSIGNED
    key = find(access_key_id)
    if key is None or not key.allows(session_token_of(headers, request.query)):
        return Refusal.UNKNOWN_KEY
    if key.expires_at is not None and key.expires_at <= now:
        return Refusal.EXPIRED
    is_session = ":assumed-role/" in key.principal.arn
    return Refusal.NOT_THE_PERSON if is_session and is_control(headers, request.path) else None


def needs_no_key(method: str, path: str) -> bool:
    """Return whether a request is for the health page, or answers CloudFormation for a custom resource."""
    if method == "GET" and path == HEALTH_PATH:
        return True
    return method == "PUT" and path.startswith(_RESPONSES_OF_CUSTOM_RESOURCES)


def is_control(headers: Mapping[str, str], path: str) -> bool:
    """Return whether a request is for the control of the local AWS itself, which AWS does not have."""
    return headers.get("x-amz-target", "").startswith("SpotkeepLocal") or path.startswith("/_ministack/")


def answer(refused: Refusal, request: Request) -> ErrorAnswer:
    """Return status, headers and body of a refusal, in the form that the client of the request's service reads."""
    codes, message = refused.value
    s3, ec2, query, other = codes
    service = _signing_name(request.headers.get("authorization", ""))
    # Nothing of the request is believed yet, so no model of a service is read for it.
    form = error_form(request.headers, protocol={"s3": "rest-xml", "ec2": "ec2"}.get(service))
    code = {ErrorForm.S3: s3, ErrorForm.EC2: ec2, ErrorForm.QUERY: query}.get(form, other)
    return error_answer(form, code=code, message=message, status=401 if code == "AuthFailure" else 403)


def _signing_name(authorization: str) -> str:
    scope = authorization.partition("Credential=")[2].partition(",")[0].split("/")
    return scope[3] if len(scope) == 5 else ""


class Admission:
    """An ASGI application in front of another one, which sees admitted requests alone.

    Args:
        inner: The other application.
        port: The port of the local AWS.
        find: Returns the key with an id. None when it was not issued.
    """

    def __init__(
        self, inner: Callable[..., Awaitable[None]], *, port: int, find: Callable[[str], AccessKey | None]
    ) -> None:
        self._inner = inner
        self._port = port
        self._find = find

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer refused requests, and hand on the rest."""
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] == "http":
            request = Request(
                method=scope["method"],
                path=scope["path"],
                headers=joined_headers(scope["headers"]),
                query=scope["query_string"].decode("latin-1"),
            )
            refused = refusal(request, port=self._port, find=self._find, now=time.time())
            if refused is None:
                await self._inner(scope, receive, _without_cors(send))
            else:
                _LOG.warning("refused %s %r: %s", request.method, request.path[:200], refused.name)
                await _refuse(refused, request, receive, send)


async def _refuse(refused: Refusal, request: Request, receive: Any, send: Any) -> None:
    # A client that still sends its body does not read the answer.
    while (message := await receive())["type"] == "http.request" and message.get("more_body"):
        pass
    await send_answer(send, answer(refused, request), method=request.method)


async def send_answer(send: Any, answered: ErrorAnswer, *, method: str) -> None:
    """Send a whole answer. Of one to HEAD without its body.

    Args:
        send: ASGI's `send`.
        answered: Status, headers and body.
        method: Of the request.
    """
    status, headers, body = answered
    encoded = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})


def joined_headers(headers: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return headers by their names in lower case. The values of one that is repeated are joined, as HTTP has it."""
    joined: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined


def _without_cors(send: Any) -> Any:
    async def send_without_cors(message: Any) -> None:
        if message["type"] == "http.response.start":
            kept = [pair for pair in message.get("headers", []) if not pair[0].lower().startswith(b"access-control-")]
            message = {**message, "headers": kept}
        await send(message)

    return send_without_cors
