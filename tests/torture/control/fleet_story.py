"""Stories of runs on fleets with a max_cost, a deadline or capacity: auto, beside those of launcher and controller.

What must hold of runs holds of these (`story`). Beside that:

- I1: A run has one active fleet at most, which is its current attempt's, and two instances never train it at a time,
  unless they are nodes of one world.
- A fleet that is asked to end lets its instance save. The controller terminates only an instance that does not leave,
  and nodes that wait in vain for others.
- Nodes that wait for others longer than nodes_wait are not there any more, and no node outlives its fleet by a pass.
- I8: An ended run was billed what its instances cost in EC2's prices.
- No run costs more than its max_cost, storage included.
- A run that waits for spot capacity leaves it while on-demand capacity still keeps its deadline.

The last two rest on a pass that gets through every five minutes, as in the stories of sweeps with a max_cost. Between
two passes everything may happen that happens in the other stories. No record is written by a newer version.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from spotkeep_fleet.tags import ATTEMPT_TAG, RUN_TAG
from spotkeep_jobs.document.capacity import BETWEEN_PASSES_SECONDS
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.states import NotificationState, RunState
from spotkeep_jobs.runs.steering import DECISION_INTERVAL_SECONDS, FLEET_HANDOVER_SECONDS
from tests.models.clock import NOON
from tests.models.control_plane import FLEET_PRICES, FLEET_STORAGE
from tests.models.ec2 import ROOT_VOLUME, ModelFleet, ModelInstance
from tests.models.instances import Instances
from tests.torture.control.story import EVERYTHING, QUIET, Circumstances, ControlPlaneStory, circumstances

_MOMENT_SECONDS: Final = 40
"""Time goes by in such parts, and what happens between two passes takes no longer than one."""
_ROUNDED_USD: Final = 0.001
_VOLUME_GB: Final = 100
_WORK_HOURS: Final = 2
_RESTART_SECONDS: Final = 600
_TERMINATED: Final = "Client.UserInitiatedShutdown"
_TAKEN_FREE_SECONDS: Final = 3_600
TOGETHER: Final[dict[str, Any]] = {"distributed": "torchrun"}
_FUNCTION_COMES_SECONDS: Final = BETWEEN_PASSES_SECONDS + 2 * _MOMENT_SECONDS
FLEETS: Final[dict[str, dict[str, Any]]] = {
    "cheap": {"max_cost": 1.0},
    "dear": {"max_cost": 1.5, "capacity": "on-demand"},
    "either": {"capacity": "auto", "longest_wait": "30m", "max_price": 0.4, "max_cost": 2.0},
    "due": {"deadline": "5h", "work": f"{_WORK_HOURS}h", "restart": _RESTART_SECONDS, "max_run": "4h"},
    "patient": {"capacity": "auto", "longest_wait": "1h", "max_run": "3h", "max_wait": "8h"},
    "nodes": {"nodes": {"min": 2, "max": 3}, "max_cost": 3.0, **TOGETHER},
    "all or none": {"nodes": 2, "nodes_wait": "15m", "capacity": "auto", "longest_wait": "2h", **TOGETHER},
}
names = st.sampled_from(sorted(FLEETS))


class FleetStory(ControlPlaneStory):
    """One story, with runs on fleets in it."""

    has_fleets: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self.instances = Instances(self.ec2, self.service.dynamodb, now=self.service.now, volume_gb=_VOLUME_GB)
        self.stubborn: set[str] = set()
        self._passed = 0.0
        self._keeps_pace = False
        self._judged: set[tuple[str, int]] = set()

    # What users ask for

    @initialize(names=st.lists(names, min_size=2, max_size=4, unique=True))
    def users_have_launched_fleets(self, names: list[str]) -> None:
        for name in names:
            self.a_user_launches_a_fleet(name=name)

    @rule(name=names, how=circumstances)
    def a_user_launches_a_fleet(self, name: str, how: Circumstances = QUIET) -> None:
        run = f"fleet-{name.replace(' ', '-')}"
        document = {"name": run, "run": run, "token": run, "command": "x", "backend": "ec2", "notify": EVERYTHING}
        self._invoke("launcher", functools.partial(self._answer, document | FLEETS[name]), how=how)

    @rule(name=names, how=circumstances, action=st.sampled_from(["stop", "resume", "resume"]))
    def a_user_asks_of_a_fleet(self, name: str, action: str, how: Circumstances = QUIET) -> None:
        document = {"action": action, "run": f"fleet-{name.replace(' ', '-')}"}
        self._invoke("launcher", functools.partial(self._answer, document), how=how)

    # What happens to fleets

    @precondition(lambda self: self.instances.fleets_without_one)
    @rule(which=st.integers(0, 20), zone=st.sampled_from(["us-east-1a", "us-east-1b"]), stubborn=st.integers(0, 5))
    def a_fleet_gets_capacity(self, which: int, zone: str, stubborn: int) -> None:
        """Let a fleet launch an instance. Some never leave by themselves."""
        fleets = self.instances.fleets_without_one
        instance = self.instances.get_capacity(fleets[which % len(fleets)], zone=zone)
        self.happenings["instances on demand after spot"] += (
            not instance.spot and self.instances.attempt_of(instance) > 1
        )
        if not stubborn:
            self.stubborn.add(instance.id)

    @precondition(lambda self: self.instances.live)
    @rule(which=st.integers(0, 20), steps=st.integers(1, 12))
    def an_instance_trains(self, which: int, steps: int) -> None:
        self.instances.train(self._instance(which), steps)

    @precondition(lambda self: any(each.spot for each in self.instances.live))
    @rule(which=st.integers(0, 20), notice=st.booleans())
    def an_instance_is_taken(self, which: int, notice: bool) -> None:
        spot = [each for each in self.instances.live if each.spot]
        self.instances.be_taken(spot[which % len(spot)], notice=notice)

    @precondition(lambda self: self.instances.live)
    @rule(which=st.integers(0, 20))
    def a_script_comes_to_its_end(self, which: int) -> None:
        self.instances.finish(self._instance(which))

    @rule(hours=st.sampled_from([1, 3, 6]))
    def trainings_go_on_for_hours(self, hours: int) -> None:
        """Let all fleets have their instances, and time go by."""
        for fleet in self.instances.fleets_without_one:
            self.instances.get_capacity(fleet)
        self._let_pass(3_600.0 * hours)

    # What is left out

    def a_newer_version_writes_records(self, **_how: Any) -> None:
        """Leave this rule of the other stories out: a fleet whose record cannot be read is not ended in time."""

    def some_users_have_launched(self, **_how: Any) -> None:
        """Leave out the jobs that other stories begin with, and with them what happens to queues and pools."""

    a_user_asks_of_a_pool = a_next_job_looks_for_a_pool = a_job_leaves_a_pool = some_users_have_launched
    a_service_job_is_preempted_again_and_again = a_service_job_can_never_have_its_turn = some_users_have_launched
    batch_answers_repeats_or_rejects_them = the_quota_of_pools_changes = some_users_have_launched
    a_service_job_has_its_turn = a_service_job_is_preempted = batch_sees_what_sagemaker_says = some_users_have_launched

    # What must hold at every step

    @invariant()
    def fleets_are_ended_in_time_and_gently(self) -> None:
        self._keep_pace()
        for instance in self.ec2.instances.values():
            waited = self.ec2.fleets[instance.fleet].terminating
            gently = instance.reason != _TERMINATED or instance.id in self.stubborn or waited
            assert gently, f"{instance.id} of {instance.tags[RUN_TAG]} was terminated before it could leave"
        for run in self._on_fleets():
            limit = run.request.get("max_cost")
            cost = self._instances_usd(run) + self._storage_usd(run)
            assert limit is None or cost <= limit + _ROUNDED_USD, f"{run.run} may cost {limit} USD, and cost {cost:.4f}"
            self._leaves_spot_in_time(run)

    @invariant()
    def nodes_wait_no_longer_than_they_may(self) -> None:
        for run in self._on_fleets():
            wanted, there = self.instances.nodes_wanted(run.run), self.instances.nodes_of(run.run)
            if not wanted or run.state.ended or run.asked_to_end is not None:
                continue
            fleets = {each.fleet for each in there}
            assert len(fleets) <= 1, f"{run.run} has nodes of {fleets}"
            if 0 < len(there) < wanted:
                short_since = max(each.ended or each.launched for each in self._instances_of(run))
                waited = (self.service.now() - short_since).total_seconds()
                longest = run.request.get("nodes_wait", 600)
                assert waited <= longest + _FUNCTION_COMES_SECONDS, f"{there[0].id} of {run.run} waits for {waited} s"

    def _leaves_spot_in_time(self, run: Run) -> None:
        """Check a run that waited for spot capacity at the last pass, and had its fleet by then."""
        attempt = self.record.runs.attempt(run.run, run.attempt)
        if run.deadline_at is None or run.state.ended or run.asked_to_end is not None or attempt is None:
            return
        passed_at = NOON + timedelta(seconds=self._passed)
        instances = self._instances_of(run)
        waits = all(each.ended is not None and each.ended < passed_at for each in instances)
        if attempt.place.capacity != "spot" or not waits or (attempt.launched_at or passed_at) >= passed_at:
            return
        left = (run.deadline_at - passed_at).total_seconds() - DECISION_INTERVAL_SECONDS
        needed = _WORK_HOURS * 3_600 + _RESTART_SECONDS + FLEET_HANDOVER_SECONDS
        assert left >= needed or attempt.asked_to_end is not None, f"{run.run} waits for spot with {left:.0f} s left"

    def _i1_one_writer(self, runs: dict[str, Run]) -> None:
        super()._i1_one_writer(runs)
        active = [each for each in self.ec2.fleets.values() if not each.deleted]
        found = Counter(each.tags[RUN_TAG] for each in active)
        assert all(count == 1 for count in found.values()), f"several fleets of one run are active: {found}"
        for fleet in active:
            run = runs[fleet.tags[RUN_TAG]]
            assert fleet.tags[ATTEMPT_TAG] == str(run.attempt), f"{fleet.id} is active, and its run is at {run.attempt}"

    def _i6_nothing_bills_on(self, runs: dict[str, Run]) -> None:
        super()._i6_nothing_bills_on(runs)
        for name in {*self._active(), *(each.tags[RUN_TAG] for each in self.instances.live)}:
            assert not self.stacks.answered, f"the deployment may be deleted, and {name} has a fleet"
            assert not runs[name].state.ended, f"{name} has ended, and has a fleet or an instance"

    def _i8_honest_bill(self, run: Run) -> None:
        if run.place.backend != "ec2":
            super()._i8_honest_bill(run)
            return
        assert run.cost is not None, f"{run.run} has no bill"
        assert run.cost.billed_usd is not None
        stored = (run.cost.storage_usd or 0.0) + (run.cost.root_volume_usd or 0.0)
        cost = self._instances_usd(run)
        assert abs(run.cost.billed_usd - stored - cost) < _ROUNDED_USD, f"{run.run} was billed {run.cost}, not {cost}"
        if (run.run, run.attempt) not in self._judged:
            self._judged.add((run.run, run.attempt))
            self.happenings[f"fleets that ended with {run.end_reason}"] += 1

    # What holds after a quiet pass

    def _record_equals_what_happened(self, *, but_for: Collection[str] = ()) -> None:
        fleets = self._on_fleets()
        super()._record_equals_what_happened(but_for={*but_for, *(run.run for run in fleets)})
        for run in fleets:
            attempts = self.record.runs.attempts(run.run)
            assert [attempt.attempt for attempt in attempts] == list(range(1, run.attempt + 1))
            assert all(attempt.state.ended for attempt in attempts[:-1])
            self._state_of_fleet_is_true(run)
            left = [
                each.notification_id
                for each in self.record.notifications.of_run(run.run)
                if each.state is not NotificationState.SENT
            ]
            assert not left, f"not sent: {left}"

    def _state_of_fleet_is_true(self, run: Run) -> None:
        active = self._active().get(run.run)
        if run.state.ended:
            assert active is None, f"{run.run} has ended, and {active} is active"
            return
        assert run.asked_to_end is None, f"{run.run} was asked to end, and is {run.state}"
        attempt = self.record.runs.attempt(run.run, run.attempt)
        ended_now = attempt is not None and attempt.asked_to_end is not None and self._is_now(attempt.asked_to_end.at)
        if ended_now or run.state is RunState.STOPPING:
            return  # This very pass ended its fleet, for its wait, its deadline or one of its limits.
        assert active is not None, f"{run.run} is {run.state} without a fleet"
        assert run.job_id == active.id
        live, moved = [each for each in self.instances.live if each.fleet == active.id], len(self._fleets_of(run)) > 1
        self.happenings["places left by nodes"] += moved
        if self._is_now(active.created):
            # This very pass created it.
            assert run.state in (RunState.LAUNCHING, RunState.WAITING, *([RunState.INTERRUPTED] if moved else []))
        elif len(live) >= (self.instances.nodes_wanted(run.run) or 1):
            assert run.state is RunState.TRAINING, f"{run.run} is {run.state}, and {live[0].id} trains"
        else:
            assert run.state in (RunState.WAITING, RunState.INTERRUPTED), f"{run.run} is {run.state}, and waits"

    # How a story goes

    def _pass_over_runs(self) -> object:
        self._instances_read_the_record()
        return super()._pass_over_runs()

    def _let_pass(self, seconds: float) -> None:
        ends = self.service.seconds + seconds
        while self.service.seconds < ends:
            self.service.seconds = min(ends, self.service.seconds + _MOMENT_SECONDS)
            self._keep_pace()

    def _keep_pace(self) -> None:
        """Let instances read the record, and make a pass if one is due: what the promises rest on."""
        if self._keeps_pace:
            return
        self._keeps_pace = True
        self._instances_read_the_record()
        if self.service.seconds - self._passed >= BETWEEN_PASSES_SECONDS - 2 * _MOMENT_SECONDS:
            unsureness, self.service.unsureness = self.service.unsureness, None
            self.service.dynamodb.let_indexes_catch_up()
            self._passed = self.service.seconds
            self._invoke("controller", self._pass_over_runs)
            self.service.unsureness = unsureness
        self._keeps_pace = False

    def _instances_read_the_record(self) -> None:
        self.instances.heed_record(but_for=self.stubborn)

    def _is_now(self, at: datetime) -> bool:
        return at == self.service.now()

    def _instance(self, which: int) -> ModelInstance:
        return self.instances.live[which % len(self.instances.live)]

    def _on_fleets(self) -> list[Run]:
        return [run for run in self._runs() if run.place.backend == "ec2"]

    def _active(self) -> dict[str, ModelFleet]:
        return {each.tags[RUN_TAG]: each for each in self.ec2.fleets.values() if not each.deleted}

    def _fleets_of(self, run: Run) -> list[ModelFleet]:
        """Return the fleets of a run's current attempt."""
        own = {RUN_TAG: run.run, ATTEMPT_TAG: str(run.attempt)}
        return [each for each in self.ec2.fleets.values() if each.tags.items() >= own.items()]

    def _instances_of(self, run: Run) -> list[ModelInstance]:
        return [each for each in self.ec2.instances.values() if each.tags[RUN_TAG] == run.run]

    def _instances_usd(self, run: Run) -> float:
        """Return the cost of a run's instances until now, as EC2 bills it."""
        usd = 0.0
        for each in self._instances_of(run):
            lasted = ((each.ended or self.service.now()) - each.launched).total_seconds()
            free = each.reason.startswith("Server.Spot") and lasted < _TAKEN_FREE_SECONDS
            price = self.ec2.spot_usd_per_hour if each.spot else FLEET_PRICES[each.type]
            usd += 0.0 if free else max(60.0, lasted) * price / 3_600
        return usd

    def _storage_usd(self, run: Run) -> float:
        """Return the least cost of a run's volume and root volumes until now."""
        lasted = [(each.ended or self.service.now()) - each.launched for each in self._instances_of(run)]
        gigabytes = float(ROOT_VOLUME["VolumeSize"]) + (0 if self.instances.nodes_wanted(run.run) else _VOLUME_GB)
        return sum(lasted, timedelta(0)).total_seconds() / 3_600 * gigabytes * (FLEET_STORAGE.ebs_gp3 or 0.0) / 730
