"""The questions that AWS's documentation leaves open, and the answers of the first paid hour. Pure.

A line of docs/ that names an open question links to its id, as `[unverified](first-account.md#sync-order)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

from spotkeep_fleet.tags import RUN_TAG

_SLACK_SECONDS: Final = 40.0
NOT_ABOUT_AWS: Final = "local AWS: not an answer about AWS"


class Verdict(StrEnum):
    """The kind of an answer."""

    AS_DOCUMENTED = "as documented"
    OTHERWISE = "otherwise"
    NOT_ANSWERED = "not answered"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer to one question.

    Attributes:
        verdict: Its kind.
        seen: The observation, or the reason that there is none.
    """

    verdict: Verdict
    seen: str


@dataclass(frozen=True, kw_only=True)
class SeenJob:
    """The observations of one job of the hour.

    Attributes:
        run: The id of its run. Empty where it was not launched.
        state: The state of the run at the end.
        problem: The reason that it was not run, or not to its end.
        printed: The facts of its script, in order of time, each with `attempt`.
        jobs: The answers of DescribeTrainingJob with `Tags`, first to last.
        service_jobs: The answers of DescribeServiceJob, first to last.
        noted: Facts of the steps of the hour, such as `extended_after_seconds`.
    """

    run: str = ""
    state: str = ""
    problem: str = ""
    printed: tuple[Mapping[str, Any], ...] = ()
    jobs: tuple[Mapping[str, Any], ...] = ()
    service_jobs: tuple[Mapping[str, Any], ...] = ()
    noted: Mapping[str, Any] = field(default_factory=dict)

    def facts(self, name: str) -> list[Mapping[str, Any]]:
        """Return the printed facts of a name."""
        return [fact for fact in self.printed if fact["fact"] == name]


Observed: TypeAlias = Mapping[str, SeenJob]
"""The observations by the kind of the job."""


def _as_documented(seen: str) -> Answer:
    return Answer(verdict=Verdict.AS_DOCUMENTED, seen=seen)


def _otherwise(seen: str) -> Answer:
    return Answer(verdict=Verdict.OTHERWISE, seen=seen)


def _unanswered(why: str) -> Answer:
    return Answer(verdict=Verdict.NOT_ANSWERED, seen=why)


@dataclass(frozen=True, kw_only=True)
class Question:
    """One open question.

    Attributes:
        id: Its id, which lines of docs/ link to.
        asks: The question.
        documented: The present statement of docs/.
        job: The kind of the job whose observations answer it. Empty for a question that the hour does not ask.
        answer: The answer from the observations of that job.
    """

    id: str
    asks: str
    documented: str
    job: str = ""
    answer: Callable[[SeenJob], Answer]

    def answered(self, observed: Observed, *, local: bool) -> Answer:
        """Return the answer from the observations of the hour.

        Args:
            observed: The observations.
            local: True on the local AWS, which answers nothing about AWS.
        """
        seen = observed.get(self.job, SeenJob())
        if self.job and not (seen.jobs or seen.service_jobs or seen.printed):
            found = _unanswered(f"the job {self.job} was not run: {seen.problem or 'it is not in the plan'}")
        else:
            found = self.answer(seen)
        return _unanswered(f"{NOT_ABOUT_AWS} ({found.seen})") if local else found


def _statuses(seen: SeenJob) -> list[str]:
    return [str(each["Status"]) for job in seen.jobs for each in job.get("SecondaryStatusTransitions", ())]


def _sigterm_on_spot(seen: SeenJob) -> Answer:
    if "Interrupted" not in _statuses(seen):
        return _unanswered("AWS interrupted no job in this hour")
    if signals := len(seen.facts("sigterm")):
        return _otherwise(f"the script got SIGTERM {signals} times")
    return _as_documented("the job was interrupted, and its script got no SIGTERM")


