"""The words that start a job's ranks on one host. Pure.

torchrun starts them with one rendezvous for all hosts, at the address of the first one, and without restarts. Each
rank runs the command as the job file has it (`--no_python`), so its Python and its options stay. A command that is
torchrun's already gets the options that it lacks.

Options are spelled with `_`, which each version of torchrun reads. mpirun gets the options of AWS's driver for one
host, besides the tags before each line, which would hide the library's events.

Source: `torchrun_driver.py`, `mpi_utils.py` and `common/utils.py` in `sagemaker.train.container_drivers`, of the
SageMaker SDK 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from spotkeep_fleet.ranks import MPI, Ranks, is_python, torchrun_line

from .environment import Hardware

_COMPILES_VARIABLE, _COMPILES_FIRST = "RUN_NEURON_PARALLEL_COMPILE", "neuron_parallel_compile"
_WITH_EFA = frozenset(
    f"ml.{each}"
    for each in (
        *("g4dn.8xlarge", "g4dn.12xlarge", "g5.48xlarge", "p3dn.24xlarge", "p4d.24xlarge", "p4de.24xlarge"),
        *("p5.48xlarge", "p5e.48xlarge", "trn1.32xlarge"),
    )
)
_WITH_RDMA = frozenset(
    f"ml.{each}" for each in ("p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge", "p5e.48xlarge", "trn1.32xlarge")
)


@dataclass(frozen=True)
class MeetingPlace:
    """The place of this host among all hosts, and the address at which their ranks meet.

    Attributes:
        hosts: Number of hosts.
        host_rank: The place of this one among them, from 0.
        address: The name or the address of the first one.
        port: The port there. In a job with one host one that is free.
    """

    hosts: int
    host_rank: int
    address: str
    port: int


def process_count(ranks: Ranks, hardware: Hardware) -> int:
    """Give the number of ranks of this host. It is the asked one, else one a GPU, else one a Neuron core, else one."""
    return ranks.processes or hardware.gpus or hardware.neurons or 1


def ranks_command(
    ranks: Ranks,
    *,
    command: Sequence[str],
    place: MeetingPlace,
    hardware: Hardware,
    environment: Mapping[str, str],
) -> list[str]:
    """Give the words that start the ranks of this host. Arguments of the script may follow.

    Args:
        ranks: The program that starts them, and their number.
        command: The words of the training command.
        place: The place of this host.
        hardware: The hardware of this host.
        environment: The variables of the command.
    """
    processes = process_count(ranks, hardware)
    if ranks.launcher == MPI:
        slots = ["--host", f"localhost:{processes}", "-np", str(processes), "--allow-run-as-root"]
        options = ["-mca", "orte_abort_on_non_zero_status", "1", "-mca", "btl_vader_single_copy_mechanism", "none"]
        return ["mpirun", *slots, *options, *command]
    before = [_COMPILES_FIRST] if environment.get(_COMPILES_VARIABLE) == "1" else []
    count = [f"--nproc_per_node={processes}"]
    meeting = [
        f"--nnodes={place.hosts}",
        f"--node_rank={place.host_rank}",
        f"--master_addr={place.address}",
        f"--master_port={place.port}",
        "--max_restarts=0",
    ]
    line = torchrun_line(command)
    if line is None:
        program = [command[0], "-m", "torch.distributed.run"] if is_python(command[0]) else ["torchrun"]
        return [*before, *program, *meeting, *count, "--no_python", *command]
    given = [*(() if line.host_options else meeting), *(() if line.process_options else count)]
    return [*before, *line.program, *given, *chain(*line.options), *line.rest]


def network_variables(*, instance_type: str, hosts: int) -> dict[str, str]:
    """Give the variables that let NCCL use the Elastic Fabric Adapter, on types that have one.

    AWS's driver sets `NCCL_PROTO` on each type. Here the others keep NCCL's own choice.

    Args:
        instance_type: The instance type. Example: `ml.p4d.24xlarge`.
        hosts: Number of hosts.
    """
    if hosts == 1 or instance_type not in _WITH_EFA:
        return {}
    rdma = {"FI_EFA_USE_DEVICE_RDMA": "1", "RDMAV_FORK_SAFE": "1"} if instance_type in _WITH_RDMA else {}
    return {"FI_PROVIDER": "efa", "NCCL_PROTO": "simple", **rdma}
