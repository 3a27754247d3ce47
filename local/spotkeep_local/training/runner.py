"""One job's life in one thread, from waiting for capacity over data and processes to the handling of its end.

Each host of the job has a process. One host that fails, or that is taken, ends the others as well.

Everything that may end them comes together in `_cause`. The causes are their own exits, a user's stop, the two time
limits, a scripted loss of capacity, and the server's shutdown. Other threads only record and wake. The exception is a
loss of capacity at a step. The output's reader delivers that itself, before the job gets a step further.
"""

from __future__ import annotations

import functools
import logging
import math
import shutil
import threading
import time
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep_local.capacity import COPIES_SECONDS
from spotkeep_local.service_base.clients import FROM_INSIDE, LocalSession
from spotkeep_local.training.checkpoint_sync import CheckpointSync
from spotkeep_local.training.errors import JobFailedError
from spotkeep_local.training.job import (
    CAPACITY_ERROR,
    FAILURE_REASON_CHARACTERS,
    INTERNAL_SERVER_ERROR,
    NO_CAPACITY_MESSAGE,
    Ending,
    PoolStatus,
    ProcessLifetime,
    SecondaryStatus,
    TrainingJob,
    advance,
    exit_ending,
)
from spotkeep_local.training.job_host import SESSION_NAME, job_environment, resolve_isolation, start_host
from spotkeep_local.training.job_network import JobNetwork, host_name
from spotkeep_local.training.job_output import JobLogWriter, observe, upload_model, upload_output_data
from spotkeep_local.training.object_store import ObjectStore, S3Location
from spotkeep_local.training.opt_ml import MOST_UNSAVED_FILES, OptMl, download_channels
from spotkeep_local.training.request_rules import (
    DEFAULT_CHECKPOINT_PATH,
    instance_count,
    keep_alive_seconds,
    max_pending_seconds,
    max_runtime_seconds,
    most_restarts,
)
from spotkeep_local.training.warm_pools import pool_after
from spotkeep_local.training.working_host import WorkingHost, host_directories, host_folder, strip_hosts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from spotkeep_local.capacity import CapacityScript, Interruption
    from spotkeep_local.hosts.host import Host
    from spotkeep_local.hosts.isolation import Isolation
    from spotkeep_local.options import ServerOptions
    from spotkeep_local.principals import AccessKey, CredentialRegistry
    from spotkeep_local.training.file_systems import FileSystems

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class JobContext:
    """The surroundings that all jobs share.

    SageMaker reads channels, writes checkpoints, models and logs as the job's role, and so does this.

    Attributes:
        hosts_folder: Holds a folder for each job, and in it one for each host. Each is gone once its host is.
        file_systems: The file systems of the account.
    """

    endpoint_url: str
    credentials: CredentialRegistry
    hosts_folder: Path
    options: ServerOptions
    file_systems: FileSystems

    def key_of(self, job_arn: str, role_arn: str) -> AccessKey:
        """Return the credentials of a job, in its role."""
        return self.credentials.of_role(role_arn, session=SESSION_NAME, holder=job_arn)

    def session_of(self, job_arn: str, role_arn: str) -> LocalSession:
        """Return clients that call as a job does, in its role."""
        return LocalSession(
            endpoint_url=self.endpoint_url, region=self.options.region, access_key=self.key_of(job_arn, role_arn)
        )

    def store_of(self, job_arn: str, role_arn: str) -> ObjectStore:
        """Return S3 as a job's role sees it."""
        return ObjectStore(self.session_of(job_arn, role_arn).client("s3", config=FROM_INSIDE))


class _Cause(Enum):
    EXIT = auto()
    INTERRUPTION = auto()
    STOP = auto()
    MAX_RUNTIME = auto()
    MAX_WAIT = auto()
    SHUTDOWN = auto()


