"""AWS Batch as the local AWS serves it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from spotkeep_local.batch.account import BatchAccount
from spotkeep_local.batch.errors import ClientError
from spotkeep_local.batch.jobs import ServiceJobs
from spotkeep_local.batch.resources import Resources
from spotkeep_local.batch.scheduler import Scheduler
from spotkeep_local.service_base.aws_service import AwsService, RestJsonProtocol, ValidationError
from spotkeep_local.service_base.state_change_events import PublishEvent, StateChangeEvents

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from spotkeep_local.capacity import EventFaults
    from spotkeep_local.options import ServerOptions
    from spotkeep_local.service_base.aws_service import Operation
    from spotkeep_local.training.service import TrainingService


class _BatchProtocol(RestJsonProtocol):
    """Batch's protocol. A request against the model is a ClientException, too."""

    def check(self, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Check parameters against the model. Raises `ClientError`."""
        try:
            return super().check(operation, parameters)
        except ValidationError as error:
            raise ClientError(error.message) from error


class BatchService:
    """The Batch of one local AWS.

    Args:
        state_dir: The folder where the service keeps its resources and jobs.
        options: The options of the local AWS.
        training: Runs the training jobs.
        publish_event: Puts an `aws.batch` event on the default bus. Called from a thread of its own.
        now: The clock, in epoch seconds.
    """

    def __init__(
        self,
        *,
        state_dir: Path,
        options: ServerOptions,
        training: TrainingService,
        publish_event: PublishEvent,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.account = BatchAccount(state_dir=state_dir, region=options.region, account_id=options.account_id)
        self._events = StateChangeEvents(publish_event)
        self._scheduler = Scheduler(
            self.account,
            training=training,
            send=self._events.send,
            now=now,
            hands_tags_on=options.batch_hands_tags_on,
        )
        jobs = ServiceJobs(self.account, announce=self._scheduler.announce, now=now)
        resources = Resources(self.account, end_jobs=jobs.end_jobs)
        self._protocol = _BatchProtocol("batch")
        operations = {**resources.operations, **jobs.operations}
        self.api = AwsService(self._protocol, {name: self._locked(operation) for name, operation in operations.items()})

    def start(self) -> None:
        """Take up the jobs of an earlier server. SageMaker has started before."""
        self._events.start()
        self._scheduler.start()

    def stop(self) -> None:
        """Save everything. Dispatched jobs are followed again by the next `start`."""
        self._scheduler.stop()
        self._events.stop()
        self.account.save()

    def set_event_faults(self, faults: EventFaults) -> None:
        """Set the faults of events that are sent from now on."""
        self._events.set_faults(faults)

    @property
    def control_operations(self) -> dict[str, Operation]:
        """Operations that AWS lets no client call."""
        return {"BatchTags": self._set_tags}

    def _set_tags(self, request: dict[str, Any]) -> dict[str, Any]:
        handed_on = request.get("handed_on")
        if not isinstance(handed_on, bool):
            raise ClientError(f"handed_on must be true or false, found {handed_on!r}")
        self._scheduler.hands_tags_on = handed_on
        return {}

    def call(self, operation: str, request: dict[str, Any]) -> Mapping[str, Any]:
        """Do an operation for another part of this local AWS.

        Raises:
            ServiceError: It is refused.
        """
        return self.api.operations[operation](self._protocol.check(operation, request))

    def _locked(self, operation: Operation) -> Operation:
        def locked(request: dict[str, Any]) -> Mapping[str, Any]:
            with self.account.lock:
                answer = operation(request)
            self.account.changed.set()
            return answer

        return locked
