"""Posts to the team's address, with a signature. No other module makes HTTP requests.

The signature proves to a receiver that a notification is Spotkeep's, and not an old one sent again by a stranger. The
header `Spotkeep-Signature: t=<epoch seconds>,v1=<hex>` holds the HMAC-SHA256 of `<epoch seconds>.<body>` under the
webhook's secret. Source: https://www.rfc-editor.org/rfc/rfc2104
"""

from __future__ import annotations

import hashlib
import hmac
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from spotkeep_jobs.errors import SpotkeepJobsError

HEADER: Final = "Spotkeep-Signature"
NOTIFICATION_HEADER: Final = "Spotkeep-Notification"
"""The header with the notification's id. It is the same on every delivery of the same notification."""
TIMEOUT_SECONDS: Final = 10


class NotDeliveredError(SpotkeepJobsError):
    """The address did not take a notification. Lambda tries again, and puts it into the dead-letter queue at last."""

    def __init__(self, *, notification_id: str, reason: str) -> None:
        super().__init__(
            f"notification {notification_id} was not taken by the webhook: {reason}. "
            "Check that its address answers with 2xx"
        )
        self.notification_id = notification_id


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, which would take a signed notification to another server."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


_opener: Final = urllib.request.build_opener(_NoRedirects)


def post(*, url: str, body: bytes, headers: Mapping[str, str], notification_id: str) -> int:
    """Post a body.

    Args:
        url: The team's address.
        body: The body of the request.
        headers: The headers of the request.
        notification_id: The notification's id, for the error.

    Returns:
        The answer's status, 2xx.

    Raises:
        NotDeliveredError: The address answered with another status, or not at all.
    """
    request = urllib.request.Request(url, data=body, headers=dict(headers), method="POST")  # noqa: S310 - a setting
    try:
        with _opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        raise NotDeliveredError(notification_id=notification_id, reason=f"it answered {error.code}") from error
    except OSError as error:
        raise NotDeliveredError(notification_id=notification_id, reason=f"no answer ({error})") from error


def signature(*, secret: str, body: bytes, at: datetime) -> str:
    """Return the signature of a body.

    Args:
        secret: The webhook's secret.
        body: The body of the request, byte for byte.
        at: The time of the request, aware.
    """
    seconds = int(at.timestamp())
    mac = hmac.new(secret.encode(), f"{seconds}.".encode() + body, hashlib.sha256)
    return f"t={seconds},v1={mac.hexdigest()}"
