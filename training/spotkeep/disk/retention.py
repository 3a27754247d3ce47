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
        metric: Name in the script's `log`, for example `loss`.
        mode: Either `min`, where the least value is best, or `max` for the greatest.
    """

    metric: str
    mode: str = "min"


@dataclass(frozen=True)
class Candidate:
    """A checkpoint that may have to be removed.

    Attributes:
        step: Number of completed steps.
        metrics: The values that the script had logged when it was made, by name.
        damaged: True if it is known to be damaged.
        own_ranks: The number of ranks that it suits (`Manifest.own_ranks`). 0 for any number.
    """

    step: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    damaged: bool = False
    own_ranks: int = 0


@dataclass(frozen=True)
class Retention:
    """The rule for the checkpoints that stay.

    The newest checkpoint for each other number of ranks stays in any case. The own state of its ranks was not taken
    over, and exists nowhere else.

    Attributes:
        last: Number of the newest undamaged checkpoints that stay, at least two, because one may prove damaged.
        every: Each checkpoint with a step that is a multiple of this number stays, too.
        best: The best checkpoint by this metric stays, too.
    """

    last: int = 3
    every: int | None = None
    best: Best | None = None

    @property
    def newest(self) -> int:
        """The number of the newest undamaged checkpoints that stay."""
        return max(self.last, _FEWEST)

    def document(self) -> dict[str, Any]:
        """Give it as JSON values."""
        return asdict(self)

    def spared(self, newest: Sequence[Candidate], older: Sequence[Candidate]) -> set[int]:
        """Choose the steps of `older` that stay beside all of `newest`."""
        older = [candidate for candidate in older if not candidate.damaged]
        spared = {candidate.step for candidate in older if self.every and candidate.step % self.every == 0}
        if self.best is not None:
            best = best_step((*newest, *older), self.best)
            spared |= set() if best is None else {best}
        newest_of: dict[int, int] = {}
        for candidate in sorted(older, key=lambda candidate: candidate.step):
            newest_of[candidate.own_ranks] = candidate.step
        superseded = {0, *(candidate.own_ranks for candidate in newest)}
        spared.update(step for ranks, step in newest_of.items() if ranks not in superseded)
        return spared - {candidate.step for candidate in newest}


def best_step(candidates: Sequence[Candidate], best: Best) -> int | None:
    """Find the best checkpoint by a metric, the newest of equal ones.

    None where none has the metric. A damaged one has none.
    """
    sign = 1 if best.mode == "min" else -1
    ranked = [
        (sign * value, -candidate.step, candidate.step)
        for candidate in candidates
        if not math.isnan(value := candidate.metrics.get(best.metric, math.nan))
    ]
    return min(ranked)[2] if ranked else None


def read_retention(document: object) -> Retention | None:
    """Read a document of `Retention.document`. None for anything else."""
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
