"""The scenario of `spotkeep rehearse-sweep`.

The trials of a sweep lose their capacity, and its controller dies. A random draw chooses the trials and the moments. A
pass of the controller comes every few seconds instead of every five minutes. A sweep that takes days on AWS takes a
minute here.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from botocore.config import Config

from spotkeep_cli.errors import UsageError
from spotkeep_cli.rehearsal.engine import WHOLE_TRAINING, Rehearsal, Scenario
from spotkeep_cli.rehearsal.evidence import RehearsalTimeoutError, RehearsedRunFailedError
from spotkeep_cli.rehearsal.gathering import events_of, process_life
from spotkeep_cli.rehearsal.interruption_points import CAPACITY_RETURNS_AFTER_SECONDS, LOCAL_NOTICE_SECONDS
from spotkeep_cli.rehearsal.report import SweepReport
from spotkeep_cli.rehearsal.sweep_queue import OtherShare, queue_of, settings_of
from spotkeep_cli.rehearsal.sweep_verdict import (
    RehearsedTrial,
    SweepEvidence,
    TrialServiceJob,
    TrialTrainingJob,
    curve_of,
    judge_sweep,
)
from spotkeep_cli.rehearsal.view import Stage
from spotkeep_cli.sweeps.sweep_view import states_in_words
from spotkeep_cli.terminal import NextStep
from spotkeep_fleet.training_spec import SPEC_CHANNEL
from spotkeep_jobs.backends.sagemaker.training_job import RUN_VARIABLE
from spotkeep_jobs.progress.job_events import JobEvent, parse_line
from spotkeep_jobs.record.ids import run_of_trial
from spotkeep_jobs.sweeps.document import Objective, SweepRequest, read_sweep
from spotkeep_local.capacity import CallFaults, CapacityScript, EventFaults, Interruption, belongs_to_run
from spotkeep_local.control import LocalControl
from spotkeep_local.hosts.isolation import Isolation
from spotkeep_local.training.job_host import job_path
from spotkeep_local.training.job_network import HostPlace, JobNetwork

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from spotkeep_jobs.record.sweep import Sweep, Trial

_WITH_FILES: Final = frozenset({"source", SPEC_CHANNEL})
"""The channels of Spotkeep's own that the runner reads."""
_AT_A_TIME: Final = 2


INTERRUPTED_PART: Final = 4
"""One trial of so many loses its capacity."""
LOST_EVENTS: Final = 0.1
"""The part of all events that never arrives."""
_PASS_SECONDS: Final = 6.0
_POLL_SECONDS: Final = 0.3
_CLOCKS_DIFFER: Final = timedelta(seconds=5)
_KILLING_POLL_SECONDS: Final = 0.02
_KILLED_WITHIN_SECONDS: Final = 20.0
_KILLS_AFTER_PART: Final = 0.3
"""The controller dies when this share of the sweep's trials has ended or paused."""
_THROTTLED_OF_BATCH: Final = 0.15
"""The part of all calls of AWS Batch that are refused as one too many."""


def train_alone(
    jobs: Mapping[str, Mapping[str, Any]],
    *,
    s3: S3Client,
    timeout_seconds: float,
    on_trained: Callable[[str], None] = lambda _name: None,
) -> dict[str, Sequence[JobEvent]]:
    """Train each of these and return its logged events.

    Args:
        jobs: The last training job of each trial, as DescribeTrainingJob gives it, by the trial's run.
        s3: A client of the S3 that holds their sources.
        timeout_seconds: The longest training of one, in seconds.
        on_trained: Called with the run of each that is done.

    Raises:
        RehearsalTimeoutError: One took longer.
        RehearsedRunFailedError: One failed.
    """

    def trained(run: str) -> Sequence[JobEvent]:
        with TemporaryDirectory(prefix="spotkeep-alone-") as base:
            events = _trained(run, jobs[run], base=Path(base), s3=s3, timeout_seconds=timeout_seconds)
        on_trained(run)
        return events

    with ThreadPoolExecutor(max_workers=_AT_A_TIME) as pool:
        return dict(zip(jobs, pool.map(trained, jobs), strict=True))


