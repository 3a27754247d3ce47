"""The runners of a job's hosts on one machine: each host ends with the reason that the job has, in any phase of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spotkeep_fleet.ranks import Ranks
from spotkeep_fleet.training_spec import NOT_STARTED, SPEC_VARIABLE, TrainingSpec
from tests.ports import free_ports

from .conftest import put_spec

HOSTS = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
"""Names that resolve everywhere. The first one is where the others connect."""
WAITS = "echo begun; sleep 600"
_OPEN = "01"
"""The state of a connection in proc(5), "/proc/net/tcp"."""
_RUNS = """
import runpy, sys
sys.path.insert(0, sys.argv[1])
from spotkeep.runner.hosts import OtherHosts
OtherHosts.wait_until_all_are_there.__kwdefaults__["most_seconds"] = float(sys.argv[2])
sys.argv = [sys.argv[1], "run"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Host:
    """The runner of one host."""

    def __init__(self, folder: Path, process: subprocess.Popen[str], *, port: int) -> None:
        self.ml = folder / "ml"
        self.process = process
        self.port = port

    def wait_for(self, text: str) -> None:
        """Read until a line holds this."""
        assert self.process.stdout is not None
        said = []
        for line in self.process.stdout:
            said.append(line)
            if text in line:
                return
        raise AssertionError(said)

    def wait_until_another_has_connected(self) -> None:
        """Wait until the kernel shows an open connection to the first host. A setup can begin before that."""
        for _ in range(3000):
            connections = [line.split()[1:4] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
            if any(own.endswith(f":{self.port:04X}") and state == _OPEN for own, _, state in connections):
                return
            time.sleep(0.1)
        raise AssertionError(connections)

    def finish(self) -> int:
        """Read the rest and give the exit code."""
        self.said, _ = self.process.communicate(timeout=240)
        return self.process.returncode

    @property
    def failure(self) -> str | None:
        path = self.ml / "output" / "failure"
        return path.read_text() if path.exists() else None


@pytest.fixture
def start(tmp_path: Path, pyz: Path) -> Iterator[Callable[..., Host]]:
    hosts: list[Host] = []
    port = free_ports(2)  # torchrun takes the first one, and the runner of the first host the second.

    def start(number: int, spec: TrainingSpec, *, of: int = 2, script: str = "", most_seconds: float = 1800.0) -> Host:
        folder = tmp_path / f"host-{number}"
        configuration = folder / "ml" / "input" / "config"
        configuration.mkdir(parents=True)
        resources = {"current_host": HOSTS[number - 1], "hosts": HOSTS[:of], "network_interface_name": "lo"}
        (configuration / "resourceconfig.json").write_text(json.dumps(resources))
        (folder / "train.py").write_text(textwrap.dedent(script))
        process = subprocess.Popen(
            [sys.executable, "-c", _RUNS, str(pyz), str(most_seconds)],
            cwd=folder,
            env={
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "SAGEMAKER_BASE_DIR": str(folder / "ml"),
                "TMPDIR": str(folder),  # where the mark of a setup that has run is; one of another test counts for none
                "TRAINING_JOB_NAME": "endings-1",
                "SM_MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
                "SPOTKEEP_NOTICE_SECONDS": "5",
                SPEC_VARIABLE: put_spec(folder / "ml", spec),
            },
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        hosts.append(Host(folder, process, port=port + 1))
        return hosts[-1]

    yield start
    for host in hosts:
        if host.process.poll() is None:
            os.killpg(host.process.pid, signal.SIGKILL)
        host.process.communicate()


def spec_of(*command: str, setup: str = "", processes: int = 1) -> TrainingSpec:
    return TrainingSpec(command or ("python", "train.py"), setup=setup, distributed=Ranks(processes=processes))


@pytest.mark.parametrize("failing", [1, 2])
def test_a_host_whose_setup_fails_ends_the_setup_of_the_other_with_its_reason(start, failing):
    other = start(3 - failing, spec_of(setup=WAITS))
    other.wait_for("begun")
    failed = start(failing, spec_of(setup="echo no licence >&2; exit 3"))
    assert [failed.finish(), other.finish()] == [71, 71], (failed.said, other.said)
    assert "no licence" in failed.failure
    assert other.failure.startswith(f"on {HOSTS[failing - 1]}: ")
    assert "no licence" in other.failure


def test_a_command_that_bash_cannot_read_on_one_host_is_a_mistake_of_the_input_on_both(start):
    other = start(1, spec_of(setup=WAITS))
    other.wait_for("begun")
    failed = start(2, TrainingSpec("for", distributed=Ranks(processes=1)))
    assert [failed.finish(), other.finish()] == [126, 126], (failed.said, other.said)
    assert failed.failure.startswith(f"{NOT_STARTED}bash cannot read the command: ")
    assert other.failure.startswith(f"{NOT_STARTED}on {HOSTS[1]}: bash cannot read the command: ")


def test_hosts_that_wait_for_one_that_does_not_come_all_name_it(start, tmp_path):
    # The first host lets the others connect while it installs. It begins to wait once the second one has.
    has_come = tmp_path / "has-come"
    second = start(2, spec_of(), of=3)
    first = start(1, spec_of(setup=f"until [ -e {has_come} ]; do sleep 0.1; done"), of=3, most_seconds=5)
    first.wait_until_another_has_connected()
    has_come.touch()
    assert [first.finish(), second.finish()] == [68, 68], (first.said, second.said)
    assert f"did not meet at {HOSTS[0]}:" in first.failure
    assert HOSTS[2] in first.failure
    assert second.failure.startswith(f"on {HOSTS[0]}: these hosts of this job did not meet")


@pytest.mark.long
@pytest.mark.parametrize("noticed", [1, 2])
def test_a_notice_to_a_host_that_installs_interrupts_the_others(start, noticed):
    hosts = [start(number, spec_of(setup=WAITS)) for number in (1, 2)]
    for host in hosts:
        host.wait_for("begun")
    hosts[noticed - 1].process.send_signal(signal.SIGTERM)
    assert [host.finish() for host in hosts] == [75, 75], [host.said for host in hosts]
    assert [host.failure for host in hosts] == [None, None]


@pytest.mark.long
def test_a_host_that_is_lost_while_it_installs_interrupts_the_others(start):
    first, second = hosts = [start(number, spec_of(setup=WAITS)) for number in (1, 2)]
    for host in hosts:
        host.wait_for("begun")
    first.wait_until_another_has_connected()
    os.killpg(second.process.pid, signal.SIGKILL)
    assert first.finish() == 75
    assert first.failure.startswith(f"host lost: {HOSTS[1]} is gone")


@pytest.mark.torch
@pytest.mark.long
def test_of_a_failure_and_of_what_follows_from_it_each_host_has_the_failure_though_it_is_heard_last(start):
    """On the second host torchrun waits for a rank that is slow to end. The first host's rank has failed by then."""
    pytest.importorskip("torch")
    script = """
        import os, signal, sys, time
        import torch, torch.distributed as dist
        dist.init_process_group("gloo")
        dist.barrier()
        if dist.get_rank() == 3:
            signal.signal(signal.SIGTERM, lambda *_: time.sleep(4))
            open("is-slow", "w").close()
            while not os.path.exists("fails"):
                time.sleep(0.01)
            dist.destroy_process_group()
            time.sleep(600)
        if dist.get_rank() == 2:
            while not os.path.exists("is-slow"):
                time.sleep(0.01)
            open("fails", "w").close()
            raise ValueError("a bad sample")
        dist.all_reduce(torch.ones(1))
    """
    hosts = [start(number, spec_of(processes=2), script=script) for number in (1, 2)]
    assert [host.finish() for host in hosts] == [1, 1], [host.said for host in hosts]
    first, second = hosts
    assert second.failure.startswith("python train.py exited with code 1:")
    assert "ValueError: a bad sample" in second.failure
    assert first.failure.startswith(f"on {HOSTS[1]}: python train.py exited with code 1:")
    assert "ValueError: a bad sample" in first.failure
