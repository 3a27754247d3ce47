"""Decides whether a rehearsed run kept what the promises say it keeps: one pure function over the evidence.

The reasons of a failed verdict are written for the author of the training script: what was expected, what was found,
and where to look.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from spotkeep_rehearsal.evidence import Ending, Interruption, ProcessLife, ReceivedNotification, RunEvidence

_COMPLETED = "COMPLETED"
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The judgement on a rehearsal.

    Attributes:
        reasons: Every reason why it did not pass; empty when it passed.
        interruptions: What each loss of capacity cost.
        identical_to_uninterrupted: Whether the final model equals, file by file, that of a run left alone.
        missing_module: The Python module without which the script ended; then there is no judgement on it.
    """

    reasons: tuple[str, ...]
    interruptions: tuple[Interruption, ...]
    identical_to_uninterrupted: bool
    missing_module: str | None = None

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against the run."""
        return not self.reasons


def judge(
    *,
    planned_interruptions: int,
    run: RunEvidence,
    reference: RunEvidence,
    notifications: Sequence[ReceivedNotification],
) -> Verdict:
    """Judge a rehearsed run against the same job left alone.

    Args:
        planned_interruptions: How many losses of capacity the plan asked for.
        run: The run that was interrupted.
        reference: The run that was left alone.
        notifications: Every notification the subscriber received about either.

    Returns:
        The verdict, with every reason against it.
    """
    interruptions = interruptions_of(run)
    identical = bool(run.model_files) and run.model_files == reference.model_files
    # Of the run left alone: what only an interrupted one lacks is the interruption's doing.
    missing = missing_module(reference.failure)
    reasons = (
        [_not_installed(missing)]
        if missing
        else [
            *_endings(run, reference),
            *_interruptions_happened(planned_interruptions, interruptions),
            *(reason for pair in enumerate(interruptions, start=1) for reason in _little_was_lost(*pair, run=run)),
            *_same_model(run, reference),
            *_told_once(run, reference, notifications),
        ]
    )
    return Verdict(
        reasons=tuple(reasons),
        interruptions=interruptions,
        identical_to_uninterrupted=identical,
        missing_module=missing,
    )


def missing_module(failure: str | None) -> str | None:
    """The Python module for want of which a script ended, as its traceback says; None where it ended otherwise.

    Args:
        failure: Why its run failed, in the words of the record.
    """
    found = _MISSING.search(failure or "")
    return found and found[1].partition(".")[0]


def interruptions_of(run: RunEvidence) -> tuple[Interruption, ...]:
    """List what each loss of capacity cost a run, from the lives of its process."""
    taken = (Ending.NOTICE, Ending.NO_NOTICE)
    following: list[ProcessLife | None] = [*run.lives[1:], None]
    return tuple(
        _interruption(life, after) for life, after in zip(run.lives, following, strict=True) if life.ending in taken
    )


def checkpoint_interval_steps(run: RunEvidence) -> int | None:
    """Return the longest distance, in steps, between a checkpoint and the one before it; ``None`` without one."""
    gaps = [
        later - earlier
        for life in run.lives
        for earlier, later in pairwise([life.resumed_from_step or 0, *life.saved_steps])
    ]
    return max(gaps, default=None)


def _interruption(life: ProcessLife, after: ProcessLife | None) -> Interruption:
    resumed = after.resumed_from_step if after else None
    known = life.last_step is not None and resumed is not None
    return Interruption(
        when=datetime.fromtimestamp(life.ended_at, tz=UTC).isoformat(timespec="milliseconds"),
        at_step=life.last_step,
        notice=life.ending is Ending.NOTICE,
        durable_step=life.durable_step,
        resumed_from_step=resumed,
        steps_repeated=max(0, (life.last_step or 0) - (resumed or 0)) if known else None,
        seconds_to_resume=round(after.started_at - life.ended_at, 3) if after else None,
    )


def _not_installed(module: str) -> str:
    return (
        f"the script imports {module!r}, which the Python that local jobs run with does not have: nothing is known of"
        " what an interruption would do to it"
    )


def _endings(run: RunEvidence, reference: RunEvidence) -> list[str]:
    return [
        f"{who} {evidence.run} ended as {evidence.state}, not {_COMPLETED}"
        + (f": {evidence.failure}" if evidence.failure else "")
        for who, evidence in (("the interrupted run", run), ("the run left alone", reference))
        if evidence.state != _COMPLETED
    ]


def _interruptions_happened(planned: int, happened: Sequence[Interruption]) -> list[str]:
    if len(happened) >= planned:
        return []
    return [
        f"{planned} interruption(s) were planned and {len(happened)} happened: the job ended before they were due, or"
        " its script reports no progress (spotkeep.Checkpointer and spotkeep.report_progress do)"
    ]


def _little_was_lost(number: int, interruption: Interruption, *, run: RunEvidence) -> list[str]:
    at_step, resumed = interruption.at_step, interruption.resumed_from_step
    if at_step is None or resumed is None:
        return [
            f"interruption {number}: the script never said from which step it went on, so nothing shows that it"
            " resumed; use spotkeep.Checkpointer, or spotkeep.report_resumed and report_progress"
        ]
    repeated = interruption.steps_repeated or 0
    if resumed < interruption.durable_step:
        return [
            f"interruption {number}: the checkpoint of step {interruption.durable_step} was durable, and the script"
            f" went on from step {resumed}: it does not load what it saved"
        ]
    if interruption.notice:
        if repeated > 1:
            return [
                f"interruption {number} came with notice at step {at_step} and the script went on from step {resumed}:"
                f" {repeated} steps were done twice where one is the most; save when SIGTERM arrives"
            ]
        return []
    interval = checkpoint_interval_steps(run)
    if interval is None:
        return [
            f"interruption {number} came at step {at_step} and no checkpoint was ever saved: the script went on from"
            f" step {resumed}; give it a Checkpointer, or checkpoints of its own"
        ]
    # A checkpoint that was saved and not yet in S3 is the platform's delay, and stands in the report as such.
    uploading = sum(1 for life in run.lives for step in life.saved_steps if interruption.durable_step < step <= at_step)
    if repeated > interval * (1 + uploading):
        return [
            f"interruption {number}: {repeated} steps were done twice, more than the checkpoint interval of"
            f" {interval} steps allows (step {at_step} back to step {resumed})"
        ]
    return []


def _same_model(run: RunEvidence, reference: RunEvidence) -> list[str]:
    if not run.model_files or not reference.model_files:
        missing = [evidence.run for evidence in (run, reference) if not evidence.model_files]
        return [f"no model was uploaded by {' and '.join(missing)}: write the final model to SM_MODEL_DIR"]
    names = sorted(set(run.model_files) | set(reference.model_files))
    differing = [name for name in names if run.model_files.get(name) != reference.model_files.get(name)]
    if not differing:
        return []
    return [
        f"the final model differs from the uninterrupted run's in {', '.join(differing)}: something that training"
        " depends on is not in the checkpoint (random state, data order, optimizer), or the script is not"
        " deterministic to begin with"
    ]


def _told_once(run: RunEvidence, reference: RunEvidence, notifications: Sequence[ReceivedNotification]) -> list[str]:
    reasons = []
    for evidence in (run, reference):
        endings = [n for n in notifications if n.run == evidence.run and n.status in {"completed", "failed", "stopped"}]
        if len(endings) != 1:
            reasons.append(
                f"the ending of {evidence.run} was told {len(endings)} times, not once"
                + (f" ({', '.join(n.status for n in endings)})" if endings else "")
            )
    return reasons
