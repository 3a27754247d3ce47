"""Recorded markets become changes of ours, at the pace one asks for."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from spotkeep_local.ec2.market import Market, MarketError
from spotkeep_local.ec2.trace_file import read_recorded_market

HEAD = "time,available,spot_price\n"
ROWS = "T22:08:16Z,1,0.9\nT22:11:31Z,1,0.9\nT22:14:46Z,0,1.2\nT22:18:01Z,1,1.2\n"


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
