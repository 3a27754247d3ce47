"""SageMaker's training jobs and their logs, in memory, with a clock of their own.

The model keeps what really happened (which job trained which step, what was billed), so that a record can be held
against it. The methods of a boto3 client are spelled as there, and raise what it raises.

Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_DescribeTrainingJob.html
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from spotkeep_jobs.backends.sagemaker.training_job import DEPLOYMENT_TAG
from tests.models.clock import NOON, Clock
from tests.models.faults import Called, Model, client_error
from tests.models.logs import Logs

SPOT_SHARE: Final = 0.3
"""What spot capacity bills of the time it trained for."""
SAVE_EVERY_STEPS: Final = 5
SECONDS_PER_STEP: Final = 1
REPLICA_LAG_SECONDS: Final = 60
"""How old an answer of DescribeTrainingJob may be."""

_WAITING: Final = ("Starting", "Interrupted", "Restarting")
_STATUS_OF: Final = {
    **{word: word for word in ("Completed", "Failed", "Stopped", "Stopping")},
    **dict.fromkeys(("MaxRuntimeExceeded", "MaxWaitTimeExceeded"), "Stopped"),
}
"""The TrainingJobStatus that goes with a secondary status; with every other goes InProgress."""
_SAID_AS_ASKED: Final = (
    "RoleArn",
    "CheckpointConfig",
    "EnableManagedSpotTraining",
    "Environment",
    "OutputDataConfig",
    "VpcConfig",
    "EnableInterContainerTrafficEncryption",
    "EnableNetworkIsolation",
    "RemoteDebugConfig",
)
"""What DescribeTrainingJob says of a job as its request had it."""


@dataclass
class ModelJob:
    """A training job as it really is. Times are seconds of the story."""

    name: str
    request: Mapping[str, Any]
    created: float
    checkpoint_uri: str
    run: str
    status: str = "InProgress"
    secondary: str = "Starting"
    transitions: list[dict[str, Any]] = field(default_factory=list)
    answers: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    trained_seconds: int = 0
    on_instances: bool = False
    failure: str | None = None
    chosen: str | None = None
    """The instance type that SageMaker took of several."""
    position: int = 0
    last_changed: float = 0.0
    keep_alive: int = 0
    pool: str | None = None
    """The status of its warm pool, when it has ended and left one."""
    pool_since: float = 0.0
    pool_over: float = 0.0
    pool_reused_by: str | None = None
    by_hand: bool = False
    """Made by a user who called AWS, and not by a launcher."""

    @property
    def pool_idle_seconds(self) -> int:
        """How long its pool waited, when that is over."""
        return round(self.pool_over - self.pool_since) if self.pool in ("Reused", "Terminated") else 0

    @property
    def arn(self) -> str:
        return f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{self.name}"

    @property
    def live(self) -> bool:
        """Whether it runs, or may run."""
        return self.status in ("InProgress", "Stopping")

    @property
    def spot(self) -> bool:
        return bool(self.request.get("EnableManagedSpotTraining"))

    @property
    def seconds_with_instances(self) -> float:
        """How long it had instances by the clock, up to its last change: one that stops keeps those that it had."""
        seconds, since = 0.0, None
        for entry in self.transitions:
            if entry["Status"] in ("Downloading", "Training"):
                since = since or entry["StartTime"]
            elif since is not None and entry["Status"] != "Stopping":
                seconds += (entry["StartTime"] - since).total_seconds()
                since = None
        return seconds

    @property
    def instances_since(self) -> float | None:
        """Since when it has instances, in seconds of the story; None where it has none."""
        since = None
        for entry in self.transitions:
            if entry["Status"] in ("Downloading", "Training"):
                since = since or entry["StartTime"]
            elif entry["Status"] != "Stopping":
                since = None
        return None if since is None else float((since - NOON).total_seconds())

    @property
    def stopping_since(self) -> float | None:
        """Since when it is being stopped, in seconds of the story; None where it is not."""
        if self.status != "Stopping":
            return None
        since = next(entry["StartTime"] for entry in reversed(self.transitions) if entry["Status"] == "Stopping")
        return float((since - NOON).total_seconds())

    @property
    def billable_seconds(self) -> int:
        return round(self.trained_seconds * (SPOT_SHARE if self.spot else 1.0))

    def answer(self, *, until: float) -> dict[str, Any] | None:
        """Return what DescribeTrainingJob said of it at a time, but for its pool; None before it was known."""
        return next((answer for at, answer in reversed(self.answers) if at <= until), None)

    @property
    def interruptions(self) -> int:
        """How often it lost its instances and went on."""
        had = False
        count = 0
        for entry in self.transitions:
            had = had or entry["Status"] in ("Downloading", "Training")
            count += entry["Status"] == "Interrupted" or (entry["Status"] == "Restarting" and had)
        return count

    @property
    def restarts(self) -> int:
        """How often SageMaker started it again after an error of its own."""
        return sum(entry["Status"] == "Restarting" for entry in self.transitions)

    @property
    def may_restart(self) -> bool:
        """Whether its RetryStrategy has SageMaker start it again after an error of its own."""
        strategy = self.request.get("RetryStrategy", {})
        return bool(self.restarts < strategy.get("MaximumRetryAttempts", 0))


class SageMaker(Model):
    """A client of SageMaker, the jobs behind it, and what happens to them.

    Attributes:
        time: The time.
        jobs: The jobs, by name.
        deleted: Jobs that SageMaker does not know any more.
        requests: The requests for a job that were accepted, in their order.
        logs: The jobs' logs.
        described: The names of the jobs that were described, in the order of the calls.
        stopped: The names of the jobs that were asked to stop, in the order of the calls.
        events: The events that AWS sent, in their order.
        refuses: The code and the message of the error that every CreateTrainingJob gets, or None.
        withheld: The code of the error that a question about a job gets, by the job's name.
        quota: How many jobs may live.
        used_by_others: How much of the quota jobs use up that are not in this model.
        without_quota: What the account may not use: an instance type (or "several"), and whether it is on spot.
        pools_have_quota: Whether a job that ends leaves its warm pool.
        replicas_lag: Whether answers are as old as they may be.
        index_lags: Whether the answers of a search are, even if no other is.
        durable: The newest step in S3, by checkpoint_uri.
        highest: The highest step that was trained, by run.
        redone: How many steps were trained twice, by run.
        bills_by_the_clock: Whether a job is billed for all the time in which it has instances, whatever it trains.
        before_removal: Called with what is removed and its name, before it is.
    """

    def __init__(self, called: Called | None = None, *, time: Clock | None = None) -> None:
        super().__init__(called)
        self.time = time or Clock()
        self.jobs: dict[str, ModelJob] = {}
        self.deleted: list[ModelJob] = []
        self.requests: list[Mapping[str, Any]] = []
        self.described: list[str] = []
        self.stopped: list[str] = []
        self.events: list[dict[str, Any]] = []
        self.refuses: tuple[str, str] | None = None
        self.withheld: dict[str, str] = {}
        self.quota = 1_000_000
        self.used_by_others = 0
        self.without_quota: set[tuple[str, bool]] = set()
        self.pools_have_quota = True
        self.replicas_lag = False
        self.index_lags = False
        self.durable: dict[str, int] = {}
        self.highest: dict[str, int] = {}
        self.redone: Counter[str] = Counter()
        self.bills_by_the_clock = False
        self.before_removal: Callable[[str, str], None] = lambda _what, _name: None
        self.logs = Logs(self._called)
        self._creating = threading.Lock()

    @property
    def launched(self) -> list[ModelJob]:
        """The jobs that a launcher made."""
        return [job for job in self.jobs.values() if not job.by_hand]

    @property
    def live(self) -> list[str]:
        """The names of the jobs that run, or may run."""
        return [job.name for job in self.jobs.values() if job.status == "InProgress"]

    def now(self) -> datetime:
        """The time."""
        return self.time()

    @property
    def seconds(self) -> float:
        """The time, in seconds since noon."""
        return self.time.seconds

    @seconds.setter
    def seconds(self, value: float) -> None:
        self.time.seconds = value

    # What a client sees

    def create_training_job(self, **request: Any) -> dict[str, Any]:
        return self._call("CreateTrainingJob", lambda: self._create(request))  # type: ignore[no-any-return]

    def describe_training_job(self, *, TrainingJobName: str) -> dict[str, Any]:  # noqa: N803
        return self._call("DescribeTrainingJob", lambda: self._describe(TrainingJobName))  # type: ignore[no-any-return]

    def search(self, **query: Any) -> dict[str, Any]:
        return self._call("Search", lambda: self._search(query))  # type: ignore[no-any-return]

    def list_training_jobs(self, **query: Any) -> dict[str, Any]:
        return self._call("ListTrainingJobs", lambda: self._list(query))  # type: ignore[no-any-return]

    def list_tags(self, *, ResourceArn: str, MaxResults: int) -> dict[str, Any]:  # noqa: N803
        return self._call("ListTags", lambda: self._tags(ResourceArn))  # type: ignore[no-any-return]

    def stop_training_job(self, *, TrainingJobName: str) -> None:  # noqa: N803
        self._call("StopTrainingJob", lambda: self._stop(TrainingJobName))

    def update_training_job(
        self,
        *,
        TrainingJobName: str,  # noqa: N803
        ResourceConfig: Mapping[str, int] | None = None,  # noqa: N803
        RemoteDebugConfig: Mapping[str, bool] | None = None,  # noqa: N803
    ) -> None:
        def update() -> None:
            if RemoteDebugConfig is not None:
                self._debug_remotely(TrainingJobName, RemoteDebugConfig)
            if ResourceConfig is not None:
                self._keep_alive(TrainingJobName, ResourceConfig["KeepAlivePeriodInSeconds"])

        self._call("UpdateTrainingJob", update)

    # What happens to jobs

    def gets_capacity(self, job: ModelJob) -> None:
        self._change(job, "Downloading", after=20)
        job.on_instances = True
        self._change(job, "Training", after=10)
        job.trained_seconds += 10
        job.position = self.durable.get(job.checkpoint_uri, 0)
        self.highest[job.run] = max(self.highest.get(job.run, job.position), job.position)
        self.says(job, "start")
        self.says(job, "resume", step=job.position)

    def trains(self, job: ModelJob, steps: int) -> None:
        for _ in range(steps):
            self.seconds += SECONDS_PER_STEP
            job.trained_seconds += SECONDS_PER_STEP
            job.position += 1
            if job.position <= self.highest[job.run]:
                self.redone[job.run] += 1
            self.highest[job.run] = max(self.highest[job.run], job.position)
            self.says(job, "progress", step=job.position)
            if job.position % SAVE_EVERY_STEPS == 0:
                self.durable[job.checkpoint_uri] = job.position
                self.saved(job)

    def made_for(self, request: Mapping[str, Any]) -> ModelJob:
        """Make a training job as another AWS service does, which has quota of its own, and no API call of ours."""
        self._keep(request)
        return self.jobs[request["TrainingJobName"]]

    def is_asked_to_stop(self, job: ModelJob) -> None:
        """Another AWS service stops a job."""
        job.status = "Stopping"
        self._change(job, "Stopping", after=0)

    def saved(self, job: ModelJob) -> None:
        """Called when a job has a new checkpoint in S3."""

    def is_interrupted(self, job: ModelJob) -> None:
        job.on_instances = False
        self._change(job, "Interrupted", after=1)

    def has_an_error(self, job: ModelJob) -> None:
        """SageMaker loses a job by an error of its own: it starts it again, or the job fails."""
        if job.may_restart:
            job.on_instances = False
            self._change(job, "Restarting", after=1)
        else:
            self.ends(job, "Failed", failure="InternalServerError: We encountered an internal error. Please try again.")

    def ends(self, job: ModelJob, status: str, *, secondary: str | None = None, failure: str | None = None) -> None:
        job.failure = failure
        if job.on_instances and secondary is None:
            self._leaves_pool(job, at=self.seconds + 1)
        job.on_instances = False
        job.status = status
        self._change(job, secondary or status, after=1)

    def is_deleted(self, job: ModelJob) -> None:
        self.deleted.append(self.jobs.pop(job.name))

    def becomes(self, name: str, status: str, secondary: str | None = None, *, failure: str | None = None) -> None:
        """Give a job another status, at once."""
        job = self.jobs[name]
        job.status, job.failure = status, failure
        self._change(job, secondary or status, after=0)

    def moves(self, name: str, secondary: str) -> None:
        """Give a job another secondary status, at once."""
        self.becomes(name, self.jobs[name].status, secondary)

    def has_job(
        self,
        name: str,
        *story: tuple[str, float],
        request: Mapping[str, Any] | None = None,
        status: str | None = None,
        **answer: Any,
    ) -> None:
        """Let there be a job with this history, from now on; one of that name gets it in place of its own.

        Args:
            name: The job.
            story: Its secondary statuses, and the minutes after noon at which they began.
            request: What its CreateTrainingJob asked for other than a launcher of the deployment asks.
            status: Its TrainingJobStatus; None for the one that goes with its last secondary status.
            answer: What DescribeTrainingJob says of it besides, spelled as there.
        """
        if name not in self.jobs or request is not None:
            asked = {**_launchers_request(name), **(request or {})}
            job = ModelJob(name=name, request=asked, created=0.0, checkpoint_uri="", run=name.rpartition("-")[0])
            job.keep_alive = asked["ResourceConfig"].get("KeepAlivePeriodInSeconds", 0)
            self.jobs[name] = job
        job = self.jobs[name]
        times = [NOON + timedelta(minutes=minutes) for _, minutes in story]
        job.transitions = [
            {"Status": word, "StartTime": at, "StatusMessage": "", **({"EndTime": end} if end else {})}
            for (word, _), at, end in zip(story, times, [*times[1:], None], strict=False)
        ]
        job.secondary = story[-1][0] if story else "Starting"
        job.status = status or _STATUS_OF.get(job.secondary, "InProgress")
        job.failure = answer.get("FailureReason")
        changed = times[-1] if times else NOON
        job.answers.append((self.seconds, self._answer(job, changed) | answer))
        if not job.live and job.pool is None:
            self._leaves_pool(job, at=(changed - NOON).total_seconds())

    def is_made_by_hand(
        self, name: str, *, tags: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        """A user who knows nothing of the launcher creates a job, or the record of a launch is lost."""
        checkpoint_uri = f"s3://checkpoints/by-hand/{name}/"
        request = {
            "TrainingJobName": name,
            "RoleArn": "arn:aws:iam::123456789012:role/theirs",
            "CheckpointConfig": {"S3Uri": checkpoint_uri},
            "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
            "Environment": environment or {},
            "Tags": [{"Key": key, "Value": value} for key, value in (tags or {}).items()],
        }
        job = ModelJob(
            name=name, request=request, created=self.seconds, checkpoint_uri=checkpoint_uri, run=name, by_hand=True
        )
        self.jobs[name] = job
        self._change(job, "Training", after=0)

    # Within

    def _leaves_pool(self, job: ModelJob, *, at: float) -> None:
        """Keep the instances of a job that ended, if it asked for that and ended well enough."""
        retains = job.failure is None or job.failure.startswith("AlgorithmError")
        if job.keep_alive and retains and self.pools_have_quota:
            job.pool, job.pool_since = "Available", at

    def _judge(self, operation: str, name: str) -> None:
        if name in self.withheld:
            raise client_error(operation, self.withheld[name])

    def _known_until(self, *, lags: bool) -> float:
        return self.seconds - (REPLICA_LAG_SECONDS if lags else 0)

    def _create(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with self._creating:
            return self._create_one(request)

    def _create_one(self, request: Mapping[str, Any]) -> dict[str, Any]:
        name = str(request["TrainingJobName"])
        if self.refuses is not None:
            raise client_error("CreateTrainingJob", *self.refuses)
        # The quota first: a second create of the same job then meets the quota that the first one used up.
        several = "InstancePreferences" in request["ResourceConfig"]
        spot = "EnableManagedSpotTraining" in request
        place = "several" if several else request["ResourceConfig"]["InstanceType"]
        if (place, spot) in self.without_quota:
            raise client_error("CreateTrainingJob", "ResourceLimitExceeded", over_quota(place, limit=0, used=0))
        used = len(self.live) + self.used_by_others
        if used >= self.quota:
            limit = over_quota(place, limit=self.quota, used=used)
            raise client_error("CreateTrainingJob", "ResourceLimitExceeded", limit)
        if name in self.jobs:
            raise client_error("CreateTrainingJob", "ResourceInUse")
        if several and spot:
            raise client_error("CreateTrainingJob", "ValidationException")
        return {"TrainingJobArn": self._keep(request).arn}

    def _keep(self, request: Mapping[str, Any]) -> ModelJob:
        """Let there be the job of a request."""
        name = str(request["TrainingJobName"])
        job = ModelJob(
            name=name,
            request=request,
            created=self.seconds,
            checkpoint_uri=request.get("CheckpointConfig", {}).get("S3Uri", ""),
            run=request["Environment"]["SPOTKEEP_RUN"],
        )
        job.keep_alive = request["ResourceConfig"].get("KeepAlivePeriodInSeconds", 0)
        self.pools_expire()
        if not job.spot:
            fitting = [each for each in self.jobs.values() if each.pool == "Available" and _fits(each, job)]
            for taken in fitting[:1]:
                taken.pool, taken.pool_over, taken.pool_reused_by = "Reused", self.seconds, name
        self.requests.append(request)
        self.jobs[name] = job
        self._change(job, "Starting", after=0)
        return job

    def _describe(self, name: str) -> dict[str, Any]:
        self.described.append(name)
        self._judge("DescribeTrainingJob", name)
        job = self.jobs.get(name)
        answer = None if job is None else job.answer(until=self._known_until(lags=self.replicas_lag))
        if job is None or answer is None:
            raise client_error("DescribeTrainingJob", "ValidationException", "Requested resource not found.")
        return {**answer, **self._pool_of(job, answer)}

    def _pool_of(self, job: ModelJob, answer: Mapping[str, Any]) -> dict[str, Any]:
        """What an answer says of a pool; an old one says that the job has it."""
        if not job.keep_alive:
            return {}
        self.pools_expire()
        resources = {**answer["ResourceConfig"], "KeepAlivePeriodInSeconds": job.keep_alive}
        if answer["TrainingJobStatus"] in ("InProgress", "Stopping"):
            return {"ResourceConfig": resources, "WarmPoolStatus": {"Status": "InUse"}}
        if job.pool is None:
            return {"ResourceConfig": resources}
        status = {"Status": job.pool, "ResourceRetainedBillableTimeInSeconds": job.pool_idle_seconds}
        if job.pool_reused_by is not None:
            status["ReusedByJob"] = job.pool_reused_by
        return {"ResourceConfig": resources, "WarmPoolStatus": status}

    def pools_expire(self) -> None:
        """Those whose time is over end at the end of it."""
        for job in self.jobs.values():
            if job.pool == "Available" and self.seconds >= job.pool_since + job.keep_alive:
                job.pool, job.pool_over = "Terminated", job.pool_since + job.keep_alive

    def _debug_remotely(self, name: str, config: Mapping[str, bool]) -> None:
        job = self.jobs.get(name)
        if job is None or job.secondary not in ("Downloading", "Training"):
            message = "RemoteDebugConfig can only be updated while the job is Downloading or Training"
            raise client_error("UpdateTrainingJob", "ValidationException", message)
        job.request = {**job.request, "RemoteDebugConfig": dict(config)}
        job.answers.append((self.seconds, self._answer(job, self.now())))

    def _keep_alive(self, name: str, seconds: int) -> None:
        self.pools_expire()
        job = self.jobs.get(name)
        if job is None or job.pool != "Available":
            message = "KeepAlivePeriodInSeconds can only be updated while the pool is Available"
            raise client_error("UpdateTrainingJob", "ValidationException", message)
        if seconds:
            job.keep_alive = seconds
            job.last_changed = self.seconds
        else:
            self.before_removal("pool", name)
            job.pool, job.pool_over = "Terminated", self.seconds

    def _search(self, query: Mapping[str, Any]) -> dict[str, Any]:
        """The index lags like the replicas; it knows nothing of a job's pool."""
        until = self._known_until(lags=self.replicas_lag or self.index_lags)
        wanted = {each["Name"]: each["Value"] for each in query["SearchExpression"]["Filters"]}
        found = [
            answer
            for job in self.jobs.values()
            if _tags_of(job).get(DEPLOYMENT_TAG) == wanted[f"Tags.{DEPLOYMENT_TAG}"]
            and (answer := job.answer(until=until))
            and answer["TrainingJobStatus"] == wanted["TrainingJobStatus"]
        ]
        return _page("Results", [{"TrainingJob": answer} for answer in found], query)

    def _list(self, query: Mapping[str, Any]) -> dict[str, Any]:
        """The list of jobs by their status or by that of their pools, which lags like the replicas."""
        until = self._known_until(lags=self.replicas_lag)
        self.pools_expire()
        if "StatusEquals" in query:
            of_status = [
                {"TrainingJobName": job.name, "TrainingJobArn": job.arn}
                for job in self.jobs.values()
                if (answer := job.answer(until=until))
                and answer["TrainingJobStatus"] == query["StatusEquals"]
                and answer["CreationTime"] > query["CreationTimeAfter"]
            ]
            return _page("TrainingJobSummaries", of_status, query)
        assert query["WarmPoolStatusEquals"] == "Available"
        found = [
            {
                "TrainingJobName": job.name,
                "TrainingJobArn": job.arn,
                "TrainingEndTime": NOON + timedelta(seconds=job.pool_since),
                "LastModifiedTime": NOON + timedelta(seconds=job.last_changed or job.pool_since),
                "WarmPoolStatus": {"Status": "Available"},
            }
            for job in self.jobs.values()
            if job.pool is not None
            and job.pool_since <= until
            and (job.pool == "Available" or job.pool_over > until)
            and NOON + timedelta(seconds=job.last_changed or job.pool_since) > query["LastModifiedTimeAfter"]
        ]
        return _page("TrainingJobSummaries", found, query)

    def _tags(self, arn: str) -> dict[str, Any]:
        name = arn.rpartition("/")[2]
        self._judge("ListTags", name)
        job = self.jobs.get(name)
        known = job is not None and job.answer(until=self._known_until(lags=self.replicas_lag)) is not None
        return {"Tags": job.request["Tags"] if job is not None and known else []}

    def _stop(self, name: str) -> None:
        self.before_removal("job", name)
        job = self.jobs.get(name)
        if job is None:
            raise client_error("StopTrainingJob", "ValidationException", "Requested resource not found.")
        self.stopped.append(name)
        if job.status != "InProgress":
            message = f"The request was rejected because the training job is in status {job.status}"
            raise client_error("StopTrainingJob", "ValidationException", message)
        job.status = "Stopping"
        self._change(job, "Stopping", after=0)

    def _change(self, job: ModelJob, secondary: str, *, after: float) -> None:
        self.seconds += after
        now = NOON + timedelta(seconds=self.seconds)
        if job.transitions:
            job.transitions[-1] = {**job.transitions[-1], "EndTime": now}
        job.secondary = secondary
        job.transitions.append({"Status": secondary, "StartTime": now, "StatusMessage": ""})
        if self.bills_by_the_clock and job.instances_since is None:
            job.trained_seconds = round(job.seconds_with_instances)
        job.answers.append((self.seconds, self._answer(job, now)))
        self.events.append(
            {
                "source": "aws.sagemaker",
                "detail-type": "SageMaker Training Job State Change",
                "detail": {"TrainingJobName": job.name, "TrainingJobStatus": job.status, "Tags": _tags_of(job)},
            }
        )

    def _answer(self, job: ModelJob, now: datetime) -> dict[str, Any]:
        answer = {
            "TrainingJobName": job.name,
            "TrainingJobArn": job.arn,
            "TrainingJobStatus": job.status,
            "SecondaryStatus": job.secondary,
            "CreationTime": NOON + timedelta(seconds=job.created),
            "LastModifiedTime": now,
            "ResourceConfig": {
                "InstanceType": job.chosen or _type_of(job.request),
                "InstanceCount": job.request["ResourceConfig"]["InstanceCount"],
                "VolumeSizeInGB": job.request["ResourceConfig"]["VolumeSizeInGB"],
                "VolumeKmsKeyId": job.request["ResourceConfig"].get("VolumeKmsKeyId"),
            },
            "SecondaryStatusTransitions": list(job.transitions),
            **{name: job.request[name] for name in _SAID_AS_ASKED if name in job.request},
        }
        if not job.live:
            answer["TrainingEndTime"] = now
            if job.failure:
                answer["FailureReason"] = job.failure
            if job.trained_seconds:
                answer["TrainingTimeInSeconds"] = job.trained_seconds
                answer["BillableTimeInSeconds"] = job.billable_seconds
        return answer

    def says(self, job: ModelJob, event: str, **fields: Any) -> None:
        """Write an event into a job's log."""
        at = (NOON + timedelta(seconds=self.seconds)).timestamp()
        launch = job.request["Environment"].get("SPOTKEEP_LAUNCH")
        document = {"event": event, "time": at, "launch": launch, **fields}
        self.logs.lines.setdefault(job.name, []).append(f"spotkeep-event: {json.dumps(document)}")


