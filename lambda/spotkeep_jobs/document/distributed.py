"""The ranks of a distributed training, which torchrun or mpirun starts on each host of the job.

Without the field each host runs the command as it stands. A command that starts its ranks itself, other than by
torchrun, is refused together with the field, for each of its ranks would start more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from spotkeep_fleet.ranks import MPI, TORCHRUN, Ranks, torchrun_line, words_to_module
from spotkeep_jobs.document.reading import DocumentModel, Rule, rule, shown, wrong
from spotkeep_jobs.document.shell_text import SHELLS
from spotkeep_jobs.errors import Problem

if TYPE_CHECKING:
    from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
    from spotkeep_jobs.document.request import JobRequest

NO_RANKS: Final = "none"
AUTO: Final = "auto"
MAX_PROCESSES: Final = 512
_STARTS_RANKS: Final = frozenset(
    {"accelerate", "deepspeed", "mpirun", "mpiexec", "orterun", "horovodrun", "srun", "colossalai", "composer"}
)
_BEFORE_A_PROGRAM: Final = frozenset(
    {"conda", "env", "nice", "numactl", "pipenv", "poetry", "stdbuf", "sudo", "time", "uv"}
)
_MODULES: Final = frozenset({"accelerate", "deepspeed", "horovod"})
_NAMES_TORCHRUN: Final = re.compile(r"\btorchrun\b|torch\.distributed\.(run|launch)")
_FINDS_HOSTS: Final = re.compile(
    r"SM_(HOSTS|HOST_COUNT|CURRENT_HOST|MASTER|RESOURCE_CONFIG|TRAINING_ENV)|--nnodes|--num_machines"
)
"""Words of a command that finds the other hosts itself."""


def read_distributed(value: object) -> object:
    """Turn the name of a launcher alone into one with `auto` processes."""
    if isinstance(value, str):
        return {"launcher": value}
    if not isinstance(value, Mapping | DocumentModel):
        raise wrong("is neither a word nor an object", "Write torchrun, mpi or none, or {launcher: torchrun}")
    return value


def read_processes(value: object) -> object:
    """Return the number of ranks of a host, or `auto`."""
    if value == AUTO or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_PROCESSES):
        return value
    raise wrong(f"is neither auto nor a whole number of 1 to {MAX_PROCESSES}", "Write auto, for one a GPU, or a number")


class DistributedRequest(DocumentModel):
    """The program that starts the ranks of a training on each host, and their number."""

    launcher: Literal["torchrun", "mpi", "none"] = Field(examples=["torchrun"])
    """torchrun starts the command as ranks that know those of all hosts. mpi does so with mpirun, on one host. none
    runs the command on each host as it stands."""
    processes: Annotated[
        int | Literal["auto"],
        BeforeValidator(read_processes),
        WithJsonSchema(
            {"anyOf": [{"const": AUTO}, {"type": "integer", "minimum": 1, "maximum": MAX_PROCESSES}]},
            mode="validation",
        ),
    ] = Field(default=AUTO, examples=[8])
    """The number of ranks on each host, 1 to 512. auto is the number of its GPUs, else of its Neuron cores, else
    one."""


def ranks_of(request: DistributedRequest | None) -> Ranks | None:
    """Return the ranks to start on each host. None where it runs the command as it stands."""
    if request is None or request.launcher == NO_RANKS:
        return None
    return Ranks(launcher=request.launcher, processes=None if request.processes == AUTO else int(request.processes))


# A number of instances that could not be read counts as one, and hides nothing of the rest.
@rule("distributed", "command", "backend", "nodes")
def _ranks_can_be_started(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    command, by_itself = request.command, request.several_nodes is None
    # Nodes without torchrun are refused elsewhere. The command is judged for the remedy, so that all comes at once.
    asked = request.distributed if by_itself else request.distributed or DistributedRequest(launcher="torchrun")
    if asked is None or command is None:
        return
    launcher = asked.launcher if by_itself else TORCHRUN
    if launcher == NO_RANKS:
        if asked.processes != AUTO:
            yield Problem(
                field="distributed.processes",
                found=str(asked.processes),
                problem="is given with launcher: none, which starts no ranks",
                fix="Write launcher: torchrun, or remove processes.",
            )
        return
    if launcher == MPI and request.instance_count > 1 and request.backend == "sagemaker":
        yield Problem(
            field="distributed",
            found=MPI,
            problem=f"is given with instance_count: {request.instance_count}: mpirun reaches other hosts by ssh, and "
            "few images have its server and keys",
            fix="Write distributed: torchrun, which needs none. Or let the command start mpirun itself, with "
            "distributed: none; SM_HOSTS has the names of the hosts.",
        )
    if isinstance(command, str):
        field, found, lines = ("distributed", launcher, "is given with a command of several lines")
        if not by_itself:
            field, found, lines = ("command", shown(command), "has several lines")
        yield Problem(
            field=field,
            found=found,
            problem=f"{lines}, and ranks are started of one program",
            fix="Write the command that trains on one line, and the lines before it as setup."
            + (" Or start torchrun in the block, with distributed: none." if by_itself else ""),
        )
        return
    line = torchrun_line(command)
    if _starts_ranks(command) or (line is not None and launcher != TORCHRUN):
        yield Problem(
            field="command",
            found=shown(" ".join(command)),
            problem=f"starts ranks itself, and distributed: {launcher} would start it once a rank",
            fix="Write the command of one rank, for example python train.py."
            + (" Or keep it, with distributed: none." if by_itself else ""),
        )
        return
    if line is None:
        return
    if line.host_options and request.hosts > 1:
        yield Problem(
            field="command",
            found=" ".join(line.host_options),
            problem=f"places the hosts itself, as distributed: torchrun does on {request.hosts} hosts",
            fix="Remove these options: the runner gives torchrun the hosts."
            + (" Or keep them, with distributed: none." if by_itself else ""),
        )
    if line.process_options and asked.processes != AUTO:
        yield Problem(
            field="distributed.processes",
            found=str(asked.processes),
            problem=f"is given with a command that has {line.process_options[0]}",
            fix="Remove one of the two.",
        )


def _starts_ranks(command: Sequence[str]) -> bool:
    """Return True if the words start ranks by another program than torchrun, or hide torchrun behind a program."""
    program = PurePosixPath(command[0]).name
    if program in SHELLS:
        return any(map(_NAMES_TORCHRUN.search, command))
    if program in _BEFORE_A_PROGRAM:
        behind = [command[at:] for at in range(1, len(command))]
        return any(_starts_ranks(each) or torchrun_line(each) is not None for each in behind)
    to_module = words_to_module(command)
    return program in _STARTS_RANKS or (to_module > 0 and command[to_module - 1].partition(".")[0] in _MODULES)


RULES: Final[tuple[Rule, ...]] = (_ranks_can_be_started,)


def distributed_warnings(request: JobRequest) -> Iterator[str]:
    """Yield probable mistakes of a job with several hosts."""
    command = request.command
    if request.backend != "sagemaker" or request.instance_count == 1 or request.distributed is not None:
        return
    if command is not None and not _FINDS_HOSTS.search(command if isinstance(command, str) else " ".join(command)):
        one_prefix = " Their checkpoints go to one prefix of S3, and replace each other." if request.checkpoints else ""
        yield (
            f"instance_count {request.instance_count} without distributed: each host runs the command by itself, and "
            f"their processes do not know of each other.{one_prefix} Write distributed: torchrun, which starts a rank "
            "for each GPU of each host. Or distributed: none, where the script finds the other hosts itself (SM_HOSTS)."
        )
