"""The rules for a run with a live job, with the facts that they decide on. Pure.

The facts are made once for each reading of a run, and passed to every rule. The rules are:

- The longest waits for capacity. After one the users are notified, and after another the fallback changes.
- The log. It alerts a run's users if it has no fresh checkpoint, if the training stands still, or if a part of it
  could not be read.
- The longest training time, over all training jobs of an attempt.
- The limit on the cost (max_cost). The users are notified when most of it is spent, and the job ends when all is. On
  SageMaker the limit holds even without this rule. SageMaker ends a job after its max_run, which is cut to the rest of
  the money. On a fleet the rule ends the job while the money still pays for its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from spotkeep_jobs.backends.backend import (
    ON_INSTANCES_PHASES,
    JobPhase,
    JobView,
    has_trained,
    time_in,
    training_since,
    waiting_since,
)
from spotkeep_jobs.cost.run_cost import live_cost
from spotkeep_jobs.document.capacity import FLEET_ENDS_WITHIN_SECONDS, Fallback, fallbacks_of, price_of
from spotkeep_jobs.document.times import format_duration
from spotkeep_jobs.notifications.texts.composition import Moment, spoken_duration
from spotkeep_jobs.notifications.texts.on_the_way import (
    log_refused_notification,
    long_quota_wait_notification,
    long_wait_notification,
    max_cost_near_notification,
    queue_blocked_notification,
    stale_checkpoint_notification,
    stuck_notification,
)
from spotkeep_jobs.progress.job_log import Extent, Hang, JobLog
from spotkeep_jobs.progress.progress import Freshness, freshness_of
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.record import (
    Attempt,
    CountedCost,
    Hangs,
    StaleCheckpointNotice,
    TimelineEntry,
    in_utc_milliseconds,
)
from spotkeep_jobs.record.states import EndReason, NotificationKind, TimelineKind

if TYPE_CHECKING:
    from spotkeep_jobs.cost.run_cost import LiveCost
    from spotkeep_jobs.document.deployment_facts import DeploymentPolicy
    from spotkeep_jobs.document.request import JobRequest
    from spotkeep_jobs.record.record import Notification, Plan, Run, ScriptMetrics


LAUNCH_SETTLES: Final = timedelta(minutes=5)
"""The age at which a function that began to create a job is over for certain.

