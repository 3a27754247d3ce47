"""What exit code 0 means on a notice, and how many such exits in a row are kept between two starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.runner.exits_on_notice import (
    EXITS_NAME,
    MOST_IN_A_ROW,
    CommandEnding,
    ending_of_exit_0,
    keep_count,
    take_count,
)

DONE, INTERRUPTED = CommandEnding(0), CommandEnding(75)
EXITS_BEFORE = st.integers(0, MOST_IN_A_ROW - 1)


@given(left=st.booleans(), done=st.booleans(), before=EXITS_BEFORE)
def test_without_a_notice_the_command_is_done(left: bool, done: bool, before: int) -> None:
    assert ending_of_exit_0(noticed=False, left=left, done=done, exits_before=before) == DONE


@given(before=EXITS_BEFORE)
def test_on_a_notice_it_is_done_when_its_trainings_say_so_and_none_of_them_has_left(before: int) -> None:
    assert ending_of_exit_0(noticed=True, left=False, done=True, exits_before=before) == DONE
    for done in (True, False):
        assert ending_of_exit_0(noticed=True, left=True, done=done, exits_before=before) == INTERRUPTED


def test_else_it_is_interrupted_and_the_third_time_in_a_row_counts_as_done() -> None:
    endings = [ending_of_exit_0(noticed=True, left=False, done=False, exits_before=before) for before in range(3)]
    assert endings == [CommandEnding(75, 1), CommandEnding(75, 2), CommandEnding(0, 3)]


def test_what_is_kept_is_read_once_and_for_the_same_launch(tmp_path: Path) -> None:
    keep_count(tmp_path, EXITS_NAME, 2, launch="one")
    assert [path.name for path in tmp_path.iterdir()] == [EXITS_NAME]
    assert (take_count(tmp_path, EXITS_NAME, launch="one"), take_count(tmp_path, EXITS_NAME, launch="one")) == (2, 0)
    keep_count(tmp_path, EXITS_NAME, 2, launch="one")
    assert (take_count(tmp_path, EXITS_NAME, launch=None), list(tmp_path.iterdir())) == (0, [])


@pytest.mark.parametrize("content", ["", "[]", '{"launch": null}', '{"count": "2", "launch": null}', "[" * 9_000])
def test_what_nobody_wrote_counts_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / EXITS_NAME).write_text(content)
    assert take_count(tmp_path, EXITS_NAME, launch=None) == 0
    assert not (tmp_path / EXITS_NAME).exists()


def test_where_it_cannot_be_kept_it_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep_count(tmp_path / "missing", EXITS_NAME, 1, launch=None)
    assert "cannot be kept" in capsys.readouterr().err
