"""How long things take, with a time scale that makes all of it faster.

AWS documents the two minutes of a notice alone. The others are shorter than AWS's, and long enough that a caller which
does not wait fails.

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
        """Return a duration of AWS's as it is here."""
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
        """`creating`, `attaching` and `detaching` take this long each."""
        return self.scaled(1.0)

    @property
    def fleet_seconds(self) -> float:
        """From the loss of a fleet's instance to the launch of another."""
        return self.scaled(5.0)

    def snapshot_seconds(self, used_bytes: int) -> float:
        """Return the time from CreateSnapshot to `completed`."""
        return self.scaled(5.0 + used_bytes / (100 << 20))
