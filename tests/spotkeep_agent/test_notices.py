"""What is a reason to go, and which of several."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.notices.instance_metadata import MetadataUnavailableError, SpotAction
from spotkeep_agent.notices import NoticeBoard, divide


class Metadata:
    """What the metadata service says, when it is asked."""

    def __init__(self) -> None:
        self.action: SpotAction | None = None
        self.silent = False

    def spot_action(self) -> SpotAction | None:
        if self.silent:
            raise MetadataUnavailableError("no answer")
        return self.action


@pytest.fixture
def metadata() -> Metadata:
    return Metadata()


@pytest.fixture
def board(metadata: Metadata) -> Any:
    return NoticeBoard(metadata=metadata)  # type: ignore[arg-type]


def test_of_several_notices_the_one_that_ends_first_counts(board: Any) -> None:
    assert board.why() is None
    board.follow_rebalance("leave")
    board._on_rebalance()
    board._on_action(SpotAction(action="terminate", seconds_left=90.0))
    board._on_signal(signal.SIGTERM, None)
    board._take_signal()
    assert board.why() == "notice: EC2 terminate"


def test_an_action_is_a_notice(board: Any) -> None:
    board._on_action(SpotAction(action="terminate", seconds_left=90.0))
    assert 80 < board.notice.seconds_left <= 90
    assert board.from_ec2
    assert board.taken_at == board.notice.deadline


@pytest.mark.parametrize("mode", ["leave", "save", "ignore"])
def test_a_recommendation_counts_as_the_job_says_even_when_it_came_first(board: Any, mode: str) -> None:
    board._on_rebalance()
    assert board.notice is None
    board.follow_rebalance(mode)
    assert (board.notice is not None) == board.from_ec2 == (mode == "leave")
    assert board.taken_at is None, "EC2 may never take it"


def test_a_signal_alone_is_a_reason_to_leave_and_no_word_of_ec2s(board: Any, metadata: Metadata) -> None:
    board._on_signal(signal.SIGTERM, None)
    board._take_signal()
    assert board.notice.seconds_left > 100
    assert board.signalled.is_set()
    assert not board.confirm()
    assert board.why() == "SIGTERM, and no notice of EC2's"
    metadata.action = SpotAction(action="terminate", seconds_left=90.0)
    assert board.confirm()
    assert board.why() == "notice: EC2 terminate"


def test_a_signal_is_taken_whatever_lock_it_interrupts_the_holder_of(board: Any) -> None:
    """An Event's lock is the one that the agent holds most often: it waits for a notice twice a second."""
    with board._lock, board.seen._cond, board.signalled._cond:
        board._on_signal(signal.SIGTERM, None)
    board._take_signal()
    assert board.seen.is_set()
    assert board.signalled.is_set()


def test_metadata_that_are_silent_deny_nothing_and_announce_nothing(board: Any, metadata: Metadata) -> None:
    metadata.silent = True
    assert board.confirm()
    assert (board.notice, board.from_ec2) == (None, False)


@given(st.floats(0, 900))
def test_each_part_ends_before_the_next_and_all_before_the_machine_goes(seconds: float) -> None:
    box = divide(seconds)
    assert 0 <= box.save <= box.copy <= box.let_go <= seconds


@pytest.mark.parametrize(("seconds", "save", "let_go"), [(120.0, 70.0, 12.0), (30.0, 15.0, 4.0), (1.0, 0.5, 0.1)])
def test_saving_gets_most_and_the_volume_always_something(seconds: float, save: float, let_go: float) -> None:
    box = divide(seconds)
    assert box.save >= save
    assert box.let_go - box.copy >= let_go
