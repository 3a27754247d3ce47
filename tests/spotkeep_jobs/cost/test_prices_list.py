"""AWS's price list is read by usage type; what is ambiguous, free or in another unit is not a price."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from spotkeep_jobs.cost.prices import (
    EC2_HOURS,
    MOST_PAGES,
    TRAINING_HOURS,
    PriceList,
    PricesNotReadError,
    endpoint_region,
    instance_prices,
    storage_price,
)
from tests.models.pricing import product

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize("usage_type", ["USE1-Train:ml.m5.xlarge", "Train:ml.m5.xlarge", "APN1-Train:ml.m5.xlarge"])
def test_an_hour_of_training_is_recognized_by_its_usage_type(usage_type: str) -> None:
    assert instance_prices([product(usage_type, "0.23")], TRAINING_HOURS) == {"ml.m5.xlarge": 0.23}


@pytest.mark.parametrize(
    "other",
    [
        product("EU-Processing:ml.m5.xlarge", "0.23"),
        product("EU-Train:VolumeUsage.gp2", "0.14", unit="GB-Mo"),
        product("EU-Train:ml.m5.xlarge", "0.23", unit="Quantity"),
        product("EU-Train:ml.m5.xlarge", "0.0000000000"),
        {"product": {}, "terms": {}},
        {},
    ],
)
def test_what_is_not_the_price_of_an_hour_of_training_is_left_out(other: dict[str, Any]) -> None:
    assert instance_prices([other], TRAINING_HOURS) == {}


def test_two_prices_for_one_type_are_no_price() -> None:
    twice = [product("EU-Train:ml.m5.xlarge", "0.23"), product("EU-Train:ml.m5.xlarge", "0.25")]
    known = product("EU-Train:ml.p5.48xlarge", "98.32")
    assert instance_prices([*twice, known], TRAINING_HOURS) == {"ml.p5.48xlarge": 98.32}


@pytest.mark.parametrize(
    ("mark", "instance_type"),
    [("", "g5.xlarge"), ("EU-", "m7i-flex.large"), ("USW2-", "u-12tb1.112xlarge"), ("APN1-", "m7i.metal-24xl")],
)
def test_an_hour_on_ec2_is_recognized_by_its_usage_type(mark: str, instance_type: str) -> None:
    assert instance_prices([product(f"{mark}BoxUsage:{instance_type}", "1.006")], EC2_HOURS) == {instance_type: 1.006}


@pytest.mark.parametrize(
    "usage_type", ["UnusedBox:g5.xlarge", "HostBoxUsage:g5", "DedicatedUsage:g5.xlarge", "EU-Reservation:g5.xlarge"]
)
def test_an_hour_on_ec2_that_no_fleet_is_billed_is_left_out(usage_type: str) -> None:
    assert instance_prices([product(usage_type, "1.006")], EC2_HOURS) == {}


LINUX = {
    "operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used",
    "operation": "RunInstances",
}  # fmt: skip


def answers(stub: Stubber, service: str, usage_type: str, *pages: list[dict[str, Any]], **attributes: str) -> None:
    filters = [
        {"Type": "TERM_MATCH", "Field": "regionCode", "Value": "eu-west-1"},
        {"Type": "CONTAINS", "Field": "usagetype", "Value": usage_type},
        *({"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in attributes.items()),
    ]
    for number, page in enumerate(pages):
        more = {"NextToken": str(number)} if number < len(pages) - 1 else {}
        asked = {"ServiceCode": service, "Filters": filters} | ({"NextToken": str(number - 1)} if number else {})
        stub.add_response("get_products", {"PriceList": [json.dumps(each) for each in page], **more}, asked)


@pytest.fixture
def pricing() -> Any:
    return boto3.client("pricing", region_name="eu-central-1", aws_access_key_id="test", aws_secret_access_key="test")


def test_a_region_is_read_page_by_page_as_the_service_takes_and_gives_it(pricing: Any) -> None:
    with Stubber(pricing) as stub:
        answers(
            stub, "AmazonEC2", "BoxUsage:",
            [product("EU-BoxUsage:g5.xlarge", "1.123"), product("EU-BoxUsage:g6.xlarge", "0.0")],
            [product("EU-BoxUsage:m5.xlarge", "0.214")], **LINUX,
        )  # fmt: skip
        answers(
            stub, "AmazonSageMaker", "Train:ml.",
            [product("EU-Train:ml.m5.xlarge", "0.256")], [product("EU-Train:ml.g5.2xlarge", "1.69")],
        )  # fmt: skip
        tiers = product("EU-TimedStorage-ByteHrs", "0.022", "0.023", unit="GB-Mo", begins=("51200", "0"))
        answers(stub, "AmazonS3", "TimedStorage-ByteHrs", [tiers, product("EU-TimedStorage-INT-FA-ByteHrs", "0.01")])
        answers(stub, "AmazonEC2", "EBS:VolumeUsage.gp3", [product("EU-EBS:VolumeUsage.gp3", "0.088", unit="GB-Mo")])
        answers(stub, "AmazonEC2", "EBS:VolumeP-IOPS.gp3", [
            product("EU-EBS:VolumeP-IOPS.gp3", "0.0055", unit="IOPS-Mo"),
        ])  # fmt: skip
        answers(stub, "AmazonEC2", "EBS:VolumeP-Throughput.gp3", [
            product("EU-EBS:VolumeP-Throughput.gp3", "45.056", unit="GiBps-mo"),
        ])  # fmt: skip
        answers(stub, "AmazonEC2", "EBS:SnapshotUsage", [
            product("EU-EBS:SnapshotUsage", "0.05", unit="GB-Mo"), product("EU-EBS:SnapshotUsageUnderBilling", "0.01"),
        ])  # fmt: skip
        book = PriceList(pricing).read("eu-west-1", now=NOON)
        stub.assert_no_pending_responses()
    assert book.instance_usd_per_hour == {
        "g5.xlarge": 1.123, "m5.xlarge": 0.214, "ml.g5.2xlarge": 1.69, "ml.m5.xlarge": 0.256
    }  # fmt: skip
    assert (book.storage.s3_standard, book.storage.ebs_gp3, book.storage.ebs_snapshot) == (0.023, 0.088, 0.05)
    assert (book.storage.ebs_gp3_iops, book.storage.ebs_gp3_throughput) == (0.0055, 45.056)
    assert (book.region, book.fetched_at) == ("eu-west-1", NOON)


def test_a_throughput_in_another_unit_is_no_price() -> None:
    """A MiB/s that is taken for a GiB/s would be a bill of a thousandth."""
    wanted = re.compile("EBS:VolumeP-Throughput")
    listed = product("EBS:VolumeP-Throughput", "0.04", unit="MiBps-mo")
    assert storage_price([listed], wanted, unit="GiBps-mo") is None


def test_a_list_without_an_end_is_left_and_reported(pricing: Any) -> None:
    with Stubber(pricing) as stub:
        page = [product("EU-BoxUsage:g5.xlarge", "1.123")]
        answers(stub, "AmazonEC2", "BoxUsage:", *[page] * (MOST_PAGES + 2), **LINUX)
        with pytest.raises(PricesNotReadError, match=f"more than {MOST_PAGES} pages"):
            PriceList(pricing).read("eu-west-1", now=NOON)


def test_an_aws_that_refuses_is_reported_with_its_reason(pricing: Any) -> None:
    with Stubber(pricing) as stub:
        stub.add_client_error("get_products", "AccessDeniedException", "no")
        with pytest.raises(PricesNotReadError, match=r"eu-west-1 could not be read: .*Denied.*Those known"):
            PriceList(pricing).read("eu-west-1", now=NOON)


@pytest.mark.parametrize(
    ("region", "asked"),
    [
        ("us-west-2", "us-east-1"),
        ("eu-north-1", "eu-central-1"),
        ("ap-southeast-2", "ap-south-1"),
        ("sa-east-1", "us-east-1"),
    ],
)
def test_the_price_list_is_asked_on_the_same_side_of_the_world(region: str, asked: str) -> None:
    assert endpoint_region(region) == asked
    assert asked in boto3.Session().get_available_regions("pricing")
