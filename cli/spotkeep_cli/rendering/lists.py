"""Lists for people, of runs, pools, schedules, notifications and local instances."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.columns import Column, table_that_fits
from spotkeep_jobs.pools.warm_pool import idle_usd
from spotkeep_jobs.record.states import EndReason, NotificationState, RunState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from spotkeep_jobs.pools.matching import Difference, PoolMatch
    from spotkeep_jobs.record.record import Attempt, Cost, Notification, Pool, Run
    from spotkeep_jobs.record.schedule import Schedule
    from spotkeep_jobs.record.sweep import Sweep

_STYLES = {
    RunState.LAUNCHING: "cyan",
    RunState.WAITING: "yellow",
    RunState.TRAINING: "bold green",
    RunState.INTERRUPTED: "bold yellow",
    RunState.STOPPING: "yellow",
    RunState.COMPLETED: "green",
    RunState.FAILED: "bold red",
    RunState.STOPPED: "magenta",
}

_REASONS = {
    EndReason.SCRIPT_FAILED: "the script failed",
    EndReason.PAUSED: "paused",
    EndReason.STOPPED_BY_USER: "stopped by a user",
    EndReason.MAX_RUNTIME_EXCEEDED: "max_run was reached",
    EndReason.MAX_WAIT_EXCEEDED: "waited too long",
    EndReason.MAX_COST: "max_cost was spent",
    EndReason.DEADLINE: "left spot for its deadline",
    EndReason.CAPACITY: "no capacity",
    EndReason.QUOTA: "no quota",
    EndReason.NEVER_FITS: "more instances than its queue may have",
    EndReason.INPUT_ERROR: "its data, image or permissions did not work",
    EndReason.PLATFORM_ERROR: "SageMaker had an error",
    EndReason.JOB_VANISHED: "its training job was deleted",
    EndReason.LAUNCH_REFUSED: "SageMaker refused to launch it",
}


_STATES = {
    NotificationState.PENDING: Text("waits to go out", style="yellow"),
    NotificationState.SENDING: Text("goes out", style="cyan"),
    NotificationState.SENT: Text("sent", style="green"),
    NotificationState.DEAD: Text("could not be sent", style="bold red"),
}


_INSTANCE_STYLES = {"pending": "cyan", "running": "bold green", "shutting-down": "yellow", "terminated": "dim"}


def state_text(state: RunState) -> Text:
    """Return a state in its colour."""
    return Text(state.value.lower(), style=_STYLES[state])


def reason_text(reason: EndReason | None) -> str:
    """Return the reason that a run ended, in words. Empty for a completed one."""
    return _REASONS.get(reason, "") if reason is not None else ""


REHEARSAL_TOKEN = "rehearsal-"  # noqa: S105 - it names a launch, and is no secret
"""The beginning of the idempotency tokens of rehearsed runs and sweeps."""


def is_rehearsal(of: Run | Sweep) -> bool:
    """Return True for a run or a sweep that a rehearsal launched."""
    return of.token.startswith(REHEARSAL_TOKEN)


def worth_listing(run: Run | Sweep, *, now: datetime) -> bool:
    """Return True if a run or a sweep is at work, or ended in the last day."""
    return run.ended_at is None or not run.state.ended or now - run.ended_at <= timedelta(days=1)


def where(run: Run) -> str:
    """Return the instances of a run, such as `2 x ml.m5.xlarge spot` or `2 to 8 x g5.xlarge spot`."""
    count = f"{run.instances} x " if run.place.instance_count > 1 else ""
    return f"{count}{run.place.instance_type} {run.place.capacity}"


def instances_of(attempt: Attempt) -> str:
    """Return the instances of an attempt, such as `2 x ml.m5.xlarge`. A resume may have changed their number.

    Of a run with nodes an attempt has the most that may train, such as `up to 8 x g5.xlarge`.
    """
    count, up_to = attempt.place.instance_count, "up to " if attempt.place.backend == "ec2" else ""
    number = f"{up_to}{count} x " if count > 1 else ""
    return f"{number}{attempt.place.instance_type}"


def place(run: Run) -> str:
    """Return the place of a waiting run as queue, share and priority, such as `gpu/vision 7`."""
    if run.place.queue is None:
        return quantities.UNKNOWN
    return f"{run.place.queue.queue}/{run.place.queue.share} {run.place.queue.priority}"


def run_list(runs: Sequence[Run], *, now: datetime, width: int) -> Table:
    """Return one row a run."""
    columns = [
        Column(heading="RUN", cells=[run.run for run in runs]),
        Column(heading="STATE", cells=[state_text(run.state) for run in runs]),
        Column(heading="ON", cells=[where(run) for run in runs], importance=4),
        *(
            [Column(heading="QUEUE", cells=[place(run) for run in runs], importance=5)]
            if any(run.place.queue is not None for run in runs)
            else []
        ),
        Column(heading="AGE", cells=[quantities.age(run.created_at, now=now) for run in runs], justify="right"),
        Column(heading="TRIES", cells=[str(run.attempt) for run in runs], importance=1, justify="right"),
        Column(heading="LOST", cells=[f"{run.interruptions}x" for run in runs], importance=3, justify="right"),
        Column(
            heading="SAVED",
            cells=[_saved(run.cost) for run in runs],
            importance=2,
            justify="right",
        ),
        Column(heading="OWNER", cells=[run.owner or quantities.UNKNOWN for run in runs], importance=0),
    ]
    return table_that_fits(columns, width=width)


def _saved(cost: Cost | None) -> str:
    return quantities.UNKNOWN if cost is None else quantities.percent(cost.saved_percent, at_most=cost.saves_at_most)


def notification_list(notifications: Sequence[Notification], *, width: int) -> Table:
    """Return a table of notifications.

    Args:
        notifications: In the order of the rows.
        width: The width of the terminal, in columns.
    """
    columns = [
        Column(heading="ABOUT", cells=[notification.subject_id for notification in notifications]),
        Column(heading="KIND", cells=[notification.kind.value for notification in notifications]),
        Column(heading="STATE", cells=[_STATES[notification.state] for notification in notifications]),
        Column(
            heading="HAPPENED",
            cells=[f"{notification.happened_at:%Y-%m-%d %H:%M}" for notification in notifications],
            importance=2,
        ),
        Column(
            heading="TRIED",
            cells=[f"{notification.deliveries}x" for notification in notifications],
            importance=1,
            justify="right",
        ),
    ]
    return table_that_fits(columns, width=width)


def pool_list(pools: Sequence[Pool], *, now: datetime, width: int) -> Table:
    """Return one row a pool, with its job, its instances, its remaining time and its cost."""
    columns = [
        Column(heading="RUN", cells=[pool.run for pool in pools]),
        Column(heading="ON", cells=[machines(pool) for pool in pools]),
        Column(heading="LEFT", cells=[left(pool, now=now) for pool in pools], justify="right"),
        Column(heading="IDLE", cells=[_idle(pool, now=now) for pool in pools], importance=1, justify="right"),
        Column(
            heading="COST SO FAR",
            cells=[quantities.dollars(idle_usd(pool, now=now)) for pool in pools],
            importance=3,
            justify="right",
        ),
        Column(heading="ROLE", cells=[_role(pool) for pool in pools], importance=0),
        Column(heading="OWNER", cells=[pool.owner or quantities.UNKNOWN for pool in pools], importance=2),
    ]
    return table_that_fits(columns, width=width)


def pool_matches(matches: Sequence[PoolMatch], *, now: datetime) -> RenderableType:
    """Return the pools a job would take, then the others, each with every criterion that differs."""
    lines: list[RenderableType] = []
    for match in matches:
        pool = match.pool
        mark, style, word = ("✓", "green", "fits") if match.fits else ("✗", "red", "does not fit")
        about = f"{machines(pool)}, {left(pool, now=now)} left"
        lines.append(Text.assemble((f"{mark} ", style), (pool.run, "bold"), f"  {about}: {word}"))
        lines += [
            Padding(Text.assemble((difference.criterion, "yellow"), _sides(difference)), (0, 0, 0, 4))
            for difference in match.differences
        ]
    return Group(*lines)


def match_in_a_plan(matches: Sequence[PoolMatch], *, now: datetime) -> str:
    """Return the text about existing pools in the plan of a launch. Empty when there are none."""
    if not matches:
        return "there is none: it starts on new instances"
    fitting = [match.pool for match in matches if match.fits]
    if fitting:
        pool = fitting[0]
        others = f" (or one of {len(fitting) - 1} others that fit)" if len(fitting) > 1 else ""
        return f"it takes the one that {pool.run} left, {left(pool, now=now)} before its end{others}"
    nearest = matches[0]
    named = ", ".join(difference.criterion.rpartition(".")[2] for difference in nearest.differences)
    return f"none of {quantities.counted(len(matches), 'pool')} fits; that of {nearest.pool.run} differs in {named}"


def machines(pool: Pool) -> str:
    """Return the instances of a pool, such as `2 x ml.m5.xlarge`."""
    return f"{pool.traits.instance_count} x {pool.traits.instance_type}"


def left(pool: Pool, *, now: datetime) -> str:
    """Return the remaining time of a pool."""
    return quantities.duration(max(0.0, (pool.kept_until - now).total_seconds()))


def _sides(difference: Difference) -> str:
    return f": the job asks for {difference.wanted}, the pool has {difference.offered}"


def _idle(pool: Pool, *, now: datetime) -> str:
    return quantities.duration(max(0.0, (now - pool.kept_since).total_seconds()))


def _role(pool: Pool) -> str:
    return pool.traits.role_arn.rpartition("/")[2]


def schedule_list(schedules: Sequence[Schedule], next_firings: Sequence[datetime | None], *, width: int) -> Table:
    """Return one row a schedule, with its times and its last launch."""
    columns = [
        Column(heading="SCHEDULE", cells=[each.schedule for each in schedules]),
        Column(heading="WHEN", cells=[rhythm(each.expression, each.timezone) for each in schedules], importance=2),
        Column(heading="NEXT (UTC)", cells=[_minute(firing) for firing in next_firings]),
        Column(heading="LAST LAUNCHED", cells=[_last(each) for each in schedules], importance=3),
        Column(heading="OWNER", cells=[each.owner or quantities.UNKNOWN for each in schedules], importance=1),
    ]
    return table_that_fits(columns, width=width)


def rhythm(expression: str, timezone: str) -> str:
    """Return the times of a schedule, as its expression, and its time zone where that matters."""
    return expression if timezone == "UTC" or expression.startswith("rate") else f"{expression} {timezone}"


def fires_at(firing: str | None) -> str:
    """Return the next firing of a launcher's answer, in words."""
    return "as AWS reads it" if firing is None else f"{_minute(datetime.fromisoformat(firing))} UTC"


