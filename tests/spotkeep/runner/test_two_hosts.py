"""Two hosts of a SageMaker job: two networks of their own, a host's name that says nothing, and ranks that meet.

SageMaker's containers are named `aws`, or by a name that is not in any table, and not `algo-1`. gloo offers its peers
the address that this name resolves to, and where it resolves to none, 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from spotkeep.runner.process_table import descendants_of, known_processes
from spotkeep_fleet.training_spec import SPEC_VARIABLE, TrainingSpec
from spotkeep_jobs.document.command import training_spec_of
from spotkeep_jobs.document.request import JobRequest

from .conftest import put_spec

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.long]

PAGE = (Path(__file__).parents[3] / "docs" / "distributed-training.md").read_text()
SECTION = PAGE.partition("## Several hosts on SageMaker\n")[2].partition("\n## ")[0]
DOCUMENTED = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", SECTION, re.DOTALL)]
"""The parts of job files that the page shows: with the field, with a line of torchrun, and with a command by hand."""
STARTED, LOST = re.findall(r"test_two_hosts.py -->\n```text\n(.*?)```", SECTION, re.DOTALL)
"""What the page shows of the second host that starts two ranks, and of the first one that loses the other."""
SCRIPT = """
import os
from datetime import timedelta
import torch
import torch.distributed as dist
import spotkeep

dist.init_process_group("gloo", timeout=timedelta(seconds=600))
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
state = {"progress": {"steps": 0}}
own = {"rank": torch.tensor([dist.get_rank()])}
with spotkeep.Checkpointer(state, per_rank=own, every_steps=1) as checkpointer:
    for step in checkpointer.steps(3):
        state["progress"]["steps"] += 1
met = ["met:", os.environ["SM_CURRENT_HOST"], dist.get_rank(), dist.get_world_size(), total.item()]
# In one piece: print writes word by word where Python buffers nothing, and the ranks share one pipe.
os.write(1, (" ".join(map(str, met)) + os.linesep).encode())
dist.destroy_process_group()
"""
WAITS_IN_A_COLLECTIVE = """
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
os.write(1, b"together\\n")
if os.environ["SM_CURRENT_HOST"] == "algo-2":
    {second}
dist.all_reduce(torch.ones(1))
"""
TRAINS_TO_A_NOTICE = """
import os
import time
import torch
import torch.distributed as dist
import spotkeep

dist.init_process_group("gloo")
state = {"progress": {"steps": 0}}
with spotkeep.Checkpointer(state, every_steps=1000) as checkpointer:
    for step in checkpointer.steps(100_000):
        dist.all_reduce(torch.ones(1))
        state["progress"]["steps"] += 1
        if step == 3:
            os.write(1, b"together\\n")
        time.sleep(0.01)
"""
_AS_A_HOST = """
hostname aws && mount --bind "$HOST/hosts" /etc/hosts && echo here && read number || exit 1
ip addr add "198.18.0.$number/24" dev training0 && ip link set training0 up && ip link set lo up || exit 1
exec "$@"
"""
TABLE = "198.18.0.1 algo-1\n198.18.0.2 algo-2\n"


def spec_of(**fields: Any) -> TrainingSpec:
    """The spec of a job file with these fields."""
    command = fields.pop("command", "python train.py")
    return training_spec_of(
        JobRequest.model_validate({"name": "hosts", "command": command, "install": "none", **fields})
    )


class Host:
    """A process with a network, a name and a table of names of its own, and a job in it once it is wired."""

    def __init__(self, folder: Path, *, number: int, pyz: Path, spec: TrainingSpec, script: str) -> None:
        self.folder = folder
        self.number = number
        self.ml = folder / "ml"
        configuration = self.ml / "input" / "config"
        configuration.mkdir(parents=True)
        hosts = ["algo-1", "algo-2"]
        (configuration / "resourceconfig.json").write_text(
            json.dumps({"current_host": hosts[number - 1], "hosts": hosts, "network_interface_name": "training0"})
        )
        self.names = folder / "hosts"
        self.names.write_text(f"127.0.0.1 localhost\n{TABLE}")
        work = folder / "work"
        work.mkdir()
        (work / "train.py").write_text(textwrap.dedent(script))
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            ["unshare", "--net", "--uts", "--mount", "--propagation", "private", "sh", "-c", _AS_A_HOST, "host",
             sys.executable, str(pyz), "run"],
            cwd=work,
            env={
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "HOST": str(folder),
                "SAGEMAKER_BASE_DIR": str(self.ml),
                "TRAINING_JOB_NAME": "two-hosts-1",
                "OMP_NUM_THREADS": "1",
                "SPOTKEEP_NOTICE_SECONDS": "20",
                SPEC_VARIABLE: put_spec(self.ml, spec),
            },
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        self._said = threading.Condition()
        self._reading: threading.Thread | None = None

    def is_there(self) -> str | None:
        """Wait until the host stands; give why it does not."""
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        return None if said == "here\n" else said + (self.process.communicate()[0] or "")

    def begin(self) -> None:
        """Give it its address, and start the job."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{self.number}\n")
        self.process.stdin.flush()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def wait_for(self, text: str) -> None:
        """Wait until a line of the job holds this."""
        with self._said:
            assert self._said.wait_for(lambda: any(text in line for line in self.lines), 600), self.lines

    def finish(self) -> int:
        """Wait until the job has ended; give its exit code."""
        code = self.process.wait(timeout=300)
        assert self._reading is not None
        self._reading.join(30)
        return code

    @property
    def failure(self) -> str | None:
        path = self.ml / "output" / "failure"
        return path.read_text() if path.exists() else None

    @property
    def processes(self) -> set[int]:
        """The ids of all of its processes."""
        return {self.process.pid, *descendants_of(self.process.pid, known_processes())}

    def kill(self) -> None:
        """End all of it at once, as a machine that is taken."""
        for pid in self.processes:
            with contextlib.suppress(ProcessLookupError):  # It has come to its end.
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """End all of it that is left."""
        if self.process.poll() is None:
            self.kill()
        self.process.wait()
        if self._reading is not None:
            self._reading.join(30)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._said:
                self.lines.append(line.rstrip("\n"))
                self._said.notify_all()


