"""Which pool a fleet takes its next instance from."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_local.ec2.fleet_rules import SPOT_STRATEGIES, CandidatePool, choose_on_demand, choose_pool
from spotkeep_local.ec2.surroundings import LocalSubnet


def pool(place: int, **fields: Any) -> CandidatePool:
    subnet = LocalSubnet(subnet_id="subnet-1", vpc_id="vpc-1", zone="a", cidr="10.0.0.0/24")
    known = {"config": 0, "instance_type": "m5.large", "subnet": subnet, "price_usd": 0.1}
    return CandidatePool(place=place, **(known | fields))


@pytest.mark.parametrize(
    ("strategy", "chosen"),
    [
        ("lowest-price", 1),
        ("price-capacity-optimized", 2),
    ],
)
def test_each_strategy_has_its_own_favourite(strategy: str, chosen: int) -> None:
    pools = [
        pool(0, price_usd=0.01, room=0),
        pool(1, price_usd=0.1, room=2),
        pool(2, price_usd=0.3, room=9),
        pool(3, price_usd=0.4, room=3),
    ]
    found = choose_pool(pools, strategy=strategy)
    assert found is not None
    assert found.place == chosen


def test_of_pools_that_are_alike_price_capacity_optimized_takes_the_cheapest() -> None:
    pools = [pool(0, price_usd=0.3), pool(1, price_usd=0.2), pool(2, price_usd=0.25)]
    found = choose_pool(pools, strategy="price-capacity-optimized")
    assert found is not None
    assert found.place == 1


@given(
    st.sampled_from(SPOT_STRATEGIES),
    st.lists(
        st.builds(
            lambda place, room, price, most: pool(place, room=room, price_usd=price, max_price_usd=most),
            st.integers(0, 9),
            st.one_of(st.none(), st.integers(0, 2)),
            st.sampled_from([0.1, 0.2, 0.3]),
            st.one_of(st.none(), st.just(0.2)),
        ),
        max_size=6,
    ),
)
def test_a_pool_without_room_or_above_the_price_is_never_chosen(strategy: str, pools: list[CandidatePool]) -> None:
    found = choose_pool(pools, strategy=strategy)
    possible = [item for item in pools if item.room != 0 and item.price_usd <= (item.max_price_usd or 9)]
    assert (found is None) == (not possible)
    assert found is None or found in possible


def test_why_a_pool_is_not_chosen() -> None:
    for refused, code in (
        (pool(0, room=0), "InsufficientInstanceCapacity"),
        (pool(0, price_usd=0.3, max_price_usd=0.2), "SpotMaxPriceTooLow"),
    ):
        assert refused.refusal is not None
        assert refused.refusal[0] == code


def test_on_demand_takes_the_cheapest_and_needs_no_room() -> None:
    assert choose_on_demand([pool(0, price_usd=0.1, room=0), pool(1, price_usd=0.2)]).place == 0
