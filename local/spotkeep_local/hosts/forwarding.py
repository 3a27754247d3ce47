"""The way from the network of a host to the local AWS, which is on this machine's loopback."""

from __future__ import annotations

import contextlib
import socket
import threading

_CHUNK_BYTES = 1 << 16


class Forwarding:
    """Takes connections on one socket and carries their bytes to a port of this machine's loopback.

    It can hold them back. Then clients wait, as for a network that loses their packets.

    Args:
        listening: A listening socket in the network of an instance. Closed with this.
        port: The port of the local AWS, on 127.0.0.1.
    """

    def __init__(self, listening: socket.socket, *, port: int) -> None:
        self._listening = listening
        self._port = port
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._closed = False
        self._flows = threading.Event()
        self._flows.set()
        self._thread = threading.Thread(target=self._accept, name="instance-forwarding", daemon=True)
        self._thread.start()

    def let_flow(self, *, flows: bool) -> None:
        """Carry the bytes from now on, those that were held back too, or hold them back."""
        if flows:
            self._flows.set()
        else:
            self._flows.clear()

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
        self._flows.set()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self._flows.wait()
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
        back = threading.Thread(target=self._carry, args=(server, client), daemon=True)
        back.start()
        self._carry(client, server)
        back.join()
        with self._lock:
            self._open -= {client, server}
        client.close()
        server.close()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                self._flows.wait()
                target.sendall(data)
        self._flows.wait()
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
