"""Real processes: their output, their end, and that all they started ends with them and with the server."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from spotkeep_local.hosts import process_identity
from spotkeep_local.hosts.isolation import Isolation
from spotkeep_local.training.job_host import resolve_isolation, start_host
from spotkeep_local.training.job_network import HostPlace

PATIENCE_SECONDS = 30


class Watched:
    def __init__(self, folder: Path, *command: str, isolation: Isolation = Isolation.RELOCATED) -> None:
        (folder / "ml").mkdir()
        self.lines: list[str] = []
        self.printed = threading.Event()
        self.over = threading.Event()
        self.code: int | None = None
        self.host = start_host(
            folder=folder,
            command=command,
            environment={"PATH": os.environ["PATH"]},
            own_image=False,
            isolation=isolation,
            place=HostPlace(number=1),
            on_line=self._line,
            on_exit=self._exit,
        )
        self.host.watch()

    def _line(self, line: str) -> None:
        self.lines.append(line)
        self.printed.set()

    def _exit(self, code: int) -> None:
        self.code = code
        self.over.set()

    def wait(self) -> int | None:
        assert self.over.wait(PATIENCE_SECONDS)
        return self.code


def wait_until_gone(*process_ids: int) -> None:
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while any(process_identity.start_time(pid) is not None for pid in process_ids):
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def test_output_and_exit_code_arrive_in_this_order(tmp_path):
    say = r"echo out; echo err >&2; printf '\377\n'; head -c 450000 /dev/zero | tr '\0' x; echo; printf 'no newline'"
    watched = Watched(tmp_path, "sh", "-c", f"{say}; exit 7")
    assert watched.wait() == 7
    out, err, no_text, *parts, last = watched.lines
    assert (out, err, no_text, last) == ("out", "err", "\ufffd", "no newline")
    assert [len(part) for part in parts] == [200_000, 200_000, 50_000], "a line without an end goes on as several"


def test_sigterm_goes_to_the_first_process_alone(tmp_path):
    watched = Watched(
        tmp_path,
        "sh",
        "-c",
        "trap 'echo first; exit 75' TERM; sh -c 'trap \"echo child\" TERM; echo up; sleep 30' & wait",
    )
    assert watched.printed.wait(PATIENCE_SECONDS)
    watched.host.terminate()
    assert watched.wait() == 75
    assert watched.lines == ["up", "first"]


def test_sigkill_goes_to_the_whole_group(tmp_path):
    watched = Watched(tmp_path, "sh", "-c", "sleep 600 & echo $!; wait")
    assert watched.printed.wait(PATIENCE_SECONDS)
    child = int(watched.lines[0])
    watched.host.kill()
    assert watched.wait() == 137
    wait_until_gone(child)


def test_what_outlives_the_first_process_ends_with_it(tmp_path):
    watched = Watched(tmp_path, "sh", "-c", "sleep 600 > /dev/null 2>&1 & echo $!")
    assert watched.wait() == 0
    wait_until_gone(int(watched.lines[0]))


def test_a_command_that_does_not_exist_says_so(tmp_path):
    watched = Watched(tmp_path, "no-such-program")
    assert watched.wait() == 127
    assert watched.lines == ["exec 'no-such-program': No such file or directory"]


def namespaces() -> bool:
    return resolve_isolation(Isolation.AUTO) is Isolation.NAMESPACE


@pytest.mark.skipif(not namespaces(), reason="this machine has no private mount namespaces")
class TestNamespace:
    def test_a_job_sees_its_own_opt_ml_and_no_other_and_the_machines_opt(self, tmp_path):
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            script = f"ls /opt /opt/ml; touch /opt/ml/{name}"
            watched = Watched(tmp_path / name, "sh", "-c", script, isolation=Isolation.NAMESPACE)
            assert watched.wait() == 0
            assert (tmp_path / name / "ml" / name).exists()
            opt = {entry.name for entry in Path("/opt").iterdir()} | {"ml"}
            assert set(watched.lines) == opt | {"/opt:", "/opt/ml:", ""}


SERVER = """
import sys, threading, time
from pathlib import Path
from spotkeep_local.hosts.isolation import Isolation
from spotkeep_local.training.job_host import start_host
from spotkeep_local.training.job_network import HostPlace
host = start_host(
    folder=Path(sys.argv[1]), command=sys.argv[2:], environment={"PATH": "/usr/bin:/bin"},
    own_image=False, isolation=Isolation.RELOCATED, place=HostPlace(number=1),
    on_line=lambda line: print(line, flush=True), on_exit=lambda code: None,
)
host.watch()
time.sleep(600)
"""


@pytest.mark.skipif(not Path("/proc").exists(), reason="knows what left the group by /proc")
def test_what_a_job_started_ends_with_a_server_that_is_killed(tmp_path):
    (tmp_path / "ml").mkdir()
    script = "sleep 600 & echo $!; setsid sh -c 'echo $$; exec sleep 600'"
    command = [sys.executable, "-c", SERVER, str(tmp_path), "sh", "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        started = [int(server.stdout.readline()) for _ in range(2)]
        server.kill()
    wait_until_gone(*started)
