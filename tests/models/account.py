"""The whole AWS of a story: training jobs, the run table, the notification topic, queues, schedules and objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.models.batch import Batch
from tests.models.dynamodb import InMemoryDynamoDb, Key, key_of
from tests.models.faults import Fault, Process, directly
from tests.models.functions import Functions
from tests.models.notifications import SqsQueue, Topic
from tests.models.s3 import BUCKET, Objects
from tests.models.sagemaker import ModelJob, SageMaker
from tests.models.scheduler import Schedules
from tests.models.unsureness import Unsureness


@dataclass(frozen=True, kw_only=True)
class Damage:
    """What is in an item that a newer version has written.

    Attributes:
        change: Its attributes that this version cannot read.
        may_write: The processes that had begun by then: they may have read it before.
    """

    change: Mapping[str, Any]
    may_write: Sequence[Process]


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
        unreadable: The items of the run table that a newer version has written, for all who do not judge.
        overwritten: Those of them that a function has written over.
    """

    def __init__(self) -> None:
        super().__init__(self.counted)
        self.dynamodb = InMemoryDynamoDb(directly)
        self.published: Counter[str] = Counter()
        self.excused: Counter[str] = Counter()
        self.topic = Topic(directly)
        self.dead_letters = SqsQueue(self.counted)
        self.calls: Counter[str] = Counter()
        self.before_publish: Callable[[str], None] = lambda _notification_id: None
        self.schedules = Schedules(self.counted, now=self.now)
        self.objects = Objects(self.counted, now=self.now)
        self.functions = Functions(self.counted)
        self.batch = Batch(self, self.counted)
        self.unsureness: Unsureness | None = None
        self.unreadable: dict[Key, Damage] = {}
        self.overwritten: list[Key] = []

    def clock(self) -> datetime:
        """The time, as the process that asks believes it to be."""
        process = Process.current()
        return self.now() + timedelta(seconds=process.skew if process else 0.0)

    def publish(self, **message: Any) -> dict[str, str]:
        """Publish a notification, as SNS's client."""
        notification_id = message["MessageAttributes"]["notification_id"]["StringValue"]
        answer: dict[str, str] = self.counted(
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

        def answered(parameters: dict[str, Any]) -> Any:
            answer = act(**parameters)
            return self._as_a_newer_version_wrote_it(answer, parameters) if self.unreadable else answer

        return lambda **parameters: self.counted(operation, lambda: answered(parameters))

    def is_written_by_a_newer_version(
        self, key: Key, change: Mapping[str, Any], *, may_write: Sequence[Process]
    ) -> None:
        """Let an item be as no function can read it, but for who judges.

        Args:
            key: The item's.
            change: Its attributes that this version cannot read.
            may_write: The processes that may have read it before.
        """
        self.unreadable[key] = Damage(change=change, may_write=tuple(may_write))

    def _as_a_newer_version_wrote_it(self, answer: Any, parameters: dict[str, Any]) -> Any:
        writes = [next(iter(each.values())) for each in parameters.get("TransactItems", ())]
        for write in (parameters, *writes):
            item = write.get("Item")
            damage = None if item is None else self.unreadable.pop(key_of(item), None)
            process = Process.current()
            if damage is not None and process is not None and process not in damage.may_write:
                self.overwritten.append(key_of(item))
        if not isinstance(answer, dict):
            return answer
        if "Item" in answer:
            return {**answer, "Item": self._damaged(answer["Item"])}
        return {**answer, "Items": [self._damaged(item) for item in answer["Items"]]} if "Items" in answer else answer

    def _damaged(self, item: dict[str, Any]) -> dict[str, Any]:
        damage = self.unreadable.get(key_of(item))
        return item if damage is None else {**item, **damage.change}

    def counted(self, operation: str, act: Callable[[], Any], *, hands: str | None = None) -> Any:
        """Make a call of a process, which may be held, throttled or killed there."""
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
