"""The calls of AWS by a sweep of many trials, without a queue and through one, on an account held to AWS's rates.

Time is the account's (`tests.models.simulated_account`). Trainings end on the hour, all at once, which is the hardest
on the rates. No clock of this machine is in any figure but `describe_s`.

Prices are those of November 2026 in us-east-1. Sources: DynamoDB on demand,
https://aws.amazon.com/dynamodb/pricing/on-demand/ and Lambda, https://aws.amazon.com/lambda/pricing/
"""

from __future__ import annotations

import io
import json
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from rich.console import Console

from benchmarks.control.measures import MeasuredPlane, quiet
from controller.full_pass import FullPass
from launcher.actions import ActionContext, advance_sweep
from launcher.payload import SweepAdvance
from spotkeep_cli.sweeps.sweep_view import sweep_page
from spotkeep_jobs.record.states import SweepState, TrialState
from spotkeep_jobs.sweeps.launch import SweepLaunch
from spotkeep_jobs.sweeps.launcher_function import launcher_of
from tests.models.control_plane import TIMEOUT_SECONDS
from tests.models.faults import Process
from tests.models.sagemaker import ModelJob
from tests.models.simulated_account import SimulatedAccount

PASS_EVERY_SECONDS: Final = 300
CAPACITY_AFTER_SECONDS: Final = 120
SHORTEST_TRAINING_SECONDS: Final = 1_800
_HOUR: Final = 3_600
_NAME: Final = "sweep"
_USD_PER_WRITE_UNIT: Final = 0.625e-6
_USD_PER_READ_UNIT: Final = 0.125e-6
_USD_PER_GB_SECOND: Final = 0.0000166667
_USD_PER_INVOCATION: Final = 0.2e-6
_FUNCTION_GB: Final = 0.5
_KEPT_FOR_ONE_RUN_SECONDS: Final = 15
"""As the launcher's handler keeps it."""
_KEPT_FOR_SENDING_SECONDS: Final = 30
"""As the controller's does."""
_EVENTS_A_BATCH: Final = 10
_CONTROLLERS: Final = 2
"""As the trigger of the controller's queue has them (`JobEvents`)."""
_HIDDEN_SECONDS: Final = 720
"""For how long an event stays in the controller's queue before it comes again."""
_LAMBDA_TRIES: Final = 3
_LAMBDA_TRIES_AGAIN_AFTER_SECONDS: Final = 60


@dataclass(frozen=True, kw_only=True)
class SubmissionCase:
    """A way of submitting the trials' jobs to AWS.

    Attributes:
        name: The way in words.
        parallel: Number of trials that the sweep has under way.
        at_a_time: Number of them that train at a time.
        document: The fields of the job document for it.
    """

    name: str
    parallel: int
    at_a_time: int
    document: Mapping[str, Any]


CASES: Final = (
    SubmissionCase(name="without a queue", parallel=50, at_a_time=50, document={}),
    # Twice as many as train, so that the queue always has a next one.
    SubmissionCase(name="through a queue", parallel=100, at_a_time=50, document={"queue": "gpu", "share": "vision"}),
)


def measured(case: SubmissionCase, *, trials: int) -> dict[str, Any]:
    """Run a sweep to its end on the models of AWS, and count.

    Args:
        case: The way of submitting the trials' jobs to AWS.
        trials: Number of trials.

    Returns:
        Figures by name: AWS calls a trial, US dollars of the control plane for 1,000 trials, bytes of the table, the
        time of a pass, the most calls in a second and the throttled ones by operation, and the seconds that `describe`
        takes to read and draw.
    """
    with quiet():
        account = SimulatedAccount()
        plane = MeasuredPlane(account, sleep=account.waits)
        deployment = _Deployment(plane, account, at_a_time=case.at_a_time)
        deployment.launch(
            {
                "name": _NAME,
                "run": _NAME,
                "command": "python train.py",
                "capacity": "on-demand",
                "sweep": {"trials": [{"seed": seed} for seed in range(trials)], "parallel": case.parallel},
                **case.document,
            }
        )
        while not deployment.sweep_is_over:
            account.happens()
            deployment.follows()
        how = {"case": case.name, "trials": trials, "parallel": case.parallel, "at_a_time": case.at_a_time}
        return how | _figures(deployment, trials=trials)