def _end_on_notice(seen: SeenJob) -> Answer:
    statuses = _statuses(seen)
    if "Interrupted" not in statuses:
        return _unanswered("AWS interrupted no job in this hour")
    after = statuses[statuses.index("Interrupted") + 1 :]
    return (_as_documented if "Starting" in after else _otherwise)(f"after Interrupted came {', '.join(after) or '-'}")


def _sync_order(seen: SeenJob) -> Answer:
    wrote: list[str] = next((fact["files"] for fact in seen.facts("wrote")), [])
    marked = [fact["file"] for fact in sorted(seen.facts("uploaded"), key=lambda fact: fact["marked_at"])]
    first = list(dict.fromkeys(marked))
    if len(first) < 2:
        return _unanswered(f"the script saw the upload of {len(first)} of {len(wrote)} files")
    if first == [name for name in wrote if name in first]:
        return _unanswered(f"uploaded in the order of writing, which promises nothing: {', '.join(first)}")
    return _as_documented(f"written as {', '.join(wrote)}, and uploaded as {', '.join(first)}")


def _upload_markers(seen: SeenJob) -> Answer:
    wrote = next((len(fact["files"]) for fact in seen.facts("wrote")), 0)
    if not wrote:
        return _unanswered("the script wrote no files")
    marked = len({fact["file"] for fact in seen.facts("uploaded")})
    return (_as_documented if marked else _otherwise)(f"{marked} of {wrote} files got a marker")


def _host_names(seen: SeenJob) -> Answer:
    hosts = seen.facts("host")
    if len(hosts) < 2:
        return _unanswered(f"{len(hosts)} hosts printed their names")
    words = "; ".join(f"{each['current']} has the hostname {each['hostname']}" for each in hosts)
    same = all(each["hostname"] == each["current"] and not each["resolves_to"].startswith("127.") for each in hosts)
    return (_otherwise if same else _as_documented)(words)


def _batch_tags(seen: SeenJob) -> Answer:
    if not seen.jobs:
        return _unanswered("the queue made no training job")
    tags = sorted(tag["Key"] for tag in seen.jobs[-1].get("Tags", ()))
    words = f"the training job has the tags {', '.join(tags) or 'none'}"
    return (_otherwise if RUN_TAG in tags else _as_documented)(words)


def _batch_started_at(seen: SeenJob) -> Answer:
    waiting = [job for job in seen.service_jobs if job.get("status") in ("SUBMITTED", "RUNNABLE", "SCHEDULED")]
    if not waiting:
        return _unanswered("the service job had begun when it was first described")
    value = waiting[0].get("startedAt")
    return (_as_documented if value == 0 else _otherwise)(f"startedAt is {value} in {waiting[0]['status']}")


def _batch_next_job(seen: SeenJob) -> Answer:
    if len(seen.jobs) < 2:
        return _unanswered(f"the queue made {len(seen.jobs)} training jobs")
    pairs = zip(seen.jobs, seen.jobs[1:], strict=False)
    early = [later["TrainingJobName"] for job, later in pairs if later["CreationTime"] < job["TrainingEndTime"]]
    return _otherwise(f"created before the last one ended: {', '.join(early)}") if early else _as_documented("in turn")


def _pool(job: Mapping[str, Any]) -> Mapping[str, Any]:
    status: Mapping[str, Any] = job.get("WarmPoolStatus") or {}
    return status


def _pool_quota(seen: SeenJob) -> Answer:
    status = seen.noted.get("pool_after_end") or {}
    if status.get("Status") in ("Available", "InUse", "Reused"):
        return _unanswered("the account has the quota")
    return _as_documented(f"WarmPoolStatus is {status.get('Status', 'missing')} after the job's end")


def _pool_period(seen: SeenJob) -> Answer:
    if "extended_to_seconds" not in seen.noted:
        return _unanswered("the pool was not extended")
    shown, asked = seen.noted.get("period_shown"), seen.noted["extended_to_seconds"]
    words = f"KeepAlivePeriodInSeconds is {shown} after an extension to {asked}"
    return (_as_documented if shown == asked else _otherwise)(words)


