"""The local Service Quotas answer a real client as `doctor --account` reads them, page by page."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from spotkeep_cli.account.check import Usage, read_quotas
from spotkeep_local.account.service_quotas import list_service_quotas


def test_what_doctor_asks_for_is_answered_to_its_own_client(local_aws: Any) -> None:
    quotas = read_quotas(local_aws.session().client("service-quotas"), types={"ml.m5.xlarge", "ml.p4d.24xlarge"})
    assert [(quota.instance_type, quota.usage) for quota in quotas] == [
        (instance_type, usage) for instance_type in ("ml.m5.xlarge", "ml.p4d.24xlarge") for usage in Usage
    ]
    assert {quota.instances for quota in quotas if quota.usage is not Usage.WARM_POOL} == {20}
    assert len({quota.code for quota in quotas}) == len(quotas)


def test_a_type_that_is_not_listed_has_no_quota(local_aws: Any) -> None:
    assert read_quotas(local_aws.session().client("service-quotas"), types={"ml.trn9.huge"}) == ()


def test_the_quotas_are_those_that_are_kept() -> None:
    quotas = list_service_quotas({"ServiceCode": "sagemaker"}, training=7, warm_pools=3)["Quotas"]
    pools = [quota for quota in quotas if "warm pool" in quota["QuotaName"]]
    assert {quota["Value"] for quota in pools} == {3.0}
    jobs = [quota for quota in quotas if quota["QuotaName"].endswith("training job usage")]
    assert {quota["Value"] for quota in jobs} == {7.0}


def test_pages_cover_everything_once() -> None:
    token, names = "0", []
    while token:
        request = {"ServiceCode": "sagemaker", "MaxResults": 50, "NextToken": token}
        page = list_service_quotas(request, training=0, warm_pools=0)
        names += [quota["QuotaName"] for quota in page["Quotas"]]
        token = page.get("NextToken", "")
    assert len(names) == len(set(names)) > 100


def test_what_it_does_not_know_is_refused(local_aws: Any) -> None:
    client = local_aws.session().client("service-quotas")
    assert client.list_service_quotas(ServiceCode="ec2")["Quotas"] == []
    with pytest.raises(ClientError, match="NoSuchResourceException"):
        client.list_service_quotas(ServiceCode="s3")
    with pytest.raises(ClientError, match="ListServices"):
        client.list_services()
