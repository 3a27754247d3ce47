"""The operations that the local AWS has: those that the product, its tests and its users' clients call, and no other.

An operation that is added here is one that a caller needs; name the caller.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore import xform_name

from spotkeep_local.account.price_list import pricing_service
from spotkeep_local.account.service_quotas import service_quotas
from spotkeep_local.account.session_manager import LocalSessionManager
from spotkeep_local.account.stacks import RESOURCE_TYPES
from spotkeep_local.batch.service import BatchService
from spotkeep_local.ec2.service import Ec2Service
from spotkeep_local.fis.service import FisService
from spotkeep_local.options import ServerOptions
from spotkeep_local.training.file_systems import FileSystems
from spotkeep_local.training.service import TrainingService

if TYPE_CHECKING:
    from spotkeep_local.service_base.aws_service import AwsService

ROOT = Path(__file__).parents[2]
OURS = ("lambda", "training", "cli", "planner", "benchmarks", "tests")

SAGEMAKER = {
    "CreateTrainingJob": "the launcher; the SageMaker SDK",
    "DescribeTrainingJob": "the controller; `spotkeep describe`; the SageMaker SDK",
    "ListTrainingJobs": "the search for orphans; pools; `aws sagemaker list-training-jobs`",
    "Search": "the search for orphans, which finds jobs by tag",
    "StopTrainingJob": "`spotkeep stop`; the SageMaker SDK",
    "UpdateTrainingJob": "the end of a warm pool and its keep-alive period; `spotkeep shell`, remote debugging",
    "AddTags": "`aws sagemaker add-tags`, of a user",
    "ListTags": "the controller, of a job that it finds",
}
EC2 = {
    "AttachVolume": "the agent",
    "CreateFleet": "the launcher",
    "CreateSnapshot": "the agent, whose volume moves to another zone",
    "CreateTags": "`spotkeep drill`",
    "CreateVolume": "the agent",
    "DeleteFleets": "the controller",
    "DeleteLaunchTemplateVersions": "the controller, of a run's own version",
    "DeleteSnapshot": "the agent; the removal of orphans",
    "DeleteTags": "`spotkeep drill`",
    "DeleteVolume": "the agent; the removal of orphans",
    "DescribeFleetHistory": "the controller",
    "DescribeFleetInstances": "benchmarks and end-to-end tests",
    "DescribeFleets": "the controller; the search for orphans",
    "DescribeInstanceTypes": "the launcher",
    "DescribeInstances": "the controller; the agent; `spotkeep local ec2 instances`",
    "DescribeSnapshots": "the agent; the search for orphans; the launcher, of a snapshot that a job file names",
    "DescribeSpotPriceHistory": "the controller, for the bill; `spotkeep plan`",
    "DescribeVolumes": "the agent; the search for orphans; the launcher, of a volume that a job file names",
    "DetachVolume": "the agent",
    "GetConsoleOutput": "the controller, of an instance that failed",
    "TerminateInstances": "the controller",
}
FIS = {
    "CreateExperimentTemplate": "CloudFormation; tests of `spotkeep drill`",
    "GetExperiment": "`spotkeep drill`",
    "StartExperiment": "`spotkeep drill`",
}
BATCH = {
    "CreateJobQueue": "CloudFormation, of a deployment with queues",
    "CreateQuotaShare": "CloudFormation, of a deployment with queues",
    "CreateSchedulingPolicy": "CloudFormation, of a deployment with queues",
    "CreateServiceEnvironment": "CloudFormation, of a deployment with queues",
    "DeleteJobQueue": "CloudFormation",
    "DeleteQuotaShare": "CloudFormation",
    "DeleteSchedulingPolicy": "CloudFormation",
    "DeleteServiceEnvironment": "CloudFormation",
    "DescribeJobQueues": "`aws batch describe-job-queues`, of an administrator",
    "DescribeQuotaShare": "`aws batch describe-quota-share`, of an administrator",
    "DescribeSchedulingPolicies": "`aws batch describe-scheduling-policies`, of an administrator",
    "DescribeServiceEnvironments": "`aws batch describe-service-environments`, of an administrator",
    "DescribeServiceJob": "the SageMaker SDK",
    "ListQuotaShares": "`aws batch list-quota-shares`, of an administrator",
    "ListServiceJobs": "the SageMaker SDK",
    "ListTagsForResource": "`aws batch list-tags-for-resource`, of an administrator",
    "SubmitServiceJob": "the SageMaker SDK",
    "TagResource": "CloudFormation, of changed tags",
    "TerminateServiceJob": "the SageMaker SDK",
    "UntagResource": "CloudFormation, of changed tags",
    "UpdateJobQueue": "CloudFormation",
    "UpdateQuotaShare": "CloudFormation",
    "UpdateSchedulingPolicy": "CloudFormation",
    "UpdateServiceEnvironment": "CloudFormation",
    "UpdateServiceJob": "the SageMaker SDK",
}
SSM = {"StartSession": "`spotkeep shell`, through the launcher; ministack has the parameters"}
FSX = {
    "CreateFileSystem": "`aws fsx create-file-system`, of an administrator",
    "DeleteFileSystem": "`aws fsx delete-file-system`, of an administrator",
    "DescribeFileSystems": "the launcher, of a channel on FSx for Lustre",
}
PRICING = {"GetProducts": "the daily reading of the price list"}
SERVICE_QUOTAS = {"ListServiceQuotas": "`spotkeep doctor --account`"}
CONTROL = {
    "ScriptCapacity": "rehearsals",
    "ImageProgram": "`spotkeep local image`",
    "JobFacts": "rehearsals",
    "TrainingQuota": "tests of a quota that is used up",
    "WarmPoolQuota": "tests of an account without a quota",
}
EC2_CONTROL = {
    "ChangePool": "rehearsals; `spotkeep local ec2 capacity` and `price`",
    "Consistency": "tests of what EC2 does not show yet",
    "InstanceFacts": "rehearsals; benchmarks; `spotkeep local ec2 console`",
    "InterruptInstance": "rehearsals; benchmarks; `spotkeep local ec2 interrupt`",
    "Platform": "rehearsals; `spotkeep local ec2 instances`",
    "ScriptMarket": "`spotkeep local ec2 replay`",
    "Clock": "tests of instances whose clocks are wrong",
    "CutOff": "rehearsals of several instances, and tests of split networks",
    "FirstWorlds": "rehearsals of nodes",
    "Freeze": "tests of instances that hang",
    "Thaw": "the same",
    "WarnOfInstance": "tests of a notice for the instance of another run",
}


@pytest.fixture
def ec2(tmp_path: Path) -> Ec2Service:
    """An EC2 that is not started."""
    nothing: Any = None
    return Ec2Service(
        state_dir=tmp_path / "ec2",
        file_systems=tmp_path / "file-systems",
        endpoint_port=1,
        options=ServerOptions.fast(),
        surroundings=nothing,
        publish_event=lambda *_: None,
        ministack=nothing,
    )


@pytest.fixture
def training(tmp_path: Path) -> TrainingService:
    """A training service that is not started."""
    credentials: Any = None
    return TrainingService(
        state_dir=tmp_path / "training",
        endpoint_url="http://127.0.0.1:1",
        credentials=credentials,
        options=ServerOptions.fast(),
        file_systems=credentials,
        publish_event=lambda *_: None,
    )


@functools.cache
def names_called_in(root: str) -> frozenset[str]:
    """What is called like a method, and what stands in quotes, in the sources below a folder."""
    files = [path for path in (ROOT / root).rglob("*.py") if "tests/spotkeep_local" not in str(path)]
    found = (re.findall(r"""\.(\w+)\(|["'](\w+)["']""", path.read_text()) for path in files)
    return frozenset(name for pairs in found for pair in pairs for name in pair)


async def _not_asked(*_request: Any) -> Any:
    raise AssertionError("nothing asks ministack here")


def test_every_operation_of_a_service_is_called(ec2: Ec2Service, training: TrainingService, tmp_path: Path) -> None:
    fis = FisService(
        state_dir=tmp_path / "fis", cloud=ec2.cloud, instances=ec2.instances, is_allowed=lambda _call: True
    )
    batch = BatchService(
        state_dir=tmp_path / "batch", options=ServerOptions.fast(), training=training, publish_event=lambda *_: None
    )
    sessions = LocalSessionManager(
        _not_asked, cloud=ec2.cloud, job=training.job, may_connect=lambda _role, _instance: True
    )
    nothing: Any = None
    file_systems = FileSystems(folder=tmp_path / "fsx", session=nothing, account_id="1", region="us-east-1")
    services: list[tuple[AwsService, dict[str, str]]] = [
        (training.api, SAGEMAKER),
        (ec2.api, EC2),
        (fis.api, FIS),
        (batch.api, BATCH),
        (sessions.api, SSM),
        (file_systems.api, FSX),
        (pricing_service(), PRICING),
        (service_quotas(training=lambda: 0, warm_pools=lambda: 0), SERVICE_QUOTAS),
    ]
    for service, callers in services:
        assert service.operations.keys() == callers.keys()
        for operation, caller in callers.items():
            names = {operation, xform_name(operation)}
            called = any(names & names_called_in(root) for root in OURS) or operation in _of_stacks()
            assert called or "`aws " in caller or "SDK" in caller, f"nothing calls {operation}"


def _of_stacks() -> set[str]:
    """What CloudFormation calls for Batch's resources."""
    changing = {f"{verb}{each.kind}" for each in RESOURCE_TYPES.values() for verb in ("Create", "Update", "Delete")}
    return changing | {"TagResource", "UntagResource"}


def test_every_operation_of_the_control_plane_has_a_caller(ec2: Ec2Service, training: TrainingService) -> None:
    assert training.control_operations.keys() == CONTROL.keys()
    assert ec2.control_operations.keys() == EC2_CONTROL.keys()


def test_the_docs_list_the_operations_of_ec2_and_fis() -> None:
    section = (ROOT / "docs/local-fleets.md").read_text().partition("## Operations")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    documented = {operation.strip(" `"): caller.strip() for operation, caller in rows}
    assert documented == {**EC2, **FIS}
