"""Carries connections from inside an instance to the local AWS, because the instance has a loopback of its own."""

from __future__ import annotations

import contextlib
import socket
import threading

_CHUNK_BYTES = 1 << 16


class Forwarding:
    """Takes connections on one socket and carries their bytes to a port of this machine's loopback.

    Args:
        listening: In the network of an instance. Closed with this.
        port: The port of the local AWS, on 127.0.0.1.
    """

    def __init__(self, listening: socket.socket, *, port: int) -> None:
        self._listening = listening
        self._port = port
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False
        self._thread = threading.Thread(target=self._accept, name="instance-forwarding", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it and every connection. Return when no new one can come."""
        with self._lock:
            self._closed = True
            connections = list(self._open)
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for connection in connections:
            _shut(connection)
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                client.close()
                continue
            with self._lock:
                if self._closed:
                    client.close()
                    server.close()
                    return
                self._open |= {client, server}
            for connection in (client, server):
                # A client sends its headers and its body one after the other: over a connection that is kept open, the
                # body would wait for the acknowledgement of the headers, 40 ms (RFC 896; tcp(7), TCP_QUICKACK).
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._carry_both_ways, args=(client, server), daemon=True).start()

    def _carry_both_ways(self, client: socket.socket, server: socket.socket) -> None:
        back = threading.Thread(target=_carry, args=(server, client), daemon=True)
        back.start()
        _carry(client, server)
        back.join()
        with self._lock:
            self._open -= {client, server}
        client.close()
        server.close()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
