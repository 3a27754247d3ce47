"""The words for warm pools in the timeline, in their notifications, and in the notification of a run's end."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from spotkeep_jobs.notifications.texts.composition import (
    COLUMNS,
    EndingWords,
    Moment,
    clock,
    command_lines,
    compose,
    fact_line,
    spoken_duration,
    spoken_usd,
    wrapped,
)
from spotkeep_jobs.record.record import Notification, Pool, Run
from spotkeep_jobs.record.states import NotificationKind, PoolEndReason, PoolState

_NOT_KEPT: Final = EndingWords(
    timeline="SageMaker kept no warm pool: the account has no quota for one",
    subject="kept no warm pool: no quota",
    sentence="was not kept: SageMaker ended the instances with the job. This is how an account without a quota for "
    "warm pools looks; a new account has none.",
)


_POOL_ENDINGS: Final = {
    PoolEndReason.EXPIRED: EndingWords(
        timeline="Its warm pool has expired",
        subject="warm pool has expired",
        sentence="has expired: no matching job came, and its instances are gone.",
    ),
    PoolEndReason.STOPPED_BY_USER: EndingWords(
        timeline="Its warm pool was ended by a user",
        subject="warm pool was stopped",
        sentence="was stopped by a user.",
    ),
    PoolEndReason.STOPPED_AT_LIMIT: EndingWords(
        timeline="Its warm pool was ended: idle for longer than this deployment allows",
        subject="warm pool was stopped: idle too long",
        sentence="was stopped: it was idle for longer than this deployment allows.",
    ),
    PoolEndReason.ENDED_EARLY: EndingWords(
        timeline="SageMaker ended its warm pool before its time",
        subject="warm pool ended early",
        sentence="was ended by SageMaker before its time: for a patch, or because SageMaker itself was asked.",
    ),
    PoolEndReason.JOB_GONE: EndingWords(
        timeline="Its training job was deleted, and with it what is known of its warm pool",
        subject="warm pool is lost from sight",
        sentence="is lost from sight: its training job was deleted, which is all that is known of a pool.",
    ),
}


def words_of_pool(pool: Pool) -> EndingWords:
    """Return the words for a pool that ended, or was never kept."""
    return _NOT_KEPT if pool.state is PoolState.NOT_KEPT else _POOL_ENDINGS[pool.end_reason or PoolEndReason.EXPIRED]


def pool_expiring_notification(
    *, run: Run, pool: Pool, idle_usd: float | None, deployment: str, created_at: datetime
) -> Notification:
    """Compose the notification that a warm pool will be gone soon.

    Args:
        run: Its run.
        pool: The waiting pool.
        idle_usd: The cost of its wait so far, if its price is known.
        deployment: The deployment's name.
        created_at: The time when the notification is written.
    """
    left = spoken_duration((pool.kept_until - created_at).total_seconds())
    waited = spoken_duration((created_at - pool.kept_since).total_seconds())
    so_far = "" if idle_usd is None else f" and has cost {spoken_usd(idle_usd)}"
    return compose(
        _moment(run, pool, nth=pool.reminders + 1, deployment=deployment, at=created_at),
        kind=NotificationKind.POOL_EXPIRING,
        subject=f"warm pool ends in {left}",
        paragraphs=[
            *wrapped(
                f"The warm pool that your run {run.name} left ends at {clock(pool.kept_until)}, in {left}. "
                f"It has waited {waited} for a next job{so_far} ({_machines(pool)})."
            ),
        ],
        commands=_pool_commands(pool),
    )


def pool_over_notification(*, run: Run, pool: Pool, deployment: str, created_at: datetime) -> Notification:
    """Compose the notification that a warm pool is gone, or that there never was one.

    Args:
        run: Its run.
        pool: The pool, ended or not kept.
        deployment: The deployment's name.
        created_at: The time of the notification.
    """
    over, kept = words_of_pool(pool), pool.state is not PoolState.NOT_KEPT
    return compose(
        _moment(run, pool, deployment=deployment, at=created_at),
        kind=NotificationKind.POOL_EXPIRED,
        subject=over.subject,
        paragraphs=[
            *wrapped(f"The warm pool of your run {run.name} {over.sentence}"),
            "",
            *(_waited_for_nothing(pool) if kept else _what_to_request(pool)),
        ],
        reason=(pool.end_reason or PoolEndReason.EXPIRED).value if kept else pool.state.value,
    )


def pool_left(pool: Pool | None) -> list[str]:
    """Return the words on the pool that a run's last job left, for the notification of its end."""
    if pool is None or pool.state is not PoolState.AVAILABLE:
        return []
    kept = spoken_duration((pool.kept_until - pool.kept_since).total_seconds())
    count, price = pool.traits.instance_count, pool.usd_per_hour
    cost = f"what that costs is not known here: no price of {pool.traits.instance_type}"
    if price is not None:
        most = price * count * (pool.kept_until - pool.kept_since).total_seconds() / 3600
        cost = f"{spoken_usd(price * count)} an hour, {spoken_usd(most)} at most"
    until = f"until {clock(pool.kept_until)} ({kept})"
    text = f"{_machines(pool)}, kept warm for the next job {until} and billed: {cost}."
    return [
        "",
        "Warm pool",
        *(f"  {line}" for line in wrapped(text, columns=COLUMNS - 2)),
        "",
        *command_lines(*_pool_commands(pool)),
    ]


def _moment(run: Run, pool: Pool, *, nth: int = 0, deployment: str, at: datetime) -> Moment:
    return Moment(run=run, attempt=pool.attempt, nth=nth, deployment=deployment, happened_at=at, created_at=at)


def _machines(pool: Pool) -> str:
    return f"{pool.traits.instance_count} x {pool.traits.instance_type}"


def _pool_commands(pool: Pool) -> list[tuple[str, str]]:
    return [
        (f"spotkeep launch job.yaml --like {pool.run}", "run the next job on it"),
        (f"spotkeep pool extend {pool.run} 30m", "keep it longer"),
        (f"spotkeep pool stop {pool.run}", "end it now"),
    ]


def _waited_for_nothing(pool: Pool) -> list[str]:
    waited = "not known" if pool.idle_seconds is None else spoken_duration(pool.idle_seconds)
    cost = "the price of its instance type is not known here"
    if pool.usd_per_hour is not None and pool.idle_seconds is not None:
        cost = spoken_usd(pool.idle_seconds * pool.traits.instance_count * pool.usd_per_hour / 3600)
    return [
        *fact_line("Instances", _machines(pool)),
        *fact_line("Idle", waited),
        *fact_line("Idle cost", cost),
        "",
        "Next",
        *command_lines((f"spotkeep describe {pool.run}", "the bill, with the pool on it")),
    ]


def _what_to_request(pool: Pool) -> list[str]:
    quota = f"{pool.traits.instance_type} for training warm pool usage"
    return [
        "What to request",
        f"  in Service Quotas, Amazon SageMaker, at least {pool.traits.instance_count} of",
        f"  {quota}",
        "",
        "Next",
        "  aws service-quotas list-service-quotas --service-code sagemaker \\",
        f"    --query \"Quotas[?QuotaName=='{quota}'].[QuotaCode,Value]\"",
        "  aws service-quotas request-service-quota-increase \\",
        "    --service-code sagemaker --quota-code CODE \\",
        f"    --desired-value {pool.traits.instance_count}",
    ]
