"""The flows run with their permissions withheld: each ends in a denial, and the next one gets one step further.

Everything that a job was seen to need is withheld at once, from every role and from its user. A caller that misses
something is denied it, once, as AWS would: the launch is refused, the job fails, the instance gives up. Then the job is
launched again, until it misses nothing more or the time is over.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep_cli.errors import CommandLineError
from spotkeep_local import permission_control

if TYPE_CHECKING:
    from spotkeep_cli.rehearsal.deployment import RehearsedDeployment
    from spotkeep_local.iam.withheld import WithheldGrant
    from spotkeep_local.lifecycle import LocalAws

_POLL_SECONDS: Final = 0.5
_STOP_SECONDS: Final = 90.0


@dataclass(frozen=True, kw_only=True)
class Flow:
    """What is launched again and again.

    Attributes:
        connect: Finds the deployed app as a command does, with the job file.
        name: What the ids of the runs begin with.
        fields: Fields of the job file that have another value.
        quiet_seconds: A run that misses nothing for so long waits for something that was refused, and is given up.
        after_seconds: How long what follows the end of a run may take.
    """

    connect: Callable[[], RehearsedDeployment]
    name: str
    fields: Mapping[str, object]
    quiet_seconds: float
    after_seconds: float


def run_without(
    grants: Sequence[WithheldGrant],
    flow: Flow,
    *,
    local: LocalAws,
    until: float,
    progress: Callable[[int], None],
) -> None:
    """Launch a job again and again while grants are withheld, until a run misses none; then give all back.

    Args:
        grants: What is withheld.
        flow: What is launched.
        local: The local AWS.
        until: When there is no more time, on the monotonic clock.
        progress: Called after each run with how many grants were missed so far.
    """
    before = len(permission_control.missed(local))

    def missed() -> int:
        return len(permission_control.missed(local)) - before

    runs: list[str] = []
    permission_control.withhold(local, grants)
    try:
        seen = -1
        while missed() > seen and time.monotonic() < until:
            seen = missed()
            runs.append(f"{flow.name}-{len(runs) + 1}")
            with _refused():
                deployment = flow.connect()
                deployment.launch(run=runs[-1], **flow.fields)
                _follow(runs[-1], deployment, flow=flow, missed=missed, until=until)
            with _refused():
                flow.connect().ask("stop", run=runs[-1])
            progress(missed())
    finally:
        permission_control.withhold(local, ())
        _end(runs, deployment=flow.connect())


def _follow(run: str, deployment: RehearsedDeployment, *, flow: Flow, missed: Callable[[], int], until: float) -> None:
    """Read a run as its user does until it has ended, and what follows has happened; or it missed nothing for long."""
    count, since = missed(), time.monotonic()
    ended_at = None
    while time.monotonic() < min(since + flow.quiet_seconds, until):
        if missed() != count:
            count, since = missed(), time.monotonic()
        if ended_at is not None and time.monotonic() > ended_at + flow.after_seconds:
            return
        with _refused():
            found = deployment.runs.get(run)
            if found is None:
                return
            if found.state.ended and ended_at is None:
                ended_at = time.monotonic()
            for attempt in deployment.runs.attempts(run):
                deployment.job_log(*attempt.log_names).read()
        time.sleep(_POLL_SECONDS)


def _end(runs: Sequence[str], *, deployment: RehearsedDeployment) -> None:
    """Stop the runs that have not ended, now that everything is allowed again, and wait for them."""
    deadline = time.monotonic() + _STOP_SECONDS
    alive = set(runs)
    for run in runs:
        with _refused():
            deployment.ask("stop", run=run)
    while alive and time.monotonic() < deadline:
        alive = {run for run in alive if (found := deployment.runs.get(run)) is not None and not found.state.ended}
        time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    """Go on after what was refused: that is what is waited for."""
    with contextlib.suppress(CommandLineError, ClientError, BotoCoreError):
        yield
