"""Changes the priority of a run that waits in a queue, or trains there."""

from __future__ import annotations

from spotkeep_jobs.backends.batch.jobs import ServiceJobs
from spotkeep_jobs.document.queue import MAX_PRIORITY
from spotkeep_jobs.document.reading import shown
from spotkeep_jobs.errors import Problem, RequestRefusedError, TrainingJobNotFoundError
from spotkeep_jobs.record.record import Run, RunChange, TimelineEntry
from spotkeep_jobs.record.run_table_errors import RunNotRecordedError
from spotkeep_jobs.record.states import TimelineKind
from spotkeep_jobs.record.until_written import until_written
from spotkeep_jobs.runs.launch_context import LaunchContext
from spotkeep_jobs.runs.launch_outcome import unfinished_without_an_answer
from spotkeep_jobs.runs.run_access import known_run
from spotkeep_jobs.with_changes import with_changes


class Priorities:
    """Changes priorities, at AWS Batch and in the record."""

    def __init__(self, context: LaunchContext, *, queues: ServiceJobs) -> None:
        """Bind the parts.

        Args:
            context: What it acts on.
            queues: The service jobs.
        """
        self._table = context.table
        self._now = context.now
        self._pause = context.pause
        self._queues = queues

    def change(self, run_id: str, *, priority: object) -> Run:
        """Give a run another priority; its next jobs have it, too.

        Args:
            run_id: The run.
            priority: 0 to 9999, of any type.

        Returns:
            The run item afterwards.

        Raises:
            RequestRefusedError: The run is not known, is in no queue, or has ended; or this is no priority.
            LaunchUnfinishedError: AWS did not answer for certain; call again.
        """
        wanted = _priority(priority)
        with unfinished_without_an_answer(run_id, doing="changing the priority of"):
            return until_written(lambda: self._change(run_id, wanted), pause=self._pause)

    def _change(self, run_id: str, priority: int) -> Run:
        run = known_run(self._table, run_id)
        if run.place.queue is None:
            raise RequestRefusedError(
                [_refused(run, "is in no queue", "Launch it with a queue, or resume it with one.")]
            )
        if run.state.ended:
            raise RequestRefusedError([_refused(run, "has ended", f"Resume it with priority: {priority}.")])
        attempt = self._table.attempt(run_id, run.attempt)
        if attempt is None:
            raise RunNotRecordedError(run_id, attempt=run.attempt)
        if attempt.job_arn is not None:
            try:
                self._queues.api.change_priority(attempt.job_arn.rpartition("/")[2], priority=priority)
            except TrainingJobNotFoundError:
                raise RequestRefusedError([_refused(run, "is over", "Wait until its end is recorded.")]) from None
        before = run.place.queue
        if before.priority == priority:
            return run
        now, queue = self._now(), with_changes(before, priority=priority)
        place = with_changes(run.place, queue=queue)
        entry = TimelineEntry(
            run=run_id,
            attempt=run.attempt,
            at=now,
            kind=TimelineKind.REQUEST_CHANGED,
            text=f"Has priority {priority} in queue {queue.queue}, share {queue.share}, instead of {before.priority}",
        )
        return self._table.commit(
            RunChange(
                run=with_changes(run, place=place, request={**run.request, "priority": priority}, updated_at=now),
                attempt=with_changes(attempt, place=place),
                timeline=(entry,),
            )
        )


def _priority(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_PRIORITY:
        problem = f"is no priority: a whole number from 0 to {MAX_PRIORITY}"
        raise RequestRefusedError(
            [Problem(field="priority", found=shown(value), problem=problem, fix="Write a number, for example 7.")]
        )
    return value


def _refused(run: Run, problem: str, fix: str) -> Problem:
    return Problem(field="run", found=shown(run.run), problem=f"{problem}: it has no priority to change", fix=fix)
