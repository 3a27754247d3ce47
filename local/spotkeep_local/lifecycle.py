"""Starts, finds and stops the local AWS.

One server lives on a state directory. A question to the server tells if it runs. The record names a port and a random
nonce, and only the server that was started with that nonce answers with it. Starting and stopping hold a lock. So two
at once have the effect of one after the other.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from spotkeep_local.access.admission import HEALTH_PATH
from spotkeep_local.daemon.state_directory import ServerRecord, StateDirectory
from spotkeep_local.errors import PortInUseError, RunningElsewhereError, StartError, StopError
from spotkeep_local.hosts import process_identity
from spotkeep_local.hosts.written_files import read_end
from spotkeep_local.options import ServerOptions
from spotkeep_local.principals import AccessKey, PersonKeys, read_person_keys
from spotkeep_local.service_base.clients import LocalSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DEFAULT_PORT = 4566
_JUDGE = "spotkeep_local.iam.judge:Judge"
_LOOPBACK = "127.0.0.1"
_QUICK_START_SECONDS = 5.0
_START_TIMEOUT_SECONDS = 180.0
_HEALTH_TIMEOUT_SECONDS = 20.0
"""A server that is silent for longer hangs. On a busy machine one that works may be silent for some seconds."""
_POLL_SECONDS = 0.05
_LOST = "begins empty: the server before was killed, and what it kept is gone; deploy to it again"
_LOG_TAIL_LINES = 15
_LOG_TAIL_BYTES = 64 * 1024
_MOST_HEALTH_BYTES = 4096
_LOG_KEPT_BYTES = 5_000_000
_STOP_MARGIN_SECONDS = 60.0
"""The seconds a server has for its jobs' last uploads and for saving. After them it is killed and its state is lost."""


@dataclass(frozen=True, kw_only=True)
class LocalAws:
    """A running local AWS, as its clients see it.

    Attributes:
        state_dir: The directory of all its files.
        endpoint_url: The address of every service, for example `http://127.0.0.1:4566`.
        pid: The id of its process.
        port: Its port on 127.0.0.1.
        account_id: The twelve digits in its ARNs.
        region: The region of its resources.
        keys: The access keys that it issued to the people at the command line.
    """

    state_dir: Path
    endpoint_url: str
    pid: int
    port: int
    account_id: str
    region: str
    keys: PersonKeys

    @property
    def access_key(self) -> AccessKey:
        """The administrator's."""
        return self.keys.administrator

    def environment(self, *, key: AccessKey | None = None) -> dict[str, str]:
        """Return variables that make any AWS client connect to this local AWS and to nothing else.

        Lay them over a copy of the caller's environment. Take a profile (`AWS_PROFILE`) out of that copy first. A
        client would search it in a configuration that is not there.

        Args:
            key: The access key that clients call with. The administrator's when left out.
        """
        nothing = str(self.state_dir / "none")
        return {
            **(key or self.access_key).environment(),
            "AWS_CONFIG_FILE": nothing,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_REGION": self.region,
            "AWS_SHARED_CREDENTIALS_FILE": nothing,
        }

    def on_this_port(self, url: str) -> str:
        """Return an address that a server of this state gave out, a function's URL for example, as this one has it."""
        return urlsplit(url)._replace(netloc=f"{_LOOPBACK}:{self.port}").geturl()

    def session(self, *, key: AccessKey | None = None) -> LocalSession:
        """Return a session with clients that connect to this local AWS, in any environment of the process.

        Args:
            key: The access key of their calls. The administrator's when left out.
        """
        return LocalSession(endpoint_url=self.endpoint_url, region=self.region, access_key=key or self.access_key)


def start(
    state_dir: Path,
    port: int | None = None,
    options: ServerOptions | None = None,
    *,
    judge: str = _JUDGE,
    on_waiting: Callable[[str], None] | None = None,
) -> LocalAws:
    """Start the local AWS on a state directory, or find the one that runs there.

    Args:
        state_dir: The directory of all its files. Created when it is not there.
        port: The port that it must listen on. Default is the port it had last time, else 4566, else any free one.
        options: Its settings. A server that runs already keeps its own.
        judge: The class that decides about permissions, as `MODULE:CLASS`, which is `Judge` or one that extends it.
        on_waiting: Called with the reason for a long wait, and with the losses if the server before was killed.

    Raises:
        PortInUseError: `port` was given and another program has it.
        RunningElsewhereError: `port` was given and the local AWS runs already, on another one.
        StartError: The server did not come up. Names the reason and shows the end of its log.
    """
    directory = StateDirectory(state_dir)
    directory.create()
    with _exclusively(directory.start_lock):
        if (running := status(state_dir)) is not None:
            if port is not None and running.port != port:
                raise RunningElsewhereError(running.port, asked_for=port)
            return running
        _end_recorded(directory)
        if directory.unsaved.exists() and on_waiting is not None:
            on_waiting(_LOST)
        with _listen(directory, port) as listening:
            nonce = secrets.token_hex(16)
            with _spawned(directory, listening, nonce=nonce, options=options or ServerOptions(), judge=judge) as said:
                _await_up(directory, said, on_waiting=on_waiting)
            directory.last_port.write_text(str(listening.getsockname()[1]))
        up = status(state_dir)
        if up is None:
            raise _start_error(directory, "it came up and does not answer")
        return up


