"""The checkpoint benchmark runs, and writes what the issue of its targets asks for. Nothing is judged by time here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.checkpoint.machine import Machine, cached_share, drop_from_cache, read_into_cache
from benchmarks.checkpoint.targets import TARGETS, Ratio

ROOT = Path(__file__).parents[2]


@pytest.mark.torch
@pytest.mark.slow
def test_the_short_form_runs_and_writes_every_figure(tmp_path: Path) -> None:
    report = tmp_path / "checkpoint.json"
    command = [sys.executable, "-m", "benchmarks.checkpoint", "--quick"]
    done = subprocess.run(
        [*command, "--output", str(report), "--directory", str(tmp_path / "disk")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (size,) = json.loads(report.read_text())["sizes"].values()
    assert size["tensors"] == 72
    assert set(size["ratios"]) == set(TARGETS)
    for key, ratio in size["ratios"].items():
        assert ratio["target"] == TARGETS[key]
        assert ratio["met"] == (ratio["value"] <= ratio["target"])
    for figures in size["saves"].values():
        assert figures["durable"]["median_s"] > 0
    assert {"warm_copy", "direct_write", "direct_read", "read_warm", "read_warm_two_threads"} == set(size["machine"])
    assert not (tmp_path / "disk").exists(), "what was measured is removed"


def test_without_torch_it_says_how_to_get_it() -> None:
    without_torch = "import sys; sys.modules['torch'] = None; sys.argv = ['benchmark']; "
    run = "from benchmarks.checkpoint.__main__ import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", without_torch + run], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "run `make setup-torch`" in done.stderr


@pytest.mark.parametrize(("value", "met"), [(0.1, True), (0.11, False)])
def test_a_target_is_kept_up_to_its_figure(value: float, met: bool) -> None:
    ratio = Ratio(key="extra_time_vs_torch_save", median=value, minimum=0.0)
    assert ratio.met is met
    assert ratio.to_document()["met"] is met


def test_the_machine_reads_what_it_wrote(tmp_path: Path) -> None:
    machine = Machine(tmp_path, size_bytes=40 * 2**20 + 5)
    assert machine.write() > 0
    assert (tmp_path / "machine.bin").stat().st_size == 40 * 2**20
    assert set((tmp_path / "machine.bin").read_bytes()) == {0x55}
    assert machine.read_direct() > 0
    assert machine.read_warm() > 0
    machine.clear()
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_in_the_page_cache_or_not(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(8 * 2**20))
    read_into_cache(path)
    assert cached_share(path) == 1.0
    drop_from_cache(path)
    assert cached_share(path) < 1.0
