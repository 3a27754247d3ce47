"""Actions of users on a sweep that was launched, which are to stop, to pause and to resume it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from spotkeep_jobs.document.reading import outlined, shown
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.errors import Problem, RequestRefusedError
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.states import SweepState, TrialState
from spotkeep_jobs.record.sweep import Sweep, SweepChange, Trial
from spotkeep_jobs.record.sweep_store import SweepChangedError
from spotkeep_jobs.record.table_client import RecordRefusedError, until_written
from spotkeep_jobs.runs.acceptance import Acceptance, is_repeated
from spotkeep_jobs.sweeps.advance import Advanced, Sweeps
from spotkeep_jobs.sweeps.budget import max_cost_of, parallel_problems, spent_usd
from spotkeep_jobs.sweeps.decision import going_on, stopping
from spotkeep_jobs.sweeps.document import SweepRequest, read_sweep, recorded_document
from spotkeep_jobs.sweeps.launch import notify_of
from spotkeep_jobs.sweeps.resumed_trials import waits_to_go_on
from spotkeep_jobs.sweeps.trial_documents import (
    JUDGED_TRIALS,
    FirstTrial,
    first_trials,
    judged_trials,
    placeholder_problems,
    trial_document,
)

if TYPE_CHECKING:
    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.settings import LauncherSettings

_STAYS: Final = (
    "name", "run", "token", "owner", "team", "tags", "backend", "checkpoints", "checkpoint_prefix", "volume"
)  # fmt: skip
"""Fields of the names of a sweep and its trials, of their owner, and of the place of their checkpoints."""
_OF_THE_SEARCH: Final = ("parameters", "search", "objective", "asha", "seed")
"""The fields by which the trials so far were chosen. Another search would be another sweep."""
_TYPES: Final = frozenset({"instance_type", "instance_types"})
"""Two names of one field."""


@dataclass(frozen=True)
class SweepActions:
    """Stops, pauses, resumes and describes sweeps."""

    deployment: Deployment[LauncherSettings]

    def stop(self, sweep: str, *, as_: SweepState = SweepState.STOPPED, seconds_left: Callable[[], float]) -> Advanced:
        """Let a sweep stop.

        Its trials save first, and no other trial begins. Stopping a sweep that has ended changes nothing.

        Args:
            sweep: Its id.
            as_: The sweep's state afterwards. STOPPED, or PAUSED, of which no notification is sent.
            seconds_left: Returns the seconds that the function still has. It is called before each run is stopped.

        Raises:
            RequestRefusedError: The sweep is not known.
            SweepChangedError: The sweep kept changing under every try.
            RecordRefusedError: DynamoDB does not take the record. The trials were stopped all the same.
        """
        because = "a user paused it" if as_ is SweepState.PAUSED else "a user stopped it"
        try:
            until_written(
                lambda: request_stop(
                    self.deployment.table, self.known(sweep), as_=as_, because=because, now=self.deployment.now()
                ),
                changed=SweepChangedError,
                pause=self.deployment.pause,
            )
        except RecordRefusedError as refused:
            unreadable: dict[str, str] = {}
            trials = self.deployment.table.sweeps.with_trials(sweep, unreadable=unreadable)[1]
            for why in unreadable.values():
                refused.add_note(why)
            Sweeps(self.deployment).stop_trials(trials, refused=refused)
            raise
        return Sweeps(self.deployment).advance(sweep, seconds_left=seconds_left) or Advanced(sweep=self.known(sweep))

    def resume(self, sweep: str, *, changes: Mapping[str, Any], seconds_left: Callable[[], float]) -> Advanced:
        """Let a sweep that has ended go on.

        First the trials go on that stopped with it or failed (`resumed_trials`), then the search.

        Args:
            sweep: Its id.
            changes: New values of fields of its document, for each trial that trains from now on. None takes a field
                away.
            seconds_left: Returns the seconds that the function still has. It is called before each run is resumed or
                opened.

        Raises:
            RequestRefusedError: The sweep is not known, has not ended, or is over, or the changed document is refused.
                A sweep that an earlier call let go on in the same way within the hour is not refused.
            SweepChangedError: The sweep kept changing under every try.
        """

        def begin() -> None:
            item, trials = self.deployment.table.sweeps.with_trials(sweep)
            if item is None:
                raise RequestRefusedError([unknown_sweep(sweep)])
            document = _changed_document(item.document, changes)
            request, problems = read_sweep(document, tpe=(self.deployment.settings.tpe_search_function is not None))
            problems = [*_not_changed(item, changes, request, trials), *problems]
            if request is not None and _goes_on_so(
                item, recorded_document(document, request), now=self.deployment.now()
            ):
                return
            if not item.state.ended:
                problems = [_not_over(item)]
            if problems or request is None:
                raise RequestRefusedError(problems)
            document = recorded_document(document, request)
            now = self.deployment.now()
            differing = _differing(item.document, document)
            after = going_on(item, document=document, changed=differing, trials=trials, now=now)
            waiting = [trial for trial in trials if waits_to_go_on(trial, sweep=after)]
            judged, wrong = self._of_its_trials(after, request, waiting)
            problems = wrong if changes else []
            problems += self._of_its_money(after, request, trials, requests=judged, now=now)
            if item.state is SweepState.COMPLETED and not changes and not waiting:
                problems.append(_is_over(item))
            if problems:
                raise RequestRefusedError(problems)
            after = with_changes(after, notify=notify_of(document), updated_at=now, resumed_at=now)
            self.deployment.table.sweeps.commit(SweepChange(sweep=after), goes_on=True)

        until_written(begin, changed=SweepChangedError, pause=self.deployment.pause)
        return Sweeps(self.deployment).advance(sweep, seconds_left=seconds_left) or Advanced(sweep=self.known(sweep))

    def _of_its_trials(
        self, sweep: Sweep, request: SweepRequest, waiting: Sequence[Trial]
    ) -> tuple[list[JobRequest], list[Problem]]:
        """Return the trials of a document, as it would launch them or let them go on, and the problems with them."""
        caller, document = sweep.launched_by, sweep.document
        judged = [*first_trials(document, request, token=sweep.token, owner=sweep.owner)]
        judged += [
            FirstTrial(
                number=trial.number,
                parameters=trial.parameters,
                document=trial_document(document, request, trial=trial, token=sweep.token, owner=sweep.owner),
            )
            for trial in waiting[:JUDGED_TRIALS]
        ]
        acceptance = Acceptance(self.deployment)
        answers = judged_trials(judged, judge=lambda each: acceptance.judged(each, caller=caller))
        return answers.requests, [*placeholder_problems(document, judged[0].parameters), *answers.problems]

    def _of_its_money(
        self,
        sweep: Sweep,
        request: SweepRequest,
        trials: Sequence[Trial],
        *,
        requests: Sequence[JobRequest],
        now: datetime,
    ) -> list[Problem]:
        """Return the problem that the rest of max_cost does not pay for the trials that are to train at a time."""
        limit, spent = max_cost_of(sweep), spent_usd(trials, now=now)
        if limit is None:
            return []
        if spent >= limit:
            return [_is_spent(sweep, spent)]
        go_on = sum(waits_to_go_on(trial, sweep=sweep) or trial.state is TrialState.PAUSED for trial in trials)
        parallel = max(1, min(request.parallel, go_on + request.most_trials - len(trials)))
        return parallel_problems(
            limit=limit, spent=spent, parallel=parallel, requests=requests, prices=self.deployment.prices
        )

    def known(self, sweep: str) -> Sweep:
        """Return a sweep's item.

        Raises:
            RequestRefusedError: The sweep is not known.
        """
        item = self.deployment.table.sweeps.get(sweep)
        if item is None:
            raise RequestRefusedError([unknown_sweep(sweep)])
        return item

    def trials(self, sweep: str) -> Sequence[Trial]:
        """Return the trials of a sweep, in the order of their numbers."""
        return self.deployment.table.sweeps.with_trials(sweep)[1]


def request_stop(table: RunTable, sweep: Sweep, *, as_: SweepState, because: str, now: datetime) -> None:
    """Record that a sweep is to stop.

    A sweep that has ended, or stops already, stays as it is. A pause becomes a stop.

    Args:
        table: The table that records sweeps.
        sweep: The sweep's item, as it was read.
        as_: The sweep's state when no trial runs any more. STOPPED or PAUSED.
        because: The reason.
        now: The time.

    Raises:
        SweepChangedError: Another function changed the sweep since it was read.
    """
    pauses = sweep.state is SweepState.STOPPING and sweep.stops_as is SweepState.PAUSED
    if sweep.state is SweepState.RUNNING or (pauses and as_ is SweepState.STOPPED):
        changed = stopping(sweep, as_=as_, because=because, now=sweep.stop_requested_at or now)
        table.sweeps.commit(SweepChange(sweep=with_changes(changed, updated_at=now)))


def unknown_sweep(sweep: str) -> Problem:
    """Say that there is no such sweep."""
    return Problem(
        field="sweep",
        found=shown(sweep),
        problem="is not a sweep of this deployment",
        fix="See the sweeps and runs there are: spotkeep ps --all",
    )


def _goes_on_so(sweep: Sweep, document: Mapping[str, Any], *, now: datetime) -> bool:
    """Return True if an earlier call has let the sweep go on with the same document.

    Clients repeat calls by themselves.
    """
    return (
        sweep.state is SweepState.RUNNING
        and sweep.resumed_at is not None
        and is_repeated(launched_at=sweep.resumed_at, now=now)
        and document == sweep.document
    )


def _changed_document(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    replaced = _TYPES if _TYPES & changes.keys() else frozenset()
    kept = {name: value for name, value in document.items() if name not in replaced}
    return {name: value for name, value in {**kept, **changes}.items() if value is not None}


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> frozenset[str]:
    """Return the fields of the trials' documents that differ."""
    differ = {field for field in before.keys() | after.keys() if before.get(field) != after.get(field)} - {"sweep"}
    if before["sweep"].get("notify_trials") != after["sweep"].get("notify_trials"):
        differ.add("notify")
    return frozenset(differ)


