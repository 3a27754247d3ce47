"""Every error of `spotkeep_jobs`, in one tree, so that a caller can see all that it may have to handle. Pure.

SpotkeepJobsError
├── DurationError                    a duration that cannot be read
├── RequestRefusedError              a document that must not launch, with every problem at once (I7)
├── SearchError                      the function that searches by tpe gave no answer
├── RunTableError                    a refused write, or an unknown or unreadable record
│   ├── RunNotRecordedError          no such run, or no such attempt of it
│   ├── RunExistsError               the run id is taken by another request
│   ├── IdReservedError              the id is a sweep's or a schedule's
│   ├── CheckpointPrefixTakenError   another live run owns the checkpoint prefix (I1)
│   ├── RunsInFlightError            as many runs as the deployment allows are under way
│   ├── AttemptStillLiveError        the last attempt is not over (I1)
│   ├── DeploymentIsBeingDeletedError    no work begins any more
│   ├── UnreadableRecordError        another version wrote the record, or it is damaged
│   └── RunChangedError              another function changed the run, so read it again
└── AwsCallError                     AWS did not make the call
    ├── TrainingJobNameTakenError    a job of that name exists already
    ├── JobNotFoundError             no backend has that job
    ├── AwsRefusedError              the request will never be accepted as it is
    └── AwsBusyError                 throttled, unreachable or failing, with an unknown outcome, so ask again
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence


T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One problem of a document.

    Attributes:
        field: The place in the document, as a person would write it, such as `channels[0].uri`.
        found: The value there, shortened, but never the value of an environment variable or a hyperparameter.
        problem: The fault of that value.
        fix: The remedy.
        temporary: True when it is over by itself, and the same document may be accepted later.
    """

    field: str
    found: str
    problem: str
    fix: str
    temporary: bool = False

    def __str__(self) -> str:
        return f"{self.field}: {self.problem} (found {self.found}). {self.fix}"

    def as_document(self) -> dict[str, str]:
        """Return the problem as it stands in an answer."""
        return {"field": self.field, "found": self.found, "problem": self.problem, "fix": self.fix}


class SpotkeepJobsError(Exception):
    """The root of every error this package raises on purpose."""


class DurationError(SpotkeepJobsError, ValueError):
    """A duration that cannot be read.

    Attributes:
        problem: The fault of its text.
        fix: The spelling of the probable meaning.
    """

    def __init__(self, *, problem: str, fix: str) -> None:
        super().__init__(f"{problem}. {fix}")
        self.problem = problem
        self.fix = fix


class RequestRefusedError(SpotkeepJobsError):
    """A document that must not launch anything, with all of its problems."""

    def __init__(self, problems: Sequence[Problem], *, warnings: Sequence[str] = ()) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)

    @property
    def temporary(self) -> bool:
        """True when all of its problems are over by themselves."""
        return all(problem.temporary for problem in self.problems)


class SearchError(SpotkeepJobsError):
    """The function that searches by tpe failed. The next trials are not known, and the next advance asks again.

    Attributes:
        function: The function's name.
        reason: The message of the function, or of Lambda.
    """

    def __init__(self, *, function: str, reason: str) -> None:
        super().__init__(f"the function {function} chose no trials: {reason}. Its log says more")
        self.function = function
        self.reason = reason


class RunTableError(SpotkeepJobsError):
    """The root of the run table's errors."""


class AwsCallError(SpotkeepJobsError):
    """SageMaker, EC2 or DynamoDB did not make the call.

    Attributes:
        operation: The API operation that was called.
        code: The error's code as the service or the client names it.
        reason: The error's own words.
    """

    def __init__(self, *, operation: str, code: str, reason: str) -> None:
        super().__init__(f"{operation} failed with {code}: {reason}")
        self.operation = operation
        self.code = code
        self.reason = reason


class TrainingJobNameTakenError(AwsCallError):
    """CreateTrainingJob found a job of the same name, from a lost call of ours or from a stranger."""


class JobNotFoundError(AwsCallError):
    """The backend has no such job (a training job, a service job or a fleet) in this account and region."""


class AwsRefusedError(AwsCallError):
    """The request will never be accepted as it is. Nothing was created."""


class AwsBusyError(AwsCallError):
    """Throttled, unreachable or failing after every retry. The outcome of the call is unknown."""


def in_words(error: Exception) -> str:
    """Return an error for a report, with its kind and its message."""
    return f"{type(error).__name__}: {error}"


def isolated(failures: dict[str, str], what: str, act: Callable[[], T]) -> T | None:
    """Call a function. A failure is kept, and prevents no other call.

    Args:
        failures: The failed subjects with the reason, which the caller reports.
        what: The subject of the call.
        act: The function.

    Returns:
        The result of `act`, or None where it failed.
    """
    try:
        return act()
    except Exception as error:  # noqa: BLE001 - kept, and reported by the caller
        failures[what] = in_words(error)
        return None


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
            "record of it: spotkeep help runbook destroy.",
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
