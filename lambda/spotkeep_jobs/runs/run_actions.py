"""What users do with a run that was launched: stop it, resume it, describe it, have its notifications sent again."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from spotkeep_jobs.errors import RequestRefusedError
from spotkeep_jobs.record.record import Run, ScriptMetrics
from spotkeep_jobs.record.run_table_errors import RunNotRecordedError
from spotkeep_jobs.record.until_written import until_written
from spotkeep_jobs.runs.launch_completion import LaunchCompletion
from spotkeep_jobs.runs.launch_context import LaunchContext
from spotkeep_jobs.runs.launch_outcome import Launched, refuse_if_its_backend_did, unfinished_without_an_answer
from spotkeep_jobs.runs.resume import Resumption
from spotkeep_jobs.runs.run_access import known_run, unknown_run

_NO_CHANGES: Final[Mapping[str, Any]] = MappingProxyType({})


class RunActions:
    """Acts on runs, on the run table and the backends it is given."""

    def __init__(self, context: LaunchContext, *, resumption: Resumption, completion: LaunchCompletion) -> None:
        """Bind the parts.

        Args:
            context: What it acts on.
            resumption: Records next attempts.
            completion: Creates and stops the jobs of what is recorded.
        """
        self._table = context.table
        self._pause = context.pause
        self._resumption = resumption
        self._completion = completion

    def resume(self, run_id: str, *, changes: Mapping[str, Any] = _NO_CHANGES) -> Launched:
        """Begin the next attempt of a run that ended without completing, on the same checkpoints.

        Args:
            run_id: The run.
            changes: New values of fields of its request; None takes a field away.

        Raises:
            RequestRefusedError: The run is not known, has completed, its last job is not over (I1), or the changed
                request would not be launched.
            LaunchUnfinishedError: AWS did not answer for certain; call again.
        """
        with unfinished_without_an_answer(run_id, doing="resuming"):
            run, attempt = until_written(lambda: self._resumption.begin(run_id, changes=changes), pause=self._pause)
            read = None if attempt is None else (run, attempt)
            run = self._completion.complete(run_id, read=read, wrote_attempt=attempt is not None)
        return Launched(run=refuse_if_its_backend_did(run), replayed=attempt is None)

    def stop(self, run_id: str) -> Run:
        """Ask a run to stop: recorded first, then passed to its backend. Stopping an ended run changes nothing.

        Raises:
            RequestRefusedError: The run is not known.
            RecordRefusedError: DynamoDB does not take the record; its job was asked to stop all the same.
            LaunchUnfinishedError: AWS did not answer for certain; the controller stops the job.
        """
        with unfinished_without_an_answer(run_id, doing="stopping"):
            try:
                return self._completion.stop(run_id)
            except RunNotRecordedError:
                raise RequestRefusedError([unknown_run(run_id)]) from None

    def replay_notifications(self, run_id: str) -> tuple[str, ...]:
        """Put what could not be sent of a run into the outbox again.

        Returns:
            The ids of the notifications that go out again, each once; empty when none was dead.

        Raises:
            RequestRefusedError: The run is not known, and has no notification.
        """
        notifications = self._table.notifications(run_id)
        if not notifications and self._table.get(run_id) is None:
            raise RequestRefusedError([unknown_run(run_id)])
        return tuple(
            notification.notification_id
            for notification in notifications
            if self._table.revive_notification(notification)
        )

    def describe(self, run_id: str) -> tuple[Run, ScriptMetrics | None]:
        """Return the item of a run, and what its script measures.

        Raises:
            RequestRefusedError: The run is not known.
        """
        return known_run(self._table, run_id), self._table.metrics(run_id)
