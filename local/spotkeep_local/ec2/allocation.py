"""From which pool a fleet takes its next instance: pure functions.

Source: "Use allocation strategies to determine how EC2 Fleet or Spot Fleet fulfills Spot and On-Demand capacity" in
Amazon EC2's user guide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spotkeep_local.ec2.surroundings import Subnet


@dataclass(frozen=True, kw_only=True)
class CandidatePool:
    """A pool that a fleet may take an instance from.

    Attributes:
        place: Its place among the overrides of the request.
        config: The place of its LaunchTemplateConfig.
        room: How many more can be had; None for any number.
        price_usd: An hour, now.
        max_price_usd: The most that the fleet pays; None for up to the on-demand price.
        overrides: The override as the request has it.
    """

    place: int
    config: int
    instance_type: str
    subnet: Subnet
    price_usd: float
    room: int | None = None
    max_price_usd: float | None = None
    overrides: dict[str, Any] = field(default_factory=dict)

    @property
    def refusal(self) -> tuple[str, str] | None:
        """Why no spot instance can be had from it: EC2's error code and message; None when one can."""
        if self.max_price_usd is not None and self.price_usd > self.max_price_usd:
            return (
                "SpotMaxPriceTooLow",
                f"Your Spot request price of {self.max_price_usd:g} is lower than the minimum required Spot request "
                f"fulfillment price of {self.price_usd:g}.",
            )
        if self.room is not None and self.room <= 0:
            return (
                "InsufficientInstanceCapacity",
                f"There is no Spot capacity available that matches your request: {self.instance_type} in "
                f"{self.subnet.zone}.",
            )
        return None


def choose_pool(candidates: Sequence[CandidatePool], *, strategy: str) -> CandidatePool | None:
    """Return the pool for the next spot instance; None when no pool has one.

    Args:
        candidates: In the order of the request.
        strategy: `SpotOptions.AllocationStrategy`.
    """
    possible = [candidate for candidate in candidates if candidate.refusal is None]
    return min(possible, key=_ORDERS[strategy]) if possible else None


def choose_on_demand(candidates: Sequence[CandidatePool]) -> CandidatePool:
    """Return the cheapest pool for the next on-demand instance, of which there are always more.

    Args:
        candidates: In the order of the request; at least one.
    """
    return min(candidates, key=_ORDERS["lowest-price"])


def _depth(candidate: CandidatePool) -> float:
    return -math.inf if candidate.room is None else -candidate.room


_ORDERS: dict[str, Callable[[CandidatePool], tuple[float, ...]]] = {
    "lowest-price": lambda pool: (pool.price_usd, pool.place),
    "price-capacity-optimized": lambda pool: (_depth(pool), pool.price_usd, pool.place),
}
SPOT_STRATEGIES = tuple(_ORDERS)
