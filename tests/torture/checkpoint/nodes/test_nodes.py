"""Checkpoints of nodes, put to the test as `make torture-nodes` does, and proof that the torture would notice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spotkeep.disk.writers import Writers
from spotkeep.remote.remote_checkpoints import RemoteCheckpoints
from spotkeep_agent.training import node_copies
from tests.torture.checkpoint.nodes import story
from tests.torture.checkpoint.nodes.story import NodeRecording, quick_copies, run_trial
from tests.torture.checkpoint.nodes.trials import NODE_LOST, SPLIT, NodeTrial
from tests.torture.checkpoint.nodes.worlds import NodeForge
from tests.torture.checkpoint.trials import TrialFindings

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.long]

ROOT = Path(__file__).parents[4]


def test_the_short_form_breaks_nothing(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "tests.torture.checkpoint.nodes", "--quick", "--output", str(report)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(report.read_text())
    assert found["unbroken"]
    assert (found["trials"], found["lost"], found["mixed"], found["wrong_ends"]) == (7, 0, 0, 0)
    assert len(found["kinds"]) == 7


@pytest.fixture(scope="module")
def forge() -> Iterator[NodeForge]:
    with quick_copies(), NodeForge() as forge:
        yield forge


@pytest.fixture(scope="module")
def recording(forge: NodeForge, tmp_path_factory: pytest.TempPathFactory) -> NodeRecording:
    return NodeRecording(forge, tmp_path_factory.mktemp("undisturbed"))


def without_fence(patch: pytest.MonkeyPatch) -> None:
    """A leader without the lease uploads manifests, and readers take them."""
    patch.setattr(RemoteCheckpoints, "_require_lock", lambda _: None)
    patch.setattr(Writers, "reads", lambda *_: True)


def with_manifests_of_missing_files(patch: pytest.MonkeyPatch) -> None:
    """The leader does not wait for the files of the other nodes, which do not send them."""
    patch.setattr(RemoteCheckpoints, "_await", lambda *_: None)
    patch.setattr(node_copies._OwnFiles, "send", lambda *_, **__: None)


@pytest.mark.parametrize(
    ("ruin", "call", "fault", "said"),
    [
        (SPLIT, 0, without_fence, ", and with the lease were "),
        (NODE_LOST, 70, with_manifests_of_missing_files, "missing. The run does not begin anew beside them"),
    ],
)
def test_a_fault_of_the_product_is_noticed(
    ruin: str,
    call: int,
    fault: Callable[[pytest.MonkeyPatch], None],
    said: str,
    forge: NodeForge,
    recording: NodeRecording,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same trial of the product as it is has no problem."""
    monkeypatch.setattr(story, "_SECOND_KILL", 1.0)
    monkeypatch.setattr(story, "_CALLS_OF_SECOND", 1)
    monkeypatch.setattr(story, "_SECONDS_OF_ENDS", (60.0,))
    facts: dict[str, Any] = {"nodes": 2, "rank": 2, "name": "any", "then": (2, 2), "seed": 3}
    trial = NodeTrial(ruin=ruin, kind="kill" if ruin == NODE_LOST else "", call=call, **facts)

    def tried() -> TrialFindings:
        return run_trial(trial, forge, recording, tmp_path)

    assert tried().problems == ()
    fault(monkeypatch)
    assert said in " ".join(tried().problems)
