"""I1, I4, I6 and I8 under any story, in a short form, and proof that a story notices when one is broken.

`make torture-control` runs many more.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, get_state_machine_test, rule

from benchmarks.control import torture
from benchmarks.control.story import ControlPlaneStory
from benchmarks.control.sweep_story import SweepStory
from spotkeep_jobs.cost import run_cost
from spotkeep_jobs.orphans import sources
from spotkeep_jobs.orphans.sources import OrphanSearch
from spotkeep_jobs.pools import warm_pool
from spotkeep_jobs.record import orphan_report, run_table
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.runs import ending, transition
from spotkeep_jobs.sweeps import advance
from tests.models.dynamodb import InMemoryDynamoDb

_UNSURE_IN = ("throttled: ", "answers lost: ")
_MET_BESIDE = {
    "orphans: jobs removed", "pools available", "pools reused", "pools terminated", "preemptions", "turns in a queue",
    "waits for capacity", "waits for quota",
}  # fmt: skip


def happenings_of(
    *, stories: int, first_seed: int | None = None, kind: type[ControlPlaneStory] = ControlPlaneStory, **how: Any
) -> Counter[str]:
    class Story(kind):  # type: ignore[misc, valid-type]
        steps_taken = 0
        happenings: ClassVar[Counter[str]] = Counter()

    how = settings(max_examples=stories, stateful_step_count=40, suppress_health_check=list(HealthCheck), **how)
    test = get_state_machine_test(Story, settings=how)
    (test if first_seed is None else seed(first_seed)(test))()
    return Story.happenings


def test_i1_i4_i6_i8_whatever_happens_in_whatever_order() -> None:
    happenings_of(stories=12)


@pytest.mark.long
def test_they_hold_with_sweeps_and_nothing_is_tried_twice() -> None:
    met: Counter[str] = Counter()
    for _ in range(60):
        met += happenings_of(stories=8, kind=SweepStory)
        if met.keys() >= {"pauses", "sweeps in a queue", "trials tried again"}:
            return
    pytest.fail(f"met: {sorted(met)}")


@pytest.mark.long
def test_they_hold_while_aws_is_unsure_in_every_way() -> None:
    met: Counter[str] = Counter()
    # How many stories this takes depends on which modules are imported, since Hypothesis takes constants from them:
    # hence small rounds.
    for first_seed in range(16, 116):
        met += happenings_of(stories=10, first_seed=first_seed, database=None)
        throttled, lost = ({what.removeprefix(how) for what in met if what.startswith(how)} for how in _UNSURE_IN)
        everywhere = {"batch", "dynamodb", "s3", "sagemaker"} <= throttled & lost
        if everywhere and {"logs", "scheduler", "sns"} <= throttled | lost and met.keys() >= _MET_BESIDE:
            return
    pytest.fail(f"throttled: {sorted(throttled)}, answers lost: {sorted(lost)}, of the rest: {sorted(met)}")


@pytest.mark.long
def test_the_long_form_gives_a_verdict_and_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = tmp_path / "control.json"
    monkeypatch.setattr(sys, "argv", ["torture", "--steps", "100", "--inputs", "20", "--output", str(verdict)])
    assert torture.main() == 0
    results = json.loads(verdict.read_text())
    assert results["unbroken"]
    assert results["kinds"]["stories"]["trials"] >= 100
    assert results["kinds"]["bad input: launcher"]["figures"]["refused"] >= 20
    assert "nothing broke" in capsys.readouterr().out


def test_a_problem_says_first_what_broke_however_long_the_way_to_it() -> None:
    class Broken(RuleBasedStateMachine):
        @rule()
        def break_at_once(self) -> None:
            error = AssertionError("the bill is wrong")
            error.add_note("state.time_passes(seconds=5)\n" * 1000)
            raise error

    [problem] = torture.run_stories(Broken, lambda _steps: None, steps=1, first_seed=1).problems  # type: ignore[arg-type]
    assert problem.startswith("AssertionError: the bill is wrong\n")
    assert len(problem) < 7_000


def sent_notifications_are_offered_again(patch: pytest.MonkeyPatch) -> None:
    """A notification that went out goes back into the outbox."""
    patch.setattr(RunTable, "mark_sent", lambda self, notification, **how: self.release_notification(notification))


def endings_keep_their_checkpoint_prefix(patch: pytest.MonkeyPatch) -> None:
    """A run that has ended goes on owning its checkpoints."""
    patch.setattr(run_table.RunChange, "ends_run", property(lambda change: False))


def only_the_last_attempt_is_billed(patch: pytest.MonkeyPatch) -> None:
    """What earlier attempts cost is forgotten."""
    patch.setattr(ending, "bill", lambda attempts, **how: run_cost.bill(attempts[-1:], **how))


def idle_pools_cost_nothing(patch: pytest.MonkeyPatch) -> None:
    """How long a pool waited does not come onto the bill."""
    patch.setattr(warm_pool, "with_idle_time", lambda attempt, pool: attempt)
    patch.setattr(transition, "with_idle_time", lambda attempt, pool: attempt)


def passes_do_not_read_the_record(patch: pytest.MonkeyPatch) -> None:
    """A job that is in progress belongs to no run, however young it is."""
    patch.setattr(RunTable, "run_items_in_flight", lambda self: iter(()))
    patch.setattr(sources, "run_of_job", lambda job_name: None)
    patch.setattr(OrphanSearch, "run_marked", lambda self, environment: None)
    patch.setitem(orphan_report.GRACE, orphan_report.OrphanKind.UNRECORDED_JOB, timedelta(0))


def trials_begin_whatever_runs(patch: pytest.MonkeyPatch) -> None:
    """A sweep has a place for each of its trials, however many run."""
    patch.setattr(advance, "free_places", lambda sweep, request, trials: 10)


def writes_have_no_conditions(patch: pytest.MonkeyPatch) -> None:
    """Of two who write, the second one overwrites the first."""
    patch.setattr(InMemoryDynamoDb, "checks_conditions", False)


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "kind", "soon_found_from"),
    [
        (writes_have_no_conditions, ControlPlaneStory, 1),
        (sent_notifications_are_offered_again, ControlPlaneStory, 1),
        (endings_keep_their_checkpoint_prefix, ControlPlaneStory, 4),
        (passes_do_not_read_the_record, ControlPlaneStory, 1),
        (only_the_last_attempt_is_billed, ControlPlaneStory, 16),
        (idle_pools_cost_nothing, ControlPlaneStory, 4),
        (trials_begin_whatever_runs, SweepStory, 1),
    ],
)
def test_a_fault_is_noticed(
    fault: Callable[[pytest.MonkeyPatch], None],
    kind: type[ControlPlaneStory],
    soon_found_from: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One for each promise, whatever the seed; some find it in fewer stories."""
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        happenings_of(stories=2000, first_seed=soon_found_from, kind=kind, database=None, phases=[Phase.generate])
