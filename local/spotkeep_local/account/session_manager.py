"""StartSession of Systems Manager, the part of sessions that a client asks for. It stands before ministack's service.

It answers for targets where a session could begin. One is an instance that runs. The other is the container of a
training job that asked for remote debugging and trains. Each needs a role that lets its agent connect. No channel is
behind the answer, because the targets are processes of this machine here.

Sources: https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_StartSession.html
    https://docs.aws.amazon.com/sagemaker/latest/dg/train-remote-debugging.html
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Any, Final

from spotkeep_fleet.shells import COMMAND_DOCUMENT, TRAINING_JOB_TARGET
from spotkeep_local.ec2.records import InstanceState
from spotkeep_local.service_base.aws_service import AwsService, JsonProtocol, ServiceError
from spotkeep_local.training.job import SecondaryStatus
from spotkeep_local.training.request_rules import instance_count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spotkeep_local.ec2.cloud import Cloud
    from spotkeep_local.ministack.application import RequestHandler
    from spotkeep_local.training.job import TrainingJob

TARGET: Final = "AmazonSSM"
_SHELL_DOCUMENT: Final = "SSM-SessionManagerRunShell"
_CONTAINER: Final = re.compile(rf"{TRAINING_JOB_TARGET}:(?P<job>.+)_algo-(?P<host>[1-9]\d*)")


class NotConnectedError(ServiceError):
    """Nothing that takes sessions has this name."""

    code = "TargetNotConnected"


class InvalidDocumentError(ServiceError):
    """The document does not exist here, or lacks a parameter that it needs."""

    code = "InvalidDocument"


class LocalSessionManager:
    """Stands before ministack's Systems Manager.

    Args:
        ssm: Answers every other operation.
        cloud: EC2's instances.
        job: Returns a training job by its name. None where there is none.
        may_connect: Tells if an agent with a role, by its name, may connect. Takes the ARN of an instance too.
    """

    def __init__(
        self,
        ssm: RequestHandler,
        *,
        cloud: Cloud,
        job: Callable[[str], TrainingJob | None],
        may_connect: Callable[[str, str | None], bool],
    ) -> None:
        self._ssm = ssm
        self._cloud = cloud
        self._job = job
        self._may_connect = may_connect
        self.api = AwsService(JsonProtocol("ssm", target=TARGET), {"StartSession": self._start_session})

    async def handle_request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, query_params: Mapping[str, list[str]]
    ) -> tuple[int, dict[str, str], bytes]:
        """Answer one request, which the judge has let through."""
        ours = headers.get("x-amz-target", "").removeprefix(f"{TARGET}.") in self.api.operations
        answer = self.api.handle_request if ours else self._ssm
        return await answer(method, path, headers, body, query_params)

    def _start_session(self, request: dict[str, Any]) -> dict[str, Any]:
        target, document = request["Target"], request.get("DocumentName", _SHELL_DOCUMENT)
        if document not in (_SHELL_DOCUMENT, COMMAND_DOCUMENT):
            raise InvalidDocumentError(f"Document with name {document} does not exist.")
        if document == COMMAND_DOCUMENT and not any(request.get("Parameters", {}).get("command", ())):
            raise InvalidDocumentError(f"{COMMAND_DOCUMENT} needs the parameter command")
        if not self._is_connected(target):
            raise NotConnectedError(f"{target} is not connected.")
        session = f"spotkeep-{secrets.token_hex(9)[:17]}"
        return {
            "SessionId": session,
            "TokenValue": secrets.token_urlsafe(96),
            "StreamUrl": f"wss://ssmmessages.{self._cloud.region}.amazonaws.com/v1/data-channel/{session}",
        }

    def _is_connected(self, target: str) -> bool:
        if (container := _CONTAINER.fullmatch(target)) is not None:
            job = self._job(container["job"])
            return (
                job is not None
                and job.secondary is SecondaryStatus.TRAINING
                and bool(job.request.get("RemoteDebugConfig", {}).get("EnableRemoteDebug"))
                and not job.request.get("EnableNetworkIsolation")
                and int(container["host"]) <= instance_count(job.request)
                and self._may_connect(job.request["RoleArn"].rpartition("/")[2], None)
            )
        with self._cloud.lock:
            instance = self._cloud.instances[target] if target in self._cloud.instances else None  # noqa: SIM401 - no dict
        return (
            instance is not None
            and instance.state is InstanceState.RUNNING
            and instance.profile is not None
            and self._may_connect(instance.profile.role, self._cloud.arn("instance", target))
        )
