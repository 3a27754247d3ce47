"""The metadata of an instance, and the instance metadata service, version 2, that answers with it.

Tokens expire, a request without one gets 401, and an event that is not announced gets 404. The service answers on a
socket that it is given. That is one in the instance's own network, or one on loopback. ministack's own metadata service
is of one instance for the whole server, and announces no interruption.

Sources: "Instance metadata categories" and "Use the Instance Metadata Service to access instance metadata" in Amazon
EC2's user guide.
"""

from __future__ import annotations

import json
import logging
import secrets
import sys
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

_LOG = logging.getLogger(__name__)
_ROOT = "latest"


@dataclass(frozen=True, kw_only=True)
class MetadataSettings:
    """The metadata options of a launch template.

    Attributes:
        token_required: `HttpTokens` is `required`: version 1 is refused.
        enabled: `HttpEndpoint` is `enabled`.
        tags: `InstanceMetadataTags` is `enabled`.
    """

    token_required: bool = True
    enabled: bool = True
    tags: bool = False


@dataclass(frozen=True, kw_only=True)
class RoleCredentials:
    """The role's credentials.

    Attributes:
        expires_at: Epoch seconds.
    """

    access_key_id: str
    secret_access_key: str
    token: str
    expires_at: float


@dataclass(frozen=True, kw_only=True)
class InstanceMetadata:
    """All facts of the metadata service of one instance at one moment.

    Attributes:
        interruption_at: The time of a spot instance's interruption, epoch seconds. None while nothing is announced.
        rebalance_at: The time of a rebalance recommendation, epoch seconds. None without one.
        role: The name of the role in the instance profile. None without a profile.
        credentials: The credentials of the role. None without one.
        launched_at: The time of its launch, epoch seconds.
    """

    instance_id: str
    instance_type: str
    image_id: str
    account_id: str
    region: str
    zone: str
    zone_id: str
    private_ip: str
    hostname: str
    spot: bool
    reservation_id: str
    launched_at: float
    user_data: str = ""
    profile_arn: str | None = None
    profile_id: str = ""
    role: str | None = None
    credentials: RoleCredentials | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    settings: MetadataSettings = field(default_factory=MetadataSettings)
    interruption_at: float | None = None
    rebalance_at: float | None = None


def answer(metadata: InstanceMetadata, path: str, *, now: float) -> str | None:
    """Return the service's answer for a path.

    Args:
        metadata: The metadata of the instance.
        path: The path, for example `/latest/meta-data/instance-id`. A directory's listing with or without the last
            slash.
        now: The time in epoch seconds.

    Returns:
        The text. None where the real service answers 404.
    """
    leaves = _leaves(metadata, now=now)
    asked = path.strip("/")
    if asked in leaves:
        return leaves[asked]
    children = sorted({_child(leaf, asked) for leaf in leaves if leaf.startswith(f"{asked}/")})
    return "\n".join(children) if children else None


def _child(leaf: str, directory: str) -> str:
    name, slash, _ = leaf[len(directory) + 1 :].partition("/")
    return name + slash


def _leaves(metadata: InstanceMetadata, *, now: float) -> dict[str, str]:
    meta = {
        "ami-id": metadata.image_id,
        "ami-launch-index": "0",
        "hostname": metadata.hostname,
        "instance-action": "none",
        "instance-id": metadata.instance_id,
        "instance-life-cycle": "spot" if metadata.spot else "on-demand",
        "instance-type": metadata.instance_type,
        "local-hostname": metadata.hostname,
        "local-ipv4": metadata.private_ip,
        "placement/availability-zone": metadata.zone,
        "placement/availability-zone-id": metadata.zone_id,
        "placement/region": metadata.region,
        "profile": "default-hvm",
        "reservation-id": metadata.reservation_id,
        "services/domain": "amazonaws.com",
        "services/partition": "aws",
    }
    if metadata.settings.tags:
        meta |= {f"tags/instance/{key}": value for key, value in metadata.tags.items()}
    if metadata.profile_arn is not None:
        meta["iam/info"] = _json(
            {
                "Code": "Success",
                "LastUpdated": timestamp(now),
                "InstanceProfileArn": metadata.profile_arn,
                "InstanceProfileId": metadata.profile_id,
            }
        )
    if metadata.role is not None and (credentials := metadata.credentials) is not None:
        meta[f"iam/security-credentials/{metadata.role}"] = _json(
            {
                "Code": "Success",
                "LastUpdated": timestamp(now),
                "Type": "AWS-HMAC",
                "AccessKeyId": credentials.access_key_id,
                "SecretAccessKey": credentials.secret_access_key,
                "Token": credentials.token,
                "Expiration": timestamp(credentials.expires_at),
            }
        )
    if metadata.interruption_at is not None:
        meta["spot/instance-action"] = json.dumps({"action": "terminate", "time": timestamp(metadata.interruption_at)})
        meta["spot/termination-time"] = timestamp(metadata.interruption_at)
    if metadata.rebalance_at is not None:
        meta["events/recommendations/rebalance"] = json.dumps({"noticeTime": timestamp(metadata.rebalance_at)})
    leaves = {f"{_ROOT}/meta-data/{path}": text for path, text in meta.items()}
    leaves[f"{_ROOT}/dynamic/instance-identity/document"] = _identity_document(metadata)
    if metadata.user_data:
        leaves[f"{_ROOT}/user-data"] = metadata.user_data
    return leaves


