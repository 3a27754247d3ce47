"""Decides the verdict on a rehearsed run, in one pure function over the evidence.

The verdict compares the run with the promises. The reasons of a failed verdict are for the author of the training
script. They name the promise, the fact and the page to read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate, pairwise

from spotkeep_cli.rehearsal.evidence import (
    ENDINGS,
    CapacityLoss,
    ModelFile,
    ProcessEnding,
    ReceivedNotification,
    RehearsedProcess,
    RunEvidence,
)
from spotkeep_rehearsal.comparison import FileComparison, described
from spotkeep_rehearsal.known_of_libraries import why_it_failed, why_the_model_differs

_COMPLETED = "COMPLETED"
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The judgement on a rehearsal.

    Attributes:
        reasons: Every reason why it did not pass, or empty when it passed.
        interruptions: The cost of each loss of capacity.
        identical_to_uninterrupted: True if the final model equals, file by file, that of a run left alone.
        equal_to_uninterrupted: True if it holds the same values, as far as they can be compared, in bytes that may
            differ.
        remarks: Questions that a passed verdict leaves open, such as files that cannot be compared by value.
        not_shown: Those of the reasons that name a promise without evidence.
        other_model: Those of the reasons that describe a difference of the model.
        missing_module: The Python module without which the script ended. There is no judgement on the script then.
        fails_alone: True if the run left alone did not end well. Interruptions have nothing to do with it then.
    """

    reasons: tuple[str, ...]
    interruptions: tuple[CapacityLoss, ...]
    identical_to_uninterrupted: bool
    equal_to_uninterrupted: bool
    remarks: tuple[str, ...] = ()
    not_shown: tuple[str, ...] = ()
    other_model: tuple[str, ...] = ()
    missing_module: str | None = None
    fails_alone: bool = False

    @property
    def passed(self) -> bool:
        """True if nothing speaks against the run."""
        return not self.reasons

    @property
    def unproven(self) -> bool:
        """True if the only reasons against it are missing evidence."""
        return bool(self.reasons) and set(self.reasons) <= set(self.not_shown)

    @property
    def only_the_model_differs(self) -> bool:
        """True if the only reason against it is a different model."""
        return bool(self.reasons) and set(self.reasons) <= set(self.other_model)


def judge(
    *,
    planned_interruptions: int,
    run: RunEvidence,
    reference: RunEvidence,
    notifications: Sequence[ReceivedNotification],
    compared: Sequence[FileComparison] = (),
    repeatable: bool | None = None,
    remarks: Sequence[str] = (),
) -> Verdict:
    """Judge a rehearsed run against the same job left alone.

    A script that reports its steps is judged by them. Another script is judged by the checkpoint files that it wrote
    and read.

    Args:
        planned_interruptions: Number of losses of capacity in the plan.
        run: The run that was interrupted.
        reference: The run that was left alone.
        notifications: Every notification the subscriber received about either.
        compared: The files of both models whose bytes differ, compared by value.
        repeatable: True if two runs that were left alone end with the same model. ``None`` where that is not known.
        remarks: Other questions that the rehearsal leaves open.

    Returns:
        The verdict, with every reason against it.
    """
    interruptions = interruptions_of(run)
    identical = bool(run.model_files) and run.model_files == reference.model_files
    # Of the run left alone: what only an interrupted one lacks is the interruption's doing.
    missing = missing_module(reference.failure)
    model = _judge_model(run, reference, compared, repeatable=repeatable)
    lost = [reason for pair in enumerate(interruptions, start=1) for reason in _little_was_lost(*pair, run=run)]
    unseen = () if missing else (*_never_said(run, interruptions), *_resume_not_shown(run, interruptions))
    if missing:
        reasons = [_not_installed(missing)]
    elif reference.state != _COMPLETED:
        reasons = [_ending("the run left alone", reference)]
    else:
        reasons = [
            *([] if run.state == _COMPLETED else [_ending("the interrupted run", run), *_why_it_failed(interruptions)]),
            *_interruptions_happened(planned_interruptions, interruptions),
            *lost,
            *_saved_nothing(run, interruptions),
            *unseen,
            *model.reasons,
            *_notified_once(run, reference, notifications),
        ]
    return Verdict(
        reasons=tuple(reasons),
        interruptions=interruptions,
        identical_to_uninterrupted=identical,
        equal_to_uninterrupted=model.equal,
        remarks=(*remarks, *model.remarks),
        not_shown=(*unseen, *([model.not_shown] if model.not_shown else [])),
        other_model=model.differing,
        missing_module=missing,
        fails_alone=missing is None and reference.state != _COMPLETED,
    )


