"""A sweep, as a notebook or a pipeline uses it.

A trial is a run, such as `Spotkeep().run("digits-sweep-1a2b3c4d/17")`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spotkeep_cli.errors import RunFailedError, RunNotFoundError, RunStoppedError, UsageError
from spotkeep_cli.following import Unreachable, polls
from spotkeep_cli.launching.answers import ask_launcher
from spotkeep_cli.launching.resume_changes import resume_changes
from spotkeep_cli.rendering.metric_list import at_step
from spotkeep_cli.sweeps.sweep_view import states_in_words
from spotkeep_client.run import pandas_for, warn_of
from spotkeep_jobs.record.states import SweepState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pandas as pd

    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_cli.seams import Invocation
    from spotkeep_jobs.record import sweep as record


class Sweep:
    """One sweep. Each property and method reads the record anew.

    Args:
        sweep: Its id.
        deployment: The deployment that it runs in.
        invocation: The options that chose the deployment, and the clock.
    """

    def __init__(self, sweep: str, *, deployment: DeploymentClient, invocation: Invocation) -> None:
        self.id = sweep
        self._deployment = deployment
        self._invocation = invocation

    @property
    def state(self) -> str:
        """Its state, one of RUNNING, STOPPING, PAUSED, COMPLETED, FAILED or STOPPED."""
        return self._record().state.value

    def wait(self, *, show: Callable[[str], object] | None = None) -> Sweep:
        """Wait until its search is over. Leaving off (an interrupt of the kernel) leaves it running.

        Args:
            show: Called with a line whenever trials have changed their states, or one is the best now: `print`.

        Raises:
            RunFailedError: Its trials failed, one after the other.
            RunStoppedError: It was stopped or paused, or its `max_cost` is spent.
            NoConnectionError: The deployment stayed out of reach.
        """
        ended = next(found for found in self._followed(show) if found.state.ended)
        if ended.state is SweepState.COMPLETED:
            return self
        because = f", {ended.ended_because}" if ended.ended_because else ""
        said, hint = f"{self.id} is {ended.state.value.lower()}{because}", "trials() says what became of each"
        error = RunFailedError if ended.state is SweepState.FAILED else RunStoppedError
        raise error(said, hint=hint)

    def _followed(self, show: Callable[[str], object] | None) -> Iterator[record.Sweep]:
        shown = ""
        for found in polls(self._record, pause=self._invocation.pause):
            if not isinstance(found, Unreachable):
                if show is not None and (line := _line(found)) != shown:
                    show(shown := line)
                yield found

    def trials(self) -> pd.DataFrame:
        """Return a row a trial, by its number, with its run, state, steps, best value, and `parameters.<name>`.

        Raises:
            UsageError: pandas is not installed.
        """
        pandas = pandas_for("trials()", without="spotkeep describe --json")
        trials = self._deployment.table.sweeps.with_trials(self.id)[1]
        rows = {
            each.number: {
                "run": each.run,
                "state": each.state.value,
                "step": each.step,
                "best": each.best,
                "best_step": each.best_step,
                **{f"parameters.{name}": value for name, value in each.parameters.items()},
            }
            for each in trials
        }
        return pandas.DataFrame.from_dict(rows, orient="index").sort_index().rename_axis("trial")

    def best(self) -> record.BestTrial:
        """Return the trial with the best objective, as its `number`, `run`, `value`, `step` and `parameters`.

        Raises:
            UsageError: None has reported its objective yet, or the sweep has none.
        """
        found = self._record().best
        if found is None:
            raise UsageError(
                f"{self.id} has no best trial yet: none has reported its objective, or it has none",
                hint="trials() says where each is",
            )
        return found

    def stop(self) -> Sweep:
        """Ask its trials to end. They save first, and the sweep can be resumed.

        Raises:
            RefusedError: The caller may not stop it.
        """
        ask_launcher(self._deployment, {"action": "stop", "sweep": self.id}, what=f"{self.id} was not stopped")
        return self

    def resume(self, *, source: str | Path | None = None, **changes: Any) -> Sweep:
        """Let a sweep that has ended go on, with the trials that stopped with it or failed and then its search.

        Args:
            source: Code that each trial goes on with, as a directory or an archive, relative to the current directory.
            **changes: New values of fields of its job, such as `max_cost=60`. None takes a field away.

        Raises:
            RefusedError: It has not ended, has nothing left to try, or the changed job would not be launched.
        """
        fields = changes if source is None else {**changes, "source": str(source)}
        resumed = resume_changes(self._record(), fields=fields, deployment=self._deployment)
        warn_of(resumed.warnings)
        resumed.send(self._deployment)
        return self

    def __repr__(self) -> str:
        """Return its id and the state of its trials."""
        return f"<Sweep {_line(self._record())}>"

    def _record(self) -> record.Sweep:
        found = self._deployment.table.sweeps.get(self.id)
        if found is None:
            raise RunNotFoundError(f"the record of {self.id} is gone", hint="ended sweeps are forgotten after a while")
        return found


def _line(sweep: record.Sweep) -> str:
    """Return the state of a sweep in one line."""
    states = states_in_words(sweep.counts)
    best = sweep.best
    parts = [sweep.state.value.lower(), *([states] if states else [])]
    if best is not None:
        parts.append(f"best trial {best.number}: {at_step(best.value, best.step)}")
    return f"{sweep.sweep}: {'; '.join(parts)}"
