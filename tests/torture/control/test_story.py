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

from spotkeep_jobs.backends.batch import attempt_view
from spotkeep_jobs.backends.ec2 import places
from spotkeep_jobs.backends.ec2.history import FleetHistory
from spotkeep_jobs.backends.ec2.jobs import FleetJobs
from spotkeep_jobs.cost import run_cost
from spotkeep_jobs.errors import UnreadableRecordError
from spotkeep_jobs.orphans import sources
from spotkeep_jobs.orphans.sources import OrphanSearch
from spotkeep_jobs.pools import warm_pool
from spotkeep_jobs.record import deployment_records, run_table, shared_stores, table_client
from spotkeep_jobs.record.ids import run_of_trial
from spotkeep_jobs.record.record import RunChange
from spotkeep_jobs.record.run_store import PoolStore, RunStore
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.shared_stores import ClaimStore, DeploymentStore, NotificationStore
from spotkeep_jobs.record.sweep import Trial
from spotkeep_jobs.runs import ending, rules, transition
from spotkeep_jobs.sweeps import advance, decision
from tests.models.dynamodb import InMemoryDynamoDb
from tests.torture.control import __main__ as torture
from tests.torture.control.budget_story import BudgetStory
from tests.torture.control.fleet_story import FleetStory
from tests.torture.control.foreign_id_story import ForeignIdStory
from tests.torture.control.story import MANY_TIMES, ControlPlaneStory
from tests.torture.control.sweep_story import SweepStory

_LEFT = places.left
_UNSURE_IN = ("throttled: ", "answers lost: ")
_MET_BESIDE = {
    "errors of SageMaker", "orphans: jobs removed", "pools available", "pools reused", "pools terminated",
    "preemptions", "restarts by SageMaker", "turns in a queue", "waits for capacity", "waits for quota",
}  # fmt: skip


def happenings_of(
    *, stories: int, first_seed: int | None = None, kind: type[ControlPlaneStory] = ControlPlaneStory, **how: Any
) -> Counter[str]:
    """Give the happenings of these stories. Without a seed they are the same in each call where `CI` is set.

    Source: Hypothesis, "Settings profiles": its profile of CI has `derandomize`.
    """

    class Story(kind):  # type: ignore[misc, valid-type]
        steps_taken = 0
        happenings: ClassVar[Counter[str]] = Counter()

    set_so = settings(max_examples=stories, stateful_step_count=40, suppress_health_check=list(HealthCheck), **how)
    test = get_state_machine_test(Story, settings=set_so)
    (test if first_seed is None else seed(first_seed)(test))()
    return Story.happenings


def test_i1_i4_i6_i8_whatever_happens_in_whatever_order() -> None:
    happenings_of(stories=12)


@pytest.mark.long
def test_they_hold_with_sweeps_and_nothing_is_tried_twice() -> None:
    met: Counter[str] = Counter()
    for first_seed in range(1, 61):
        met += happenings_of(stories=8, first_seed=first_seed, kind=SweepStory, database=None)
        if met.keys() >= {"pauses", "sweeps in a queue", "trials tried again"}:
            return
    pytest.fail(f"met: {sorted(met)}")


def test_no_sweep_costs_more_than_it_may() -> None:
    happenings_of(stories=3, kind=BudgetStory)


@pytest.mark.long
def test_sweeps_use_what_they_may_cost_and_no_more() -> None:
    met: Counter[str] = Counter()
    for first_seed in range(1, 41):
        met += happenings_of(stories=15, first_seed=first_seed, kind=BudgetStory, database=None)
        if met["sweeps that cost more than half of what they may"]:
            return
    pytest.fail(f"met: {sorted(met)}")


@pytest.mark.long
def test_fleets_go_on_demand_and_end_before_they_cost_more_than_they_may() -> None:
    met: Counter[str] = Counter()
    for first_seed in range(1, 31):
        met += happenings_of(stories=6, first_seed=first_seed, kind=FleetStory, database=None)
        if met["instances on demand after spot"] and met["fleets that ended with MAX_COST"]:
            return
    pytest.fail(f"met: {sorted(met)}")


