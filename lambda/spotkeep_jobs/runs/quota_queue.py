"""Asks SageMaker again for the jobs that wait for room in the account's quota, in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from spotkeep_jobs.errors import in_words
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.run_table_errors import UnreadableRecordError
from spotkeep_jobs.record.table_client import Unreadable
from spotkeep_jobs.runs.ending import request_of
from spotkeep_jobs.runs.launch_completion import LaunchCompletion
from spotkeep_jobs.runs.quota_wait import by_quota, has_waited_enough


class QuotaQueue:
    """The runs that wait for quota, on the run table and the launch completion it is given."""

    def __init__(self, *, table: RunTable, completion: LaunchCompletion, clock: Callable[[], datetime]) -> None:
        """Bind the parts.

        Args:
            table: Where runs are recorded.
            completion: Creates the job of a recorded run.
            clock: The time, aware.
        """
        self._table = table
        self._completion = completion
        self._clock = clock

    def quotas(self, *, unreadable: Unreadable | None = None) -> Sequence[Sequence[Run]]:
        """Return the runs that wait for quota: those of each quota, the one that waits longest first.

        Args:
            unreadable: Takes those that cannot be read; None to raise at the first.
        """
        return by_quota(self._table.waiting_for_quota(unreadable=unreadable))

    def advance(
        self, waiting: Sequence[Run], *, unreadable: Unreadable, room_is_free: bool = False
    ) -> Iterator[tuple[Run, Run]]:
        """Create the jobs that a quota has room for, and end the runs that have waited for as long as they may.

        Args:
            waiting: The runs that wait for one quota, in their order.
            unreadable: Takes what of a run cannot be read; those behind it have their turn.
            room_is_free: Whether a job has just ended: then SageMaker is asked however short ago it refused.

        Yields:
            Each run that was asked for, before and after.

        Raises:
            AwsCallError: SageMaker did not answer for certain.
            RunChangedError: A run kept changing under every try.
        """
        may_have_room = True
        for run in waiting:
            if may_have_room or has_waited_enough(run, request=request_of(run), now=self._clock()):
                try:
                    after = self._completion.complete(run.run, room_is_free=room_is_free)
                except UnreadableRecordError as error:
                    unreadable[error.what] = in_words(error)
                    continue
                yield run, after
                may_have_room = may_have_room and after.quota_wait is None
