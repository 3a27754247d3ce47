"""How the control plane of a local AWS is reached: JSON over the endpoint that everything else uses."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from spotkeep_local.bounded_reading import read_answer
from spotkeep_local.errors import LocalAwsError

if TYPE_CHECKING:
    from spotkeep_local.lifecycle import LocalAws

CONTROL_TARGET = "SpotkeepLocal"
"""What stands before an operation's name in the header X-Amz-Target."""
_TIMEOUT_SECONDS = 30.0
_MOST_ANSWER_BYTES = 64 * 1024 * 1024
_MOST_ERROR_BYTES = 64 * 1024


class ControlError(LocalAwsError):
    """The local AWS refused a request, or is not there."""


class ControlConnection:
    """Calls operations of the control plane.

    Args:
        local: The local AWS.
    """

    def __init__(self, local: LocalAws) -> None:
        self._endpoint_url = local.endpoint_url
        self._signer = SigV4Auth(
            Credentials(local.access_key.access_key_id, local.access_key.secret_access_key), "sagemaker", local.region
        )
        # A proxy in the environment has no business between this machine and itself.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def call(self, operation: str, document: dict[str, Any]) -> dict[str, Any]:
        """Carry one operation out.

        Raises:
            ControlError: The local AWS refused, or is not there.
        """
        signed = AWSRequest(
            method="POST",
            url=self._endpoint_url,
            data=json.dumps(document).encode(),
            headers={
                "Content-Type": "application/x-amz-json-1.1",
                "X-Amz-Target": f"{CONTROL_TARGET}.{operation}",
            },
        )
        self._signer.add_auth(signed)
        request = urllib.request.Request(  # noqa: S310 - the endpoint is the caller's own
            self._endpoint_url, data=signed.data, headers=dict(signed.headers.items())
        )
        try:
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
                body: dict[str, Any] = json.loads(read_answer(answer, most_bytes=_MOST_ANSWER_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                raise ControlError(
                    f"the local AWS refused {operation}: {_message(error.read(_MOST_ERROR_BYTES))}"
                ) from error
        except OSError as error:
            raise ControlError(
                f"no local AWS answers at {self._endpoint_url} ({error}); start one with `spotkeep local up`"
            ) from error
        return body


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")
