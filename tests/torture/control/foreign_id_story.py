"""Stories of foreign ids: those of sweeps, with others who call theirs like what a sweep or a schedule launches.

Others launch runs that are called like trials, before and after the sweep is launched and at the same moment; they use
the tokens of trials and firings, which follow from what every user reads; another client creates tagged jobs that are
called like trials. A schedule fires, and others were there before it. What must hold, beside what holds of sweeps:

- What is not a trial by its record is never stopped, resumed or changed by a sweep, and none of it is counted: not
  its cost, not its values, not its end.
- A sweep and a run that was launched under one of its ids are never both there.
- No trial and no firing is refused because another has used its token, and no firing because another has its id.
"""

from __future__ import annotations

import functools
import hashlib
from datetime import timedelta
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from launcher import actions
from launcher.actions import ActionContext
from launcher.payload import ScheduleFiring
from spotkeep_jobs.backends.sagemaker.training_job import DEPLOYMENT_TAG
from spotkeep_jobs.errors import RequestRefusedError
from spotkeep_jobs.record.ids import id_of_firing, run_of_trial, sweep_around
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.states import TrialState
from spotkeep_jobs.record.sweep import Trial
from tests.torture.control.story import EVERYTHING, QUIET, Circumstances, circumstances
from tests.torture.control.sweep_story import SWEEPS, SweepStory, names

_THEIRS: Final = "others"
"""The command of what others launch, and the name that their own ids begin with."""
_LATE: Final = "late"
"""A sweep that is launched in the middle of a story, or never."""
_NIGHTLY: Final = "nightly"
numbers = st.integers(1, 5)
trials = st.tuples(st.one_of(names, st.just(_LATE)), numbers)
minutes = st.integers(-1, 3)


