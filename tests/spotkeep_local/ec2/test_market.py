"""The market: what holds in a pool at a moment is the last thing said of it."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_local.ec2.market import (
    DEFAULT_PRICE_USD,
    Market,
    MarketError,
    SpotPoolChange,
    SpotPoolState,
    read_recorded_market,
)

CHANGES = st.lists(
    st.builds(
        SpotPoolChange,
        zone=st.sampled_from(["a", "b"]),
        instance_type=st.sampled_from([None, "m5.large", "g5.xlarge"]),
        at_seconds=st.integers(0, 10).map(float),
        capacity=st.one_of(st.none(), st.integers(-1, 3)),
        price_usd=st.sampled_from([0.1, 0.2, 0.3]),
    ),
    max_size=12,
)


HEAD = "time,available,spot_price\n"
ROWS = "T22:08:16Z,1,0.9\nT22:11:31Z,1,0.9\nT22:14:46Z,0,1.2\nT22:18:01Z,1,1.2\n"


@given(CHANGES, st.sampled_from(["a", "b"]), st.sampled_from(["m5.large", "g5.xlarge"]), st.integers(0, 11))
def test_the_last_change_holds(changes: list[SpotPoolChange], zone: str, instance_type: str, elapsed: int) -> None:
    capacity, price_usd = None, DEFAULT_PRICE_USD
    # Of two things said at one moment, what is said of the type itself holds, then what comes later in the list.
    said = sorted(changes, key=lambda change: (change.at_seconds, change.instance_type is not None))
    for change in said:
        if change.zone == zone and change.instance_type in (None, instance_type) and change.at_seconds <= elapsed:
            if change.capacity is not None:
                capacity = None if change.capacity == -1 else change.capacity
            price_usd = change.price_usd or price_usd
    found = Market(100.0, tuple(changes)).pool(instance_type=instance_type, zone=zone, now=100.0 + elapsed)
    assert (found.capacity, found.price_usd) == (capacity, price_usd)


@given(CHANGES, st.integers(0, 12))
def test_a_market_survives_being_written_down_and_its_next_change_is_the_scripts(
    changes: list[SpotPoolChange], now: int
) -> None:
    market = Market(0.0, tuple(changes))
    assert Market.from_document(market.to_document()) == market
    later = [change.at_seconds for change in changes if change.at_seconds > now]
    assert market.next_change_at(float(now)) == (min(later) if later else None)


def test_without_a_script_there_is_any_number_at_the_default_price() -> None:
    found = Market(0.0, ()).pool(instance_type="m5.large", zone="a", now=1.0)
    assert found == SpotPoolState(capacity=None, price_usd=DEFAULT_PRICE_USD)


def test_a_change_now_replaces_what_was_and_not_what_comes() -> None:
    market = Market(0.0, (SpotPoolChange(zone="a", capacity=0), SpotPoolChange(zone="a", capacity=5, at_seconds=20)))
    changed = market.with_change(SpotPoolChange(zone="a", capacity=2, notice=False), now=10.0)
    assert [changed.pool(instance_type="x", zone="a", now=now).capacity for now in (9.0, 10.0, 20.0)] == [0, 2, 5]
    assert not changed.pool(instance_type="x", zone="a", now=10.0).notice


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"zone": "a"}, "needs capacity or price_usd"),
        ({"zone": "", "capacity": 1}, "zone must name a zone"),
        ({"zone": "a", "capacity": -2}, "capacity must be"),
        ({"zone": "a", "capacity": True}, "capacity must be"),
        ({"zone": "a", "price_usd": 0}, "price_usd must be"),
        ({"zone": "a", "price_usd": float("nan")}, "price_usd must be"),
        ({"zone": "a", "capacity": 1, "at_seconds": -1}, "at_seconds must be"),
        ({"zone": "a", "colour": "red"}, "found"),
        ([], "must be an object"),
    ],
)
def test_a_change_that_cannot_be(change: Any, complaint: str) -> None:
    with pytest.raises(MarketError, match=complaint):
        SpotPoolChange.from_document(change)


def write(path: Path, text: str) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["zone.csv", "zone.csv.gz"])
def test_a_recording_is_played_tick_by_tick(tmp_path: Path, name: str) -> None:
    changes = read_recorded_market(write(tmp_path / name, HEAD + ROWS), zone="us-east-1a", tick_seconds=2.0)
    market = Market(0.0, tuple(changes))
    played = [market.pool(instance_type="p3.2xlarge", zone="us-east-1a", now=2.0 * tick) for tick in range(4)]
    assert [(state.capacity, state.price_usd) for state in played] == [(None, 0.9), (None, 0.9), (0, 1.2), (None, 1.2)]
    assert len(changes) == 3


def test_a_part_of_a_recording(tmp_path: Path) -> None:
    path = write(tmp_path / "zone.csv", HEAD + ROWS)
    (change,) = read_recorded_market(path, zone="a", tick_seconds=1.0, first_tick=2, ticks=1, notice=False)
    assert (change.capacity, change.at_seconds, change.notice) == (0, 0.0, False)
    with pytest.raises(MarketError, match="has 4 ticks, and none from tick 9 on"):
        read_recorded_market(path, zone="a", tick_seconds=1.0, first_tick=9)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("time,price\n", "has no column available, spot_price"),
        (HEAD + "x,2,0.5\nx,1,free\nx,1,-1\n", "line 2: available='2'.*line 3: .*'free'.*line 4"),
        ("", "has no column"),
    ],
)
def test_a_file_that_is_no_recording(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(MarketError, match=complaint):
        read_recorded_market(write(tmp_path / "zone.csv", text), zone="a", tick_seconds=1.0)


def test_a_file_without_an_end(tmp_path: Path) -> None:
    with pytest.raises(MarketError, match="more than 67,108,864 bytes"):
        read_recorded_market(Path("/dev/zero"), zone="a", tick_seconds=1.0)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MarketError, match="cannot be read"):
        read_recorded_market(tmp_path / "nothing.csv.gz", zone="a", tick_seconds=1.0)
    with pytest.raises(MarketError, match="cannot be read"):
        read_recorded_market(
            write(tmp_path / "zone.csv", HEAD).rename(tmp_path / "false.csv.gz"), zone="a", tick_seconds=1.0
        )
