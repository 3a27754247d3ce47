"""The whole AWS of a story: training jobs, the run table, the notification topic, queues, schedules and objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from tests.models.batch import Batch
from tests.models.dynamodb import InMemoryDynamoDb
from tests.models.faults import Fault, Process, directly
from tests.models.functions import Functions
from tests.models.notifications import SqsQueue, Topic
from tests.models.s3 import BUCKET, Objects
from tests.models.sagemaker import ModelJob, SageMaker
from tests.models.scheduler import Schedules
from tests.models.unsureness import Unsureness


class Account(SageMaker):
    """An account, which is at the same time the client of SageMaker, DynamoDB and SNS in it.

    Attributes:
        dynamodb: The run table, for who judges: a call of it is not counted and meets no fault.
        published: How often each notification was published, by its id.
        excused: How often each may have been published twice: SNS has no transaction with the record, so a function
            that is hit in between sends the notification again.
        topic: The topic of notifications.
        dead_letters: SQS, with the queue of dead notifications.
        schedules: EventBridge Scheduler.
        objects: S3.
        functions: Lambda.
        batch: AWS Batch.
        calls: How often each operation was called.
        unsureness: What becomes of the calls of processes for which a story asks nothing else; None for nothing.
    """

    def __init__(self) -> None:
        super().__init__(self._counted)
        self.dynamodb = InMemoryDynamoDb(directly)
        self.published: Counter[str] = Counter()
        self.excused: Counter[str] = Counter()
        self.topic = Topic(directly)
        self.dead_letters = SqsQueue(self._counted)
        self.calls: Counter[str] = Counter()
        self.before_publish: Callable[[str], None] = lambda _notification_id: None
        self.schedules = Schedules(self._counted, now=self.now)
        self.objects = Objects(self._counted)
        self.functions = Functions(self._counted)
        self.batch = Batch(self, self._counted)
        self.unsureness: Unsureness | None = None

    def clock(self) -> datetime:
        """The time, as the process that asks believes it to be."""
        process = Process.current()
        return self.now() + timedelta(seconds=process.skew if process else 0.0)

    def publish(self, **message: Any) -> dict[str, str]:
        """Publish a notification, as SNS's client."""
        notification_id = message["MessageAttributes"]["notification_id"]["StringValue"]
        answer: dict[str, str] = self._counted(
            "Publish", lambda: self._publish(notification_id, message), hands=notification_id
        )
        return answer

    def saved(self, job: ModelJob) -> None:
        """Write the manifest of a job's checkpoint."""
        folder = job.checkpoint_uri.removeprefix(f"s3://{BUCKET}/")
        self.objects.written[f"{folder}step-{job.position}/manifest.json"] = self.now()

    def __getattr__(self, method: str) -> Callable[..., Any]:
        """Return a method of DynamoDB's client, which is every other one."""
        act = getattr(self.dynamodb, method)
        operation = "".join(word.capitalize() for word in method.split("_"))
        return lambda **parameters: self._counted(operation, lambda: act(**parameters))

    def _counted(self, operation: str, act: Callable[[], Any], *, hands: str | None = None) -> Any:
        self.calls[operation] += 1
        process = Process.current()
        if process is None:
            return act()
        recording, process.in_hand = process.in_hand, None
        try:
            unsure = self.unsureness
            answer = (
                process.call(operation, act)
                if unsure is None
                else process.call(operation, act, chosen=self._chosen, error_of=unsure.error_of)
            )
        finally:
            if process.fault_met in (Fault.REFUSED, Fault.DEATH) and recording:
                self.excused[recording] += 1
            if process.fault_met is Fault.ANSWER_LOST and hands:
                self.excused[hands] += 1
        process.in_hand = hands
        return answer

    def _chosen(self, operation: str) -> Fault | None:
        """Choose when the call is made: a process may have been held before it while the story changed its mind."""
        return None if self.unsureness is None else self.unsureness.fault_of(operation)

    def _publish(self, notification_id: str, message: dict[str, Any]) -> dict[str, str]:
        self.before_publish(notification_id)
        self.published[notification_id] += 1
        return self.topic.publish(**message)