def status(state_dir: Path) -> LocalAws | None:
    """Return the local AWS that runs on a state directory.

    Returns:
        None when none answers.
    """
    directory = StateDirectory(state_dir)
    record = ServerRecord.read(directory.record)
    if record is None or not _answers(record):
        return None
    keys = read_person_keys(directory.credentials, account_id=record.account_id)
    if keys is None:
        return None
    return LocalAws(
        state_dir=directory.root,
        endpoint_url=record.endpoint_url,
        pid=record.pid,
        port=record.port,
        account_id=record.account_id,
        region=record.region,
        keys=keys,
    )


def stop(state_dir: Path) -> bool:
    """Stop the local AWS of a state directory. Its jobs end with it, its state stays.

    Returns:
        Whether one was running.

    Raises:
        StopError: The process outlived SIGKILL.
    """
    directory = StateDirectory(state_dir)
    if not directory.root.exists():
        return False
    with _exclusively(directory.start_lock):
        return _end_recorded(directory)


def free_port() -> int:
    """Return a port of 127.0.0.1 that no program listens on at the moment."""
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def _exclusively(lock: Path) -> Iterator[None]:
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _listen(directory: StateDirectory, port: int | None) -> socket.socket:
    if port is not None:
        listening = _try_to_listen(port)
        if listening is None:
            raise PortInUseError(port)
        return listening
    # A restart on the same port keeps alive what names the endpoint: queue URLs, exported environments.
    for candidate in (_last_port(directory), DEFAULT_PORT, 0):
        if candidate is not None and (listening := _try_to_listen(candidate)) is not None:
            return listening
    raise PortInUseError(0)


def _try_to_listen(port: int) -> socket.socket | None:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((_LOOPBACK, port))
        listening.listen(128)
    except OSError:
        listening.close()
        return None
    return listening


def _last_port(directory: StateDirectory) -> int | None:
    try:
        return int(directory.last_port.read_text())
    except (FileNotFoundError, ValueError):
        return None


@contextmanager
def _spawned(
    directory: StateDirectory, listening: socket.socket, *, nonce: str, options: ServerOptions, judge: str
) -> Iterator[int]:
    """Start the server. Give the end of a pipe in which it says a word when it is up."""
    if directory.log.exists() and directory.log.stat().st_size > _LOG_KEPT_BYTES:
        directory.log.replace(directory.log.with_suffix(".log.1"))
    # The server holds the writing end; if it dies, the system closes it.
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "spotkeep_local.daemon.server"]
    command += ["--state-dir", str(directory.root), "--nonce", nonce, "--options", options.to_json(), "--judge", judge]
    command += ["--listen-fd", str(listening.fileno()), "--ready-fd", str(writing)]
    # Images with Python often forbid byte code. Each start would then compile ministack again, for seconds.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    try:
        with directory.log.open("ab") as log:
            launcher = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[listening.fileno(), writing],
                cwd=directory.root,
                env=environment,
                start_new_session=True,
            )
        os.close(writing)
        launcher.wait()
        yield reading
    finally:
        os.close(reading)


def _await_up(directory: StateDirectory, said: int, *, on_waiting: Callable[[str], None] | None) -> None:
    up = select.select([said], [], [], _QUICK_START_SECONDS)[0]
    if not up:
        if on_waiting is not None:
            on_waiting(f"restores what it kept: {_kept(directory)}")
        up = select.select([said], [], [], _START_TIMEOUT_SECONDS)[0]
    if not up:
        _end_recorded(directory)
        raise _start_error(directory, f"it was not up within {_START_TIMEOUT_SECONDS:.0f} s")
    if not os.read(said, 1):
        raise _start_error(directory, "it ended while it started")


def _kept(directory: StateDirectory) -> str:
    objects = sum(len(names) for _, _, names in os.walk(directory.objects))
    state_bytes = sum(path.stat().st_size for path in directory.services.glob("*.json"))
    return f"{objects:,} files of S3, {state_bytes / 1e6:,.0f} MB of everything else"


def _start_error(directory: StateDirectory, problem: str) -> StartError:
    return StartError(problem, log_tail=_log_tail(directory), log_path=str(directory.log))


def _log_tail(directory: StateDirectory) -> list[str]:
    try:
        lines = read_end(directory.log, most_bytes=_LOG_TAIL_BYTES).decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    return [line for line in lines if line.strip()][-_LOG_TAIL_LINES:]


def _answers(record: ServerRecord) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(record.endpoint_url + HEALTH_PATH, timeout=_HEALTH_TIMEOUT_SECONDS) as answer:
            return bool(json.loads(answer.read(_MOST_HEALTH_BYTES))["nonce"] == record.nonce)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _end_recorded(directory: StateDirectory) -> bool:
    """End the recorded server, if its process id still belongs to it, and forget the record."""
    record = ServerRecord.read(directory.record)
    if record is None:
        return False
    was_there = process_identity.signal_if_same(record.pid, record.process_started, signal.SIGTERM)
    if was_there and not _gone_within(record, _STOP_MARGIN_SECONDS):
        process_identity.signal_if_same(record.pid, record.process_started, signal.SIGKILL)
        if not _gone_within(record, _STOP_MARGIN_SECONDS):
            raise StopError(f"process {record.pid} of {directory.root} is still there after SIGKILL")
    directory.record.unlink(missing_ok=True)
    return was_there


def _gone_within(record: ServerRecord, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while process_identity.is_same_process(record.pid, record.process_started):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
