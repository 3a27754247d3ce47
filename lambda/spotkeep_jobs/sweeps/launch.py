"""Launches sweeps, which means to judge a document, to record it and to begin the trials.

The documents of the first trials are judged with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spotkeep_jobs.document.spending import worst_case_usd
from spotkeep_jobs.errors import IdReservedError, Problem, RequestRefusedError
from spotkeep_jobs.record.fields import Caller
from spotkeep_jobs.record.ids import ASKED_BY_A_USER, Origin
from spotkeep_jobs.record.record import DEFAULT_NOTIFY, TrialPlace
from spotkeep_jobs.record.states import NotificationKind
from spotkeep_jobs.record.sweep import Sweep
from spotkeep_jobs.record.sweep_store import SweepChangedError, SweepExistsError
from spotkeep_jobs.record.table_client import until_written
from spotkeep_jobs.runs.acceptance import (
    Acceptance,
    differing_fields,
    id_is_reserved,
    is_repeated,
    named_without_token,
    problems_of_sweep_id,
    token_of_another_document,
)
from spotkeep_jobs.runs.callers import with_owner
from spotkeep_jobs.runs.launch import Launcher, ValidDocument
from spotkeep_jobs.runs.launch_completion import is_recorded, not_recorded, unfinished_without_an_answer
from spotkeep_jobs.sweeps.advance import Advanced, Sweeps
from spotkeep_jobs.sweeps.budget import max_cost_of, parallel_problems
from spotkeep_jobs.sweeps.document import SweepRequest, read_sweep, recorded_document, sweep_warnings
from spotkeep_jobs.sweeps.trial_documents import (
    FirstTrial,
    JudgedTrials,
    first_trials,
    judged_trials,
    placeholder_problems,
    sweep_id_for,
)

if TYPE_CHECKING:
    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.settings import LauncherSettings


@dataclass(frozen=True, kw_only=True)
class ValidSweep:
    """A sweep that would be launched.

    Attributes:
        sweep: Its item, as it would be recorded.
        request: Its request.
        first: The judgement of its first trial's document.
        dearest_trial_usd: The worst-case cost of the dearest of the trials that were judged, in US dollars.
        warnings: Warnings of things that are allowed but probably not meant.
    """

    sweep: Sweep
    request: SweepRequest
    first: ValidDocument
    dearest_trial_usd: float
    warnings: tuple[str, ...]

    @property
    def worst_case_usd(self) -> float:
        """The worst-case cost of its trials in instance time, in US dollars.

        It is never more than max_cost (`budget`).
        """
        trials = self.dearest_trial_usd * self.request.most_trials
        limit = max_cost_of(self.sweep)
        return trials if limit is None else min(trials, limit)


@dataclass(frozen=True, kw_only=True)
class LaunchedSweep:
    """A sweep that was launched.

    Attributes:
        advanced: The outcome of its first advance. Later ones go on with it.
        replayed: True if an earlier call launched the sweep. This one launched nothing.
        warnings: Warnings of things that are allowed but probably not meant.
    """

    advanced: Advanced
    replayed: bool
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class SweepLaunch:
    """Launches sweeps."""

    deployment: Deployment[LauncherSettings]

    def launch(
        self,
        document: Mapping[str, Any],
        *,
        default_token: str,
        caller: Caller | None = None,
        origin: Origin = ASKED_BY_A_USER,
    ) -> LaunchedSweep:
        """Launch the sweep that a document asks for, or answer with the one that its token launched before.

        Only its first trial is begun, so that faults show at once. The next advance begins the others.

        Args:
            document: A job document with `sweep`.
            default_token: The token of a document that has none.
            caller: The caller, where that is known.
            origin: The origin of the launch.

        Raises:
            RequestRefusedError: Nothing was launched. It carries every problem.
            LaunchUnfinishedError: AWS did not answer for certain, or the sweep kept changing under every try. It says
                if the sweep is recorded. Call again with the same token.
        """
        repeated = self._repeated(document, default_token=default_token)
        if repeated is not None:
            return repeated
        valid = self.validate(document, caller=caller, default_token=default_token, origin=origin)
        name = valid.sweep.sweep
        try:
            with unfinished_without_an_answer(f"launching sweep {name!r}", then=not_recorded(valid.sweep.token)):
                opened, replayed = until_written(
                    lambda: self.deployment.table.sweeps.open(valid.sweep),
                    changed=SweepChangedError,
                    pause=self.deployment.pause,
                )
        except (SweepExistsError, IdReservedError):
            problems = problems_of_sweep_id(self.deployment.table, name, origin=origin) or [id_is_reserved(name)]
            raise RequestRefusedError(problems, warnings=valid.warnings) from None
        return LaunchedSweep(advanced=self._begun(opened), replayed=replayed, warnings=valid.warnings)

    def validate(
        self,
        document: Mapping[str, Any],
        *,
        caller: Caller | None = None,
        default_token: str = "",
        origin: Origin = ASKED_BY_A_USER,
    ) -> ValidSweep:
        """Judge a document as `launch` would, without launching.

        Args:
            document: A job document with `sweep`.
            caller: The caller, where that is known.
            default_token: The token of a document that has none.
            origin: The origin of the launch.

        Raises:
            RequestRefusedError: It would be refused. It carries every problem.
        """
        if self.deployment.settings.verify_callers and caller is not None:
            document = dict(with_owner(document, caller=caller))  # type: ignore[call-overload]
        request, problems = read_sweep(document, tpe=(self.deployment.settings.tpe_search_function is not None))
        if request is None:
            raise RequestRefusedError([*problems, *self._of_the_template(document, caller=caller)])
        token = document.get("token") or default_token
        sweep = self._new(document, request, token=token, caller=caller, schedule=origin.schedule)
        trials = () if problems else first_trials(document, request, token=sweep.token, owner=sweep.owner)
        if not trials:
            raise RequestRefusedError([*problems, *self._of_the_template(document, caller=caller)])
        problems += problems_of_sweep_id(self.deployment.table, sweep.sweep, origin=origin)
        first, judged = self._judged(sweep, trials, caller=caller)
        problems += [*placeholder_problems(document, trials[0].parameters), *judged.problems]
        if (limit := max_cost_of(sweep)) is not None and not judged.problems:
            parallel = min(request.parallel, request.most_trials)
            problems += parallel_problems(
                limit=limit, spent=0.0, parallel=parallel, requests=judged.requests, prices=self.deployment.prices
            )
        if problems or first is None:
            raise RequestRefusedError(problems, warnings=judged.warnings)
        dearest = max(
            worst_case_usd(each, prices=self.deployment.prices, now=self.deployment.now()) for each in judged.requests
        )
        prices = self.deployment.prices
        of_the_sweep = sweep_warnings(request, trials=judged.requests, max_cost=max_cost_of(sweep), prices=prices)
        return ValidSweep(
            sweep=sweep,
            request=request,
            first=first,
            dearest_trial_usd=dearest,
            warnings=(*judged.warnings, *of_the_sweep),
        )

    def _judged(
        self, sweep: Sweep, trials: Sequence[FirstTrial], *, caller: Caller | None
    ) -> tuple[ValidDocument | None, JudgedTrials]:
        first: ValidDocument | None = None
        problems: list[Problem] = []
        warnings: list[str] = []
        try:
            place = TrialPlace(sweep=sweep.sweep, number=trials[0].number)
            first = Launcher(self.deployment).validate(trials[0].document, caller=caller, origin=Origin(trial=place))
            warnings += first.warnings
        except RequestRefusedError as error:
            problems += error.problems
            warnings += error.warnings
        acceptance = Acceptance(self.deployment)
        others = judged_trials(
            trials[1:], judge=lambda document: acceptance.judged(document, caller=caller), known=problems
        )
        return first, JudgedTrials(
            requests=[*([] if first is None else [first.request]), *others.requests],
            problems=[*problems, *others.problems],
            warnings=list(dict.fromkeys((*warnings, *others.warnings))),
        )

    def _of_the_template(self, document: Mapping[str, Any], *, caller: Caller | None) -> Iterable[Problem]:
        """Return the problems of the fields beside a sweep that cannot be read."""
        template = {name: value for name, value in document.items() if name != "sweep"}
        return Acceptance(self.deployment).judged(template, caller=caller).problems

    def _new(
        self,
        document: Mapping[str, Any],
        request: SweepRequest,
        *,
        token: str,
        caller: Caller | None,
        schedule: str | None,
    ) -> Sweep:
        now = self.deployment.now()
        team = document.get("team")
        return Sweep(
            sweep=sweep_id_for(document, request, token=token),
            name=str(document.get("name")),
            owner=document.get("owner") if isinstance(document.get("owner"), str) else None,
            launched_by=caller,
            team=team if isinstance(team, str) else None,
            schedule=schedule,
            created_at=now,
            updated_at=now,
            notify=notify_of(document),
            token=token,
            document=recorded_document(document, request),
        )

    def _repeated(self, document: Mapping[str, Any], *, default_token: str) -> LaunchedSweep | None:
        """Return the sweep that the same token launched before. None where it launched none."""
        request, _ = read_sweep(document, tpe=True)
        if request is None:
            return None
        token = document.get("token") or default_token
        known = self.deployment.table.sweeps.get(sweep_id_for(document, request, token=token))
        if known is None or known.token != token:
            return None
        if named_without_token(document) and not is_repeated(launched_at=known.created_at, now=self.deployment.now()):
            return None  # Its id is taken.
        asked, recorded = recorded_document(document, request), known.document
        if (known_request := read_sweep(recorded, tpe=True)[0]) is not None:  # It lacks the fields of a later version.
            recorded = recorded_document(recorded, known_request)
        differ = differing_fields(asked, recorded, left_out={"token", "owner"})
        if differ and known.part == 1:
            raise RequestRefusedError(
                [token_of_another_document(known.token, kind="sweep", launched=known.sweep, differ=differ)]
            )
        return LaunchedSweep(advanced=self._begun(known), replayed=True)

    def _begun(self, sweep: Sweep) -> Advanced:
        """Begin the first trial of a recorded sweep."""
        then = is_recorded("sweep", token=sweep.token, completes="goes on with it")
        with unfinished_without_an_answer(f"launching sweep {sweep.sweep!r}", then=then):
            return Sweeps(self.deployment).advance(sweep.sweep, most_tasks=1) or Advanced(sweep=sweep)


def notify_of(document: Mapping[str, Any]) -> tuple[NotificationKind, ...]:
    """Return the kinds of notification that a document asks for.

    A word that is no kind of notification is refused where the document is judged.

    Args:
        document: A job document, with `sweep`, `schedule` or neither.
    """
    given = document.get("notify")
    if given is None:
        return DEFAULT_NOTIFY
    listed = [given] if isinstance(given, str) else given if isinstance(given, list | tuple) else []
    return tuple(NotificationKind(kind) for kind in listed if kind in set(NotificationKind))
