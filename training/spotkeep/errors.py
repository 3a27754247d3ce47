"""Every error the library raises on purpose.

```
SpotkeepError
├── CheckpointError
│   ├── StateError              the state holds something a checkpoint cannot hold (all problems at once)
│   ├── StateMismatchError      a good checkpoint does not fit the state of this script
│   ├── DamagedCheckpointError  a checkpoint is incomplete or altered. Restoring falls back to an older one
│   ├── MissingCheckpointError  there is no checkpoint of the step that was asked for
│   ├── MixedStateError         no checkpoint is good, and a damaged one has overwritten a part of the state
│   ├── NewerFormatError        a checkpoint was written by a newer Spotkeep
│   ├── MissingLibraryError     a checkpoint holds arrays or tensors of a library that is not installed here
│   ├── SaveError               the disk refused a checkpoint. Older ones are untouched
│   │   ├── ChangedStateError   the state changed beside its copy. The next step is saved
│   │   └── LockLostError       a later writer of this run has begun. This one may save no more
│   ├── RemoteError             the second tier (S3) cannot be reached, or refuses
│   ├── WorldSizeError          another number of ranks wrote the checkpoint, and it cannot be divided anew
│   ├── OtherRankError          something went wrong on another rank of a distributed training
│   └── RankLostError           another rank of a distributed training is gone
├── ExchangeError               a file of another library's format cannot be read or written
├── UsageError                  the library was called in a way that cannot work
└── JobError                    the job could not be started (carries the exit code)
    ├── ConfigurationError      the platform's files under input/config are missing or malformed
    ├── JobSecretError          the value of a secret cannot be had
    ├── SourceError             the source archive or commit cannot be used
    ├── MissingToolError        a program the job needs is not in the image
    ├── HostNameError           the name of another host of the job does not resolve
    ├── HostMeetingError        another host of the job does not come
    ├── InstallError            the script's requirements cannot be installed, or its `setup` failed
    └── CommandError            the command does not exist or may not be executed
```

A message names the problem, the finding and the remedy.
"""

from __future__ import annotations

from collections.abc import Sequence


class SpotkeepError(Exception):
    """The root of all errors that the library raises on purpose."""


class CheckpointError(SpotkeepError):
    """Saving or restoring a checkpoint went wrong."""


