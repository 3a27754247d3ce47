"""What EC2 says of prices and placement becomes what a plan can use; what it cannot say is an error with a reason."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import numpy as np
import pytest
from botocore.stub import Stubber

from spotkeep_planner.errors import HistoryError
from spotkeep_planner.spot_market import MarketView, SpotMarket, ec2_type_of, market_view
from tests.models.faults import client_error
from tests.models.spot_market import SpotCapacity

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.fixture
def ec2() -> Any:
    return SpotCapacity()


def test_prices_are_read_page_by_page(ec2: Any) -> None:
    ec2.prices = [("a", "0.918", NOW), ("b", "1.2", NOW)]
    points = SpotMarket(ec2).price_history("p3.2xlarge", since=NOW - timedelta(days=1))
    assert [(point.zone, point.usd_per_hour) for point in points] == [("a", 0.918), ("b", 1.2)]


def test_placement_scores_are_given_by_zone_name(ec2: Any) -> None:
    ec2.scores = {"a": 9}
    assert SpotMarket(ec2).placement_scores("p3.2xlarge", instances=2) == {"a": 9}


def test_ec2s_client_takes_what_is_asked_of_the_model() -> None:
    client = boto3.client("ec2", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    with Stubber(client) as stub:
        stub.add_response(
            "describe_spot_price_history",
            {"SpotPriceHistory": []},
            {"InstanceTypes": ["p3.2xlarge"], "ProductDescriptions": ["Linux/UNIX"], "StartTime": NOW},
        )
        stub.add_response(
            "get_spot_placement_scores",
            {"SpotPlacementScores": []},
            {
                "InstanceTypes": ["p3.2xlarge"], "TargetCapacity": 2, "SingleAvailabilityZone": True,
                "RegionNames": ["us-east-1"],
            },
        )  # fmt: skip
        stub.add_response("describe_availability_zones", {"AvailabilityZones": []})
        market = SpotMarket(client)
        assert market.price_history("p3.2xlarge", since=NOW) == []
        assert market.placement_scores("p3.2xlarge", instances=2) == {}
        stub.assert_no_pending_responses()


def test_a_refusal_is_an_error_that_says_what_was_asked(ec2: Any) -> None:
    ec2.refuse(client_error("DescribeSpotPriceHistory", "UnauthorizedOperation", "You are not authorized"))
    with pytest.raises(HistoryError, match=r"spot prices of p3.2xlarge: .*not authorized"):
        SpotMarket(ec2).price_history("p3.2xlarge", since=NOW)
    with pytest.raises(HistoryError, match="placement scores"):
        SpotMarket(ec2).placement_scores("p3.2xlarge", instances=1)


@pytest.mark.parametrize("price", ["-1", "0", "nan", "cheap"])
def test_a_price_that_is_none_is_refused(ec2: Any, price: str) -> None:
    ec2.prices = [("a", price, NOW)]
    with pytest.raises(HistoryError, match="spot price"):
        SpotMarket(ec2).price_history("p3.2xlarge", since=NOW)


def viewed(ec2: Any, instance_type: str = "p3.2xlarge") -> MarketView:
    return market_view(SpotMarket(ec2), instance_type, now=NOW, instances=1, tick_s=300.0)


def test_the_latest_price_of_each_zone_counts_cheapest_first(ec2: Any) -> None:
    ec2.prices = [
        ("a", "1.5", NOW - timedelta(hours=1)),
        ("a", "0.1", NOW - timedelta(hours=9)),
        ("b", "0.9", NOW - timedelta(hours=5)),
    ]
    ec2.scores = {"b": 7}
    view = viewed(ec2)
    assert view.zones == ("b", "a")
    assert view.past.price_now is not None
    assert view.past.price_now.tolist() == [0.9, 1.5]
    assert view.past.chance_now is not None
    assert view.past.chance_now[0] == 0.7
    assert np.isnan(view.past.chance_now[1])
    assert view.past.start_tick == 0


def test_an_account_that_may_not_ask_for_scores_still_has_prices(ec2: Any) -> None:
    ec2.prices = [("a", "1.5", NOW)]
    ec2.refuse(client_error("GetSpotPlacementScores", "Denied", "no"), operation="GetSpotPlacementScores")
    view = viewed(ec2)
    assert view.past.chance_now is not None
    assert np.isnan(view.past.chance_now).all()
    [remark] = view.remarks
    assert remark.startswith("EC2 did not give placement scores of p3.2xlarge: ")
    assert remark.endswith("no. How likely capacity is now is left to the prior.")


def test_a_type_without_a_price_is_not_offered_there(ec2: Any) -> None:
    with pytest.raises(HistoryError, match="may not be offered on spot"):
        viewed(ec2, "p9.huge")


def test_the_ec2_type_behind_a_training_type() -> None:
    assert ec2_type_of("ml.p3.2xlarge") == "p3.2xlarge"
    assert ec2_type_of("p3.2xlarge") == "p3.2xlarge"