def same_model(run: RunEvidence, reference: RunEvidence, compared: Sequence[FileComparison]) -> bool:
    """Return True if two runs ended with the same model, by value."""
    return _judge_model(run, reference, compared).equal


def missing_module(failure: str | None) -> str | None:
    """Return the Python module for want of which a script ended, as its traceback says. None where it ended otherwise.

    Args:
        failure: The reason that its run failed, in the words of the record.
    """
    found = _MISSING.search(failure or "")
    return found and found[1].partition(".")[0]


def interruptions_of(run: RunEvidence) -> tuple[CapacityLoss, ...]:
    """List the cost of each loss of capacity to a run, from the lives of its process."""
    following: list[RehearsedProcess | None] = [*run.lives[1:], None]
    trained = accumulate(life.ended_at - life.started_at for life in run.lives)
    return tuple(
        _interruption(life, after, seconds_trained=seconds)
        for life, after, seconds in zip(run.lives, following, trained, strict=True)
        if life.was_taken
    )


def checkpoint_interval_steps(run: RunEvidence) -> int | None:
    """Return the longest distance, in steps, between a checkpoint and the one before it. ``None`` without one."""
    gaps = [
        later - earlier
        for life in run.lives
        for earlier, later in pairwise([life.resumed_from_step or 0, *life.saved_steps])
    ]
    return max(gaps, default=None)


def _interruption(life: RehearsedProcess, after: RehearsedProcess | None, *, seconds_trained: float) -> CapacityLoss:
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
        seconds_trained=round(seconds_trained, 3),
        stored_files=life.stored_files,
        read_files=after.read_files if after else None,
        put_aside=after.put_aside if after else (),
        hosts=life.hosts,
    )


def _not_installed(module: str) -> str:
    return (
        f"the script imports {module!r}, which the Python that local jobs run with does not have: nothing is known of"
        " what an interruption would do to it"
    )


def _ending(who: str, evidence: RunEvidence) -> str:
    if evidence.stood_still_seconds is not None:
        last = next((life.last_step for life in reversed(evidence.lives) if life.last_step is not None), None)
        where = "" if last is None else f" after step {last}"
        return (
            f"{who} {evidence.run} stood still{where}: no step and no line of output for"
            f" {evidence.stood_still_seconds:.0f} s, which is longer than the job file's stuck allows. The rehearsal"
            " stopped it"
        )
    why = f": {evidence.failure}" if evidence.failure else ""
    return f"{who} {evidence.run} ended as {evidence.state}, not {_COMPLETED}{why}"


def _why_it_failed(interruptions: Sequence[CapacityLoss]) -> list[str]:
    because = why_it_failed({name for each in interruptions for name in each.read_files or ()})
    return [because] if because else []


def _interruptions_happened(planned: int, happened: Sequence[CapacityLoss]) -> list[str]:
    if len(happened) >= planned:
        return []
    return [
        f"{planned} interruption(s) were planned and {len(happened)} happened: the job ended before they were due, or"
        " its script reports no steps (spotkeep.Checkpointer and spotkeep.report_progress do; --interrupt-at 30s needs"
        " none)"
    ]


def _little_was_lost(number: int, interruption: CapacityLoss, *, run: RunEvidence) -> list[str]:
    at_step, resumed = interruption.at_step, interruption.resumed_from_step
    if not run.reports_steps:
        return _it_read_what_was_there(number, interruption)
    if at_step is None or resumed is None:
        return [
            f"interruption {number}: the script never said from which step it went on, so nothing shows that it"
            " resumed; use spotkeep.Checkpointer, or spotkeep.report_resumed and report_progress"
        ]
    repeated = interruption.steps_repeated or 0
    if resumed < interruption.durable_step:
        return [
            f"interruption {number}: the checkpoint of step {interruption.durable_step} was kept, and the script"
            f" went on from step {resumed}: it does not load what it saved"
        ]
    if interruption.notice:
        if repeated > 1:
            return [
                f"interruption {number} came with notice at step {at_step} and the script went on from step {resumed}:"
                f" {repeated} steps were repeated where one is the most; save when SIGTERM arrives"
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
            f"interruption {number}: {repeated} steps were repeated, more than the checkpoint interval of"
            f" {interval} steps allows (step {at_step} back to step {resumed})"
        ]
    return []