class StateError(CheckpointError):
    """A value of the state cannot stand in a checkpoint.

    Attributes:
        problems: One sentence for each entry that cannot be saved, with its place in the state.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(
            "this state cannot be saved and restored:\n" + "\n".join(f"  - {problem}" for problem in problems)
        )


class StateMismatchError(CheckpointError):
    """A good checkpoint does not fit the state that the script passed, or a value differs after the restore.

    Attributes:
        step: Completed steps of the checkpoint.
        problems: One sentence for each entry that does not fit.
    """

    def __init__(self, step: int, problems: Sequence[str]) -> None:
        self.step = step
        self.problems = tuple(problems)
        listed = "\n".join(f"  - {problem}" for problem in problems)
        super().__init__(
            f"the checkpoint of step {step} does not fit this script's state:\n{listed}\n"
            "Where the training itself changes the form of its state (it adds a parameter group or layers, or resizes "
            "an embedding), let on_restore make that form before the checkpoint is restored, for example "
            "on_restore=lambda step, epoch: optimizer.add_param_group({'params': body.parameters()}). Otherwise "
            "restore the script that wrote it, or start a new run with an empty checkpoint directory."
        )


class DamagedCheckpointError(CheckpointError):
    """A checkpoint is incomplete, altered, or not a checkpoint at all.

    Attributes:
        file: Path of the damaged file, relative to the checkpoint directory.
        problem: Description of the damage.
        offsets: First damaged byte of the file, and the byte after the last one. None for the file as a whole.
    """

    def __init__(self, file: str, problem: str, *, offsets: tuple[int, int] | None = None) -> None:
        self.file = file
        self.problem = problem
        self.offsets = offsets
        super().__init__(f"{file}: {problem}")


class MissingCheckpointError(CheckpointError):
    """There is no checkpoint of the step that the script asks for.

    Attributes:
        step: The step that was asked for. None for the best one.
        steps: The steps with a checkpoint.
    """

    def __init__(self, step: int | None, *, steps: Sequence[int], place: str) -> None:
        self.step = step
        self.steps = tuple(steps)
        asked = "checkpoint with the metric of keep_best" if step is None else f"checkpoint of step {step}"
        there = f"the steps with one are {', '.join(map(str, steps))}" if steps else "there is none of any step"
        super().__init__(f"there is no {asked} in {place}; {there}")


class MixedStateError(CheckpointError):
    """No checkpoint is good, and a damaged one has overwritten a part of the state.

    A training would start from a mixture. Nothing on the disk was changed.
    """


class NewerFormatError(CheckpointError):
    """A checkpoint was written in a format that this version does not know yet."""


class MissingLibraryError(CheckpointError):
    """A checkpoint holds arrays or tensors of a library that is not installed here."""


class SaveError(CheckpointError):
    """The disk refused a checkpoint. Older checkpoints are as they were."""


class ChangedStateError(SaveError):
    """The state changed while the training went on beside its copy. The next step is saved in the place of this one."""


class LockLostError(SaveError):
    """A later writer of this run has begun, and this process may save no more. It has to end."""

    def __init__(self, place: str, *, own: str, later: str) -> None:
        super().__init__(
            f"{place} belongs to a later writer of this run, {later}, and this process is {own}: it has lost the run's "
            "lock, so it saves nothing more. Nothing is lost: the later writer goes on from a checkpoint of the run. "
            "End this process"
        )


class RemoteError(CheckpointError):
    """S3 refuses, or cannot be reached.

    Attributes:
        missing: True if the object is not there.
        code: Error code of S3, for example `SlowDown`. Empty without an answer.
    """

    def __init__(self, message: str, *, missing: bool = False, code: str = "") -> None:
        self.missing = missing
        self.code = code
        super().__init__(message)


class WorldSizeError(CheckpointError):
    """Another number of ranks wrote the checkpoint, and no rule divides a part of it anew.

    Attributes:
        names: Names of the entries that belong to each rank.
    """

    def __init__(self, step: int, *, written_by: int, world_size: int, names: Sequence[str]) -> None:
        self.names = tuple(names)
        super().__init__(
            f"the checkpoint of step {step} was written by {_ranks(written_by)}, and this training has "
            f"{_ranks(world_size)}; each rank had values of its own in {', '.join(names)}. Start it with "
            f"{_ranks(written_by)}, or let {'the entry' if len(names) == 1 else 'each entry'} be an object with "
            "load_rank_states(states, *, rank, world_size), which makes its state from those of all ranks "
            "(`spotkeep help distributed-training`)"
        )


class OtherRankError(CheckpointError):
    """An error happened on another rank of a distributed training. The message names the rank and the error.

    Attributes:
        changed: True if that is a ChangedStateError.
    """

    def __init__(self, message: str, *, changed: bool = False) -> None:
        self.changed = changed
        super().__init__(message)


class RankLostError(CheckpointError):
    """Another rank of a distributed training is gone, or does not answer any more."""


class UsageError(SpotkeepError):
    """The library was called in a way that cannot work."""


class ExchangeError(SpotkeepError):
    """A checkpoint cannot be exported to another format, or imported from one.

    Attributes:
        problem: The reason.
        hint: The next step. Empty where there is none.
    """

    def __init__(self, problem: str, *, hint: str = "") -> None:
        self.problem, self.hint = problem, hint
        super().__init__(f"{problem}: {hint}" if hint else problem)


class JobError(SpotkeepError):
    """The job's command could not be started.

    Attributes:
        exit_code: Exit code of `spotkeep run` (see docs/training-scripts.md).
    """

    exit_code = 70


class ConfigurationError(JobError):
    """A file of the platform under `input/config` has a wrong content."""

    exit_code = 78


class JobSecretError(JobError):
    """The value of a secret cannot be had. The message names the secret, and never a value.

    Attributes:
        for_good: True where AWS refuses it, so that another machine would find the same.
    """

    exit_code = 77

    def __init__(self, message: str, *, for_good: bool) -> None:
        self.for_good = for_good
        super().__init__(message)


class SourceError(JobError):
    """The source archive or commit cannot be used."""

    exit_code = 66


class MissingToolError(JobError):
    """A program that the job needs is not in the image."""

    exit_code = 69


class HostNameError(JobError):
    """The name of a host of the job does not resolve, so that its ranks cannot be reached.

    Attributes:
        missing: Names that do not resolve.
    """

    exit_code = 68

    def __init__(self, missing: Sequence[str], *, hosts: int, seconds: float) -> None:
        self.missing = tuple(missing)
        super().__init__(
            f"of the {hosts} hosts of this job, the names of these do not resolve after {seconds / 60:.0f} minutes: "
            f"{', '.join(missing)}. Their containers did not start, or have ended: read their logs. In a VPC, let it "
            "resolve names (enableDnsSupport) and its security group let in what comes from itself. Then launch again."
        )


class HostMeetingError(JobError):
    """A host of the job does not come to the first one, so that the ranks of all hosts cannot begin.

    Attributes:
        missing: Names of the hosts that did not come.
    """

    exit_code = 68

    def __init__(self, missing: Sequence[str], *, place: str, seconds: float) -> None:
        self.missing = tuple(missing)
        super().__init__(
            f"these hosts of this job did not meet at {place} within {seconds / 60:.0f} minutes: {', '.join(missing)}. "
            "Their installation or setup takes longer, or the network keeps them from it. In a VPC, let the security "
            "group let in what comes from itself. Then launch again."
        )


class InstallError(JobError):
    """A package of the script cannot be installed, or the command that sets the machine up failed."""

    exit_code = 71


class CommandError(JobError):
    """The command does not exist (127) or may not be executed (126)."""

    def __init__(self, message: str, *, exit_code: int) -> None:
        self.exit_code = exit_code
        super().__init__(message)


def ends_the_process(problem: BaseException) -> bool:
    """Tell a wish to end the process from an error.

    Errors of some libraries are no `Exception`. One is `CheckpointException` of `torch.distributed.checkpoint`.
    """
    return isinstance(problem, (KeyboardInterrupt, SystemExit, GeneratorExit))


def _ranks(count: int) -> str:
    return "1 process" if count == 1 else f"{count} ranks"
