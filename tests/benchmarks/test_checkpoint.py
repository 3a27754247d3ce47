"""The checkpoint benchmark runs, and writes what the issue of its targets asks for. Nothing is judged by time here."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.checkpoint import before
from benchmarks.checkpoint.__main__ import TARGETS, main, no_room
from benchmarks.checkpoint.before import compared
from benchmarks.checkpoint.contenders import BASELINE, CONTENDERS, OURS, copies_beside
from benchmarks.checkpoint.machine import Machine
from benchmarks.paired import paired_ratio


@given(ratios=st.lists(st.floats(0.01, 100), min_size=1, max_size=60), target=st.floats(0.01, 100), data=st.randoms())
def test_a_ratio_is_decided_only_where_all_of_its_interval_says_so(
    ratios: list[float], target: float, data: random.Random
) -> None:
    others = [data.uniform(0.5, 2) for _ in ratios]
    found = paired_ratio([ratio * other for ratio, other in zip(ratios, others, strict=True)], others)
    assert found.low <= found.median <= found.high
    verdict = found.verdict(target)
    if verdict == "met":
        assert found.high <= target
    if verdict == "not met":
        assert found.low > target
    if found.high - found.low > target or len(ratios) < 6:
        assert verdict == "not decided"


def test_the_interval_of_thirty_rounds_is_that_of_the_sign_test() -> None:
    found = paired_ratio(range(1, 31), [1] * 30)
    # Tables of the sign test: the 10th and the 21st of 30.
    assert (found.low, found.median, found.high) == (10, 15.5, 21)


def test_a_state_too_large_for_this_machine_is_left_out_with_the_reason(tmp_path: Path) -> None:
    gib = 2**30
    assert no_room(2**20, list(CONTENDERS), tmp_path) is None
    assert "of disk" in str(no_room(2**20 * gib, [OURS, BASELINE], tmp_path))
    # Kept stagers have a copy each. Copies that come and go are there one at a time.
    kept = ["DCP async_save, cached, thread", "DCP async_save, cached, process"]
    assert [copies_beside(kept[:count]) for count in range(3)] == [0, 1, 2]
    assert copies_beside([OURS, BASELINE, "DCP save", "safetensors + fsync"]) == 0
    assert copies_beside(CONTENDERS) == 3


@pytest.mark.torch
@pytest.mark.long
def test_the_training_of_a_gpu_runs_on_the_cpu_too(tmp_path: Path) -> None:
    report = tmp_path / "gpu.json"
    places = ["--directory", str(tmp_path / "disk"), "--output", str(report)]
    command = [sys.executable, "-m", "benchmarks.checkpoint.gpu", "--quick", "--device", "cpu", *places]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2], env={**os.environ, "OMP_NUM_THREADS": "1"})
    found = json.loads(report.read_text())
    assert (found["restored"], found["saves"], found["verdict"]) == (True, 2, "not decided")


@pytest.mark.torch
@pytest.mark.long
def test_restores_are_measured_beside_bare_reads(tmp_path: Path) -> None:
    report = tmp_path / "restores.json"
    places = ["--directory", str(tmp_path / "disk"), "--output", str(report)]
    command = [sys.executable, "-m", "benchmarks.checkpoint.restores", "--quick", *places]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2])
    found = json.loads(report.read_text())
    assert set(found["figures"]) == {"now: warm / read", "now: cold / read"}
    (figures,) = found["rounds"]["now"]
    assert figures["warm"] > figures["bytes"] > 0
    assert list((tmp_path / "disk").iterdir()) == [], "nothing stays on the disk"


@pytest.mark.torch
@pytest.mark.long
def test_the_short_form_runs_and_writes_every_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "checkpoint.json"
    files = ["--output", str(report), "--directory", str(tmp_path / "disk")]
    monkeypatch.setattr(sys, "argv", ["benchmark", "--quick", "--against", "DCP async_save, default", *files])
    monkeypatch.setattr(sys, "path", [*sys.path])
    # The benchmark sets it.
    monkeypatch.setenv("SPOTKEEP_EVENTS", "stdout")
    assert main() == 0
    (size,) = json.loads(report.read_text())["sizes"].values()
    assert size["tensors"] == 72
    assert set(size["ratios"]) == set(TARGETS)
    for key, ratio in size["ratios"].items():
        assert ratio["target"] == TARGETS[key]
        if key != "memory_vs_state":
            assert (ratio["interval"], ratio["verdict"]) == ([None, None], "not decided"), "one round decides nothing"
    assert size["left_out"] == {}
    for figures in size["saves"].values():
        assert figures["durable"]["median_s"] > 0
    copies, writes = {"warm_copy", "warm_copy_all_processors"}, {"direct_write", "extra_of_a_bare_write"}
    reads = {"direct_read", "read_warm", "read_warm_all_processors"}
    assert copies | writes | reads == set(size["machine"])
    assert size["stolen_share"] is None or 0 <= size["stolen_share"] <= 1
    assert not (tmp_path / "disk").exists(), "what was measured is removed"


def test_without_torch_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(sys, "argv", ["benchmark"])
    assert main() == 2
    assert "run `make setup-torch`" in capsys.readouterr().err


class _Failing:
    """A contender that breaks in its third save."""

    def __init__(self) -> None:
        self.saves = 0
        self.cleared = 0

    def save(self) -> None:
        self.saves += 1
        if self.saves == 3:
            raise RuntimeError("no such stager")

    def durable_at(self) -> float:
        return 0.0

    def clear(self) -> None:
        self.cleared += 1

    def close(self) -> None:
        pass


@pytest.mark.torch
def test_who_fails_is_left_out_with_the_reason_and_the_others_go_on(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from benchmarks.checkpoint.contenders import BASELINE, CONTENDERS
    from benchmarks.checkpoint.measurement import Course
    from benchmarks.checkpoint.workload import Workload

    workload = Workload(state_bytes=2**22)
    failing = _Failing()
    entrants = {"failing": failing, BASELINE: CONTENDERS[BASELINE](workload, tmp_path / "baseline")}
    course = Course(workload, entrants, Machine(tmp_path, size_bytes=2**22), advance=lambda: None)
    course.warm_up()
    for number in range(2):
        course.measure_saves(number)
    assert course.left_out == {"failing": "RuntimeError: no such stager"}
    assert list(course.saves) == [BASELINE]
    assert len(course.saves[BASELINE]["extra"].rounds) == 2
    assert (failing.saves, failing.cleared) == (3, 3)


@pytest.mark.torch
def test_a_failure_of_what_every_ratio_needs_ends_the_benchmark(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from benchmarks.checkpoint.contenders import OURS
    from benchmarks.checkpoint.measurement import Course
    from benchmarks.checkpoint.workload import Workload

    course = Course(
        Workload(state_bytes=2**22),
        {OURS: _Failing()},
        Machine(tmp_path, size_bytes=2**22),
        advance=lambda: None,
    )
    with pytest.raises(RuntimeError, match="no such stager"):
        course.warm_up()


def test_a_comparison_with_an_earlier_commit_takes_the_ratios_round_by_round() -> None:
    fast, slow, slowest = (
        dict.fromkeys(("save call", "save durable", "restore", "step", "saved step"), seconds)
        for seconds in (1.0, 2.0, 4.0)
    )
    figures = compared([slow, fast, fast], [slowest, fast, fast])
    judged = {"ratio": 1.0, "low": None, "high": None, "verdict": "not decided"}
    assert figures["step"] == {"before_ms": 1000.0, "now_ms": 1000.0, **judged}
    assert compared([slow, slow, fast], [slowest, slowest, fast])["save call"]["ratio"] == 2.0


def test_the_library_of_an_earlier_commit_is_unpacked_beside_this_ones_routine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = tmp_path / "app" / "training/spotkeep/native"
    native.mkdir(parents=True)
    git = ("git", "-C", str(tmp_path / "app"), "-c", "user.name=t", "-c", "user.email=t@example.org")
    (native / "routine.c").write_text("earlier")
    for words in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "-m", "earlier")):
        subprocess.run([*git, *words], check=True)
    (native / "routine.c").write_text("now")
    (native / "routine.so").write_text("compiled")
    monkeypatch.setattr(before, "_ROOT", tmp_path / "app")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    library = before.library_of("HEAD", scratch)
    assert {path.name: path.read_text() for path in (library / "spotkeep/native").iterdir()} == {
        "routine.c": "earlier",
        "routine.so": "compiled",
    }
