"""The daemon, with ministack, the training service and EC2's fleets behind one loopback port.

`lifecycle.start` runs it as `python -m spotkeep_local.daemon.server`, with a listening socket. So no program can take
the port in between, and early requests wait instead of failing. It keeps every file below its state directory, opens no
connection that leaves the machine, and saves its state when SIGTERM or SIGINT ends it.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import functools
import gc
import json
import logging
import os
import pkgutil
import shlex
import shutil
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotkeep_local.access.admission import HEALTH_PATH
from spotkeep_local.daemon.state_directory import ServerRecord, StateDirectory
from spotkeep_local.errors import LocalAwsError
from spotkeep_local.hosts import process_identity
from spotkeep_local.options import ServerOptions
from spotkeep_local.principals import PersonKeys, make_person_keys

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

_SHUTDOWN_GRACE_SECONDS = 1.0
_LOOPBACK = "127.0.0.1"
_LOG_LEVEL = "INFO"
_OBJECTS_UNTIL_GARBAGE = 20_000
_log = logging.getLogger("spotkeep_local")


def server_environment(
    directory: StateDirectory, *, port: int, options: ServerOptions, inherited: Mapping[str, str]
) -> dict[str, str]:
    """Return the whole environment of the daemon, and so of the functions it runs.

    Variables of the caller's shell about AWS, Docker and proxies are left out. A function must reach this local AWS
    with its own issued credentials, and nothing else.
    """
    kept = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "SYSTEMROOT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    nothing = str(directory.root / "none")
    return {
        **{name: inherited[name] for name in kept if name in inherited},
        "AWS_CONFIG_FILE": nothing,
        "AWS_DEFAULT_REGION": options.region,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": f"http://{_LOOPBACK}:{port}",
        "AWS_REGION": options.region,
        "AWS_SHARED_CREDENTIALS_FILE": nothing,
        "BIND_HOST": _LOOPBACK,
        "DOCKER_HOST": f"unix://{nothing}/docker.sock",
        "GATEWAY_PORT": str(port),
        "HOME": str(directory.home),
        "IOT_MTLS_ENABLED": "0",
        "LAMBDA_EXECUTOR": "local",
        "LOG_LEVEL": _LOG_LEVEL,
        "MINISTACK_ACCOUNT_ID": options.account_id,
        "MINISTACK_HOST": _LOOPBACK,
        "MINISTACK_REGION": options.region,
        "NO_PROXY": "*",
        "PATH": f"{Path(sys.prefix) / 'bin'}{os.pathsep}{inherited.get('PATH', os.defpath)}",
        "PERSIST_STATE": "1",
        "PYTHONNOUSERSITE": "1",
        "S3_DATA_DIR": str(directory.objects),
        "S3_PERSIST": "1",
        "SFTP_ENABLED": "0",
        "STATE_DIR": str(directory.services),
        "TMPDIR": str(directory.temporary),
    }


def forbid_leaving_the_machine() -> None:
    """Make every connection of this process to anything but loopback fail, for the rest of its life."""

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.connect":
            address = arguments[1]
            if isinstance(address, tuple) and not _is_loopback(str(address[0])):
                _log.warning("refused a connection to %s: the local AWS stays on this machine", address[0])
                raise ConnectionRefusedError(f"the local AWS opens no connection to {address[0]}")

    sys.addaudithook(refuse)


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


class _Application:
    """ministack's ASGI application, with our own health page.

    Args:
        inner: ministack's.
        nonce: The answer of the health page.
        before_requests: Awaited when ministack has its state, and before a request is accepted.
    """

    def __init__(
        self, *, inner: Callable[..., Awaitable[None]], nonce: str, before_requests: Callable[[], Awaitable[None]]
    ) -> None:
        self._inner = inner
        self._before_requests = before_requests
        self._health = json.dumps({"nonce": nonce, "pid": os.getpid()}).encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, self._announcing(send))
        elif scope["type"] == "http" and scope["path"] == HEALTH_PATH:
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": self._health})
        else:
            await self._inner(scope, receive, send)

    def _announcing(self, send: Any) -> Any:
        async def announce(message: Any) -> None:
            if message["type"] == "lifespan.startup.complete":
                await self._before_requests()
            await send(message)

        return announce


async def _serve(
    listening: socket.socket,
    *,
    directory: StateDirectory,
    options: ServerOptions,
    record: ServerRecord,
    people: PersonKeys,
    judge: str,
    announce_ready: Callable[[], None],
) -> None:
    # ministack imports Docker's library where there is one, and with it all of SSH: a tenth of a start, and not used.
    sys.modules["docker"] = None  # type: ignore[assignment]
    # Late, because ministack reads the environment while it is imported.
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    from spotkeep_local.daemon.connections import close_with_clients
    from spotkeep_local.daemon.services import LocalServices
    from spotkeep_local.ministack.application import asgi_application

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    services = LocalServices(
        directory=directory, options=options, record=record, people=people, judge=pkgutil.resolve_name(judge)
    )

    async def start() -> None:
        directory.unsaved.touch()
        try:
            await services.make_account()
            services.start()
        except Exception:  # noqa: BLE001 - the server would go on without its services
            _log.exception("the services did not start")
            stop.set()
        else:
            announce_ready()

    async def shutdown_trigger() -> None:
        await stop.wait()
        # While requests are still answered: jobs upload as they end.
        await asyncio.to_thread(services.stop)

    application = _Application(inner=asgi_application(), nonce=record.nonce, before_requests=start)
    config = Config()
    config.bind = [f"fd://{listening.detach()}"]
    config.loglevel = _LOG_LEVEL
    config.keep_alive_timeout = 75
    config.graceful_timeout = _SHUTDOWN_GRACE_SECONDS
    close_with_clients()
    await serve(services.guarded(application), config, shutdown_trigger=shutdown_trigger)


def _hold(lock: Path) -> int:
    """Take the lock that lets one server live on a state directory. The system frees it when this process ends."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise LocalAwsError(
            f"another local AWS runs on {lock.parent}; stop it with `spotkeep local down`, or use another directory"
        ) from error
    return descriptor


