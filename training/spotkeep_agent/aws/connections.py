"""Sends requests over kept connections, because each new one costs the handshakes of TCP and TLS.

All of them can be broken off, so that no thread waits for the network after an interruption notice.
"""

from __future__ import annotations

import contextlib
import http.client
import select
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Callable, NamedTuple
from urllib.parse import urlsplit

from spotkeep_agent.errors import AwsUnavailableError

_IDLE_SECONDS = 60.0
"""The longest life of an idle connection. A NAT gateway on the way drops one silently after 350 s."""
_PIECE_BYTES = 2**16
_CLOSED_BY_SERVER = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)


class _Host(NamedTuple):
    scheme: str
    netloc: str


class _Idle(NamedTuple):
    connection: http.client.HTTPConnection
    since: float


class Connections:
    """The transport of `AwsCalls`. Several threads may use it, each request has a connection to itself.

    Args:
        clock: Seconds that only go forward.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.RLock()  # break_off holds it while it calls close
        self._idle: dict[_Host, list[_Idle]] = {}
        self._in_use: set[http.client.HTTPConnection] = set()
        self._tls: ssl.SSLContext | None = None
        self._broken = False
        # At the end of the process the kernel closes them. Threads that go on until then still use what is idle.
        weakref.finalize(self, _close, self._idle).atexit = False

    def close(self) -> None:
        """Close idle connections. Later requests open new ones."""
        with self._lock:
            _close(self._idle)

    def break_off(self) -> None:
        """Let the requests that are under way fail now, and all others at once."""
        with self._lock:
            self._broken = True
            for connection in self._in_use:
                opened = connection.sock
                if opened is not None:
                    with contextlib.suppress(OSError):
                        socket.socket.shutdown(opened, socket.SHUT_RDWR)
            self.close()

    def __call__(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        timeout_s: float,
        most_bytes: int,
        repeatable: bool,
    ) -> tuple[int, dict[str, str], bytes]:
        """Send one request. Return status, headers (lower case) and body. It uses no proxy and follows no redirect.

        Args:
            method: The HTTP method.
            url: Percent-encoded.
            headers: The headers of the request.
            body: The body of the request.
            timeout_s: The longest wait for each answer of the network.
            most_bytes: The largest body of the answer.
            repeatable: It may be sent twice. Only such a request uses a kept connection. The server may close that at
                the same moment, and then nothing says if it has taken the request (RFC 9112, 9.3.1).

        Raises:
            OSError: The network or the server fails.
            AwsUnavailableError: The request is broken off, or the answer is too large.
        """
        parts = urlsplit(url)
        host = _Host(parts.scheme, parts.netloc)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

        def exchange(connection: http.client.HTTPConnection) -> tuple[int, dict[str, str], bytes]:
            whole = False
            try:
                connection.sock.settimeout(timeout_s)
                connection.request(method, target, body, dict(headers))
                answer = connection.getresponse()
                content = _content(answer, most_bytes=most_bytes, what=f"{method} {host.netloc}{parts.path}")
                whole = True
                return answer.status, {name.lower(): value for name, value in answer.getheaders()}, content
            except ConnectionError:
                raise
            except http.client.HTTPException as error:
                raise OSError(f"{url} answered no HTTP: {error!r}") from error
            finally:
                self._give_back(host, connection, whole=whole)

        kept = self._take(host) if repeatable else None
        if kept is not None:
            try:
                return exchange(kept)
            except _CLOSED_BY_SERVER:
                pass  # while it was idle; a new one tells whether the server is there
        return exchange(self._open(host, timeout_s))

    def _take(self, host: _Host) -> http.client.HTTPConnection | None:
        with self._lock:
            self._require_whole()
            kept = self._idle.get(host, [])
            while kept:
                connection, since = kept.pop()
                if self._clock() - since < _IDLE_SECONDS and not _has_ended(connection):
                    self._in_use.add(connection)
                    return connection
                connection.close()
        return None

    def _open(self, host: _Host, timeout_s: float) -> http.client.HTTPConnection:
        self._require_whole()
        connection: http.client.HTTPConnection
        if host.scheme == "https":
            with self._lock:
                # Shared: to read the certificates of the authorities takes longer than a handshake.
                self._tls = self._tls or ssl.create_default_context()
            connection = http.client.HTTPSConnection(host.netloc, timeout=timeout_s, context=self._tls)
        else:
            connection = http.client.HTTPConnection(host.netloc, timeout=timeout_s)
        try:
            connection.connect()
            with self._lock:
                self._require_whole()
                self._in_use.add(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _give_back(self, host: _Host, connection: http.client.HTTPConnection, *, whole: bool) -> None:
        with self._lock:
            self._in_use.discard(connection)
            # Where the server ends the connection with its answer, `http.client` has let go of the socket.
            if whole and not self._broken and connection.sock is not None:
                self._idle.setdefault(host, []).append(_Idle(connection, self._clock()))
            else:
                connection.close()

    def _require_whole(self) -> None:
        if self._broken:
            raise AwsUnavailableError("the call was broken off")


def _close(idle: dict[_Host, list[_Idle]]) -> None:
    for kept in idle.values():
        for each in kept:
            each.connection.close()
    idle.clear()


def _content(answer: http.client.HTTPResponse, *, most_bytes: int, what: str) -> bytes:
    """Read an answer's body.

    Raises:
        AwsUnavailableError: If it is larger than it may be.
    """
    pieces: list[bytes] = []
    size = answer.length or 0
    if size <= most_bytes:
        if answer.length is not None:
            return answer.read()
        while piece := answer.read(_PIECE_BYTES):
            pieces.append(piece)
            size += len(piece)
            if size > most_bytes:
                break
        else:
            return b"".join(pieces)
    raise AwsUnavailableError(f"{what} answered at least {size:,} bytes where at most {most_bytes:,} are expected")


def _has_ended(connection: http.client.HTTPConnection) -> bool:
    """Return True when the server has closed an idle connection. Then the end can be read from it."""
    waiting = select.poll()
    waiting.register(connection.sock, select.POLLIN)
    return bool(waiting.poll(0))
