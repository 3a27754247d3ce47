"""Decides whether a rehearsed run kept what the promises say it keeps: one pure function over the evidence.

The reasons of a failed verdict are written for the author of the training script: what was expected, what was found,
and where to read on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from spotkeep_cli.rehearsal.evidence import (
    CapacityLoss,
    FileComparison,
    ModelFile,
    ProcessEnding,
    ReceivedNotification,
    RehearsedProcess,
    RunEvidence,
    ValueDifference,
)

_COMPLETED = "COMPLETED"
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The judgement on a rehearsal.

    Attributes:
        reasons: Every reason why it did not pass; empty when it passed.
        interruptions: What each loss of capacity cost.
        identical_to_uninterrupted: Whether the final model equals, file by file, that of a run left alone.
        equal_to_uninterrupted: Whether it holds the same values, as far as they can be compared, whatever its bytes.
        remarks: What a verdict that passed leaves open: files that cannot be compared by value.
        not_shown: The reason that nothing shows whether the models are equal, where that is one.
        missing_module: The Python module without which the script ended; then there is no judgement on it.
    """

    reasons: tuple[str, ...]
    interruptions: tuple[CapacityLoss, ...]
    identical_to_uninterrupted: bool
    equal_to_uninterrupted: bool
    remarks: tuple[str, ...] = ()
    not_shown: str | None = None
    missing_module: str | None = None

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against the run."""
        return not self.reasons

    @property
    def unproven(self) -> bool:
        """Whether all that speaks against it is that its model cannot be compared."""
        return self.reasons == (self.not_shown,)


def judge(
    *,
    planned_interruptions: int,
    run: RunEvidence,
    reference: RunEvidence,
    notifications: Sequence[ReceivedNotification],
    compared: Sequence[FileComparison] = (),
) -> Verdict:
    """Judge a rehearsed run against the same job left alone.

    Args:
        planned_interruptions: How many losses of capacity the plan asked for.
        run: The run that was interrupted.
        reference: The run that was left alone.
        notifications: Every notification the subscriber received about either.
        compared: The files of both models whose bytes differ, compared by value.

    Returns:
        The verdict, with every reason against it.
    """
    interruptions = interruptions_of(run)
    identical = bool(run.model_files) and run.model_files == reference.model_files
    # Of the run left alone: what only an interrupted one lacks is the interruption's doing.
    missing = missing_module(reference.failure)
    model = _judge_model(run, reference, compared)
    reasons = (
        [_not_installed(missing)]
        if missing
        else [
            *_endings(run, reference),
            *_interruptions_happened(planned_interruptions, interruptions),
            *(reason for pair in enumerate(interruptions, start=1) for reason in _little_was_lost(*pair, run=run)),
            *model.reasons,
            *_notified_once(run, reference, notifications),
        ]
    )
    return Verdict(
        reasons=tuple(reasons),
        interruptions=interruptions,
        identical_to_uninterrupted=identical,
        equal_to_uninterrupted=not model.reasons,
        remarks=model.remarks,
        not_shown=model.not_shown,
        missing_module=missing,
    )


def missing_module(failure: str | None) -> str | None:
    """Return the Python module for want of which a script ended, as its traceback says; None where it ended otherwise.

    Args:
        failure: Why its run failed, in the words of the record.
    """
    found = _MISSING.search(failure or "")
    return found and found[1].partition(".")[0]


def interruptions_of(run: RunEvidence) -> tuple[CapacityLoss, ...]:
    """List what each loss of capacity cost a run, from the lives of its process."""
    taken = (ProcessEnding.NOTICE, ProcessEnding.NO_NOTICE)
    following: list[RehearsedProcess | None] = [*run.lives[1:], None]
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


def _interruption(life: RehearsedProcess, after: RehearsedProcess | None) -> CapacityLoss:
    resumed = after.resumed_from_step if after else None
    known = life.last_step is not None and resumed is not None
    return CapacityLoss(
        when=datetime.fromtimestamp(life.ended_at, tz=UTC).isoformat(timespec="milliseconds"),
        at_step=life.last_step,
        notice=life.ending is ProcessEnding.NOTICE,
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


def _interruptions_happened(planned: int, happened: Sequence[CapacityLoss]) -> list[str]:
    if len(happened) >= planned:
        return []
    return [
        f"{planned} interruption(s) were planned and {len(happened)} happened: the job ended before they were due, or"
        " its script reports no progress (spotkeep.Checkpointer and spotkeep.report_progress do)"
    ]


def _little_was_lost(number: int, interruption: CapacityLoss, *, run: RunEvidence) -> list[str]:
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


@dataclass(frozen=True, kw_only=True)
class _ModelJudgement:
    """What speaks against a model, what is only not shown, and what stays open of one that nothing speaks against."""

    against: tuple[str, ...] = ()
    not_shown: str | None = None
    remarks: tuple[str, ...] = ()

    @property
    def reasons(self) -> tuple[str, ...]:
        return self.against if self.not_shown is None else (*self.against, self.not_shown)


def _judge_model(run: RunEvidence, reference: RunEvidence, compared: Sequence[FileComparison]) -> _ModelJudgement:
    """Judge the final model.

    A file that cannot be compared by value is no reproach. But what is shown to be the same must be the larger part of
    the model: else nothing is shown.
    """
    ours, theirs = run.model_files, reference.model_files
    if not ours or not theirs:
        missing = [evidence.run for evidence in (run, reference) if not evidence.model_files]
        text = f"no model was uploaded by {' and '.join(missing)}: write the final model to SM_MODEL_DIR"
        return _ModelJudgement(against=(text,))
    by_value = {each.name: each for each in compared}
    unequal = [name for name in sorted({*ours, *theirs}) if ours.get(name) != theirs.get(name)]
    open_ = {name: because for name in unequal if (because := _why_not_shown(name, ours, theirs, by_value))}
    against = [
        f"only {run.run if name in ours else reference.run} has {name} in its model: what a script writes to"
        " SM_MODEL_DIR before an interruption is lost with the machine"
        for name in unequal
        if (name in ours) != (name in theirs) and name not in open_
    ]
    if differing := [by_value[name] for name in unequal if name in by_value and by_value[name].differing]:
        described = "; ".join(map(_described, differing))
        against.append(
            f"the final model differs from the uninterrupted run's in {described}: something that training depends on"
            " is not in the checkpoint (random state, data order, optimizer), or the script is not deterministic to"
            " begin with"
        )
    remarks = tuple(f"{name} differs and cannot be compared by value: {because}" for name, because in open_.items())
    shown_bytes = sum(file.size_bytes for name, file in ours.items() if name not in open_)
    if against or not open_ or shown_bytes > sum(file.size_bytes for name, file in ours.items() if name in open_):
        return _ModelJudgement(against=tuple(against), remarks=remarks)
    return _ModelJudgement(
        not_shown=f"whether the final model equals the uninterrupted run's is not shown: {'; '.join(remarks)}. Write"
        " what is the same file for the same model, or torch weights, safetensors, NumPy, HDF5 or Keras"
    )


def _why_not_shown(
    name: str, ours: Mapping[str, ModelFile], theirs: Mapping[str, ModelFile], by_value: Mapping[str, FileComparison]
) -> str | None:
    """Return why nothing is known of a file that is not the same in both models, as a clause; ``None`` where it is."""
    if name in ours and name in theirs:
        return by_value[name].incomparable if name in by_value else "it was not compared"
    alone = [
        {_without_numbers(each) for each in one if each not in other} for one, other in ((ours, theirs), (theirs, ours))
    ]
    return "its name holds a number of the process" if all(_without_numbers(name) in names for names in alone) else None


def _without_numbers(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def _described(comparison: FileComparison) -> str:
    rest = comparison.differing - len(comparison.differences)
    values = ", ".join(map(_difference, comparison.differences)) + (f", and {rest} more" if rest else "")
    if comparison.compared == 1:
        return f"{comparison.name} ({values})"
    return f"{comparison.name} ({comparison.differing} of {comparison.compared} tensors and values: {values})"


def _difference(difference: ValueDifference) -> str:
    name = f"{difference.name} " if difference.name else ""
    if difference.what is not None:
        return f"{name}{difference.what}"
    amounts = [] if difference.largest is None else [f"by at most {difference.largest:.3g}"]
    if difference.largest_relative is not None:
        amounts.append(f"relatively {difference.largest_relative:.3g}")
    if difference.not_finite:
        amounts.append(f"{difference.not_finite:,} by NaN or infinity")
    return " ".join([f"{name}in {difference.changed:,} of {difference.values:,} values", ", ".join(amounts)]).rstrip()


def _notified_once(
    run: RunEvidence, reference: RunEvidence, notifications: Sequence[ReceivedNotification]
) -> list[str]:
    reasons = []
    for evidence in (run, reference):
        endings = [n for n in notifications if n.run == evidence.run and n.status in {"completed", "failed", "stopped"}]
        if len(endings) != 1:
            reasons.append(
                f"the ending of {evidence.run} was notified {len(endings)} times, not once"
                + (f" ({', '.join(n.status for n in endings)})" if endings else "")
            )
    return reasons
