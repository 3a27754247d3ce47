"""The ranks that a job starts on each host, and the command lines that start ranks themselves. Pure.

Source: `get_args_parser` in torch/distributed/run.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

RANK_LAUNCHERS = (TORCHRUN, MPI) = ("torchrun", "mpi")
_PYTHON = re.compile(r"python[0-9.]*")
_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_FLAGS = ("--standalone", "--no-python", "--module", "--run-path", "--use-env")
"""Options of torchrun without a value."""
_OF_HOSTS = (
    *("--standalone", "--nnodes", "--node-rank", "--master-addr", "--master-port"),
    *("--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf"),
)
_OF_PROCESSES = ("--nproc-per-node",)
_SHORTEST_OPTION = 4


@dataclass(frozen=True)
class Ranks:
    """The program that starts the ranks of a job, and their number.

    Attributes:
        launcher: `torchrun` or `mpi`.
        processes: The number of ranks on each host. None for one a GPU, else one a Neuron core, else one.
    """

    launcher: str = TORCHRUN
    processes: int | None = None


def is_python(word: str) -> bool:
    """Tell a Python interpreter by the name of the program."""
    return _PYTHON.fullmatch(PurePosixPath(word).name) is not None


@dataclass(frozen=True)
class TorchrunLine:
    """A command line that starts torchrun.

    Attributes:
        program: The words of torchrun itself, `torchrun` or `python -m torch.distributed.run`.
        options: The words of its options.
        rest: The script, and the words behind it.
    """

    program: tuple[str, ...]
    options: tuple[str, ...]
    rest: tuple[str, ...]

    @property
    def host_options(self) -> tuple[str, ...]:
        """The options that place the hosts of the job, as they are written."""
        return self._among(_OF_HOSTS)

    @property
    def process_options(self) -> tuple[str, ...]:
        """The options with the number of ranks of a host, as they are written."""
        return self._among(_OF_PROCESSES)

    def _among(self, names: Sequence[str]) -> tuple[str, ...]:
        given = (word.partition("=")[0] for word in self.options if word.startswith("--"))
        return tuple(each for each in given if _is_one_of(each, names))


def torchrun_line(command: Sequence[str]) -> TorchrunLine | None:
    """Read the words of a command. None where they start no torchrun."""
    words = tuple(command)
    if words and PurePosixPath(words[0]).name == "torchrun":
        program = 1
    elif len(words) > 2 and is_python(words[0]) and words[1] == "-m" and words[2] in _MODULES:
        program = 3
    else:
        return None
    at = program
    while at < len(words) and words[at].startswith("-"):
        takes_a_value = "=" not in words[at] and words[at] != "-m" and not _is_one_of(words[at], _FLAGS)
        at += 1 + takes_a_value
    return TorchrunLine(program=words[:program], options=words[program:at], rest=words[at:])


def _is_one_of(option: str, names: Sequence[str]) -> bool:
    """Find an option among names. torchrun takes `_` for `-`, and the beginning of a name for the name."""
    spelled = option.replace("_", "-")
    return len(spelled) >= _SHORTEST_OPTION and any(name.startswith(spelled) for name in names)