_ENDING_OF = {
    _Cause.STOP: SecondaryStatus.STOPPED,
    _Cause.MAX_RUNTIME: SecondaryStatus.MAX_RUNTIME_EXCEEDED,
    _Cause.MAX_WAIT: SecondaryStatus.MAX_WAIT_EXCEEDED,
}


class _ShutdownError(Exception):
    """The server shuts down. The job stays as it is, and the next server takes it up again."""


class JobRunner:
    """Takes one job from its present state to its end.

    Args:
        job: A new job, or one that was saved.
        taken_up: True for a saved job, which another server ran before that server was stopped.
        context: The surroundings that all jobs share.
        on_status: Called with the job after each change of its secondary status, in order.
    """

    def __init__(
        self, *, job: TrainingJob, taken_up: bool, context: JobContext, on_status: Callable[[TrainingJob], None]
    ) -> None:
        self._taken_up = taken_up
        self._context = context
        self._on_status = on_status
        self._changed = threading.Condition()
        self._turn = threading.Lock()
        self._job = job
        self._shutdown = False
        self._hosts: list[WorkingHost] = []
        self._network: JobNetwork | None = None
        self._logs: list[JobLogWriter] = []
        self._failed: WorkingHost | None = None
        self._striking: Interruption | None = None
        self._strikes_at: tuple[int, float, float] | None = None
        """The number of copies at which the next interruption strikes, and the latest time and step.

        None before its moment.
        """
        self._thread = threading.Thread(target=self._run, name=f"job-{job.name}", daemon=True)

    @functools.cached_property
    def _store(self) -> ObjectStore:
        return self._context.store_of(self.job.arn, self.job.request["RoleArn"])

    @property
    def job(self) -> TrainingJob:
        """The job as it is now."""
        with self._changed:
            return self._job

    def start(self) -> None:
        """Begin to run the job, unless it has ended."""
        if not self.job.ended:
            self._thread.start()

    def shut_down(self) -> None:
        """End the job's processes at once and leave its state as it is. Return when done."""
        with self._changed:
            self._shutdown = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def request_stop(self) -> None:
        """Begin to stop the job, as StopTrainingJob does. A job that uploads its output ends as it would."""

        def stop(job: TrainingJob) -> TrainingJob:
            stopping = replace(job, stop_requested=True)
            if job.ending or job.ended or job.stop_requested:
                return stopping
            return advance(stopping, SecondaryStatus.STOPPING, now=time.time())

        self.update(stop)

    def script_capacity(self, script: CapacityScript) -> None:
        """Put the job's capacity under a script from now on."""
        self.update(lambda job: replace(job, capacity_script=script))

    def update(self, change: Callable[[TrainingJob], TrainingJob]) -> TrainingJob:
        """Change the job, announce a new status, wake the job's thread.

        Args:
            change: A pure function of the job.

        Returns:
            The changed job.
        """
        with self._changed:
            before = self._job
            self._job = change(before)
            if self._job.transitions != before.transitions:
                self._on_status(self._job)
            self._changed.notify_all()
            return self._job

    def _advance(self, secondary: SecondaryStatus, *, message: str | None = None) -> None:
        self.update(lambda job: advance(job, secondary, now=time.time(), message=message))

    # The life of the job.

    def _run(self) -> None:
        try:
            self._finish(self._train_to_the_end())
        except _ShutdownError:
            self._lose_hosts()
        except JobFailedError as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 - a job without its thread would stay in progress for ever
            _LOG.exception("the training job %s cannot go on", self._job.name)
            self._fail(f"InternalServerError: {type(error).__name__}: {error}")
        finally:
            self._close_network()
            self._context.credentials.revoke(self.job.arn)

    def _train_to_the_end(self) -> Ending:
        job = self.job
        wait_seconds: float | None = 0.0
        patience_seconds: float | None = None
        if self._taken_up:
            # The hosts were lost with the server, and their disks with them.
            shutil.rmtree(self._context.hosts_folder / job.name, ignore_errors=True)
            if job.stop_requested:
                return Ending(secondary=SecondaryStatus.STOPPED)
            self._take_up_again()
        elif job.capacity_script:
            wait_seconds = job.capacity_script.initial_wait_seconds
            patience_seconds = job.capacity_script.gives_up_after_seconds
        pending_seconds = max_pending_seconds(job.request)
        if pending_seconds is not None:
            patience_seconds = None  # It waits, where a job without the limit fails.
        while True:
            ending = self._wait_for_capacity(
                wait_seconds, patience_seconds=patience_seconds, pending_seconds=pending_seconds
            )
            if ending is not None:
                return ending
            patience_seconds = pending_seconds = None
            outcome = self._run_hosts()
            if isinstance(outcome, Ending):
                return outcome
            wait_seconds = outcome.capacity_returns_after_seconds
            if not outcome.internal_error:
                self._advance(SecondaryStatus.INTERRUPTED)
            elif self.job.restarts < most_restarts(self.job.request):
                self.update(
                    lambda job: advance(
                        replace(job, restarts=job.restarts + 1), SecondaryStatus.RESTARTING, now=time.time()
                    )
                )
            else:
                return Ending(secondary=SecondaryStatus.FAILED, failure_reason=INTERNAL_SERVER_ERROR)

    def _take_up_again(self) -> None:
        if self.job.secondary in (SecondaryStatus.DOWNLOADING, SecondaryStatus.TRAINING):
            self._advance(SecondaryStatus.INTERRUPTED if self.job.spot else SecondaryStatus.RESTARTING)

    def _wait_for_capacity(
        self, seconds: float | None, *, patience_seconds: float | None = None, pending_seconds: float | None = None
    ) -> Ending | None:
        """Wait. An ending when the job's time, its user's patience or SageMaker's is over first."""
        capacity_at = None if seconds is None else time.time() + seconds
        given_up_at = None if patience_seconds is None else time.time() + patience_seconds
        stopped_at = None if pending_seconds is None else self.job.created_at + pending_seconds
        lost = self.job.secondary in (SecondaryStatus.INTERRUPTED, SecondaryStatus.RESTARTING)
        if not lost and seconds != 0:
            self._advance(SecondaryStatus.STARTING, message=NO_CAPACITY_MESSAGE)
        with self._changed:
            while True:
                now = time.time()
                cause = self._cause(now)
                if cause is _Cause.SHUTDOWN:
                    raise _ShutdownError
                if cause in _ENDING_OF:
                    return Ending(secondary=_ENDING_OF[cause])
                if given_up_at is not None and now >= given_up_at:
                    return Ending(secondary=SecondaryStatus.FAILED, failure_reason=CAPACITY_ERROR)
                if stopped_at is not None and now >= stopped_at:
                    return Ending(secondary=SecondaryStatus.STOPPED)
                if capacity_at is not None and now >= capacity_at:
                    return None
                self._changed.wait(self._seconds_until(now, capacity_at, given_up_at, stopped_at))

    def _run_hosts(self) -> Ending | Interruption:
        """Run the job on its hosts until the job is over or the hosts are lost."""
        job = self.job
        folder = self._hosts_folder(len(job.lifetimes) + 1)
        shutil.rmtree(folder, ignore_errors=True)
        if job.takes_over and not job.lifetimes:
            folder.parent.mkdir(parents=True, exist_ok=True)
            self.kept_hosts_of(job.takes_over).rename(folder)
        if len(job.transitions) > 1:
            self._advance(SecondaryStatus.STARTING)
        self._advance(SecondaryStatus.DOWNLOADING)
        isolation = resolve_isolation(self._context.options.isolation)
        in_s3, restored_files, hosts = set[str](), 0, list[WorkingHost]()
        for place in self._open_network(isolation).places:
            host = WorkingHost(place=place, folder=host_folder(folder, place.number))
            host.opt_ml.lay_out(job.request, place)
            for _ in download_channels(self._store, job.request, host.opt_ml, place):
                if (ending := self._ended_early()) is not None:
                    return ending
            host.mounted = self._context.file_systems.mounted(job.request, host.opt_ml)
            host.sync = self._checkpoint_sync(host.opt_ml, in_s3)
            restored_files = host.sync.restore() if host.sync else 0
            if (ending := self._ended_early()) is not None:
                return ending
            hosts.append(host)
        self._start_hosts(hosts, restored_files, isolation=isolation)
        outcome = self._watch_hosts()
        self._close_network()
        if not isinstance(outcome, Ending):
            shutil.rmtree(folder, ignore_errors=True)
        return outcome

    def _open_network(self, isolation: Isolation) -> JobNetwork:
        port = urlsplit(self._context.endpoint_url).port
        assert port is not None  # noqa: S101 - the local AWS has one
        self._network = JobNetwork(instance_count(self.job.request), isolation=isolation, endpoint_port=port)
        return self._network

    def _close_network(self) -> None:
        if self._network:
            self._network.close()
            self._network = None

    def _ended_early(self) -> Ending | None:
        with self._changed:
            cause = self._cause(time.time())
        if cause is _Cause.SHUTDOWN:
            raise _ShutdownError
        return Ending(secondary=_ENDING_OF[cause]) if cause in _ENDING_OF else None

    def _start_hosts(self, hosts: Sequence[WorkingHost], restored_files: int, *, isolation: Isolation) -> None:
        self._open_logs(len(hosts))
        job = self.job
        started: list[Host] = []
        environment = job_environment(
            job,
            endpoint_url=self._context.endpoint_url,
            access_key=self._context.key_of(job.arn, job.request["RoleArn"]),
            options=self._context.options,
        )
        try:
            for host in hosts:
                process = start_host(
                    folder=host.folder,
                    command=list(job.command),
                    environment=environment,
                    own_image=keep_alive_seconds(job.request) > 0 or job.takes_over is not None,
                    isolation=isolation,
                    place=host.place,
                    mounted=host.mounted,
                    on_line=functools.partial(self._on_line, host),
                    on_exit=functools.partial(self._on_exit, host),
                )
                host.process = process
                started.append(process)
        except BaseException:
            for process in started:
                process.kill()
                process.watch()
            raise
        lifetime = ProcessLifetime(
            pid=started[0].process_id,
            started_at=time.time(),
            restored_files=restored_files,
        )
        with self._changed:
            self._hosts = list(hosts)
        self.update(
            lambda job: advance(
                replace(job, lifetimes=(*job.lifetimes, lifetime)),
                SecondaryStatus.TRAINING,
                now=lifetime.started_at,
            )
        )
        for host in hosts:
            if host.sync:
                host.sync.start()
        for process in started:
            process.watch()

    def _open_logs(self, count: int) -> None:
        """Open the stream of each host, which the job keeps on all its capacity."""
        job = self.job
        if self._logs:
            return
        first = job.log_stream or f"{job.name}/{host_name(1)}-{int(time.time())}"
        self.update(lambda job: replace(job, log_stream=first))
        since = first.rpartition("-")[2]
        client = self._context.session_of(job.arn, job.request["RoleArn"]).client("logs", config=FROM_INSIDE)
        self._logs = [
            JobLogWriter(client=client, stream=f"{job.name}/{host_name(number)}-{since}")
            for number in range(1, count + 1)
        ]

    def _close_logs(self) -> None:
        logs, self._logs = self._logs, []
        for log in logs:
            log.close()

    def _watch_hosts(self) -> Ending | Interruption:
        with self._changed:
            while (cause := self._cause(time.time())) is None:
                self._changed.wait(self._seconds_until(time.time()))
            interruption, failed = self._striking, self._failed
        if cause is _Cause.SHUTDOWN:
            raise _ShutdownError
        if interruption is not None:
            self._lose_capacity(interruption)
            return interruption
        if cause is _Cause.EXIT:
            code, source = (0, self._hosts[0]) if failed is None else (failed.exit_code or 0, failed)
            # What AWS leaves the other hosts of a failed one is not documented. Here they have no time.
            self._kill_processes()
            self._wait_for_exit(None)
            ending = exit_ending(exit_code=code, failure_text=source.opt_ml.failure_text())
        else:
            ending = Ending(secondary=_ENDING_OF[cause])
            if self.job.secondary is not SecondaryStatus.STOPPING:
                self._advance(SecondaryStatus.STOPPING)
            self._end_processes(grace_seconds=self._context.options.stop_grace_seconds)
        for host in self._hosts:
            if host.sync:
                host.sync.finish()
        self._close_lifetime()
        return ending

    def _lose_capacity(self, interruption: Interruption) -> None:
        if interruption.notice:
            deadline = time.monotonic() + interruption.notice_seconds
            if self._wait_for_exit(interruption.notice_seconds):
                for host in self._hosts:
                    if host.sync:
                        host.sync.finish(deadline=deadline)
        self._lose_processes()
        self._close_lifetime(interrupted=True, notice=interruption.notice)
        self.update(
            lambda job: replace(job, capacity_script=job.capacity_script.after_first() if job.capacity_script else None)
        )

    def _end_processes(self, *, grace_seconds: float) -> None:
        self._change_lifetime(signal="SIGTERM")
        self._terminate_processes()
        if not self._wait_for_exit(grace_seconds):
            self._change_lifetime(signal="SIGKILL")
            self._kill_processes()
            self._wait_for_exit(None)

    def _lose_processes(self, *, even_in_shutdown: bool = False) -> None:
        for host in self._hosts:
            host.lose()
        self._wait_for_exit(None, even_in_shutdown=even_in_shutdown)
        for host in self._hosts:
            if host.sync:
                host.sync.join()

    def _terminate_processes(self) -> None:
        for host in self._hosts:
            if host.process:
                host.process.terminate()

    def _kill_processes(self) -> None:
        for host in self._hosts:
            if host.process:
                host.process.kill()

    def _lose_hosts(self) -> None:
        """End whatever runs, as if the machines had gone."""
        if self._hosts:
            self._lose_processes(even_in_shutdown=True)
            if self.job.lifetimes and self.job.lifetimes[-1].ended_at is None:
                self._change_lifetime(signal="SIGKILL")
                self._close_lifetime()
        self._close_logs()

    def _fail(self, reason: str) -> None:
        self._lose_hosts()
        ending = Ending(secondary=SecondaryStatus.FAILED, failure_reason=reason[:FAILURE_REASON_CHARACTERS])
        self._finish(ending, hosts_are_lost=True)

    def _finish(self, ending: Ending, *, hosts_are_lost: bool = False) -> None:
        hosts = [] if hosts_are_lost else host_directories(self._hosts_folder(len(self.job.lifetimes)))
        job = self.update(lambda job: _on_its_way(job, ending, uploading=bool(hosts)))
        model_artifacts = None
        if hosts:
            model_artifacts = self._upload_output(job, hosts, ending)
        self._close_logs()
        now = time.time()
        pool = pool_after(job, ending, has_hosts=bool(hosts), now=now)
        if pool is not None and pool.status is PoolStatus.AVAILABLE:
            self._keep_hosts()
        else:
            shutil.rmtree(self._context.hosts_folder / job.name, ignore_errors=True)
        self.update(
            lambda job: advance(
                replace(job, failure_reason=ending.failure_reason, model_artifacts=model_artifacts, warm_pool=pool),
                ending.secondary,
                now=now,
            )
        )

    def _keep_hosts(self) -> None:
        """Leave the last hosts for the next job. The others are gone."""
        last, kept = self._hosts_folder(len(self.job.lifetimes)), self.kept_hosts_of(self.job.name)
        strip_hosts(last)
        for folder in kept.parent.iterdir():
            if folder != last:
                shutil.rmtree(folder, ignore_errors=True)
        last.rename(kept)

    def kept_hosts_of(self, job_name: str) -> Path:
        """Return the folder of the hosts that a job left in its warm pool."""
        return self._context.hosts_folder / job_name / "kept"

    def _upload_output(self, job: TrainingJob, hosts: Sequence[OptMl], ending: Ending) -> str | None:
        try:
            upload_output_data(self._store, job.request, hosts)
            if ending.secondary is SecondaryStatus.FAILED:
                return None
            return upload_model(self._store, job.request, hosts).uri
        except (ClientError, BotoCoreError) as error:
            raise JobFailedError(f"ClientError: Artifact upload failed: {error}") from error

    def _hosts_folder(self, life: int) -> Path:
        return self._context.hosts_folder / self.job.name / f"life-{life}"

    def _checkpoint_sync(self, opt_ml: OptMl, in_s3: set[str]) -> CheckpointSync | None:
        configuration = self.job.request.get("CheckpointConfig")
        if not configuration:
            return None
        return CheckpointSync(
            store=self._store,
            remote=S3Location.parse(configuration["S3Uri"]),
            local=opt_ml.at(configuration.get("LocalPath", DEFAULT_CHECKPOINT_PATH)),
            interval_seconds=self._context.options.sync_interval_seconds,
            upload_delay_seconds=self._context.options.upload_delay_seconds,
            in_s3=in_s3,
            on_upload=self._on_upload,
            turn=self._turn,
        )

    # What ends the processes, and when.

    def _cause(self, now: float) -> _Cause | None:
        job = self._job
        if self._shutdown:
            return _Cause.SHUTDOWN
        self._strike_if_due(now)
        if self._striking is not None:
            return _Cause.INTERRUPTION
        if self._are_done():
            return _Cause.EXIT
        if job.stop_requested:
            return _Cause.STOP
        if job.running_seconds(now) >= max_runtime_seconds(job.request):
            return _Cause.MAX_RUNTIME
        if (give_up_at := self._give_up_at()) is not None and now >= give_up_at:
            return _Cause.MAX_WAIT
        return None

    def _are_done(self) -> bool:
        """Return whether a process has failed, or all have ended."""
        ended = bool(self._hosts) and all(host.exit_code is not None for host in self._hosts)
        return self._failed is not None or ended

    def _give_up_at(self) -> float | None:
        max_wait = self._job.request.get("StoppingCondition", {}).get("MaxWaitTimeInSeconds")
        return None if max_wait is None else self._job.created_at + float(max_wait)

    def _seconds_until(self, now: float, *also: float | None) -> float | None:
        job = self._job
        moments = [*also, self._give_up_at()]
        if job.secondary in (SecondaryStatus.TRAINING, SecondaryStatus.DOWNLOADING):
            moments.append(now + max_runtime_seconds(job.request) - job.running_seconds(now))
            interruption = self._next_interruption()
            if interruption and interruption.at_seconds is not None:
                moments.append(now + interruption.at_seconds - job.training_seconds(now))
        if self._strikes_at:
            moments.append(self._strikes_at[1])
        known = [moment - now for moment in moments if moment is not None]
        return max(0.001, min(known)) if known else None

    def _next_interruption(self) -> Interruption | None:
        script = self._job.capacity_script
        following = script.interruptions[0] if script and script.interruptions else None
        return following if following and (self._job.spot or following.internal_error) else None

    def _strike_if_due(self, now: float) -> None:
        """Take the capacity away if the script says so now. The caller holds the lock."""
        job, interruption = self._job, self._next_interruption()
        if not self._hosts or interruption is None or self._striking or self._are_done():
            return
        if job.secondary is not SecondaryStatus.TRAINING:
            return
        lifetime = job.lifetimes[-1]
        uploads = sum(host.sync.uploads for host in self._hosts if host.sync)
        if not interruption.is_due(
            step=lifetime.last_step_seen,
            total_steps=lifetime.total_steps,
            training_seconds=job.training_seconds(now),
            uploads=uploads,
        ):
            return
        step, total = lifetime.last_step_seen, lifetime.total_steps
        if self._strikes_at is None:
            # A quick job may end before the copies come: half of the steps that are left is the longest wait.
            latest_step = math.inf if step is None or total is None else (step + total + 1) // 2
            self._strikes_at = (uploads + interruption.after_uploads, now + COPIES_SECONDS, latest_step)
            self._changed.notify_all()
        copies, latest, latest_step = self._strikes_at
        if uploads < copies and now < latest and (step is None or step < latest_step):
            return
        self._striking = interruption
        if interruption.notice:
            self._terminate_processes()
        else:
            for host in self._hosts:
                host.lose()
        self._change_lifetime(signal="SIGTERM" if interruption.notice else "SIGKILL")

    def _wait_for_exit(self, seconds: float | None, *, even_in_shutdown: bool = False) -> bool:
        until = None if seconds is None else time.monotonic() + seconds
        with self._changed:
            while any(host.exit_code is None for host in self._hosts):
                if self._shutdown and not even_in_shutdown:
                    raise _ShutdownError
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(left)
            return True

    # What the host's threads report.

    def _on_line(self, host: WorkingHost, line: str) -> None:
        self._logs[host.place.number - 1].write(line)
        if host.place.number != 1 or not self._hosts:
            return  # Rank 0 reports, on the first host. The controller reads this host's log alone.
        with self._changed:
            job = self._job
            lifetime = observe(job.lifetimes[-1], line)
            if lifetime is job.lifetimes[-1]:
                return
            self._job = replace(job, lifetimes=(*job.lifetimes[:-1], lifetime))
            self._strike_if_due(time.time())
            if self._striking:
                self._changed.notify_all()

    def _on_upload(self) -> None:
        # Here, in the thread that uploads: before the one that watches the host is awake, the next file could be sent.
        with self._changed:
            self._strike_if_due(time.time())
            self._changed.notify_all()

    def _on_exit(self, host: WorkingHost, code: int) -> None:
        with self._changed:
            host.exit_code = code
            if code and self._failed is None:
                self._failed = host
            self._changed.notify_all()

    def _change_lifetime(self, **values: Any) -> None:
        def change(job: TrainingJob) -> TrainingJob:
            return replace(job, lifetimes=(*job.lifetimes[:-1], replace(job.lifetimes[-1], **values)))

        self.update(change)

    def _close_lifetime(self, **values: Any) -> None:
        hosts, began = self._hosts, self.job.lifetimes[-1].started_at
        syncs = [host.sync for host in hosts if host.sync]
        read = [sync.read_files() for sync in syncs]
        unsaved = [name for host in hosts for name in host.opt_ml.written_beside_source(since=began)]
        self._change_lifetime(
            ended_at=time.time(),
            exit_code=self._failed.exit_code if self._failed else 0,
            uploads=sum(sync.uploads for sync in syncs),
            deletions=sum(sync.deletions for sync in syncs),
            stored_files=syncs[0].stored_files() if syncs else (),
            unsent_files=_all_of(sync.unsent_files() for sync in syncs),
            read_files=None if None in read else _all_of(names for names in read if names is not None),
            unsaved_files=tuple(dict.fromkeys(unsaved))[:MOST_UNSAVED_FILES],
            hosts=tuple(host.lifetime() for host in hosts),
            **values,
        )
        with self._changed:
            self._hosts = []
            self._striking = self._strikes_at = self._failed = None


def _all_of(names: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(sorted({name for some in names for name in some}))


def _on_its_way(job: TrainingJob, ending: Ending, *, uploading: bool) -> TrainingJob:
    """Return the job on its way to its ending, by way of Uploading when its last hosts are still there."""
    if job.ending or not uploading:
        return replace(job, ending=ending)
    return advance(replace(job, ending=ending), SecondaryStatus.UPLOADING, now=time.time())