def _pool_extension(seen: SeenJob) -> Answer:
    if "extended_to_seconds" not in seen.noted:
        return _unanswered("the pool was not extended")
    kept = _pool(seen.jobs[-1]).get("ResourceRetainedBillableTimeInSeconds")
    if kept is None or _pool(seen.jobs[-1]).get("Status") != "Terminated":
        return _unanswered("the pool had not expired when the hour ended")
    asked, after = seen.noted["extended_to_seconds"], seen.noted["extended_after_seconds"]
    words = f"billed for {kept} s, extended to {asked} s at {after:.0f} s after the job's end"
    if abs(kept - asked) <= min(_SLACK_SECONDS, after / 2):
        return _as_documented(words)
    return _otherwise(words)


def _pool_without_keep_alive(seen: SeenJob) -> Answer:
    if len(seen.jobs) < 2 or _pool(seen.jobs[0]).get("Status") is None:
        return _unanswered("the stopped job left no pool, or was not resumed")
    taken = _pool(seen.jobs[0]).get("ReusedByJob") == seen.jobs[1]["TrainingJobName"]
    words = f"the pool is {_pool(seen.jobs[0])['Status']} after a job without a keep-alive period"
    return (_as_documented if taken else _otherwise)(words)


def _not_asked(why: str) -> Callable[[SeenJob], Answer]:
    return lambda _seen: _unanswered(f"not asked: {why}")


