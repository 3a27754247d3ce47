"""The way in which a save copies the state, at once or while the training goes on. Pure.

A late copy is right where the tensors of an optimizer change in its steps alone. A script may also change them in other
ways, for example by `weight.data.clamp_()` before a forward pass. So the first saves copy all at once, and compare the
copy with the state before the next step of an optimizer. A difference turns late copies off.

A late copy takes memory bandwidth and processors from the training. It is worth that where processors are idle, for
example while a GPU trains. So a number of saves try both ways in turn, and the faster one stays.
"""

from __future__ import annotations

import enum
import statistics

COMPARED_SAVES = 3
"""So many first saves are compared."""
COMPARED_EVERY = 100
"""One of so many later saves is compared."""
TRIED_SAVES = 6
"""So many saves try each of the two ways. An even number, as `_IN_TURN` needs."""


class CopyWay(enum.Enum):
    """The way in which a save copies the tensors of optimizers.

    Attributes:
        AT_ONCE: The training waits for the copy.
        COMPARED: The training waits for the copy, which is compared with the state before the next step changes it.
        LATE: The copy goes on while the training does.
    """

    AT_ONCE = enum.auto()
    COMPARED = enum.auto()
    LATE = enum.auto()


_IN_TURN = (CopyWay.LATE, CopyWay.AT_ONCE, CopyWay.AT_ONCE, CopyWay.LATE)
"""The ways that are tried. Work after each second save, such as a validation, comes as often after both."""


class LateCopying:
    """Chooses the way of each save.

    Attributes:
        why_off: The reason why no copy is late any more. None while copies may be.
    """

    def __init__(self) -> None:
        self.why_off: str | None = None
        self._compared = 0
        self._since = 0
        self._seconds: dict[CopyWay, list[float]] = {CopyWay.LATE: [], CopyWay.AT_ONCE: []}

    @property
    def medians(self) -> dict[CopyWay, float] | None:
        """The seconds that saves of each way took, as for `took`. None until both ways were tried."""
        if any(len(tried) < TRIED_SAVES for tried in self._seconds.values()):
            return None
        return {way: statistics.median(tried) for way, tried in self._seconds.items()}

    def next_way(self, *, goes_on: bool, stepped: bool) -> CopyWay:
        """Choose the way of the next save.

        Args:
            goes_on: The training goes on with another step in the same loop.
            stepped: The hooks of an optimizer have shown a step since the last save.
        """
        if self.why_off is not None or not goes_on or not stepped:
            return CopyWay.AT_ONCE
        medians = self.medians
        if medians is not None and medians[CopyWay.LATE] >= medians[CopyWay.AT_ONCE]:
            return CopyWay.AT_ONCE
        if self._compared < COMPARED_SAVES or self._since + 1 >= COMPARED_EVERY:
            self._compared, self._since = self._compared + 1, 0
            return CopyWay.COMPARED
        self._since += 1
        return CopyWay.LATE if medians is not None else _IN_TURN[sum(map(len, self._seconds.values())) % len(_IN_TURN)]

    def took(self, way: CopyWay, seconds: float) -> None:
        """Learn from a save that ended its copy.

        Args:
            way: Its way.
            seconds: From the beginning of the save to the end of the step after it.
        """
        tried = self._seconds.get(way)
        if tried is not None and len(tried) < TRIED_SAVES:
            tried.append(seconds)

    def turn_off(self, why: str) -> None:
        """Copy all at once from now on.

        Args:
            why: The reason. The first one stays.
        """
        self.why_off = self.why_off or why
