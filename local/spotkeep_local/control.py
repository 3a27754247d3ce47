"""The client of the operations that only a local AWS has, for scripted capacity, faults, invocations and facts."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from spotkeep_local.access.call_rates import CallCounts
from spotkeep_local.daemon.state_directory import CONTROL_TARGET
from spotkeep_local.ec2.records import InstanceFacts, Platform
from spotkeep_local.errors import LocalAwsError
from spotkeep_local.iam.report import REPORTS
from spotkeep_local.iam.uses import JUDGING_TIME
from spotkeep_local.training.job import LocalJobFacts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spotkeep_local.capacity import CallFaults, CapacityScript, EventFaults
    from spotkeep_local.ec2.market import SpotPoolChange
    from spotkeep_local.iam.report import IdentityReport
    from spotkeep_local.iam.uses import JudgingTime
    from spotkeep_local.lifecycle import LocalAws

_TIMEOUT_SECONDS = 30.0
_MOST_ANSWER_BYTES = 64 * 1024 * 1024
_MOST_ERROR_BYTES = 64 * 1024


class ControlError(LocalAwsError):
    """The local AWS refused a request, or is not there."""


class ControlConnection:
    """Calls operations of the control plane.

    Args:
        local: The local AWS.
    """

    def __init__(self, local: LocalAws) -> None:
        self._endpoint_url = local.endpoint_url
        self._signer = SigV4Auth(
            Credentials(local.access_key.access_key_id, local.access_key.secret_access_key), "sagemaker", local.region
        )
        # A proxy in the environment has no business between this machine and itself.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def call(self, operation: str, document: dict[str, Any]) -> dict[str, Any]:
        """Carry one operation out.

        Raises:
            ControlError: The local AWS refused, or is not there.
        """
        signed = AWSRequest(
            method="POST",
            url=self._endpoint_url,
            data=json.dumps(document).encode(),
            headers={
                "Content-Type": "application/x-amz-json-1.1",
                "X-Amz-Target": f"{CONTROL_TARGET}.{operation}",
            },
        )
        self._signer.add_auth(signed)
        request = urllib.request.Request(  # noqa: S310 - the endpoint is the caller's own
            self._endpoint_url, data=signed.data, headers=dict(signed.headers.items())
        )
        try:
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
                body: dict[str, Any] = json.loads(answer.read(_MOST_ANSWER_BYTES))
        except urllib.error.HTTPError as error:
            with error:
                raise ControlError(
                    f"the local AWS refused {operation}: {_message(error.read(_MOST_ERROR_BYTES))}"
                ) from error
        except (OSError, ValueError) as error:
            raise ControlError(
                f"no local AWS answers at {self._endpoint_url} ({error}); start one with `spotkeep local up`"
            ) from error
        return body


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")


class LocalControl:
    """Talks to the control plane of a local AWS. `FleetControl` is its like for EC2.

    Args:
        local: The local AWS, as `lifecycle.status` finds it.
    """

    def __init__(self, local: LocalAws) -> None:
        self._connection = ControlConnection(local)

    def script_capacity(self, *, run: str, script: CapacityScript) -> list[str]:
        """Put a run's capacity under a script.

        It applies at once to the live training jobs named `<run>` or `<run>-<number>`. When there is none, it applies
        to the next one, and to no other after that. A script replaces the rest of an earlier one.

        Args:
            run: The run, or a training job's whole name.
            script: The changes of its capacity.

        Returns:
            The live training jobs it applies to. Empty when it waits for the next one.

        Raises:
            ControlError: The local AWS refused, or is not there.
        """
        answer = self._connection.call("ScriptCapacity", {"run": run, "script": script.to_document()})
        return list(answer["training_jobs"])

    def event_faults(self, faults: EventFaults) -> None:
        """Set the faults of state-change events from now on. `EventFaults()` ends all faults.

        Raises:
            ControlError: The local AWS refused, or is not there.
        """
        self._connection.call("EventFaults", faults.to_document())

    def call_faults(self, faults: CallFaults) -> None:
        """Set the faults of calls from now on. `CallFaults()` ends all faults.

        Raises:
            ControlError: The local AWS refused, or is not there.
        """
        self._connection.call("CallFaults", faults.to_document())

    def call_counts(self) -> CallCounts:
        """Return the rates of all callers' calls of SageMaker and AWS Batch since the last such question.

        Calls that `call_faults` throttles are not among them.

        Raises:
            ControlError: The local AWS refused, or is not there.
        """
        return CallCounts(**self._connection.call("CallCounts", {}))

    def end_invocations(self, function: str) -> int:
        """Kill the process of each running invocation of a function, as when its machine dies.

        Lambda tries an asynchronous invocation again. An invocation by an event rule is not tried again here.

        Args:
            function: The function's name.

        Returns:
            The number of killed invocations.

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
        """Set how many instances may be in warm pools from now on. 0, as in a new AWS account, keeps none.

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
        """Name the program that stands for an image. It runs with the argument `train` in jobs without an entry point.

        Args:
            image: The image, whole or without its registry, for example `sagemaker-xgboost:1.7-1`.
            program: The words of its command line. A word that begins with `/opt/ml` is a path of the job's.

        Raises:
            ControlError: The local AWS refused, or is not there.
        """
        self._connection.call("ImageProgram", {"image": image, "program": list(program)})

    def job_facts(self, job_name: str) -> LocalJobFacts:
        """Return the facts about a training job's processes.

        Raises:
            ControlError: There is no such job, or no local AWS.
        """
        return LocalJobFacts.from_document(self._connection.call("JobFacts", {"job_name": job_name}))


class FleetControl:
    """Talks to the control plane of a local AWS's EC2. Every method raises ControlError when that refuses.

    Args:
        local: The local AWS, as `lifecycle.status` finds it.
    """

    def __init__(self, local: LocalAws) -> None:
        self._connection = ControlConnection(local)

    def interrupt(
        self, instance_id: str, *, notice: bool = True, notice_seconds: float | None = None, takes_place: bool = True
    ) -> float:
        """Interrupt a spot instance.

        Args:
            instance_id: The instance's id.
            notice: True where it gets a notice. Otherwise its power is cut now.
            notice_seconds: The seconds from the notice to the end. None for two minutes, divided by the time scale.
            takes_place: False for a notice that no interruption follows.

        Returns:
            The time when it is gone, in epoch seconds.
        """
        document = {"notice": notice, "notice_seconds": notice_seconds, "takes_place": takes_place}
        return float(
            self._connection.call("InterruptInstance", {"instance_id": instance_id, **document})["interrupted_at"]
        )

    def warn_of(self, instance_id: str) -> None:
        """Send the event of an interruption notice for any instance id, which may belong to no instance here."""
        self._connection.call("WarnOfInstance", {"instance_id": instance_id})

    def change_pool(self, change: SpotPoolChange) -> None:
        """Change a zone's capacity or price from now on. Spot instances without room are interrupted."""
        self._connection.call("ChangePool", asdict(change))

    def script_market(self, changes: Sequence[SpotPoolChange]) -> None:
        """Replace the script of the whole spot market by one that begins now."""
        self._connection.call("ScriptMarket", {"changes": [asdict(change) for change in changes]})

    def unseen_for(self, seconds: float) -> None:
        """Hide fleets, instances and versions of launch templates from requests for so long after they are made."""
        self._connection.call("Consistency", {"unseen_seconds": seconds})

    def cut_off(self, instance_id: str, *, instances: Sequence[str] | None = None, aws: bool = False) -> None:
        """Cut a running instance off. Packets are lost without an answer, those of open connections too.

        It replaces an earlier cut of the instance. Its metadata service answers as before.

        Args:
            instance_id: The instance's id.
            instances: The ids of the instances that it is cut off from, in both directions. None for every instance.
            aws: True where it is cut off from the local AWS as well.
        """
        given = None if instances is None else list(instances)
        self._connection.call("CutOff", {"instance_id": instance_id, "instances": given, "aws": aws})

    def heal(self, instance_id: str) -> None:
        """End the cut of an instance. TCP sends lost packets again."""
        self._connection.call("CutOff", {"instance_id": instance_id, "instances": [], "aws": False})

    def set_clock(self, seconds_ahead: int) -> None:
        """Give instances that boot from now on a wall clock that is wrong by so much. 0 is for the machine's clock."""
        self._connection.call("Clock", {"seconds_ahead": seconds_ahead})

    def first_worlds_wait(self, seconds: float | None) -> None:
        """Set how long nodes that boot from now on wait for all others before a run begins with fewer.

        Args:
            seconds: The seconds without another node. None for the time on AWS, by the agents' time scale.
        """
        self._connection.call("FirstWorlds", {"wait_seconds": seconds})

    def freeze(self, instance_id: str) -> None:
        """Stop all processes of a running instance (SIGSTOP), until it is thawed."""
        self._connection.call("Freeze", {"instance_id": instance_id})

    def thaw(self, instance_id: str) -> None:
        """Let all processes of an instance go on (SIGCONT)."""
        self._connection.call("Thaw", {"instance_id": instance_id})

    def instance_facts(self, instance_id: str) -> InstanceFacts:
        """Return the facts about an instance."""
        return InstanceFacts.from_document(self._connection.call("InstanceFacts", {"instance_id": instance_id}))

    def platform(self) -> Platform:
        """Return the kind of hosts that instances are on this machine."""
        return Platform.from_document(self._connection.call("Platform", {}))


def permissions(local: LocalAws) -> list[IdentityReport]:
    """Return the calls of every role and user of a local AWS since it began, and their unused grants.

    Raises:
        ControlError: The local AWS refused, or is not there.
    """
    answer = ControlConnection(local).call("Permissions", {})
    return REPORTS.validate_python(answer["identities"])


def judging_time(local: LocalAws) -> JudgingTime:
    """Return the time that judging took since a local AWS began.

    Raises:
        ControlError: The local AWS refused, or is not there.
    """
    return JUDGING_TIME.validate_python(ControlConnection(local).call("JudgingTime", {}))