def _trained(
    run: str, job: Mapping[str, Any], *, base: Path, s3: S3Client, timeout_seconds: float
) -> Sequence[JobEvent]:
    """Train it in a process for each host. The first host's log has the events."""
    network = JobNetwork(job["ResourceConfig"]["InstanceCount"], isolation=Isolation.RELOCATED, endpoint_port=0)
    with ThreadPoolExecutor(len(network.places)) as hosts:
        started = [
            hosts.submit(_trained_on, place, run, job, base=base / place.name, s3=s3, timeout_seconds=timeout_seconds)
            for place in network.places
        ]
        logs = [host.result() for host in started]
    return [event for line in logs[0].splitlines() if (event := parse_line(line)) is not None]


def _trained_on(
    place: HostPlace, run: str, job: Mapping[str, Any], *, base: Path, s3: S3Client, timeout_seconds: float
) -> str:
    _lay_out(job, place, base=base, s3=s3)
    algorithm = job["AlgorithmSpecification"]
    # The entry point is the Python of the image, the bundle, and the bundle's own words.
    command = [sys.executable, "-m", "spotkeep", *algorithm["ContainerEntrypoint"][2:]]
    environment = {
        "PATH": job_path(),
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "HOME": str(base),
        "TMPDIR": str(base),
        "SAGEMAKER_BASE_DIR": str(base),
        **dict(place.variables),
        **job.get("Environment", {}),
    }
    try:
        done = subprocess.run(
            command, cwd=base, env=environment, capture_output=True, text=True, check=False, timeout=timeout_seconds
        )
    except subprocess.TimeoutExpired as error:
        raise RehearsalTimeoutError(seconds=timeout_seconds, states={f"{run}, left alone,": "training"}) from error
    if done.returncode != 0:
        reason = base / "output" / "failure"
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        failure = reason.read_text(encoding="utf-8") if reason.exists() else " ".join(last)
        raise RehearsedRunFailedError(run=f"{run}, left alone,", failure=failure)
    return done.stdout


def _lay_out(job: Mapping[str, Any], place: HostPlace, *, base: Path, s3: S3Client) -> None:
    """Write the files that a training job finds on one of its machines."""
    configuration = base / "input" / "config"
    configuration.mkdir(parents=True)
    # On SageMaker copies bring the checkpoints of all hosts together. These are hosts of one disk.
    checkpoints = base.parent / "checkpoints"
    checkpoints.mkdir(exist_ok=True)
    (base / "checkpoints").symlink_to(checkpoints)
    resources = {"current_host": place.name, "hosts": place.names, "network_interface_name": place.interface}
    (configuration / "resourceconfig.json").write_text(json.dumps(resources))
    (configuration / "hyperparameters.json").write_text(json.dumps(job.get("HyperParameters", {})))
    for channel in job.get("InputDataConfig", ()):
        name = channel["ChannelName"]
        if name in _WITH_FILES:
            bucket, _, key = channel["DataSource"]["S3DataSource"]["S3Uri"].removeprefix("s3://").partition("/")
            target = base / "input" / "data" / name / key.rpartition("/")[2]
            target.parent.mkdir(parents=True)
            with target.open("wb") as file:
                shutil.copyfileobj(s3.get_object(Bucket=bucket, Key=key)["Body"], file)


def sweep_scenario(*, seed: int) -> Scenario:
    """Return the scenario in which a sweep's trials lose their capacity at random.

    Args:
        seed: The seed of every random draw.
    """
    return Scenario(
        command="rehearse-sweep",
        introduction=(
            "Rehearsing the sweep of {job_file} on this machine: the real app, no account, nothing billed.\n"
            f"What is taken away is drawn at random: --seed {seed} draws it again.\n"
        ),
        # Its end is to be notified, whatever the file asks for.
        job_fields={**WHOLE_TRAINING, "notify": ["completed", "failed", "stopped"]},
        of_sweep=True,
        suffixes=("",),
        settings=settings_of,
        perform=partial(_perform, seed=seed),
        report_name="sweep-report.json",
        failed_hint="what should happen: spotkeep help sweeps; a script's part: spotkeep help training-scripts",
        next_steps=(NextStep(command="spotkeep launch {job_file}", what="launch it, once the app is deployed"),),
    )


