"""Has every request judged before a service sees it: an ASGI application between the admission and the services.

What is not a call of AWS passes: the health page, answers of custom resources to CloudFormation, and the control of the
local AWS itself, all of which the admission decides about. The local AWS itself, which calls as the account's root,
passes too: it is AWS.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from spotkeep_local.access.admission import is_control, joined_headers, needs_no_key, send_answer
from spotkeep_local.access.issued_credentials import access_key_id_of
from spotkeep_local.iam.calls import needs_body
from spotkeep_local.iam.denial import denial_answer
from spotkeep_local.service_base.aws_service import HttpRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from spotkeep_local.access.issued_credentials import AccessKey
    from spotkeep_local.access.unsure_calls import UnsureCalls
    from spotkeep_local.iam.judge import Judge

_LOG = logging.getLogger(__name__)


class Enforcement:
    """Answers what is denied, and hands on the rest.

    Args:
        inner: The services.
        judge: Decides.
        find: The key with an id; None when it was not issued.
        calls: Makes the calls that are allowed.
    """

    def __init__(
        self,
        inner: Callable[..., Awaitable[None]],
        *,
        judge: Judge,
        find: Callable[[str], AccessKey | None],
        calls: UnsureCalls,
    ) -> None:
        self._inner = inner
        self._calls = calls
        self._judge = judge
        self._find = find

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Judge one request."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        headers = joined_headers(scope["headers"])
        query = scope["query_string"].decode("latin-1")
        if needs_no_key(scope["method"], scope["path"]) or is_control(headers, scope["path"]):
            await self._inner(scope, receive, send)
            return
        key = self._find(access_key_id_of(headers, query) or "")
        if key is None or key.principal.arn.endswith(":root"):
            await self._inner(scope, receive, send)
            return
        request = HttpRequest(
            method=scope["method"],
            path=scope["raw_path"].decode("latin-1"),
            headers=headers,
            query=parse_qs(query, keep_blank_values=True),
        )
        if needs_body(request):
            messages = await _body(receive)
            request = replace(request, body=b"".join(message.get("body", b"") for message in messages))
            receive = _again(messages, receive)
        denial = self._judge.denial(request, key)
        if denial is None:
            await self._calls.hand_on(request, scope, receive, send)
            return
        _LOG.warning("denied: %s", denial.message)
        # A client that still sends its body does not read the answer.
        while not needs_body(request) and (await receive()).get("more_body"):
            pass
        await send_answer(send, denial_answer(denial, headers=headers), method=request.method)


async def _body(receive: Any) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    while True:
        message = await receive()
        messages.append(message)
        if message["type"] != "http.request" or not message.get("more_body"):
            return messages


def _again(messages: list[dict[str, Any]], receive: Any) -> Any:
    left = iter(messages)

    async def receive_again() -> Any:
        return next(left, None) or await receive()

    return receive_again
