"""The instance metadata service, version 2. Tokens expire, a request without one gets 401, an unannounced event 404.

It answers on a socket that it is given. That is one in the instance's own network, or one on loopback. ministack's own
metadata service is of one instance for the whole server, and announces no interruption.

Source: "Use the Instance Metadata Service to access instance metadata" in Amazon EC2's user guide.
"""

from __future__ import annotations

import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from spotkeep_local.hosts.metadata import answer

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from spotkeep_local.hosts.metadata import InstanceMetadata

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

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that went away, because hosts end in the middle of requests."""


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
