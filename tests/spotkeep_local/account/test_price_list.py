"""The local price list answers a real client in the shape the functions read, and has no price it does not know."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from spotkeep_jobs.cost.prices import PriceList

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def test_what_the_functions_ask_for_is_answered_to_their_own_client(local_aws: Any) -> None:
    book = PriceList(local_aws.session().client("pricing")).read("us-east-1", now=NOON)
    assert book.instance_usd_per_hour["ml.m5.xlarge"] == 0.23
    assert book.instance_usd_per_hour["m5.large"] == 0.096, "of Linux, and not of Windows"
    assert not {"ml.p5.48xlarge", "p5.48xlarge"} & book.instance_usd_per_hour.keys()
    assert (book.storage.s3_standard, book.storage.ebs_gp3, book.storage.ebs_snapshot) == (0.023, 0.08, 0.05)
    assert (book.storage.ebs_gp3_iops, book.storage.ebs_gp3_throughput) == (0.005, 40.96)


def test_another_region_has_no_prices(local_aws: Any) -> None:
    book = PriceList(local_aws.session().client("pricing")).read("eu-west-1", now=NOON)
    assert book.instance_usd_per_hour == {}
    assert book.storage.s3_standard is None


def test_what_it_does_not_know_is_refused(local_aws: Any) -> None:
    client = local_aws.session().client("pricing")
    with pytest.raises(ClientError, match="DescribeServices"):
        client.describe_services()
    with pytest.raises(ClientError, match="filter of type NONE_OF"):
        client.get_products(ServiceCode="AmazonS3", Filters=[{"Type": "NONE_OF", "Field": "usagetype", "Value": "x"}])