def planned_interruptions(request: SweepRequest, *, seed: int) -> dict[int, Interruption]:
    """Draw the trials that lose their capacity, and the moments. Every other loss comes after a notice.

    Args:
        request: The sweep.
        seed: The seed of every random draw.

    Returns:
        An interruption of the first training job, by the trial's number.
    """
    draw = random.Random(seed)  # noqa: S311 - to be repeated
    # A rung: a number of steps at which trials are compared.
    rungs = () if request.plan is None else request.plan.rungs
    numbers = range(1, request.most_trials + 1)
    chosen = draw.sample(numbers, min(len(numbers), max(2, len(numbers) // INTERRUPTED_PART)))
    return {
        number: Interruption(
            # A trial that pauses ends there: it is interrupted well before.
            at_step=draw.randint(1, max(1, rungs[0] * 2 // 3)) if rungs else None,
            at_fraction=None if rungs else round(draw.uniform(0.1, 0.6), 3),
            notice=bool(position % 2),
            notice_seconds=LOCAL_NOTICE_SECONDS,
            capacity_returns_after_seconds=CAPACITY_RETURNS_AFTER_SECONDS,
        )
        for position, number in enumerate(chosen)
    }


def _perform(rehearsal: Rehearsal, *, seed: int) -> SweepReport:
    control = rehearsal.control
    request, objective = _request(rehearsal)
    planned = planned_interruptions(request, seed=seed)
    events = EventFaults(duplicate=True, shuffle=True, drop=LOST_EVENTS, seed=seed)
    calls = CallFaults(throttled=_THROTTLED_OF_BATCH, service="batch", seed=seed)
    queue = queue_of(rehearsal.deployment.job)
    others = None if queue is None else OtherShare(rehearsal, queue)
    control.call_counts()
    with rehearsal.faults(events=events, calls=calls):
        with rehearsal.view.stage(Stage.LAUNCH) as outcome:
            for number, interruption in planned.items():
                script = CapacityScript(interruptions=(interruption,))
                control.script_capacity(run=run_of_trial(rehearsal.first, number), script=script)
            environment = rehearsal.deployment.job.get("environment")
            changed = {} if queue is None else {"environment": queue.trials_environment(environment)}
            rehearsal.deployment.launch(run=rehearsal.first, **changed)
            outcome.append(f"{rehearsal.first}: {request.most_trials} trials, {request.parallel} at a time")
        with rehearsal.view.stage(Stage.TRAINING) as outcome:
            following = _Following(rehearsal, most_trials=request.most_trials, others=others)
            outcome.append(following.until_ended().state.value.lower())
        others_states = None if others is None else others.states()
        rehearsal.collect_endings(Stage.NOTIFICATIONS)
    # Before what happened is gathered: that takes calls of its own.
    counts = control.call_counts()
    sweep, trials = rehearsal.deployment.table.sweeps.with_trials(rehearsal.first)
    if sweep is None:
        raise KeyError(f"sweep {rehearsal.first} was launched and is not in the run table")
    gathered = _Gathering(rehearsal, metric=objective.metric, sweep=sweep, others=others)
    evidence = SweepEvidence(
        sweep=sweep,
        asked_trials=request.most_trials,
        objective=objective,
        trials=gathered.trials(trials),
        planned_interruptions=planned.keys(),
        other_jobs=gathered.jobs_of_no_trial(trials),
        ended_invocations=following.ended_invocations,
        calls=counts,
        notifications=rehearsal.notifications,
        others=others_states,
    )
    return SweepReport(checks=judge_sweep(evidence), evidence=evidence, seed=seed)


def _request(rehearsal: Rehearsal) -> tuple[SweepRequest, Objective]:
    """Return the request of the job file, which was judged before, and its objective.

    Raises:
        UsageError: It has no objective, and so no curves to compare.
    """
    request, _problems = read_sweep(rehearsal.deployment.job, tpe=True)
    if request is None or request.objective is None:
        raise UsageError(
            "a rehearsal of a sweep compares the curves of its objective, and this one has none",
            hint="name what the script logs: --set 'sweep.objective={metric: loss, goal: minimize}'",
        )
    return request, request.objective


class _Following:
    """Waits for the end of a sweep. Has the controller pass meanwhile, as its schedule does, and die once.

    Args:
        rehearsal: The rehearsal, whose sweep was launched.
        most_trials: Number of its trials.
        others: The other share of its queue. None without a queue.
    """

    def __init__(self, rehearsal: Rehearsal, *, most_trials: int, others: OtherShare | None) -> None:
        self._rehearsal, self._most_trials, self._others = rehearsal, most_trials, others
        self._passes = _Passes(rehearsal)
        self.ended_invocations = 0

    def until_ended(self) -> Sweep:
        """Return the sweep when it has ended.

        Raises:
            RehearsalTimeoutError: It did not end in time.
        """
        rehearsal = self._rehearsal
        deadline = time.monotonic() + rehearsal.timeout_seconds
        while True:
            sweep = rehearsal.deployment.table.sweeps.get(rehearsal.first)
            if sweep is not None:
                self._show(sweep)
                if sweep.state.ended:
                    # The launcher writes the notification of a sweep's end, and a pass of the controller sends it.
                    self._passes.begin()
                    return sweep
                if self._others is not None:
                    self._others.launch_when_lent()
                if not self.ended_invocations and self._has_come_far(sweep):
                    self._kill_the_controller()
            if time.monotonic() > deadline:
                standing = "not recorded" if sweep is None else f"{sweep.state.value}, {states_in_words(sweep.counts)}"
                raise RehearsalTimeoutError(seconds=rehearsal.timeout_seconds, states={rehearsal.first: standing})
            if self._passes.is_due:
                self._passes.begin()
            time.sleep(_POLL_SECONDS)

    def _has_come_far(self, sweep: Sweep) -> bool:
        return sweep.counts.chosen - sweep.counts.running >= _KILLS_AFTER_PART * self._most_trials

    def _kill_the_controller(self) -> None:
        """Kill the next invocation of the controller that is at work.

        An event woke it, or this pass did.
        """
        function = self._rehearsal.deployment.controller_function
        if self._passes.is_over:
            self._passes.begin()
        until = time.monotonic() + _KILLED_WITHIN_SECONDS
        while not self.ended_invocations and time.monotonic() < until:
            self.ended_invocations = LocalControl(self._rehearsal.local).end_invocations(function)
            time.sleep(_KILLING_POLL_SECONDS)
        if self.ended_invocations:
            self._rehearsal.view.note(f"the controller is killed in the middle of {self.ended_invocations} invocations")

    def _show(self, sweep: Sweep) -> None:
        ended = sweep.counts.chosen - sweep.counts.running
        self._rehearsal.view.progress(done=ended, total=self._most_trials, text=states_in_words(sweep.counts))


class _Passes:
    """Wakes the controller as its schedule does, one pass after the other.

    On AWS a pass is over long before the next one is due. On a busy machine it is not, and passes that pile up make the
    machine busier.
    """

    def __init__(self, rehearsal: Rehearsal) -> None:
        self._function = rehearsal.deployment.controller_function
        config = Config(read_timeout=rehearsal.timeout_seconds, retries={"mode": "standard", "total_max_attempts": 1})
        self._lambda = rehearsal.session.client("lambda", config=config)
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._under_way: Future[object] | None = None
        self._next = time.monotonic() + _PASS_SECONDS

    @property
    def is_over(self) -> bool:
        """True if no pass is under way."""
        return self._under_way is None or self._under_way.done()

    @property
    def is_due(self) -> bool:
        """True if it is time for the next pass."""
        return self.is_over and time.monotonic() > self._next

    def begin(self) -> None:
        """Begin a pass, after the one that is under way.

        Raises:
            BotoCoreError, ClientError: The request for the pass failed. A killed pass is no error, because the next one
                does its work.
        """
        if self._under_way is not None:
            self._under_way.result()
        self._next = time.monotonic() + _PASS_SECONDS
        self._under_way = self._thread.submit(self._lambda.invoke, FunctionName=self._function, Payload=b"{}")


class _Gathering:
    """Gathers the outcome of the trials.

    Its sources are the run table, the logs, the local AWS, and a training of each trial alone.
    """

    def __init__(self, rehearsal: Rehearsal, *, metric: str, sweep: Sweep, others: OtherShare | None) -> None:
        self._rehearsal, self._metric = rehearsal, metric
        self._runs = rehearsal.deployment.table.runs
        self._sagemaker = rehearsal.session.client("sagemaker")
        self._jobs = self._jobs_by_run(since=sweep.created_at)
        self._service_jobs = None if others is None else list(others.service_jobs())

    def trials(self, trials: Sequence[Trial]) -> list[RehearsedTrial]:
        """Return the outcome of these, each beside the same trial left alone."""
        jobs = {trial.run: self._jobs.get(trial.run, []) for trial in trials}
        with self._rehearsal.view.stage(Stage.LEFT_ALONE) as outcome:
            trained: list[str] = []

            def show(run: str) -> None:
                trained.append(run)
                self._rehearsal.view.progress(done=len(trained), total=len(jobs), text=run)

            alone = train_alone(
                {run: described[-1] for run, described in jobs.items() if described},
                s3=self._rehearsal.s3,
                timeout_seconds=self._rehearsal.timeout_seconds,
                on_trained=show,
            )
            outcome.append(f"{len(alone)} trials, a process each, to where they ended")
        return [self._rehearsed(trial, jobs[trial.run], alone.get(trial.run, ())) for trial in trials]

    def jobs_of_no_trial(self, trials: Sequence[Trial]) -> list[str]:
        """Return the training jobs of the sweep's name that are no trial's."""
        known = {*self._rehearsal.names, *(trial.run for trial in trials)}
        return [job["TrainingJobName"] for run, jobs in self._jobs.items() if run not in known for job in jobs]

    def _rehearsed(self, trial: Trial, jobs: Sequence[Mapping[str, Any]], alone: Sequence[JobEvent]) -> RehearsedTrial:
        attempts = self._runs.attempts(trial.run)
        events = events_of(attempts, self._rehearsal.logs)
        curve, contradictions = curve_of(events, metric=self._metric)
        return RehearsedTrial(
            trial=trial,
            attempts=tuple(attempt.job_name for attempt in attempts),
            interruptions_in_record=sum(attempt.interruptions for attempt in attempts),
            jobs=tuple(self._job(described, events) for described in jobs),
            service_jobs=self._service_jobs_of(trial),
            curve=curve,
            contradictions=contradictions,
            alone=curve_of(alone, metric=self._metric)[0],
        )

    def _job(self, described: Mapping[str, Any], events: Sequence[JobEvent]) -> TrialTrainingJob:
        name = described["TrainingJobName"]
        lifetimes = self._rehearsal.control.job_facts(name).lifetimes
        return TrialTrainingJob(
            name=name,
            billable_seconds=described["BillableTimeInSeconds"] * described["ResourceConfig"]["InstanceCount"],
            lives=tuple(process_life(life, events) for life in lifetimes),
        )

    def _service_jobs_of(self, trial: Trial) -> tuple[TrialServiceJob, ...] | None:
        if self._service_jobs is None:
            return None
        return tuple(job for job in self._service_jobs if belongs_to_run(job_name=job.name, run=trial.run))

    def _jobs_by_run(self, *, since: datetime) -> dict[str, list[Mapping[str, Any]]]:
        """Return the training jobs of the rehearsal by their runs, oldest first, as DescribeTrainingJob gives them.

        AWS Batch gives those of a queue names of its own, so the run is read from the environment.
        """
        found: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
        pages = self._sagemaker.get_paginator("list_training_jobs").paginate(
            CreationTimeAfter=since - _CLOCKS_DIFFER, SortBy="CreationTime", SortOrder="Ascending"
        )
        for page in pages:
            for job in page["TrainingJobSummaries"]:
                described = self._sagemaker.describe_training_job(TrainingJobName=job["TrainingJobName"])
                run = described.get("Environment", {}).get(RUN_VARIABLE, "")
                if run.startswith(self._rehearsal.first):
                    found[run].append(described)
        return found