No function runs so long, even with a minute for differences between clocks.
"""


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """The facts of a run without a job, or with a job that its backend does not know.

    The request is None if another version of Spotkeep wrote it with fields unknown to this version.

    Attributes:
        run: The run item.
        request: The run's request, or None.
        attempt: The run's current attempt.
        earlier: The attempts before it.
        metrics: The recorded metrics of the run's script.
        deployment: Names and prices.
        now: The time of the decision.
    """

    run: Run
    request: JobRequest | None
    attempt: Attempt
    earlier: Sequence[Attempt] = ()
    metrics: ScriptMetrics | None = None
    deployment: DeploymentPolicy
    now: datetime


@dataclass(frozen=True, kw_only=True)
class JobFacts(RunFacts):
    """The facts of a run with a job.

    Attributes:
        job: The backend's description of the attempt's job.
        log: The job's own events, up to the last line that was read.
        plan: The policy that a run with a deadline was launched with, if any.
        chain_since: The time when the job took over the instances of a warm pool. They have been handed on since then.
    """

    job: JobView
    log: JobLog
    plan: Plan | None = None
    chain_since: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class RuleResult:
    """The result of one rule for a run.

    Attributes:
        run: The run item after the rule.
        attempt: The attempt after the rule.
        timeline: New entries of the timeline.
        notifications: Notifications to the users.
        due_again_at: The time when the rule may decide differently, even if nothing happens to the job.
    """

    run: Run
    attempt: Attempt
    timeline: Sequence[TimelineEntry] = ()
    notifications: Sequence[Notification] = ()
    due_again_at: datetime | None = None


def hold_to_waits(facts: JobFacts) -> RuleResult:
    """Compare a live job's wait with its limits. Leave its fallback, or notify the users once for each wait.

    No limit applies to a run that a user stops.

    Args:
        facts: The known facts. The deployment's limit applies if the request has none.
    """
    run, attempt, now = facts.run, facts.attempt, facts.now
    since = waiting_since(facts.job)
    if since is None:
        return RuleResult(run=run, attempt=attempt)
    fallback = _fallback(facts)
    longest = None if fallback is None or attempt.asked_to_end is not None else fallback.longest_wait_seconds
    leaves_at = None if longest is None else since + timedelta(seconds=longest)
    notifies_at = since + _long_wait(facts) if _notifies(facts) else None
    stops = run.asked_to_end is not None
    if leaves_at is not None and now >= leaves_at and not stops:
        text = f"Has waited long enough for {fallback}: its job is asked to end"
        entry = TimelineEntry(run=run.run, attempt=attempt.attempt, at=now, kind=TimelineKind.FALLBACK_LEFT, text=text)
        left = attempt.to_end(EndReason.MAX_WAIT_EXCEEDED, text=text, at=now)
        return RuleResult(run=run, attempt=left, timeline=[entry], due_again_at=notifies_at)
    if notifies_at is not None and now >= notifies_at and not stops:
        return _notified(facts, since=since, because=facts.job.waits_because, due_again_at=leaves_at)
    due = [at for at in (notifies_at, leaves_at) if at is not None]
    return RuleResult(run=run, attempt=attempt, due_again_at=min(due, default=None))


def hold_to_waits_without_a_job(facts: RunFacts) -> RuleResult:
    """Notify the users once that a run waits long for quota or capacity, before its job can be created.

    Args:
        facts: The known facts.
    """
    run = facts.run
    retry = facts.attempt.retry
    since = None if retry is None else retry.no_capacity_since
    if run.quota_wait is not None:
        since = run.quota_wait.since
    waits = since is not None and run.asked_to_end is None and _notifies(facts)
    if since is None or not waits or facts.now - since < _long_wait(facts):
        return RuleResult(run=run, attempt=facts.attempt)
    return _notified(facts, since=since, because=None)


def hold_to_queue(facts: JobFacts) -> RuleResult:
    """Notify the users, once an attempt, that AWS Batch can never give its job a turn, and that others wait behind it.

    Args:
        facts: The known facts.
    """
    run, attempt, now = facts.run, facts.attempt, facts.now
    stops = run.asked_to_end is not None
    if not facts.job.never_fits or attempt.place.queue is None or attempt.notified.queue_blocked or stops:
        return RuleResult(run=run, attempt=attempt)
    because = facts.job.waits_because or ""
    text = f"Can never have its turn: {because}"
    entry = TimelineEntry(run=run.run, attempt=attempt.attempt, at=now, kind=TimelineKind.QUEUE_BLOCKED, text=text)
    moment = Moment(run=run, attempt=attempt.attempt, deployment=facts.deployment.name, happened_at=now, created_at=now)
    asked = NotificationKind.QUEUE_BLOCKED in run.notify
    return RuleResult(
        run=run,
        attempt=with_changes(attempt, notified=with_changes(attempt.notified, queue_blocked=True)),
        timeline=[entry],
        notifications=[queue_blocked_notification(moment, because=because)] if asked else [],
    )


def _notified(
    facts: RunFacts, *, since: datetime, because: str | None, due_again_at: datetime | None = None
) -> RuleResult:
    attempt = facts.attempt
    moment = Moment(
        run=facts.run,
        attempt=attempt.attempt,
        deployment=facts.deployment.name,
        nth=attempt.interruptions,
        happened_at=facts.now,
        created_at=facts.now,
    )
    waited_seconds = (facts.now - since).total_seconds()
    if facts.run.quota_wait is None:
        notification = long_wait_notification(moment, waited_seconds=waited_seconds, because=because)
    else:
        reason = facts.run.quota_wait.reason
        notification = long_quota_wait_notification(moment, waited_seconds=waited_seconds, reason=reason)
    return RuleResult(
        run=facts.run,
        attempt=with_changes(attempt, notified=with_changes(attempt.notified, long_wait=attempt.interruptions)),
        notifications=[notification],
        due_again_at=due_again_at,
    )


def _fallback(facts: RunFacts) -> Fallback | None:
    fallbacks = () if facts.request is None else fallbacks_of(facts.request)
    return fallbacks[facts.attempt.fallback] if facts.attempt.fallback < len(fallbacks) else None


def _notifies(facts: RunFacts) -> bool:
    """Return True if the users asked for a notification of a long wait, and have not got one for this wait."""
    asked = NotificationKind.WAITING_TOO_LONG in facts.run.notify
    return asked and facts.attempt.notified.long_wait != facts.attempt.interruptions


def _long_wait(facts: RunFacts) -> timedelta:
    """Return a wait that is worth a notification."""
    if facts.request is None or facts.request.waiting_too_long is None:
        return facts.deployment.long_wait
    return timedelta(seconds=facts.request.waiting_too_long)


def hold_to_max_run(facts: JobFacts) -> RuleResult:
    """End a live job that has trained for as long as it may, over all its training jobs.

    Args:
        facts: The known facts.
    """
    run, attempt, job, now = facts.run, facts.attempt, facts.job, facts.now
    if len(job.training_jobs.listed) <= 1 or attempt.job_request is None or attempt.asked_to_end is not None:
        return RuleResult(run=run, attempt=attempt)
    max_run = int(attempt.job_request["StoppingCondition"]["MaxRuntimeInSeconds"])
    left = timedelta(seconds=max_run) - time_in(job, ON_INSTANCES_PHASES, until=now)
    ends = run.asked_to_end or job.phase in {JobPhase.STOPPING, JobPhase.UPLOADING}
    if left <= timedelta(0) and not ends:
        text = f"Has trained the {format_duration(max_run)} that it may: its job is asked to end"
        entry = TimelineEntry(run=run.run, attempt=attempt.attempt, at=now, kind=TimelineKind.FALLBACK_LEFT, text=text)
        attempt = attempt.to_end(EndReason.MAX_RUNTIME_EXCEEDED, text=text, at=now)
        return RuleResult(run=run, attempt=attempt, timeline=[entry])
    due_again_at = now + max(left, timedelta(0)) if job.phase in ON_INSTANCES_PHASES else None
    return RuleResult(run=run, attempt=attempt, due_again_at=due_again_at)


METRICS_READ_EVERY: Final = timedelta(minutes=10)
"""The time between two readings of a log for the metrics that a job file names. Each reading costs seven calls."""
HANGS_READ_EVERY: Final = timedelta(minutes=4)
"""The same for a training that may hang. A pass of the controller every five minutes is then always due."""
CHECKPOINTS_READ_EVERY: Final = timedelta(minutes=15)
"""The time between two readings of a log that has no fresh checkpoint."""


_NOT_ALL_READ: Final = {
    Extent.CUT: "the log of {job} is longer than what is read of one: 60 pages of event lines, for 20 seconds",
    Extent.PASSED_OVER: "the log of {job} is not read any more: function after function ended while it read it",
}


def asks_for_its_log(facts: RunFacts, job: JobView) -> bool:
    """Return whether the log of a live job has to be read before anything is decided about its run.

    A run with a deadline needs its progress. A checkpoint that seems stale may only be one with an unread log line.
    Metrics that the job file names are shown while it trains.

    Args:
        facts: The facts that are known without the log.
        job: The run's job, not ended.
    """
    if facts.run.deadline_at is not None:
        return has_trained(job)
    read_at = _read_at(facts, job)
    if read_at is not None and read_at <= facts.now:
        return True
    freshness = _checkpoint_freshness(facts, job)
    return freshness is not None and freshness.read_at <= facts.now


def hold_to_log(facts: JobFacts) -> RuleResult:
    """Notify once of each checkpoint that is too old, and set the time of the next reading of the log.

    Args:
        facts: The known facts.
    """
    attempt, now = facts.attempt, facts.now
    freshness, read_at = _checkpoint_freshness(facts, facts.job), _read_at(facts, facts.job)
    notifications, due = [], []
    if freshness is not None:
        # What was read may be a part of the log, which proves nothing.
        if facts.log.complete and now >= freshness.stale_at and not _is_notified(attempt, freshness):
            nth = 1 if attempt.notified.stale_checkpoint is None else attempt.notified.stale_checkpoint.nth + 1
            notice = StaleCheckpointNotice(nth=nth, newest_at=_newest_at(attempt, freshness))
            attempt = with_changes(attempt, notified=with_changes(attempt.notified, stale_checkpoint=notice))
            moment = Moment(
                run=facts.run,
                attempt=attempt.attempt,
                deployment=facts.deployment.name,
                nth=nth,
                happened_at=now,
                created_at=now,
            )
            notifications.append(stale_checkpoint_notification(moment, freshness=freshness))
        # Read a moment ago, or notified: then the log is read for a new checkpoint now and then.
        now_and_then = _is_notified(attempt, freshness) or freshness.read_at <= now
        due.append(now + CHECKPOINTS_READ_EVERY if now_and_then else freshness.read_at)
    if read_at is not None and read_at <= now:
        attempt = with_changes(attempt, log_read_at=in_utc_milliseconds(now))
        read_at = _read_at(replace(facts, attempt=attempt), facts.job)
    if read_at is not None:
        due.append(read_at)
    return RuleResult(run=facts.run, attempt=attempt, notifications=notifications, due_again_at=min(due, default=None))


def _read_at(facts: RunFacts, job: JobView) -> datetime | None:
    """Return the next time to read a live job's log for metrics, or for a training that hangs.

    None if the job file asks for neither, or the job does not train.
    """
    request, since = facts.request, training_since(job)
    # The metrics of a job without a command are in CloudWatch alone: no runner prints events.
    if request is None or request.command is None or since is None:
        return None
    last, due = max(since, facts.attempt.log_read_at or since), []
    if request.metrics:
        due.append(last + METRICS_READ_EVERY)
    if request.stuck is not None:
        due.append(max(last + HANGS_READ_EVERY, since + timedelta(seconds=request.stuck.after)))
    return min(due, default=None)


def _checkpoint_freshness(facts: RunFacts, job: JobView) -> Freshness | None:
    """Return the freshness of the newest checkpoint. None if that was not asked for, or no checkpoint is due."""
    run, request, since = facts.run, facts.request, training_since(job)
    if NotificationKind.CHECKPOINT_STALE not in run.notify or run.asked_to_end is not None:
        return None
    if request is None or not request.checkpoints or since is None:
        return None
    return freshness_of(run.progress, training_since=since, longest_age_seconds=request.checkpoint_stale)


def _is_notified(attempt: Attempt, freshness: Freshness) -> bool:
    notice = attempt.notified.stale_checkpoint
    return notice is not None and notice.newest_at == _newest_at(attempt, freshness)


def _newest_at(attempt: Attempt, freshness: Freshness) -> datetime:
    return in_utc_milliseconds(freshness.newest_at or attempt.created_at)


def hold_to_hangs(facts: JobFacts) -> RuleResult:
    """Count each time that the training stood still, and notify once for each.

    Args:
        facts: The known facts.
    """
    run, attempt, log = facts.run, facts.attempt, facts.log
    if facts.request is None or facts.request.stuck is None:
        return RuleResult(run=run, attempt=attempt)
    hangs, timeline, notifications = run.hangs, [], []
    for hang in log.hangs:
        at = _time_of(hang.at)
        if hangs.newest_at is not None and at <= hangs.newest_at:
            continue
        still_since = _time_of(max(0.0, hang.at - hang.silent_seconds))
        restarts = hangs.restarts + hang.starts_again
        hangs = Hangs(count=hangs.count + 1, restarts=restarts, newest_at=at, still_since=still_since)
        text = f"Stood still: no step and no line of output for {spoken_duration(hang.silent_seconds)}{_then(hang)}"
        timeline.append(TimelineEntry(run=run.run, attempt=attempt.attempt, at=at, kind=TimelineKind.STUCK, text=text))
        if NotificationKind.STUCK in run.notify:
            moment = Moment(
                run=run,
                attempt=attempt.attempt,
                deployment=facts.deployment.name,
                nth=hangs.count,
                happened_at=at,
                created_at=facts.now,
            )
            notifications.append(stuck_notification(moment, hang=hang))
    moved = log.moved_at is not None and hangs.newest_at is not None and _time_of(log.moved_at) >= hangs.newest_at
    if moved or facts.job.ended:
        hangs = with_changes(hangs, still_since=None)
    return RuleResult(
        run=with_changes(run, hangs=hangs), attempt=attempt, timeline=timeline, notifications=notifications
    )


def _then(hang: Hang) -> str:
    if hang.restarts is None:
        return ""
    if hang.starts_again:
        return f"; its command starts again from its checkpoint, {hang.restarts + 1} of at most {hang.at_most} times"
    return f"; its command has started again {hang.restarts} times for that, so its job fails"


def _time_of(epoch_seconds: float) -> datetime:
    return in_utc_milliseconds(datetime.fromtimestamp(epoch_seconds, tz=UTC))


def hold_to_whole_log(facts: JobFacts) -> RuleResult:
    """Notify once for each run that a part of its log was not read. The cause persists at later readings.

    Args:
        facts: The known facts.
    """
    run, attempt, now = facts.run, facts.attempt, facts.now
    warning = None if run.log_warning is not None else _log_warning(facts.log, job_name=attempt.job_name)
    if warning is None:
        return RuleResult(run=run, attempt=attempt)
    entry = TimelineEntry(run=run.run, attempt=attempt.attempt, at=now, kind=TimelineKind.LOG_REFUSED, text=warning)
    notifications = []
    if NotificationKind.LOG_REFUSED in run.notify:
        moment = Moment(
            run=run, attempt=attempt.attempt, deployment=facts.deployment.name, happened_at=now, created_at=now
        )
        notifications.append(log_refused_notification(moment, warning=warning))
    run = with_changes(run, log_warning=warning)
    return RuleResult(run=run, attempt=attempt, timeline=[entry], notifications=notifications)


def _log_warning(log: JobLog, *, job_name: str) -> str | None:
    """Return a sentence about the part of a job's log that was not read.

    None if all of it was read, or AWS gave no answer.

    Args:
        log: The result of reading the log.
        job_name: The job.
    """
    refused = ", ".join(f"{count:,} {what.value}" for what, count in log.refused.items())
    said = [
        *([f"event lines in the log of {job_name} were refused: {refused}"] if refused else []),
        *([_NOT_ALL_READ[log.extent].format(job=job_name)] if log.extent in _NOT_ALL_READ else []),
    ]
    return "; ".join(said) or None


NEAR_SHARE: Final = 0.8
"""The part of max_cost that, once spent, causes a notification."""


def max_cost_near(facts: RunFacts, *, spent_usd: float | None, about: bool = False, remark: str = "") -> RuleResult:
    """Record that most of a run's max_cost is spent while it goes on, once for each max_cost.

    Args:
        facts: The known facts.
        spent_usd: The cost of the run so far, in US dollars, or None if it is not known.
        about: True if the cost includes an estimate for a live job without a known bill.
        remark: The prices that are missing in the cost, in a clause. Empty where none is.

    Returns:
        The run, the new entry of its timeline, and a notification if the run asked for it.
    """
    run, attempt, now = facts.run, facts.attempt, facts.now
    limit = None if facts.request is None else facts.request.max_cost
    if limit is None or spent_usd is None or run.max_cost_is_near or spent_usd < NEAR_SHARE * limit:
        return RuleResult(run=run, attempt=attempt)
    usd = f"{'About ' if about else ''}{spent_usd:.2f} USD"
    text = f"{usd} are spent, {spent_usd / limit:.0%} of max_cost ({limit:.2f} USD){_behind(remark)}"
    entry = TimelineEntry(run=run.run, attempt=attempt.attempt, at=now, kind=TimelineKind.MAX_COST, text=text)
    notifications = []
    if NotificationKind.MAX_COST_NEAR in run.notify:
        moment = Moment(
            run=run, attempt=attempt.attempt, deployment=facts.deployment.name, happened_at=now, created_at=now
        )
        notifications.append(
            max_cost_near_notification(moment, spent_usd=spent_usd, about=about, max_cost_usd=limit, remark=remark)
        )
    run = with_changes(run, max_cost_is_near=True)
    return RuleResult(run=run, attempt=attempt, timeline=[entry], notifications=notifications)


def stays_near(limit: float | None, *, before: float | None, spent_usd: float) -> bool:
    """Return True if most of a max_cost is still spent after a resume, so that it is not notified again.

    Args:
        limit: The max_cost from now on, in US dollars, or None for no bound.
        before: The max_cost until now, in US dollars.
        spent_usd: The cost of the run so far, in US dollars.
    """
    return limit == before or (limit is not None and spent_usd >= NEAR_SHARE * limit)


def hold_to_max_cost(facts: JobFacts) -> RuleResult:
    """Compare a run's cost so far with its max_cost. Notify when it is near, and end the live job when it is spent.

    Args:
        facts: The known facts.
    """
    request, attempt, job, now = facts.request, facts.attempt, facts.job, facts.now
    if request is None or request.max_cost is None:
        return RuleResult(run=facts.run, attempt=attempt)
    cost = live_cost(
        earlier=facts.earlier,
        recorded=facts.run.cost,
        attempt=attempt,
        job=job,
        prices=facts.deployment.prices,
        spot_usd_per_hour=None if facts.plan is None else facts.plan.spot_usd_per_hour,
        now=now,
    )
    if cost is None:
        return RuleResult(run=facts.run, attempt=attempt)
    if job.cost_so_far is not None and job.cost_so_far.prices_are_late:
        cost = _without_late_prices(facts, cost, known=attempt.counted_cost)
    attempt = _with_counted_cost(attempt, cost, max_cost_usd=request.max_cost, now=now)
    facts = replace(facts, attempt=attempt)
    near = max_cost_near(facts, spent_usd=cost.usd, about=True, remark=cost.remark)
    # So much may be spent before the job has to end: what it costs until it is gone is paid, too. The last bit of a
    # product is not to cost five more minutes.
    last_usd = request.max_cost - _until_gone_usd(facts, cost) - 1e-6
    ends = attempt.asked_to_end or near.run.asked_to_end or job.phase is JobPhase.STOPPING
    # A job that uploads its model is over in a moment, and completes.
    if not ends and job.phase is not JobPhase.UPLOADING and cost.usd >= last_usd:
        text = f"max_cost ({request.max_cost:.2f} USD) is spent: its job is asked to end, and saves first"
        if attempt.place.backend == "ec2":
            saves = "Its instance saves first" if request.several_nodes is None else "Its nodes save first"
            text = (
                f"max_cost ({request.max_cost:.2f} USD) is spent: {cost.usd:.2f} USD so far{_behind(cost.remark)}, and "
                f"the rest is kept for its end. {saves}"
            )
        entry = TimelineEntry(run=near.run.run, attempt=attempt.attempt, at=now, kind=TimelineKind.MAX_COST, text=text)
        ended = attempt.to_end(EndReason.MAX_COST, text=text, at=now)
        return replace(near, attempt=ended, timeline=[*near.timeline, entry])
    if attempt.asked_to_end is not None or not cost.bills or not cost.usd_per_second:
        return near  # Time does not spend it, or each pass looks at it.
    marks = [last_usd, *([] if near.run.max_cost_is_near else [NEAR_SHARE * request.max_cost])]
    seconds = [(mark - cost.usd) / cost.usd_per_second for mark in marks]
    due = [now + timedelta(seconds=each) for each in seconds if each > 0]
    return replace(near, due_again_at=min(due, default=None))


_COUNTED_SHARE: Final = 0.01
"""The part of max_cost by which a count has to differ from the recorded one to be recorded."""
_PRICES_ARE_LATE: Final = "with the on-demand price while EC2 gives no prices of spot"


def _without_late_prices(facts: JobFacts, cost: LiveCost, *, known: CountedCost | None) -> LiveCost:
    """Return a ceiling of the cost while EC2 throttles the question for spot prices.

    It is the cost at the last count, and since then the on-demand price.
    """
    if known is None:
        return cost
    hours = (facts.now - known.at).total_seconds() / 3_600
    return replace(cost, usd=min(cost.usd, known.usd + hours * _most_usd_per_hour(facts)), remark=_PRICES_ARE_LATE)


def _with_counted_cost(attempt: Attempt, cost: LiveCost, *, max_cost_usd: float, now: datetime) -> Attempt:
    """Return the attempt with the cost of its run, where it is another one than the recorded."""
    known, remark = attempt.counted_cost, cost.remark
    if known is not None and known.remark == remark and abs(cost.usd - known.usd) < _COUNTED_SHARE * max_cost_usd:
        return attempt
    counted = CountedCost(usd=round(cost.usd, 6), at=in_utc_milliseconds(now), remark=remark)
    return with_changes(attempt, counted_cost=counted)


def _behind(remark: str) -> str:
    return f", {remark}" if remark else ""


def _until_gone_usd(facts: JobFacts, cost: LiveCost) -> float:
    """Return the money that a live job may still cost when it is asked to end, in US dollars.

    It is the warm pool of a job on SageMaker. A fleet costs at most the on-demand price of its dearest type, as it may
    get another instance at any time.
    """
    request, attempt = facts.request, facts.attempt
    if request is None:
        return 0.0
    if attempt.place.backend != "ec2":
        return request.keep_alive * cost.usd_per_second
    return _most_usd_per_hour(facts) * FLEET_ENDS_WITHIN_SECONDS / 3_600


def _most_usd_per_hour(facts: JobFacts) -> float:
    """Return the most that a fleet may cost in an hour, in US dollars, with all its nodes and its storage."""
    request, attempt = facts.request, facts.attempt
    usd_per_hour = 0.0 if request is None else price_of(request.types, prices=facts.deployment.prices) or 0.0
    if request is not None and attempt.place.capacity == "spot" and request.max_price is not None:
        usd_per_hour = min(usd_per_hour, request.max_price)
    so_far = facts.job.cost_so_far
    hosts = 1 if request is None else request.hosts
    return hosts * usd_per_hour + (0.0 if so_far is None else so_far.storage_usd_per_hour)
