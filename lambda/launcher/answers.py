"""What the launcher answers: plain JSON, the same for the command line, `aws lambda invoke` and a script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spotkeep_jobs.errors import RequestRefusedError
    from spotkeep_jobs.launch import Launched
    from spotkeep_jobs.record import Run
    from spotkeep_jobs.request import JobRequest

Answer = dict[str, Any]


def launched(launch: Launched) -> Answer:
    """A run that has its job, from this call or an earlier one."""
    return {
        "ok": True,
        **_where(launch.run),
        "replayed": launch.replayed,
        "warnings": list(launch.warnings),
        "next": _next(launch.run),
    }


def stopping(run: Run) -> Answer:
    """A run that was asked to stop, or has ended before."""
    return {"ok": True, **_where(run), "next": _next(run)}


def described(run: Run) -> Answer:
    """All that the record's head says of a run."""
    return {"ok": True, **_where(run), "record": run.model_dump(mode="json"), "next": _next(run)}


def replayed(run: str, notice_ids: Sequence[str]) -> Answer:
    """Notices that go out again within minutes."""
    return {"ok": True, "run": run, "notices": list(notice_ids)}


def valid(request: JobRequest, warnings: Sequence[str], *, usd_per_hour: float | None) -> Answer:
    """A document that would be launched, with every default filled in and its on-demand price, if it is known."""
    return {
        "ok": True,
        "request": request.as_document(),
        "usd_per_hour": usd_per_hour,
        "warnings": list(warnings),
    }


def refused(error: RequestRefusedError) -> Answer:
    """A document that launched nothing, with all that is wrong with it."""
    return {
        "ok": False,
        "error": "refused",
        "problems": [problem.as_document() for problem in error.problems],
        "warnings": list(error.warnings),
    }


def _where(run: Run) -> Answer:
    return {
        "run": run.run,
        "state": run.state.value,
        "job_name": run.job_name,
        "job_arn": run.job_arn,
        "attempt": run.attempt,
        "capacity": run.capacity,
        "instance_type": run.instance_type,
        "checkpoint_uri": run.checkpoint_uri,
        "output_uri": run.output_uri or f"{run.output_prefix}{run.job_name}/output/model.tar.gz",
    }


def _next(run: Run) -> list[dict[str, str]]:
    steps = [("See where it stands", "describe"), ("Read its log", "logs")]
    if not run.state.ended:
        steps.append(("Stop it", "stop"))
    elif run.state.value != "COMPLETED":
        steps.append(("Go on from its checkpoints", "resume"))
    return [{"what": what, "command": f"spotkeep {command} {run.run}"} for what, command in steps]
