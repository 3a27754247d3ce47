"""The client of what only a local AWS has: scripted capacity, faulty events, calls and invocations, facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotkeep_local.access.call_rates import CallCounts
from spotkeep_local.control_connection import ControlConnection
from spotkeep_local.training.facts import JobFacts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spotkeep_local.capacity import CallFaults, CapacityScript, EventFaults
    from spotkeep_local.lifecycle import LocalAws


class LocalControl:
    """Talks to the control plane of a local AWS; `fleet_control` is its like for EC2.

    Args:
        local: The local AWS, as `lifecycle.status` finds it.
    """

    def __init__(self, local: LocalAws) -> None:
        self._connection = ControlConnection(local)

    def script_capacity(self, *, run: str, script: CapacityScript) -> list[str]:
        """Put a run's capacity under a script.

        It applies at once to the live training jobs named `<run>` or `<run>-<number>`; when there is none, to the
        next one, and to no other after that. A script replaces what is left of an earlier one.

        Args:
            run: The run, or a training job's whole name.
            script: What happens to its capacity.

        Returns:
            The live training jobs it applies to; empty when it waits for the next one.

        Raises:
            ControlError: The local AWS refused, or is not there.
        """
        answer = self._connection.call("ScriptCapacity", {"run": run, "script": script.to_document()})
        return list(answer["training_jobs"])

    def event_faults(self, faults: EventFaults) -> None:
        """Set what goes wrong with state-change events from now on; `EventFaults()` ends all faults.

        Raises:
            ControlError: The local AWS refused, or is not there.
        """
        self._connection.call("EventFaults", faults.to_document())

    def call_faults(self, faults: CallFaults) -> None:
        """Set what calls meet from now on; `CallFaults()` ends all faults.

        Raises:
            ControlError: The local AWS refused, or is not there.
        """
        self._connection.call("CallFaults", faults.to_document())

    def call_counts(self) -> CallCounts:
        """Return how fast calls of SageMaker and AWS Batch came since this was asked last, those of every caller.

        Calls that `call_faults` throttles are not among them.

        Raises:
            ControlError: The local AWS refused, or is not there.
        """
        return CallCounts(**self._connection.call("CallCounts", {}))

    def end_invocations(self, function: str) -> int:
        """Kill the process of each invocation of a function that is under way, as when its machine dies.

        Lambda tries an asynchronous invocation again; what an event rule has invoked is not tried again here.

        Args:
            function: The function's name.

        Returns:
            How many there were.

        Raises:
            ControlError: The local AWS refused, or is not there.
        """
        return int(self._connection.call("EndInvocations", {"function": function})["ended"])

    def training_quota(self, instances: int) -> None:
        """Set how many instances of one type training jobs may use on spot, and as many on demand, from now on.

        Raises:
            ControlError: The local AWS refused, or is not there.
        """
        self._connection.call("TrainingQuota", {"instances": instances})

    def warm_pool_quota(self, instances: int) -> None:
        """Set how many instances may be in warm pools from now on; 0, as in a new AWS account, keeps none.

        Raises:
            ControlError: The local AWS refused, or is not there.
        """
        self._connection.call("WarmPoolQuota", {"instances": instances})

    def batch_tags(self, *, handed_on: bool) -> None:
        """Set whether training jobs that Batch makes from now on get the tags of their service job.

        Raises:
            ControlError: The local AWS refused, or is not there.
        """
        self._connection.call("BatchTags", {"handed_on": handed_on})

    def image_program(self, image: str, program: Sequence[str]) -> None:
        """Name the program that stands for an image: it runs with the argument `train` in jobs without an entry point.

        Args:
            image: Whole, or without its registry: `sagemaker-xgboost:1.7-1`.
            program: Its words. What begins with `/opt/ml` is the job's.

        Raises:
            ControlError: The local AWS refused, or is not there.
        """
        self._connection.call("ImageProgram", {"image": image, "program": list(program)})

    def job_facts(self, job_name: str) -> JobFacts:
        """Return what really happened to a training job's processes.

        Raises:
            ControlError: There is no such job, or no local AWS.
        """
        return JobFacts.from_document(self._connection.call("JobFacts", {"job_name": job_name}))
