"""A host, which is the program `boot`. It runs a command and ties all processes that the command starts to the server.

A training job runs on one and so does an instance. They differ in the program's configuration. It gives a process group
with directories of its own, or namespaces with an instance's machine in them. The configuration is a JSON file.

- With `namespaces` false, `command`, `working_directory`, `mounts`, `read_only`, `confined`, `names`, `network`,
  `hostname`, `ends_with_command` and `shutdown_flag` are those of `process_group`.

- With `namespaces` true, `folder`, `hostname`, `endpoint_port`, `user_data`, `console`, `environment`, `links` and
  `programs` are the instance's. `shared` are directories of this machine to which it writes. `reachable` are
  directories of this machine that its users may enter. `clock` is a library of `clock`, or None.

Both sides write one JSON object a line. The program sends `exit_code` at the end of the command, where a signal is
negative. In namespaces it first sends `process_one`, its process id outside. Then it sends `booted`, or `refused` with
the reason. With `booted` come the listening sockets of the metadata service and of the way to the local AWS, as
descriptors. The server sends `{}` once both sockets are served, `signal` for the command's first process, and
`shutdown_seconds` to shut down. It sends `signal_all` for all processes, which the program answers with `signalled`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotkeep_local.errors import LocalAwsError
from spotkeep_local.hosts import boot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_LOG = logging.getLogger(__name__)
_BOOT_SECONDS = 30.0
_DRAIN_SECONDS = 5.0
_SIGNAL_SECONDS = 10.0
_MESSAGE_BYTES = 1 << 16
_MOST_LINE_BYTES = 200_000
"""No message in CloudWatch Logs is longer."""


class HostRefusedError(LocalAwsError):
    """The machine refused to make a host. The text has the refused part."""


def process_group(
    *,
    command: Sequence[str],
    working_directory: Path,
    mounts: Mapping[str, str] | None = None,
    read_only: Sequence[str] = (),
    confined: bool = False,
    names: Path | None = None,
    network: str | None = None,
    hostname: str = "",
    ends_with_command: bool = True,
    shutdown_flag: Path | None = None,
) -> dict[str, Any]:
    """Return the configuration of a host that is a process group.

    Args:
        command: The first process and its arguments.
        working_directory: The working directory of the command.
        mounts: Directories of this machine, by the paths at which the command sees them, in a mount namespace of its
            own, or None for no such namespace.
        read_only: Those of the paths that nothing can be written to.
        confined: The command has no more of root's capabilities than a container has.
        names: The file that the command sees as `/etc/hosts`, with `mounts`. None for the machine's.
        network: The file of the network namespace of the command. None for the machine's network.
        hostname: The host name in that network.
        ends_with_command: The group ends when the command does. Otherwise it stays until it is ended.
        shutdown_flag: A file. The group ends when it appears.
    """
    return {
        "namespaces": False,
        "command": list(command),
        "working_directory": str(working_directory),
        "mounts": mounts or {},
        "read_only": list(read_only),
        "confined": confined,
        "names": None if names is None else str(names),
        "network": network,
        "hostname": hostname,
        "ends_with_command": ends_with_command,
        "shutdown_flag": None if shutdown_flag is None else str(shutdown_flag),
    }


class Host:
    """A running host, which ends with the server.

    Args:
        configuration: The configuration of the program.
        folder: The existing folder for the configuration.
        environment: The whole environment of a process group's command. Nothing of the server's enters it.
        console: The file for the output, or None to hand it to `on_line`.
        on_line: Called in a thread of its own with each line of output.
        on_command_end: Called at most once, with the command's exit code as a shell sees it, unless the program was
            killed with the command, or did not come to start it.
        on_end: Called once, after the last line, when nothing of the host remains, with the program's exit code.

    Attributes:
        process_id: The id of its first process on this machine, and of the group where it is a process group.
        listening: The sockets in a network of its own, one of the metadata service, and one of the way to the local
            AWS.

    Raises:
        HostRefusedError: The machine refuses a namespace, a mount or a socket.
    """

    def __init__(
        self,
        configuration: Mapping[str, Any],
        *,
        folder: Path,
        environment: Mapping[str, str],
        console: Path | None = None,
        on_line: Callable[[str], None] = lambda _: None,
        on_command_end: Callable[[int], None] = lambda _: None,
        on_end: Callable[[int], None] = lambda _: None,
    ) -> None:
        # Of this host alone, whatever else runs on this machine; a group's processes keep it in any group or session.
        self._mark = secrets.token_hex(16)
        self._gone = False
        self._signalled = threading.Event()
        self._on_line, self._on_command_end, self._on_end = on_line, on_command_end, on_end
        self._process, self._control = _start_program(
            configuration, folder=folder, environment={**environment, boot.MARK: self._mark}, console=console
        )
        self.process_id = self._process.pid
        self.listening: list[socket.socket] = []
        if configuration["namespaces"]:
            self._wait_for_boot()
        name = f"host-{self.process_id}"
        self._hearer = threading.Thread(target=self._hear, name=name, daemon=True)
        self._reader = threading.Thread(target=self._read, name=f"{name}-output", daemon=True)
        self._waiter = threading.Thread(target=self._wait, name=f"{name}-end", daemon=True)

    def watch(self) -> None:
        """Begin to call the constructor's callbacks, and let an instance begin. Called once."""
        self._say()
        for thread in (self._hearer, self._reader, self._waiter):
            thread.start()

    def terminate(self) -> None:
        """Send SIGTERM to the command's first process alone, as a container's runtime does."""
        self._say(signal=int(signal.SIGTERM))

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to all processes of it, and return once they have it.

        Raises:
            HostRefusedError: The host did not answer, for example because it ended.
        """
        self._signalled.clear()
        self._say(signal_all=int(number))
        if not self._signalled.wait(_SIGNAL_SECONDS):
            raise HostRefusedError(f"host {self.process_id} did not take {number.name} in {_SIGNAL_SECONDS:g} s")

    def shut_down(self, *, seconds: float) -> None:
        """Send SIGTERM to everything in it, and after these seconds SIGKILL. Return at once."""
        self._say(shutdown_seconds=seconds)

    def kill(self) -> None:
        """Send SIGKILL to everything in it. Return at once."""
        # ProcessLookupError: it is gone. PermissionError: what macOS answers when only zombies are left.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._gone:
                return  # Its ids may be another's by now.
            if self.process_id == self._process.pid:
                os.killpg(self.process_id, signal.SIGKILL)
            elif self._process.poll() is None:
                # The program waits for process 1 of its namespaces: while it runs the id is no other process's.
                os.kill(self.process_id, signal.SIGKILL)

    def _say(self, **message: object) -> None:
        """Send the program a message. A program that is gone gets none."""
        with contextlib.suppress(OSError):
            self._control.sendall(json.dumps(message).encode() + b"\n")

    def _wait_for_boot(self) -> None:
        self._control.settimeout(_BOOT_SECONDS)
        descriptors: list[int] = []
        said = b""
        problem = "it did not boot in time"
        process_one = 0
        with contextlib.suppress(TimeoutError):
            while True:
                data, more, _, _ = socket.recv_fds(self._control, _MESSAGE_BYTES, 2)
                descriptors += more
                said += data
                messages = [json.loads(line) for line in said.splitlines(keepends=True) if line.endswith(b"\n")]
                for message in messages:
                    process_one = message.get("process_one", process_one)
                if not data:
                    problem = next((str(m["refused"]) for m in messages if "refused" in m), "it ended while it booted")
                    break
                if any("booted" in message for message in messages) and process_one:
                    self._control.settimeout(None)
                    self.process_id = process_one
                    self.listening = [socket.socket(fileno=descriptor) for descriptor in descriptors]
                    return
        for descriptor in descriptors:
            os.close(descriptor)
        self._process.kill()
        self._process.wait()
        self._control.close()
        raise HostRefusedError(f"this machine does not let an instance have namespaces of its own: {problem}")

    def _hear(self) -> None:
        said = b""
        with contextlib.suppress(OSError):
            while data := self._control.recv(_MESSAGE_BYTES):
                said += data
                *lines, said = said.split(b"\n")
                for message in map(json.loads, lines):
                    if "signalled" in message:
                        self._signalled.set()
                    if (code := message.get("exit_code")) is not None:
                        self._on_command_end(_as_shell(code))

    def _read(self) -> None:
        if self._process.stdout is None:
            return
        with self._process.stdout as output:
            # A line may have no end; what is longer goes on as several.
            for line in iter(functools.partial(output.readline, _MOST_LINE_BYTES), b""):
                self._on_line(line.decode("utf-8", errors="replace").rstrip("\r\n"))

    def _wait(self) -> None:
        if hasattr(os, "waitid"):
            # Not reaped yet, so the group's id cannot belong to another process while it is signalled.
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
            self.kill()
        code = self._process.wait()
        self.kill()
        self._gone = True
        boot.signal_marked(self._mark, signal.SIGKILL)
        self._reader.join(_DRAIN_SECONDS)
        if self._reader.is_alive():
            _LOG.warning("a process of host %d left its group and keeps its output open", self.process_id)
        self._hearer.join()
        self._control.close()
        self._on_end(_as_shell(code))


def _start_program(
    configuration: Mapping[str, Any], *, folder: Path, environment: Mapping[str, str], console: Path | None
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    path = folder / "host.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps(configuration))
    control, theirs = socket.socketpair()
    # In the server `sys.executable` is the Python that functions run on.
    python = str(Path(sys.prefix) / "bin" / "python3")
    with contextlib.ExitStack() as stack:
        stack.enter_context(theirs)
        output: int = subprocess.PIPE
        if console is not None:
            console.touch(mode=0o600)
            output = stack.enter_context(console.open("ab")).fileno()
        process = subprocess.Popen(
            [python, "-I", "-S", boot.__file__, str(theirs.fileno()), str(path)],
            cwd="/",
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return process, control


def _as_shell(code: int) -> int:
    """Return a negative exit code, which is a signal's number, as a shell sees it."""
    return 128 - code if code < 0 else code