class _Deployment:
    """The surroundings of the functions, such as events and their queue, schedules, capacity and AWS Batch's turns."""

    def __init__(self, plane: MeasuredPlane, account: SimulatedAccount, *, at_a_time: int) -> None:
        self.plane = plane
        self.account = account
        self._at_a_time = at_a_time
        self.passes: list[float] = []
        self.failed: list[str] = []
        """The errors that functions raised."""
        self.sweep_is_over = False
        self._events: deque[dict[str, Any]] = deque()
        self._events_sent = 0
        self._jobs_made = 0
        self._service_jobs = 0
        self._controllers = 0
        account.at(PASS_EVERY_SECONDS, self._pass)

    def launch(self, document: Mapping[str, Any]) -> None:
        """Let a user launch a sweep."""
        launch = SweepLaunch(self.plane.launcher).launch

        def launched() -> None:
            launch(document, default_token=_NAME)
            launcher_of(self.plane.controller).advance(_NAME)

        self._invoke_launcher(launched)

    def follows(self) -> None:
        """Deliver the consequences of the last events."""
        self.account.functions.deliver(self._advance)
        if len(self.account.events) > self._events_sent or len(self.account.batch.jobs) > self._service_jobs:
            self._service_jobs = len(self.account.batch.jobs)
            self._give_turns()
        for request in self.account.requests[self._jobs_made :]:
            job = self.account.jobs[request["TrainingJobName"]]
            self.account.at(self.account.seconds + CAPACITY_AFTER_SECONDS, partial(self._gets_capacity, job))
        self._jobs_made = len(self.account.requests)
        self._events.extend(self.account.events[self._events_sent :])
        self._events_sent = len(self.account.events)
        while self._events and self._controllers < _CONTROLLERS:
            self._reconcile([self._events.popleft() for _ in range(min(_EVENTS_A_BATCH, len(self._events)))])

    # Functions

    def _advance(self, asked: Mapping[str, Any]) -> None:
        lasts_until = self.account.seconds + TIMEOUT_SECONDS["launcher"] - _KEPT_FOR_ONE_RUN_SECONDS
        context = ActionContext(
            deployment=self.plane.launcher,
            request_id="request",
            seconds_left=lambda: lasts_until - self.account.seconds,
            go_on=lambda rest: launcher_of(self.plane.controller).advance(rest.sweep, in_a_row=rest.in_a_row),
        )
        event = SweepAdvance(sweep=asked["sweep"], ended_runs=asked.get("runs"), in_a_row=asked.get("in_a_row", 0))
        self._invoke_launcher(partial(advance_sweep, event, context))

    def _invoke_launcher(self, work: Any, *, tries: int = _LAMBDA_TRIES) -> None:
        def ended(process: Process) -> None:
            if process.error is not None:
                self.failed.append(repr(process.error))
                if tries > 1:
                    again = partial(self._invoke_launcher, work, tries=tries - 1)
                    self.account.at(self.account.seconds + _LAMBDA_TRIES_AGAIN_AFTER_SECONDS, again)
            sweep = self.plane.record.sweeps.get(_NAME)
            self.sweep_is_over = sweep is not None and sweep.state is SweepState.COMPLETED

        self.account.invoke("launcher", work, timeout=TIMEOUT_SECONDS["launcher"], ended=ended)

    def _reconcile(self, events: list[dict[str, Any]]) -> None:
        def ended(process: Process) -> None:
            self._controllers -= 1
            answer = process.answer
            kept = answer["batchItemFailures"] if isinstance(answer, dict) else [{"itemIdentifier": "m0"}]
            if kept:
                self.failed.append(f"{len(kept)} events of {len(events)}")
                again = [events[int(each["itemIdentifier"][1:])] for each in kept]
                self.account.at(self.account.seconds + _HIDDEN_SECONDS, lambda: self._events.extend(again))

        self._controllers += 1
        work = partial(self.plane.events_come, events)
        self.account.invoke("controller", work, timeout=TIMEOUT_SECONDS["controller"], ended=ended)

    def _pass(self) -> None:
        began = self.account.seconds
        ends_at = began + TIMEOUT_SECONDS["controller"] - _KEPT_FOR_SENDING_SECONDS

        def ended(process: Process) -> None:
            self.passes.append(self.account.seconds - began)
            if process.error is not None:
                self.failed.append(repr(process.error))

        self.account.invoke(
            "controller",
            lambda: FullPass(self.plane.controller).run(seconds_left=lambda: ends_at - self.account.seconds),
            timeout=TIMEOUT_SECONDS["controller"],
            ended=ended,
        )
        self.account.at(began + PASS_EVERY_SECONDS, self._pass)

    # Jobs

    def _give_turns(self) -> None:
        batch = self.account.batch
        unfinished = batch.unfinished
        free = self._at_a_time - sum(job.training_job is not None and not job.waits for job in unfinished)
        for job in [job for job in unfinished if job.waits][: max(0, free)]:
            batch.has_its_turn(job)

    def _gets_capacity(self, job: ModelJob) -> None:
        now = self.account.seconds
        self.account.seconds = now - 30  # Which the model then lets pass.
        self.account.gets_capacity(job)
        self.account.batch.catches_up()
        hours = -(-(now + SHORTEST_TRAINING_SECONDS) // _HOUR)
        self.account.at(hours * _HOUR, partial(self._completes, job))

    def _completes(self, job: ModelJob) -> None:
        self.account.seconds -= 1  # Which the model then lets pass.
        self.account.ends(job, "Completed")
        self.account.batch.catches_up()


def _figures(deployment: _Deployment, *, trials: int) -> dict[str, Any]:
    account, plane = deployment.account, deployment.plane
    counts = account.rates.counts()
    invocations = sum(account.invocations.values())
    usd = (
        account.write_units * _USD_PER_WRITE_UNIT
        + account.read_units * _USD_PER_READ_UNIT
        + invocations * _USD_PER_INVOCATION
        + account.function_seconds * _FUNCTION_GB * _USD_PER_GB_SECOND
    )
    recorded = plane.record.sweeps.with_trials(_NAME)[1]
    return {
        "completed": sum(trial.state is TrialState.COMPLETED for trial in recorded),
        "training_jobs": len(account.requests),
        "service_jobs": len(account.batch.jobs),
        "calls_a_trial": round(sum(account.calls.values()) / trials, 1),
        "calls": dict(sorted(account.calls.items())),
        "most_calls_in_a_second": dict(sorted(counts.most_in_a_second.items())),
        "throttled": dict(sorted(counts.throttled.items())),
        "failed_invocations": deployment.failed,
        "invocations_a_trial": round(invocations / trials, 2),
        "function_seconds_a_trial": round(account.function_seconds / trials, 2),
        "usd_a_thousand_trials": round(1_000 * usd / trials, 4),
        "table_bytes_a_trial": round(sum(len(json.dumps(item)) for item in account.dynamodb.items.values()) / trials),
        "passes": len(deployment.passes),
        "longest_pass_s": round(max(deployment.passes, default=0.0), 2),
        "model_hours": round(account.seconds / _HOUR, 2),
        "describe_s": _describe_seconds(plane),
        "trials_recorded": len(recorded),
    }


def _describe_seconds(plane: MeasuredPlane) -> float:
    """Return the seconds of `spotkeep describe` for reading a sweep and drawing its page, without the network."""
    console = Console(file=io.StringIO(), width=110)
    began = time.perf_counter()
    sweep, trials = plane.record.sweeps.with_trials(_NAME)
    if sweep is not None:
        console.print(sweep_page(sweep, trials, now=plane.service.now(), width=110, everything=False))
    return round(time.perf_counter() - began, 3)