def _it_read_what_was_there(number: int, interruption: CapacityLoss) -> list[str]:
    """Judge a script that reports no steps. It must read a checkpoint where there is one, as far as that is seen."""
    if interruption.read_files is None or not interruption.stored_files or interruption.read_files:
        return []
    if set(interruption.stored_files) <= set(interruption.put_aside):
        return [
            f"interruption {number} came while {interruption.put_aside[0]} was written or copied to S3: half a file"
            " came back and was put aside, and there was no other one, so the script began anew. Let it number its"
            " files: torch.save(state, f'checkpoint-{epoch:03d}.pt')"
        ]
    last, *others = reversed(interruption.stored_files)
    more = f" and {len(others)} more" if others else ""
    return [
        f"interruption {number}: {last}{more} of the checkpoint directory was in S3 and came back, and the script read"
        " none of it when it started again: it does not load what it saved"
    ]


def _had_no_checkpoint(run: RunEvidence, interruptions: Sequence[CapacityLoss]) -> bool:
    """Return True if a script without reported steps had no checkpoint to read at any interruption."""
    seen = [each for each in interruptions if each.read_files is not None]
    return not run.reports_steps and bool(seen) and not any(each.stored_files for each in seen)


def _saved_nothing(run: RunEvidence, interruptions: Sequence[CapacityLoss]) -> list[str]:
    if not _had_no_checkpoint(run, interruptions) or any(life.stored_files for life in run.lives):
        return []
    unsaved = next((life.unsaved_files for life in run.lives if life.unsaved_files), ())
    if unsaved:
        folder = unsaved[-1].rpartition("/")[0] or "."
        return [
            f"the script wrote {unsaved[-1]} beside its code, which an interruption deletes, and nothing into the"
            " checkpoint directory, so it began anew after each interruption. Let it save below"
            f" os.environ.get('SPOTKEEP_CHECKPOINT_DIR', '{folder}'), and load from there when it starts"
        ]
    return [
        "the script wrote nothing into the checkpoint directory (/opt/ml/checkpoints, which SPOTKEEP_CHECKPOINT_DIR"
        " names), so it began anew after each interruption: let it save there and load when it starts, or give it"
        " one of the ways of `spotkeep help training-scripts`"
    ]


def _never_said(run: RunEvidence, interruptions: Sequence[CapacityLoss]) -> tuple[str, ...]:
    """Return a reason against a script without reports of steps, where the files that it reads are not seen either."""
    if run.reports_steps or not any(each.read_files is None for each in interruptions):
        return ()
    return (
        "the script never said at which step it was and from which one it went on, and the files that it read are not"
        " seen here, so nothing shows that it resumed: give it one of the ways of `spotkeep help training-scripts`, or"
        " spotkeep.report_resumed and report_progress. A rehearsal as a SageMaker job (spotkeep rehearse) sees the"
        " files where the disk keeps times of access",
    )


def _resume_not_shown(run: RunEvidence, interruptions: Sequence[CapacityLoss]) -> tuple[str, ...]:
    if not _had_no_checkpoint(run, interruptions) or not any(life.stored_files for life in run.lives):
        return ()
    return (
        "the script's first checkpoint was in S3 only after the last interruption, so nothing shows that it goes on"
        " from one: let it save sooner, or take the capacity later (--interrupt-at 60s)",
    )


@dataclass(frozen=True, kw_only=True)
class _ModelJudgement:
    """The judgement on a model, with reasons against it, gaps in the evidence and open questions.

    Attributes:
        lacking: The reason that there is no model, or that a file of it is missing.
        differing: The differences of its values.
        not_shown: The reason that nothing is known of the larger part of it.
        remarks: The open questions.
        equal: True if it holds the same values, as far as that is known.
    """

    lacking: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    not_shown: str | None = None
    remarks: tuple[str, ...] = ()
    equal: bool

    @property
    def reasons(self) -> tuple[str, ...]:
        return (*self.lacking, *self.differing, *([] if self.not_shown is None else [self.not_shown]))


