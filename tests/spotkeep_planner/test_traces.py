"""A trace is read as it is, or refused with every line that is wrong and why. Nothing is repaired."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_planner import traces
from spotkeep_planner.errors import TraceError
from spotkeep_planner.traces import read_trace, read_traces, same_clock, write_trace
from tests.models.capacity_traces import trace_of

HEADER = "time,available,spot_price\n"
ROWS = [
    "2026-01-01T00:00:00Z,1,0.5",
    "2026-01-01T00:05:00Z,0,0.5",
    "2026-01-01T00:10:00Z,1,0.6",
    "2026-01-01T00:15:00Z,1,0.6",
]


def problems_of(path: Path) -> list[tuple[int | None, str]]:
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    return [(problem.line, problem.reason) for problem in caught.value.problems]


def write(tmp_path: Path, *rows: str, header: str = HEADER) -> Path:
    path = tmp_path / "zone-a.csv"
    path.write_text(header + "".join(f"{row}\n" for row in rows))
    return path


def test_a_trace_is_read_with_its_zone_tick_and_sign(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, *ROWS))
    assert trace.zone == "zone-a"
    assert trace.tick_s == 300
    assert trace.available.tolist() == [True, False, True, True]
    assert trace.spot_price.tolist() == [0.5, 0.5, 0.6, 0.6]
    assert trace.on_demand_price is None


def test_probes_may_jitter_by_less_than_a_row(tmp_path: Path) -> None:
    rows = ["2026-01-01T00:00:00Z,1,0.5", "2026-01-01T00:05:03Z,1,0.5", "2026-01-01T00:10:00Z,1,0.5"]
    assert len(read_trace(write(tmp_path, *rows, "2026-01-01T00:16:10Z,0,0.5"))) == 4


def test_a_gzipped_trace_and_an_on_demand_price_are_read(tmp_path: Path) -> None:
    path = tmp_path / "b.csv.gz"
    text = "time,available,spot_price,on_demand_price\n" + "".join(f"{row},1.2\n" for row in ROWS)
    path.write_bytes(gzip.compress(text.encode()))
    trace = read_trace(path)
    assert (trace.zone, trace.on_demand_price) == ("b", 1.2)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("2026-01-01T00:20:00Z,-1,0.6", "a sign has no meaning here"),
        ("2026-01-01T00:20:00Z,2,0.6", "where 1 (capacity) or 0 (none) belongs"),
        ("2026-01-01T00:20:00Z,1,-0.6", "spot_price is -0.6, a price is more than 0"),
        ("2026-01-01T00:20:00Z,1,nan", "a price is more than 0"),
        ("2026-01-01T00:20:00Z,1,cheap", "which is not a number"),
        ("yesterday,1,0.6", "is not ISO 8601"),
        ("2026-01-01T00:20:00Z,1", "has 2 values where 3 belong"),
        ("2026-01-01T00:15:00Z,1,0.6", "the same time as the row before"),
        ("2026-01-01T00:01:00Z,1,0.6", "840 s before the row above"),
        ("2026-01-01T00:30:00Z,1,0.6", "2 rows are missing"),
    ],
)
def test_a_faulty_row_is_refused_with_its_line_and_why(tmp_path: Path, row: str, reason: str) -> None:
    ((line, found),) = problems_of(write(tmp_path, *ROWS, row))
    assert line == 6
    assert reason in found


def test_every_problem_is_named_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, "x,1,0.5", ROWS[1], "2026-01-01T00:10:00Z,3,-1", ROWS[3])
    assert [line for line, _ in problems_of(path)] == [2, 4, 4]


def test_the_opposite_sign_is_refused_by_its_column(tmp_path: Path) -> None:
    ((line, reason),) = problems_of(write(tmp_path, *ROWS, header="time,preempted,spot_price\n"))
    assert line == 1
    assert "opposite sign" in reason


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"time,available\n", "'spot_price' is missing"),
        (b"time,available,spot_price,time\n", "'time' is there twice"),
        (HEADER.encode(), "has 0 rows"),
        (b"\xff\xfe\x00", "not UTF-8"),
        ((HEADER + f"{ROWS[0]}\n").encode(), "has 1 rows"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "zone.csv"
    path.write_bytes(content)
    assert any(reason in found for _, found in problems_of(path))


def test_half_a_gzip_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "zone.csv.gz"
    path.write_bytes(gzip.compress((HEADER + "\n".join(ROWS)).encode())[:-12])
    ((_, reason),) = problems_of(path)
    assert "not a whole gzip file" in reason


def test_a_file_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MOST_BYTES", 1_000)
    (tmp_path / "zone.csv").symlink_to("/dev/zero")
    (tmp_path / "zone.csv.gz").write_bytes(gzip.compress(bytes(1_001)))
    for name in ("zone.csv", "zone.csv.gz"):
        ((_, reason),) = problems_of(tmp_path / name)
        assert "more than 1,000 bytes" in reason


def test_a_price_on_demand_that_changes_is_refused(tmp_path: Path) -> None:
    rows = [f"{row},{price}" for row, price in zip(ROWS, (1, 1, 2, 2), strict=True)]
    path = write(tmp_path, *rows, header="time,available,spot_price,on_demand_price\n")
    assert "on_demand_price changes" in problems_of(path)[0][1]


def test_a_folder_is_read_zone_by_zone(tmp_path: Path) -> None:
    for zone in ("b", "a"):
        write_trace(trace_of([1, 0, 1], zone=zone), tmp_path / f"{zone}.csv.gz")
    (tmp_path / "README.md").write_text("not a trace")
    assert [trace.zone for trace in read_traces(tmp_path)] == ["a", "b"]


def test_a_folder_without_a_trace_and_no_folder_at_all_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="holds no trace"):
        read_traces(tmp_path)
    with pytest.raises(TraceError, match="cannot be read as a folder"):
        read_traces(tmp_path / "nowhere")


@given(
    capacity=st.lists(st.booleans(), min_size=2, max_size=60),
    price=st.floats(0.001, 99).map(lambda value: float(f"{value:g}")),
    tick_s=st.integers(1, 3600),
)
def test_what_is_written_reads_the_same(
    tmp_path_factory: pytest.TempPathFactory, capacity: list[bool], price: float, tick_s: int
) -> None:
    trace = trace_of(capacity, price=price, tick_s=float(tick_s))
    path = tmp_path_factory.mktemp("traces") / "zone.csv"
    write_trace(trace, path)
    again = read_trace(path)
    assert again.available.tolist() == trace.available.tolist()
    assert again.spot_price.tolist() == trace.spot_price.tolist()
    assert (again.start, again.tick_s) == (trace.start, trace.tick_s)


def test_zones_are_cut_to_the_time_they_share() -> None:
    first = trace_of([1, 1, 0, 0, 1], zone="a")
    later = replace(trace_of([0, 1, 1], zone="b"), start=first.start.replace(minute=20))
    a, b = same_clock([first, later])
    assert a.available.tolist() == [False, False, True]
    assert b.available.tolist() == [False, True, True]
    assert a.start == b.start == later.start


def test_zones_with_different_ticks_or_days_cannot_be_used_together() -> None:
    with pytest.raises(TraceError, match="the same tick"):
        same_clock([trace_of([1, 1]), trace_of([1, 1], tick_s=300.0)])
    one_day = trace_of([1, 1])
    with pytest.raises(TraceError, match="no time in common"):
        same_clock([one_day, replace(one_day, start=one_day.start.replace(day=9))])
