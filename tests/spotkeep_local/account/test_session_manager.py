"""Sessions on the local AWS: where one could begin on AWS, a real client gets one; elsewhere AWS's own error."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from spotkeep_local.account.session_manager import LocalSessionManager
from spotkeep_local.ec2.records import InstanceState
from spotkeep_local.training.job import SecondaryStatus

CONTAINER = "sagemaker-training-job:digits-1_algo-1"
COMMAND = {"DocumentName": "AWS-StartInteractiveCommand", "Parameters": {"command": ["ls"]}}


@dataclass
class Account:
    """What there is: a job that trains and asked for sessions, and an instance that runs."""

    request: dict[str, Any] = field(
        default_factory=lambda: {
            "RoleArn": "arn:aws:iam::000000000000:role/execution",
            "RemoteDebugConfig": {"EnableRemoteDebug": True},
            "ResourceConfig": {"InstanceCount": 1},
        }
    )
    secondary: SecondaryStatus = SecondaryStatus.TRAINING
    state: InstanceState = InstanceState.RUNNING
    allowed: bool = True
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def may_connect(self, role: str, instance_arn: str | None) -> bool:
        self.asked.append((role, instance_arn))
        return self.allowed

    def answer(self, operation: str, **request: Any) -> tuple[int, dict[str, Any]]:
        """What a client is answered, as the router hands the request over."""

        async def ministack(*_request: Any) -> Any:
            return 200, {}, b'{"from": "ministack"}'

        instance = SimpleNamespace(state=self.state, profile=SimpleNamespace(role="instance"))
        cloud: Any = SimpleNamespace(
            lock=_Unlocked(),
            instances={"i-1": instance},
            region="us-east-1",
            arn=lambda kind, name: f"arn:{kind}/{name}",
        )
        job: Any = SimpleNamespace(request=self.request, secondary=self.secondary)
        service = LocalSessionManager(ministack, cloud=cloud, job={"digits-1": job}.get, may_connect=self.may_connect)
        headers = {"x-amz-target": f"AmazonSSM.{operation}"}
        status, _, body = asyncio.run(service.handle_request("POST", "/", headers, json.dumps(request).encode(), {}))
        return status, json.loads(body)


class _Unlocked:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def refusal(account: Account, **request: Any) -> str:
    status, answer = account.answer("StartSession", **request)
    assert status == 400
    return str(answer["__type"])


@pytest.mark.parametrize("document", [{}, COMMAND])
@pytest.mark.parametrize(
    ("target", "role"), [(CONTAINER, ("execution", None)), ("i-1", ("instance", "arn:instance/i-1"))]
)
def test_a_session_begins_where_an_agent_may_connect(
    target: str, role: tuple[str, str | None], document: dict[str, Any]
) -> None:
    account = Account()
    status, answer = account.answer("StartSession", Target=target, **document)
    assert status == 200, answer
    assert answer["StreamUrl"].endswith(answer["SessionId"])
    assert (bool(answer["TokenValue"]), account.asked) == (True, [role])


@pytest.mark.parametrize(
    ("account", "target"),
    [
        (Account(request={**Account().request, "RemoteDebugConfig": {}}), CONTAINER),
        (Account(request={**Account().request, "EnableNetworkIsolation": True}), CONTAINER),
        (Account(secondary=SecondaryStatus.DOWNLOADING), CONTAINER),
        (Account(allowed=False), CONTAINER),
        (Account(), "sagemaker-training-job:digits-1_algo-2"),
        (Account(), "sagemaker-training-job:digits-2_algo-1"),
        (Account(state=InstanceState.SHUTTING_DOWN), "i-1"),
        (Account(allowed=False), "i-1"),
        (Account(), "i-2"),
    ],
)
def test_elsewhere_nothing_is_connected(account: Account, target: str) -> None:
    assert refusal(account, Target=target) == "TargetNotConnected"


@pytest.mark.parametrize("document", [{"DocumentName": "mine"}, {"DocumentName": COMMAND["DocumentName"]}])
def test_a_document_that_is_not_there_or_lacks_its_command_is_refused(document: dict[str, Any]) -> None:
    assert refusal(Account(), Target="i-1", **document) == "InvalidDocument"


def test_everything_else_is_ministacks() -> None:
    assert Account().answer("GetParameter", Name="/a") == (200, {"from": "ministack"})


def test_a_client_of_the_local_aws_is_answered_in_awss_words(local_aws: Any) -> None:
    client = local_aws.session().client("ssm")
    with pytest.raises(ClientError) as refused:
        client.start_session(Target=CONTAINER)
    assert refused.value.response["Error"] == {
        "Code": "TargetNotConnected",
        "Message": f"{CONTAINER} is not connected.",
    }
    assert client.get_parameter(Name="/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64")
