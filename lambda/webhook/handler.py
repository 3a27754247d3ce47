"""The Lambda entry point. It posts a notification from SNS to the team's address, with a signature.

An event without a notification gets an answer and goes nowhere. A failed delivery is raised. Lambda then tries twice
more. After that the notification waits in the function's dead-letter queue, and an alarm reports it.

The signature proves to a receiver that a notification is Spotkeep's, and not an old one sent again by a stranger. The
header `Spotkeep-Signature: t=<epoch seconds>,v1=<hex>` holds the HMAC-SHA256 of `<epoch seconds>.<body>` under the
webhook's secret. Source: https://www.rfc-editor.org/rfc/rfc2104
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import boto3
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from pydantic import SecretStr

from spotkeep_jobs.backends.sagemaker.api import client_config
from spotkeep_jobs.errors import SpotkeepJobsError
from spotkeep_jobs.notifications.outbox import chat_text
from spotkeep_jobs.settings import WebhookSettings
from spotkeep_jobs.tracing import traced

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

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


_SERVICE: Final = os.environ.get("POWERTOOLS_SERVICE_NAME", "webhook")

logger = Logger(service=_SERVICE)
metrics = Metrics(namespace=os.environ.get("POWERTOOLS_METRICS_NAMESPACE", "Spotkeep"), service=_SERVICE)


_ADDRESS: Final = re.compile(r"https://[^\s/?#@]+(/[^\s#]*)?")


class AddressError(SpotkeepJobsError):
    """The team's secret holds no address. The error does not show the secret's content."""

    def __init__(self, secret_arn: str) -> None:
        super().__init__(
            f"the secret {secret_arn} (the setting webhook_secret_arn) holds no https address as plain text. Put one "
            f"in: aws secretsmanager put-secret-value --secret-id {secret_arn} --secret-string https://..."
        )


@functools.cache
def _read_target() -> tuple[str, SecretStr]:
    secrets = boto3.client("secretsmanager", config=client_config())
    settings = WebhookSettings.from_environment()
    secret_arns = (settings.webhook_address_secret_arn, settings.webhook_secret_arn)
    address, secret = (secrets.get_secret_value(SecretId=arn).get("SecretString", "") for arn in secret_arns)
    if not _ADDRESS.fullmatch(address.strip()):
        raise AddressError(secret_arns[0])
    return address.strip(), SecretStr(secret)


def production_target() -> tuple[str, SecretStr]:
    """Return the team's address and the secret of its signatures, read once for each execution environment.

    Raises:
        AddressError: The team's secret holds no address.
    """
    return _read_target()


@traced
@metrics.log_metrics(capture_cold_start_metric=True)
@logger.inject_lambda_context(clear_state=True)
def handler(event: object, context: LambdaContext) -> dict[str, Any]:  # noqa: ARG001 - Lambda passes both
    """Post the notifications of an event.

    Args:
        event: The event with which SNS invokes a function. It may be anything at all, when another caller invokes it.
        context: Lambda's context.

    Returns:
        The posted notifications. `"ok": false` for an event without a notification.

    Raises:
        NotDeliveredError: The address did not take a notification.
        AddressError: There is no address.
    """
    notifications = notifications_of(event)
    if not notifications:
        logger.warning("ignored an event", problem="it holds no notification of Spotkeep's")
        metrics.add_metric(name="EventRefused", unit=MetricUnit.Count, value=1)
        return {"ok": False, "error": "no-notification", "problem": "the event holds no notification of Spotkeep's"}
    url, secret = production_target()
    for notification_id, body in notifications.items():
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "Spotkeep",
            NOTIFICATION_HEADER: notification_id,
            HEADER: signature(secret=secret.get_secret_value(), body=body, at=datetime.now(UTC)),
        }
        try:
            status = post(url=url, body=body, headers=headers, notification_id=notification_id)
        except NotDeliveredError:
            metrics.add_metric(name="NotificationNotPosted", unit=MetricUnit.Count, value=1)
            _read_target.cache_clear()  # The team may have put another address into its secret meanwhile.
            raise
        logger.info("posted", notification_id=notification_id, status=status)
    metrics.add_metric(name="NotificationPosted", unit=MetricUnit.Count, value=len(notifications))
    return {"ok": True, "posted": list(notifications)}


def notifications_of(event: object) -> dict[str, bytes]:
    """Return the documents of an event's notifications, by notification id.

    Args:
        event: The event with which SNS invokes a function.
            Source: https://docs.aws.amazon.com/lambda/latest/dg/with-sns.html
    """
    records = event.get("Records") if isinstance(event, Mapping) else None
    found: dict[str, bytes] = {}
    for record in records if isinstance(records, list) else []:
        message = record.get("Sns") if isinstance(record, Mapping) else None
        text = message.get("Message") if isinstance(message, Mapping) else None
        try:
            document = json.loads(text) if isinstance(text, str) else None
        except (ValueError, RecursionError):
            continue
        if not isinstance(document, Mapping):
            continue
        notification_id = document.get("notification_id")
        if isinstance(notification_id, str) and notification_id.isascii() and notification_id.isprintable():
            found[notification_id] = _for_a_chat(document)
    return found


def _for_a_chat(document: Mapping[str, Any]) -> bytes:
    """Add `text` in Markdown, which a chat shows. The address is often a chat's."""
    shown = {name: chat_text(text) for name in ("subject", "text") if isinstance(text := document.get(name), str)}
    return json.dumps({**document, **shown}).encode()