def _minute(firing: datetime | None) -> str:
    return quantities.moment(firing).rpartition(":")[0] or quantities.UNKNOWN


def _last(schedule: Schedule) -> str:
    if schedule.last_firing is None:
        return "nothing yet"
    return schedule.last_launched or "refused"


def instance_list(instances: Sequence[Mapping[str, Any]], *, now: datetime, width: int) -> Table:
    """Return one row an instance.

    Args:
        instances: As `spotkeep local ec2 instances --json` gives them.
        now: For their ages.
        width: The room, in characters.
    """

    def cells(name: str) -> list[str]:
        return [str(instance[name]) for instance in instances]

    ages = [quantities.age(datetime.fromtimestamp(instance["launched_at"], UTC), now=now) for instance in instances]
    columns = [
        Column(heading="INSTANCE", cells=cells("instance")),
        Column(heading="STATE", cells=[Text(state, style=_INSTANCE_STYLES[state]) for state in cells("state")]),
        Column(heading="ZONE", cells=cells("zone")),
        Column(heading="TYPE", cells=cells("type"), importance=3),
        Column(heading="MARKET", cells=cells("market"), importance=2),
        Column(heading="AGE", cells=ages, justify="right"),
        Column(heading="VOLUMES", cells=[" ".join(instance["volumes"]) for instance in instances], importance=4),
        Column(heading="WHY IT ENDED", cells=cells("reason"), importance=1),
        Column(heading="FLEET", cells=cells("fleet"), importance=0),
    ]
    return table_that_fits(columns, width=width)
