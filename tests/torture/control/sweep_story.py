"""Stories of sweeps: those of launcher and controller, with sweeps beside the runs.

A trial is a run, so what must hold of runs holds of it (`story`), in a queue as well: in some stories a sweep's trials
are submitted to one. Of a sweep must hold, beside that:

- Nothing is tried twice: no two trials have the same parameters, and a trial has one run.
- Never more trials live, or wait in a queue, than the sweep asks for.
- I6: no trial's job lives or waits when its sweep has ended.
- I4: each part of a sweep is notified at most once.

After a quiet pass the record of each trial is what came of its run, the sweep's counts and bill are the sums, and a
sweep that could go on does: a trial lives, or it has ended. Of one that was resumed no trial that failed before is left
untried, and what trains since then has what the resume changed.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection
from datetime import timedelta
from typing import Any, ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from spotkeep_fleet.training_spec import TrainingSpec
from spotkeep_jobs.backends.sagemaker.training_job import RUN_VARIABLE
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.states import EndReason, RunState, SweepState, TrialState
from spotkeep_jobs.record.sweep import Sweep, Trial
from spotkeep_jobs.runs.rules import LAUNCH_SETTLES
from spotkeep_jobs.sweeps.advance import Sweeps
from spotkeep_jobs.sweeps.document import SweepRequest
from spotkeep_jobs.sweeps.resumed_trials import waits_to_go_on
from tests.models.batch import ModelServiceJob
from tests.models.clock import NOON
from tests.models.deployment import spec_in
from tests.models.s3 import BUCKET
from tests.models.sagemaker import ModelJob, is_waiting
from tests.torture.control.story import QUIET, Circumstances, ControlPlaneStory, circumstances

_OBJECTIVE: Final = {"metric": "loss", "goal": "minimize"}
SWEEPS: Final[dict[str, dict[str, Any]]] = {
    "listed": {"trials": [{"lr": value} for value in (1, 2, 3, 4)], "parallel": 2, "notify_trials": True},
    "halving": {
        "parameters": {"lr": {"uniform": [0.1, 1.0]}},
        "search": "asha",
        "trials": 5,
        "parallel": 3,
        "asha": {"min_steps": 3, "max_steps": 27},
        "objective": _OBJECTIVE,
        "notify_trials": True,
    },
}
_IN_A_QUEUE: Final[dict[str, Any]] = {"capacity": "on-demand", "queue": "gpu", "share": "vision"}
_UPLOADED_BEFORE: Final = timedelta(days=3)
"""No grace keeps the source of a sweep from being found: its record does."""
_ROUNDS_UNTIL_QUIET: Final = 20
_ROUNDS_OF_ENDS: Final = 4
names = st.sampled_from(sorted(SWEEPS))


class SweepStory(ControlPlaneStory):
    """One story, with sweeps in it.

    Attributes:
        searches: The sweeps that there may be, by their ids.
        in_a_queue: The sweeps whose trials are submitted to a queue.
    """

    searches: ClassVar[dict[str, dict[str, Any]]] = SWEEPS
    in_a_queue: frozenset[str] = frozenset()

    @initialize(
        in_a_queue=st.frozensets(names),
        then=st.sampled_from(["train", "fail and are tried again", "are asked to pause"]),
        name=names,
        command=st.sampled_from(["x", "y"]),
    )
    def a_user_has_launched_sweeps(self, in_a_queue: frozenset[str], then: str, name: str, command: str) -> None:
        """Launch the sweeps; the trials of one may have failed since, or it is asked to pause."""
        self.in_a_queue = in_a_queue
        for each in SWEEPS:
            self.a_user_launches_a_sweep(name=each)
        self._deliver()
        if then == "fail and are tried again":
            self._trials_end(name, steps=0, has_bug=True)
            self.a_user_has_what_failed_tried_again(command=command)
        elif then == "are asked to pause":
            self.a_user_asks_of_a_sweep(name=name, action="pause", command=None)

    @rule(name=names, how=circumstances)
    def a_user_launches_a_sweep(self, name: str, how: Circumstances = QUIET) -> None:
        source = f"sources/{name}/{'0' * 64}.tar.gz"
        self.service.objects.written[source] = NOON - _UPLOADED_BEFORE
        document = {"name": name, "run": name, "token": name, "command": "x", "sweep": self.searches[name]}
        document["source"] = f"s3://{BUCKET}/{source}"
        document |= self._asks_besides(name) | (_IN_A_QUEUE if name in self.in_a_queue else {})
        self._invoke("launcher", functools.partial(self._answer, document), how=how)

    @rule(
        name=names,
        how=circumstances,
        action=st.sampled_from(["stop", "pause", "resume", "resume"]),
        command=st.none() | st.sampled_from(["x", "y"]),
    )
    def a_user_asks_of_a_sweep(self, name: str, action: str, command: str | None, how: Circumstances = QUIET) -> None:
        document: dict[str, Any] = {"action": action, "sweep": name}
        if action == "resume" and command is not None:
            document["changes"] = {"command": command}
        self._invoke("launcher", functools.partial(self._answer, document), how=how)

    @precondition(lambda self: self.service.functions.waiting)
    @rule(which=st.integers(0, 20), twice=st.booleans(), how=circumstances)
    def the_launcher_is_invoked(self, which: int, twice: bool, how: Circumstances) -> None:
        """Deliver one of the invocations that wait, in any order; Lambda may do so twice."""
        waiting = self.service.functions.waiting
        at = which % len(waiting)
        asked = waiting[at] if twice else waiting.pop(at)
        self._invoke("launcher", functools.partial(self._advance, asked), how=how)

    @precondition(lambda self: self.service.functions.waiting)
    @rule(which=st.integers(0, 20))
    def an_invocation_is_lost(self, which: int) -> None:
        waiting = self.service.functions.waiting
        del waiting[which % len(waiting)]

    @precondition(lambda self: any(self._pauses(job) for job in self.service.launched))
    @rule(which=st.integers(0, 20), loss=st.floats(0.0, 1.0))
    def a_trial_pauses(self, which: int, loss: float) -> None:
        """Let a trial train to the step where it pauses, and leave."""
        self._pause(self._one_of(self._pauses, which), loss=loss)

    def _pauses(self, job: ModelJob) -> bool:
        """Whether a job is at work, or may get capacity, that will pause."""
        return _is_at_work(job) and self._spec_of(job).pause_at_step is not None

    def _spec_of(self, job: ModelJob) -> TrainingSpec:
        return spec_in(job.request, objects=self.service.objects)

    def _pause(self, job: ModelJob, *, loss: float) -> None:
        if not job.on_instances:
            self.service.gets_capacity(job)
        step = self._spec_of(job).pause_at_step or 0
        self.service.trains(job, max(0, step - job.position))
        self.service.durable[job.checkpoint_uri] = job.position
        self.service.says(job, "metrics", step=job.position, metrics={"loss": loss})
        self.service.says(job, "paused", step=job.position)
        self.service.ends(job, "Completed")
        self.happenings["pauses"] += 1

    @precondition(lambda self: any(self._is_a_trial_at_work(job) for job in self.service.launched))
    @rule(which=st.integers(0, 20), steps=st.integers(0, 12))
    def a_trial_fails(self, which: int, steps: int) -> None:
        """Let the script of a trial fail, before any step or after some of which it reports a loss."""
        self._fail(self._one_of(self._is_a_trial_at_work, which), steps=steps)

    def _fail(self, job: ModelJob, *, steps: int) -> None:
        self._train(job, steps=steps)
        self.service.ends(job, "Failed", failure="AlgorithmError: words")
        self.happenings["trials failed"] += 1

    def _complete(self, job: ModelJob, *, steps: int) -> None:
        self._train(job, steps=steps)
        self.service.ends(job, "Completed")
        self.happenings["trials completed"] += 1

    def _train(self, job: ModelJob, *, steps: int) -> None:
        if not job.on_instances:
            self.service.gets_capacity(job)
        if steps:
            self.service.trains(job, steps)
            self.service.says(job, "metrics", step=job.position, metrics={"loss": 0.5})

    @precondition(lambda self: any(not sweep.state.ended for sweep, _ in self._sweeps()))
    @rule(which=st.integers(0, 20), steps=st.integers(0, 2), has_bug=st.booleans())
    def the_trials_of_a_sweep_end(
        self,
        which: int,
        steps: int,
        has_bug: bool,
    ) -> None:
        """Let the trials of a sweep fail, or reach their ends or their pauses; a pass of the controller sees it."""
        under_way = [sweep.sweep for sweep, _ in self._sweeps() if not sweep.state.ended]
        self._trials_end(under_way[which % len(under_way)], steps=steps, has_bug=has_bug, loss=0.1 * (which + steps))

    def _trials_end(self, sweep: str, *, steps: int, has_bug: bool, loss: float = 0.5) -> None:
        for _ in range(_ROUNDS_OF_ENDS):
            for service_job in self._submitted(sweep):
                if service_job.waits:
                    self.service.batch.has_its_turn(service_job)
            for job in [job for job in self.service.launched if self._is_of(job.run, sweep)]:
                if _is_at_work(job) and has_bug:
                    self._fail(job, steps=steps)
                elif self._pauses(job):
                    self._pause(job, loss=loss)
                elif _is_at_work(job):
                    self._complete(job, steps=steps)
                elif job.status == "Stopping":
                    self.service.ends(job, "Stopped")
            self.service.seconds += 1
            self._invoke("controller", self._pass_over_runs)
            self._note_unfinished_readings()
            self._deliver()

    @precondition(lambda self: any(_can_try_again(sweep) for sweep, _ in self._sweeps()))
    @rule(command=st.sampled_from(["x", "y"]))
    def a_user_has_what_failed_tried_again(self, command: str | None) -> None:
        for sweep, _ in self._sweeps():
            if _can_try_again(sweep):
                self.a_user_asks_of_a_sweep(name=sweep.sweep, action="resume", command=command)

    @invariant()
    def what_must_hold_of_sweeps(self) -> None:
        for sweep, trials in self._sweeps():
            request = SweepRequest.model_validate(sweep.document["sweep"])
            parameters = [json.dumps(trial.parameters, sort_keys=True) for trial in trials]
            assert len(set(parameters)) == len(parameters), f"{sweep.sweep} tries the same twice: {parameters}"
            assert [trial.number for trial in trials] == list(range(1, len(trials) + 1))
            live = [job.name for job in self.service.launched if job.live and self._is_of(job.run, sweep.sweep)]
            assert len(live) <= request.parallel, f"{len(live)} trials of {sweep.sweep} live"
            submitted = [job.name for job in self._submitted(sweep.sweep)]
            assert len(submitted) <= request.parallel, f"{len(submitted)} trials of {sweep.sweep} are in a queue"
            if sweep.state.ended:
                assert not live, f"{sweep.sweep} is {sweep.state}, and {live} live"
                assert not submitted, f"{sweep.sweep} is {sweep.state}, and {submitted} are in a queue"

    def _record_equals_what_happened(self, *, but_for: Collection[str] = ()) -> None:
        if but_for:
            super()._record_equals_what_happened(but_for=but_for)
            return
        self._advance_until_quiet()
        if any(self._may_still_begin(trial, sweep) for sweep, trials in self._sweeps() for trial in trials):
            self._let_pass(LAUNCH_SETTLES.total_seconds())
            self._advance_until_quiet()
        super()._record_equals_what_happened()
        for sweep, trials in self._sweeps():
            runs = {trial.number: self.record.runs.trial_run(trial.sweep, trial.number) for trial in trials}
            for trial in trials:
                self._trial_is_true(trial, runs[trial.number])
                self._trial_has_what_changed(trial, runs[trial.number], sweep)
            states = [trial.state.value.lower() for trial in trials]
            assert sweep.counts.model_dump() == {name: states.count(name) for name in sweep.counts.model_dump()}
            costs = [run.cost for run in runs.values() if run is not None and run.cost is not None]
            billed = sum(cost.billed_seconds for cost in costs)
            in_record = billed if sweep.cost is None or not sweep.state.ended else sweep.cost.billed_seconds
            assert abs(in_record - billed) < 1e-3, (
                f"{sweep.sweep} was billed {in_record:g} s by its record, and {billed:g} s by those of its trials"
            )
            if sweep.state is SweepState.STOPPING:
                unasked = [run.run for run in runs.values() if run is not None and _goes_on(run)]
                assert not unasked, f"{sweep.sweep} stops, and these were not asked to: {unasked}"
                waiting = [job.name for job in self._submitted(sweep.sweep) if job.waits]
                assert not waiting, f"{sweep.sweep} stops, and these wait in a queue: {waiting}"
            if sweep.state is SweepState.RUNNING:
                assert sweep.counts.running, f"{sweep.sweep} runs, and no trial of it does"
            if sweep.state is SweepState.COMPLETED:
                untried = [trial.run for trial in trials if waits_to_go_on(trial, sweep=sweep)]
                assert not untried, f"{sweep.sweep} is over, and these were not tried again: {untried}"
            self.happenings["sweeps in a queue"] += sweep.sweep in self.in_a_queue
            self.happenings["trials tried again"] += sum(trial.part > 1 and trial.attempt > 1 for trial in trials)
            self.happenings[f"sweeps {sweep.state.value.lower()}"] += 1

    def _advance_until_quiet(self) -> None:
        for _ in range(_ROUNDS_UNTIL_QUIET):
            self._invoke("controller", self._pass_over_runs)
            if not self._deliver():
                break

    def _deliver(self) -> bool:
        """Deliver what waits; return whether there was something that changed a sweep."""
        before = [sweep.version for sweep, _ in self._sweeps()]
        while waiting := self.service.functions.waiting:
            self._invoke("launcher", functools.partial(self._advance, waiting.pop(0)))
        return before != [sweep.version for sweep, _ in self._sweeps()]

    def _may_still_begin(self, trial: Trial, sweep: Sweep) -> bool:
        """Whether a launcher that began before its sweep was asked to stop may be about to open or resume its run."""
        run = self.record.runs.trial_run(trial.sweep, trial.number)
        begins = trial.state is TrialState.RUNNING and (run is None or run.attempt < trial.attempt)
        return begins and sweep.stop_requested_at is not None

    def _trial_is_true(self, trial: Trial, run: Run | None) -> None:
        if run is None:
            assert trial.state in {TrialState.FAILED, TrialState.STOPPED}, (
                f"{trial.run} is {trial.state}, without a run"
            )
            return
        if trial.state is TrialState.RUNNING:
            assert not run.state.ended, f"trial {trial.run} runs, its run is {run.state}"
            return
        truth = {
            TrialState.COMPLETED: (RunState.COMPLETED,),
            TrialState.FAILED: (RunState.FAILED,),
            TrialState.PAUSED: (RunState.STOPPED,),
            TrialState.STOPPED: (RunState.STOPPED,),
        }[trial.state]
        assert run.state in truth, f"trial {trial.run} is {trial.state}, its run is {run.state}"
        assert (trial.state is TrialState.PAUSED) == (run.end_reason is EndReason.PAUSED)

    def _trial_has_what_changed(self, trial: Trial, run: Run | None, sweep: Sweep) -> None:
        """Hold the request of a run that its sweep let train against the sweep's document."""
        trains = trial.state is TrialState.RUNNING and run is not None and run.attempt >= trial.attempt
        if run is not None and trial.part == sweep.part and (trains or trial.state is TrialState.COMPLETED):
            command, runs = sweep.document["command"], run.request.get("command")
            assert runs == [command], f"{run.run} runs {runs}, not {command}"

    def _queued_is_true(self, run: Run) -> None:
        if run.end_reason is EndReason.PAUSED:
            [service_job] = [job for job in self.service.batch.jobs.values() if job.name == run.job_name]
            assert service_job.status == "SUCCEEDED", f"{run.run} has paused, its service job is {service_job.status}"
            return
        super()._queued_is_true(run)

    def _ending_is_true(self, run: Run, job: ModelJob | None) -> None:
        if job is not None and run.end_reason is EndReason.PAUSED:
            assert job.status == "Completed", f"{run.run} has paused, its job is {job.status}"
            return
        super()._ending_is_true(run, job)

    def _asks_besides(self, name: str) -> dict[str, Any]:
        """Return what else the document of a sweep says."""
        return {}

    def _advance(self, asked: dict[str, Any]) -> object:
        return Sweeps(self.launcher).advance(asked["sweep"], ended_runs=asked.get("runs"))

    def _sweeps(self) -> list[tuple[Sweep, list[Trial]]]:
        found = [self.record.sweeps.with_trials(name) for name in self.searches]
        return [(sweep, trials) for sweep, trials in found if sweep is not None]

    def _submitted(self, sweep: str) -> list[ModelServiceJob]:
        """Return the service jobs of a sweep's trials that are not over."""
        unfinished = self.service.batch.unfinished
        return [job for job in unfinished if self._is_of(job.request["Environment"][RUN_VARIABLE], sweep)]

    def _is_of(self, run_id: str, sweep: str) -> bool:
        run = self._run(run_id)
        return run is not None and run.trial is not None and run.trial.sweep == sweep

    def _is_a_trial_at_work(self, job: ModelJob) -> bool:
        run = self._run(job.run)
        return run is not None and run.trial is not None and _is_at_work(job)


def _goes_on(run: Run) -> bool:
    """Whether a run is at work, and is not asked to stop."""
    return not run.state.ended and run.asked_to_end is None


def _can_try_again(sweep: Sweep) -> bool:
    return sweep.can_go_on and sweep.counts.failed > 0


def _is_at_work(job: ModelJob) -> bool:
    """Whether a job is at work, or may get capacity."""
    return job.status == "InProgress" and (job.on_instances or is_waiting(job))