@pytest.mark.long
def test_they_hold_where_others_call_theirs_like_what_sweeps_and_schedules_launch() -> None:
    met: Counter[str] = Counter()
    for first_seed in range(1, 61):
        met += happenings_of(stories=8, first_seed=first_seed, kind=ForeignIdStory, database=None)
        if met.keys() >= {"firings", "foreign runs seen", "trials tried again", "trials whose id another has"}:
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
    patch.setattr(NotificationStore, "mark_sent", lambda self, notification, **how: self.release(notification))


def endings_keep_their_checkpoint_prefix(patch: pytest.MonkeyPatch) -> None:
    """A run that has ended goes on owning its checkpoints."""
    patch.setattr(RunChange, "ends_run", property(lambda change: False))


def only_the_last_attempt_is_billed(patch: pytest.MonkeyPatch) -> None:
    """What earlier attempts cost is forgotten."""
    patch.setattr(ending, "bill", lambda attempts, **how: run_cost.bill(attempts[-1:], **how))


def idle_pools_cost_nothing(patch: pytest.MonkeyPatch) -> None:
    """How long a pool waited does not come onto the bill."""
    patch.setattr(warm_pool, "with_idle_time", lambda attempt, pool: attempt)
    patch.setattr(transition, "with_idle_time", lambda attempt, pool: attempt)


def passes_do_not_read_the_record(patch: pytest.MonkeyPatch) -> None:
    """A job that is in progress belongs to no run, however young it is."""
    patch.setattr(RunStore, "items_in_flight", lambda self: iter(()))
    patch.setattr(sources, "run_of_job", lambda job_name: None)
    patch.setattr(OrphanSearch, "run_marked", lambda self, environment: None)
    patch.setitem(deployment_records.GRACE, deployment_records.OrphanKind.UNRECORDED_JOB, timedelta(0))


def passes_know_runs_alone(patch: pytest.MonkeyPatch) -> None:
    """What is stored for a sweep is of no run."""
    patch.setattr(run_table, "SWEEPS", "no sweeps")
    patch.setattr(RunTable, "is_recorded", lambda self, run: self.runs.get(run) is not None)


def records_list_all_there_ever_was(patch: pytest.MonkeyPatch) -> None:
    """What is long over stays in the record of an attempt."""
    patch.setattr(attempt_view, "KEPT_TRAINING_JOBS", 1_000)
    patch.setattr(attempt_view, "KEPT_PHASES", 10_000)


def what_is_not_listed_is_not_billed(patch: pytest.MonkeyPatch) -> None:
    """The sums of what is long over are lost."""
    patch.setattr(attempt_view, "with_phases", lambda earlier, phases, *, until: earlier)


def trials_begin_whatever_runs(patch: pytest.MonkeyPatch) -> None:
    """A sweep has a place for each of its trials, however many run."""
    patch.setattr(advance, "free_places", lambda sweep, request, trials: 10)


def a_run_is_a_trial_by_its_id(patch: pytest.MonkeyPatch) -> None:
    """A sweep takes any run that is called like a trial for one."""
    patch.setattr(Trial, "has", lambda self, run: True)
    patch.setattr(RunStore, "trial_run", lambda self, sweep, number: self.get(run_of_trial(sweep, number)))


def ids_are_not_claimed(patch: pytest.MonkeyPatch) -> None:
    """What opens a run or a sweep does not look at what reserves its id."""
    patch.setattr(ClaimStore, "take_ids_of", lambda self, run: iter(()))
    patch.setattr(ClaimStore, "take_sweep_id", lambda self, sweep, **how: iter(()))


def all_tokens_are_users(patch: pytest.MonkeyPatch) -> None:
    """A user's token claims what follows from a record."""
    patch.setattr(shared_stores, "_partition_of_token", lambda run: f"token#{run.token}")


