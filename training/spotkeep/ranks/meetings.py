"""The questions at which all ranks of a training meet. Pure, without threads, clocks or messages.

All ranks ask the same questions in the same order, one or more after each step. A question is whether to save, or to
leave. Most of them pass, and no message is sent for them. At a *meeting* all ranks answer together, with the notices
and due saves of all. Some questions are meetings by themselves, such as the last one. Others become meetings by
*rounds*, which run beside the training. In a round each rank gives some numbers, and hears the largest in each place.

1. A rank wishes for a meeting, because of a notice or a due save. All of them hear that in the same round.
2. In the next round each rank holds its questions back, and gives their number so far. The largest of these numbers is
   the question at which all meet. No rank has asked it yet, and no rank asks it before it hears so.

A rank with a notice holds its questions back from its next one on. In a training with a collective in each step, the
others then take one more step at most. In other trainings no rank is ahead of the slowest one by more than one step and
three seconds.

Each rank adds its questions up to a digest. The rounds compare the digests over the questions that all ranks have
asked. So ranks at different places of the training are found, though they do not meet.
"""

from __future__ import annotations

import enum
from array import array
from collections import deque
from collections.abc import Sequence

NO_WISH, SAVE_WISH, NOTICE_WISH = 0, 1, 2
"""The wishes for a meeting. A due save waits for a question after a step. A notice takes any question."""

_STAYS = -(2**62)
_MODULUS = 2**61 - 1
_FACTOR = 1_000_003
_LONGEST_LEAD_ROUNDS = 12
"""Rounds by which a rank may be ahead of the slowest one. With a notice the slowest one has to catch up."""


class Answer(enum.Enum):
    """The answer to a question."""

    PASS = "pass"  # noqa: S105 - no password
    """There is no reason to save or to leave."""
    MEET = "meet"
    """All ranks answer this question together."""
    WAIT = "wait"
    """The answer comes with one of the next rounds. The rank asks again then."""
    GONE = "gone"
    """Another rank has left its training before this question."""


class Next(enum.Enum):
    """The time of the next round."""

    SOON = "soon"
    """After a pause."""
    AT_ONCE = "at once"
    NEVER = "never"
    """A rank has left, or the ranks are apart."""


class Questions:
    """The questions of one rank so far.

    Attributes:
        count: Number of questions.
        newest: The newest one, a number that the rank chose.
        digest: A number that is equal on two ranks with the same questions.
    """

    def __init__(self) -> None:
        self.count = 0
        self.newest = 0
        self.digest = 0
        self._digests = array("q", [0])  # after the questions that all ranks have asked, and after each later one
        self._common = 0
        self._counts: deque[int] = deque(maxlen=_LONGEST_LEAD_ROUNDS)  # in the newest rounds

    def add(self, question: int, *, meets: bool) -> None:
        """Take a question.

        Args:
            question: A number that is equal on all ranks.
            meets: True for a meeting in any case.
        """
        self.count += 1
        self.newest = question
        self.digest = (self.digest * _FACTOR + question * 2 + meets + 1) % _MODULUS
        self._digests.append(self.digest)

    def begin_round(self) -> int:
        """Give the digest of the questions that all ranks are known to have asked."""
        self._counts.append(self.count)
        return self._digests[0]

    def end_round(self, common: int) -> None:
        """Take the number of questions that all ranks have asked."""
        del self._digests[: common - self._common]
        self._common = common

    @property
    def is_far_ahead(self) -> bool:
        """True while another rank has not asked what this one had asked many rounds ago."""
        return len(self._counts) == _LONGEST_LEAD_ROUNDS and self._common < self._counts[0]


class Meetings:
    """The questions of one rank, and the next ones at which it meets the others.

    Attributes:
        questions: The questions that have passed, or are or were meetings.
        apart: True once the ranks are known to be at different places of the training.
    """

    def __init__(self) -> None:
        self.questions = Questions()
        self.apart = False
        self._wish = NO_WISH
        self._wish_of_all = NO_WISH
        self._holds = False
        self._notice_meetings: list[int] = []
        self._save_meetings: list[int] = []
        self._in_meeting = False
        self._met_apart = False
        self._leaves = False
        self._over_at: int | None = None

    def ask(self, question: int, *, saves: bool, meets: bool, noticed: bool) -> Answer:
        """Ask the next question, or ask one again after a wait.

        Args:
            question: A number that is equal on all ranks.
            saves: True where a save could begin. Equal on all ranks.
            meets: True for a meeting in any case. Equal on all ranks.
            noticed: True if this rank has a notice.
        """
        number = self.questions.count
        if self._over_at is not None:
            if meets or number >= self._over_at:
                return Answer.GONE
            self.questions.add(question, meets=meets)
            return Answer.PASS
        if self._holds or self._met_apart:
            return Answer.WAIT
        if self.apart:
            self._met_apart = meets = True
        here = meets or number in self._notice_meetings
        here = here or (saves and any(first <= number for first in self._save_meetings))
        if not here:
            if noticed and not self._notice_meetings:
                self._wish = NOTICE_WISH
                return Answer.WAIT
            if self.questions.is_far_ahead:
                return Answer.WAIT
        self.questions.add(question, meets=meets)
        if not here:
            return Answer.PASS
        self._in_meeting = True
        self._wish = NO_WISH
        self._notice_meetings = [one for one in self._notice_meetings if one > number]
        if saves:
            self._save_meetings = [one for one in self._save_meetings if one > number]
        return Answer.MEET

    def end_meeting(self, *, found_apart: bool = False) -> None:
        """Note that the meeting of the newest question is over.

        Args:
            found_apart: True if it has found the ranks at different places.
        """
        self._in_meeting = False
        self._met_apart = self._met_apart or found_apart

    def leave(self) -> None:
        """Note that this rank asks no more question."""
        self._leaves = True

    def stand_in(self) -> bool | None:
        """Take the place of the rank at a meeting that finds the ranks apart, as it is not in a meeting itself.

        Returns:
            False if there is no need. None while the rank is in a meeting. Ask again then.
        """
        if self._in_meeting:
            return None
        if self._met_apart:
            return False
        self._met_apart = True
        return True

    def report(self, wish: int) -> list[int]:
        """Give the numbers of this rank for a round. In a round after a wish, the rank holds its questions back.

        Args:
            wish: The wish for a meeting beside that of the rank's questions.
        """
        self._holds = self._wish_of_all != NO_WISH
        wish = max(wish, self._wish)
        if (self._notice_meetings and wish == NOTICE_WISH) or (self._save_meetings and wish == SAVE_WISH):
            wish = NO_WISH  # the meeting is to come
        common, asked = self.questions.begin_round(), self.questions.count
        return [wish, asked, -asked, common, -common, -asked if self._leaves else _STAYS]

    def hear(self, largest: Sequence[int]) -> Next:
        """Take the largest numbers of all ranks.

        Args:
            largest: For each place in `report` the largest number.
        """
        wish, most, least, digest, other_digest, leaving = largest
        if self._wish_of_all == NO_WISH:
            self._wish_of_all = wish
        else:
            meetings = self._notice_meetings if self._wish_of_all == NOTICE_WISH else self._save_meetings
            meetings.append(most)
            self._wish_of_all = NO_WISH
        self._holds = False
        if digest != -other_digest:
            self.apart = True
            return Next.NEVER
        self.questions.end_round(-least)
        if leaving != _STAYS:
            self._over_at = -leaving
            return Next.NEVER
        return Next.SOON if self._wish_of_all == NO_WISH else Next.AT_ONCE
