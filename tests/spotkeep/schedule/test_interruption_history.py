"""What a run has seen of interruptions corrects what was expected; a file of any content does no harm."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.schedule.interruption_history import (
    HISTORY_NAME,
    LEFT,
    MAX_HISTORY_BYTES,
    NOTICED,
    InterruptionHistory,
    ProcessLife,
    expect,
    history_bytes,
    parse_history,
)
from spotkeep.schedule.save_schedule import InterruptionOutlook

PRIOR = InterruptionOutlook(mean_seconds_between=10_800.0, notice_chance=0.5)


def lives(*seconds_and_endings):
    return [ProcessLife(began=1000.0, seen=1000.0 + seconds, ending=ending) for seconds, ending in seconds_and_endings]


def test_before_anything_was_seen_the_expectation_stands():
    assert expect(PRIOR, []) == PRIOR


def test_one_interruption_weighs_as_much_as_the_expectation():
    found = expect(PRIOR, lives((3_600, NOTICED)))
    assert (found.mean_seconds_between, found.notice_chance) == (7_200.0, 0.75)
    assert expect(PRIOR, lives((3_600, None))).notice_chance == 0.25


def test_time_without_an_interruption_counts_too():
    assert expect(PRIOR, lives((10_800, LEFT))).mean_seconds_between == 21_600.0


@pytest.mark.long
@given(mean=st.floats(600, 50_000), chance=st.floats(0, 1), seed=st.integers(0, 1000))
def test_after_many_interruptions_the_expectation_is_what_they_were(mean, chance, seed):
    draw = random.Random(seed)  # noqa: S311 - not secret
    seen = lives(*[(draw.expovariate(1 / mean), NOTICED if draw.random() < chance else None) for _ in range(2000)])
    found = expect(PRIOR, seen)
    assert found.mean_seconds_between == pytest.approx(mean, rel=0.15)
    assert found.notice_chance == pytest.approx(chance, abs=0.06)


@given(st.lists(st.tuples(st.floats(0, 1e6), st.sampled_from([NOTICED, LEFT, None])), max_size=80))
def test_an_expectation_is_always_one_that_makes_sense(seen):
    found = expect(PRIOR, lives(*seen))
    assert found.mean_seconds_between > 0
    assert 0 <= found.notice_chance <= 1


@given(st.lists(st.tuples(st.floats(0, 1e6), st.sampled_from([NOTICED, LEFT, None])), max_size=100))
def test_the_newest_lives_come_back_from_the_file(seen):
    raw = history_bytes(lives(*seen))
    assert parse_history(raw) == tuple(lives(*seen))[-64:]
    assert len(raw) <= MAX_HISTORY_BYTES


values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=5,
)


@given(
    st.binary(max_size=100)
    | st.builds(lambda lives: json.dumps({"lives": lives}).encode(), values)
    | st.builds(
        lambda began, seen, ending: json.dumps({"lives": [{"began": began, "seen": seen, "ending": ending}]}).encode(),
        values,
        values,
        values,
    )
)
def test_a_file_of_any_content_is_read_or_passed_over(raw):
    for life in parse_history(raw):
        assert 0 <= life.seconds <= 28 * 86_400
        assert life.ending in (NOTICED, LEFT, None)


def test_a_process_that_vanishes_was_there_until_it_was_last_seen(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("spotkeep.schedule.interruption_history.time.time", lambda: now[0])
    history = InterruptionHistory(tmp_path)
    assert history.begin() == ()
    now[0] = 1500.0
    history.seen()
    now[0] = 9000.0
    following = InterruptionHistory(tmp_path)
    assert following.begin() == (ProcessLife(began=1000.0, seen=1500.0),)
    now[0] = 9100.0
    following.seen(NOTICED)
    assert InterruptionHistory(tmp_path).begin()[1] == ProcessLife(began=9000.0, seen=9100.0, ending=NOTICED)


def test_a_clock_that_is_set_back_makes_no_negative_life(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("spotkeep.schedule.interruption_history.time.time", lambda: now[0])
    history = InterruptionHistory(tmp_path)
    history.begin()
    now[0] = 10.0
    history.seen()
    assert InterruptionHistory(tmp_path).begin() == (ProcessLife(began=1000.0, seen=1000.0),)


def test_a_file_that_is_too_large_or_a_link_is_not_read(tmp_path):
    path = tmp_path / HISTORY_NAME
    path.write_bytes(b" " * (MAX_HISTORY_BYTES + 1))
    assert InterruptionHistory(tmp_path).begin() == ()
    secret = tmp_path / "secret"
    secret.write_bytes(history_bytes(lives((5, LEFT))))
    path.unlink()
    path.symlink_to(secret)
    assert InterruptionHistory(tmp_path).begin() == ()
    assert secret.read_bytes() == history_bytes(lives((5, LEFT)))


def test_a_disk_that_is_full_is_no_reason_to_end(tmp_path, faulty_storage):
    history = InterruptionHistory(tmp_path, storage=faulty_storage(free_bytes=0))
    assert history.begin() == ()
    history.seen(NOTICED)