def live_trials_cost_nothing(patch: pytest.MonkeyPatch) -> None:
    """What a trial costs counts when it has ended."""
    patch.setattr(decision, "live_spending", lambda run, **how: None)


def nothing_is_kept_for_the_stop(patch: pytest.MonkeyPatch) -> None:
    """Trials are stopped when all is spent, as if a stop took no time."""
    patch.setattr(advance, "with_reserve", lambda trial, request, **how: trial)


def live_fleets_cost_nothing(patch: pytest.MonkeyPatch) -> None:
    """What a fleet costs counts when it has ended."""
    patch.setattr(FleetJobs, "_cost_so_far", lambda self, history, record, **how: None)


def nothing_is_kept_for_the_end_of_a_fleet(patch: pytest.MonkeyPatch) -> None:
    """A fleet is ended when all is spent, as if that took no time."""
    patch.setattr(rules, "_until_gone_usd", lambda facts, cost: 0.0)


def a_fleet_is_over_while_its_instance_lives(patch: pytest.MonkeyPatch) -> None:
    """A run ends, or its next fleet begins, beside the instance of the last one."""
    patch.setattr(FleetHistory, "live", property(lambda history: ()))


def fleets_wait_for_spot_whatever_is_due(patch: pytest.MonkeyPatch) -> None:
    """A deadline asks for nothing."""
    patch.setattr(transition, "_RULES", transition._RULES[1:])


def no_place_is_left(patch: pytest.MonkeyPatch) -> None:
    """Nodes wait for others as long as the run may wait."""
    patch.setattr(places, "is_to_be_left", lambda history, seen, now: False)


def the_next_place_is_tried_beside_the_last_one(patch: pytest.MonkeyPatch) -> None:
    """The fleet of a place that was left is taken for one that was deleted."""
    patch.setattr(places, "left", lambda *facts, **named: places.all_deleted(_LEFT(*facts, **named)))


def writes_have_no_conditions(patch: pytest.MonkeyPatch) -> None:
    """Of two who write, the second one overwrites the first."""
    patch.setattr(InMemoryDynamoDb, "checks_conditions", False)


def preempted_many_times() -> None:
    """Tell the story of a job in a queue that is preempted at each of its turns, and then ends."""
    story: Any = ControlPlaneStory()
    story.a_user_launches(name="queued")
    story.a_service_job_is_preempted_again_and_again(which=0, times=MANY_TIMES)
    story.i1_i4_i6_i8_hold()
    story.a_service_job_has_its_turn_and_trains(which=0, steps=3)
    story.a_job_ends(which=0, how="Completed")
    story.i1_i4_i6_i8_hold()
    story.all_is_quiet_and_a_pass_runs(die=True)
    story.i1_i4_i6_i8_hold()
    [run] = story._runs()
    assert (run.state.value, run.interruptions) == ("COMPLETED", MANY_TIMES)


def test_a_job_whose_record_no_function_can_read_is_not_preempted_more_often_than_batch_names() -> None:
    story: Any = ControlPlaneStory()
    story.a_user_launches(name="queued")
    change = {"state": {"S": "BEWITCHED"}}
    story.service.is_written_by_a_newer_version(("run#queued", "attempt#0001"), change, may_write=())
    story.a_service_job_is_preempted_again_and_again(which=0, times=MANY_TIMES)
    story.all_is_quiet_and_a_pass_runs(die=True)
    story.i1_i4_i6_i8_hold()


@pytest.mark.long
def test_a_job_that_is_preempted_hundreds_of_times_is_billed_and_ends_as_any_other() -> None:
    preempted_many_times()


