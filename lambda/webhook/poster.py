"""Posts to the team's address: the only module that speaks HTTP."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Final

from spotkeep_jobs.errors import SpotkeepJobsError

TIMEOUT_SECONDS: Final = 10


class NotDeliveredError(SpotkeepJobsError):
    """The address did not take a notification; Lambda tries again, and puts it into the dead-letter queue at last."""

    def __init__(self, *, notification_id: str, reason: str) -> None:
        super().__init__(
            f"notification {notification_id} was not taken by the webhook: {reason}. "
            "Check that its address answers with 2xx"
        )
        self.notification_id = notification_id


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would take a signed notification to the server that the address names."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


_opener: Final = urllib.request.build_opener(_NoRedirects)


def post(*, url: str, body: bytes, headers: Mapping[str, str], notification_id: str) -> int:
    """Post a body.

    Args:
        url: The team's address.
        body: What is posted.
        headers: Beside it.
        notification_id: For the error.

    Returns:
        The answer's status, 2xx.

    Raises:
        NotDeliveredError: It answered otherwise, or not at all.
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
