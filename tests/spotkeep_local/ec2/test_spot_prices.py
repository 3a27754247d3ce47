"""Prices, by boto3, as the market's script says."""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING

from spotkeep_local.ec2.market import SpotPoolChange

if TYPE_CHECKING:
    from .conftest import Ec2


def test_the_price_now_is_given_for_every_zone(ec2: Ec2) -> None:
    ec2.control.script_market([SpotPoolChange(zone="us-east-1b", instance_type="g5.xlarge", price_usd=0.4321)])
    answer = ec2.client.describe_spot_price_history(
        InstanceTypes=["g5.xlarge"], ProductDescriptions=["Linux/UNIX"], StartTime=dt.datetime.now(dt.UTC)
    )
    prices = {record["AvailabilityZone"]: record["SpotPrice"] for record in answer["SpotPriceHistory"]}
    assert prices == {"us-east-1a": "0.030000", "us-east-1b": "0.432100", "us-east-1c": "0.030000"}


def test_changes_are_listed_latest_first(ec2: Ec2) -> None:
    start = time.time()
    ec2.control.script_market(
        [
            SpotPoolChange(zone="us-east-1a", price_usd=0.3),
            SpotPoolChange(zone="us-east-1a", price_usd=0.2, at_seconds=0.05),
            SpotPoolChange(zone="us-east-1a", price_usd=0.9, at_seconds=3600.0),
        ]
    )
    ec2.wait_until(lambda: time.time() > start + 0.5)
    answer = ec2.client.describe_spot_price_history(
        InstanceTypes=["g5.xlarge"],
        AvailabilityZone="us-east-1a",
        StartTime=dt.datetime.fromtimestamp(start - 60, dt.UTC),
    )
    assert [record["SpotPrice"] for record in answer["SpotPriceHistory"]] == ["0.200000", "0.300000", "0.030000"]
