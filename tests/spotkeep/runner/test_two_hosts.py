"""Two hosts of a SageMaker job: two networks of their own, a host's name that says nothing, and ranks that meet.

SageMaker's containers are named `aws`, or by a name that is not in any table, and not `algo-1`. gloo offers its peers
the address that this name resolves to, and where it resolves to none, 127.0.0.1.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.long]

PAGE = Path(__file__).parents[3] / "docs" / "distributed-training.md"
DOCUMENTED = re.search(r"## Several hosts on SageMaker.*?```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
assert DOCUMENTED is not None
COMMAND = [
    word.replace("--nproc-per-node 8", "--nproc-per-node 1") for word in yaml.safe_load(DOCUMENTED[1])["command"]
]
"""The one of the page, with one rank a host."""
SCRIPT = """
import os
from datetime import timedelta
import torch
import torch.distributed as dist
import spotkeep

dist.init_process_group("gloo", timeout=timedelta(seconds=30))
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
state = {"progress": {"steps": 0}}
own = {"rank": torch.tensor([dist.get_rank()])}
with spotkeep.Checkpointer(state, per_rank=own, every_steps=1) as checkpointer:
    for step in checkpointer.steps(3):
        state["progress"]["steps"] += 1
print("met:", os.environ["SM_CURRENT_HOST"], dist.get_rank(), dist.get_world_size(), total.item(), flush=True)
dist.destroy_process_group()
"""
_AS_A_HOST = """
hostname aws && mount --bind "$HOST/hosts" /etc/hosts && echo here && read number || exit 1
ip addr add "198.18.0.$number/24" dev training0 && ip link set training0 up && ip link set lo up || exit 1
exec "$@"
"""


class Host:
    """A process with a network, a name and a table of names of its own, and a job in it once it is wired."""

    def __init__(self, folder: Path, *, number: int, pyz: Path) -> None:
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
        self.names.write_text("127.0.0.1 localhost\n")
        work = folder / "work"
        work.mkdir()
        (work / "train.py").write_text(textwrap.dedent(SCRIPT))
        self.process = subprocess.Popen(
            ["unshare", "--net", "--uts", "--mount", "--propagation", "private", "sh", "-c", _AS_A_HOST, "host",
             sys.executable, str(pyz), "run", "--", *COMMAND],
            cwd=work,
            env={
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "HOST": str(folder),
                "SAGEMAKER_BASE_DIR": str(self.ml),
                "TRAINING_JOB_NAME": "two-hosts-1",
                "OMP_NUM_THREADS": "1",
            },
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def is_there(self) -> str | None:
        """Wait until the host stands; give why it does not."""
        assert self.process.stdout is not None
        if self.process.stdout.readline() == "here\n":
            return None
        return self.process.communicate()[1].strip() or "no reason"

    def begin(self) -> None:
        """Give it its address, and start the job."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{self.number}\n")
        self.process.stdin.flush()

    def wait_for_warning(self, text: str) -> None:
        """Read what the job says on standard error, until a line holds this."""
        assert self.process.stderr is not None
        assert any(text in line for line in self.process.stderr)


@pytest.fixture
def hosts(tmp_path: Path, pyz: Path) -> Iterator[list[Host]]:
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("two networks of their own need root, unshare and ip")
    both = []
    for number in (1, 2):
        folder = tmp_path / f"host-{number}"
        folder.mkdir()
        both.append(Host(folder, number=number, pyz=pyz))
    try:
        for host in both:
            if refused := host.is_there():
                pytest.skip(f"this machine lets no process have a network and a name of its own: {refused}")
        first, second = (str(host.process.pid) for host in both)
        wire = ["ip", "link", "add", "name", "training0", "netns", first, "type", "veth", "peer", "name", "training0"]
        wired = subprocess.run([*wire, "netns", second], capture_output=True, text=True, check=False)
        if wired.returncode:
            pytest.skip(f"this machine wires no two networks: {wired.stderr.strip()}")
        yield both
    finally:
        for host in both:
            host.process.kill()
            host.process.communicate()


def test_ranks_meet_on_two_hosts_whose_own_names_resolve_to_nothing_and_whose_job_names_resolve_late(hosts):
    table = "198.18.0.1 algo-1\n198.18.0.2 algo-2\n"
    first, second = hosts
    second.names.write_text(f"127.0.0.1 localhost\n{table}")
    for host in hosts:
        host.begin()
    first.wait_for_warning("waiting until the names of all hosts resolve: algo-1, algo-2")
    with first.names.open("a") as names:
        names.write(table)
    outputs = [host.process.communicate(timeout=300) for host in hosts]
    assert [host.process.returncode for host in hosts] == [0, 0], outputs
    for rank, (host, (output, _)) in enumerate(zip(hosts, outputs, strict=True)):
        assert f"met: algo-{rank + 1} {rank} 2 3.0\n" in output
        assert list((host.ml / "checkpoints").glob("step-*3/*")), "each host has its ranks' files"
