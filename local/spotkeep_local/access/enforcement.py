"""Has every request judged before a service sees it. An ASGI application between the admission and the services.

Requests that are no call of AWS pass. They are the health page, answers of custom resources to CloudFormation, and the
control of the local AWS itself. The admission decides about all of these. Calls of the local AWS itself pass too. It
calls as the account's root, because it is AWS.
"""

from __future__ import annotations

import logging
import random
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from spotkeep_local.access.admission import is_control, joined_headers, needs_no_key, send_answer
from spotkeep_local.access.call_rates import SERVICES
from spotkeep_local.capacity import CallFaults
from spotkeep_local.iam.calls import needs_body, read_call, service_of
from spotkeep_local.iam.denial import denial_answer
from spotkeep_local.principals import access_key_id_of
from spotkeep_local.service_base.aws_service import HttpRequest
from spotkeep_local.service_base.clients import service_model
from spotkeep_local.service_base.error_answers import BUSY_ERRORS, error_answer, error_form

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from spotkeep_local.access.call_rates import CallRates
    from spotkeep_local.iam.judge import Judge
    from spotkeep_local.principals import AccessKey
    from spotkeep_local.service_base.aws_service import Operation

_NO_FAULTS: Final = CallFaults()


_LOG = logging.getLogger(__name__)


class UnsureCalls:
    """Hands calls on to the services, or has them meet a fault.

    Args:
        inner: The services.
        rates: The rates at which they are accepted.
    """

    def __init__(self, inner: Callable[..., Awaitable[None]], *, rates: CallRates) -> None:
        self._inner = inner
        self._rates = rates
        self.set_faults(_NO_FAULTS)

    def set_faults(self, faults: CallFaults) -> None:
        """Set the faults of calls from now on."""
        self._faults = faults
        self._chance = random.Random(faults.seed)  # noqa: S311 - to be repeated

    def control_operations(self) -> dict[str, Operation]:
        """Return the control plane's operations about calls."""

        def call_faults(request: dict[str, Any]) -> dict[str, Any]:
            self.set_faults(CallFaults.from_document(request))
            return {}

        def call_counts(_request: dict[str, Any]) -> dict[str, Any]:
            return asdict(self._rates.counts())

        return {"CallCounts": call_counts, "CallFaults": call_faults}

    async def hand_on(self, request: HttpRequest, scope: Any, receive: Any, send: Any) -> None:
        """Make a call.

        Args:
            request: The call, as it was judged.
            scope: The scope, as ASGI defines it.
            receive: ASGI's `receive`, which begins with the body, also where `request` has it.
            send: ASGI's `send`.
        """
        service = service_of(request)
        errors = BUSY_ERRORS.get(service or "")
        faults = self._faults if self._faults.service in (None, service) else _NO_FAULTS
        drawn = self._chance.random()
        # What is throttled by chance takes no one's place, and is not counted.
        throttled = drawn < faults.throttled or not self._rates_take(request, service)
        if service is None or errors is None or not (throttled or drawn < faults.throttled + faults.lost):
            await self._inner(scope, receive, send)
            return
        if throttled:
            code, status, message = errors.throttle, errors.throttle_status, "Rate exceeded"
            # A client that still sends its body does not read the answer.
            while not needs_body(request) and (await receive()).get("more_body"):
                pass
        else:
            code, status, message = errors.server_error, 500, "We encountered an internal error. Please try again."
            await self._inner(scope, receive, _nowhere)
        form = error_form(request.headers, protocol=service_model(service).resolved_protocol)
        answer = error_answer(form, code=code, message=message, status=status)
        await send_answer(send, answer, method=request.method)

    def _rates_take(self, request: HttpRequest, service: str | None) -> bool:
        # By the clock that callers live by: a local AWS whose EC2 is faster than AWS's has callers that are not.
        return service not in SERVICES or self._rates.takes(read_call(request).operation, at=time.monotonic())


async def _nowhere(_message: Any) -> None:
    """Lose an answer."""


class Enforcement:
    """Answers denied requests, and hands on the rest.

    Args:
        inner: The services.
        judge: Decides about each request.
        find: Returns the key with an id, or None when it was not issued.
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