# fmt: off
_TABLE: Final[tuple[tuple[str, str, Callable[[SeenJob], Answer], str, str], ...]] = (
    ("spot-sigterm", "spot", _sigterm_on_spot,
        "Does a script get SIGTERM when AWS takes a managed spot instance?",
        "no SIGTERM is documented, so a script does without"),
    ("end-on-notice", "spot", _end_on_notice,
        "How does SageMaker treat a container that ends during an interruption?",
        "not known, so the runner stays alive, and the job starts again"),
    ("sync-order", "spot", _sync_order,
        "In which order does SageMaker upload checkpoint files?",
        "in any order"),
    ("upload-markers", "spot", _upload_markers,
        "Does a marker `<file>.sagemaker-uploaded` appear beside each uploaded checkpoint file?",
        "yes, without a promise"),
    ("host-names", "hosts", _host_names,
        "Is the hostname of a container the host's name in the job?",
        "no"),
    ("interrupted-hosts", "", _not_asked("NCCL needs several hosts with GPUs, which cost more than the ceiling"),
        "Does a training on several hosts come back from an interruption, with NCCL between them?",
        "the parts are shown on one machine"),
    ("host-exit", "", _not_asked("no job of the hour loses one of several hosts"),
        "How does a job on several hosts end when one of them exits with code 75?",
        "it fails, and the run goes on with another job"),
    ("neuron-hosts", "", _not_asked("types with Neuron devices and several machines cost more than the ceiling"),
        "Does a training on several machines with AWS Neuron devices come back from an interruption?",
        "a rank for each Neuron core; the rest is not shown"),
    ("nodes-nccl", "", _not_asked("several instances with GPUs cost more than the ceiling"),
        "Do ranks of NCCL on several EC2 instances end when one is taken, and begin again on those that are there?",
        "yes, as ranks of gloo do on one machine"),
    ("nodes-efa", "", _not_asked("the types with an Elastic Fabric Adapter cost more than the ceiling"),
        "Does a fleet's override place a template's EFA without a subnet, and does it get a public address?",
        "both, with one network interface"),
    ("nodes-placement", "", _not_asked("the fleet of the hour has one instance"),
        "Does a maintain fleet launch and replace spot instances in the placement group of its overrides?",
        "yes, as long as EC2 has room there"),
    ("group-deletion", "", _not_asked("it ends with the deployment"),
        "How long does CloudFormation try to delete a security group that an instance still has?",
        "longer than an instance shuts down"),
    ("batch-tags", "queue", _batch_tags,
        "Do training jobs of a queue get the tags of their service job?",
        "a training job of a queue may have no tags"),
    ("batch-started-at", "queue", _batch_started_at,
        "Which `startedAt` has a service job that has not started?",
        "0"),
    ("batch-next-job", "queue", _batch_next_job,
        "Does the next training job of a service job start after the end of the last one?",
        "yes"),
    ("batch-spot", "", _not_asked("an interruption of SageMaker's spot capacity cannot be ordered"),
        "How does a queue count a job that spot interrupts, and is a warm pool kept?",
        "spot with a warning, and no warm pool"),
    ("batch-delete-queue", "", _not_asked("the queue is the deployment's"),
        "Is DeleteJobQueue refused while the queue has quota shares?",
        "yes"),
    ("batch-quota", "", _not_asked("the quota would have to be used up"),
        "Does a queue wait for room in a used-up quota?",
        "yes, as for capacity"),
    ("batch-share-decay", "", _not_asked("it needs the load of many jobs"),
        "How does `shareDecaySeconds` decay?",
        "use within that time counts"),
    ("batch-token", "", _not_asked("the launcher submits one payload for each token"),
        "How many jobs do two submissions with one `clientToken` and two payloads make?",
        "two jobs"),
    ("pool-choice", "", _not_asked("each pool of the hour fits one job alone"),
        "Which of several matching pools does a job take?",
        "the longest kept comes first in `match`"),
    ("pool-types", "", _not_asked("each pool of the hour fits one job alone"),
        "Does a job with several instance types take a pool?",
        "no"),
    ("pool-extension", "pool", _pool_extension,
        "From when does an extended keep-alive period count?",
        "from the job's end"),
    ("pool-quota", "pool", _pool_quota,
        "How does a missing warm pool quota show?",
        "no pool status, or Terminated at once"),
    ("pool-period", "pool", _pool_period,
        "Does DescribeTrainingJob show a changed keep-alive period?",
        "yes"),
    ("pool-without-keep-alive", "stop", _pool_without_keep_alive,
        "Does a job without `keep_alive` take a pool?",
        "it may"),
    ("pending-end", "", _not_asked("the limit is for instances with accelerators"),
        "How does a job end after its `MaxPendingTimeInSeconds`?",
        "a stopped job without instances counts as one"),
    ("shell-command", "", _not_asked("a session needs a terminal and the Session Manager plugin"),
        "Does a session with a command work in a training container, and for which sessions is a log written?",
        "a shell works on SageMaker, and a command need not"),
    ("call-rate", "", _not_asked("a burst of calls would slow the account's other work"),
        "How does AWS measure the rate of calls?",
        "in any second, without a reserve for bursts"),
    ("policy-set-key", "", _not_asked("no policy of the deployment has one"),
        "How does IAM judge a key of several values without a set operator?",
        "the local AWS denies, and names it"),
    ("channel-keys", "", _not_asked("the jobs of the hour have no channels"),
        "Which keys of S3 objects does SageMaker refuse in a channel?",
        "keys with `//`, and channels without objects"),
    ("file-systems", "", _not_asked("a file system bills by its size, and needs a VPC"),
        "Which permissions of the job's role does a mount of FSx for Lustre or EFS need?",
        "none beyond the network interfaces"),
    ("lustre-client", "", _not_asked("a file system bills by its size"),
        "Has the default AMI the client of FSx for Lustre, for its kernel?",
        "no: the run ends, and names the package"),
    ("mlflow-config", "", _not_asked("it needs a tracking server, which bills by the hour"),
        "How does `MlflowConfig` work in a container?",
        "not used"),
)
# fmt: on
QUESTIONS: Final = tuple(
    Question(id=id_, job=job, answer=answer, asks=asks, documented=documented)
    for id_, job, answer, asks, documented in _TABLE
)
"""Each open question of docs/."""
