"""Chooses the trials that train again when their sweep is resumed, and their limits. Pure.

The chosen trials go on from their last checkpoints, as places become free and before the search begins others. First
come the trials that stopped only because their sweep did, then those that failed. Then come the trials that ended at a
limit of the document, if the resume has changed this limit. A trial is not chosen if it has completed, if a user or the
patience stopped it, or if its limit is unchanged. Each trial is tried once in each part of its sweep, so a trial that
fails again waits for the next resume.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.states import EndReason, TrialState
from spotkeep_jobs.record.sweep import Sweep, Trial

_LIMITS: Final[Mapping[EndReason, frozenset[str]]] = {
    EndReason.MAX_COST: frozenset({"max_cost"}),
    EndReason.MAX_RUNTIME_EXCEEDED: frozenset({"max_run", "max_total_run"}),
    EndReason.MAX_WAIT_EXCEEDED: frozenset({"max_wait", "longest_wait"}),
}
"""The fields that bound a trial, by how it ends when it reaches them."""


def waits_to_go_on(trial: Trial, *, sweep: Sweep) -> bool:
    """Return True if a trial is to train again in this part of its sweep, and does not yet.

    Args:
        trial: The trial.
        sweep: Its sweep's item.
    """
    if trial.goes_on_with_sweep:
        return True
    if trial.part >= sweep.part:
        return False
    return trial.state is TrialState.FAILED or _has_more_room(trial, sweep=sweep)


def next_to_go_on(sweep: Sweep, trials: Sequence[Trial], *, free: int) -> list[Trial]:
    """Return the trials that go on now.

    Args:
        sweep: The sweep's item.
        trials: All its trials, in the order of their numbers.
        free: The number of further trials that may run.
    """
    waiting = [trial for trial in trials if waits_to_go_on(trial, sweep=sweep)]
    waiting.sort(key=lambda trial: (not trial.goes_on_with_sweep, trial.state is not TrialState.FAILED))
    return waiting[: max(free, 0)]


def training_again(trial: Trial, *, pause_at_step: int | None) -> Trial:
    """Return a trial that trains again. Its run has the attempt that the trial names, or is to be given it.

    Args:
        trial: The trial.
        pause_at_step: The step at which it pauses, in completed steps. None to train to its end.
    """
    return with_changes(
        trial,
        state=TrialState.RUNNING,
        pause_at_step=pause_at_step,
        stop_because=None,
        goes_on_with_sweep=False,
        end_reason=None,
        failure_reason=None,
    )


def let_go_on(trial: Trial, *, sweep: Sweep, pause_at_step: int | None, left_usd: float | None) -> Trial:
    """Return a trial that trains again because of its sweep, and not because a user resumed its run.

    Args:
        trial: The trial.
        sweep: Its sweep's item.
        pause_at_step: The step at which it pauses, in completed steps. None to train to its end.
        left_usd: The money that the sweep has left, in US dollars. None where it has no bound.
    """
    return with_changes(
        training_again(trial, pause_at_step=pause_at_step),
        part=sweep.part,
        went_on_at_step=trial.step,
        max_cost_usd=_most_usd(trial, left_usd=left_usd),
    )


def changes_of_resume(sweep: Sweep, *, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a run's request that change with its next attempt. None takes a field away.

    Args:
        sweep: The item of the trial's sweep.
        document: The trial's document, as it follows from the sweep's.
    """
    return {field: document.get(field) for field in ("pause_at_step", "max_cost", *sweep.changed)}


def _has_more_room(trial: Trial, *, sweep: Sweep) -> bool:
    """Return True if a limit ended a trial that was changed since."""
    if trial.state is not TrialState.STOPPED or trial.stop_because is not None or trial.end_reason is None:
        return False
    return any(sweep.changed.get(field, 0) > trial.part for field in _LIMITS.get(trial.end_reason, ()))


def _most_usd(trial: Trial, *, left_usd: float | None) -> float | None:
    """Return the most that a trial may cost when it goes on.

    It is its own cost so far and the rest of its sweep's money.
    """
    if left_usd is None:
        return None
    own_usd = (trial.cost.billed_usd or 0.0) if trial.cost is not None else 0.0
    return max(trial.max_cost_usd or 0.0, round(own_usd + left_usd, 2))