@pytest.fixture
def start(tmp_path: Path, pyz: Path) -> Iterator[Callable[..., Sequence[Host]]]:
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("two networks of their own need root, unshare and ip")
    both: list[Host] = []

    def start(spec: TrainingSpec, *, script: str = SCRIPT) -> Sequence[Host]:
        for number in (1, 2):
            folder = tmp_path / f"host-{number}"
            folder.mkdir()
            both.append(Host(folder, number=number, pyz=pyz, spec=spec, script=script))
        for host in both:
            if refused := host.is_there():
                pytest.skip(f"this machine lets no process have a network and a name of its own: {refused}")
        first, second = (str(host.process.pid) for host in both)
        wire = ["ip", "link", "add", "name", "training0", "netns", first, "type", "veth", "peer", "name", "training0"]
        wired = subprocess.run([*wire, "netns", second], capture_output=True, text=True, check=False)
        if wired.returncode:
            pytest.skip(f"this machine wires no two networks: {wired.stderr.strip()}")
        return both

    yield start
    for host in both:
        host.close()


def test_the_page_shows_three_ways() -> None:
    assert [each.get("distributed") for each in DOCUMENTED] == ["torchrun", "torchrun", "none"]
    assert [str(each["command"]).split()[0] for each in DOCUMENTED] == ["python", "torchrun", "['sh',"]


@pytest.mark.parametrize(("documented", "ranks"), [(0, 2), (1, 2), (2, 1)], ids=["field", "torchrun", "by hand"])
def test_ranks_meet_on_two_hosts_whose_own_names_resolve_to_nothing_and_whose_job_names_resolve_late(
    start, documented, ranks
):
    fields = json.loads(json.dumps(DOCUMENTED[documented]).replace("--nproc-per-node 8", f"--nproc-per-node {ranks}"))
    if documented == 0:
        fields["distributed"] = {"launcher": "torchrun", "processes": ranks}
    first, second = hosts = start(spec_of(**fields))
    first.names.write_text("127.0.0.1 localhost\n")
    for host in hosts:
        host.begin()
    first.wait_for("waiting until the names of all hosts resolve: algo-1, algo-2")
    with first.names.open("a") as names:
        names.write(TABLE)
    assert [host.finish() for host in hosts] == [0, 0], (first.lines, second.lines)
    world = 2 * ranks
    for number, host in enumerate(hosts):
        for rank in range(number * ranks, (number + 1) * ranks):
            total = float(sum(range(1, world + 1)))
            assert f"met: algo-{number + 1} {rank} {world} {total}" in host.lines
        assert list((host.ml / "checkpoints").glob("step-3-0.0.1/*")), "each host has its ranks' files"
    if documented == 0:
        assert {*STARTED.replace("algo-1\n", "algo-1 ").splitlines()} <= {*second.lines}, "as the page shows it"


def test_a_host_that_is_taken_without_a_word_ends_the_ranks_of_the_other_and_the_job_is_interrupted(start):
    script = WAITS_IN_A_COLLECTIVE.replace("{second}", "import time; time.sleep(600)")
    first, second = hosts = start(spec_of(distributed="torchrun", instance_count=2), script=script)
    for host in hosts:
        host.begin()
    second.wait_for("together")
    first.wait_for("together")
    of_the_first = first.processes
    second.kill()
    assert first.finish() == 75, first.lines
    assert first.failure is not None
    assert first.failure.startswith("host lost: algo-2 is gone")
    assert {*LOST.splitlines()} - {"..."} <= {*first.lines}, "as the page shows it"
    ends = time.monotonic() + 120  # What is killed is gone a moment later: the kernel takes its memory first.
    while left := {pid for pid, each in known_processes().items() if pid in of_the_first and each.state != "Z"}:
        assert time.monotonic() < ends, f"ranks are left: {left}"
        time.sleep(0.05)


def test_a_rank_that_fails_ends_those_that_wait_for_it_with_its_code_and_its_reason(start):
    script = WAITS_IN_A_COLLECTIVE.replace("{second}", "raise SystemExit('no such file')").replace(
        "dist.all_reduce", "import time; time.sleep(600); dist.all_reduce"
    )
    first, second = hosts = start(spec_of(distributed="torchrun", instance_count=2), script=script)
    for host in hosts:
        host.begin()
    assert [host.finish() for host in hosts] == [1, 1], (first.lines, second.lines)
    assert second.failure is not None
    assert "no such file" in second.failure
    assert first.failure is not None
    assert first.failure.startswith("on algo-2: ")
    assert "python train.py" in first.failure


def test_a_notice_to_one_host_makes_both_save_the_same_step_and_leave_as_interrupted(start):
    first, second = hosts = start(spec_of(distributed="torchrun", instance_count=2), script=TRAINS_TO_A_NOTICE)
    for host in hosts:
        host.begin()
    first.wait_for("together")
    second.process.send_signal(signal.SIGTERM)
    assert [host.finish() for host in hosts] == [75, 75], (first.lines, second.lines)
    assert (first.failure, second.failure) == (None, None)
    saved = [{path.parent.name for path in (host.ml / "checkpoints").glob("step-*/*")} for host in hosts]
    assert len(saved[0]) == 1
    assert saved[1] <= saved[0]
