"""A run that a user names: its run item, or a refusal; and whether the user may act on it."""

from __future__ import annotations

from spotkeep_jobs.document.reading import shown
from spotkeep_jobs.errors import Problem, RequestRefusedError
from spotkeep_jobs.record.caller import Caller
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.runs.callers import CallerRules, not_the_callers, unknown_caller


class RunAccess:
    """Refuses callers who may not act on a run, where the deployment verifies who calls."""

    def __init__(self, *, table: RunTable, rules: CallerRules | None) -> None:
        """Bind the rules.

        Args:
            table: Where runs are recorded.
            rules: What callers may act on; None for a deployment that does not verify who calls.
        """
        self._table = table
        self._rules = rules

    @property
    def verifies_callers(self) -> bool:
        """Whether the deployment verifies who calls."""
        return self._rules is not None

    def authorize(self, run_id: str, *, caller: Caller | None) -> None:
        """Refuse a caller who may not act on a run.

        A run's owner and team never change, so what is decided here holds for what the caller asks for next.

        Raises:
            RequestRefusedError: The run is another's, or is not known.
        """
        if not self._decides_without_owner(caller):
            run = known_run(self._table, run_id)
            self.authorize_for(run_id, owner=run.owner, team=run.request.get("team"), caller=caller)

    def authorize_for(self, what: str, *, owner: str | None, team: str | None, caller: Caller | None) -> None:
        """Refuse a caller who may not act on what has this owner and this team.

        Args:
            what: Its id.
            owner: Its owner.
            team: Its team; None for none.
            caller: Who calls.

        Raises:
            RequestRefusedError: It is another's.
        """
        if self._decides_without_owner(caller) or self._rules is None or caller is None:
            return
        if not self._rules.may_act(caller, owner=owner, team=team):
            raise RequestRefusedError([not_the_callers(what, owner=owner, caller=caller)])

    def _decides_without_owner(self, caller: Caller | None) -> bool:
        """Return whether a caller may act on everything; refuse an unknown one where that matters."""
        if self._rules is None:
            return True
        if caller is None:
            raise RequestRefusedError([unknown_caller()])
        return self._rules.administers(caller)


def known_run(table: RunTable, run: str) -> Run:
    """Return a run's item.

    Raises:
        RequestRefusedError: The run is not known.
    """
    found = table.get(run)
    if found is None:
        raise RequestRefusedError([unknown_run(run)])
    return found


def unknown_run(run: str) -> Problem:
    """Say that there is no such run."""
    return Problem(
        field="run",
        found=shown(run),
        problem="is not a run of this deployment",
        fix="See the runs there are: spotkeep ps --all",
    )
