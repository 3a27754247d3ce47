"""Plans a job file.

It finds the facts about the job's capacity, and asks the planner. The facts come from traces where some are given.
Otherwise prices and placement scores come from the account. The deployment's own runs of the same type are a further
source. The published interruption band is used where there is nothing better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotkeep_cli.errors import MissingExtraError, NoConnectionError, UsageError
from spotkeep_cli.rendering.lists import is_rehearsal
from spotkeep_jobs.document.capacity import fallbacks_of
from spotkeep_jobs.document.nodes import hosts_of
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.times import DEFAULT_RESTART_SECONDS, parse_duration
from spotkeep_jobs.errors import DurationError
from spotkeep_jobs.record.states import TimelineKind

if TYPE_CHECKING:
    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_cli.launching.judgement import JudgedJob, Judgement
    from spotkeep_cli.rendering.columns import Fact
    from spotkeep_cli.seams import Invocation
    from spotkeep_jobs.record.record import Attempt, Run, TimelineEntry
    from spotkeep_planner.capacity_model import SeenSpell, Spells
    from spotkeep_planner.planning import CapacityPlan, Knowledge


TICK_S = 300.0
"""Seconds between two decisions of the controller, for a plan without a trace's own interval."""
_MOST_TICKS = 3_000
"""The most decisions until a deadline.

Decisions of a month are further apart than those of ten days. Their forecast takes equally long.
"""
_LONGEST_TICK_S = 1_800.0
"""Capacity that has been there for less than an hour is distinguished from older capacity."""
DEFAULT_BAND = ">20%"
DEFAULT_SAVE_S = 30
_MOST_RUNS = 200
_PICTURES = (".png", ".svg", ".pdf")


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """The options of `spotkeep plan`. None where the job file decides."""

    deadline_s: int | None = None
    work_s: int | None = None
    restart_s: int | None = None
    save_s: int = DEFAULT_SAVE_S
    traces: Path | None = None
    zones: tuple[str, ...] = ()
    on_demand_price: float | None = None
    band: str = DEFAULT_BAND
    compare: bool = False
    plot: Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse options without a sense.

        Raises:
            UsageError: A price, a zone or a picture makes no sense.
        """
        if self.on_demand_price is not None and not 0 < self.on_demand_price < float("inf"):
            raise UsageError(f"--on-demand-price is {self.on_demand_price}, a price is more than 0")
        if self.zones and self.traces is None:
            raise UsageError("--zone chooses among traces", hint="give them: --traces FOLDER")
        if self.plot is not None and self.plot.suffix.lower() not in _PICTURES:
            raise UsageError(
                f"--plot {self.plot}: the file's ending says how to draw", hint=f"one of {', '.join(_PICTURES)}"
            )


def seconds_of(option: str, text: str) -> int:
    """Return the seconds that an option of `spotkeep plan` means.

    Raises:
        UsageError: It is no duration, or none at all.
    """
    try:
        seconds = parse_duration(text)
    except DurationError as error:
        raise UsageError(f"{option} {text} {error.problem}", hint=error.fix) from error
    if not seconds and option in ("--deadline", "--work"):
        raise UsageError(f"{option} {text} is no time at all", hint="for example: 60h")
    return seconds


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedType:
    """The plan for one instance type."""

    instance_type: str
    plan: CapacityPlan


@dataclass(frozen=True, kw_only=True, eq=False)
class PlannedJobFile:
    """A job file with its plan.

    Attributes:
        name: The job's name.
        instances: Number of instances that it uses at once.
        types: The instance types it may run on, the cheapest first, with the costs of all instances.
        work_from: The source of the work's length, in words.
        remarks: The facts that could not be found.
        installation: The installation and setup before the command, in rows. Empty where the caller did not want it.
    """

    name: str
    instances: int
    types: tuple[PlannedType, ...]
    work_from: str
    remarks: tuple[str, ...]
    installation: tuple[Fact, ...] = ()

    @property
    def plan(self) -> CapacityPlan:
        """The plan of the cheapest type."""
        return self.types[0].plan

    def as_document(self) -> dict[str, Any]:
        """Return the plan as JSON. Costs are those of one instance."""
        best, *others = self.types
        return {
            "name": self.name,
            "instance_type": best.instance_type,
            "instance_count": self.instances,
            "cost_is_of": "one instance",
            "work_from": self.work_from,
            "remarks": list(self.remarks),
            **({"installation": {name: str(text) for name, text in self.installation}} if self.installation else {}),
            **best.plan.as_document(),
            "other_types": [{"instance_type": each.instance_type, **each.plan.as_document()} for each in others],
        }


def plan_job(
    job_file: Path, *, overrides: Sequence[str], options: PlanOptions, invocation: Invocation
) -> PlannedJobFile:
    """Plan a job file.

    Raises:
        JobFileError: The file cannot be read.
        RefusedError: It would not be launched.
        UsageError: It cannot be planned like this. It has no deadline or one that is too short, or a trace has faults.
        CommandLineError: The planner's packages are not installed.
    """
    from spotkeep_cli.launching.launch_view import installation_rows

    judged = _judge(job_file, overrides=overrides, invocation=invocation)
    planned = plan_request(
        judged.judgement,
        options=options,
        deployment=judged.deployment,
        invocation=invocation,
        remarks=[f"Planned without a deployment ({judged.unreachable})."] if judged.unreachable else [],
    )
    return replace(planned, installation=tuple(installation_rows(judged.judgement.request, prepared=judged.prepared)))


def plan_request(
    judgement: Judgement,
    *,
    options: PlanOptions,
    deployment: DeploymentClient | None,
    invocation: Invocation,
    remarks: Sequence[str] = (),
) -> PlannedJobFile:
    """Plan a job that was judged.

    Args:
        judgement: The job, accepted.
        options: The options of the plan.
        deployment: The deployment that it would run in. None where there is none.
        invocation: The outside world.
        remarks: The facts that could not be found so far.

    Raises:
        UsageError: It cannot be planned like this. It has no deadline or one that is too short, or a trace has faults.
        CommandLineError: The planner's packages are not installed.
    """
    try:
        from spotkeep_planner.planning import make_plan
    except ImportError as error:
        raise MissingExtraError("planner", what="planning", error=error) from None
    from spotkeep_planner.errors import PlannerError
    from spotkeep_planner.interruption_bands import SHARE_RECLAIMED
    from spotkeep_planner.job import PlannedJob

    if options.band not in SHARE_RECLAIMED:
        raise UsageError(f"--band {options.band!r} is no band", hint=f"one of {', '.join(SHARE_RECLAIMED)}")
    request = judgement.request
    deadline_s = options.deadline_s or _deadline_s(request, now=invocation.seams.now()) or request.get("max_wait")
    if deadline_s is None:
        raise UsageError("when must it be done?", hint="for example: --deadline 60h, or deadline: 60h in the job file")
    work_s, work_from = _work(request, options=options)
    types = types_of(JobRequest.model_validate(dict(request)))
    try:
        job = PlannedJob(
            work_s=work_s,
            deadline_s=deadline_s,
            restart_s=options.restart_s
            if options.restart_s is not None
            else request.get("restart") or DEFAULT_RESTART_SECONDS,
        )
        known = _Knowing(
            options=options,
            invocation=invocation,
            deployment=deployment,
            usd_per_hour=judgement.usd_per_hour,
            instances=hosts_of(request),
            tick_s=min(max(TICK_S, deadline_s / _MOST_TICKS), _LONGEST_TICK_S),
            remarks=list(remarks),
        )

        def plan_of(instance_type: str) -> CapacityPlan:
            return make_plan(
                job,
                known.of(instance_type),
                compare=options.compare,
                save_cost_s=options.save_s if request.get("checkpoints", True) else 0.0,
                seed=options.seed,
            )

        if options.traces is not None:
            types = types[:1]
        # Without a deployment, nothing is known of a type that is not known of each.
        plans = {each: plan_of(each) for each in (types[:1] if deployment is None else types)}
        planned = [PlannedType(instance_type=each, plan=plans.get(each, plans[types[0]])) for each in types]
    except PlannerError as error:
        raise UsageError(str(error), hint="spotkeep help planning") from error
    planned.sort(key=lambda each: each.plan.forecasts[0].cost_usd.mean)
    return PlannedJobFile(
        name=str(request["name"]),
        instances=known.instances,
        types=tuple(planned),
        work_from=work_from,
        remarks=tuple(dict.fromkeys(known.remarks)),
    )


def types_of(request: JobRequest) -> list[str]:
    """Return the instance types a job may get on spot (or at all, where it asks for none), in its own order."""
    fallbacks = fallbacks_of(request)
    on_spot = [fallback for fallback in fallbacks if fallback.capacity == "spot"] or fallbacks
    return list(dict.fromkeys(each for fallback in on_spot for each in fallback.instance_types))


def _deadline_s(request: Mapping[str, Any], *, now: datetime) -> float | None:
    deadline = request.get("deadline")
    if isinstance(deadline, str):
        return (datetime.fromisoformat(deadline) - now).total_seconds()
    return deadline


def _work(request: Mapping[str, Any], *, options: PlanOptions) -> tuple[int, str]:
    if options.work_s:
        return options.work_s, "--work"
    if request.get("work"):
        return int(request["work"]), "work, as the job file says"
    limit = "max_total_run" if request.get("max_total_run") else "max_run"
    return int(request[limit]), f"{limit}, its upper limit: give --work, or work in the job file, for a closer forecast"


def _judge(job_file: Path, *, overrides: Sequence[str], invocation: Invocation) -> JudgedJob:
    from spotkeep_cli.launching.answers import refused
    from spotkeep_cli.launching.job_file import read_job_file
    from spotkeep_cli.launching.judgement import judge

    document = read_job_file(job_file, overrides=overrides)
    judged = judge(document, invocation=invocation)
    if judged.judgement.problems:
        raise refused(list(judged.judgement.problems), what="nothing was planned", document=document)
    return judged


@dataclass(kw_only=True)
class _Knowing:
    """Finds the facts about a type, and remembers the facts that could not be found."""

    options: PlanOptions
    invocation: Invocation
    deployment: DeploymentClient | None
    usd_per_hour: float | None
    instances: int
    tick_s: float
    remarks: list[str]

    def of(self, instance_type: str) -> Knowledge:
        from spotkeep_planner.errors import HistoryError
        from spotkeep_planner.planning import knowledge_from_traces, knowledge_without_history
        from spotkeep_planner.replay import Past
        from spotkeep_planner.spot_market import ec2_type_of, market_view

        band = self.options.band
        own_runs = self._own_runs(instance_type)
        price = self.options.on_demand_price or self.usd_per_hour
        if self.options.traces is not None:
            return knowledge_from_traces(
                self._traces(self.options.traces), on_demand_price=price, own_runs=own_runs, band=band
            )
        now = self.invocation.seams.now()
        past = Past.without_capacity(tick_s=self.tick_s, now=now)
        zones: tuple[str, ...] = ("any zone",)
        sources = ["no capacity was ever observed here: a wide prior"]
        if self.deployment is not None:
            try:
                view = market_view(
                    self.invocation.seams.spot_market(self.invocation.options),
                    ec2_type_of(instance_type),
                    now=now,
                    instances=self.instances,
                    tick_s=self.tick_s,
                )
            except (HistoryError, NoConnectionError) as error:
                self.remarks.append(f"{error}.")
            else:
                past, zones = view.past, view.zones
                self.remarks += view.remarks
                sources = [
                    f"EC2's spot prices of {ec2_type_of(instance_type)} and placement scores, {now:%Y-%m-%d %H:%M} UTC"
                ]
        if price is None:
            self.remarks.append("No on-demand price is known: costs are in on-demand hours. Give --on-demand-price.")
        return knowledge_without_history(
            past=past, zones=zones, on_demand_price=price, sources=sources, own_runs=own_runs, band=band
        )

    def _traces(self, path: Path) -> list[Any]:
        from spotkeep_planner.traces import read_trace, read_traces

        found = list(read_traces(path)) if path.is_dir() else [read_trace(path)]
        if not self.options.zones:
            return found
        missing = [zone for zone in self.options.zones if zone not in {trace.zone for trace in found}]
        if missing:
            raise UsageError(
                f"there is no trace of {', '.join(missing)} in {path}",
                hint=f"there are: {', '.join(trace.zone for trace in found)}",
            )
        return [trace for trace in found if trace.zone in self.options.zones]

    def _own_runs(self, instance_type: str) -> Spells | None:
        if self.deployment is None:
            return None
        from spotkeep_planner.capacity_model import spells_of

        now = self.invocation.seams.now()
        seen = []
        for run in self.deployment.table.runs.list(limit=_MOST_RUNS, unreadable={}):
            watched = () if is_rehearsal(run) else self._spot_attempts(run, instance_type)
            if watched:
                entries = self.deployment.table.runs.timeline(run.run, unreadable={})
                timeline = [entry for entry in entries if entry.attempt in watched]
                seen += seen_spells(timeline, now=now)
        return spells_of(seen) if seen else None

    def _spot_attempts(self, run: Run, instance_type: str) -> set[int]:
        """Return the attempts that saw the spot capacity of a type. A run that went on demand has seen it go."""
        if self.deployment is None:
            return set()
        attempts: Sequence[Run | Attempt] = [run] if run.attempt == 1 else self.deployment.table.runs.attempts(run.run)
        return {
            attempt.attempt
            for attempt in attempts
            if attempt.place.capacity == "spot" and attempt.place.instance_type == instance_type
        }


_GOT_CAPACITY = (TimelineKind.DOWNLOADING, TimelineKind.TRAINING, TimelineKind.RESUMED)
_LEFT_CAPACITY = (TimelineKind.STOPPING, TimelineKind.UPLOADING, TimelineKind.ATTEMPT_ENDED, TimelineKind.ENDED)


def seen_spells(timeline: Sequence[TimelineEntry], *, now: datetime) -> list[SeenSpell]:
    """Return the stretches with and without capacity in a timeline.

    A wait that the run gave up, or that still goes on, has not seen its end. The same holds for capacity that was left
    because the work was done, or lost to an error of SageMaker's own.

    Args:
        timeline: The events, oldest first.
        now: The time, for periods that still go on.
    """
    from spotkeep_planner.capacity_model import SeenSpell

    spells: list[SeenSpell] = []
    with_capacity: bool | None = None
    since: datetime | None = None

    def close(at: datetime, *, ended: bool) -> None:
        if with_capacity is not None and since is not None:
            length_s = max(0.0, (at - since).total_seconds())
            spells.append(SeenSpell(with_capacity=with_capacity, length_s=length_s, ended=ended))

    for entry in timeline:
        if entry.kind in _GOT_CAPACITY and with_capacity is not True:
            close(entry.at, ended=True)
            with_capacity, since = True, entry.at
        elif entry.kind is TimelineKind.INTERRUPTED and not entry.error_of_aws:
            close(entry.at, ended=True)
            with_capacity, since = False, entry.at
        elif (entry.kind in _LEFT_CAPACITY or entry.error_of_aws) and with_capacity is not None:
            close(entry.at, ended=False)
            with_capacity, since = None, None
    close(now, ended=False)
    return spells
