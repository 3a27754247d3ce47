"""What the figures must come to, and what they came to. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.fleet.recoveries import Goodbye, InstanceRecovery

MOST_TIMES_THE_FLOOR = 2.0
MOST_CALLS = 13
_REPORTED_AFTERWARDS = Counter({"logs:PutLogEvents": 1})
"""What an instance still sends of what it printed until then; it may have been sent by then or not."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What was measured with a state of one size.

    Attributes:
        state_mib: The size.
        floor_s: What each round takes at least: the process starts, has its checkpoint, and takes a step.
        recoveries: The recovery of each round without notice and without migration.
        noticed: Recoveries after a notice, without migration.
        migrated: Recoveries with migration.
        goodbyes: What became of the notices.
    """

    state_mib: int
    floor_s: Sequence[float]
    recoveries: Sequence[InstanceRecovery]
    noticed: Sequence[InstanceRecovery]
    migrated: Sequence[InstanceRecovery]
    goodbyes: Sequence[Goodbye]

    @property
    def times_the_floor(self) -> float:
        """The median recovery by the median floor."""
        return median(recovery.seconds for recovery in self.recoveries) / median(self.floor_s)

    @property
    def of_minima(self) -> float:
        """The same of the rounds that were least disturbed."""
        return min(recovery.seconds for recovery in self.recoveries) / min(self.floor_s)

    @property
    def calls(self) -> Mapping[str, int]:
        """The AWS calls of the recovery that made the most, by name."""
        most = max(self.recoveries, key=lambda recovery: sum(recovery.calls.values()))
        return dict(sorted((Counter(most.calls) | _REPORTED_AFTERWARDS).items()))

    @property
    def kept(self) -> bool:
        """Whether the targets are."""
        return self.times_the_floor <= MOST_TIMES_THE_FLOOR and sum(self.calls.values()) <= MOST_CALLS

    def phases_s(self, recoveries: Sequence[InstanceRecovery]) -> Mapping[str, float]:
        """Return the median of each phase."""
        names = dict.fromkeys(name for recovery in recoveries for name in recovery.phases_s)
        return {name: round(median(one.phases_s.get(name, 0.0) for one in recoveries), 3) for name in names}

    def document(self) -> Mapping[str, object]:
        """Return the figures as JSON values."""
        return {
            "state_mib": self.state_mib,
            "floor_s": list(self.floor_s),
            "recovery_s": [round(recovery.seconds, 3) for recovery in self.recoveries],
            "phases_s": self.phases_s(self.recoveries),
            "times_the_floor": round(self.times_the_floor, 3),
            "of_minima": round(self.of_minima, 3),
            "calls": self.calls,
            "after_a_notice": {"phases_s": self.phases_s(self.noticed), "calls": [dict(o.calls) for o in self.noticed]},
            "with_migration": {
                "phases_s": self.phases_s(self.migrated),
                "calls": [dict(one.calls) for one in self.migrated],
            },
            "goodbyes": [vars(goodbye) for goodbye in self.goodbyes],
            "targets": {"times_the_floor": MOST_TIMES_THE_FLOOR, "calls": MOST_CALLS},
            "kept": self.kept,
        }