def _leave_the_launcher() -> None:
    """Go on in a child process and end the parent now, so that the server outlives its starter."""
    if os.fork() > 0:
        os._exit(0)


def _give_functions_a_bare_python(launcher: Path) -> None:
    """Let functions import their own packages alone, and none of this server's environment.

    ministack runs functions on `sys.executable`. In a virtual environment that would offer them all of its packages and
    the checkout's own sources. Then a function would work here even if its archive lacked a package. If the server is
    root, functions have none of root's capabilities.
    """
    interpreter = [getattr(sys, "_base_executable", sys.executable), "-S"]
    if os.geteuid() == 0 and (setpriv := shutil.which("setpriv")) is not None:
        interpreter = [setpriv, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", *interpreter]
    launcher.write_text(f'#!/bin/sh\nexec {shlex.join(interpreter)} "$@"\n')
    launcher.chmod(0o755)
    sys.executable = str(launcher)


def _begin_afresh(directory: StateDirectory) -> None:
    """Begin without temporary files, and without a state that was never saved.

    They are thousands of files, and are removed beside the start, not in it.
    """
    if directory.discard_unsaved():
        _log.warning("the server before this one was killed and had saved nothing: what it kept is gone")
    directory.discard_temporary()
    directory.create()
    remove = functools.partial(shutil.rmtree, directory.discarded, ignore_errors=True)
    threading.Thread(target=remove, name="discarded-files", daemon=True).start()


def _say_ready(descriptor: int) -> None:
    os.write(descriptor, b"1")
    os.close(descriptor)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the daemon until SIGTERM.

    Returns:
        The exit code: 0 after a shutdown in good order, 1 with a line on stderr otherwise.
    """
    parser = argparse.ArgumentParser(prog="python -m spotkeep_local.daemon.server", description=main.__doc__)
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--listen-fd", type=int, required=True, help="a socket that listens on 127.0.0.1")
    parser.add_argument("--ready-fd", type=int, required=True, help="a pipe that gets a byte when the server is up")
    parser.add_argument("--nonce", required=True, help="what the health page answers with")
    parser.add_argument("--options", type=ServerOptions.from_json, default=ServerOptions(), metavar="JSON")
    parser.add_argument("--judge", required=True, metavar="MODULE:CLASS", help="what decides about permissions")
    given = parser.parse_args(arguments)
    options: ServerOptions = given.options

    directory = StateDirectory(given.state_dir)
    listening = socket.socket(fileno=given.listen_fd)
    for descriptor in (given.listen_fd, given.ready_fd):
        os.set_inheritable(descriptor, False)
    _leave_the_launcher()
    try:
        directory.create()
        lock = _hold(directory.server_lock)
        _begin_afresh(directory)
        record = ServerRecord(
            pid=os.getpid(),
            process_started=process_identity.start_time(os.getpid()) or "",
            nonce=given.nonce,
            port=listening.getsockname()[1],
            region=options.region,
            account_id=options.account_id,
        )
        people = make_person_keys(directory.credentials, account_id=options.account_id)
        environment = server_environment(directory, port=record.port, options=options, inherited=os.environ)
        record.write(directory.record)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(directory.root)
        forbid_leaving_the_machine()
        _give_functions_a_bare_python(directory.bare_python)
        # Requests leave hardly any garbage that has to be looked for, and Python would look after 700 objects.
        gc.set_threshold(_OBJECTS_UNTIL_GARBAGE)
        asyncio.run(
            _serve(
                listening,
                directory=directory,
                options=options,
                record=record,
                people=people,
                judge=given.judge,
                announce_ready=lambda: _say_ready(given.ready_fd),
            )
        )
        shutil.rmtree(directory.temporary, ignore_errors=True)
        directory.unsaved.unlink()
        directory.record.unlink(missing_ok=True)
        os.close(lock)
    except LocalAwsError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    exit_code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # All is saved. To take the interpreter apart takes longer than all of the shutdown.
    os._exit(exit_code)
