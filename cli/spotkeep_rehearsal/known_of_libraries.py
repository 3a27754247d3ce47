"""Known behaviour of training libraries that explains the end of a rehearsal.

Each was seen with the real library (docs/findings.md).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

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


def why_the_model_differs(stored: Collection[str], *, hosts: int = 1) -> str | None:
    """Return possible reasons for a script's different model. None where nothing is known.

    Args:
        stored: The files of its checkpoint directory.
        hosts: Number of hosts of the job.
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
    if hosts > 1:
        return (
            "with three or more ranks DistributedDataParallel adds gradients in another order after the first step of "
            "each process: let that step not count (To the last bit: spotkeep help distributed-training)"
        )
    return None


def what_is_not_rehearsed(command: Sequence[str], *, has_gpu: bool) -> str | None:
    """Name the processes of a job that are not rehearsed on this machine. None where all are.

    Args:
        command: The job's words. A block of lines is `bash -c` and the block without its comments.
        has_gpu: True if this machine has a GPU.
    """
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


_LINES_TO_CHANGE = (
    (r"lightning", "trainer.fit(model, ckpt_path='last')", "and give ModelCheckpoint save_last=True"),
    (
        r"transformers|training_args\.bin|trainer_state\.json",
        "trainer.train(resume_from_checkpoint=get_last_checkpoint(args.output_dir))",
        "and save_strategy='epoch'",
    ),
    (r"\.keras\b|keras", "keras.callbacks.BackupAndRestore(directory)", "among the callbacks of fit"),
    (r"xgboost|\.ubj\b|train-\w+:", "xgboost.train(..., xgb_model=newest)", "with num_boost_round less what is done"),
    (r"lightgbm|\.lgb\b", "lightgbm.train(..., init_model=newest)", "with num_boost_round less what is done"),
    (r"catboost|\.cbsnapshot\b", "model.fit(..., save_snapshot=True, snapshot_file=path)", "in the checkpoint folder"),
    (
        r"\.(pt|pth|ckpt)\b",
        "state = torch.load(path); model.load_state_dict(state['model']); "
        "optimizer.load_state_dict(state['optimizer']); start = state['epoch'] + 1",
        "before the loop, and range(start, epochs) in it",
    ),
)


def line_to_change(command: str, output: str, names: Collection[str], *, began_anew: bool, failed: bool) -> str:
    """Return the line to change in a script, by the framework that its command, output and files show.

    Args:
        command: The command.
        output: The beginning of its output.
        names: The files of its checkpoint folder.
        began_anew: True if it began anew after a loss.
        failed: True if it did not end well after a loss.
    """
    if failed:
        return (
            "write a checkpoint to another name and rename it when it is whole (os.replace), and load the newest one"
            " that can be read"
        )
    text = "\n".join([command, output, *sorted(names)])
    for pattern, line, more in _LINES_TO_CHANGE:
        if began_anew and re.search(pattern, text, re.IGNORECASE):
            return f"{line}, {more}"
    if began_anew:
        return "load the newest checkpoint before the training loop, and begin the loop behind it"
    return (
        "put into the checkpoint what the training depends on: the optimizer, the schedule, the random states of"
        " Python, NumPy and torch, and the place in the data (spotkeep.Checkpointer does)"
    )
