"""What the commands need of a deployment, and nothing more: the seam between them and AWS.

`aws_deployment.AwsDeployment` is the real one; tests put a fake here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from spotkeep_cli.account.check import AccountCheck
    from spotkeep_cli.drill.recovery import DrillState
    from spotkeep_jobs.record.price_book import PriceBook
    from spotkeep_jobs.record.record import Attempt, Backend, Notification, Plan, Pool, Run, TimelineEntry
    from spotkeep_jobs.record.states import RunState

    # Named here because `RunReader.list` hides the builtin within its class.
    Runs = list[Run]
    Attempts = list[Attempt]
    Timeline = list[TimelineEntry]
    Notifications = list[Notification]


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """One line of a job's log.

    Attributes:
        time: When CloudWatch Logs was given it.
        stream: The host that wrote it (`algo-1`).
        text: The line without its end.
    """

    time: datetime
    stream: str
    text: str


@dataclass(frozen=True, kw_only=True)
class StoredObject:
    """One object in S3.

    Attributes:
        key: Its key, without the prefix that was asked for.
        size: Its length in bytes.
    """

    key: str
    size: int


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """A message of the queue.

    Attributes:
        notification_id: Of the notification it is about.
        subject_id: The run that the notice is about.
        receipt: By which it is deleted or given back.
    """

    notification_id: str
    subject_id: str
    receipt: str


@dataclass(frozen=True, kw_only=True)
class StoredVersion:
    """One version of an object.

    Attributes:
        run: The run it is stored for.
        size: Its length in bytes.
        written_at: When.
    """

    run: str
    size: int
    written_at: datetime


class StoredObjects(Protocol):
    """The objects below one prefix."""

    def list(self) -> Sequence[StoredObject]:
        """Everything below the prefix."""

    def read(self, key: str, *, max_bytes: int) -> bytes:
        """The first bytes of one object."""

    def download(self, key: str, path: Path, *, on_bytes: Callable[[int], None]) -> None:
        """Put one object into a new file; `on_bytes` is called with how many more bytes have come, from any thread."""


class JobLog(Protocol):
    """The log of one training job, read forward."""

    def read(self) -> list[LogLine]:
        """The lines that came since the last read, in order; empty when there are none (yet)."""


class Drill(Protocol):
    """A drill on one run: its instance is taken away on purpose."""

    def instance(self) -> tuple[str, str]:
        """The spot instance that works on the run, and its zone.

        Raises:
            RefusedError: The deployment has no drills, or the run has no such instance.
        """

    def start(self, instance: str, *, token: str) -> str:
        """Starts the experiment on an instance, and gives its id."""

    def spare(self, instance: str) -> None:
        """Sees to it that no later experiment means this instance."""

    def describe(self, *, at: float) -> DrillState:
        """Describes the experiment and the run at this moment, in seconds since any fixed one."""


class RunReader(Protocol):
    """The run table, as far as the commands read it. `spotkeep_jobs.record.run_table.RunTable` is one."""

    def get(self, run: str) -> Run | None:
        """One run's head."""

    def list(self, *, owner: str | None = None, states: Collection[RunState] | None = None, limit: int = 100) -> Runs:
        """Runs, newest first."""

    def timeline(self, run: str) -> Timeline:
        """What happened to a run, oldest first."""

    def plan(self, run: str) -> Plan | None:
        """What a run was planned with, if it was."""

    def price_book(self, region: str) -> PriceBook | None:
        """AWS's prices as they were read last, if they were."""

    def attempts(self, run: str) -> Attempts:
        """A run's attempts, first to last."""

    def pool(self, run: str, attempt: int) -> Pool | None:
        """The warm pool that an attempt's job left."""

    def notifications(self, run: str) -> Notifications:
        """A run's notifications, sent or not, in the order of what they tell."""

    def unsent_notifications(self, *, limit: int = 100) -> Notifications:
        """Notifications on their way out, oldest first."""

    def dead_notifications(self, *, limit: int = 500) -> Notifications:
        """Notifications that are not tried again."""


class DeadLetters(Protocol):
    """The dead-letter queue of notifications: a message for each that could not be sent."""

    def take(self) -> Sequence[DeadLetter]:
        """Every message that no other reader holds, hidden from others for some minutes."""

    def delete(self, letters: Sequence[DeadLetter]) -> None:
        """Delete messages that were taken."""

    def give_back(self, letters: Sequence[DeadLetter]) -> None:
        """Let others see messages again that were taken."""


class DeploymentClient(Protocol):
    """One deployed Spotkeep."""

    @property
    def region(self) -> str:
        """Where it is."""

    @property
    def checkpoint_bucket(self) -> str:
        """The bucket of its runs."""

    @property
    def isolated_teams(self) -> tuple[str, ...]:
        """The teams whose runs are stored apart."""

    @property
    def notification_topic_arn(self) -> str:
        """The SNS topic of its notifications."""

    @property
    def runs(self) -> RunReader:
        """Its run table."""

    @property
    def dead_letters(self) -> DeadLetters | None:
        """Its dead-letter queue of notifications; None in a deployment that is older than the queue."""

    def invoke_launcher(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Calls the launcher function and returns its answer.

        Raises:
            LauncherError: The function raised, or its answer is not JSON.
            NoConnectionError: The call did not come through, also when tried again.
        """

    def check_account(self, *, clock: Callable[[], datetime]) -> AccountCheck:
        """Finds orphans, and reads the quotas that matter. Changes nothing."""

    def job_log(self, job_name: str, *, backend: Backend = "sagemaker") -> JobLog:
        """The log of an attempt: of its training job, or of the instances of its fleet."""

    def drill(self, run: str) -> Drill:
        """A drill on a run."""

    def upload_source(self, *, key: str, content: bytes) -> str:
        """Puts a source archive into the bucket, unless it is there, and returns its S3 URI."""

    def stored_objects(self, uri: str) -> StoredObjects:
        """What is stored below an S3 URI of this deployment."""

    def stored_versions(self) -> Iterable[StoredVersion]:
        """Every version of every run's objects that the bucket still holds.

        Raises:
            NoConnectionError: S3 refused or could not be reached.
        """
