"""Metrics that are searched for in what the command prints: its own lines stay whole, and it never waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.runner import metric_lines
from spotkeep.runner.metric_lines import BetweenLines, ShownLines
from spotkeep_fleet.training_spec import SearchedMetric


def metrics(**patterns):
    return {"metrics": {name: SearchedMetric(pattern) for name, pattern in patterns.items()}}


def values(job, name):
    return [
        (event.get("step"), event["metrics"][name])
        for event in job.events
        if event["event"] == "metrics" and name in event["metrics"]
    ]


def test_values_are_found_in_both_streams_and_carry_the_launch_and_the_reported_step(start):
    job = start(
        ["python", "train.py"],
        script="""
            import sys
            import spotkeep
            print("loss=0.5 at first")
            spotkeep.report_progress(step=7)
            print("accuracy 0.9", file=sys.stderr)
            print("loss=0.25, and no end of line", end="")
        """,
        SPOTKEEP_LAUNCH="feed",
        spec=metrics(loss="loss=([0-9.]+)", accuracy="accuracy ([0-9.]+)"),
    )
    assert job.finish() == 0, job.stderr
    assert [value for _, value in values(job, "loss")] == [0.5, 0.25]
    assert values(job, "loss")[-1] == (7, 0.25)
    assert [value for _, value in values(job, "accuracy")] == [0.9]
    assert {event["launch"] for event in job.events} == {"feed"}
    assert "loss=0.5 at first" in job.lines
    assert "loss=0.25, and no end of line" in job.lines
    assert job.stderr == "accuracy 0.9\n"


def test_a_pattern_that_takes_exponential_time_holds_neither_the_training_nor_the_end_up(start, tmp_path):
    job = start(
        ["python", "train.py"],
        script="""
            import pathlib, time
            for step in range(20):
                print("a" * 60 + "!", flush=True)
                print(f"loss={step}", flush=True)
            print("trained", flush=True)
            while not pathlib.Path("searched").exists():
                time.sleep(0.05)
        """,
        spec=metrics(slow="(a+)+$", loss="loss=([0-9.]+)"),
    )
    job.wait_for("metrics", metrics={"loss": 19.0})  # The end waits some seconds for a search, and no longer.
    (tmp_path / "searched").touch()
    assert job.finish() == 0
    assert "trained" in job.lines
    assert values(job, "loss")[-1] == (None, 19.0)
    assert "the metric slow is not searched for any more" in job.stderr


@pytest.mark.long
def test_a_search_that_begins_after_the_scripts_end_finds_its_metrics(start, tmp_path):
    """On a busy machine a process may take longer to start than a short script to end."""
    late = tmp_path / "late"
    late.mkdir()
    (late / "sitecustomize.py").write_text('import sys, time\n"search-metrics" in sys.orig_argv and time.sleep(7)\n')
    job = start(
        ["python", "-c", "print('loss=0.5')"],
        spec=metrics(loss="loss=([0-9.]+)"),
        PYTHONPATH=str(late),
    )
    assert job.finish() == 0, job.stderr
    assert values(job, "loss") == [(None, 0.5)]


def test_a_search_that_is_gone_costs_nothing_but_the_metrics(start):
    job = start(
        ["python", "train.py"],
        script="""
            import os, pathlib, signal, time
            searches = []
            while not searches:
                parents = {path.parent: path.read_text() for path in pathlib.Path("/proc").glob("[0-9]*/status")}
                ours = [path for path, status in parents.items() if f"PPid:\\t{os.getppid()}\\n" in status]
                searches = [path for path in ours if b"search-metrics" in (path / "cmdline").read_bytes()]
            os.kill(int(searches[0].name), signal.SIGKILL)
            for step in (1, 2, 3):
                print(f"loss={step}", flush=True)
                time.sleep(0.05)
        """,
        spec=metrics(loss="loss=([0-9.]+)"),
    )
    assert job.finish() == 0
    assert [line for line in job.lines if line.startswith("loss=")] == ["loss=1", "loss=2", "loss=3"]


def test_without_patterns_standard_output_is_the_commands_own(start):
    job = start(
        ["python", "-c", "import os; print(os.fstat(1).st_ino == os.stat('/proc/%d/fd/1' % os.getppid()).st_ino)"]
    )
    assert job.finish() == 0, job.stderr
    assert "True" in job.lines


@given(pieces=st.lists(st.binary(min_size=1, max_size=20)), at=st.lists(st.integers(0, 20)))
def test_a_line_of_ours_never_stands_inside_one_of_the_scripts(pieces, at):
    written = []
    original, metric_lines.write_all = metric_lines.write_all, lambda _descriptor, raw: written.append(raw)
    try:
        between = BetweenLines(1)
        for number, piece in enumerate(pieces):
            for _ in range(at.count(number)):
                between.insert(b"OURS\n")
            between.pass_on(piece)
        between.finish()
    finally:
        metric_lines.write_all = original
    lines = b"".join(written).split(b"\n")
    scripts = b"".join(pieces).split(b"\n")
    inserted = sum(at.count(number) for number in range(len(pieces)))
    assert lines.count(b"OURS") - scripts.count(b"OURS") == inserted
    assert [line for line in lines if line != b"OURS" and line] == [
        line for line in scripts if line != b"OURS" and line
    ]


class Shown:
    """What the search is shown."""

    def __init__(self):
        self.lines = []

    def show(self, line):
        if line:
            self.lines.append(line)


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"a\nb", b"c\n"], [b"a", b"bc"]),
        ([b"1%\r2%\r3%", b"\n"], [b"1%", b"2%", b"3%"]),
        ([b"no end"], [b"no end"]),
        ([b"", b"\n\n"], []),
    ],
)
def test_lines_are_shown_whole(pieces, lines):
    shown = Shown()
    stream = ShownLines(shown)
    for piece in pieces:
        stream.add(piece)
    stream.finish()
    assert shown.lines == lines


def test_of_a_line_without_end_no_more_is_kept_than_is_searched():
    shown = Shown()
    stream = ShownLines(shown)
    for _ in range(100):
        stream.add(b"x" * 65_536)
        assert len(stream._rest) <= metric_lines.MOST_LINE_BYTES
    stream.finish()
    assert [len(line) for line in shown.lines] == [metric_lines.MOST_LINE_BYTES]
