#!/usr/bin/env bash
# Hypercorn 0.18.0 on asyncio: a connection that its client has closed stays open at the server (CLOSE_WAIT) until the keep-alive
# timeout is over. A good guess is that the timeout is for idle clients, and that a client's close ends a connection at once. With a
# timeout of 75 s, for clients that keep a pool, a thousand short clients in a minute take all files that a process may open. uvicorn
# 0.41.0 closes at once in the same place. Seen on 2026-11-30.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" hypercorn==0.18.0 uvicorn==0.41.0
seen="$(PYTHONPATH="$folder" python3 -W ignore - <<'PYTHON'
import asyncio
import socket

import hypercorn.asyncio
import hypercorn.config
import uvicorn

KEEP_ALIVE_SECONDS = 4


async def answer(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def look(port):
    """Ask once, close the client's direction, and see when the server closes its own."""
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            break
        except OSError:
            await asyncio.sleep(0.05)
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.readuntil(b"ok")
    asked = asyncio.get_running_loop().time()
    writer.write_eof()
    await reader.read()
    waited = asyncio.get_running_loop().time() - asked
    writer.close()
    return "at once" if waited < KEEP_ALIVE_SECONDS / 2 else "after the keep-alive timeout"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


async def with_hypercorn():
    config = hypercorn.config.Config()
    config.bind, config.keep_alive_timeout = [f"127.0.0.1:{(port := free_port())}"], KEEP_ALIVE_SECONDS
    stop = asyncio.Event()
    config.errorlog = None
    serving = asyncio.create_task(hypercorn.asyncio.serve(answer, config, mode="asgi", shutdown_trigger=stop.wait))
    print("hypercorn closes", await look(port))
    stop.set()
    await serving


async def with_uvicorn():
    port = free_port()
    server = uvicorn.Server(
        uvicorn.Config(answer, port=port, timeout_keep_alive=KEEP_ALIVE_SECONDS, lifespan="off", log_level="critical")
    )
    serving = asyncio.create_task(server.serve())
    print("uvicorn closes", await look(port))
    server.should_exit = True
    await serving


asyncio.run(with_hypercorn())
asyncio.run(with_uvicorn())
PYTHON
)"
echo "$seen"
expected="hypercorn closes after the keep-alive timeout
uvicorn closes at once"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-30 it was: $expected" >&2; exit 1; }