def _judge_model(
    run: RunEvidence,
    reference: RunEvidence,
    compared: Sequence[FileComparison],
    *,
    repeatable: bool | None = None,
) -> _ModelJudgement:
    """Judge the final model.

    A file that cannot be compared by value is no reproach. The part that is shown to be the same must be the larger
    part of the model. Otherwise nothing is shown.
    """
    ours, theirs = run.model_files, reference.model_files
    if not ours or not theirs:
        # A run that failed has no model, and its failure is said.
        missing = [each.run for each in (run, reference) if not each.model_files and each.state == _COMPLETED]
        if not missing:
            return _ModelJudgement(equal=False)
        text = f"no model was uploaded by {' and '.join(missing)}: write the final model to SM_MODEL_DIR"
        return _ModelJudgement(lacking=(text,), equal=False)
    by_value = {each.name: each for each in compared}
    unequal = [name for name in sorted({*ours, *theirs}) if ours.get(name) != theirs.get(name)]
    open_ = {name: because for name in unequal if (because := _why_not_shown(name, ours, theirs, by_value))}
    lacking = tuple(
        f"only {run.run if name in ours else reference.run} has {name} in its model: what a script writes to"
        " SM_MODEL_DIR before an interruption is lost with the machine"
        for name in unequal
        if (name in ours) != (name in theirs) and name not in open_
    )
    differences = "; ".join(
        described(by_value[name]) for name in unequal if name in by_value and by_value[name].differing
    )
    remarks = tuple(f"{name} differs and cannot be compared by value: {because}" for name, because in open_.items())
    if unequal and not lacking and repeatable is False:
        changed = differences or ", ".join(open_)
        text = f"two runs of this script that were left alone end with different ones, too. It differs in {changed}"
        return _ModelJudgement(remarks=(f"the final model is no evidence: {text}",), equal=False)
    known = why_the_model_differs(
        {name for life in run.lives for name in life.stored_files},
        hosts=max((len(life.hosts) for life in run.lives), default=1),
    )
    differing = (
        (
            f"the final model differs from the uninterrupted run's in {differences}: something that training depends on"
            " is not in the checkpoint (random state, data order, optimizer)"
            + ("" if repeatable else ", or the script is not deterministic to begin with")
            + (f". {known[0].upper()}{known[1:]}" if known else ""),
        )
        if differences
        else ()
    )
    shown_bytes = sum(file.size_bytes for name, file in ours.items() if name not in open_)
    mostly_shown = shown_bytes > sum(file.size_bytes for name, file in ours.items() if name in open_)
    if lacking or differences or not open_ or mostly_shown:
        equal = not lacking and not differences
        return _ModelJudgement(lacking=lacking, differing=differing, remarks=remarks, equal=equal)
    return _ModelJudgement(
        equal=False,
        not_shown=f"whether the final model equals the uninterrupted run's is not shown: {'; '.join(remarks)}. Write"
        " what is the same file for the same model, or torch weights, safetensors, NumPy, HDF5 or Keras",
    )


def _why_not_shown(
    name: str, ours: Mapping[str, ModelFile], theirs: Mapping[str, ModelFile], by_value: Mapping[str, FileComparison]
) -> str | None:
    """Return the reason, as a clause, that nothing is known of a file that is not the same in both models.

    ``None`` where it is.
    """
    if name in ours and name in theirs:
        return by_value[name].incomparable if name in by_value else "it was not compared"
    alone = [
        {_without_numbers(each) for each in one if each not in other} for one, other in ((ours, theirs), (theirs, ours))
    ]
    return "its name holds a number of the process" if all(_without_numbers(name) in names for names in alone) else None


def _without_numbers(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def _notified_once(
    run: RunEvidence, reference: RunEvidence, notifications: Sequence[ReceivedNotification]
) -> list[str]:
    reasons = []
    for evidence in (run, reference):
        endings = [n for n in notifications if n.run == evidence.run and n.status in ENDINGS]
        if len(endings) != 1:
            reasons.append(
                f"the ending of {evidence.run} was notified {len(endings)} times, not once"
                + (f" ({', '.join(n.status for n in endings)})" if endings else "")
            )
    return reasons
