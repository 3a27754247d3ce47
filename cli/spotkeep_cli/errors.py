"""The errors of commands, as one tree, with message, hint and the exit code that scripts rely on.

```
CommandLineError          1  something unexpected
├── UsageError            2  an option, an argument or a file cannot be understood
│   ├── JobFileError      2  ... the job file, with its line
│   └── LocalSourceError  2  ... a local source (see launching.source_files). Shown among the job's problems
├── RefusedError          3  the launcher would not, or did not, accept the request. Carries every problem
├── RunNotFoundError      4  no run has that name, or several do
├── CheckpointNotFoundError 4  no checkpoints are there, or none of that step
├── NoConnectionError     5  there is no deployment to talk to, or it does not let us in
├── RunFailedError        6  the run that was followed failed
├── RunStoppedError       7  the run that was followed was stopped, or ran out of time
├── LauncherError         8  the launcher function broke, or its answer cannot be read
├── LocalFailureError     9  the local AWS did not start, stop or take the deployment
├── NotConfirmedError    10  a question was answered with no
├── RehearsalFailedError 11  a rehearsal was judged, and did not pass
├── RehearsalNotJudgedError 12  a rehearsal could not be carried out to its verdict
│   ├── RehearsalTimeoutError 12  ... something did not happen in time (see rehearsal.errors)
│   └── RehearsedRunFailedError 12  ... a run failed that was to leave something to judge
├── DamagedCheckpointsError 13  a checkpoint is damaged
├── OrphanError        14  the account holds resources that belong to no live run
├── DrillFailedError     15  a run whose instance was taken away on purpose did not come back
├── MissingModuleError   16  a rehearsed script needs a Python module that is not installed here
└── MissingExtraError    69  an extra of the package is not installed (see extras)
```
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from spotkeep_cli.extras import EXIT_CODE, install_command
from spotkeep_jobs.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, kw_only=True)
class LocatedProblem(Problem):
    """A problem and its place in the job file.

    Attributes:
        line: Its line in the job file, from 1. None where `--set` gave it or it is missing.
        option: The field that `--set` gave, such as `nodes.max`. It may be around the problem's field, or in it. None
            where the job file gave all of it.
    """

    line: int | None = None
    option: str | None = None

    def as_document(self) -> dict[str, Any]:
        """Return the problem as `--json` gives it."""
        return {**super().as_document(), "line": self.line}


class ExitCode(IntEnum):
    """The meaning of a command's exit status. Documented in docs/command-line.md."""

    DONE = 0
    UNEXPECTED = 1
    USAGE = 2
    REFUSED = 3
    NOT_FOUND = 4
    NO_CONNECTION = 5
    RUN_FAILED = 6
    RUN_STOPPED = 7
    LAUNCHER_FAILED = 8
    LOCAL_AWS_FAILED = 9
    NOT_CONFIRMED = 10
    REHEARSAL_FAILED = 11
    REHEARSAL_NOT_JUDGED = 12
    DAMAGED_CHECKPOINT = 13
    ORPHAN = 14
    DRILL_FAILED = 15
    MISSING_MODULE = 16
    MISSING_EXTRA = EXIT_CODE


class CommandLineError(Exception):
    """The root of all errors. One line names the problem and the fact, and a hint names the remedy.

    `print(error)` and a traceback show both, and each problem of a refusal.

    Attributes:
        message: One line, without a full stop.
        hint: The next step. May hold a command to copy. Empty where no hint is useful.
    """

    exit_code = ExitCode.UNEXPECTED

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        """Return the message, a line for each problem, and the hint."""
        return "\n".join([self.message, *self._details(), *([f"Hint: {self.hint}"] if self.hint else [])])

    def _details(self) -> Sequence[str]:
        """Return the lines between the message and the hint."""
        return ()


class UsageError(CommandLineError):
    """An option, an argument or a file was given wrongly."""

    exit_code = ExitCode.USAGE


class JobFileError(UsageError):
    """The job file cannot be read as a job document."""


