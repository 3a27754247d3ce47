"""SageMaker's training API as the local AWS serves it. It answers requests, and jobs run in the background."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from spotkeep_local.capacity import CapacityScript, belongs_to_run
from spotkeep_local.service_base.aws_service import AwsService, JsonProtocol, Operation, ValidationError
from spotkeep_local.service_base.state_change_events import PublishEvent, StateChangeEvents
from spotkeep_local.service_base.state_file import StateFile
from spotkeep_local.training.description import EVENT_DETAIL_TYPE, describe, event_detail, list_jobs, search_jobs
from spotkeep_local.training.errors import JobFailedError, ResourceInUseError, ResourceLimitExceededError, not_found
from spotkeep_local.training.job import LocalJobFacts, PoolStatus, SecondaryStatus, TrainingJob, WarmPool, advance
from spotkeep_local.training.job_host import resolve_isolation
from spotkeep_local.training.job_network import shared_network_reason
from spotkeep_local.training.object_store import S3Location
from spotkeep_local.training.opt_ml import no_objects_message
from spotkeep_local.training.request_rules import (
    MAX_KEEP_ALIVE_SECONDS,
    create_problems,
    instance_count,
    keep_alive_seconds,
    named_program,
    program_of,
)
from spotkeep_local.training.runner import JobContext, JobRunner
from spotkeep_local.training.warm_pools import (
    LONGEST_CHAIN_SECONDS,
    expires_at,
    instances_in_pools,
    pool_for,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from spotkeep_local.capacity import EventFaults
    from spotkeep_local.hosts.isolation import Isolation
    from spotkeep_local.options import ServerOptions
    from spotkeep_local.principals import CredentialRegistry
    from spotkeep_local.training.file_systems import FileSystems

TARGET = "SageMaker"
_JOBS = TypeAdapter(list[TrainingJob])
_MAX_TAGS = 50


class TrainingService:
    """Training jobs of one local AWS.

    Args:
        state_dir: The folder for the service's jobs and the hosts' files.
        endpoint_url: The address of the local AWS, with S3 and CloudWatch Logs.
        credentials: The source of the credentials of jobs, and of the service itself.
        options: The options of the local AWS.
        file_systems: The file systems that jobs may mount.
        publish_event: Puts an `aws.sagemaker` event on the default bus. Called from a thread of its own.
        on_change: Called after a job's status has changed, with the job's lock held, so it must not wait.
    """

    def __init__(
        self,
        *,
        state_dir: Path,
        endpoint_url: str,
        credentials: CredentialRegistry,
        options: ServerOptions,
        file_systems: FileSystems,
        publish_event: PublishEvent,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._options = options
        self._on_change = on_change
        self._context = JobContext(
            endpoint_url=endpoint_url,
            credentials=credentials,
            hosts_folder=state_dir / "hosts",
            options=options,
            file_systems=file_systems,
        )
        self._saved = StateFile(state_dir / "jobs.json")
        self._events = StateChangeEvents(publish_event)
        self._lock = threading.RLock()
        self._pending_scripts: dict[str, CapacityScript] = {}
        self._training_quota = options.training_quota
        self._warm_pool_quota = options.warm_pool_quota
        saved = self._saved.read()
        self._programs = {image: tuple(program) for image, program in saved.get("programs", {}).items()}
        self._runners = {
            job.name: self._new_runner(job, taken_up=True) for job in _JOBS.validate_python(saved.get("jobs", []))
        }
        operations: dict[str, Operation] = {
            "CreateTrainingJob": self._create,
            "DescribeTrainingJob": lambda request: describe(self._job(request), now=time.time()),
            "ListTrainingJobs": self._list,
            "Search": self._search,
            "StopTrainingJob": self._stop,
            "UpdateTrainingJob": self._update,
            "AddTags": self._add_tags,
            "ListTags": self._list_tags,
        }
        self.control_operations: dict[str, Operation] = {
            "ScriptCapacity": self._script_capacity,
            "JobFacts": self._job_facts,
            "TrainingQuota": self._set_training_quota,
            "WarmPoolQuota": self._set_warm_pool_quota,
            "ImageProgram": self._set_image_program,
        }
        self._protocol = JsonProtocol("sagemaker", target=TARGET)
        self.api = AwsService(self._protocol, operations, admit=lambda _operation: self._end_due_pools())

    def start(self) -> None:
        """Take up the jobs of an earlier server. The endpoint must answer by now or within seconds."""
        self._events.start()
        for runner in list(self._runners.values()):
            runner.start()

    def stop(self) -> None:
        """End every process and save the jobs. Those in progress are taken up again by the next `start`."""
        with self._lock:
            runners = list(self._runners.values())
        for runner in runners:
            runner.shut_down()
        self._events.stop()
        jobs = _JOBS.dump_python([runner.job for runner in runners], mode="json")
        self._saved.write({"jobs": jobs, "programs": self._programs})

    def set_event_faults(self, faults: EventFaults) -> None:
        """Set the faults of events that are sent from now on."""
        self._events.set_faults(faults)

    # What Batch asks for its service jobs.

    def create(self, request: dict[str, Any], *, queued_as: str) -> None:
        """Create a training job as CreateTrainingJob does.

        Args:
            request: The request as the API takes it, not checked.
            queued_as: The name of the service job, by which scripts find it.

        Raises:
            ServiceError: It is refused.
        """
        self._end_due_pools()
        self._create(self._protocol.check("CreateTrainingJob", request), queued_as=queued_as)

    def stop_job(self, name: str) -> None:
        """Stop a training job as StopTrainingJob does. Raises `ServiceError` where it has ended."""
        self._stop({"TrainingJobName": name})

    # SageMaker's operations.

    def _create(self, request: dict[str, Any], *, queued_as: str | None = None) -> dict[str, Any]:
        command = program_of(request, programs=self._programs)
        problems = create_problems(request, programs=self._programs)
        if problems or command is None:
            raise ValidationError.of(problems)
        name = request["TrainingJobName"]
        arn = f"arn:aws:sagemaker:{self._options.region}:{self._options.account_id}:training-job/{name}"
        self._refuse_taken(name, arn)
        self._refuse_empty_channels(request, job_arn=arn)
        tags = {tag["Key"]: tag["Value"] for tag in request.get("Tags", [])}
        now = time.time()
        with self._lock:
            self._refuse_taken(name, arn)
            self._refuse_over_quota(request)
            warm = self._take_pool(name, request, now=now)
            job = TrainingJob(
                name=name,
                arn=arn,
                request=request,
                command=command,
                created_at=now,
                updated_at=now,
                tags=tags,
                capacity_script=self._take_script(queued_as or name),
                warm_pool=self._pool_of(request, chain_since=now if warm is None else warm[1]),
                takes_over=None if warm is None else warm[0],
                queued_as=queued_as,
            )
            job = advance(job, SecondaryStatus.STARTING, now=now)
            self._announce(job)
            self._runners[name] = self._new_runner(job, taken_up=False)
            self._runners[name].start()
        return {"TrainingJobArn": arn}

    def _refuse_taken(self, name: str, arn: str) -> None:
        with self._lock:
            if name in self._runners:
                raise ResourceInUseError(
                    "Training job names must be unique within an AWS account and region, and a training job "
                    f"with this name already exists ({arn})"
                )

    def _refuse_over_quota(self, request: dict[str, Any]) -> None:
        """Refuse a job that needs more instances of its type than its quota has left."""
        of_request = request["ResourceConfig"]
        if "InstanceType" not in of_request:
            return  # SageMaker chooses among several types; what a quota leaves decides nothing here.
        spot = bool(request.get("EnableManagedSpotTraining"))
        instance_type, asked = of_request["InstanceType"], instance_count(request)
        live = [runner.job.request for runner in self._runners.values() if not runner.job.ended]
        used = sum(
            instance_count(each)
            for each in live
            if each["ResourceConfig"].get("InstanceType") == instance_type
            and bool(each.get("EnableManagedSpotTraining")) == spot
        )
        if used + asked > self._training_quota:
            quota = f"{instance_type} for {'spot ' if spot else ''}training job usage"
            raise ResourceLimitExceededError(quota, limit=self._training_quota, used=used, asked=asked)

    def _refuse_empty_channels(self, request: dict[str, Any], *, job_arn: str) -> None:
        store = self._context.store_of(job_arn, request["RoleArn"])
        for channel in request.get("InputDataConfig", []):
            source = channel["DataSource"].get("S3DataSource")
            if source is not None and not store.has_any(S3Location.parse(source["S3Uri"])):
                self._context.credentials.revoke(job_arn)
                raise ValidationError(no_objects_message(source, request))

    def _list(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            jobs = [runner.job for runner in self._runners.values()]
        return list_jobs(jobs, request)

    def _search(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            jobs = [runner.job for runner in self._runners.values()]
        return search_jobs(jobs, request)

    def _stop(self, request: dict[str, Any]) -> dict[str, Any]:
        runner = self._existing(request["TrainingJobName"])
        if runner.job.ended:
            raise ValidationError(
                f"The request was rejected because the training job is in status {runner.job.status.value}."
            )
        runner.request_stop()
        return {}

    def _update(self, request: dict[str, Any]) -> dict[str, Any]:
        if unknown := sorted(request.keys() - {"TrainingJobName", "ResourceConfig", "RemoteDebugConfig"}):
            raise ValidationError(
                f"the local AWS updates the ResourceConfig and the RemoteDebugConfig of a job, not its "
                f"{', '.join(unknown)}"
            )
        with self._lock:
            runner = self._existing(request["TrainingJobName"])
            if "RemoteDebugConfig" in request:
                self._debug_remotely(runner, request["RemoteDebugConfig"])
            if "ResourceConfig" in request:
                self._keep_pool(runner, request["ResourceConfig"]["KeepAlivePeriodInSeconds"])
        return {"TrainingJobArn": runner.job.arn}

    def _debug_remotely(self, runner: JobRunner, config: dict[str, Any]) -> None:
        """Switch remote debugging on or off.

        Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_UpdateTrainingJob.html
        """
        if runner.job.secondary not in (SecondaryStatus.DOWNLOADING, SecondaryStatus.TRAINING):
            raise ValidationError(
                "RemoteDebugConfig can only be updated while the job's SecondaryStatus is Downloading or Training; "
                f"it is {runner.job.secondary.value}"
            )
        changed = {"RemoteDebugConfig": config}
        runner.update(lambda job: replace(job, request=job.request | changed, updated_at=time.time()))

    def _keep_pool(self, runner: JobRunner, seconds: int) -> None:
        """Keep a waiting pool for another time. A time of 0 seconds ends it."""
        pool = runner.job.warm_pool
        if pool is None or pool.status is not PoolStatus.AVAILABLE:
            status = "none" if pool is None else pool.status.value
            raise ValidationError(
                "KeepAlivePeriodInSeconds can only be updated while the job's warm pool has the status Available; "
                f"it has {status}"
            )
        if seconds > MAX_KEEP_ALIVE_SECONDS:
            raise ValidationError(
                f"Invalid KeepAlivePeriodInSeconds {seconds}. It must be at most {MAX_KEEP_ALIVE_SECONDS}"
            )
        if (pool.kept_since or 0.0) + seconds > pool.chain_since + LONGEST_CHAIN_SECONDS:
            raise ValidationError("A warm pool can be reused for at most 28 days")
        now = time.time()
        if seconds:
            kept = {"KeepAlivePeriodInSeconds": seconds}
            runner.update(
                lambda job: replace(
                    job,
                    request=job.request | {"ResourceConfig": job.request["ResourceConfig"] | kept},
                    updated_at=now,
                )
            )
        else:
            self._end_pool(runner, now=now)

    def _add_tags(self, request: dict[str, Any]) -> dict[str, Any]:
        added = {tag["Key"]: tag["Value"] for tag in request["Tags"]}
        runner = self._existing_by_arn(request["ResourceArn"])
        if len(runner.job.tags | added) > _MAX_TAGS:
            raise ValidationError(f"A resource has at most {_MAX_TAGS} tags")
        job = runner.update(lambda job: replace(job, tags=job.tags | added))
        return {"Tags": _tag_list(job.tags)}

    def tags_of(self, name: str) -> Mapping[str, str]:
        """Return the tags of a training job. None where there is no such job."""
        runner = self._runners.get(name)
        return {} if runner is None else runner.job.tags

    def job(self, name: str) -> TrainingJob | None:
        """Return a training job. None where there is no such job."""
        runner = self._runners.get(name)
        return None if runner is None else runner.job

    def _list_tags(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"Tags": _tag_list(self._existing_by_arn(request["ResourceArn"]).job.tags)}

    # The local control plane: what AWS lets no client decide.

    def _script_capacity(self, request: dict[str, Any]) -> dict[str, Any]:
        run = request.get("run")
        if not isinstance(run, str) or not run:
            raise ValidationError(f"run must name a run or a training job, found {run!r}")
        script = CapacityScript.from_document(request.get("script"))
        with self._lock:
            live = [
                runner
                for runner in self._runners.values()
                if belongs_to_run(job_name=runner.job.scripted_as, run=run) and not runner.job.ended
            ]
            if not live:
                self._pending_scripts[run] = script
        for runner in live:
            runner.script_capacity(script)
        return {"training_jobs": [runner.job.name for runner in live]}

    def _job_facts(self, request: dict[str, Any]) -> dict[str, Any]:
        job = self._existing(str(request.get("job_name"))).job
        isolation: Isolation | None = None
        with contextlib.suppress(JobFailedError):
            isolation = resolve_isolation(self._options.isolation)
        return LocalJobFacts(
            job_name=job.name,
            status=job.status.value,
            secondary_status=job.secondary.value,
            isolation="none" if isolation is None else isolation.value,
            took_over=job.takes_over,
            shared_network=shared_network_reason(isolation) if instance_count(job.request) > 1 else None,
            lifetimes=job.lifetimes,
        ).to_document()

    def _set_training_quota(self, request: dict[str, Any]) -> dict[str, Any]:
        self._training_quota = _instances(request)
        return {}

    def _set_warm_pool_quota(self, request: dict[str, Any]) -> dict[str, Any]:
        self._warm_pool_quota = _instances(request)
        return {}

    def _set_image_program(self, request: dict[str, Any]) -> dict[str, Any]:
        image, program = named_program(request)
        self._programs[image] = program
        return {}

    # Warm pools.

    @property
    def training_quota(self) -> int:
        """The number of instances of one type that training jobs may use on spot, and as many on demand, now."""
        return self._training_quota

    @property
    def warm_pool_quota(self) -> int:
        """The number of instances that may be in warm pools, now."""
        return self._warm_pool_quota

    def _take_pool(self, name: str, request: dict[str, Any], *, now: float) -> tuple[str, float] | None:
        """Hand a waiting pool that matches to a new job.

        Returns the job that left it, and the time since when it is handed on.
        """
        owner = pool_for(request, [runner.job for runner in self._runners.values()], now=now)
        if owner is None or owner.warm_pool is None:
            return None
        pool = owner.warm_pool
        self._runners[owner.name].update(
            lambda job: replace(job, warm_pool=pool.over(PoolStatus.REUSED, now=now, reused_by=name))
        )
        return owner.name, pool.chain_since

    def _pool_of(self, request: dict[str, Any], *, chain_since: float) -> WarmPool | None:
        """Return a new job's pool. None when it asks for none, or the quota has no room. The job runs all the same."""
        if not keep_alive_seconds(request):
            return None
        wanted = instance_count(request)
        taken = instances_in_pools(runner.job for runner in self._runners.values())
        return WarmPool(chain_since=chain_since) if taken + wanted <= self._warm_pool_quota else None

    def _end_due_pools(self) -> None:
        """End the pools that are due, before a request can see one. The end of a pool has no other effect."""
        now = time.time()
        with self._lock:
            for runner in self._runners.values():
                end = expires_at(runner.job)
                if end is not None and end <= now:
                    self._end_pool(runner, now=end)

    def _end_pool(self, runner: JobRunner, *, now: float) -> None:
        def ended(job: TrainingJob) -> TrainingJob:
            over = job.warm_pool.over(PoolStatus.TERMINATED, now=now) if job.warm_pool else None
            return replace(job, warm_pool=over, updated_at=now)

        runner.update(ended)
        shutil.rmtree(runner.kept_hosts_of(runner.job.name).parent, ignore_errors=True)

    # What they share.

    def _new_runner(self, job: TrainingJob, *, taken_up: bool) -> JobRunner:
        return JobRunner(job=job, taken_up=taken_up, context=self._context, on_status=self._announce)

    def _announce(self, job: TrainingJob) -> None:
        self._events.send(event_detail(job), EVENT_DETAIL_TYPE, [job.arn])
        self._on_change()

    def _take_script(self, job_name: str) -> CapacityScript | None:
        for run in self._pending_scripts:
            if belongs_to_run(job_name=job_name, run=run):
                return self._pending_scripts.pop(run)
        return None

    def _existing(self, name: str) -> JobRunner:
        with self._lock:
            if name not in self._runners:
                raise not_found()
            return self._runners[name]

    def _job(self, request: dict[str, Any]) -> TrainingJob:
        return self._existing(request["TrainingJobName"]).job

    def _existing_by_arn(self, arn: str) -> JobRunner:
        return self._existing(arn.rpartition(":training-job/")[2])


def _tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _instances(request: dict[str, Any]) -> int:
    instances = request.get("instances")
    if isinstance(instances, bool) or not isinstance(instances, int) or instances < 0:
        raise ValidationError(f"instances must be a number from 0, found {instances!r}")
    return instances
