"""How a receiver knows that a notification is ours, and not an old one sent again by a stranger. Pure.

The header `Spotkeep-Signature: t=<epoch seconds>,v1=<hex>` holds the HMAC-SHA256 of `<epoch seconds>.<body>` under the
webhook's secret. Source: https://www.rfc-editor.org/rfc/rfc2104
"""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime
from typing import Final

HEADER: Final = "Spotkeep-Signature"
NOTIFICATION_HEADER: Final = "Spotkeep-Notification"
"""Holds the notification id: the same on every delivery of the same notification."""


def signature(*, secret: str, body: bytes, at: datetime) -> str:
    """Return the signature of a body.

    Args:
        secret: The webhook's secret.
        body: What is posted, byte for byte.
        at: When, aware.
    """
    seconds = int(at.timestamp())
    mac = hmac.new(secret.encode(), f"{seconds}.".encode() + body, hashlib.sha256)
    return f"t={seconds},v1={mac.hexdigest()}"
