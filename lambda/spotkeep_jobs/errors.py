"""Every error of `spotkeep_jobs`, in one tree, so that a caller can see what it may have to handle.

SpotkeepJobsError ├── DurationError                    a duration that cannot be read ├── RequestRefusedError
a document that must not launch. Carries every problem at once (I7) ├── SearchError                      the function
that searches by tpe gave no answer ├── RunTableError                    the run table's errors derive from this one
(see run_table) └── AwsCallError                     AWS did not do what was asked
    ├── TrainingJobNameTakenError    a job of that name exists already ├── TrainingJobNotFoundError     no job has that
    name ├── AwsRefusedError              the request will never be accepted as it is └── AwsBusyError
    throttled, unreachable or failing: the outcome is unknown, ask again
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong with a document.

    Attributes:
        field: where in the document, as a person would write it: `channels[0].uri`.
        found: what is there, shortened. Never the value of an environment variable or a hyperparameter.
        problem: what is wrong with it.
        fix: what to do.
        temporary: whether it is over by itself: the same document may be accepted later.
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
        problem: what is wrong with it.
        fix: how to write what was probably meant.
    """

    def __init__(self, *, problem: str, fix: str) -> None:
        super().__init__(f"{problem}. {fix}")
        self.problem = problem
        self.fix = fix


class RequestRefusedError(SpotkeepJobsError):
    """A document that must not launch anything, with all that is wrong with it."""

    def __init__(self, problems: Sequence[Problem], *, warnings: Sequence[str] = ()) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)

    @property
    def temporary(self) -> bool:
        """Whether all that is wrong is over by itself."""
        return all(problem.temporary for problem in self.problems)


class SearchError(SpotkeepJobsError):
    """The function that searches by tpe failed: which trials follow is not known, and the next advance asks again.

    Attributes:
        function: The function's name.
        reason: What it, or Lambda, says.
    """

    def __init__(self, *, function: str, reason: str) -> None:
        super().__init__(f"the function {function} chose no trials: {reason}. Its log says more")
        self.function = function
        self.reason = reason


class RunTableError(SpotkeepJobsError):
    """The root of the run table's errors."""


class AwsCallError(SpotkeepJobsError):
    """SageMaker, EC2 or DynamoDB did not do what was asked.

    Attributes:
        operation: the API operation that was called.
        code: the error's code as the service or the client names it.
        reason: the error's own words.
    """

    def __init__(self, *, operation: str, code: str, reason: str) -> None:
        super().__init__(f"{operation} failed with {code}: {reason}")
        self.operation = operation
        self.code = code
        self.reason = reason


class TrainingJobNameTakenError(AwsCallError):
    """CreateTrainingJob found a job of the same name: ours from a lost call, or a stranger's."""


class TrainingJobNotFoundError(AwsCallError):
    """No training job has that name in this account and region."""


class AwsRefusedError(AwsCallError):
    """The request will never be accepted as it is. Nothing was created."""


class AwsBusyError(AwsCallError):
    """Throttled, unreachable or failing after every retry: whether the call took effect is unknown."""


def in_words(error: Exception) -> str:
    """Return an error for a report: what kind it is, and what it says."""
    return f"{type(error).__name__}: {error}"


def isolated(failures: dict[str, str], what: str, act: Callable[[], T]) -> T | None:
    """Do something. What fails is kept with all else that did, and keeps nothing from being done.

    Args:
        failures: What failed, and why. The caller reports it.
        what: What it is done to.
        act: Does it.

    Returns:
        What it returned. None where it failed.
    """
    try:
        return act()
    except Exception as error:  # noqa: BLE001 - kept, and reported by the caller
        failures[what] = in_words(error)
        return None