def over_quota(place: str, *, limit: int, used: int) -> str:
    """SageMaker's words for a job that a quota has no room for."""
    return (
        f"The account-level service limit '{place} for training job usage' is {limit} Instances, with current "
        f"utilization of {used} Instances and a request delta of 1 Instances. Please use AWS Service Quotas to request "
        "an increase for this quota."
    )


def is_waiting(job: ModelJob) -> bool:
    """Whether a job has no capacity, and no caller asked it to end."""
    return job.status == "InProgress" and job.secondary in _WAITING


def launch_marks(job_name: str) -> dict[str, str]:
    """Return what a launcher writes into the environment of a job to know its own job by."""
    run, _, attempt = job_name.rpartition("-")
    return {"SPOTKEEP_RUN": run, "SPOTKEEP_ATTEMPT": attempt, "SPOTKEEP_LAUNCH": f"launch of {job_name}"}


def _launchers_request(job_name: str) -> dict[str, Any]:
    return {
        "TrainingJobName": job_name,
        "RoleArn": "arn:aws:iam::123456789012:role/team-a",
        "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
        "Environment": launch_marks(job_name),
        "Tags": [{"Key": DEPLOYMENT_TAG, "Value": "spotkeep"}],
    }


def _page(name: str, found: Sequence[Any], query: Mapping[str, Any]) -> dict[str, Any]:
    """Return the page of what was found that a query asks for."""
    first, size = int(query.get("NextToken", 0)), query["MaxResults"]
    more = {"NextToken": str(first + size)} if first + size < len(found) else {}
    return {name: found[first : first + size], **more}


def _tags_of(job: ModelJob) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in job.request.get("Tags", ())}


def _fits(left: ModelJob, job: ModelJob) -> bool:
    """Whether a job takes the pool that another left."""
    ours, theirs = (
        {name: value for name, value in each.request["ResourceConfig"].items() if name != "KeepAlivePeriodInSeconds"}
        for each in (job, left)
    )
    return ours == theirs and job.request["RoleArn"] == left.request["RoleArn"]


def _type_of(request: Mapping[str, Any]) -> str:
    resources = request["ResourceConfig"]
    preferences = resources.get("InstancePreferences")
    return str(preferences[0]["InstanceType"] if preferences else resources["InstanceType"])
