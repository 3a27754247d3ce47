"""Starts the program `boot`, which every host is, and talks with it over a socket.

Its configuration is a JSON file. With `namespaces` false, `command`, `working_directory`, `mounts`, `confined`,
`ends_with_command` and `shutdown_flag` are those of `process_group.GroupSpecification`. With it true, `folder`,
`hostname`, `endpoint_port`, `user_data`, `console`, `environment` and `links` are the instance's, and `reachable` are
directories of this machine that its users may enter.

Both sides write one JSON object a line. The program says `exit_code`: how the command ended, a signal negative.
In namespaces it says before that `process_one`, its process id outside, and `booted`, with the listening sockets of the
metadata service and of the way to the local AWS as descriptors, or `refused` and why. The server says `{}` once both
sockets are served, `signal` for the command's first process, and `shutdown_seconds` to shut down.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotkeep_local.hosts import boot
from spotkeep_local.hosts.host import own_python

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MESSAGE_BYTES = 1 << 16


def start_program(
    configuration: Mapping[str, Any], *, folder: Path, environment: Mapping[str, str], console: Path | None
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Starts the program for one host.

    Args:
        configuration: As above.
        folder: Where the configuration is written; there already.
        environment: All of the program's.
        console: Takes what the program and the command print; None makes a pipe of it.

    Returns:
        The process and the server's end of the control socket.
    """
    path = folder / "host.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps(configuration))
    control, theirs = socket.socketpair()
    with contextlib.ExitStack() as stack:
        stack.enter_context(theirs)
        output: int = subprocess.PIPE
        if console is not None:
            console.touch(mode=0o600)
            output = stack.enter_context(console.open("ab")).fileno()
        process = subprocess.Popen(
            [own_python(), "-I", "-S", boot.__file__, str(theirs.fileno()), str(path)],
            cwd="/",
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    return process, control


def say(control: socket.socket, **message: object) -> None:
    """Tells the program something; nothing happens when it is gone."""
    with contextlib.suppress(OSError):
        control.sendall(json.dumps(message).encode() + b"\n")


def exit_codes(control: socket.socket) -> Iterator[int]:
    """Waits for what the program says of its command, until it is gone; exit codes are as a shell sees them."""
    said = b""
    with contextlib.suppress(OSError):
        while data := control.recv(_MESSAGE_BYTES):
            said += data
            *lines, said = said.split(b"\n")
            for line in lines:
                if (code := json.loads(line).get("exit_code")) is not None:
                    yield as_shell(code)


def as_shell(code: int) -> int:
    """A negative exit code, which is a signal's number, as a shell sees it."""
    return 128 - code if code < 0 else code
