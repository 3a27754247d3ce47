"""Known behaviour of training libraries that explains the end of a rehearsal.

Each was seen with the real library (docs/findings.md).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from spotkeep_jobs.document.shell_text import programs_of

_WHOLE_MODEL = re.compile(r"(?!.*\.weights\.h5$).*\.(h5|hdf5)$")
_BACKUP = "training_metadata.json"
_ACCELERATE = re.compile(r"\baccelerate(\.commands\.accelerate_cli)?\s+launch\b.*?--num[_-]processes[\s=]+(\d+)")


def why_it_failed(read: Collection[str]) -> str | None:
    """Return possible reasons for a script's failure, by the files that it read. None where nothing is known.

    Args:
        read: The files of the checkpoint directory that it read after an interruption.
    """
    whole = [name for name in sorted(read) if _WHOLE_MODEL.match(name)]
    if not whole:
        return None
    return (
        f"the script read {whole[-1]}: if that is a whole model of Keras 3, it does not train on from .h5, and does "
        "not load where compile was given a loss or metric as a short name, such as mse. Write .keras: "
        "'model-{epoch:03d}.keras'"
    )


def why_the_model_differs(stored: Collection[str]) -> str | None:
    """Return possible reasons for a script's different model. None where nothing is known.

    Args:
        stored: The files of its checkpoint directory.
    """
    names = {Path(name).name for name in stored}
    if any(_WHOLE_MODEL.match(name) for name in names) and any(name.endswith(".keras") for name in names):
        return (
            "Keras 3 saves a model to .keras with another optimizer once it was saved to .h5 in the same process: "
            "leave the .h5 out"
        )
    if _BACKUP in names:
        return (
            "if the script has BackupAndRestore with a number as save_freq, Keras trains the batches of the "
            "interrupted epoch twice: leave save_freq out, and it saves after each epoch"
        )
    return None


def what_is_not_rehearsed(command: Sequence[str] | str, *, has_gpu: bool) -> str | None:
    """Name the processes of a job that are not rehearsed on this machine. None where all are.

    Args:
        command: The job's words, or a block of lines for bash.
        has_gpu: True if this machine has a GPU.
    """
    if isinstance(command, str):
        text = "\n".join(map(shlex.join, programs_of(command)))
    else:
        text = command[-1] if len(command) == 3 and command[1] == "-c" else shlex.join(command)
    found = _ACCELERATE.search(text)
    if found is None or int(found[2]) < 2 or has_gpu:
        return None
    return (
        f"one process was rehearsed, not {found[2]}: on a machine without a GPU accelerate launch starts no ranks that "
        f"know of each other, whatever --num_processes says. torchrun --nproc-per-node {found[2]} does where "
        "the variable ACCELERATE_USE_CPU is true"
    )


def this_machine_has_a_gpu() -> bool:
    """Return True if NVIDIA's driver shows a GPU here."""
    return any(Path("/dev").glob("nvidia[0-9]*"))
