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
_WITH_A_VALUE = ("-W", "-X")
"""Options of Python that take the next word."""
_MODULES = ("torch.distributed.run", "torch.distributed.launch")
_FLAGS = ("--standalone", "--no-python", "--module", "--run-path", "--use-env", "--virtual-local-rank")
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


def words_to_module(command: Sequence[str]) -> int:
    """Count the words from a Python interpreter to the name of the module that it runs. 0 where it runs none."""
    words, at = tuple(command), 1
    if not words or not is_python(words[0]):
        return 0
    while words[at : at + 1] and words[at].startswith("-") and words[at] != "-m":
        at += 2 if words[at] in _WITH_A_VALUE else 1
    return at + 2 if words[at : at + 1] == ("-m",) and len(words) > at + 1 else 0


@dataclass(frozen=True)
class TorchrunLine:
    """A command line that starts torchrun.

    Attributes:
        program: The words of torchrun itself, `torchrun` or `python -m torch.distributed.run`.
        options: The words of each of its options, the name and the value where it has one apart.
        rest: The script, and the words behind it.
    """

    program: tuple[str, ...]
    options: tuple[tuple[str, ...], ...]
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
        given = (option[0].partition("=")[0] for option in self.options if option[0].startswith("--"))
        return tuple(each for each in given if _is_one_of(each, names))


def torchrun_line(command: Sequence[str]) -> TorchrunLine | None:
    """Read the words of a command. None where they start no torchrun."""
    words = tuple(command)
    program = 1 if words and PurePosixPath(words[0]).name == "torchrun" else words_to_module(words)
    if not program or (program > 1 and words[program - 1] not in _MODULES):
        return None
    at, options = program, []
    while at < len(words) and words[at].startswith("-"):
        takes_a_value = "=" not in words[at] and words[at] != "-m" and not _is_one_of(words[at], _FLAGS)
        options.append(words[at : at + 1 + takes_a_value])
        at += 1 + takes_a_value
    return TorchrunLine(program=words[:program], options=tuple(options), rest=words[at:])


def _is_one_of(option: str, names: Sequence[str]) -> bool:
    """Find an option among names. torchrun takes `_` for `-`, and the beginning of a name for the name."""
    spelled = option.replace("_", "-")
    return len(spelled) >= _SHORTEST_OPTION and any(name.startswith(spelled) for name in names)