def _not_changed(
    sweep: Sweep, changes: Mapping[str, Any], request: SweepRequest | None, trials: Sequence[Trial]
) -> list[Problem]:
    problems = [
        Problem(
            field=field,
            found=outlined(changes[field]),
            problem="is not changed by a resume",
            fix="Remove it; or launch a new sweep.",
        )
        for field in _STAYS
        if field in changes
    ]
    if request is None:
        return problems
    before = SweepRequest.model_validate(sweep.document["sweep"])
    problems += [
        Problem(
            field=f"sweep.{field}",
            found=outlined(getattr(request, field)),
            problem="is what the trials so far were chosen by, and is not changed by a resume",
            fix="Remove it; or launch a new sweep.",
        )
        for field in _OF_THE_SEARCH
        if getattr(request, field) != getattr(before, field)
    ]
    if request.listed[: len(trials)] != before.listed[: len(trials)] or request.most_trials < len(trials):
        problems.append(
            Problem(
                field="sweep.trials",
                found=shown(request.most_trials),
                problem=f"is not what {len(trials)} trials were chosen from",
                fix="Write as many as there are, or more; a list goes on with new trials at its end.",
            )
        )
    return problems


def _not_over(sweep: Sweep) -> Problem:
    return Problem(
        field="sweep",
        found=shown(sweep.sweep),
        problem=f"is not over: it is {sweep.state}",
        fix=f"Wait for it, or pause it first: spotkeep pause {sweep.sweep}",
    )


def _is_spent(sweep: Sweep, spent: float) -> Problem:
    return Problem(
        field="max_cost",
        found=shown(sweep.document.get("max_cost")),
        problem=f"is spent: its trials have cost {spent:.2f} USD",
        fix=f"Give it more: spotkeep resume {sweep.sweep} --set max_cost={round(2 * spent + 1)}",
    )


def _is_over(sweep: Sweep) -> Problem:
    return Problem(
        field="sweep",
        found=shown(sweep.sweep),
        problem="has completed: its search has no trial left, and none of its trials failed",
        fix=f"Give it more: spotkeep resume {sweep.sweep} --set sweep.trials={sweep.counts.chosen + 10}",
    )
