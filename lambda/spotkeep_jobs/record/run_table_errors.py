"""Errors of the run table, for refused writes and unknown records. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotkeep_jobs.errors import Problem, RequestRefusedError, RunTableError


class RunNotRecordedError(RunTableError):
    """No such run, or no such attempt of it, is recorded."""

    def __init__(self, run: str, *, attempt: int | None = None) -> None:
        which = f"run {run!r}" if attempt is None else f"attempt {attempt} of run {run!r}"
        super().__init__(f"{which} is not recorded. `spotkeep ps --all` lists the runs of this deployment")
        self.run = run


class RunExistsError(RunTableError):
    """The run id is taken by a request with another token."""

    def __init__(self, run: str) -> None:
        super().__init__(f"run {run!r} exists already, from another request. Leave `run` out or choose another id")
        self.run = run


class IdReservedError(RunTableError):
    """A sweep or a schedule reserves the id for its launches, or the id is a sweep's own."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the id {name!r} is a sweep's or a schedule's. Leave `run` out or choose another id")
        self.name = name


class CheckpointPrefixTakenError(RunTableError):
    """Another live run owns the checkpoint prefix (I1)."""

    def __init__(self, *, checkpoint_uri: str, owned_by: str) -> None:
        super().__init__(
            f"the checkpoint prefix {checkpoint_uri} belongs to the live run {owned_by!r}. "
            f"Wait for it, stop it (`spotkeep stop {owned_by}`), or name another prefix"
        )
        self.checkpoint_uri = checkpoint_uri
        self.owned_by = owned_by


class RunsInFlightError(RunTableError):
    """As many runs as the deployment allows are under way."""

    def __init__(self, *, in_flight: int, limit: int) -> None:
        super().__init__(
            f"{in_flight} runs are in flight, and the deployment allows {limit}. Wait for one, or stop one"
        )
        self.in_flight = in_flight
        self.limit = limit


class AttemptStillLiveError(RunTableError):
    """A next attempt was asked for while the last one is not over (I1)."""

    def __init__(self, *, run: str, attempt: int, state: str) -> None:
        super().__init__(
            f"attempt {attempt} of run {run!r} is not over (it is {state}). "
            f"Wait for it or stop it first: `spotkeep stop {run}`"
        )
        self.run = run
        self.attempt = attempt
        self.state = state


class DeploymentIsBeingDeletedError(RunTableError, RequestRefusedError):
    """CloudFormation deletes the deployment, so no work begins any more. For the caller, it is a refusal."""

    def __init__(self) -> None:
        problem = Problem(
            field="(deployment)",
            found="its stack is being deleted, or was",
            problem="begins no work any more",
            fix="Use another deployment. Where the deletion failed and this one is to stay, who runs it clears the "
            "record of it: docs/runbook.md, `cdk destroy` failed.",
            temporary=True,
        )
        super().__init__([problem])


class UnreadableRecordError(RunTableError, RequestRefusedError):
    """An item of the run table that this version cannot read. Another version wrote it, or it is damaged.

    For the caller, it is a refusal.

    Attributes:
        what: The name of the record, such as `run a` or `attempt 2 of run a`.
        item: As it is stored.
    """

    def __init__(self, what: str, *, problem: str, found: str, fix: str, item: Mapping[str, Any]) -> None:
        field = f"(record of {what})"
        super().__init__([Problem(field=field, found=found, problem=problem, fix=fix, temporary=True)])
        self.what = what
        self.item = item


class RunChangedError(RunTableError):
    """Another function changed the run since it was read. The caller reads it again and decides again."""

    def __init__(self, run: str) -> None:
        super().__init__(f"run {run!r} was changed by another function meanwhile. Read it again, decide again")
        self.run = run
