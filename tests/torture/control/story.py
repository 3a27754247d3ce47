"""Stories of launcher and controller, made up by Hypothesis on a model of the service, and judged at every step.

A step is something a user asks for, something that happens to a job, an event that arrives (or arrives again, or late,
or never), a pass over the runs, time that passes, or one of the functions' processes that is held between two calls,
meets a throttle, or dies. What must hold (the promises of the project's design):

I1  At most one live job writes a checkpoint prefix, and it is the current attempt of a run that has not ended.
I4  Each ending is notified once; none is sent twice, but where a deliverer was hit between publishing and recording.
I6  No job lives whose run has ended; no run that has ended holds a checkpoint lock. The search for orphans removes
    nothing that a live run has, and nothing of another deployment.
    When CloudFormation was answered that the deployment may be deleted, nothing of it lives, and nothing begins.
    A job that SageMaker, or AWS Batch, starts again after an error of SageMaker's own is one writer, and one bill.
I8  What an ended run was billed, and which steps it trained twice, is what happened. Of steps it may be said that it is
    not known, where a log was not read as often as an end waits for it.

No record outgrows its bound, however often a job is interrupted or preempted: in some stories it is so often that the
record of an attempt would.
No function writes over a record that it cannot read, as a newer version has written it; and such a record keeps no pass
from any other run.

After one quiet reconciliation and a quiet pass over orphans the record equals what happened, nothing is left to send,
and nothing is orphaned.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from botocore.exceptions import BotoCoreError, ClientError
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from controller import handler as controller_handler
from controller.events import EventBatch, PoolCheck, controller_event_of
from controller.full_pass import FullPass
from controller.reconciliation import reconcile_hint, reconcile_pool
from launcher import handler as launcher_handler
from launcher.actions import ActionContext
from spotkeep_jobs.backends.sagemaker.training_job import DEPLOYMENT_TAG, RUN_VARIABLE
from spotkeep_jobs.errors import AwsBusyError, RequestRefusedError, RunChangedError, isolated
from spotkeep_jobs.record.deployment_records import GRACE, OrphanKind, OrphanReport, StackRequest
from spotkeep_jobs.record.record import Attempt, JobUsage, Run
from spotkeep_jobs.record.states import EndReason, NotificationKind, NotificationState, PoolState, RunState
from spotkeep_jobs.runs.launch_completion import TRIED_AGAIN_AFTER, LaunchUnfinishedError
from spotkeep_jobs.runs.run_reconciler import MOST_UNFINISHED_READINGS
from tests.models.batch import ModelServiceJob
from tests.models.control_plane import PRICES, TIMEOUT_SECONDS, ControlPlane
from tests.models.faults import Fault, Process
from tests.models.sagemaker import REPLICA_LAG_SECONDS, ModelJob, is_waiting
from tests.models.unsureness import Unsureness

LARGEST_SKEW_SECONDS: Final = 30
"""How far a function's clock may be off, either way."""
SAVED_STEPS: Final = 5
_READ_FROM_LISTS: Final = ("pool", "notification", "quota")
_PASSES_WHILE_INDEXES_LAG: Final = 4
_PASSES_OF_A_DELETION: Final = 12
_SECONDS_BETWEEN_PASSES: Final = 301
QUIET_SECONDS: Final = 20 * 60
"""Longer than any function lives, any claim lasts, and a vanished job is sought."""
STEPS_BETWEEN_QUIETS: Final = 12

MANY_TIMES: Final = 200
"""So often a job loses its instances at once in some stories: more than its attempt's record lists."""
LARGEST_ATTEMPT_BYTES: Final = 60_000
"""Of the attempts in these stories: a request of 2 KB, 50 training jobs, and the names of those before them."""

_ORPHANS: Final = "orphans"
_MADE_BY_HAND: Final[dict[str, tuple[dict[str, str], dict[str, str]]]] = {
    "theirs-1": ({}, {}),
    "tagged-1": ({DEPLOYMENT_TAG: "spotkeep"}, {}),
    "lost-1": ({DEPLOYMENT_TAG: "spotkeep"}, {RUN_VARIABLE: "lost"}),
}
"""Tags and environments of jobs that no run knows: a stranger's, one that a user tagged, one whose record is lost."""
EVERYTHING: Final = [kind.value for kind in NotificationKind]
_SHARED: Final = "s3://checkpoints/runs/shared/checkpoints/"
DOCUMENTS: Final[dict[str, dict[str, Any]]] = {
    "plain": {"capacity": "spot"},
    "shared": {"capacity": "spot", "checkpoint_prefix": _SHARED},
    "sharing": {"capacity": "on-demand", "checkpoint_prefix": _SHARED},
    "ladder": {
        "capacity": "auto",
        "instance_types": ["ml.m5.xlarge", "ml.g5.xlarge"],
        "longest_wait": "30m",
        "max_attempts": 5,
        "checkpoint_prefix": _SHARED,
    },
    "warm": {"capacity": "on-demand", "keep_alive": "30m"},
    "next": {"capacity": "on-demand", "keep_alive": "10m"},
    "patient": {"capacity": "auto", "script_retries": 1, "max_run": "1h", "max_total_run": "3h", "max_cost": 50},
    "queued": {"capacity": "on-demand", "queue": "gpu", "share": "vision", "checkpoint_prefix": _SHARED},
    "stubborn": {"capacity": "on-demand", "queue": "gpu", "share": "vision", "priority": 7, "script_retries": 2},
    "thrifty": {"capacity": "on-demand", "max_run": "2h", "max_cost": 0.23, "notify": EVERYTHING},
}
_ALLOWED: Final = (
    RequestRefusedError,
    LaunchUnfinishedError,
    AwsBusyError,
    RunChangedError,
    ClientError,
    BotoCoreError,
)
"""What a function may raise under trouble; anything else is a fault of ours."""
_ENDINGS: Final = {RunState.COMPLETED: "completed", RunState.FAILED: "failed", RunState.STOPPED: "stopped"}
_ENDS: Final = (
    "Completed", "AlgorithmError", "CapacityError", "InternalServerError", "MaxRuntimeExceeded", "MaxWaitTimeExceeded"
)  # fmt: skip
"""A job's good end, the classes of its failures, and its limits."""

