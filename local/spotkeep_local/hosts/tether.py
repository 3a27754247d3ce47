"""Runs a command and ties all that it starts to the server: a program, run once for each host that is a process group.

It gives the command a mount namespace with directories of its own where they are asked for, starts it in its own
process group, says on the control socket how it ended, and waits. When the server dies, its end of the control socket
closes, and this program kills the whole group, itself last. So it does when the shutdown flag appears, which the
instance's own `shutdown` makes.

The machine's files stay as they are: where a directory is not there, an empty file system with everything of the real
parent covers the parent, in the namespace alone. Where this program is root, the command keeps of root's capabilities
those that a container has, if it is to be confined: it mounts nothing, loads no module, reads no other process.

Usage: `python -I -S tether.py CONTROL_DESCRIPTOR CONFIGURATION.json`. It runs without our packages on its path, so it
imports the standard library alone. `process_group` writes the configuration and documents what is said on the socket.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

REFUSED = 125
COMMAND_NOT_FOUND = 127
MARK = "SPOTKEEP_LOCAL_HOST"
"""The environment variable that marks what a host started, in whatever group or session it is."""

_POLL_SECONDS = 0.1
_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_PRIVATE = 0x40000
_PR_CAPBSET_DROP = 24
_CAPABILITIES = 64
# chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw, sys_chroot, mknod,
# audit_write, setfcap: what Docker leaves to a container's root, which a training job is on AWS.
_OF_A_CONTAINER = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)


def kill_marked(mark: str) -> None:
    """Kills every process but this one that carries a mark, where /proc shows it."""
    marked = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(folder.name) != os.getpid() and marked in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    result = _libc().mount(
        source.encode(), target.encode(), kind.encode() if kind else None, ctypes.c_ulong(flags), None
    )
    _check(result, f"mount {source} on {target}")


def _unshare_mounts() -> None:
    uid, gid = os.getuid(), os.getgid()
    if _libc().unshare(_CLONE_NEWNS) != 0:
        _check(_libc().unshare(_CLONE_NEWUSER | _CLONE_NEWNS), "unshare")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)


def _show(directory: str, at: Path) -> None:
    # Opened first: once the parent is covered, paths through it lead elsewhere, descriptors do not.
    parent = os.open(at.parent, os.O_RDONLY | os.O_DIRECTORY)
    own = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    if not at.is_dir():
        entries = os.listdir(parent)  # noqa: PTH208 - of a descriptor, not a path
        _mount("tmpfs", str(at.parent), "tmpfs", 0)
        for name in entries:
            _show_again(f"/proc/self/fd/{parent}/{name}", at.parent / name)
        at.mkdir()
    _mount(f"/proc/self/fd/{own}", str(at), None, _MS_BIND)
    os.close(parent)
    os.close(own)


def _show_again(source: str, target: Path) -> None:
    if Path(source).is_symlink():
        target.symlink_to(Path(source).readlink())
        return
    if Path(source).is_dir():
        target.mkdir()
    else:
        target.touch()
    _mount(source, str(target), None, _MS_BIND | _MS_REC)


def _drop_capabilities() -> None:
    if os.geteuid() != 0:
        return  # A user's process loses what it has in its namespace when it executes the command.
    for capability in range(_CAPABILITIES):
        if capability not in _OF_A_CONTAINER and _libc().prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            if ctypes.get_errno() == errno.EINVAL:
                return  # The kernel knows no more of them.
            _check(-1, f"drop capability {capability}")


def _say(control: socket.socket, **message: Any) -> None:
    with contextlib.suppress(OSError):
        control.sendall(json.dumps(message).encode() + b"\n")


class _Group:
    """This program's process group, with the command in it."""

    def __init__(self, control: socket.socket, configuration: dict[str, Any]) -> None:
        self._control = control
        self._ends_with_command: bool = configuration["ends_with_command"]
        self._flag = Path(configuration["shutdown_flag"]) if configuration["shutdown_flag"] else None
        self._reported = False
        self._process: subprocess.Popen[bytes] | None = None
        self._wake_up, wake = os.pipe()
        for descriptor in (self._wake_up, wake):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(self, command: list[str]) -> None:
        """Starts the command and waits for the end; never returns."""
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        except OSError as error:
            print(f"exec {command[0]!r}: {error.strerror}", file=sys.stderr, flush=True)
        while True:
            self._report()
            if self._flag is not None and self._flag.exists():
                self._kill()
            poll_seconds = None if self._flag is None else _POLL_SECONDS
            ready, _, _ = select.select([self._control.fileno(), self._wake_up], [], [], poll_seconds)
            if self._wake_up in ready:
                os.read(self._wake_up, 4096)
            if self._control.fileno() in ready:
                self._obey(self._control.recv(4096))

    def _report(self) -> None:
        code = COMMAND_NOT_FOUND if self._process is None else self._process.poll()
        if code is not None and not self._reported:
            self._reported = True
            _say(self._control, exit_code=code)
            if self._ends_with_command:
                self._kill()

    def _obey(self, said: bytes) -> None:
        if not said:
            self._kill()
        for line in said.splitlines():
            message = json.loads(line)
            if "signal" in message and self._process is not None:
                self._process.send_signal(message["signal"])
            if "shutdown_seconds" in message:
                self._shut_down(message["shutdown_seconds"])

    def _shut_down(self, seconds: float) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(os.getpgrp(), signal.SIGTERM)
        give_up_at = time.monotonic() + seconds
        while self._process is not None and self._process.poll() is None and time.monotonic() < give_up_at:
            time.sleep(0.02)
        self._kill()

    @staticmethod
    def _kill() -> None:
        # Those that made a group of their own still carry the mark.
        kill_marked(os.environ[MARK])
        os.killpg(os.getpgrp(), signal.SIGKILL)


def main(arguments: list[str]) -> int:
    """Prepares what the configuration asks for and runs its command; returns only when the machine refuses."""
    control = socket.socket(fileno=int(arguments[0]))
    configuration = json.loads(Path(arguments[1]).read_text())
    try:
        if configuration["mounts"]:
            _unshare_mounts()
        for path, directory in configuration["mounts"].items():
            _show(directory, Path(path))
        if configuration["confined"]:
            _drop_capabilities()
    except OSError as error:
        print(f"no private directories on this machine: {error}", file=sys.stderr)
        return REFUSED
    os.chdir(configuration["working_directory"])
    _Group(control, configuration).run(configuration["command"])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