def _identity_document(metadata: InstanceMetadata) -> str:
    return _json(
        {
            "accountId": metadata.account_id,
            "architecture": "x86_64",
            "availabilityZone": metadata.zone,
            "billingProducts": None,
            "devpayProductCodes": None,
            "imageId": metadata.image_id,
            "instanceId": metadata.instance_id,
            "instanceType": metadata.instance_type,
            "kernelId": None,
            "marketplaceProductCodes": None,
            "pendingTime": timestamp(metadata.launched_at),
            "privateIp": metadata.private_ip,
            "ramdiskId": None,
            "region": metadata.region,
            "version": "2017-09-30",
        }
    )


def timestamp(epoch_seconds: float) -> str:
    """Return a time as the metadata service writes it, for example `2026-11-20T08:22:00Z`."""
    return datetime.fromtimestamp(epoch_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _json(document: Mapping[str, object]) -> str:
    return json.dumps(document, indent=2)


_TOKEN_PATH = "/latest/api/token"  # noqa: S105 - where to ask for one
_TOKEN_HEADER = "X-aws-ec2-metadata-token"  # noqa: S105
_TTL_HEADER = "X-aws-ec2-metadata-token-ttl-seconds"
_LONGEST_TTL_SECONDS = 21_600


class MetadataService:
    """Answers for one instance until it is closed.

    Args:
        listening: The listening socket. Closed with the service.
        read: Returns the present metadata. Called for each request, from a thread of the request's own.
    """

    def __init__(self, listening: socket.socket, *, read: Callable[[], InstanceMetadata]) -> None:
        self._read = read
        self.address: tuple[str, int] = listening.getsockname()
        self._expiry_of_token: dict[str, float] = {}
        service = self

        class Handler(_Handler):
            metadata_service = service

        self._server = _Server(("", 0), Handler, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = listening
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="instance-metadata", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End it. Return when done."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def new_token(self, ttl_seconds: str | None) -> str | None:
        """Return a token, or None when the lifetime asked for is not 1 to 21,600."""
        if ttl_seconds is None or not ttl_seconds.isdecimal() or not 1 <= int(ttl_seconds) <= _LONGEST_TTL_SECONDS:
            return None
        token = secrets.token_urlsafe(40)
        self._expiry_of_token[token] = time.monotonic() + int(ttl_seconds)
        return token

    def token_ttl_seconds(self, token: str) -> float:
        """Return the remaining seconds of a token. 0 for an invalid one."""
        return max(0.0, self._expiry_of_token.get(token, 0.0) - time.monotonic())

    def metadata(self) -> InstanceMetadata:
        """Return the present metadata."""
        return self._read()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class passes it
        """Log an error, other than that of a client that went away, because hosts end in the middle of requests."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            _LOG.exception("the instance metadata service gave %s no answer", client_address)


class _Handler(BaseHTTPRequestHandler):
    metadata_service: MetadataService
    server_version = "EC2ws"
    sys_version = ""

    def do_PUT(self) -> None:
        if self._is_refused():
            return
        if self.path.rstrip("/") != _TOKEN_PATH:
            self._answer(405)
        elif self.headers.get("X-Forwarded-For"):
            self._answer(403)
        elif (token := self.metadata_service.new_token(self.headers.get(_TTL_HEADER))) is None:
            self._answer(400)
        else:
            self._answer(200, token, ttl_seconds=float(self.headers[_TTL_HEADER]))

    def do_GET(self) -> None:
        if self._is_refused():
            return
        metadata = self.metadata_service.metadata()
        token = self.headers.get(_TOKEN_HEADER)
        ttl_seconds = None if token is None else self.metadata_service.token_ttl_seconds(token)
        if ttl_seconds == 0 or (ttl_seconds is None and metadata.settings.token_required):
            self._answer(401)
            return
        text = answer(metadata, self.path.partition("?")[0], now=time.time())
        if text is None:
            self._answer(404)
        else:
            self._answer(200, text, ttl_seconds=ttl_seconds)

    def _is_refused(self) -> bool:
        if self._comes_from_a_page() or not self.metadata_service.metadata().settings.enabled:
            self._answer(403)
            return True
        return False

    def _comes_from_a_page(self) -> bool:
        """Return whether a web page sent the request.

        A browser reaches the service on loopback, and a page under a rebound name could read the answer.
        """
        host, port = self.metadata_service.address
        if self.headers.get("Host") not in (f"{host}:{port}", host):
            return True
        return any(name.lower() == "origin" or name.lower().startswith("sec-fetch-") for name in self.headers)

    def _answer(self, status: int, text: str = "", *, ttl_seconds: float | None = None) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        if ttl_seconds is not None:
            self.send_header(_TTL_HEADER, str(int(ttl_seconds)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Log nothing, because every instance asks every few seconds."""
