"""The benchmark writes what it promises, on any folder of traces, and says how to get some where there are none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.policy import setting
from benchmarks.policy.__main__ import main
from spotkeep_planner.traces import CapacityTrace, write_trace
from tests.models.capacity_traces import trace_of

PROJECT = Path(__file__).parents[3]


def made_up(zone: str, *, seed: int, days: int = 12) -> CapacityTrace:
    random = np.random.default_rng(seed)
    ticks = days * 48
    available = np.repeat(random.random(ticks // 8) < 0.6, 8)
    return trace_of(available.tolist(), price=1.0 + seed / 10, tick_s=1800.0, zone=zone)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inner = tmp_path / "traces" / "made-up"
    inner.mkdir(parents=True)
    for seed, zone in enumerate(("a", "b")):
        write_trace(made_up(zone, seed=seed), inner / f"{zone}.csv.gz")
    return tmp_path / "traces"


@pytest.mark.long
def test_it_writes_every_figure_that_has_a_target(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "policy.json"
    sizes = ["--windows", "1", "--timed-windows", "3", "--processes", "1"]
    command = [sys.executable, "-m", "benchmarks.policy", "--traces", str(folder), *sizes, "--output", str(output)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(output.read_text())
    assert {entry["policy"] for entry in document["results"]} == {"on-demand", "greedy", "uniform-progress", "spotkeep"}
    assert {entry["deadline_h"] for entry in document["results"]} == {52.0, 60.0, 70.0, 92.0}
    assert {(entry["zones"], entry["n"]) for entry in document["results"]} == {(1, 2), (2, 1)}
    for entry in document["results"]:
        assert entry["misses"] == 0
        assert 1.0 <= entry["cost_vs_optimum_mean"] <= entry["cost_vs_optimum_p90"] * 1.5
    assert set(document["forecast"]["share_within_80"]) == {"cost_usd", "finish_s"}
    assert 0 < document["checkpoint_interval"]["mean"] <= 1.001
    assert document["speed"]["windows"] == 3
    assert "spotkeep" in done.stdout


def test_it_says_how_to_get_traces_where_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmark", "--traces", str(tmp_path / "nowhere")])
    assert main() == 1
    assert "git clone" in capsys.readouterr().out


def test_a_zone_is_never_judged_by_what_was_learnt_from_it() -> None:
    traces = [made_up(zone, seed=seed) for seed, zone in enumerate("abcdef")]
    tasks = setting.tasks(traces, train=(), windows=5, seed=0, on_demand_price=3.0)
    singles = [task for task in tasks if len(task.judged) == 1]
    assert sorted(task.judged[0].zone for task in singles) == list("abcdef")
    for task in tasks:
        assert not {trace.zone for trace in task.judged} & {trace.zone for trace in task.learnt_from}
        assert not task.of_another_time
    assert {len(task.learnt_from) for task in singles} == {4}
    assert [len(task.judged) for task in tasks if len(task.judged) > 1] == [3, 3, 6]
