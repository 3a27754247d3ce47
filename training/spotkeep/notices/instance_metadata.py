"""Notices of Amazon EC2, from the instance metadata service (version 2).

Two minutes before a spot instance goes, `spot/instance-action` appears there. A rebalance recommendation may appear
earlier. Only 404 means that nothing is announced, and only a document with an action is a notice. Any other answer (an
expired token, a fault, a page of some proxy) is no reason to stop a training.

Sources: "Spot Instance interruption notices", "EC2 instance rebalance recommendations" and "Use the Instance Metadata
Service" in Amazon EC2's user guide.
"""

from __future__ import annotations

import calendar
import contextlib
import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Callable
from urllib.parse import urlsplit

from spotkeep.errors import UsageError

MODE_VARIABLE = "SPOTKEEP_INSTANCE_METADATA"
MODES = ("auto", "on", "off")

_ENDPOINT_VARIABLE = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
_ENDPOINT_MODE_VARIABLE = "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE"
_DISABLED_VARIABLE = "AWS_EC2_METADATA_DISABLED"
_ENDPOINT = "http://169.254.169.254"
_ENDPOINT_IPV6 = "http://[fd00:ec2::254]"
_DMI = Path("/sys/devices/virtual/dmi/id")

_TOKEN_PATH = "/latest/api/token"  # noqa: S105 - where to ask for one
_ACTION_PATH = "/latest/meta-data/spot/instance-action"
_REBALANCE_PATH = "/latest/meta-data/events/recommendations/rebalance"
_TOKEN_SECONDS = 21_600
_TIMEOUT_SECONDS = 1.0
_MAX_BYTES = 4096
_POLL_SECONDS = 5.0
_LONGEST_POLL_SECONDS = 60.0
_LONGEST_NOTICE_SECONDS = 900.0  # what the fault injection service can ask for; anything beyond is a mistake

_OK, _UNAUTHORIZED, _NOT_FOUND = 200, 401, 404

_logger = logging.getLogger("spotkeep")


class MetadataUnavailableError(Exception):
    """The metadata service did not answer, or gave an answer outside its documentation."""


@dataclass(frozen=True)
class SpotAction:
    """The action that EC2 announces for this instance.

    Attributes:
        action: `terminate`, `stop` or `hibernate`.
        seconds_left: Seconds until then. None when the document does not say it sensibly.
    """

    action: str
    seconds_left: float | None


@dataclass(frozen=True)
class _Answer:
    body: bytes
    server_time: float


def metadata_endpoint(environment: Mapping[str, str], *, dmi: Path = _DMI) -> str | None:
    """Give the endpoint of the metadata service, or None outside an instance.

    It reads files only and never uses the network.

    It is on by default on an EC2 instance, and when the SDK's standard variable names an endpoint. It is off under
    SageMaker, where the instances are not the user's. There a notice comes as SIGTERM.

    Args:
        environment: The variables, SPOTKEEP_INSTANCE_METADATA and those of the AWS SDKs.
        dmi: The folder where the kernel shows the firmware's facts on the machine.

    Raises:
        UsageError: SPOTKEEP_INSTANCE_METADATA is none of its values.
    """
    mode = environment.get(MODE_VARIABLE) or "auto"
    if mode not in MODES:
        raise UsageError(f"{MODE_VARIABLE} is {mode!r}; set it to one of {', '.join(MODES)}")
    if mode == "off" or environment.get(_DISABLED_VARIABLE, "").lower() == "true":
        return None
    given = environment.get(_ENDPOINT_VARIABLE)
    if mode == "auto" and not given and (environment.get("TRAINING_JOB_NAME") or not _is_ec2(dmi)):
        return None
    default = _ENDPOINT_IPV6 if environment.get(_ENDPOINT_MODE_VARIABLE, "").lower() == "ipv6" else _ENDPOINT
    return (given or default).rstrip("/")


