"""Why a launch is refused, or a resume, where only the run table or AWS can tell. Each as a problem, for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spotkeep_jobs.document.reading import shown
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.errors import Problem, RequestRefusedError
from spotkeep_jobs.record.record import REMOVAL, Run

_FILLED_IN: Final = frozenset({"image", "instance_types", "max_run", "max_wait"})
"""What a deployment may fill in. It may fill in something else by the time a token comes again."""


def left_out(document: object) -> frozenset[str]:
    """The fields that the deployment filled in, because an accepted document left them out."""
    given = {name for name, value in document.items() if value is not None} if isinstance(document, Mapping) else set()
    if "instance_type" in given:
        given.add("instance_types")
    return _FILLED_IN - given


def refuse_other_document(run: Run, request: JobRequest, *, left_out: frozenset[str], runs: int = 1) -> None:
    """Refuse a token that comes again with another document.

    Args:
        run: What was launched.
        request: What is asked for now, of the same one of several runs.
        left_out: Fields that the deployment fills in.
        runs: How many runs are asked for.

    Raises:
        RequestRefusedError: They differ in more than what the deployment fills in.
    """
    asked, recorded = request.as_document(), run.request
    fields = (asked.keys() | recorded.keys()) - left_out
    differ = sorted(field for field in fields if asked.get(field) != recorded.get(field))
    if runs != (run.group.size if run.group is not None else 1):
        differ = ["runs"]  # Ids and tokens follow from it.
    if differ:
        raise RequestRefusedError(
            [
                Problem(
                    field="token",
                    found=shown(request.token),
                    problem=f"was used before, for run {run.run}, with another document: "
                    f"they differ in {', '.join(differ)}",
                    fix="Use a new token for a new run, or send the first document again.",
                )
            ]
        )


def run_exists(run: str) -> Problem:
    """The run id is taken."""
    return Problem(
        field="run",
        found=shown(run),
        problem="is the id of a run that exists already",
        fix=f"Leave `run` out, choose another id, or go on with that run: spotkeep resume {run}",
    )


def unknown_run(run: str) -> Problem:
    """There is no such run."""
    return Problem(
        field="run",
        found=shown(run),
        problem="is not a run of this deployment",
        fix="See the runs there are: spotkeep ps --all",
    )


def checkpoint_prefix_taken(checkpoint_uri: str, owner: str) -> Problem:
    """A live run writes to the checkpoint prefix, or what is below it is being removed."""
    if owner == REMOVAL:
        return Problem(
            field="checkpoint_prefix",
            found=shown(checkpoint_uri),
            problem="is being cleared: what was stored there belonged to no run for long",
            fix="Launch again in a minute, to begin there anew, or give another prefix.",
        )
    return Problem(
        field="checkpoint_prefix",
        found=shown(checkpoint_uri),
        problem=f"belongs to the live run {owner}",
        fix=f"Wait for that run, stop it (spotkeep stop {owner}), or give another prefix.",
    )


def runs_in_flight(in_flight: int, *, limit: int, asked: int = 1) -> Problem:
    """The deployment has as many runs under way as it may."""
    return Problem(
        field="(runs in flight)",
        found=f"{in_flight} under way",
        problem=f"leave no room for {asked} more: this deployment allows {limit} at a time",
        fix="Wait until a run has ended, stop one (spotkeep ps lists them), or have the setting runs_in_flight_limit "
        "raised.",
    )


def lives_elsewhere(run: Run, *, checkpoint_uri: str) -> Problem:
    """A run's team was isolated, or is no more, since the run was launched."""
    return Problem(
        field="team",
        found=shown(run.request.get("team")),
        problem=f"trains below {checkpoint_uri} now, and the run's checkpoints are below {run.checkpoint_uri}: the "
        "setting isolated_teams was changed since",
        fix="Have an administrator copy them, and launch a new run there; or have the setting changed back.",
    )


def spent_already(request: JobRequest, *, spent_usd: float) -> Problem:
    """The run has cost what it may."""
    return Problem(
        field="max_cost",
        found=shown(request.max_cost),
        problem=f"is spent: the run has cost {spent_usd:.2f} USD",
        fix="Launch a new run with a new max_cost, and checkpoint_prefix to go on from this one's checkpoints.",
    )


def refused_by_its_backend(run: Run) -> Problem:
    """SageMaker or EC2 refused the job."""
    if run.backend == "ec2":
        return Problem(
            field="(EC2)",
            found=f"fleet of {run.job_name}",
            problem=f"was refused: {run.failure_reason}",
            fix="Correct the document or the account (quotas, service-linked roles), then launch with a new token.",
        )
    return Problem(
        field="(SageMaker)",
        found=f"training job {run.job_name}",
        problem=f"was refused: {run.failure_reason}",
        fix="Correct the document or the account (quotas, permissions), then launch with a new token.",
    )
