"""The operations that the local AWS has: those that the product, its tests and its users' clients call, and no other.

An operation that is added here is one that a caller needs; name the caller.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from spotkeep_local.options import ServerOptions
from spotkeep_local.price_list import pricing_service
from spotkeep_local.service_quotas import service_quotas
from spotkeep_local.training.service import TrainingService

if TYPE_CHECKING:
    from pathlib import Path

SAGEMAKER = {
    "CreateTrainingJob": "the launcher; the SageMaker SDK",
    "DescribeTrainingJob": "the controller; `spotkeep describe`; the SageMaker SDK",
    "ListTrainingJobs": "the search for orphans; pools; `aws sagemaker list-training-jobs`",
    "Search": "the search for orphans, which finds jobs by tag",
    "StopTrainingJob": "`spotkeep stop`; the SageMaker SDK",
    "UpdateTrainingJob": "the end of a warm pool and its keep-alive period",
    "AddTags": "`aws sagemaker add-tags`, of a user",
    "ListTags": "the controller, of a job that it finds",
}
CONTROL = {
    "ScriptCapacity": "rehearsals",
    "EventFaults": "tests of late, lost and repeated events",
    "JobFacts": "rehearsals",
    "WarmPoolQuota": "tests of an account without a quota",
}
PRICING = {"GetProducts": "the daily reading of the price list"}
SERVICE_QUOTAS = {"ListServiceQuotas": "`spotkeep doctor --account`"}


def test_every_operation_has_a_caller(tmp_path: Path) -> None:
    credentials: Any = SimpleNamespace()
    training = TrainingService(
        state_dir=tmp_path,
        endpoint_url="http://127.0.0.1:1",
        credentials=credentials,
        options=ServerOptions.fast(),
        publish_event=lambda *_: None,
    )
    assert training.api.operations.keys() == SAGEMAKER.keys()
    assert training.control.operations.keys() == CONTROL.keys()
    assert pricing_service().operations.keys() == PRICING.keys()
    assert service_quotas(lambda: 0).operations.keys() == SERVICE_QUOTAS.keys()