class InstanceMetadataService:
    """The metadata service of one instance. No proxy is asked, and every request ends soon.

    Args:
        endpoint: For example `http://169.254.169.254`.

    Raises:
        UsageError: If the endpoint is no address of HTTP.
    """

    def __init__(self, endpoint: str) -> None:
        parts = urlsplit(endpoint)
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if parts.scheme != "http" or not host:
            raise UsageError(f"the metadata endpoint is {endpoint!r}; set it like {_ENDPOINT}")
        self.endpoint = endpoint
        self._host, self._port, self._root = host, port or 80, parts.path.rstrip("/")
        self._token: str | None = None

    def spot_action(self) -> SpotAction | None:
        """Give the announced action for this instance, None when there is none.

        Raises:
            MetadataUnavailableError: The service gives no clear answer.
        """
        answer = self._get(_ACTION_PATH)
        return None if answer is None else parse_spot_action(answer.body, server_time=answer.server_time)

    def rebalance_recommended(self) -> bool:
        """Say whether EC2 holds an interruption for likely.

        Raises:
            MetadataUnavailableError: If that cannot be said.
        """
        answer = self._get(_REBALANCE_PATH)
        return answer is not None and "noticeTime" in _document(answer.body)

    def text(self, path: str) -> str | None:
        """Read any path below `/latest`. None when it does not exist.

        Raises:
            MetadataUnavailableError: The service gives no clear answer.
        """
        answer = self._get(path)
        return None if answer is None else answer.body.decode("utf-8", "replace")

    def _get(self, path: str) -> _Answer | None:
        for renewed in (False, True):
            token = self._token = self._token or self._new_token()  # other threads ask, too
            status, answer = self._request("GET", path, {"X-aws-ec2-metadata-token": token})
            if status == _OK:
                return answer
            if status == _NOT_FOUND:
                return None
            if status != _UNAUTHORIZED or renewed:
                raise MetadataUnavailableError(f"{path} answered {status}")
            self._token = None
        raise AssertionError("unreachable")

    def _new_token(self) -> str:
        status, answer = self._request(
            "PUT", _TOKEN_PATH, {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_SECONDS), "Content-Length": "0"}
        )
        token = answer.body.decode("ascii", "replace")
        if status != _OK or not token.isprintable() or not token.isascii() or not token:
            raise MetadataUnavailableError(f"{_TOKEN_PATH} answered {status} and no token")
        return token

    def _request(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, _Answer]:
        # Imported here because it takes as long as half of this library, and most trainings never ask.
        import http.client

        # Not urllib: it would ask the proxy that the environment names.
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_SECONDS)
        try:
            connection.request(method, self._root + path, headers=dict(headers))
            response = connection.getresponse()
            body = response.read(_MAX_BYTES + 1)
            if len(body) > _MAX_BYTES:
                raise MetadataUnavailableError(f"{path} answered more than {_MAX_BYTES:,} bytes")
            return response.status, _Answer(body=body, server_time=_server_time(response.getheader("Date")))
        except (OSError, http.client.HTTPException, ValueError) as error:
            problem = str(error) or type(error).__name__
            raise MetadataUnavailableError(f"{self.endpoint} does not answer: {problem}") from error
        finally:
            connection.close()


def parse_spot_action(raw: bytes, *, server_time: float) -> SpotAction:
    """Read the document of `spot/instance-action`.

    Args:
        raw: Its bytes.
        server_time: Time of its sending by the sender's clock, in seconds since the epoch.

    Raises:
        MetadataUnavailableError: If it is no such document.
    """
    document = _document(raw)
    action = document.get("action")
    if not isinstance(action, str) or not action:
        raise MetadataUnavailableError(f"{_ACTION_PATH} names no action")
    try:
        at = calendar.timegm(time.strptime(str(document.get("time")), "%Y-%m-%dT%H:%M:%SZ"))
    except (ValueError, OverflowError):
        return SpotAction(action=action[:40], seconds_left=None)
    return SpotAction(action=action[:40], seconds_left=min(max(at - server_time, 0.0), _LONGEST_NOTICE_SECONDS))


def poll_metadata(
    metadata: InstanceMetadataService,
    *,
    stopping: threading.Event,
    on_action: Callable[[SpotAction], None],
    on_rebalance: Callable[[], None] | None = None,
    pause_seconds: float = _POLL_SECONDS,
    longest_pause_seconds: float = _LONGEST_POLL_SECONDS,
) -> None:
    """Ask until an action is announced or `stopping` is set. The pauses grow while the service does not answer.

    Args:
        metadata: The service.
        stopping: Ends the loop.
        on_action: Called once, with the action.
        on_rebalance: Called once, when a rebalance is recommended. None to not ask.
        pause_seconds: The pause between two questions.
        longest_pause_seconds: The longest pause without answers. A caller that knows that this is an instance asks on.
    """
    pause, complained = pause_seconds, False
    while True:
        try:
            action = metadata.spot_action()
            if action is not None:
                on_action(action)
                return
            if on_rebalance is not None and metadata.rebalance_recommended():
                on_rebalance()
                on_rebalance = None
            pause = pause_seconds
        except MetadataUnavailableError as error:
            if not complained:
                _logger.warning(
                    "interruption notices of EC2 cannot be read: %s; asking again (set %s=off to not ask)",
                    error,
                    MODE_VARIABLE,
                )
                complained = True
            pause = min(pause * 2, longest_pause_seconds)
        if stopping.wait(pause):
            return


def _is_ec2(dmi: Path) -> bool:
    # Nitro instances say it in the vendor, Xen ones in the version of the BIOS. The files are readable for everybody.
    for name, mark in (("sys_vendor", "Amazon EC2"), ("bios_version", "amazon")):
        with contextlib.suppress(OSError):
            if mark in (dmi / name).read_text(encoding="utf-8", errors="replace"):
                return True
    return False


def _document(raw: bytes) -> Mapping[str, object]:
    try:
        document = json.loads(raw)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise MetadataUnavailableError("the metadata service answered something that is no document of it")
    return document


def _server_time(date: str | None) -> float:
    """Take the time from the answer, because the clock of this machine may be wrong."""
    from email.utils import parsedate_to_datetime

    with contextlib.suppress(TypeError, ValueError, IndexError, OverflowError):
        return parsedate_to_datetime(date or "").timestamp()
    return time.time()
