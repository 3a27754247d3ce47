"""What comes of a launch or a resume: the run with its job, or that AWS did not answer for certain."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from spotkeep_jobs.errors import AwsCallError, RequestRefusedError, SpotkeepJobsError
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.run_table_errors import RunChangedError
from spotkeep_jobs.record.states import EndReason
from spotkeep_jobs.runs.launch_completion import refused_by_its_backend

REFUSED: Final = frozenset({EndReason.LAUNCH_REFUSED, EndReason.QUOTA})
"""How a run ends whose job AWS refused to create."""
_CONFLICT_PAUSE_SECONDS: Final = 0.05


class LaunchUnfinishedError(SpotkeepJobsError):
    """AWS did not answer for certain: the run is recorded and will be completed, or nothing happened at all.

    Calling again with the same token is safe, and so is waiting: the controller completes what is recorded.
    """

    def __init__(self, *, run: str, doing: str, cause: Exception, token: str | None = None) -> None:
        token_of = "token" if token is None else f"token {token}"
        super().__init__(
            f"{doing} run {run!r} is not finished: {cause}. Nothing is lost and nothing runs twice: call again with "
            f"the same document and {token_of}, or wait for the controller, which completes a recorded run within "
            "minutes"
        )
        self.run = run


@dataclass(frozen=True, kw_only=True)
class Launched:
    """A run that has its job, or several that were launched as one.

    Attributes:
        run: The run item; of several, the first one's.
        others: The others', in the order of their numbers.
        replayed: Whether it was launched by an earlier call; this one launched nothing.
        warnings: What is allowed but probably not meant.
    """

    run: Run
    others: tuple[Run, ...] = ()
    replayed: bool
    warnings: tuple[str, ...] = ()

    @property
    def runs(self) -> tuple[Run, ...]:
        """All of them."""
        return (self.run, *self.others)


@contextlib.contextmanager
def unfinished_without_an_answer(run: str, *, doing: str, token: str | None = None) -> Iterator[None]:
    """Raise LaunchUnfinishedError where AWS did not answer for certain, or the run kept changing under every try.

    Args:
        run: The run's id.
        doing: What is done to it, in one word.
        token: The launch's token, where it is a launch: with it the next call finishes this one.
    """
    try:
        yield
    except (AwsCallError, RunChangedError) as error:
        raise LaunchUnfinishedError(run=run, doing=doing, cause=error, token=token) from error


def refuse_if_its_backend_did(run: Run) -> Run:
    """Return a run, unless AWS refused its job for good.

    Raises:
        RequestRefusedError: It says why AWS refused the job.
    """
    if run.end_reason in REFUSED:
        raise RequestRefusedError([refused_by_its_backend(run)])
    return run


def pause_after_conflicts(sleep: Callable[[float], None] = time.sleep) -> Callable[[int], None]:
    """Return what waits before the next try of a transaction that met another one: longer after each try."""
    return lambda tries: sleep(_CONFLICT_PAUSE_SECONDS * 2**tries)
