"""Ties a process group to the server: a program, run once for each host that has no namespaces of its own.

It starts the user data in its own group and waits. When the server dies, its end of the control socket closes, and
this kills the whole group, itself last. So it does when the flag appears, which the instance's own `shutdown` makes.

Usage: `python -I -S tether.py CONTROL_DESCRIPTOR SHUTDOWN_FLAG COMMAND [ARGUMENT ...]`. It runs without our
packages on its path.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

_POLL_SECONDS = 0.1


def _kill_everything() -> None:
    # Those that made a group of their own still carry the instance's id in their environment, where /proc shows it.
    mark = f"SPOTKEEP_LOCAL_INSTANCE={os.environ['SPOTKEEP_LOCAL_INSTANCE']}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(folder.name) != os.getpid() and mark in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), signal.SIGKILL)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _shut_down(process: subprocess.Popen[bytes], seconds: float) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(os.getpgrp(), signal.SIGTERM)
    give_up_at = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < give_up_at:
        time.sleep(0.02)


def main(arguments: list[str]) -> None:
    """Runs the command, and ends with everything that it started; never returns."""
    control = socket.socket(fileno=int(arguments[0]))
    flag = Path(arguments[1])
    process = subprocess.Popen(arguments[2:], stdin=subprocess.DEVNULL)
    told = False
    while True:
        if process.poll() is not None and not told:
            told = True
            with contextlib.suppress(OSError):
                control.sendall(json.dumps({"user_data_exit_code": process.returncode}).encode() + b"\n")
        if flag.exists():
            _kill_everything()
        ready, _, _ = select.select([control], [], [], _POLL_SECONDS)
        if ready:
            message = control.recv(4096)
            if message:
                _shut_down(process, json.loads(message)["shutdown_seconds"])
            _kill_everything()


if __name__ == "__main__":
    main(sys.argv[1:])
