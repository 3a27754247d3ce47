"""What is a reason to go, and which of several."""

from __future__ import annotations

from typing import Any

import pytest

from spotkeep.notices.instance_metadata import SpotAction
from spotkeep.notices.notice import Notice
from spotkeep_agent.notices import NoticeBoard


@pytest.fixture
def board() -> Any:
    return NoticeBoard(metadata=None)  # type: ignore[arg-type]


def test_of_several_notices_the_one_that_ends_first_counts(board: Any) -> None:
    assert board.why() is None
    board.post(Notice(source="EC2 rebalance", deadline=200.0))
    board.post(Notice(source="EC2 terminate", deadline=100.0))
    board.post(Notice(source="SIGTERM", deadline=300.0))
    assert board.why() == "notice: EC2 terminate"


def test_an_action_is_a_notice(board: Any) -> None:
    board._on_action(SpotAction(action="terminate", seconds_left=90.0))
    assert 80 < board.notice.seconds_left <= 90


@pytest.mark.parametrize("mode", ["leave", "save", "ignore"])
def test_a_recommendation_counts_as_the_job_says_even_when_it_came_first(board: Any, mode: str) -> None:
    board._on_rebalance()
    assert board.notice is None
    board.follow_rebalance(mode)
    assert (board.notice is not None) == (mode == "leave")
