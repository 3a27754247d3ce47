"""The example of several nodes: worlds of one node and of two, each at another start, end as one process does."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import zipapp
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from spotkeep_fleet.training_spec import SPEC_CHANNEL, SPEC_VARIABLE, TrainingSpec, encode_spec, spec_file_name
from spotkeep_jobs.document.command import training_spec_of
from spotkeep_jobs.document.request import JobRequest
from tests.ports import free_ports

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.long]

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "nodes"
JOB = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
EPOCHS = 6
OPTIONS = {"epochs": EPOCHS, "seconds-per-step": 0.03}
EVENT = "spotkeep-event: "
INTERRUPTED = 75


class Node:
    """A node of a world: `spotkeep.pyz run` with an address and a disk of its own."""

    def __init__(
        self,
        folder: Path,
        *,
        pyz: Path,
        spec: TrainingSpec,
        own: str,
        hosts: Sequence[str],
        variables: Mapping[str, str],
    ) -> None:
        self.folder = folder
        configuration = folder / "input" / "config"
        configuration.mkdir(parents=True, exist_ok=True)
        (configuration / "resourceconfig.json").write_text(
            json.dumps({"current_host": own, "hosts": list(hosts), "network_interface_name": "lo"})
        )
        (configuration / "hyperparameters.json").write_text(json.dumps({k: str(v) for k, v in OPTIONS.items()}))
        content = encode_spec(spec)
        place = f"input/data/{SPEC_CHANNEL}/{spec_file_name(content)}"
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes(content)
        self.events: list[Mapping[str, Any]] = []
        self.lines: list[str] = []
        self._said = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, str(pyz), "run"],
            cwd=EXAMPLE,
            env={
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "SAGEMAKER_BASE_DIR": str(folder),
                "TRAINING_JOB_NAME": "nodes-1",
                "SPOTKEEP_RUN": "nodes",
                "SPOTKEEP_ATTEMPT": "1",
                "SPOTKEEP_PROGRESS_SECONDS": "0",
                "SPOTKEEP_NOTICE_SECONDS": "20",
                SPEC_VARIABLE: f"/opt/ml/{place}",
                **variables,
            },
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def wait_for(self, event: str, *, step: int) -> None:
        """Wait for an event of this step, or a later one."""

        def came() -> bool:
            return any(each["event"] == event and each.get("step", -1) >= step for each in self.events)

        with self._said:
            assert self._said.wait_for(lambda: came() or not self._reading.is_alive(), 240), self.lines
            assert came(), self.lines

    def ends(self) -> int:
        code = self.process.wait(timeout=240)
        self._reading.join(30)
        return code

    def kill(self) -> None:
        """End all of its processes at once, as a machine that is taken."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reading.join(30)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                with self._said:
                    self.lines.append(line.rstrip("\n"))
                    if line.startswith(EVENT):
                        self.events.append(json.loads(line[len(EVENT) :]))
                    self._said.notify_all()
        with self._said:
            self._said.notify_all()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Callable[[int], list[Node]]]:
    """Starts the next world of the run with so many nodes. Each of them has the files of all nodes before."""
    pyz = tmp_path / "spotkeep.pyz"
    zipapp.create_archive(
        ROOT / "training", pyz, main="spotkeep.__main__:main", filter=lambda path: "__pycache__" not in path.parts
    )
    fields = {key: JOB[key] for key in ("name", "command", "distributed")}
    spec = training_spec_of(JobRequest.model_validate({**fields, "install": "none"}))
    nodes: list[Node] = []
    leases = itertools.count(1)

    def start(size: int) -> list[Node]:
        hosts = [f"127.0.0.{number + 2}" for number in range(size)]
        lease, port = next(leases), free_ports(2)
        folders = [tmp_path / host for host in hosts]
        bring_together([tmp_path / f"127.0.0.{number}" / "checkpoints" for number in (2, 3)])
        variables = {"SPOTKEEP_LEASE": str(lease), "SM_MASTER_PORT": str(port), **JOB["environment"]}
        begun = [
            Node(
                folder, pyz=pyz, spec=spec, own=host, hosts=hosts,
                # An agent names the notice file, and knows what becomes of the node. So the runner does not wait.
                variables={**variables, "SPOTKEEP_NOTICE_FILE": str(folder / f"notice-{lease}.json")},
            )
            for folder, host in zip(folders, hosts, strict=True)
        ]  # fmt: skip
        nodes.extend(begun)
        return begun

    yield start
    for node in nodes:
        node.kill()


def bring_together(folders: Sequence[Path]) -> None:
    """Give each node the files of the others, as copies by S3 do."""
    for source, target in itertools.permutations(folders, 2):
        for file in source.rglob("*") if source.is_dir() else ():
            copy = target / file.relative_to(source)
            if file.is_file() and not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of one process that was left alone."""
    folder = tmp_path_factory.mktemp("alone")
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1",
         str(EXAMPLE / "train.py"), "--epochs", str(EPOCHS)],
        env={
            **os.environ, **JOB["environment"], "PYTHONPATH": str(ROOT / "training"), "SM_MODEL_DIR": str(folder),
            "SPOTKEEP_CHECKPOINT_DIR": str(folder / "checkpoints"),
        },
        cwd=folder, check=True, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    return folder


def test_worlds_of_two_nodes_and_of_one_end_as_one_process_that_was_left_alone(world, alone):
    first, second = world(2)
    first.wait_for("progress", step=23)
    second.process.send_signal(signal.SIGTERM)
    assert [first.ends(), second.ends()] == [INTERRUPTED, INTERRUPTED], (first.lines, second.lines)

    first, second = world(2)
    first.wait_for("saved", step=50)
    second.kill()
    assert first.ends() == INTERRUPTED, first.lines

    (only,) = world(1)
    only.wait_for("progress", step=80)
    only.process.send_signal(signal.SIGTERM)
    assert only.ends() == INTERRUPTED, only.lines

    first, second = world(2)
    assert [first.ends(), second.ends()] == [0, 0], (first.lines, second.lines)
    assert (first.folder / "model" / "model.pt").read_bytes() == (alone / "model.pt").read_bytes()
    taken = json.loads((first.folder / "model" / "samples-taken.json").read_text())
    assert taken == json.loads((alone / "samples-taken.json").read_text())
    assert set(taken) == {EPOCHS}, "each sample once an epoch"
