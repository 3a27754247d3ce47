"""The public recording is read with its prices, and a fault in it is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.policy.convert import convert
from spotkeep_planner.errors import TraceError

HEADER = "date,availability\n"


def test_a_recording_is_read_with_prices_from_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(HEADER + "2023-02-15 22:08:16,0\n2023-02-15 22:11:31,1\n2023-02-15 22:14:47,1\n")
    trace = convert(path, prices=[0.9, 0.9, 1.0], on_demand_price=3.06)
    assert trace.available.tolist() == [False, True, True]
    assert trace.spot_price.tolist() == [0.9, 0.9, 1.0]
    assert trace.on_demand_price == 3.06
    assert trace.tick_s == 195.5


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (HEADER + "2023-02-15 22:08:16,0\n2023-02-15 22:08:16,1\n", ":3: the same time as the row before"),
        (HEADER + "2023-02-15 22:08:16,0\nnow,1\n", ":3: time 'now'"),
        (HEADER + "2023-02-15 22:08:16,0\n2023-02-15 22:11:31,5\n", ":3: available is '5'"),
        (HEADER + "2023-02-15 22:08:16,0\n", "has 1 ticks, and there are 2 prices"),
        ("time,preempted\n", "begins with 'time,preempted'"),
        ("", "begins with ''"),
    ],
)
def test_a_fault_is_named_with_its_line(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content)
    with pytest.raises(TraceError, match=reason):
        convert(path, prices=[1.0, 1.0], on_demand_price=3.06)
