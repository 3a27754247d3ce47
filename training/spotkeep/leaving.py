"""The reasons to leave the script before the training ends, and the reports about them.

A notice and a step to pause at are such reasons. The ranks of a training agree on them at the questions that
`ranks/meetings.py` finds, without a message at the other ones.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from typing import Callable

from .errors import UsageError
from .events import TrainingEvents
from .notices.notice import EXIT_INTERRUPTED, Notice, NoticeWatch
from .ranks.meetings import NO_WISH, NOTICE_WISH, SAVE_WISH
from .ranks.rank_group import RankGroup

ASKS, AFTER_A_STEP, LAST_STEP = 0, 1, 2
"""Places at which a rank asks if there is a reason to save or to leave. They stand in `_PLACES`."""

_LONGEST_NOTICE_MS = 2**40
_PLACES = ("asks after step {}", "has done step {}", "has done its last step, {}")
_REASONS = (None, "interval", "rebalance")
_PAUSE_VARIABLE = "SPOTKEEP_PAUSE_AT_STEP"

_logger = logging.getLogger("spotkeep")


class Leaving:
    """Decides that this process leaves, together with the other ranks.

    Attributes:
        gave_up: True once a notice left no time for the save of the current step.

    Args:
        ranks: The ranks of the training.
        events: Reports of the training.
        watch: The watch for notices.
        pause_at_step: Completed steps at which the run pauses. None for no pause.
    """

    def __init__(
        self, *, ranks: RankGroup, events: TrainingEvents, watch: NoticeWatch, pause_at_step: int | None
    ) -> None:
        self._ranks = ranks
        self._events = events
        self._watch = watch
        self._pause_at_step = pause_at_step
        # Two threads report. A signal handler may interrupt the one that reports, and reports then itself.
        self._reporting = threading.RLock()
        self._reported_deadline: float | None = None
        self._reported_too_late = False
        self._agreed = False
        self._pausing = False
        self.gave_up = False

    def notice(self) -> Notice | None:
        """Give the notice, once there is one. The thread that sees it first reports it."""
        notice = self._watch.notice()
        if notice is not None and notice.deadline != self._reported_deadline:
            with self._reporting:
                reported, self._reported_deadline = self._reported_deadline, notice.deadline
                if reported is None or notice.deadline < reported - 1:
                    self._events.emit("notice", source=notice.source, seconds_left=round(notice.seconds_left, 1))
        return notice

    @property
    def seconds_left(self) -> float:
        """Seconds that are left to act, infinite without a notice."""
        return math.inf if self.notice() is None else self._watch.seconds_left

    @property
    def ranks_agreed(self) -> bool:
        """True once all ranks have agreed to leave on a notice."""
        return self._agreed

    @property
    def noticed(self) -> bool:
        """True once a notice has come to this rank, or all ranks have agreed on one. No other rank is asked."""
        return self._agreed or self.notice() is not None

    def pause_is_due(self, step: int) -> bool:
        """Say if the run pauses once the checkpoint of this step is durable."""
        return self._pause_at_step is not None and step >= self._pause_at_step

    def wish(self, *, save_is_due: bool) -> int:
        """Give the wish of this rank for a meeting of all ranks. Any thread may ask.

        Args:
            save_is_due: True if the clock asks for a save.
        """
        if self._agreed:
            return NO_WISH
        if self._watch.came.is_set():
            return NOTICE_WISH
        return SAVE_WISH if save_is_due or self._watch.advises_save else NO_WISH

    def agree(
        self, reason: Callable[[], str | None], *, step: int, place: int = ASKS, meets: bool = False
    ) -> tuple[bool, str | None]:
        """Decide as all ranks do. Every rank asks the same questions.

        Args:
            reason: Gives the reason of this rank for a save, `interval` or `rebalance`, or None. It is called where the
                ranks meet.
            step: Completed steps.
            place: The place of this rank in its loop. All ranks are at the same place.
            meets: True, alike on all ranks, if they have to meet here. They always do after the last step.

        Returns:
            True if a notice has come to any rank, and the reason for a save, if any rank has one.

        Raises:
            UsageError: If another rank is somewhere else in its training.
            RankLostError: If another rank is gone.
        """
        if self._ranks.is_one_process:
            why = reason()
            return self.notice() is not None, why
        if self._agreed:
            return True, None
        notice = self.notice()
        self._ranks.require_common_steps()
        question = step * len(_PLACES) + place
        meets = meets or place == LAST_STEP
        if not self._ranks.meetings.meets(question, saves=place != ASKS, meets=meets, noticed=notice is not None):
            return False, None
        problem = None
        try:
            return self._meet(reason())
        except BaseException as error:
            problem = error
            raise
        finally:
            self._ranks.meetings.end_meeting(problem)

    def find_apart(self) -> None:
        """Meet ranks that are at another place of the training than this one.

        Raises:
            UsageError: It names the place of each rank.
        """
        self._meet(None)

    def _meet(self, reason: str | None) -> tuple[bool, str | None]:
        """Meet the other ranks at the newest question. Gives the result of `agree`."""
        notice, here = self.notice(), self._ranks.meetings.questions.digest
        hurry = 0 if notice is None else _LONGEST_NOTICE_MS - round(notice.seconds_left * 1000)
        # With a notice no other reason matters.
        most, highest, lowest = self._ranks.largest([hurry * len(_REASONS) + _REASONS.index(reason), here, -here])
        hurry, why = divmod(most, len(_REASONS))
        if highest != -lowest:
            raise self._apart()
        if hurry:
            self._agreed = True
            seconds = (_LONGEST_NOTICE_MS - hurry) / 1000
            source = "another rank" if notice is None else notice.source
            self._watch.take(Notice(source=source, deadline=time.time() + seconds))
        return bool(hurry), _REASONS[why]

    def _apart(self) -> UsageError:
        questions = self._ranks.meetings.questions
        asked = self._ranks.exchange([questions.newest, questions.count])
        places = [divmod(newest, len(_PLACES)) for newest, _ in asked]
        said = [_PLACES[place].format(step) for step, place in places]
        if len(set(said)) == 1:
            said = [f"{place} with question {count}" for place, (_, count) in zip(said, asked)]
        return UsageError(
            "the ranks are at different places of the training: "
            + ", ".join(f"rank {rank} {place}" for rank, place in enumerate(said))
            + ". All of them must take the same steps: give each as many batches, with a DistributedSampler or "
            "drop_last=True, and ask and save on every rank alike"
        )

    def begin_pause(self) -> None:
        """Note that the script leaves because the run pauses."""
        self._pausing = True

    def pauses(self, code: object, *, step: int, is_durable: bool) -> bool:
        """Say if the run pauses as the script exits.

        Args:
            code: The exit code, with which a loop of the script's own may leave for either reason if it is 75.
            step: Completed steps.
            is_durable: True if the checkpoint of this step is durable.
        """
        of_its_own = self.pause_is_due(step) and code == EXIT_INTERRUPTED and is_durable
        return self._pausing or (of_its_own and not self.noticed)

    def give_up(self, why: str, *, step: int, durable_step: int | None) -> None:
        """Begin and await no save of this step any more, and report that."""
        self.gave_up = True
        self.report_too_late(why, step=step, durable_step=durable_step)

    def report_too_late(self, why: str, *, step: int, durable_step: int | None) -> None:
        """Report, once, that the notice is too short for a checkpoint.

        Args:
            why: The reason, as a clause.
            step: The step of the checkpoint.
            durable_step: The step of the newest durable checkpoint. None for none.
        """
        with self._reporting:
            if self._reported_too_late:
                return
            self._reported_too_late = True
            newest = "none" if durable_step is None else f"that of step {durable_step}"
            problem = f"the notice was too short: {why}; the newest durable checkpoint is {newest}"
            _logger.error("no checkpoint of step %d: %s", step, problem)
            self._events.emit("save-failed", step=step, problem=problem)


def read_pause_at_step() -> int | None:
    """Read the step to pause at from SPOTKEEP_PAUSE_AT_STEP. None for no pause.

    Raises:
        UsageError: If the variable holds no whole number from 1.
    """
    text = os.environ.get(_PAUSE_VARIABLE, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise UsageError(f"{_PAUSE_VARIABLE} is {text!r}; set it to a whole number from 1")
    return int(text)
