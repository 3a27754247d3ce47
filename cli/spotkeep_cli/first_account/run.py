"""Runs the jobs of the first paid hour through a deployment, and observes them."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spotkeep_cli.aws.calls import translated_aws_errors
from spotkeep_cli.drill.on_aws import Drill, carry_out
from spotkeep_cli.errors import CommandLineError, RunStoppedError
from spotkeep_cli.first_account import probe
from spotkeep_cli.first_account.plan import Pace, PlannedJob, passes_ceiling, priced
from spotkeep_cli.first_account.questions import SeenJob
from spotkeep_cli.first_account.removal import reason_of
from spotkeep_cli.launching.answers import ask_launcher
from spotkeep_cli.launching.job_file import JobDocument
from spotkeep_cli.launching.judgement import judge_by_launcher
from spotkeep_cli.launching.preparation import prepare, send
from spotkeep_jobs.pools.warm_pool import idle_usd
from spotkeep_jobs.record.states import PoolState, RunState

if TYPE_CHECKING:
    from spotkeep_cli.aws.calls import ClientFactory
    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_cli.seams import Invocation
    from spotkeep_jobs.record.record import Run

_DRILL_SECONDS: Final = 900.0


class _StillRunningError(CommandLineError):
    """A job of the hour did not come to a point in time."""


@contextlib.contextmanager
def probe_folder() -> Iterator[Path]:
    """Give a folder with the probe alone, as the source of the jobs."""
    with tempfile.TemporaryDirectory(prefix="spotkeep-first-account-") as folder:
        (Path(folder) / "probe.py").write_bytes(Path(probe.__file__).read_bytes())
        yield Path(folder)


class FirstHour:
    """The first paid hour of one account.

    Args:
        deployment: The deployment that runs the jobs.
        client: Makes clients of boto3 with the rights of who deployed.
        source: The folder with the probe.
        invocation: The command's own words, and its clock.
        pace: The durations.
        ceiling_usd: The highest cost of the hour.
        tell: Prints the progress.
    """

    def __init__(
        self,
        deployment: DeploymentClient,
        *,
        client: ClientFactory,
        source: Path,
        invocation: Invocation,
        pace: Pace,
        ceiling_usd: float,
        tell: Callable[[str], None],
    ) -> None:
        self._deployment, self._client, self._source = deployment, client, source
        self._invocation, self._pace, self._tell = invocation, pace, tell
        self._ceiling_usd = ceiling_usd
        self._jobs: dict[str, PlannedJob] = {}
        self._usd_per_hour: dict[str, float] = {}
        self._noted: dict[str, dict[str, Any]] = {}
        self._service_jobs: dict[str, list[Mapping[str, Any]]] = {}
        self._problems: dict[str, str] = {}

    def priced(self, job: PlannedJob) -> PlannedJob:
        """Return a job with its highest cost. The launcher judges it, and a refused job is left out."""
        if job.left_out:
            return job
        judgement = judge_by_launcher(self._deployment, self._prepared(job), now=self._now())
        if judgement.problems:
            return replace(job, left_out="; ".join(str(each) for each in judgement.problems))
        self._usd_per_hour[job.run] = judgement.usd_per_hour or 0.0
        return priced(job, worst_case_usd=judgement.worst_case_usd, usd_per_hour=judgement.usd_per_hour)

    def perform(self, jobs: Sequence[PlannedJob]) -> RunStoppedError | None:
        """Run the jobs one after the other. The end of a job that fails is noted, and the others go on.

        Return the error where the cost comes to its ceiling, and the jobs that follow are left out.
        """
        try:
            self._perform(jobs)
        except RunStoppedError as error:
            return error
        return None

    def _perform(self, jobs: Sequence[PlannedJob]) -> None:
        steps: Mapping[str, Callable[[PlannedJob], None]] = {
            "pool": self._pool,
            "spot": self._paused,
            "stop": self._stopped,
            "queue": self._queued,
            "fleet": self._fleet,
        }
        for job in jobs:
            if job.left_out:
                self._problems[job.kind] = job.left_out
                continue
            self._tell(f"{job.kind}: {job.shows}")
            self._jobs[job.kind] = job
            try:
                self._launch(job)
                steps.get(job.kind, self._ended)(job)
            except RunStoppedError:
                raise
            except CommandLineError as error:
                self._problems[job.kind] = reason_of(error)
                self._tell(f"{job.kind}: {self._problems[job.kind]}")
        if "pool" in self._jobs:
            with contextlib.suppress(_StillRunningError):
                self._wait(self._jobs["pool"], lambda _run: self._pool_is_over(self._jobs["pool"].run))

    def spent_usd(self) -> float:
        """Return the cost so far, by the records of the runs and their pools."""
        now, total = self._now(), 0.0
        for run in self.launched():
            billed = 0.0 if run.cost is None else run.cost.billed_usd or 0.0
            live = 0.0 if run.instance_time is None else run.instance_time.seconds_until(now) / 3600
            kept = [pool for pool in self._deployment.table.pools.of_run(run.run) if pool.state is PoolState.AVAILABLE]
            idle = sum(idle_usd(pool, now=now) or 0.0 for pool in kept)
            total += billed + live * run.place.instance_count * self._usd_per_hour[run.run] + idle
        return total

    def observed(self) -> dict[str, SeenJob]:
        """Return the observations of all jobs, from the logs and from AWS's descriptions."""
        found = {kind: SeenJob(problem=problem) for kind, problem in self._problems.items()}
        for kind, job in self._jobs.items():
            run = self._deployment.table.runs.get(job.run)
            if run is not None:
                problem = self._problems.get(kind) or run.failure_reason or ""
                found[kind] = self._seen(kind, run, problem=problem)
        return found

    def _seen(self, kind: str, run: Run, *, problem: str) -> SeenJob:
        printed: list[Mapping[str, Any]] = []
        jobs: list[Mapping[str, Any]] = []
        for attempt in self._deployment.table.runs.attempts(run.run):
            log = self._deployment.job_log(*attempt.log_names, backend=run.place.backend)
            with contextlib.suppress(CommandLineError):
                printed += [
                    {**json.loads(line.text.partition(probe.PREFIX)[2]), "attempt": attempt.attempt}
                    for line in log.read()
                    if probe.PREFIX in line.text
                ]
            if run.place.backend == "sagemaker":
                jobs += [job for name in attempt.log_names if (job := self._described(name)) is not None]
        return SeenJob(
            run=run.run,
            state=run.state.value,
            problem=problem,
            printed=tuple(printed),
            jobs=tuple(jobs),
            service_jobs=tuple(self._service_jobs.get(kind, ())),
            noted=self._noted.get(kind, {}),
        )

    def _described(self, name: str) -> dict[str, Any] | None:
        """Return SageMaker's description of a training job with its tags. None for a job that was never created."""
        sagemaker = self._client("sagemaker")
        with (
            contextlib.suppress(CommandLineError),
            translated_aws_errors(f"describing {name}", options=self._invocation.options),
        ):
            job: dict[str, Any] = sagemaker.describe_training_job(TrainingJobName=name)
            return {**job, "Tags": sagemaker.list_tags(ResourceArn=job["TrainingJobArn"])["Tags"]}
        return None

    def _pool(self, job: PlannedJob) -> None:
        """Wait for the end, then extend the warm pool. It expires while the other jobs run."""
        ended = self._ended(job).ended_at or self._now()
        described = self._described(f"{job.run}-1") or {}
        noted = self._noted.setdefault(job.kind, {})
        noted["pool_after_end"] = described.get("WarmPoolStatus")
        self._wait_until(job, ended + timedelta(seconds=self._pace.extend_after_seconds))
        asked = self._pace.extend_seconds
        self._ask("extend-pool", run=job.run, **{"for": f"{asked}s"})
        noted["extended_after_seconds"] = (self._now() - ended).total_seconds()
        noted["extended_to_seconds"] = self._pace.keep_alive_seconds + asked
        resources = (self._described(f"{job.run}-1") or {}).get("ResourceConfig", {})
        noted["period_shown"] = resources.get("KeepAlivePeriodInSeconds")

    def _paused(self, job: PlannedJob) -> None:
        self._ended(job)
        self._ask("resume", run=job.run, changes={"pause_at_step": None})
        self._wait(job, lambda run: run.attempt == 2 and run.state.ended)

    def _stopped(self, job: PlannedJob) -> None:
        self._wait(job, lambda run: run.state.ended or (run.state is RunState.TRAINING and self._has_begun(run)))
        self._ask("stop", run=job.run)
        self._ended(job)
        self._wait(job, lambda run: bool(self._deployment.table.pools.of_run(run.run)) or not run.state.ended)
        self._ask("resume", run=job.run, changes={"keep_alive": None})
        self._wait(job, lambda run: run.attempt == 2 and run.state.ended)

    def _queued(self, job: PlannedJob) -> None:
        def note(run: Run) -> bool:
            if run.job_id is not None and run.job_id.startswith("arn:"):
                with translated_aws_errors("describing the service job", options=self._invocation.options):
                    described = self._client("batch").describe_service_job(jobId=run.job_id)
                seen = self._service_jobs.setdefault(job.kind, [])
                if not seen or seen[-1]["status"] != described["status"]:
                    seen.append(described)
            return run.state.ended

        self._wait(job, note)

    def _fleet(self, job: PlannedJob) -> None:
        if not self._deployment.connection.drill_template_id:
            self._ended(job)
            return
        hands = Drill(self._deployment, run=job.run)
        self._wait(job, lambda run: run.state.ended or (run.state is RunState.TRAINING and self._has_begun(run)))
        recovery = carry_out(
            hands,
            run=job.run,
            target=hands.target(),
            token=self._invocation.seams.new_token(),
            clock=self._now,
            pause=self._guarded_pause,
            within_seconds=_DRILL_SECONDS,
        )
        self._noted.setdefault(job.kind, {})["drill"] = recovery.document()
        self._ended(job)

    def _ended(self, job: PlannedJob) -> Run:
        return self._wait(job, lambda run: run.state.ended)

    def _has_begun(self, run: Run) -> bool:
        """Return True once the probe has printed a step."""
        names = self._deployment.table.runs.attempts(run.run)[-1].log_names
        lines = self._deployment.job_log(*names, backend=run.place.backend).read()
        return any(probe.PREFIX in line.text and '"step"' in line.text for line in lines)

    def _launch(self, job: PlannedJob) -> None:
        send(self._prepared(job), deployment=self._deployment)

    def _prepared(self, job: PlannedJob) -> Any:
        document = JobDocument(path=self._source / "job.yaml", fields=dict(job.document))
        return prepare(document, deployment=self._deployment, new_token=self._invocation.seams.new_token)

    def _ask(self, action: str, *, run: str, **fields: Any) -> None:
        ask_launcher(self._deployment, {"action": action, "run": run, **fields}, what=f"no {action} of {run}")

    def _wait(self, job: PlannedJob, until: Callable[[Run], bool]) -> Run:
        """Wait for a run, and guard the ceiling meanwhile.

        Raises:
            RunStoppedError: The cost comes to its ceiling.
            _StillRunningError: It took too long.
        """
        deadline = self._now() + timedelta(seconds=self._pace.patience_seconds)
        while True:
            run = self._deployment.table.runs.get(job.run)
            if run is not None and until(run):
                return run
            if self._now() > deadline:
                state = "not recorded" if run is None else run.state.value.lower()
                raise _StillRunningError(f"{job.run} is {state} for too long")
            self._guarded_pause()

    def _wait_until(self, job: PlannedJob, moment: datetime) -> None:
        self._wait(job, lambda _run: self._now() >= moment)

    def _guarded_pause(self) -> None:
        """Wait, unless the cost comes to its ceiling."""
        spent = self.spent_usd()
        at_work = [run for run in self.launched() if not run.state.ended]
        hourly = sum(self._usd_per_hour[run.run] * run.place.instance_count for run in at_work)
        if passes_ceiling(spent_usd=spent, usd_per_hour=hourly, ceiling_usd=self._ceiling_usd):
            raise RunStoppedError(
                f"{spent:.2f} USD are spent, and the ceiling is {self._ceiling_usd:.2f} USD",
                hint="everything is removed; a higher --ceiling lets all jobs run",
            )
        self._invocation.pause()

    def _pool_is_over(self, run: str) -> bool:
        return all(pool.state is not PoolState.AVAILABLE for pool in self._deployment.table.pools.of_run(run))

    def launched(self) -> list[Run]:
        """Return the records of its runs."""
        found = (self._deployment.table.runs.get(job.run) for job in self._jobs.values())
        return [run for run in found if run is not None]

    def _now(self) -> datetime:
        return self._invocation.seams.now()
