"""The settings' prices go before AWS's; AWS is asked once a day; nothing between two refreshes changes."""

from __future__ import annotations

from typing import Any

import pytest

from spotkeep_jobs.cost.prices import KnownPrices, PriceList, PricesNotReadError
from tests.models.faults import client_error
from tests.models.pricing import Pricing, product


@pytest.fixture
def pricing() -> Pricing:
    return Pricing(
        AmazonSageMaker=[product("EU-Train:ml.m5.xlarge", "0.23"), product("EU-Train:ml.g5.xlarge", "1.408")]
    )


@pytest.fixture
def price_list(pricing: Pricing) -> PriceList:
    return PriceList(pricing)


def times_asked(pricing: Pricing) -> int:
    """How often the prices were read, of which those of EC2's instances are the first question."""
    return sum(query["Filters"][1]["Value"] == "BoxUsage:" for query in pricing.queries)


@pytest.fixture
def known() -> KnownPrices:
    return KnownPrices({"ml.m5.xlarge": 0.2}, region="eu-west-1")


def test_the_settings_prices_go_before_awss(world: Any, price_list: PriceList, known: KnownPrices) -> None:
    assert known.fetch(price_list, world.table, now=world.clock())
    assert dict(known) == {"ml.m5.xlarge": 0.2, "ml.g5.xlarge": 1.408}
    assert known.get("ml.p5.48xlarge") is None


def test_what_one_function_read_every_other_finds_in_the_table(
    world: Any, price_list: PriceList, known: KnownPrices
) -> None:
    known.fetch(price_list, world.table, now=world.clock())
    other = KnownPrices({}, region="eu-west-1")
    other.refresh(world.table, now=world.clock())
    assert dict(other) == {"ml.m5.xlarge": 0.23, "ml.g5.xlarge": 1.408}
    elsewhere = KnownPrices({}, region="us-east-1")
    elsewhere.refresh(world.table, now=world.clock())
    assert dict(elsewhere) == {}, "another region's prices are not these"


def test_aws_is_asked_once_a_day(world: Any, pricing: Pricing, price_list: PriceList, known: KnownPrices) -> None:
    for _ in range(2 * 24 * 12):  # every five minutes of two days
        known.fetch(price_list, world.table, now=world.clock())
        world.clock.pass_by(minutes=5)
    assert times_asked(pricing) == 2


def test_the_table_is_read_once_an_hour_and_more_often_while_it_has_no_book(
    world: Any, price_list: PriceList, known: KnownPrices
) -> None:
    reads: list[str] = []
    world.dynamodb.before_call = reads.append
    for _ in range(12):
        known.refresh(world.table, now=world.clock())
        world.clock.pass_by(minutes=5)
    assert len(reads) == 12
    known.fetch(price_list, world.table, now=world.clock())
    reads.clear()
    for _ in range(12):
        known.refresh(world.table, now=world.clock())
        world.clock.pass_by(minutes=5)
    assert len(reads) == 1


def test_a_table_that_cannot_be_read_leaves_what_was_known(world: Any, known: KnownPrices) -> None:
    def throttled(operation: str) -> None:
        raise client_error(operation, "ProvisionedThroughputExceededException")

    world.dynamodb.before_call = throttled
    known.refresh(world.table, now=world.clock())
    assert dict(known) == {"ml.m5.xlarge": 0.2}


def test_an_aws_that_cannot_be_asked_leaves_the_old_book_and_is_asked_again_in_an_hour(
    world: Any, pricing: Pricing, price_list: PriceList, known: KnownPrices
) -> None:
    known.fetch(price_list, world.table, now=world.clock())
    world.clock.pass_by(days=1)

    def denied(operation: str) -> None:
        raise client_error(operation, "AccessDeniedException", "no")

    pricing.before_call = denied
    with pytest.raises(PricesNotReadError):
        known.fetch(price_list, world.table, now=world.clock())
    assert known["ml.g5.xlarge"] == 1.408
    world.clock.pass_by(minutes=5)
    assert not known.fetch(price_list, world.table, now=world.clock())
    assert times_asked(pricing) == 2
    world.clock.pass_by(hours=1)
    pricing.before_call = lambda _operation: None
    pricing.products["AmazonSageMaker"] = [product("EU-Train:ml.g5.xlarge", "1.5")]
    assert known.fetch(price_list, world.table, now=world.clock())
    assert known["ml.g5.xlarge"] == 1.5


def test_a_price_list_without_instances_is_none_at_all(world: Any, known: KnownPrices) -> None:
    with pytest.raises(PricesNotReadError, match="no instance"):
        known.fetch(PriceList(Pricing()), world.table, now=world.clock())
    assert world.table.deployment.price_book("eu-west-1") is None
