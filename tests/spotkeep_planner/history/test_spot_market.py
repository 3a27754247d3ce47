"""What EC2 says of prices and placement becomes what a plan can use; what it cannot say is an error with a reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import numpy as np
import pytest
from botocore.stub import ANY, Stubber

from spotkeep_planner.errors import HistoryError
from spotkeep_planner.history.spot_market import PricePoint, SpotMarket, ec2_type_of, market_view

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.fixture
def ec2() -> Any:
    return boto3.client("ec2", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")


@pytest.fixture
def stubbed(ec2: Any) -> Iterator[Stubber]:
    with Stubber(ec2) as stubber:
        yield stubber
        stubber.assert_no_pending_responses()


def entry(zone: str, price: str, *, hours_ago: int = 0) -> dict[str, Any]:
    return {"AvailabilityZone": zone, "SpotPrice": price, "Timestamp": NOW - timedelta(hours=hours_ago)}


def test_prices_are_read_page_by_page(ec2: Any, stubbed: Stubber) -> None:
    asked = {"InstanceTypes": ["p3.2xlarge"], "ProductDescriptions": ["Linux/UNIX"], "StartTime": ANY}
    stubbed.add_response(
        "describe_spot_price_history", {"SpotPriceHistory": [entry("us-east-1a", "0.918")], "NextToken": "more"}, asked
    )
    stubbed.add_response(
        "describe_spot_price_history",
        {"SpotPriceHistory": [entry("us-east-1b", "1.2")], "NextToken": ""},
        {**asked, "NextToken": "more"},
    )
    points = SpotMarket(ec2).price_history("p3.2xlarge", since=NOW - timedelta(days=1))
    assert [(point.zone, point.usd_per_hour) for point in points] == [("us-east-1a", 0.918), ("us-east-1b", 1.2)]


def test_placement_scores_are_given_by_zone_name(ec2: Any, stubbed: Stubber) -> None:
    stubbed.add_response(
        "get_spot_placement_scores",
        {"SpotPlacementScores": [{"Region": "us-east-1", "AvailabilityZoneId": "use1-az4", "Score": 9}]},
        {
            "InstanceTypes": ["p3.2xlarge"],
            "TargetCapacity": 2,
            "SingleAvailabilityZone": True,
            "RegionNames": ["us-east-1"],
        },
    )
    stubbed.add_response(
        "describe_availability_zones",
        {"AvailabilityZones": [{"ZoneId": "use1-az4", "ZoneName": "us-east-1a"}, {"ZoneId": "use1-az6"}]},
    )
    assert SpotMarket(ec2).placement_scores("p3.2xlarge", instances=2) == {"us-east-1a": 9}


def test_a_refusal_is_an_error_that_says_what_was_asked(ec2: Any, stubbed: Stubber) -> None:
    stubbed.add_client_error("describe_spot_price_history", "UnauthorizedOperation", "You are not authorized")
    with pytest.raises(HistoryError, match=r"spot prices of p3.2xlarge: .*not authorized"):
        SpotMarket(ec2).price_history("p3.2xlarge", since=NOW)
    stubbed.add_client_error("get_spot_placement_scores", "RequestLimitExceeded", "slow down")
    with pytest.raises(HistoryError, match="placement scores"):
        SpotMarket(ec2).placement_scores("p3.2xlarge", instances=1)


@pytest.mark.parametrize("price", ["-1", "0", "nan", "cheap"])
def test_a_price_that_is_none_is_refused(ec2: Any, stubbed: Stubber, price: str) -> None:
    stubbed.add_response("describe_spot_price_history", {"SpotPriceHistory": [entry("us-east-1a", price)]})
    with pytest.raises(HistoryError, match="spot price"):
        SpotMarket(ec2).price_history("p3.2xlarge", since=NOW)


class _Market:
    def __init__(self, points: Sequence[PricePoint], scores: Mapping[str, int] | None) -> None:
        self._points, self._scores = points, scores

    def price_history(self, instance_type: str, *, since: datetime) -> Sequence[PricePoint]:
        return self._points

    def placement_scores(self, instance_type: str, *, instances: int) -> Mapping[str, int]:
        if self._scores is None:
            raise HistoryError("EC2 did not give placement scores of p3.2xlarge: not authorized")
        return self._scores


def test_the_latest_price_of_each_zone_counts_cheapest_first() -> None:
    points = [
        PricePoint(zone="a", since=NOW - timedelta(hours=1), usd_per_hour=1.5),
        PricePoint(zone="a", since=NOW - timedelta(hours=9), usd_per_hour=0.1),
        PricePoint(zone="b", since=NOW - timedelta(hours=5), usd_per_hour=0.9),
    ]
    view = market_view(_Market(points, {"b": 7}), "p3.2xlarge", now=NOW, instances=1, tick_s=300.0)
    assert view.zones == ("b", "a")
    assert view.past.price_now is not None
    assert view.past.price_now.tolist() == [0.9, 1.5]
    assert view.past.chance_now is not None
    assert view.past.chance_now[0] == 0.7
    assert np.isnan(view.past.chance_now[1])
    assert view.past.start_tick == 0


def test_an_account_that_may_not_ask_for_scores_still_has_prices() -> None:
    point = PricePoint(zone="a", since=NOW, usd_per_hour=1.5)
    view = market_view(_Market([point], None), "p3.2xlarge", now=NOW, instances=1, tick_s=300.0)
    assert view.past.chance_now is not None
    assert np.isnan(view.past.chance_now).all()
    assert view.remarks == (
        "EC2 did not give placement scores of p3.2xlarge: not authorized. "
        "How likely capacity is now is left to the prior.",
    )


def test_a_type_without_a_price_is_not_offered_there() -> None:
    with pytest.raises(HistoryError, match="may not be offered on spot"):
        market_view(_Market([], {}), "p9.huge", now=NOW, instances=1, tick_s=300.0)


def test_the_ec2_type_behind_a_training_type() -> None:
    assert ec2_type_of("ml.p3.2xlarge") == "p3.2xlarge"
    assert ec2_type_of("p3.2xlarge") == "p3.2xlarge"
