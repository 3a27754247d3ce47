"""The launcher's answers in plain JSON, the same for the command line, `aws lambda invoke` and a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from spotkeep_jobs.backends.ec2.checks import as_documents
from spotkeep_jobs.document.reading import json_bytes
from spotkeep_jobs.pools.warm_pool import idle_seconds, idle_usd
from spotkeep_jobs.schedules.document import next_firing

if TYPE_CHECKING:
    from spotkeep_jobs.errors import RequestRefusedError
    from spotkeep_jobs.pools.matching import PoolMatch
    from spotkeep_jobs.record.record import Pool, Run, ScriptMetrics
    from spotkeep_jobs.record.schedule import Schedule
    from spotkeep_jobs.record.sweep import Sweep, Trial
    from spotkeep_jobs.runs.launch import ValidDocument
    from spotkeep_jobs.runs.launch_completion import Launched
    from spotkeep_jobs.runs.shells import Shell
    from spotkeep_jobs.sweeps.launch import LaunchedSweep, ValidSweep

Answer = dict[str, Any]
MAX_PAGE_BYTES: Final = 2_000_000
"""The most bytes of the trials in one answer, as JSON.

Lambda answers with 6 MB, and the function's URL writes quotes twice as long.

Source: https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
"""


def launched(launch: Launched) -> Answer:
    """Return a run that has its job, from this call or an earlier one, or all runs that were launched as one."""
    if launch.run.group is not None:
        return {
            "ok": True,
            "group": launch.run.group.id,
            "runs": [_where(run) for run in launch.runs],
            "replayed": launch.replayed,
            "warnings": list(launch.warnings),
            "next": [{"what": "See where they stand", "command": "spotkeep ps"}, *_next(launch.run)],
        }
    return resumed(launch)


def resumed(launch: Launched) -> Answer:
    """Return a run that has its job, from this call or an earlier one. It may be one of several of a launch."""
    return {
        "ok": True,
        **_where(launch.run),
        "replayed": launch.replayed,
        "warnings": list(launch.warnings),
        "next": _next(launch.run),
    }


def acted_on(run: Run) -> Answer:
    """Return a run that was asked to stop, has ended before, or has got another priority."""
    return {"ok": True, **_where(run), "next": _next(run)}


def described(run: Run, metrics: ScriptMetrics | None) -> Answer:
    """Return all values of the run item, and the metrics of the run's script."""
    return {
        "ok": True,
        **_where(run),
        "record": run.model_dump(mode="json"),
        "metrics": {} if metrics is None else metrics.model_dump(mode="json")["metrics"],
        "next": _next(run),
    }


def replayed(run: str, notification_ids: Sequence[str]) -> Answer:
    """Return notifications that go out again within minutes."""
    return {"ok": True, "run": run, "notifications": list(notification_ids)}


def shell_opened(shell: Shell) -> Answer:
    """Return a session that waits for Session Manager's plugin, with the request and the answer of StartSession."""
    session = shell.session
    return {
        "ok": True,
        "run": shell.run,
        "session": {"SessionId": session.id, "TokenValue": session.token, "StreamUrl": session.stream_url},
        "parameters": dict(shell.parameters),
    }


def valid(document: ValidDocument, troubles: Sequence[str], *, matches: Sequence[PoolMatch], now: datetime) -> Answer:
    """Return a document that would be launched, with all its defaults, its price and the warm pools held against it.

    `worst_case_usd` is the amount that `limits`, the deployment's ceilings, compare with run_cost_limit_usd.
    `spot_offers` is the present price of spot capacity, by type and zone, for a run on EC2. `troubles` lists the facts
    that could not be found out.
    """
    return {
        "ok": True,
        "request": document.request.as_document(),
        "usd_per_hour": document.usd_per_hour,
        "worst_case_usd": document.worst_case_usd,
        "limits": asdict(document.limits),
        "warnings": [*document.warnings, *troubles],
        "pools": [_matched(match, now=now) for match in matches],
        "spot_offers": as_documents(document.offers),
    }


def pools(found: Sequence[Pool], *, unreadable: Mapping[str, str], now: datetime) -> Answer:
    """Return the warm pools there are, and which records cannot be read, and why."""
    return {"ok": True, "pools": [pool_document(pool, now=now) for pool in found], "unreadable": dict(unreadable)}


def pool_changed(pool: Pool, *, now: datetime) -> Answer:
    """Return a warm pool that was extended or ended."""
    return {"ok": True, "run": pool.run, "pool": pool_document(pool, now=now)}


def pool_document(pool: Pool, *, now: datetime) -> Answer:
    """Return a warm pool with its record and its present state."""
    cost = idle_usd(pool, now=now)
    return {
        **pool.model_dump(mode="json"),
        "seconds_left": max(0, round((pool.kept_until - now).total_seconds())),
        "idle_so_far_seconds": round(idle_seconds(pool, now=now)),
        "idle_so_far_usd": None if cost is None else round(cost, 6),
    }


def _matched(match: PoolMatch, *, now: datetime) -> Answer:
    return {
        "fits": match.fits,
        "differences": [difference.as_document() for difference in match.differences],
        "pool": pool_document(match.pool, now=now),
    }


def refused(error: RequestRefusedError) -> Answer:
    """Return a document that launched nothing, with all its problems. `temporary` says that they pass by themselves."""
    return {
        "ok": False,
        "error": "refused",
        "problems": [problem.as_document() for problem in error.problems],
        "temporary": error.temporary,
        "warnings": list(error.warnings),
    }


