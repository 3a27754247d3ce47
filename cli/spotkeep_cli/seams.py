"""The outside world of a command, which is the deployment, the clock and chance. Tests pass their own."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from spotkeep_cli.aws.connection_options import ConnectionOptions

if TYPE_CHECKING:
    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_planner.spot_market import SpotMarket


def _new_token() -> str:
    return secrets.token_hex(16)


def _now() -> datetime:
    return datetime.now(tz=UTC)


@dataclass(frozen=True, kw_only=True)
class Seams:
    """The outside world.

    Attributes:
        connect: Finds the deployment.
        spot_market: The account's facts about spot capacity.
        now: Returns the time.
        sleep: Waits for a number of seconds.
        new_token: Returns a fresh idempotency token.
    """

    connect: Callable[[ConnectionOptions], DeploymentClient]
    spot_market: Callable[[ConnectionOptions], SpotMarket]
    now: Callable[[], datetime] = _now
    sleep: Callable[[float], None] = time.sleep
    new_token: Callable[[], str] = _new_token


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """One call of `spotkeep`, with the root options and the outside world. Commands get it as `context.obj`.

    Attributes:
        options: The user's choice of a deployment.
        seams: The outside world.
    """

    options: ConnectionOptions
    seams: Seams

    def deployment(self) -> DeploymentClient:
        """Return the deployment the user means.

        Raises:
            NoConnectionError: It cannot be found.
        """
        return self.seams.connect(self.options)

    def pause(self) -> None:
        """Wait before a run that is followed is read again. The local AWS is quick and costs nothing."""
        self.seams.sleep(0.5 if self.options.local else 3.0)

    def command(self, rest: str) -> str:
        """Return a command line that means the same deployment, to be copied."""
        return f"{self.options.command} {rest}"
