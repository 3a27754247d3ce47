"""What the figures must come to: ratios of things measured in one run, and the target of each."""

from __future__ import annotations

from dataclasses import dataclass

TARGETS = {
    "extra_time_vs_torch_save": 0.10,
    "extra_time_vs_best_async": 0.25,
    "durable_vs_direct_write": 1.15,
    "restore_warm_vs_read": 1.3,
    "restore_cold_vs_direct_read": 1.1,
    "memory_vs_state": 2.1,
}


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """One figure with a target.

    Attributes:
        key: One of `TARGETS`.
        median: The ratio of the medians, which is judged.
        minimum: The ratio of the minima: from the rounds least disturbed.
    """

    key: str
    median: float
    minimum: float

    @property
    def target(self) -> float:
        """At most this."""
        return TARGETS[self.key]

    @property
    def met(self) -> bool:
        """Whether the medians keep the target."""
        return self.median <= self.target

    def to_document(self) -> dict[str, float | bool]:
        """Return the figure as JSON."""
        return {
            "value": round(self.median, 3),
            "of_minima": round(self.minimum, 3),
            "target": self.target,
            "met": self.met,
        }