class RefusedError(CommandLineError):
    """The request has problems. Nothing was launched.

    Attributes:
        problems: Every problem at once, in the order of the document.
        temporary: True if all problems end by themselves. The launcher may accept the same request later.
    """

    exit_code = ExitCode.REFUSED

    def __init__(self, message: str, *, problems: Sequence[LocatedProblem] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems)
        self.temporary = False

    def _details(self) -> Sequence[str]:
        return [f"- {problem}" for problem in self.problems]

    def as_document(self) -> dict[str, Any]:
        """Return the refusal as `--json` gives it."""
        problems = [problem.as_document() for problem in self.problems]
        return {"ok": False, "error": self.message, "problems": problems}


class RunNotFoundError(CommandLineError):
    """No run has that id, or the abbreviation fits several."""

    exit_code = ExitCode.NOT_FOUND


class CheckpointNotFoundError(CommandLineError):
    """There are no checkpoints where they were sought, or none of that step."""

    exit_code = ExitCode.NOT_FOUND


class NoConnectionError(CommandLineError):
    """No deployment can be reached. It is not deployed, or credentials, permission or network are missing."""

    exit_code = ExitCode.NO_CONNECTION


class RunFailedError(CommandLineError):
    """The run that was followed ended in failure."""

    exit_code = ExitCode.RUN_FAILED


class RunStoppedError(CommandLineError):
    """The run that was followed was stopped before it completed."""

    exit_code = ExitCode.RUN_STOPPED


class LauncherError(CommandLineError):
    """The launcher function raised an error, or answered something this version cannot read."""

    exit_code = ExitCode.LAUNCHER_FAILED


class LocalFailureError(CommandLineError):
    """The local AWS did not start, stop or take the deployment."""

    exit_code = ExitCode.LOCAL_AWS_FAILED

    @classmethod
    def of(cls, error: Exception) -> LocalFailureError:
        """Return the error with a message of one line. The output of the failed program follows as the hint."""
        first, _, rest = str(error).partition("\n")
        return cls(first.rstrip(":"), hint=rest.strip("\n") or "spotkeep local status says what runs")


class NotConfirmedError(CommandLineError):
    """A question was answered with no. Nothing was done."""

    exit_code = ExitCode.NOT_CONFIRMED


class RehearsalFailedError(CommandLineError):
    """The rehearsed job lost more than it may when its capacity was taken."""

    exit_code = ExitCode.REHEARSAL_FAILED


class RehearsalNotJudgedError(CommandLineError):
    """The rehearsal could not come to a verdict."""

    exit_code = ExitCode.REHEARSAL_NOT_JUDGED


class DamagedCheckpointsError(CommandLineError):
    """A checkpoint is incomplete or altered. The message names the file, and the place in it where it is known."""

    exit_code = ExitCode.DAMAGED_CHECKPOINT


class OrphanError(CommandLineError):
    """The account holds resources that should not be there. They have been shown."""

    exit_code = ExitCode.ORPHAN


class DrillFailedError(CommandLineError):
    """A run did not train again after a drill, or the drill could not be carried out."""

    exit_code = ExitCode.DRILL_FAILED


class MissingModuleError(CommandLineError):
    """A rehearsed script ended for want of a Python module. This is no judgement on its handling of interruptions."""

    exit_code = ExitCode.MISSING_MODULE


class MissingExtraError(CommandLineError):
    """A part of a command needs an extra of the package that is not installed."""

    exit_code = ExitCode.MISSING_EXTRA

    def __init__(self, extra: str, *, what: str, error: ImportError) -> None:
        super().__init__(
            f"{what} needs the extra {extra!r}, which is not installed ({error.name} is missing)",
            hint=install_command(extra),
        )


@contextmanager
def local_failures() -> Iterator[None]:
    """Turn refusals and failures of the local AWS into the command line's own error.

    Raises:
        LocalFailureError: The local AWS refused or failed.
    """
    from spotkeep_local.errors import LocalAwsError

    try:
        yield
    except LocalAwsError as error:
        raise LocalFailureError.of(error) from error
