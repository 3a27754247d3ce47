"""How long things take, where AWS documents it or everybody has seen it; a time scale makes all of it faster.

Only the two minutes of a notice are AWS's promise. The others are short beside AWS's, yet long enough that a caller who
does not wait is found out.

Source: "Spot Instance interruption notices" in Amazon EC2's user guide.
"""

from __future__ import annotations

from dataclasses import dataclass

NOTICE_SECONDS = 120.0


@dataclass(frozen=True)
class Latencies:
    """Durations on this machine.

    Args:
        time_scale: How many times faster than on AWS.
    """

    time_scale: float

    def scaled(self, seconds: float) -> float:
        """A duration on AWS as it is here."""
        return seconds / self.time_scale

    @property
    def notice_seconds(self) -> float:
        """From an interruption notice to the interruption."""
        return self.scaled(NOTICE_SECONDS)

    @property
    def instance_seconds(self) -> float:
        """From a launch to `running`."""
        return self.scaled(2.0)

    @property
    def shutdown_seconds(self) -> float:
        """From SIGTERM to SIGKILL when an instance is terminated."""
        return self.scaled(30.0)

    @property
    def volume_seconds(self) -> float:
        """`creating`, `attaching`, `detaching` and a modification take this long each."""
        return self.scaled(1.0)

    @property
    def fleet_seconds(self) -> float:
        """From a fleet's missing an instance to its launching another."""
        return self.scaled(5.0)

    def snapshot_seconds(self, used_bytes: int) -> float:
        """From CreateSnapshot to `completed`."""
        return self.scaled(5.0 + used_bytes / (100 << 20))
