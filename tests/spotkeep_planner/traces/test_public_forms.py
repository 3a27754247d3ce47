"""The public forms are read with the sign they mean, and a sign the file contradicts is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spotkeep_planner.errors import TraceError
from spotkeep_planner.traces.public_forms import Sign, read_availability_csv, read_price_lists, read_tick_json


def ticks(tmp_path: Path, data: list[Any], **metadata: Any) -> Path:
    path = tmp_path / "zone.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": 195, **metadata}, "data": data}))
    return path


def test_both_signs_of_the_same_form_give_opposite_traces_and_say_so(tmp_path: Path) -> None:
    path = ticks(tmp_path, [0, 0, 0, 1])
    available = read_tick_json(path, sign=Sign.AVAILABLE, zone="a", spot_price=1.0)
    preempted = read_tick_json(path, sign=Sign.PREEMPTED, zone="a", spot_price=1.0)
    assert available.available.tolist() == [False, False, False, True]
    assert preempted.available.tolist() == [True, True, True, False]
    assert available.remark == "1 means capacity; 25% of the ticks have capacity, 75% by the other sign"
    assert preempted.remark == "1 means no capacity; 75% of the ticks have capacity, 25% by the other sign"


def test_counts_of_instances_are_capacity_when_there_are_enough(tmp_path: Path) -> None:
    path = ticks(tmp_path, [0, 1, 4, 3])
    trace = read_tick_json(path, sign=Sign.AVAILABLE, zone="a", instances=4, spot_price=1.0)
    assert trace.available.tolist() == [False, False, True, False]


def test_counts_contradict_the_sign_of_simulators(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="counts instances that could be had"):
        read_tick_json(ticks(tmp_path, [0, 1, 4]), sign=Sign.PREEMPTED, zone="a", spot_price=1.0)


def test_a_file_that_names_its_convention_is_held_to_it(tmp_path: Path) -> None:
    path = ticks(tmp_path, [0, 1], convention="1 = preempted")
    with pytest.raises(TraceError, match="says of itself"):
        read_tick_json(path, sign=Sign.AVAILABLE, zone="a", spot_price=1.0)
    assert read_tick_json(path, sign=Sign.PREEMPTED, zone="a", spot_price=1.0).available.tolist() == [True, False]


def test_prices_and_start_come_from_the_file_if_it_has_them(tmp_path: Path) -> None:
    path = ticks(
        tmp_path,
        [0, 1],
        start_time="2025-10-04T00:10:00+00:00",
        price_info={"price": 0.9, "on_demand_price": 3.06},
    )
    trace = read_tick_json(path, sign=Sign.PREEMPTED, zone="a")
    assert trace.spot_price.tolist() == [0.9, 0.9]
    assert trace.on_demand_price == 3.06
    assert trace.start.isoformat() == "2025-10-04T00:10:00+00:00"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"metadata": {}, "data": [0]}', "gap_seconds is None"),
        ('{"metadata": {"gap_seconds": 0}, "data": [0]}', "gap_seconds is 0"),
        ('{"metadata": {"gap_seconds": 60}, "data": []}', "is not of the form"),
        ('{"metadata": {"gap_seconds": 60}, "data": [0, -1]}', r"data\[1\] is -1"),
        ('{"metadata": {"gap_seconds": 60}, "data": [0.5]}', r"data\[0\] is 0.5"),
        ("[1, 2]", "is not a JSON object"),
        ("{", "is not JSON"),
    ],
)
def test_what_is_not_of_the_form_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "zone.json"
    path.write_text(content)
    with pytest.raises(TraceError, match=reason):
        read_tick_json(path, sign=Sign.AVAILABLE, zone="a", spot_price=1.0)


def test_a_price_is_needed_and_one_for_each_tick(tmp_path: Path) -> None:
    path = ticks(tmp_path, [0, 1])
    with pytest.raises(TraceError, match="has no spot price"):
        read_tick_json(path, sign=Sign.AVAILABLE, zone="a")
    with pytest.raises(TraceError, match="has 2 ticks, and there are 3 prices"):
        read_tick_json(path, sign=Sign.AVAILABLE, zone="a", spot_price=[1.0, 1.0, 1.0])
    with pytest.raises(TraceError, match="the price of tick 1 is -1"):
        read_tick_json(path, sign=Sign.AVAILABLE, zone="a", spot_price=[1.0, -1.0])


def test_the_availability_csv_is_read_with_prices_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "prices.json").write_text(json.dumps({"a": [0.9, 0.9, 1.0]}))
    path = tmp_path / "a.csv"
    path.write_text("date,availability\n2023-02-15 22:08:16,0\n2023-02-15 22:11:31,1\n2023-02-15 22:14:47,1\n")
    prices = read_price_lists(tmp_path / "prices.json")
    trace = read_availability_csv(path, zone="a", spot_price=prices["a"], on_demand_price=3.06)
    assert trace.available.tolist() == [False, True, True]
    assert trace.spot_price.tolist() == [0.9, 0.9, 1.0]
    assert trace.remark == "1 means capacity"


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ("2023-02-15 22:08:16,0\n2023-02-15 22:08:16,1\n", ":3: comes 0 s after"),
        ("2023-02-15 22:08:16,0\nnow,1\n", ":3: 'now,1' is not a date"),
        ("2023-02-15 22:08:16,0\n2023-02-15 22:11:31,5\n", ":3: availability is '5'"),
        ("2023-02-15 22:08:16,0\n", "fewer than two rows"),
    ],
)
def test_a_faulty_csv_is_refused_with_line_and_reason(tmp_path: Path, rows: str, reason: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text("date,availability\n" + rows)
    with pytest.raises(TraceError, match=reason):
        read_availability_csv(path, zone="a", spot_price=1.0)
