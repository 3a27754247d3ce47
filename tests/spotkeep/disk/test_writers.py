"""I1, one writer: each writer of a run has a token, and readers pass over those of a writer that was replaced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.disk.writers import (
    Token,
    Writers,
    folder_name,
    folders_to_remove,
    lock_of,
    note_name,
    parse_folder,
    parse_note_name,
)
from spotkeep.errors import UsageError

tokens = st.builds(Token, attempt=st.integers(0, 9), lease=st.integers(0, 9), start=st.integers(0, 9))
steps = st.integers(0, 10**12)
writers = st.dictionaries(tokens, st.none() | steps, max_size=6).map(Writers)


@given(steps, st.none() | tokens)
def test_a_folder_names_its_step_and_its_writer(step, token):
    assert parse_folder(folder_name(step, token)) == (step, token)


@given(tokens)
def test_a_note_names_its_writer(token):
    assert parse_note_name(note_name(token)) == token
    assert Token.parse(str(token)) == token


@pytest.mark.parametrize(
    "name",
    [
        "step-07",
        "step-7-",
        "step-7-1",
        "step-7-1.2",
        "step-7-1.2.3.4",
        "step-7-01.2.3",
        "step-7-1.2.3.draft",
        "step--1",
    ],
)
def test_another_name_is_no_checkpoint(name):
    assert parse_folder(name) is None
    assert folders_to_remove([name], step=7, by=None) == []


@given(writers)
def test_a_note_is_read_as_it_was_written(known):
    assert Writers.parse(known.to_bytes()) == known


@given(writers, st.data())
def test_a_note_that_is_cut_short_or_altered_is_refused(known, data):
    raw = known.to_bytes()
    place = data.draw(st.integers(0, len(raw) - 1))
    altered = data.draw(st.sampled_from([raw[:place], raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :]]))
    with pytest.raises(ValueError, match=r".+"):
        Writers.parse(altered)


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b'{"note":{"writers":[["1.1.1",true]]}}', b'{"note":{"writers":[["1",1]]}}']
)
def test_anything_else_is_no_note(raw):
    with pytest.raises(ValueError, match=r".+"):
        Writers.parse(raw)


def test_a_run_gives_its_attempt_and_lease():
    assert lock_of({}) is None
    assert lock_of({"SPOTKEEP_ATTEMPT": "3"}) == (3, 0)
    assert lock_of({"SPOTKEEP_ATTEMPT": "3", "SPOTKEEP_LEASE": "2"}) == (3, 2)
    with pytest.raises(UsageError, match="SPOTKEEP_LEASE is 'two', and Spotkeep sets it to a number"):
        lock_of({"SPOTKEEP_ATTEMPT": "3", "SPOTKEEP_LEASE": "two"})


def begun(*starts):
    """The writers and their tokens, after starts by (lock, step)."""
    known, taken = Writers(), []
    for lock, step in starts:
        found = known.begin(lock, step=step)
        assert found is not None
        taken.append(found[0])
        known = found[1]
    return known, taken


def test_each_start_has_a_later_token():
    _, taken = begun(((1, 0), None), ((1, 0), 50), ((2, 1), 80), ((2, 3), 90), (None, 95))
    assert taken == sorted(set(taken))
    assert list(map(str, taken)) == ["1.0.1", "1.0.2", "2.1.1", "2.3.1", "2.3.2"]


def test_outside_of_a_run_there_is_no_token():
    assert Writers().begin(None, step=None) is None


def test_a_start_does_not_take_the_token_of_a_writer_whose_note_is_lost():
    known = Writers().joined([], names=["step-10-1.0.4", "writers-1.0.6.json"])
    found = known.begin((1, 0), step=10)
    assert found is not None
    assert str(found[0]) == "1.0.7"


def test_a_writer_is_read_up_to_the_step_that_the_next_one_went_on_from():
    known, (first, second, third) = begun(((1, 0), None), ((2, 0), 100), ((2, 0), 90))
    assert known.reads(90, first)
    assert not known.reads(91, first)
    assert known.reads(90, second)
    assert not known.reads(91, second)
    assert known.reads(1000, third)
    assert not known.reads(1, None)


def test_readers_take_the_latest_writer_of_a_step():
    known, (first, second) = begun(((1, 0), None), ((2, 0), 100))
    names = ["step-100", "step-100-1.0.1", "step-100-2.0.1", "step-120-1.0.1", "step-110-2.0.1", "notes.txt"]
    assert known.readable(names) == {100: ["step-100-2.0.1", "step-100-1.0.1"], 110: ["step-110-2.0.1"]}
    assert known.unread(names, by=second) == ["step-100", "step-120-1.0.1"]
    assert known.unread(names, by=first) == ["step-100"]


def test_without_a_note_every_folder_is_read_the_latest_writer_first():
    names = ["step-5", "step-5-1.0.2", "step-5-1.0.10", "step-7-1.0.2"]
    assert Writers().readable(names) == {5: ["step-5-1.0.10", "step-5-1.0.2", "step-5"], 7: ["step-7-1.0.2"]}


def test_a_writer_removes_nothing_of_a_later_one():
    names = ["step-5", "step-5-1.0.2", "step-5-2.0.1", "step-6-1.0.2"]
    assert folders_to_remove(names, step=5, by=Token(1, 0, 2)) == ["step-5", "step-5-1.0.2"]
    assert folders_to_remove(names, step=5, by=None) == names[:3]


@given(st.data())
def test_whatever_replaced_writers_save_later_a_reader_finds_one_history(data):
    known, saved, history, at = Writers(), set(), {}, {}
    for attempt in range(1, data.draw(st.integers(2, 6))):
        # The newest checkpoint, or an older one where that is damaged.
        origin = data.draw(st.sampled_from(sorted(history))) if history else None
        token, known = known.begin((attempt, 0), step=origin)
        history = {step: name for step, name in history.items() if origin is not None and step <= origin}
        at[token] = origin or 0
        for writer in data.draw(st.lists(st.sampled_from(sorted(at)), max_size=6)):
            at[writer] += data.draw(st.integers(1, 5))
            name = folder_name(at[writer], writer)
            saved.add(name)
            if writer == token:
                history[at[writer]] = name
        assert {step: names[0] for step, names in known.readable(saved).items()} == history
