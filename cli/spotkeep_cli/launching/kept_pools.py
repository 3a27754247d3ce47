"""Warm pools as the launcher answers them, read into the record's own types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from spotkeep_jobs.pools.matching import PoolMatch

if TYPE_CHECKING:
    from spotkeep_cli.launching.job_file import JobDocument
    from spotkeep_jobs.record.record import Run

LIKE_KEEP_ALIVE_SECONDS = 1800
"""What `--like` keeps the next pool for, when neither the job file nor the other run says."""

_ASKED_FOR = ("instance_count", "volume_size_gb", "team")


def matches_from_answer(answer: Mapping[str, Any]) -> tuple[PoolMatch, ...]:
    """Return the pools of an answer to `validate`, each held against the job."""
    return TypeAdapter(tuple[PoolMatch, ...]).validate_python(answer.get("pools") or ())


def match_document(match: PoolMatch) -> dict[str, Any]:
    """Return a match for programs."""
    return {
        "fits": match.fits,
        "differences": [difference.as_document() for difference in match.differences],
        "pool": match.pool.model_dump(mode="json"),
    }


def overrides_like(run: Run, document: JobDocument) -> dict[str, Any]:
    """Return what a job takes over from a run, to fit the warm pool that the run left.

    Only what SageMaker compares, as far as a job file says it; the role, the network and the key are the deployment's.

    Args:
        run: The run whose pool is meant.
        document: The job file; of its own it keeps everything else, `keep_alive` included.

    Returns:
        Fields and their values; None takes a field away.
    """
    asked = run.request
    fields: dict[str, Any] = {"capacity": "on-demand", "instance_type": run.place.instance_type, "instance_types": None}
    fields |= {name: asked.get(name) for name in _ASKED_FOR}
    fields |= dict.fromkeys(("ladder", "longest_wait", "spot_only", "max_wait"))
    if not document.fields.get("keep_alive"):
        fields["keep_alive"] = asked.get("keep_alive") or LIKE_KEEP_ALIVE_SECONDS
    return fields