def _where(run: Run) -> Answer:
    return {
        "run": run.run,
        "state": run.state.value,
        "job_name": run.job_name,
        "job_id": run.job_id,
        "attempt": run.attempt,
        "capacity": run.place.capacity,
        "instance_type": run.place.instance_type,
        "waits_for_quota": None if run.quota_wait is None else run.quota_wait.reason,
        "checkpoint_uri": run.checkpoint_uri,
        "output_uri": run.output_uri or _output_uri(run),
        "queue": None if run.place.queue is None else run.place.queue.model_dump(),
    }


def _output_uri(run: Run) -> str:
    """Return the address of the future model. In a queue it lies below AWS Batch's name of the training job."""
    if run.place.queue is not None and run.training_job is None:
        return run.output_prefix
    return f"{run.output_prefix}{run.training_job or run.job_name}/output/model.tar.gz"


def _next(run: Run) -> list[dict[str, str]]:
    steps = [("See where it stands", "describe"), ("Read its log", "logs")]
    if not run.state.ended:
        steps.append(("Stop it", "stop"))
    elif run.state.value != "COMPLETED" and not run.adopted:
        steps.append(("Go on from its checkpoints", "resume"))
    # As it was, a paused run would pause again at once.
    on = "" if run.next_pause_at_step is None else f" --set pause_at_step={run.next_pause_at_step}"
    return [
        {"what": what, "command": f"spotkeep {command} {run.run}{on if command == 'resume' else ''}"}
        for what, command in steps
    ]


def launched_sweep(launch: LaunchedSweep) -> Answer:
    """Return a sweep that has its first trial, from this call or an earlier one."""
    advanced = launch.advanced
    return {
        **sweep_stands(advanced.sweep),
        "replayed": launch.replayed,
        "refused": advanced.refused,
        "warnings": list(launch.warnings),
    }


def sweep_stands(sweep: Sweep) -> Answer:
    """Return the present state of a sweep."""
    return {
        "ok": True,
        "sweep": sweep.sweep,
        "state": sweep.state.value,
        "because": sweep.ended_because,
        "trials": sweep.counts.model_dump(mode="json"),
        "best": None if sweep.best is None else sweep.best.model_dump(mode="json"),
        "next": _next_of_sweep(sweep),
    }


def described_sweep(sweep: Sweep, trials: Sequence[Trial], *, first: int = 1) -> Answer:
    """Return the record of a sweep and its trials, or of one page of many trials.

    Args:
        sweep: The sweep.
        trials: All of its trials, in the order of their numbers.
        first: The number of the first one on the page.
    """
    page: list[Answer] = []
    room = MAX_PAGE_BYTES
    for trial in trials[first - 1 :]:
        described_trial = trial.model_dump(mode="json", exclude_none=True)
        room -= json_bytes(described_trial)
        if page and room < 0:
            break
        page.append(described_trial)
    following = first + len(page)
    more = {"action": "describe", "sweep": sweep.sweep, "from": following}
    return {
        **sweep_stands(sweep),
        "record": sweep.model_dump(mode="json"),
        "each_trial": page,
        "next_page": more if following <= len(trials) else None,
    }


def judged_sweep(valid_sweep: ValidSweep, *, now: datetime) -> Answer:
    """Return a sweep that would be launched, and its first trial as a job that would be."""
    request = valid_sweep.request
    return {
        **valid(valid_sweep.first, (), matches=(), now=now),
        "worst_case_usd": valid_sweep.worst_case_usd,
        "warnings": list(valid_sweep.warnings),
        "sweep": request.model_dump(mode="json", exclude_none=True),
        "most_trials": request.most_trials,
    }


def _next_of_sweep(sweep: Sweep) -> list[dict[str, str]]:
    steps = [("See its trials, the best first", "describe")]
    if not sweep.state.ended:
        steps += [("Pause it", "pause"), ("Stop it", "stop")]
    elif sweep.can_go_on:
        steps.append(("Try what failed again" if sweep.counts.failed else "Go on with it", "resume"))
    if sweep.best is not None:
        steps.append(("Fetch its best trial", "best"))
    offered = [{"what": what, "command": f"spotkeep {command} {sweep.sweep}"} for what, command in steps]
    if (best := sweep.best_to_finish) is not None:
        command = f"spotkeep resume {best.run} {sweep.options_to_finish}"
        offered.insert(1, {"what": "Train its best trial to its end", "command": command})
    return offered


def scheduled(schedule: Schedule, *, now: datetime, replayed: bool, warnings: Sequence[str]) -> Answer:
    """Return a schedule that was made, by this call or an earlier one."""
    return {
        "ok": True,
        "schedule": schedule_document(schedule, next_firing=next_firing(schedule, now=now)),
        "replayed": replayed,
        "warnings": list(warnings),
        "next": [
            {"what": "See the schedules", "command": "spotkeep schedules ls"},
            {"what": "Remove it", "command": f"spotkeep schedules rm {schedule.schedule}"},
        ],
    }


def schedule_document(schedule: Schedule, *, next_firing: datetime | None) -> Answer:
    """Return a schedule, and when it fires next. Null for a time zone that is not known here."""
    return {
        "schedule": schedule.schedule,
        "expression": schedule.expression,
        "timezone": schedule.timezone,
        "owner": schedule.owner,
        "next_firing": None if next_firing is None else next_firing.isoformat(),
    }
