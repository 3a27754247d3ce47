"""The connections of clients to the server."""

from __future__ import annotations

from hypercorn.asyncio import run
from hypercorn.asyncio.tcp_server import TCPServer


class ClientConnection(TCPServer):
    """A connection that ends once its client has closed it.

    Hypercorn 0.18 keeps such a connection until it has been idle for as long as any other. Each short command leaves
    some, and a process may open 1,024 files on many machines.
    """

    _client_has_closed = False

    async def _read_data(self) -> None:
        await super()._read_data()
        self._client_has_closed = True
        await self.idle_task.stop()

    async def _idle_timeout(self) -> None:
        # A request may end after its client has closed the connection. Nothing waits for another one.
        if not self._client_has_closed:
            await super()._idle_timeout()


def close_with_clients() -> None:
    """Let Hypercorn close each connection that its client closes."""
    run.TCPServer = ClientConnection  # type: ignore[attr-defined]
