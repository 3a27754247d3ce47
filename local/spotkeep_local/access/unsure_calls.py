"""Makes calls as unsure as AWS's are: some are throttled, and of some the answer is lost after they took effect.

What comes faster than AWS takes it (`call_rates`) is throttled, unless the options say otherwise; the rest is off until
the control asks for it. What is asked of a service that is not in `busy_errors` is answered, and so is what the local
AWS asks of itself: that never comes here.
"""

from __future__ import annotations

import random
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from spotkeep_local.access.admission import send_answer
from spotkeep_local.access.call_rates import SERVICES
from spotkeep_local.capacity import CallFaults
from spotkeep_local.iam.calls import needs_body, read_call, service_of
from spotkeep_local.service_base.busy_errors import BUSY_ERRORS
from spotkeep_local.service_base.error_answers import error_answer, error_form
from spotkeep_local.service_base.service_models import service_model

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from spotkeep_local.access.call_rates import CallRates
    from spotkeep_local.service_base.aws_service import HttpRequest, Operation

_NO_FAULTS: Final = CallFaults()


class UnsureCalls:
    """Hands calls on to the services, or has them meet a fault.

    Args:
        inner: The services.
        rates: How fast they may come.
    """

    def __init__(self, inner: Callable[..., Awaitable[None]], *, rates: CallRates) -> None:
        self._inner = inner
        self._rates = rates
        self.set_faults(_NO_FAULTS)

    def set_faults(self, faults: CallFaults) -> None:
        """Set what calls meet from now on."""
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
            receive: ASGI's `receive`; begins with the body, also where `request` has it.
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
