"""What a notice says: plain text that reads well in a mail client, for a person who has other things to do. Pure.

A notice is composed from the record when the run moves, not when it is sent, so every delivery of it is the same.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from spotkeep_jobs.decisions.checkpoint_watch import Freshness
from spotkeep_jobs.decisions.ladder import NextJob
from spotkeep_jobs.facts.record import Attempt, Cost, Notice, Pool, Run
from spotkeep_jobs.facts.states import EndReason, NoticeKind, PoolEndReason, PoolState, RunState

COLUMNS: Final = 72
SUBJECT_CHARACTERS: Final = 99
"""SNS: ASCII, no line break, less than 100 characters (https://docs.aws.amazon.com/sns/latest/api/API_Publish.html)."""

_REASON_CHARACTERS: Final = 700
_LABEL_COLUMNS: Final = 13
_UNKNOWN: Final = "unknown"


@dataclass(frozen=True, kw_only=True)
class _Ending:
    """How one end reason is put into words: the subject's few, and a sentence."""

    subject: str
    sentence: str


_ENDINGS: Final = {
    EndReason.COMPLETED: _Ending(subject="completed", sentence="is done: the training script finished."),
    EndReason.SCRIPT_FAILED: _Ending(
        subject="failed in its script", sentence="failed: the training script ended with an error."
    ),
    EndReason.INPUT_ERROR: _Ending(
        subject="failed to start",
        sentence="failed: SageMaker could not prepare it from what it was given (data, image or permissions).",
    ),
    EndReason.CAPACITY: _Ending(
        subject="failed: no capacity",
        sentence="failed: AWS had no capacity of its instance type, and SageMaker gave up.",
    ),
    EndReason.PLATFORM_ERROR: _Ending(
        subject="failed in SageMaker", sentence="failed inside SageMaker, not in your script."
    ),
    EndReason.JOB_VANISHED: _Ending(
        subject="failed: its job is gone",
        sentence="is lost: somebody deleted its training job before Spotkeep saw how it ended.",
    ),
    EndReason.QUOTA: _Ending(
        subject="has no quota",
        sentence="was not launched: the account's SageMaker quota has no room for its training job.",
    ),
    EndReason.LAUNCH_REFUSED: _Ending(
        subject="could not be launched", sentence="was not launched: SageMaker refused its training job."
    ),
    EndReason.STOPPED_BY_USER: _Ending(subject="was stopped", sentence="was stopped by a user."),
    EndReason.MAX_RUNTIME_EXCEEDED: _Ending(
        subject="hit its time limit",
        sentence="was ended at its time limit (max_run), before the script was done.",
    ),
    EndReason.MAX_WAIT_EXCEEDED: _Ending(
        subject="waited too long",
        sentence="was ended: it waited for capacity longer than it may.",
    ),
    EndReason.DEADLINE: _Ending(
        subject="could not go on demand",
        sentence="left spot capacity for its deadline, and was ended before it could go on demand.",
    ),
}

_ENDINGS_ON_EC2: Final = {
    EndReason.INPUT_ERROR: _Ending(
        subject="failed to start", sentence="failed: one instance after the other left before it trained."
    ),
    EndReason.PLATFORM_ERROR: _Ending(subject="failed in EC2", sentence="failed in EC2, not in your script."),
    EndReason.JOB_VANISHED: _Ending(
        subject="failed: its fleet is gone",
        sentence="is lost: somebody deleted its fleet before Spotkeep saw how it ended.",
    ),
    EndReason.LAUNCH_REFUSED: _Ending(
        subject="could not be launched", sentence="was not launched: EC2 refused its fleet."
    ),
}

_NOTICE_OF_STATE: Final = {
    RunState.COMPLETED: NoticeKind.COMPLETED,
    RunState.FAILED: NoticeKind.FAILED,
    RunState.STOPPED: NoticeKind.STOPPED,
}


def ending_notice(*, run: Run, deployment: str, created_at: datetime, pool: Pool | None = None) -> Notice | None:
    """Tell the end of a run.

    Args:
        run: The head, ended, with its cost.
        deployment: The deployment's name.
        created_at: When the notice is written.
        pool: The warm pool that its last job left.

    Returns:
        None when the run asked for no notice of this kind.
    """
    kind = _NOTICE_OF_STATE[run.state]
    if kind not in run.notify or run.end_reason is None:
        return None
    ending = _ENDINGS[run.end_reason]
    if run.backend == "ec2":
        ending = _ENDINGS_ON_EC2.get(run.end_reason, ending)
    saved = ""
    cost = run.cost
    if kind is NoticeKind.COMPLETED and cost is not None and cost.redone_seconds is not None:
        saved = f", {cost.saved_percent:.0f} % saved" if (cost.saved_percent or 0) >= 1 else ""
    return _notice(
        run=run,
        deployment=deployment,
        kind=kind,
        attempt=run.attempt,
        happened_at=run.ended_at or run.updated_at,
        created_at=created_at,
        subject=f"{ending.subject}{saved}",
        paragraphs=[
            *_wrapped(f"Your run {run.name} {ending.sentence}"),
            *_quoted(run.failure_reason),
            *([] if run.no_more_jobs_because is None else _wrapped(f"No job follows: {run.no_more_jobs_because}.")),
            "",
            *_facts(run),
            "",
            *_places(run),
            *_warm_pool(pool),
            "",
            *_next(run),
        ],
        reason=run.end_reason.value,
    )


@dataclass(frozen=True, kw_only=True)
class Moment:
    """A loss of capacity, or the return from one.

    Attributes:
        run: The head.
        attempt: The attempt whose job it happened to.
        deployment: The deployment's name.
        nth: Which loss of the attempt, from 1.
        happened_at: When.
        created_at: When the notice is written.
    """

    run: Run
    attempt: Attempt
    deployment: str
    nth: int
    happened_at: datetime
    created_at: datetime


def interruption_notice(moment: Moment) -> Notice:
    """Tell that a run lost its capacity and waits for new."""
    run, attempt = moment.run, moment.attempt
    in_attempt = f" in attempt {attempt.attempt}" if attempt.attempt > 1 else ""
    return _notice_on_the_way(
        moment,
        kind=NoticeKind.INTERRUPTED,
        subject="was interrupted",
        paragraphs=[
            *_wrapped(
                f"Your run {run.name} lost its {attempt.instance_type} at {_clock(moment.happened_at)}: AWS took the "
                f"capacity back. There is nothing to do: the job waits for new capacity, then {_goes_on(run)}."
            ),
            *_wrapped(f"This was {_ordinal(moment.nth)} interruption{in_attempt}."),
            "",
            *(["Checkpoints", f"  {run.checkpoint_uri}", ""] if _resumable(run) else []),
            "Next",
            *_commands((f"spotkeep describe {run.run}", "where it stands")),
        ],
    )


def resume_notice(moment: Moment, *, away_seconds: float) -> Notice:
    """Tell that a run has capacity again and trains.

    Args:
        moment: When it trained again.
        away_seconds: From the interruption until then.
    """
    run = moment.run
    return _notice_on_the_way(
        moment,
        kind=NoticeKind.RESUMED,
        subject="trains again",
        paragraphs=[
            *_wrapped(
                f"Your run {run.name} has capacity again and trains since {_clock(moment.happened_at)}, "
                f"{spoken_duration(away_seconds)} after it was interrupted. There is nothing to do."
            ),
            "",
            "Next",
            *_commands((f"spotkeep logs {run.run} -f", "from which step it goes on")),
        ],
    )


def next_rung_notice(
    *, run: Run, left: Attempt, job: NextJob, deployment: str, happened_at: datetime, created_at: datetime
) -> Notice:
    """Tell that a run found no capacity where it looked, and looks elsewhere.

    Args:
        run: The head, before the next attempt.
        left: The attempt that found none.
        job: The one that follows.
        deployment: The deployment's name.
        happened_at: When it was decided.
        created_at: When the notice is written.
    """
    dearer = left.capacity == "spot" and job.rung.capacity == "on-demand"
    types = " or ".join(job.rung.instance_types)
    what = f"looks for {types} on demand now, at the full price" if dearer else f"looks for {job.rung} now"
    return _notice(
        run=run,
        deployment=deployment,
        kind=NoticeKind.NEXT_RUNG,
        attempt=left.attempt + 1,
        happened_at=happened_at,
        created_at=created_at,
        subject="goes on demand" if dearer else "looks elsewhere for capacity",
        paragraphs=[
            *_wrapped(
                f"Your run {run.name} {what} ({_clock(happened_at)}): {job.because}. There is nothing to do: with "
                f"capacity it {_goes_on(run)}."
            ),
            "",
            "Next",
            *_commands(
                (f"spotkeep describe {run.run}", "where it stands"), (f"spotkeep stop {run.run}", "end it instead")
            ),
        ],
    )


def long_wait_notice(
    *, run: Run, attempt: Attempt, deployment: str, nth: int, waited_seconds: float, happened_at: datetime
) -> Notice:
    """Tell that a run has been waiting for capacity for long, and waits on.

    Args:
        run: The head.
        attempt: Its attempt.
        deployment: The deployment's name.
        nth: After which interruption of the attempt it waits; 0 before its first capacity.
        waited_seconds: Since when.
        happened_at: When that was seen.
    """
    where = f"{attempt.capacity} {attempt.instance_type}"
    return _notice(
        run=run,
        deployment=deployment,
        kind=NoticeKind.WAITING_TOO_LONG,
        attempt=attempt.attempt,
        nth=nth,
        happened_at=happened_at,
        created_at=happened_at,
        subject="is waiting long for capacity",
        paragraphs=[
            *_wrapped(
                f"Your run {run.name} has been waiting for {where} for {spoken_duration(waited_seconds)} and waits on: "
                "AWS has none to spare. With capacity it "
                f"{_goes_on(run) if nth or attempt.attempt > 1 else 'begins'}. Waiting costs nothing."
            ),
            "",
            "Next",
            *_commands(
                (f"spotkeep describe {run.run}", "where it stands"),
                (f"spotkeep stop {run.run}", "end it, to look elsewhere"),
            ),
        ],
    )


def stale_checkpoint_notice(
    *, run: Run, attempt: Attempt, freshness: Freshness, nth: int, deployment: str, now: datetime
) -> Notice:
    """Tell that a run trains and has not saved for longer than it should.

    Args:
        run: The head.
        attempt: Its attempt.
        freshness: Of its newest checkpoint.
        nth: How often the attempt has told that, from 1.
        deployment: The deployment's name.
        now: When it was seen.
    """
    age = spoken_duration((now - freshness.counted_from).total_seconds())
    newest = freshness.newest_at
    if newest is None:
        text = f"trains, and has told of no checkpoint since {_clock(freshness.counted_from)}, {age} ago"
    elif newest < freshness.counted_from:
        text = f"trains since {_clock(freshness.counted_from)}, {age} ago, and has not saved since then"
    else:
        text = f"trains, and its newest checkpoint is of {_clock(newest)}, {age} ago"
    if freshness.interval_s is not None:
        text += f"; it saves every {spoken_duration(freshness.interval_s)} otherwise"
    stuck = "Newer ones are on the job's disk and do not reach S3. " if freshness.stuck_on_its_way else ""
    return _notice(
        run=run,
        deployment=deployment,
        kind=NoticeKind.CHECKPOINT_STALE,
        attempt=attempt.attempt,
        nth=nth,
        happened_at=now,
        created_at=now,
        subject="has not saved for long",
        paragraphs=[
            *_wrapped(
                f"Your run {run.name} {text}. {stuck}If its capacity went away now, the work since then would be "
                "done twice. This is told once; the next checkpoint makes it fresh again."
            ),
            "",
            "Next",
            *_commands(
                (f"spotkeep logs {run.run} -f", "whether it says why"),
                (f"spotkeep checkpoints ls {run.run}", "what is there"),
            ),
        ],
    )


def on_demand_notice(*, run: Run, attempt: Attempt, deployment: str, happened_at: datetime, now: datetime) -> Notice:
    """Tell that a run which looked for spot capacity trains on demand, at the full price.

    Args:
        run: The head.
        attempt: The attempt that has the capacity.
        deployment: The deployment's name.
        happened_at: When it began to train.
        now: When the notice is written.
    """
    return _notice(
        run=run,
        deployment=deployment,
        kind=NoticeKind.ON_DEMAND,
        attempt=attempt.attempt,
        happened_at=happened_at,
        created_at=now,
        subject="trains on demand",
        paragraphs=[
            *_wrapped(
                f"Your run {run.name} trains on demand since {_clock(happened_at)}, on {run.instance_count} x "
                f"{attempt.instance_type}, at the full price: there was no spot capacity for it. It will not be "
                "interrupted."
            ),
            "",
            "Next",
            *_commands(
                (f"spotkeep describe {run.run}", "what it has cost so far"), (f"spotkeep stop {run.run}", "end it")
            ),
        ],
    )


def max_cost_notice(
    *, run: Run, attempt: int, spent_usd: float, max_cost_usd: float, deployment: str, now: datetime
) -> Notice:
    """Tell that most of a run's max_cost is spent while it goes on.

    Args:
        run: The head.
        attempt: The attempt that ended.
        spent_usd: What the run has cost so far.
        max_cost_usd: What it may cost.
        deployment: The deployment's name.
        now: When it was seen.
    """
    return _budget_notice(
        run=run,
        attempt=attempt,
        deployment=deployment,
        now=now,
        subject="has spent most of its max_cost",
        text=f"Your run {run.name} has cost {spoken_usd(spent_usd)} of the {spoken_usd(max_cost_usd)} it may "
        "(max_cost). It goes on with another job, which ends when the rest is spent; its checkpoints stay.",
    )


def budget_notice(
    *, run: Run, attempt: int, nth: int, spent: str, budget_usd: float, over: bool, deployment: str, now: datetime
) -> Notice:
    """Tell that a run's budget is nearly spent, or spent; which ends nothing.

    Args:
        run: The head.
        attempt: Its current attempt.
        nth: 1 for nearly, 2 for spent.
        spent: What the run has cost so far, in words: `at most 12.50 USD`.
        budget_usd: What it is meant to cost.
        over: Whether it has cost that.
        deployment: The deployment's name.
        now: When it was seen.
    """
    return _budget_notice(
        run=run,
        attempt=attempt,
        nth=nth,
        deployment=deployment,
        now=now,
        subject="has spent its budget" if over else "has spent most of its budget",
        text=f"Your run {run.name} has cost {spent} of the {spoken_usd(budget_usd)} it is meant to (budget). It goes "
        "on: a budget is told and ends nothing, max_cost does.",
    )


def _budget_notice(
    *, run: Run, attempt: int, deployment: str, now: datetime, subject: str, text: str, nth: int = 0
) -> Notice:
    return _notice(
        run=run,
        deployment=deployment,
        kind=NoticeKind.BUDGET_NEAR,
        attempt=attempt,
        nth=nth,
        happened_at=now,
        created_at=now,
        subject=subject,
        paragraphs=[
            *_wrapped(text),
            "",
            "Next",
            *_commands(
                (f"spotkeep describe {run.run}", "where it stands"),
                (f"spotkeep stop {run.run}", "end it; it saves first"),
            ),
        ],
    )


def pool_expiring_notice(
    *, run: Run, pool: Pool, idle_usd: float | None, deployment: str, created_at: datetime
) -> Notice:
    """Tell that a warm pool will be gone soon.

    Args:
        run: The head of its run.
        pool: The pool, as it waits.
        idle_usd: What its waiting has cost so far, if its price is known.
        deployment: The deployment's name.
        created_at: When the notice is written.
    """
    left = spoken_duration((pool.kept_until - created_at).total_seconds())
    waited = spoken_duration((created_at - pool.kept_since).total_seconds())
    so_far = "" if idle_usd is None else f" and has cost {spoken_usd(idle_usd)}"
    return _notice(
        run=run,
        deployment=deployment,
        kind=NoticeKind.POOL_EXPIRING,
        attempt=pool.attempt,
        nth=pool.reminders + 1,
        happened_at=created_at,
        created_at=created_at,
        subject=f"warm pool ends in {left}",
        paragraphs=[
            *_wrapped(
                f"The warm pool that your run {run.name} left ends at {_clock(pool.kept_until)}, in {left}. "
                f"It has waited {waited} for a next job{so_far} ({_machines(pool)})."
            ),
            "",
            "Next",
            *_pool_commands(pool),
        ],
    )


def pool_over_notice(*, run: Run, pool: Pool, deployment: str, created_at: datetime) -> Notice:
    """Tell that a warm pool is gone, or that there never was one.

    Args:
        run: The head of its run.
        pool: The pool, ended or not kept.
        deployment: The deployment's name.
        created_at: When the notice is written.
    """
    if pool.state is PoolState.NOT_KEPT:
        over, paragraphs, reason = _NOT_KEPT, _what_to_request(pool), PoolState.NOT_KEPT.value
    else:
        end = pool.end_reason or PoolEndReason.EXPIRED
        over, paragraphs, reason = _POOL_ENDINGS[end], _waited_for_nothing(pool), end.value
    return _notice(
        run=run,
        deployment=deployment,
        kind=NoticeKind.POOL_EXPIRED,
        attempt=pool.attempt,
        happened_at=created_at,
        created_at=created_at,
        subject=over.subject,
        paragraphs=[*_wrapped(f"The warm pool of your run {run.name} {over.sentence}"), "", *paragraphs],
        reason=reason,
    )


_NOT_KEPT: Final = _Ending(
    subject="kept no warm pool: no quota",
    sentence="was not kept: SageMaker ended the instances with the job. This is how an account without a quota for "
    "warm pools looks; a new account has none.",
)
_POOL_ENDINGS: Final = {
    PoolEndReason.EXPIRED: _Ending(
        subject="warm pool has expired", sentence="has expired: no matching job came, and its instances are gone."
    ),
    PoolEndReason.STOPPED_BY_USER: _Ending(subject="warm pool was stopped", sentence="was stopped by a user."),
    PoolEndReason.STOPPED_AT_LIMIT: _Ending(
        subject="warm pool was stopped: idle too long",
        sentence="was stopped: it was idle for longer, or for more money, than this deployment allows.",
    ),
    PoolEndReason.ENDED_EARLY: _Ending(
        subject="warm pool ended early",
        sentence="was ended by SageMaker before its time: for a patch, or because somebody asked SageMaker itself.",
    ),
    PoolEndReason.JOB_GONE: _Ending(
        subject="warm pool is lost from sight",
        sentence="is lost from sight: somebody deleted its training job, which is all that is known of a pool.",
    ),
}


def _warm_pool(pool: Pool | None) -> list[str]:
    """What the end of a run says of the pool that its last job left."""
    if pool is None or pool.state is not PoolState.AVAILABLE:
        return []
    kept = spoken_duration((pool.kept_until - pool.kept_since).total_seconds())
    count, price = pool.traits.instance_count, pool.usd_per_hour
    cost = f"what that costs is not known here: no price of {pool.traits.instance_type}"
    if price is not None:
        most = price * count * (pool.kept_until - pool.kept_since).total_seconds() / 3600
        cost = f"{spoken_usd(price * count)} an hour, {spoken_usd(most)} at most"
    until = f"until {_clock(pool.kept_until)} ({kept})"
    text = f"{_machines(pool)}, kept warm for the next job {until} and billed: {cost}."
    return ["", "Warm pool", *(f"  {line}" for line in _wrapped(text, columns=COLUMNS - 2)), "", *_pool_commands(pool)]


def _machines(pool: Pool) -> str:
    return f"{pool.traits.instance_count} x {pool.traits.instance_type}"


def _pool_commands(pool: Pool) -> list[str]:
    return _commands(
        (f"spotkeep launch job.yaml --like {pool.run}", "run the next job on it"),
        (f"spotkeep pool extend {pool.run} 30m", "keep it longer"),
        (f"spotkeep pool stop {pool.run}", "end it now"),
    )


def _waited_for_nothing(pool: Pool) -> list[str]:
    waited = "not known" if pool.idle_seconds is None else spoken_duration(pool.idle_seconds)
    cost = "the price of its instance type is not known here"
    if pool.usd_per_hour is not None and pool.idle_seconds is not None:
        cost = spoken_usd(pool.idle_seconds * pool.traits.instance_count * pool.usd_per_hour / 3600)
    return [
        *_fact("Instances", _machines(pool)),
        *_fact("Idle", waited),
        *_fact("Idle cost", cost),
        "",
        "Next",
        *_commands((f"spotkeep describe {pool.run}", "the bill, with the pool on it")),
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


def tuning_notice(
    *,
    tuning_job: str,
    kind: NoticeKind,
    trainings: str,
    failure_reason: str | None,
    happened_at: datetime,
    deployment: str,
    created_at: datetime,
) -> Notice:
    """Tell the end of a tuning job (not a run of Spotkeep's: SageMaker's own hyperparameter tuning).

    Args:
        tuning_job: Its name.
        kind: How it ended.
        trainings: A sentence about its training jobs.
        failure_reason: SageMaker's words, if it failed.
        happened_at: When it ended.
        deployment: The deployment's name.
        created_at: When the notice is written.
    """
    verb = {NoticeKind.COMPLETED: "completed", NoticeKind.FAILED: "failed"}.get(kind, "was stopped")
    body = [
        *_wrapped(f"The tuning job {tuning_job} {verb} at {_clock(happened_at)}. {trainings}"),
        *_quoted(failure_reason),
        "",
        "Next",
        "  aws sagemaker describe-hyper-parameter-tuning-job \\",
        f"    --hyper-parameter-tuning-job-name {tuning_job}",
    ]
    notice_id = f"tuning:{tuning_job}/{kind}"
    return Notice(
        notice_id=notice_id,
        subject_id=tuning_job,
        kind=kind,
        subject=_subject(deployment, f"tuning job {tuning_job}", verb),
        body=_signed(body, deployment=deployment, notice_id=notice_id),
        attributes={
            "deployment": deployment,
            "run": tuning_job,
            "name": tuning_job,
            "owner": _UNKNOWN,
            "status": kind.value,
            "capacity": "tuning",
        },
        happened_at=happened_at,
        created_at=created_at,
    )


def spoken_duration(seconds: float) -> str:
    """Write a duration the way a person says it: `42 s`, `4 min 10 s`, `2 h 14 min`, `3 d 2 h`.

    Args:
        seconds: The duration; below zero counts as zero.
    """
    total = max(0, round(seconds))
    if total >= 600:
        total = round(total / 60) * 60
    days, rest = divmod(total, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    if days:
        hours += minutes >= 30
        return f"{days + hours // 24} d {hours % 24} h" if hours % 24 else f"{days + hours // 24} d"
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    if minutes:
        return f"{minutes} min {left} s" if left else f"{minutes} min"
    return f"{left} s"


def spoken_usd(amount: float) -> str:
    """Write US dollars: cents, and more places where cents would say zero."""
    if 0 < abs(amount) < 0.01:
        return f"${amount:.4f}".replace("$-", "-$")
    return f"${amount:,.2f}".replace("$-", "-$")


def _notice_on_the_way(moment: Moment, *, kind: NoticeKind, subject: str, paragraphs: list[str]) -> Notice:
    return _notice(
        run=moment.run,
        deployment=moment.deployment,
        kind=kind,
        attempt=moment.attempt.attempt,
        nth=moment.nth,
        happened_at=moment.happened_at,
        created_at=moment.created_at,
        subject=subject,
        paragraphs=paragraphs,
    )


def _notice(
    *,
    run: Run,
    deployment: str,
    kind: NoticeKind,
    attempt: int,
    happened_at: datetime,
    created_at: datetime,
    subject: str,
    paragraphs: list[str],
    nth: int = 0,
    reason: str | None = None,
) -> Notice:
    notice_id = f"{run.run}/{kind}/{attempt}" + (f"-{nth}" if nth else "")
    attributes = {
        "deployment": deployment,
        "run": run.run,
        "name": run.name,
        "owner": run.owner or _UNKNOWN,
        "status": kind.value,
        "capacity": run.capacity,
    }
    return Notice(
        notice_id=notice_id,
        subject_id=run.run,
        kind=kind,
        attempt=attempt,
        nth=nth,
        subject=_subject(deployment, run.run, subject),
        body=_signed(paragraphs, deployment=deployment, notice_id=notice_id),
        attributes=attributes | ({"reason": reason} if reason else {}),
        facts=_facts_for_programs(run),
        happened_at=happened_at,
        created_at=created_at,
    )


def _facts_for_programs(run: Run) -> dict[str, Any]:
    facts: dict[str, Any] = {"job_name": run.job_name, "checkpoint_uri": run.checkpoint_uri}
    if not run.state.ended:
        # No more of a run that goes on: whoever composes the notice, and when, it says the same.
        return facts
    return facts | {
        "state": run.state.value,
        "instance_type": run.instance_type,
        "instance_count": run.instance_count,
        "interruptions": run.interruptions,
        "output_uri": run.output_uri,
        "cost": None if run.cost is None else run.cost.model_dump(mode="json"),
    }


def _subject(deployment: str, what: str, words: str) -> str:
    text = " ".join(f"[{deployment}] {what} {words}".split())
    printable = "".join(letter if " " <= letter <= "~" else "?" for letter in text)
    return printable if len(printable) <= SUBJECT_CHARACTERS else printable[: SUBJECT_CHARACTERS - 3] + "..."


def _signed(lines: list[str], *, deployment: str, notice_id: str) -> str:
    signature = [
        "",
        "-- ",
        f"Sent by Spotkeep, deployment {deployment}",
        f"Notice {notice_id}",
    ]
    return "\n".join(lines + signature) + "\n"


def _wrapped(text: str, *, columns: int = COLUMNS) -> list[str]:
    # A date and its time, a number and its unit, stay on one line.
    kept = re.sub(r"(?<=\d) (?=\d|UTC|h\b|min\b|s\b|d\b|%)", "\u00a0", text)
    lines = textwrap.wrap(kept, columns, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\u00a0", " ") for line in lines]


def _fact(label: str, text: str) -> list[str]:
    indent = " " * (_LABEL_COLUMNS + 2)
    return textwrap.wrap(
        text,
        COLUMNS,
        initial_indent=f"  {label:<{_LABEL_COLUMNS}}",
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _commands(*commands: tuple[str, str]) -> list[str]:
    """Commands with what each is for, beside it where the lines are wide enough."""
    width = max(len(command) for command, _ in commands)
    beside = [f"  {command:<{width}}   {purpose}" for command, purpose in commands]
    if all(len(line) <= COLUMNS for line in beside):
        return beside
    return [line for command, purpose in commands for line in (f"  {command}", f"      {purpose}")]


def _quoted(reason: str | None) -> list[str]:
    if not reason or not reason.strip():
        return []
    text = reason.strip()
    if len(text) > _REASON_CHARACTERS:
        text = text[:_REASON_CHARACTERS].rstrip() + " ..."
    lines = ["", "Reason"]
    for line in text.splitlines():
        lines += textwrap.wrap(line, COLUMNS, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False) or [
            ""
        ]
    return lines


def _facts(run: Run) -> list[str]:
    lines = _fact("Run", run.run)
    if run.ended_at is not None:
        lines += _fact("Ended", _clock(run.ended_at))
    cost = run.cost
    if cost is None:
        service = "EC2" if run.backend == "ec2" else "SageMaker"
        return lines + _fact("Cost", f"not known: {service} does not say any more what the job used.")
    machines = f"{run.instance_count} x {run.instance_type}, {run.capacity}"
    if cost.training_seconds:
        trained = spoken_duration(cost.training_seconds / run.instance_count)
        attempts = "" if run.attempt == 1 else f", in {run.attempt} attempts"
        lines += _fact("Ran", f"{trained} on {machines}{attempts}")
    else:
        lines += _fact("Ran", f"never: it had no instances ({machines})")
    if cost.waited_seconds >= 1:
        lines += _fact("Waited", f"{spoken_duration(cost.waited_seconds)} for capacity and start-up")
    lines += _fact("Interrupted", _interruptions(run, cost))
    unit = "" if run.instance_count == 1 else " of instance time"
    lines += _fact("Cost", _paid_on_ec2(cost) if run.backend == "ec2" else _paid(cost, unit=unit))
    if cost.storage_gb_hours:
        lines += _fact("Storage", _storage(cost))
    if cost.training_seconds and (run.capacity == "spot" or cost.saved_seconds):
        lines += _fact("Saved", _saved(cost, unit=unit))
    if run.volume_id is not None:
        lines += _fact("Volume", _volume(run))
    return lines


def _interruptions(run: Run, cost: Cost) -> str:
    how_often = {0: "never", 1: "once"}.get(run.interruptions, f"{run.interruptions} times")
    if cost.redone_steps is None:
        return f"{how_often}; how many steps were trained twice is not known"
    if not cost.redone_steps:
        return f"{how_often}; no step was trained twice" if run.interruptions else how_often
    steps = "1 step was" if cost.redone_steps == 1 else f"{cost.redone_steps:,} steps were"
    took = "" if cost.redone_seconds is None else f" ({spoken_duration(cost.redone_seconds)})"
    return f"{how_often}; {steps} trained twice{took}"


def _paid(cost: Cost, *, unit: str) -> str:
    billed = spoken_duration(cost.billed_seconds) + unit
    if not cost.billed_seconds:
        return "nothing"
    if cost.billed_usd is None:
        return f"{billed} billed; the price of this instance type is not known here"
    return f"{spoken_usd(cost.billed_usd)} for {billed} billed"


def _paid_on_ec2(cost: Cost) -> str:
    """In the time of instances: of a market's price, seconds on demand mean little."""
    if not cost.training_seconds:
        return "nothing"
    time = f"{spoken_duration(cost.training_seconds)} of instances"
    if cost.billed_usd is None:
        return f"{time}; not known here: the price of {', '.join(cost.unknown_prices)}"
    return f"{spoken_usd(cost.billed_usd)} for {time}"


def _volume(run: Run) -> str:
    asked = run.request.get("volume") or {}
    if run.state is RunState.COMPLETED and asked.get("when_done") == "delete":
        return f"{run.volume_id}; it is deleted within minutes, as the job asks"
    return f"{run.volume_id}; it is kept, and billed until it is deleted"


def _storage(cost: Cost) -> str:
    used = f"{cost.storage_gb_hours:,.1f} GiB hours of volume"
    return (
        f"{used}, whose price is not known here"
        if cost.storage_usd is None
        else (f"{spoken_usd(cost.storage_usd)} of it for {used}")
    )


def _saved(cost: Cost, *, unit: str) -> str:
    if cost.saved_percent is None and cost.unknown_prices:
        return f"not known: the price of {', '.join(cost.unknown_prices)} is not known here"
    if cost.saved_percent is None:
        return "nothing: the run did no work that lasted"
    amount = spoken_duration(abs(cost.saved_seconds)) + unit
    if cost.saved_usd is not None:
        amount = spoken_usd(abs(cost.saved_usd))
    at_most = "" if cost.redone_seconds is not None else "at most "
    if cost.saved_seconds < 0:
        text = f"nothing: it cost {amount} more than the same work on demand, uninterrupted."
    else:
        text = f"{at_most}{amount} ({cost.saved_percent:.0f} %) against the same work on demand, uninterrupted."
    aws = cost.aws_saved_percent
    if aws is not None and round(aws) != round(cost.saved_percent):
        text += f" SageMaker shows {aws:.0f} %: it counts work done twice as useful."
    return text


def _places(run: Run) -> list[str]:
    lines = []
    if run.output_uri is not None:
        lines += ["Model", f"  {run.output_uri}"]
    if _resumable(run) and _has_trained(run):
        lines += ["Checkpoints", f"  {run.checkpoint_uri}"]
    return lines or ["There is no model and there are no checkpoints."]


def _next(run: Run) -> list[str]:
    story = (f"spotkeep describe {run.run}", "what happened, in order")
    log = (f"spotkeep logs {run.run}", "what the script printed")
    resume = f"spotkeep resume {run.run}"
    again = (resume, "go on from the newest checkpoint" if _resumable(run) and _has_trained(run) else "try again")
    if run.end_reason is EndReason.COMPLETED:
        fetch = [] if run.output_uri is None else [f"  aws s3 cp {run.output_uri} ."]
        return ["Next", *fetch, *_commands(story)]
    if run.end_reason is EndReason.SCRIPT_FAILED:
        return ["Next", *_commands(log, again)]
    if run.end_reason in {EndReason.LAUNCH_REFUSED, EndReason.INPUT_ERROR}:
        return ["Next", *_commands(story, (resume, "try again when that is put right"))]
    return ["Next", *_commands(again, story)]


def _goes_on(run: Run) -> str:
    if _resumable(run):
        return "goes on from its newest checkpoint"
    return "starts from the beginning, for it has no checkpoints"


def _resumable(run: Run) -> bool:
    return bool(run.request.get("checkpoints", True))


def _has_trained(run: Run) -> bool:
    """Whether there may be checkpoints; a run whose usage is not known may have some."""
    return run.cost is None or run.cost.training_seconds > 0


def _ordinal(nth: int) -> str:
    return {1: "its first", 2: "its second", 3: "its third"}.get(nth, f"its {nth}th")


def _clock(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