class ForeignIdStory(SweepStory):
    """One story.

    Attributes:
        over: The last attempts of others' runs that have ended.
        deleted: Others' runs that were there while the deployment was being deleted, which stops every run.
    """

    searches = SWEEPS | {_LATE: SWEEPS["listed"]}

    def __init__(self) -> None:
        super().__init__()
        self.over: dict[str, int] = {}
        self.deleted: set[str] = set()

    @initialize(
        taken=st.lists(trials, max_size=2, unique=True),
        by_client=st.lists(trials, max_size=1),
        at_firings=st.lists(minutes, max_size=1),
        is_scheduled=st.booleans(),
    )
    def others_were_there(
        self,
        taken: list[tuple[str, int]],
        by_client: list[tuple[str, int]],
        at_firings: list[int],
        is_scheduled: bool,
    ) -> None:
        """Let others have some of the ids, before the sweeps are launched or after that; there may be a schedule."""
        for trial in taken:
            self.others_launch_a_run_that_is_called_like_a_trial(trial=trial)
        for trial in by_client:
            self.another_client_creates_a_job_that_is_called_like_a_trial(trial=trial)
        for minute in at_firings:
            self.others_launch_what_a_schedule_would_launch(minute=minute, uses_token=False)
        if is_scheduled:
            self.a_user_makes_a_schedule()

    @rule(trial=trials, how=circumstances)
    def others_launch_a_run_that_is_called_like_a_trial(
        self, trial: tuple[str, int], how: Circumstances = QUIET
    ) -> None:
        run = run_of_trial(*trial)
        self._others_launch(run, token=f"{_THEIRS}/{run}", how=how)

    @rule(trial=trials, how=circumstances)
    def others_launch_with_the_token_of_a_trial(self, trial: tuple[str, int], how: Circumstances = QUIET) -> None:
        sweep, number = trial
        token = hashlib.sha256(f"{sweep}\n{number}".encode()).hexdigest()
        self._others_launch(f"{_THEIRS}-{sweep}-x{number}", token=token, how=how)

    @precondition(lambda self: not self.processes)
    @rule(trial=trials)
    def another_client_creates_a_job_that_is_called_like_a_trial(self, trial: tuple[str, int]) -> None:
        """Let SageMaker have a tagged job whose name is free, and the controller hear of it in its next pass."""
        name = run_of_trial(*trial)
        if name not in self.service.jobs and self.record.runs.get(name) is None:
            self.service.is_made_by_hand(name, tags={DEPLOYMENT_TAG: "spotkeep"})

    @rule(how=circumstances)
    def a_user_launches_a_late_sweep(self, how: Circumstances = QUIET) -> None:
        self.a_user_launches_a_sweep(name=_LATE, how=how)

    @precondition(lambda self: self.record.sweeps.get(_LATE) is not None)
    @rule(action=st.sampled_from(["stop", "pause", "resume"]), how=circumstances)
    def a_user_asks_of_the_late_sweep(self, action: str, how: Circumstances = QUIET) -> None:
        self.a_user_asks_of_a_sweep(name=_LATE, action=action, command=None, how=how)

    @rule(how=circumstances)
    def a_user_makes_a_schedule(self, how: Circumstances = QUIET) -> None:
        document = {
            "name": _NIGHTLY,
            "run": _NIGHTLY,
            "token": _NIGHTLY,
            "command": "x",
            "schedule": "cron(* * * * ? *)",
        }
        self._invoke("launcher", functools.partial(self._answer, document), how=how)

    @rule(minute=minutes, uses_token=st.booleans(), how=circumstances)
    def others_launch_what_a_schedule_would_launch(
        self,
        minute: int,
        uses_token: bool,
        how: Circumstances = QUIET,
    ) -> None:
        """Launch a run under the id, or with the token, of a firing around now."""
        run = self._id_of_firing(minute)
        if uses_token:
            token = hashlib.sha256(f"{_NIGHTLY}\n{run}".encode()).hexdigest()
            self._others_launch(f"{_THEIRS}-{run}", token=token, how=how)
        else:
            self._others_launch(run, token=f"{_THEIRS}/{run}", how=how)

    @precondition(lambda self: self.record.schedules.get(_NIGHTLY) is not None)
    @rule(minute=st.integers(1, 4), others_try=st.sampled_from([None, "its id", "its token"]), how=circumstances)
    def the_schedule_fires(self, minute: int, others_try: str | None, how: Circumstances = QUIET) -> None:
        """Let it fire. What it launches is refused neither for its id nor for its token; others may have tried both."""
        if others_try is not None:
            self.others_launch_what_a_schedule_would_launch(minute=minute, uses_token=others_try == "its token")
        schedule = self.record.schedules.get(_NIGHTLY)
        at = self.service.now().replace(second=0, microsecond=0) + timedelta(minutes=minute)
        if schedule is None or _NIGHTLY not in self.service.schedules.recurring or at <= schedule.created_at:
            return
        self._invoke("launcher", functools.partial(self._fire, f"{at:%Y-%m-%dT%H:%M:%SZ}"), how=how)

    def _fire(self, at: str) -> object:
        try:
            context = ActionContext(deployment=self.launcher, request_id="request")
            answer = actions.launch_scheduled(ScheduleFiring(schedule=_NIGHTLY, firing=at), context)
        except RequestRefusedError as error:
            if {problem.field for problem in error.problems} & {"run", "token"}:
                raise AssertionError(f"the firing at {at} is refused: {error}") from error
            raise
        self.happenings["firings"] += "run" in answer
        return answer

    @invariant()
    def what_is_foreign_is_left_alone(self) -> None:
        runs = {run.run: run for run in self._runs()}
        others = {name: run for name, run in runs.items() if run.trial is None}
        self._note_what_is_deleted()
        for run in others.values():
            if run.adopted or run.request["command"] == [_THEIRS]:
                self._was_left_alone(run)
        for sweep, its_trials in self._sweeps():
            met = [run.run for run in others.values() if sweep_around(run.run) == sweep.sweep and not run.adopted]
            assert not met, f"sweep {sweep.sweep} is there, and so are {met}"
            assert sweep.best is None or sweep.best.run not in others, f"{sweep.best.run} is foreign, and the best"
            for trial in its_trials:
                if trial.run in others:
                    self._counts_for_nothing(trial)
                assert "was used before" not in (trial.failure_reason or ""), f"{trial.run}: {trial.failure_reason}"

    def _deletion_comes_to_its_end(self) -> None:
        self._note_what_is_deleted()  # It may begin and end within one step.
        super()._deletion_comes_to_its_end()

    def _note_what_is_deleted(self) -> None:
        if self.record.deployment.deletion() is not None:
            self.deleted |= {run.run for run in self._runs()}

    def _was_left_alone(self, run: Run) -> None:
        stopped = run.asked_to_end is not None and run.run not in self.deleted
        assert not stopped, f"{run.run} was asked to stop, and is another's"
        if run.state.ended:
            self.over.setdefault(run.run, run.attempt)
        over = self.over.get(run.run, run.attempt)
        assert over == run.attempt, f"{run.run} was over, and was resumed as attempt {run.attempt}"
        assert run.adopted or run.request["command"] == [_THEIRS], f"{run.run} runs {run.request['command']}"
        self.happenings["foreign runs seen"] += 1

    def _counts_for_nothing(self, trial: Trial) -> None:
        took = (trial.cost, trial.best, trial.step, trial.values, trial.end_reason)
        assert took == (None, None, None, {}, None), f"{trial.run} is another's, and its trial has {took}"
        assert trial.state in {TrialState.RUNNING, TrialState.FAILED, TrialState.STOPPED}, f"{trial.run}: {trial.state}"
        self.happenings["trials whose id another has"] += 1

    def _others_launch(self, run: str, *, token: str, how: Circumstances) -> None:
        document = {"name": _THEIRS, "run": run, "token": token, "command": _THEIRS, "notify": EVERYTHING}
        self._invoke("launcher", functools.partial(self._answer, document), how=how)

    def _id_of_firing(self, minute: int) -> str:
        return id_of_firing(_NIGHTLY, self.service.now() + timedelta(minutes=minute))
