"""The rule for the checkpoints that stay when a newer one is there. Pure values and one decision."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

MODES = ("min", "max")
_FEWEST = 2


@dataclass(frozen=True)
class Best:
    """Keep the best checkpoint by a metric.

    Attributes:
        metric: Name that the script passes to `log`, for example `loss`.
        mode: `min` for a metric whose least value is best, `max` for the greatest.
    """

    metric: str
    mode: str = "min"


@dataclass(frozen=True)
class Candidate:
    """A checkpoint that may have to go.

    Attributes:
        step: Completed steps.
        metrics: What the script had logged when it was made.
        damaged: Whether it is known to be worth nothing.
        own_ranks: How many ranks it suits (`Manifest.own_ranks`). 0 for any number.
    """

    step: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    damaged: bool = False
    own_ranks: int = 0


@dataclass(frozen=True)
class Retention:
    """Which checkpoints stay.

    Whatever was asked for, so does the newest one for each other number of ranks: what each rank had for itself there
    was not taken over, and is nowhere else.

    Attributes:
        last: The newest so many good ones. Two always stay: one may turn out to be damaged.
        every: And each one whose step is a multiple of this.
        best: And the best one by a metric.
    """

    last: int = 3
    every: int | None = None
    best: Best | None = None

    @property
    def newest(self) -> int:
        """How many of the newest good ones stay."""
        return max(self.last, _FEWEST)

    def document(self) -> dict[str, Any]:
        """Give it as JSON values."""
        return asdict(self)

    def spared(self, newest: Sequence[Candidate], older: Sequence[Candidate]) -> set[int]:
        """Choose the steps of `older` that stay beside all of `newest`."""
        older = [candidate for candidate in older if not candidate.damaged]
        spared = {candidate.step for candidate in older if self.every and candidate.step % self.every == 0}
        if self.best is not None:
            sign = 1 if self.best.mode == "min" else -1
            ranked = [
                (sign * value, -candidate.step, candidate.step)
                for candidate in (*newest, *older)
                if not math.isnan(value := candidate.metrics.get(self.best.metric, math.nan))
            ]
            if ranked:
                spared.add(min(ranked)[2])
        newest_of: dict[int, int] = {}
        for candidate in sorted(older, key=lambda candidate: candidate.step):
            newest_of[candidate.own_ranks] = candidate.step
        superseded = {0, *(candidate.own_ranks for candidate in newest)}
        spared.update(step for ranks, step in newest_of.items() if ranks not in superseded)
        return spared - {candidate.step for candidate in newest}


def read_retention(document: object) -> Retention | None:
    """Read what `Retention.document` gave. None when it is anything else."""
    found = document if isinstance(document, Mapping) else {}
    last, every, best = _count(found.get("last")), found.get("every"), found.get("best")
    chosen = Best(**best) if isinstance(best, Mapping) and set(best) == {"metric", "mode"} else None
    if last is None or (every is not None and _count(every) is None) or (best is not None and chosen is None):
        return None
    if chosen is not None and (not isinstance(chosen.metric, str) or chosen.mode not in MODES):
        return None
    return Retention(last=last, every=every, best=chosen)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