_LEAVE_A_POOL: Final = ("next", "warm")
_IN_A_QUEUE: Final = ("queued", "stubborn")
names = st.sampled_from((*sorted(DOCUMENTS), *_LEAVE_A_POOL, *_IN_A_QUEUE))
"""Those whose jobs leave a pool or wait in a queue stand in it more than once: every second story shall have one."""
skews = st.integers(-LARGEST_SKEW_SECONDS, LARGEST_SKEW_SECONDS)
how_often = st.sampled_from([1] * 11 + [MANY_TIMES])
pauses = st.none() | st.integers(0, 12)
"""Before which call a process is held; None lets it run to its end."""
troubles = st.none() | st.tuples(st.integers(0, 10), st.sampled_from(sorted(Fault)).map(Fault))
"""Which call of a process meets trouble, and which."""


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """How a function is invoked.

    Attributes:
        skew: By how many seconds its clock is ahead.
        hold: Before which call its process is held; None lets it run to its end.
        trouble: Which call of it meets trouble, and which; None for none.
    """

    skew: int = 0
    hold: int | None = None
    trouble: tuple[int, Fault] | None = None


QUIET: Final = Circumstances()
circumstances = st.builds(Circumstances, skew=skews, hold=pauses, trouble=troubles)


class ControlPlaneStory(RuleBasedStateMachine):
    """One story.

    Attributes:
        steps_taken: Over all stories of the class.
        happenings: What happened in them, counted.
        has_fleets: Whether the deployment has fleets of EC2.
    """

    has_fleets: ClassVar[bool] = False
    steps_taken: ClassVar[int] = 0
    happenings: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        plane = ControlPlane(has_fleets=self.has_fleets)
        self.service, self.table, self.record, self.ec2 = plane.service, plane.table, plane.record, plane.ec2
        self.controller, self.launcher = plane.controller, plane.launcher
        self._pass_over_orphans = plane.pass_over_orphans
        self.service.before_removal = self._judge_removal
        self.stacks = ModelStacks()
        self.shutdown = plane.shutdown(self.stacks)  # type: ignore[arg-type]
        self.wrongly_removed: list[str] = []
        self.processes: list[Process] = []
        self.endings: dict[tuple[str, int], RunState] = {}
        self.unfinished_readings: Counter[tuple[str, int]] = Counter()
        self.steps_since_quiet = 0
        self._read_runs: dict[str, tuple[Any, Run | None]] = {}
        self._unsureness: Unsureness | None = None

    # How unsure AWS is

    @initialize(seed=st.integers(0, 1_000_000), hands_tags_on=st.booleans())
    def aws_is_unsure(self, seed: int, hands_tags_on: bool) -> None:
        """Let every call be as unsure as AWS's, beside those that the steps strike; and so AWS Batch with tags."""
        self.happenings["stories"] += 1
        self.service.batch.hands_tags_on = hands_tags_on
        self.service.unsureness = self._unsureness = Unsureness(seed)

    # What users ask for

    @initialize(
        names=st.lists(names, min_size=1, max_size=3, unique=True),
        also=st.sampled_from([(), _LEAVE_A_POOL, _LEAVE_A_POOL, _IN_A_QUEUE]),
    )
    def some_users_have_launched(self, names: list[str], also: tuple[str, ...]) -> None:
        for name in dict.fromkeys([*names, *also]):
            self.a_user_launches(name=name)

    @rule(name=names, how=circumstances)
    def a_user_launches(self, name: str, how: Circumstances = QUIET) -> None:
        document = {"name": name, "run": name, "token": name, "command": "x", "notify": EVERYTHING, **DOCUMENTS[name]}
        self._invoke("launcher", functools.partial(self._answer, document), how=how)

    @rule(name=names, how=circumstances, action=st.sampled_from(["stop", "resume"]))
    def a_user_asks(self, name: str, action: str, how: Circumstances = QUIET) -> None:
        document = {"action": action, "run": name}
        self._invoke("launcher", functools.partial(self._answer, document), how=how)

    @rule(
        name=names,
        how=circumstances,
        action=st.sampled_from([{"action": "pools"}, {"action": "stop-pool"}, {"action": "extend-pool", "for": "15m"}]),
    )
    def a_user_asks_of_a_pool(self, name: str, action: dict[str, Any], how: Circumstances = QUIET) -> None:
        document = action if action["action"] == "pools" else {**action, "run": name}
        self._invoke("launcher", functools.partial(self._answer, document), how=how)

    @precondition(lambda self: any(job.pool == "Available" for job in self.service.launched))
    @rule(which=st.integers(0, 1), how=circumstances)
    def a_next_job_looks_for_a_pool(self, which: int, how: Circumstances = QUIET) -> None:
        run_items = {name: self.record.runs.get(name) for name in _LEAVE_A_POOL}
        free = [name for name, run_item in run_items.items() if run_item is None or run_item.state.ended]
        if not free:
            return
        name = free[which % len(free)]
        if run_items[name] is None:
            self.a_user_launches(name=name, how=how)
        else:
            self.a_user_asks(name=name, action="resume", how=how)

    # What arrives, and when

    @rule(name=names, attempt=st.integers(1, 3), how=circumstances)
    def a_schedule_fires(self, name: str, attempt: int, how: Circumstances = QUIET) -> None:
        """Fire a schedule, whether or not it is time, and however often."""
        check = PoolCheck(run=name, attempt=attempt)
        reconcile = functools.partial(reconcile_pool, check, deployment=self.controller)
        self._invoke("controller", reconcile, how=how)

    @precondition(lambda self: self.service.events)
    @rule(
        which=st.lists(st.integers(0, 200), min_size=1, max_size=3),
        how=circumstances,
    )
    def events_arrive(self, which: list[int], how: Circumstances = QUIET) -> None:
        """Deliver some of the events sent so far, in any order, whether or not they have arrived before."""
        sent = self.service.events
        self._track([sent[-1 - number % len(sent)] for number in which], how=how)

    @precondition(lambda self: self.service.events)
    @rule(skew=skews)
    def the_last_event_arrives(self, skew: int) -> None:
        self._track([self.service.events[-1]], how=Circumstances(skew=skew))

    @rule(how=circumstances)
    def a_pass_begins(self, how: Circumstances = QUIET) -> None:
        self._invoke("controller", self._pass_over_runs, how=how)

    @rule(how=circumstances)
    def a_pass_over_orphans_begins(self, how: Circumstances = QUIET) -> None:
        self._invoke(_ORPHANS, self._pass_over_orphans, how=how)

    # What becomes of processes that are held

    @precondition(lambda self: self.processes)
    @rule(which=st.integers(0, 20), calls=pauses)
    def a_process_goes_on(self, which: int, calls: int | None) -> None:
        self._held(which).go_on(calls)

    @precondition(lambda self: self.processes)
    @rule(which=st.integers(0, 20), trouble=st.sampled_from(sorted(Fault)).map(Fault))
    def a_process_meets_trouble(self, which: int, trouble: Fault) -> None:
        self._held(which).meet(trouble)

    # What happens to jobs

    @precondition(lambda self: any(is_waiting(job) for job in self.service.launched))
    @rule(which=st.integers(0, 20))
    def a_job_gets_capacity(self, which: int) -> None:
        self.service.gets_capacity(self._one_of(is_waiting, which))

    @precondition(lambda self: any(job.on_instances for job in self.service.launched))
    @rule(which=st.integers(0, 20), steps=st.integers(1, 12))
    def a_job_trains(self, which: int, steps: int) -> None:
        self.service.trains(self._one_of(lambda job: job.on_instances, which), steps)

    @precondition(lambda self: any(_can_be_taken(job) for job in self.service.launched))
    @rule(which=st.integers(0, 20), times=how_often)
    def a_job_is_interrupted(self, which: int, times: int) -> None:
        job = self._one_of(_can_be_taken, which)
        self.service.is_interrupted(job)
        for _ in range(times - 1):
            self._keep_pace()
            if not is_waiting(job):
                break  # A pass had it stopped.
            self.service.gets_capacity(job)
            self.service.trains(job, 1)
            self.service.is_interrupted(job)
        self.happenings["interrupted many times at once"] += times > 1

    @precondition(lambda self: any(job.status == "InProgress" for job in self.service.launched))
    @rule(
        which=st.integers(0, 20),
        how=st.sampled_from(_ENDS),
    )
    def a_job_ends(self, which: int, how: str) -> None:
        job = self._one_of(lambda job: job.status == "InProgress", which)
        if how == "CapacityError" and job.trained_seconds:
            how = "InternalServerError"
        if how == "Completed" and not job.on_instances:
            how = "MaxWaitTimeExceeded"
        if how == "Completed":
            self.service.ends(job, "Completed")
        elif how.startswith("Max"):
            self.service.ends(job, "Stopped", secondary=how)
        elif how == "InternalServerError":
            self.happenings["restarts by SageMaker" if job.may_restart else "errors of SageMaker"] += 1
            self.service.has_an_error(job)
        else:
            self.service.ends(job, "Failed", failure=f"{how}: words")

    @precondition(lambda self: any(_may_leave_a_pool(job) for job in self.service.launched))
    @rule(which=st.integers(0, 20), how=st.sampled_from(["Completed", "AlgorithmError"]))
    def a_job_leaves_a_pool(self, which: int, how: str) -> None:
        job = self._one_of(_may_leave_a_pool, which)
        self.service.gets_capacity(job)
        self.service.trains(job, SAVED_STEPS)
        if how == "Completed":
            self.service.ends(job, "Completed")
        else:
            self.service.ends(job, "Failed", failure=f"{how}: words")

    @precondition(lambda self: any(job.waits for job in self.service.batch.jobs.values()))
    @rule(which=st.integers(0, 20))
    def a_service_job_has_its_turn(self, which: int) -> None:
        waiting = [job for job in self.service.batch.jobs.values() if job.waits]
        self.happenings["turns in a queue"] += 1
        self.service.batch.has_its_turn(waiting[which % len(waiting)])

    @precondition(lambda self: any(job.waits for job in self.service.batch.jobs.values()))
    @rule(which=st.integers(0, 20), steps=st.integers(1, 12))
    def a_service_job_has_its_turn_and_trains(self, which: int, steps: int) -> None:
        waiting = [job for job in self.service.batch.jobs.values() if job.waits]
        self.happenings["turns in a queue"] += 1
        job = self.service.batch.has_its_turn(waiting[which % len(waiting)])
        self.service.gets_capacity(job)
        self.service.trains(job, steps)

    @precondition(lambda self: any(_can_be_preempted(job) for job in self.service.batch.jobs.values()))
    @rule(which=st.integers(0, 20))
    def a_service_job_is_preempted(self, which: int) -> None:
        fitting = [job for job in self.service.batch.jobs.values() if _can_be_preempted(job)]
        self.happenings["preemptions"] += 1
        self.service.batch.preempts(fitting[which % len(fitting)])

    @precondition(lambda self: any(job.waits for job in self.service.batch.jobs.values()))
    @rule(which=st.integers(0, 20), times=how_often)
    def a_service_job_is_preempted_again_and_again(self, which: int, times: int) -> None:
        """Preempt a job at each of its turns. AWS Batch names the last ones alone, so a pass sees each of them.

        No pass counts those of a run whose record no function can read.
        """
        unreadable = self._unreadable()
        waiting = [
            job
            for job in self.service.batch.jobs.values()
            if job.waits and job.request["Environment"][RUN_VARIABLE] not in unreadable
        ]
        if times == 1 or not waiting:
            return
        service_job = waiting[which % len(waiting)]
        self.service.unsureness = None
        self.replicas_lag_or_catch_up(lags=False)
        for _ in range(times):
            self._keep_pace()
            if not service_job.waits:
                break
            job = self.service.batch.has_its_turn(service_job)
            self.service.gets_capacity(job)
            self.service.trains(job, 2)
            self._invoke("controller", self._pass_over_runs)
            if _can_be_preempted(service_job):
                self.service.batch.preempts(service_job)
                self.service.ends(job, "Stopped")
                self.happenings["preemptions"] += 1
            self.service.batch.catches_up()
        self.service.unsureness = self._unsureness
        self.happenings["preempted many times at once"] += 1

    @precondition(lambda self: any(job.waits for job in self.service.batch.jobs.values()))
    @rule(which=st.integers(0, 20))
    def a_service_job_can_never_have_its_turn(self, which: int) -> None:
        """Its queue was made smaller. Batch may say so again and again; its users are notified once."""
        waiting = [job for job in self.service.batch.jobs.values() if job.waits]
        self.happenings["jobs that block their queue"] += 1
        self.service.batch.never_fits(waiting[which % len(waiting)])

    @precondition(lambda self: any(job.training_job is not None for job in self.service.batch.jobs.values()))
    @rule()
    def batch_sees_what_sagemaker_says(self) -> None:
        self.service.batch.catches_up()

    @precondition(lambda self: self.service.batch.jobs)
    @rule(rejects=st.booleans())
    def batch_answers_repeats_or_rejects_them(self, rejects: bool) -> None:
        self.service.batch.rejects_repeats = rejects

    @precondition(lambda self: any(job.status == "Stopping" for job in self.service.launched))
    @rule(which=st.integers(0, 20))
    def a_job_that_stops_is_over(self, which: int) -> None:
        self.service.ends(self._one_of(lambda job: job.status == "Stopping", which), "Stopped")

    @precondition(lambda self: any(self._can_be_deleted(job) for job in self.service.launched))
    @rule(which=st.integers(0, 20))
    def a_user_deletes_a_job(self, which: int) -> None:
        self.service.is_deleted(self._one_of(self._can_be_deleted, which))

    @precondition(lambda self: any(name not in self.service.jobs for name in _MADE_BY_HAND))
    @rule(name=st.sampled_from(sorted(_MADE_BY_HAND)))
    def a_user_makes_a_job_by_hand(self, name: str) -> None:
        if name not in self.service.jobs:
            tags, environment = _MADE_BY_HAND[name]
            self.service.is_made_by_hand(name, tags=tags, environment=environment)

    # What happens around them

    @rule(seconds=st.sampled_from([5, 61, 301, 31 * 60]))
    def time_passes(self, seconds: int) -> None:
        self._let_pass(seconds)

    @rule(used_up=st.booleans())
    def the_quota_changes(self, used_up: bool) -> None:
        self.service.quota = 0 if used_up else 1_000_000

    @rule(used_up=st.booleans())
    def others_use_up_the_quota(self, used_up: bool) -> None:
        self.service.used_by_others = 1_000_000 if used_up else 0

    @rule(have=st.booleans())
    def the_quota_of_pools_changes(self, have: bool) -> None:
        self.service.pools_have_quota = have

    @rule(lags=st.booleans())
    def replicas_lag_or_catch_up(self, lags: bool) -> None:
        self.service.replicas_lag = lags
        if lags:
            self.service.dynamodb.let_indexes_lag()
        else:
            self.service.dynamodb.let_indexes_catch_up()

    @precondition(lambda self: self.record.deployment.deletion() is None)
    @rule(late=st.none() | names, how=circumstances)
    def cloudformation_deletes_the_stack(self, late: str | None, how: Circumstances = QUIET) -> None:
        """Ask the controller to end what runs; launches may be under way, or so late that no index shows them."""
        self.happenings["deletions"] += 1
        if late is not None:
            self.a_user_launches(name=late)
            self.service.dynamodb.let_indexes_miss((f"run#{late}", "item"))
        request = StackRequest(
            kind="Delete", request_id=f"r-{self.service.seconds}", stack_id="stack", logical_resource_id="Shutdown",
            physical_resource_id="Shutdown", response_url="https://answers.example.com", asked_at=self.service.clock(),
        )  # fmt: skip

        def begin() -> object:
            return self._pass_over_runs() if self.shutdown.begin(request) else None

        self._invoke("controller", begin, how=how)

    @precondition(lambda self: self.stacks.answered)
    @rule()
    def the_stack_is_made_again(self) -> None:
        """End the functions of the stack that went; the launcher is in another, and goes on."""
        for process in self.processes:
            if process.name != "launcher":
                process.die()
        self._settle()
        self.stacks.answered = False
        self.record.deployment.forget_deletion()

    @rule(which=st.lists(st.integers(0, 200), min_size=1, max_size=2), form=st.booleans(), listed=st.booleans())
    def a_newer_version_writes_records(self, which: list[int], form: bool, listed: bool) -> None:
        """Let records be as they are after a rollback: with a form that is not known, or a value.

        Mostly, where there are such, of those that are read from a list: pools, notifications, waits for quota.
        """
        items = self.service.dynamodb.items
        keys = [key for key in sorted(items) if _is_a_record(key)]
        of_lists = [key for key in keys if items[key].get("in_flight", {}).get("S") in _READ_FROM_LISTS]
        keys = of_lists if listed and of_lists else keys
        for number in which if keys else ():
            change = {"form": {"N": "99"}} if form else {"state": {"S": "BEWITCHED"}, "trial": {"S": "{"}}
            self.happenings["records of a newer version"] += 1
            key = keys[number % len(keys)]
            self.service.is_written_by_a_newer_version(key, change, may_write=self.processes)

    @precondition(lambda self: self.steps_since_quiet >= STEPS_BETWEEN_QUIETS)
    @rule(die=st.booleans())
    def all_is_quiet_and_a_pass_runs(self, die: bool) -> None:
        """End the trouble; then the record equals what happened."""
        self.service.unsureness = None
        for process in self.processes:
            if die:
                process.die()
            else:
                process.go_on()
        self._settle()
        self.service.replicas_lag = False
        self.service.batch.catches_up()
        self._deletion_comes_to_its_end()
        self.service.dynamodb.let_indexes_catch_up()
        self.service.batch.catches_up()
        self._let_pass(QUIET_SECONDS)
        if self.service.unreadable:
            self._all_else_is_reconciled()
        self._invoke("controller", self._pass_over_runs)
        self._invoke(_ORPHANS, self._pass_over_orphans)
        self.happenings["quiet reconciliations"] += 1
        self.steps_since_quiet = 0
        self._record_equals_what_happened()
        self._nothing_is_orphaned()
        self.service.unsureness = self._unsureness

    def _all_else_is_reconciled(self) -> None:
        """Make a pass over records some of which cannot be read; then the version that can is deployed again."""
        self._invoke("controller", self._pass_over_runs)
        self._record_equals_what_happened(but_for=self._unreadable())
        self.happenings["passes over unreadable records"] += 1
        self.service.unreadable.clear()

    def _unreadable(self) -> set[str]:
        """Return the ids whose records a newer version has written."""
        return {pk.partition("#")[2] for pk, _ in self.service.unreadable}

    def _deletion_comes_to_its_end(self) -> None:
        """Let a deletion that is under way end what runs, and the deployment be made again."""
        if self.record.deployment.deletion() is None:
            return
        self.service.unreadable.clear()
        for number in range(_PASSES_OF_A_DELETION):
            if number == _PASSES_WHILE_INDEXES_LAG:
                self.service.dynamodb.let_indexes_catch_up()
            self._invoke("controller", self._pass_over_runs)
            self.i1_i4_i6_i8_hold()
            if self.record.deployment.deletion() is None or self.stacks.answered:
                break
            for job in self.service.launched:
                if job.status == "Stopping":
                    self.service.ends(job, "Stopped")
            self.service.batch.catches_up()
            self.service.seconds += _SECONDS_BETWEEN_PASSES
        assert self.record.deployment.deletion() is None or self.stacks.answered, "the deletion comes to no end"
        self.happenings["deletions answered"] += self.stacks.answered
        self.the_stack_is_made_again()

    def teardown(self) -> None:
        """End every story quietly."""
        try:
            if not self._failed:
                self.all_is_quiet_and_a_pass_runs(die=True)
        finally:
            for process in self.processes:
                process.die()
            if self._unsureness is not None:
                self.happenings.update(self._unsureness.met)

    # What must hold at every step

    @invariant()
    def i1_i4_i6_i8_hold(self) -> None:
        self._failed = True
        self._settle()
        type(self).steps_taken += 1
        self.steps_since_quiet += 1
        self.reported_of_step()
        runs = {run.run: run for run in self._runs()}
        self._i1_one_writer(runs)
        self._i4_notified_once(runs)
        self._i6_nothing_bills_on(runs)
        self._no_record_outgrows_its_bound()
        self._note_unfinished_readings()
        for run in runs.values():
            if run.state.ended:
                self._i8_honest_bill(run)
        self._failed = False

    _failed = False

    def _note_unfinished_readings(self) -> None:
        for run in self._runs():
            if run.log_reading is not None:
                of_attempt = self.unfinished_readings[run.run, run.attempt]
                self.unfinished_readings[run.run, run.attempt] = max(of_attempt, run.log_reading.unfinished)

    def _i1_one_writer(self, runs: dict[str, Run]) -> None:
        live = [job for job in self.service.launched if job.live]
        prefixes = [job.checkpoint_uri for job in live]
        assert len(set(prefixes)) == len(prefixes), f"two live jobs write one prefix: {[job.name for job in live]}"
        for job in live:
            run_item = runs[job.run]
            made_for = self._service_job_of(job)
            if made_for is None:
                assert run_item.job_name == job.name, f"{job.name} lives, but the run's job is {run_item.job_name}"
        alive = Counter(job.request["CheckpointConfig"]["S3Uri"] for job in self.service.batch.unfinished)
        assert set(alive.values()) <= {1}, f"several service jobs will write one prefix: {alive}"
        for service_job in self.service.batch.unfinished:
            run_item = runs[service_job.request["Environment"][RUN_VARIABLE]]
            assert run_item.job_name == service_job.name, (
                f"{service_job.name} is not over; {run_item.job_name} is its run's"
            )
            assert run_item.job_id in (None, service_job.arn)

    def _i4_notified_once(self, runs: dict[str, Run]) -> None:
        for notification_id, times in self.service.published.items():
            allowed = 1 + self.service.excused[notification_id]
            assert times <= allowed, f"{notification_id} was sent {times} times"
        for run in runs.values():
            if run.state.ended:
                self.happenings["endings"] += (run.run, run.attempt) not in self.endings
                seen = self.endings.setdefault((run.run, run.attempt), run.state)
                assert seen is run.state, f"the ending of {run.run} changed from {seen} to {run.state}"
        for (name, attempt), state in self.endings.items():
            sent = {kind for kind in _ENDINGS.values() if self.service.published[f"{name}/{kind}/{attempt}"]}
            assert sent <= {_ENDINGS[state]}, f"{name} ended {state} and its notifications say {sent}"

    def _i6_nothing_bills_on(self, runs: dict[str, Run]) -> None:
        assert not self.wrongly_removed, self.wrongly_removed
        assert not self.service.overwritten, f"written over, unread: {self.service.overwritten}"
        if self.stacks.answered:
            alive = [job.name for job in self.service.launched if job.live and not job.by_hand]
            alive += [service_job.name for service_job in self.service.batch.unfinished]
            assert not alive, f"the deployment may be deleted, and {alive} live"
        for job in self.service.launched:
            if job.live:
                assert not runs[job.run].state.ended, f"{job.name} lives, but its run is {runs[job.run].state}"
        for service_job in self.service.batch.unfinished:
            run_item = runs[service_job.request["Environment"][RUN_VARIABLE]]
            assert not run_item.state.ended, f"{service_job.name} is not over, but its run is {run_item.state}"
        for run in runs.values():
            owner = self.record.claims.checkpoint_lock_owner(run.checkpoint_uri)
            assert (owner == run.run) == (not run.state.ended), f"{run.run} is {run.state}; the lock is {owner}'s"

    def _no_record_outgrows_its_bound(self) -> None:
        largest = self.service.dynamodb.largest.get("run attempt", 0)
        assert largest <= LARGEST_ATTEMPT_BYTES, f"an attempt's record has {largest:,} bytes"

    def _i8_honest_bill(self, run: Run) -> None:
        jobs = self._jobs_of(run)
        if any(job in self.service.deleted for job in jobs):
            return  # What is no longer known is said to be unknown.
        assert run.cost is not None, f"{run.run} has no bill"
        recorded = {attempt.job_name: attempt for attempt in self.record.runs.attempts(run.run)}
        idle = {job.name: (recorded[self._attempts_job(job)].usage or _NO_USAGE).pool_idle_seconds for job in jobs}
        assert run.cost.idle_pool_seconds == sum(idle.values())
        assert run.cost.billed_seconds == sum(job.billable_seconds + idle[job.name] for job in jobs)
        assert run.cost.training_seconds == sum(job.trained_seconds for job in jobs)
        if run.cost.redone_steps is None:
            self.happenings["bills that say what was not read"] += 1
            assert self._was_not_read(run), f"{run.run} says that its steps are not known, and its logs were read"
        else:
            assert run.cost.redone_steps == self.service.redone[run.run]
        paid = sum((job.billable_seconds + idle[job.name]) * PRICES[self._type_of(job)] / 3600 for job in jobs)
        assert run.cost.billed_usd is not None
        assert abs(run.cost.billed_usd - paid) < 1e-5
        # To the millisecond, as a bill has it: the difference of two such numbers is not one to the last bit.
        saved = round(run.cost.clean_on_demand_seconds - run.cost.billed_seconds, 3)
        assert run.cost.saved_seconds == saved, f"{run.cost.saved_seconds} s saved, not {saved}"
        assert run.cost.clean_on_demand_seconds <= run.cost.training_seconds

    def _was_not_read(self, run: Run) -> bool:
        """Say whether an end waited for a log of the run as often as it may; the last reading leaves no record."""
        asked_for = (self.unfinished_readings[run.run, number] + 1 for number in range(1, run.attempt + 1))
        return any(times >= MOST_UNFINISHED_READINGS for times in asked_for)

    # What holds after a quiet pass

    def _record_equals_what_happened(self, *, but_for: Collection[str] = ()) -> None:
        for run in self._runs():
            if run.run in but_for:
                continue
            job = self.service.jobs.get(run.job_name)
            if run.place.queue is not None:
                self._queued_is_true(run)
            elif run.state.ended:
                self._ending_is_true(run, job)
            else:
                self._state_is_true(run, job)
            attempts = self.record.runs.attempts(run.run)
            assert [attempt.attempt for attempt in attempts] == list(range(1, run.attempt + 1))
            assert all(attempt.state.ended for attempt in attempts[:-1])
            known = [each for each in self._jobs_of(run) if each not in self.service.deleted]
            for each in known:
                if self._service_job_of(each) is not None:
                    continue
                [recorded] = [attempt for attempt in attempts if attempt.job_name == each.name]
                assert recorded.interruptions == each.interruptions, f"{each.name}'s interruptions"
                if not each.live:
                    self._pool_is_true(run, recorded, each)
            left = [
                notification.notification_id
                for notification in self.record.notifications.of_run(run.run)
                if notification.state is not NotificationState.SENT
            ]
            assert not left, f"not sent: {left}"
        for (name, attempt), state in self.endings.items():
            if name in but_for:
                continue
            notification_id = f"{name}/{_ENDINGS[state]}/{attempt}"
            assert self.service.published[notification_id] >= 1, f"never sent: {notification_id}"

    def _nothing_is_orphaned(self) -> None:
        """Check that what no live run has is gone, once it has been so for its grace."""
        for name, job in self.service.jobs.items():
            lost = job.by_hand and RUN_VARIABLE in job.request["Environment"]
            if lost and self.service.seconds - job.created >= GRACE[OrphanKind.UNRECORDED_JOB].total_seconds():
                assert job.status != "InProgress", f"{name} runs for no run"
            if job.live and self._is_to_be_adopted(job):
                assert self.record.runs.get(name) is not None, f"{name} is another client's, and no run"

    def _judge_report(self, report: OrphanReport) -> None:
        """Check that no objects are found of what was recorded before the pass began."""
        for finding in (each.finding for each in report.handled):
            if finding.kind is not OrphanKind.ORPHANED_CHECKPOINTS:
                continue
            name = finding.subject.rstrip("/").rpartition("/")[2]
            recorded = self.record.runs.get(name) or self.record.sweeps.get(name)
            known = recorded is not None and recorded.created_at < report.begun_at
            assert not known, f"{finding.says}, which is {name}'s"

    def _is_to_be_adopted(self, job: ModelJob) -> bool:
        tagged = {"Key": DEPLOYMENT_TAG, "Value": "spotkeep"} in job.request["Tags"]
        found = self.service.seconds - job.created > REPLICA_LAG_SECONDS
        return job.by_hand and tagged and found and RUN_VARIABLE not in job.request["Environment"]

    def _judge_removal(self, what: str, name: str) -> None:
        """Record what a pass removes although a run has it: at the moment of the call, whatever the pass had read."""
        process = Process.current()
        if process is None or process.name != _ORPHANS:
            return
        self.happenings[f"orphans: {what}s removed"] += 1
        if what == "service job" or self._service_job_of(self.service.jobs[name]) is not None:
            self._judge_removal_in_a_queue(what, name)
            return
        job = self.service.jobs[name]
        run_item, pool = self.record.runs.get(job.run), self.record.pools.get(job.run, int(name.rpartition("-")[2]))
        theirs = job.by_hand and RUN_VARIABLE not in job.request["Environment"]
        live = run_item is not None and run_item.job_name == name and not run_item.state.ended
        kept = what == "pool" and pool is not None and pool.state is PoolState.AVAILABLE
        if theirs or live or kept:
            self.wrongly_removed.append(f"{what} {name}")

    def _judge_removal_in_a_queue(self, what: str, name: str) -> None:
        """Record what a pass removes although it works on the current attempt of a run that has not ended."""
        service_job = self.service.batch.jobs.get(name) or self._service_job_of(self.service.jobs[name])
        assert service_job is not None
        run_item = self.record.runs.get(service_job.request["Environment"][RUN_VARIABLE])
        if run_item is not None and run_item.job_name == service_job.name and not run_item.state.ended:
            self.wrongly_removed.append(f"{what} {name}")

    def _queued_is_true(self, run: Run) -> None:
        """Hold a run in a queue against its service job."""
        found = [job for job in self.service.batch.jobs.values() if job.name == run.job_name]
        assert len(found) <= 1, f"{run.job_name} was submitted {len(found)} times"
        if not found:
            assert run.state.ended or run.state is RunState.LAUNCHING, f"{run.run} is {run.state} without a service job"
            return
        (service_job,) = found
        training = service_job.training_job
        attempt = self.record.runs.attempt(run.run, run.attempt)
        assert attempt is not None
        assert attempt.interruptions == service_job.lost_instances, f"preemptions of {service_job.name}"
        if run.state.ended:
            assert service_job not in self.service.batch.unfinished
            if service_job.status == "SUCCEEDED":
                assert run.state is RunState.COMPLETED
            return
        assert run.job_id == service_job.arn
        if service_job.stopped == self.service.seconds:
            assert run.state is RunState.STOPPING  # This very pass ended it while it waited.
            return
        assert service_job in self.service.batch.unfinished, f"{run.run} is {run.state}, {service_job.name} is over"
        if service_job.created == self.service.seconds:
            assert run.state in (RunState.LAUNCHING, RunState.WAITING)  # This very pass submitted it.
        elif service_job.terminated:
            assert run.state is RunState.STOPPING
        elif service_job.status == "RUNNABLE":
            asked = RunState.STOPPING if run.asked_to_end is not None else None
            lost = RunState.INTERRUPTED if service_job.lost_instances else RunState.WAITING
            assert run.state is (asked or lost), f"{service_job.name} waits, {run.run} is {run.state}"
        elif training is not None and training.on_instances and not service_job.preempting:
            assert run.state in (RunState.TRAINING, RunState.STOPPING), (
                f"{training.name} trains, {run.run} is {run.state}"
            )

    def _service_job_of(self, job: ModelJob) -> ModelServiceJob | None:
        return next((each for each in self.service.batch.jobs.values() if job in each.made), None)

    def _attempts_job(self, job: ModelJob) -> str:
        """Return what the attempt is called by that a training job works on."""
        service_job = self._service_job_of(job)
        return job.name if service_job is None else service_job.name

    def _pool_is_true(self, run: Run, attempt: Attempt, job: ModelJob) -> None:
        self.service.pools_expire()
        pool = self.record.pools.get(run.run, attempt.attempt)
        if job.pool is None:
            assert pool is None or pool.state is PoolState.NOT_KEPT, f"{job.name} left no pool, {pool} is recorded"
            return
        self.happenings[f"pools {job.pool.lower()}"] += 1
        assert pool is not None, f"the pool of {job.name} is not recorded"
        truth = {
            "Available": PoolState.AVAILABLE, "Reused": PoolState.REUSED, "Terminated": PoolState.ENDED
        }[job.pool]  # fmt: skip
        assert pool.state is truth, f"the pool of {job.name} is {job.pool}, and recorded as {pool.state}"
        assert pool.keep_alive_seconds == job.keep_alive or truth is not PoolState.AVAILABLE
        if truth is PoolState.AVAILABLE:
            return
        assert attempt.usage is not None
        assert attempt.usage.pool_idle_seconds == job.pool_idle_seconds
        sent = self.service.published[f"{run.run}/pool-expired/{attempt.attempt}"]
        assert bool(sent) == (truth is PoolState.ENDED), (
            f"the pool of {job.name} is {job.pool}, with {sent} notifications"
        )

    def _ending_is_true(self, run: Run, job: ModelJob | None) -> None:
        if job is None:
            reasons = {EndReason.JOB_VANISHED, EndReason.STOPPED_BY_USER, EndReason.QUOTA}
            was_seen = any(deleted.name == run.job_name for deleted in self.service.deleted)
            assert was_seen or run.end_reason in reasons, f"{run.run} has no job and ended with {run.end_reason}"
            return
        assert not job.live
        truth = {"Completed": RunState.COMPLETED, "Failed": RunState.FAILED, "Stopped": RunState.STOPPED}[job.status]
        assert run.state is truth, f"{job.name} is {job.status}, {run.run} is {run.state}"

    def _state_is_true(self, run: Run, job: ModelJob | None) -> None:
        if run.quota_wait is not None:
            self._waits_for_quota(run, job)
            return
        if job is None:
            self._waits_for_its_time(run)
            return
        assert job.live, f"{run.run} is {run.state}, its job is {job.status}"
        assert run.job_id == job.arn
        if run.asked_to_end is not None:
            assert (run.state, job.status) == (RunState.STOPPING, "Stopping")
            return
        as_seen = {
            "Starting": {RunState.WAITING},
            "Training": {RunState.TRAINING},
            "Interrupted": {RunState.INTERRUPTED},
            "Restarting": {RunState.INTERRUPTED if job.interruptions else RunState.WAITING},
            "Stopping": {RunState.STOPPING, RunState.WAITING, RunState.INTERRUPTED},
        }[job.secondary]
        attempt = self.record.runs.attempt(run.run, run.attempt)
        if job.secondary == "Stopping" and attempt is not None and attempt.asked_to_end is not None:
            # The stop of a job that waited too long was refused, and capacity came before this pass asked again. The
            # decision stands: a stop that was refused and one whose answer was lost are the same to who asked.
            as_seen.add(RunState.TRAINING)
        if job.created == self.service.seconds:
            as_seen = {RunState.LAUNCHING, RunState.WAITING}  # This very pass created it; it may have waited before.
        assert run.state in as_seen, f"{job.name} is {job.secondary}, {run.run} is {run.state}"

    def _waits_for_its_time(self, run: Run) -> None:
        """Hold a run without a job against the clock: SageMaker had no capacity, and is asked again later."""
        attempt = self.record.runs.attempt(run.run, run.attempt)
        assert attempt is not None
        assert attempt.retry is not None, f"{run.run} is {run.state} and has no job"
        assert (run.state, run.asked_to_end) == (RunState.WAITING, None)
        self.happenings["waits for capacity"] += 1
        assert self.service.clock() < attempt.retry.at, f"{run.run} has no job, and its time is over"

    def _waits_for_quota(self, run: Run, job: ModelJob | None) -> None:
        """Hold a run that waits for quota against its account: only the quota, or a refusal just now, keeps it."""
        assert run.quota_wait is not None
        assert job is None, f"{run.run} waits for quota and has {run.job_name}"
        assert (run.state, run.asked_to_end) == (RunState.WAITING, None)
        self.happenings["waits for quota"] += 1
        has_room = len(self.service.live) + self.service.used_by_others < self.service.quota
        refused_ago = self.service.clock() - run.quota_wait.refused_at
        assert not has_room or refused_ago < TRIED_AGAIN_AFTER, f"{run.run} waits for quota, and there is room"

    # How a story goes

    def _let_pass(self, seconds: float) -> None:
        self.service.seconds += seconds

    def _keep_pace(self) -> None:
        """Do what a story does at fixed times. Called within steps that take long."""

    def _invoke(self, function: str, work: Callable[[], object], *, how: Circumstances = QUIET) -> None:
        process = Process(
            function,
            work,
            began=self.service.seconds,
            # The controller collects orphans at the end of a pass.
            timeout=TIMEOUT_SECONDS["controller" if function == _ORPHANS else function],
            skew=float(how.skew),
        )
        self.processes.append(process)
        if how.trouble is not None:
            process.go_on(how.trouble[0])
            process.meet(how.trouble[1])
        process.go_on(how.hold)
        self._settle()

    def _track(self, events: list[dict[str, Any]], *, how: Circumstances = QUIET) -> None:
        records = [{"messageId": f"m{number}", "body": event} for number, event in enumerate(events)]
        self._invoke("controller", functools.partial(self._follow, records), how=how)

    def _follow(self, records: list[dict[str, Any]]) -> None:
        event = {"Records": [{**record, "body": json.dumps(record["body"])} for record in records]}
        batch = controller_event_of(event, now=self.service.clock())
        assert isinstance(batch, EventBatch)
        assert not batch.problems
        for hint in batch.messages:
            try:
                reconcile_hint(hint, deployment=self.controller)
            except _ALLOWED:
                continue  # The queue would bring it again; here it is lost.

    def _pass_over_runs(self) -> object:
        failures: dict[str, str] = {}
        deletion = isolated(failures, "deletion", self.shutdown.pending)
        if deletion is not None:
            failures |= self.shutdown.stop_everything().failures
        # With and without a search of jobs first: how many runs are in flight differs from story to story.
        report = FullPass(self.controller, search_from=2).run()
        if deletion is not None:
            failures |= self.shutdown.answer_if_over(deletion).failures
        report.failures |= failures
        return report

    def _answer(self, document: dict[str, Any]) -> object:
        return launcher_handler.answer_to(document, ActionContext(deployment=self.launcher, request_id="request"))

    def _settle(self) -> None:
        """End who is past their time, judge who is over, forget them."""
        for module in (launcher_handler, controller_handler):
            module.metrics.clear_metrics()
        for process in self.processes:
            if self.service.seconds - process.began >= process.timeout:
                process.die()
        over = [process for process in self.processes if process.ended]
        self.processes = [process for process in self.processes if not process.ended]
        for process in over:
            self.happenings["invocations"] += 1
            self.happenings["troubled or killed"] += process.hit
            if process.error is not None and not isinstance(process.error, _ALLOWED):
                raise process.error
            failures = getattr(process.answer, "failures", None) or {}
            if isinstance(process.answer, OrphanReport):
                self.happenings["passes over orphans"] += 1
                self._judge_report(process.answer)
                failures = process.answer.unreadable | {
                    each.finding.subject: each.problem for each in process.answer.handled if each.problem is not None
                }
            unexpected = [why for why in failures.values() if not why.startswith(_EXPECTED_FAILURES)]
            assert not unexpected, unexpected

    def _held(self, which: int) -> Process:
        return self.processes[which % len(self.processes)]

    def _one_of(self, judge: Callable[[ModelJob], bool], which: int) -> ModelJob:
        fitting = [job for job in self.service.launched if judge(job)]
        return fitting[which % len(fitting)]

    def _can_be_deleted(self, job: ModelJob) -> bool:
        self.service.pools_expire()
        if self._service_job_of(job) is not None or job.pool == "Available":
            return False  # https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_DeleteTrainingJob.html
        attempt = self.record.runs.attempt(job.run, int(job.name.rpartition("-")[2]))
        return not job.live and attempt is not None and attempt.job_id is not None

    def _runs(self) -> list[Run]:
        """Return every run there is, read where no index lags."""
        keys = [partition for partition, sort in self.service.dynamodb.items if sort == "item"]
        return [run for key in keys if (run := self._run(key.removeprefix("run#"))) is not None]

    def _run(self, name: str) -> Run | None:
        """Return a run as it is recorded; one whose item nothing has written since is not read again."""
        item = self.service.dynamodb.items.get((f"run#{name}", "item"))
        read = self._read_runs.get(name)
        if read is None or read[0] is not item:
            read = self._read_runs[name] = (item, self.record.runs.get(name))
        return read[1]

    def _jobs_of(self, run: Run) -> list[ModelJob]:
        """Return the jobs of a run; another client's may be called like it."""
        jobs = (*self.service.jobs.values(), *self.service.deleted)
        return [job for job in jobs if job.run == run.run and job.by_hand == run.adopted]

    @staticmethod
    def _type_of(job: ModelJob) -> str:
        return str(job.answers[-1][1]["ResourceConfig"]["InstanceType"])

    def reported_of_step(self) -> None:
        """Report what happened, after every step."""