@pytest.mark.long
@pytest.mark.parametrize("fault", [records_list_all_there_ever_was, what_is_not_listed_is_not_billed])
def test_that_its_record_grows_or_its_bill_shrinks_is_noticed(
    fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        preempted_many_times()


def launches_do_not_ask_for_a_deletion(patch: pytest.MonkeyPatch) -> None:
    """What was under way when the deployment was deleted begins afterwards."""
    check = {"Key": {"pk": {"S": "nothing"}, "sk": {"S": "nothing"}}, "ConditionExpression": "attribute_not_exists(pk)"}
    patch.setattr(DeploymentStore, "unless_being_deleted", lambda self: {"ConditionCheck": check})


def the_last_look_reads_an_index(patch: pytest.MonkeyPatch) -> None:
    """CloudFormation is answered although a run lives that the index does not show yet."""
    look = RunTable._items_in_flight

    def at_an_index(table: RunTable, *, consistent: bool) -> Any:
        return look(table, consistent=False)

    patch.setattr(RunTable, "_items_in_flight", at_an_index)


def what_cannot_be_read_is_not_alive(patch: pytest.MonkeyPatch) -> None:
    """CloudFormation is answered although a run lives whose record cannot be read."""
    look = RunTable.alive

    def those_that_can(table: RunTable, *, consistent: bool) -> Any:
        return (each for each in look(table, consistent=consistent) if not isinstance(each, UnreadableRecordError))

    patch.setattr(RunTable, "alive", those_that_can)


def one_unreadable_record_stops_a_pass(patch: pytest.MonkeyPatch) -> None:
    """A pool, a wait for quota or a notification that cannot be read keeps all that comes after it from its turn."""
    for store, name in ((PoolStore, "kept"), (RunStore, "waiting_for_quota"), (NotificationStore, "_oldest")):
        read = getattr(store, name)

        def strictly(self: Any, *part: str, read: Callable[..., Any] = read, **how: Any) -> Any:
            return read(self, *part, **{**how, "unreadable": None})

        patch.setattr(store, name, strictly)


def records_are_written_unread(patch: pytest.MonkeyPatch) -> None:
    """What a newer version has written is taken for an item of this one, as far as it goes."""
    patch.setattr(table_client, "_read_form", lambda record, item, parsed: parsed())


def many_short_searches(*, kind: type[ControlPlaneStory]) -> None:
    """Hypothesis begins each search with short stories: in the same time, many searches meet more than a long one."""
    how = {"database": None, "phases": [Phase.generate], "report_multiple_bugs": False}
    for first_seed in range(1, 151):
        happenings_of(stories=15, first_seed=first_seed, kind=kind, **how)


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (writes_have_no_conditions, ControlPlaneStory),
        (sent_notifications_are_offered_again, ControlPlaneStory),
        (endings_keep_their_checkpoint_prefix, ControlPlaneStory),
        (passes_do_not_read_the_record, ControlPlaneStory),
        (only_the_last_attempt_is_billed, ControlPlaneStory),
        (idle_pools_cost_nothing, ControlPlaneStory),
        (trials_begin_whatever_runs, SweepStory),
        (passes_know_runs_alone, SweepStory),
        (a_run_is_a_trial_by_its_id, ForeignIdStory),
        (ids_are_not_claimed, ForeignIdStory),
        (all_tokens_are_users, ForeignIdStory),
        (launches_do_not_ask_for_a_deletion, ControlPlaneStory),
        (the_last_look_reads_an_index, ControlPlaneStory),
        (what_cannot_be_read_is_not_alive, ControlPlaneStory),
        (one_unreadable_record_stops_a_pass, ControlPlaneStory),
        (records_are_written_unread, ControlPlaneStory),
        (live_trials_cost_nothing, BudgetStory),
        (nothing_is_kept_for_the_stop, BudgetStory),
        (live_fleets_cost_nothing, FleetStory),
        (nothing_is_kept_for_the_end_of_a_fleet, FleetStory),
        (a_fleet_is_over_while_its_instance_lives, FleetStory),
        (fleets_wait_for_spot_whatever_is_due, FleetStory),
        (no_place_is_left, FleetStory),
        (the_next_place_is_tried_beside_the_last_one, FleetStory),
    ],
)
def test_a_fault_is_noticed(
    fault: Callable[[pytest.MonkeyPatch], None],
    kind: type[ControlPlaneStory],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One for each promise."""
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        many_short_searches(kind=kind)
