"""The rounds in which the ranks agree on their next meeting, in a thread beside the training.

`meetings` has the decisions. The thread sends the numbers of its rank and wakes the training where that waits.
"""

from __future__ import annotations

import atexit
import os
import threading
from typing import Callable

from spotkeep.errors import RankLostError, UsageError

from .distributed import Ranks
from .meetings import Answer, Meetings, Next, Questions

_PAUSE_SECONDS = 0.25
_LONGEST_END_SECONDS = 30.0


class MeetingRounds:
    """The questions of this rank, and the thread that agrees with the other ranks on meetings.

    Without the thread each question is a meeting.

    Attributes:
        problem: The reason why there are no more meetings. None while there is none.

    Args:
        ranks: The other ranks, for this thread alone.
    """

    def __init__(self, ranks: Ranks) -> None:
        self.problem: BaseException | None = None
        self._ranks = ranks
        self._meetings = Meetings()
        self._changed = threading.Condition()
        self._awake = threading.Event()
        self._thread: threading.Thread | None = None
        self._process = 0

    def start(self, *, wish: Callable[[], int], find_apart: Callable[[], None]) -> None:
        """Start the thread. Every rank must call it.

        Args:
            wish: Gives the wish of this rank for a meeting, for example because of a notice. The thread calls it.
            find_apart: Meets the other ranks, which are at another place of the training. The thread calls it where the
                training is in the middle of a step. It raises the error that all of them raise.

        Raises:
            RankLostError: If an earlier thread is still there, because another rank did not answer.
            RuntimeError: If the system starts no more threads.
        """
        if self._ranks.world_size == 1 or self.problem is not None:
            return
        if self._thread is not None:
            raise RankLostError("another rank of this training did not end its Checkpointer before")
        self._meetings = Meetings()
        self._process = os.getpid()
        thread = threading.Thread(target=self._run, args=(wish, find_apart), name="spotkeep-ranks", daemon=True)
        thread.start()
        self._thread = thread
        # An interpreter that ends beside a thread in a call to torch may abort.
        atexit.register(self.stop)

    def stop(self) -> None:
        """Let the other ranks know that this one asks no more question, and end the thread."""
        if self._thread is None or self._process != os.getpid():
            return
        atexit.unregister(self.stop)
        with self._changed:
            self._meetings.leave()
            self._changed.notify_all()
        self._awake.set()
        self._thread.join(_LONGEST_END_SECONDS)
        if not self._thread.is_alive():
            self._thread = None

    def meets(self, question: int, *, saves: bool, meets: bool, noticed: bool) -> bool:
        """Say if all ranks answer this question together. The caller then meets them, and calls `end_meeting`.

        Args:
            question: A number that is equal on all ranks.
            saves: True where a save could begin. Equal on all ranks.
            meets: True for a meeting in any case. Equal on all ranks.
            noticed: True if this rank has a notice.

        Raises:
            RankLostError: If another rank is gone, or has left its training.
            UsageError: If the ranks are at different places of the training.
        """
        with self._changed:
            while True:
                if self.problem is not None:
                    raise self.problem
                alone = self._thread is None
                answer = self._meetings.ask(question, saves=saves, meets=meets or alone, noticed=noticed)
                if answer is Answer.GONE:
                    raise RankLostError(
                        "another rank of this training has left its Checkpointer, and this one goes on: see its error"
                    )
                if answer is not Answer.WAIT:
                    return answer is Answer.MEET
                self._awake.set()
                self._changed.wait()

    def end_meeting(self, problem: BaseException | None) -> None:
        """Note that a meeting is over.

        Args:
            problem: The error that has ended it. None for none.
        """
        with self._changed:
            if isinstance(problem, UsageError):
                self.problem = problem
            self._meetings.end_meeting(found_apart=problem is not None)
            self._changed.notify_all()

    @property
    def is_running(self) -> bool:
        """True while the thread is there, also one that waits for a rank that does not answer."""
        return self._thread is not None

    @property
    def questions(self) -> Questions:
        """The questions so far."""
        return self._meetings.questions

    def _run(self, wish: Callable[[], int], find_apart: Callable[[], None]) -> None:
        then = Next.SOON
        try:
            while then is not Next.NEVER:
                if then is Next.SOON:
                    self._awake.wait(_PAUSE_SECONDS)
                    self._awake.clear()
                then = self._round(wish())
            if self._meetings.apart and self._stands_in():
                find_apart()
        except BaseException as error:  # noqa: BLE001 - the training's thread raises it at its next question
            with self._changed:
                self.problem = self.problem or error
                self._changed.notify_all()

    def _round(self, wish: int) -> Next:
        with self._changed:
            numbers = self._meetings.report(wish)
        largest = self._ranks.largest(numbers)
        with self._changed:
            then = self._meetings.hear(largest)
            self._changed.notify_all()
        return then

    def _stands_in(self) -> bool:
        with self._changed:
            while True:
                needed = self._meetings.stand_in()
                if needed is not None:
                    return needed
                self._changed.wait()