_NO_USAGE: Final = JobUsage(
    instance_count=1, billable_seconds=None, training_seconds=None, waited_seconds=0, redone_steps=0, redone_seconds=0,
    restart_overhead_seconds=0,
)  # fmt: skip
_EXPECTED_FAILURES: Final = (
    "AwsBusyError", "RunChangedError", "SweepChangedError", "ClientError", "ReadTimeoutError",
    "ScheduleGroupUnreadableError",
    "notification ", "DeploymentIsBeingDeletedError", "UnreadableRecordError",
)  # fmt: skip


class ModelStacks:
    """CloudFormation, which is deleting the deployment.

    Attributes:
        answered: Whether it was answered that nothing runs any more.
    """

    def __init__(self) -> None:
        self.answered = False

    def is_being_deleted(self, _stack_id: str, /, *, still: bool = False) -> bool:
        return True

    def answer(self, _request: StackRequest, /, *, failed: str | None = None) -> None:
        self.answered = failed is None


def _is_a_record(key: tuple[str, str]) -> bool:
    """Whether an item is read as a record by which a run, a sweep or a pool is followed."""
    partition, sort = key
    followed = sort.partition("#")[0] in ("item", "attempt", "pool", "notification", "trial")
    return followed and partition.partition("#")[0] in ("run", "sweep")


def _may_leave_a_pool(job: ModelJob) -> bool:
    return is_waiting(job) and job.keep_alive > 0


def _can_be_preempted(job: ModelServiceJob) -> bool:
    training = job.training_job
    return not job.terminated and not job.preempting and training is not None and training.status == "InProgress"


def _can_be_taken(job: ModelJob) -> bool:
    return job.on_instances and job.spot and job.status == "InProgress"
