"""What a command needs from outside: the deployment, the clock, chance. Tests hand in their own."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from spotkeep_cli.deployment import ConnectionOptions, Deployment

if TYPE_CHECKING:
    from spotkeep_planner.history.spot_market import SpotMarket


def _connect(options: ConnectionOptions) -> Deployment:
    from spotkeep_cli.connection import connect

    return connect(options)


def _spot_market(options: ConnectionOptions) -> SpotMarket:
    from spotkeep_cli.spot_market import spot_market

    return spot_market(options)


def _new_token() -> str:
    return secrets.token_hex(16)


def _now() -> datetime:
    return datetime.now(tz=UTC)


@dataclass(frozen=True, kw_only=True)
class Seams:
    """The outside world.

    Attributes:
        connect: Finds the deployment.
        now: The time.
        sleep: Waits so many seconds.
        new_token: A fresh idempotency token.
        spot_market: What the account can say of spot capacity.
    """

    connect: Callable[[ConnectionOptions], Deployment] = _connect
    now: Callable[[], datetime] = _now
    sleep: Callable[[float], None] = time.sleep
    new_token: Callable[[], str] = _new_token
    spot_market: Callable[[ConnectionOptions], SpotMarket] = _spot_market


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """One call of `spotkeep`: the root options and the outside world. Commands get it as `context.obj`.

    Attributes:
        options: Which deployment the user means.
        seams: The outside world.
    """

    options: ConnectionOptions = field(default_factory=ConnectionOptions)
    seams: Seams = field(default_factory=Seams)

    def deployment(self) -> Deployment:
        """The deployment the user means.

        Raises:
            NoConnectionError: It cannot be found.
        """
        return self.seams.connect(self.options)

    @property
    def poll_seconds(self) -> float:
        """How often a followed run is looked at; the local AWS is quick and costs nothing."""
        return 0.5 if self.options.local else 3.0

    def command(self, rest: str) -> str:
        """A command line that means the same deployment, to be copied."""
        return f"{self.options.command} {rest}"
