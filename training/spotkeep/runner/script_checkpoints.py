"""Puts aside what an interruption cut off among checkpoints that a script writes itself, before the script starts.

A script that knows nothing of Spotkeep takes the newest of its files, and a file that ends too early ends it, at each
attempt anew. What is not whole leaves the checkpoint directory, so the newest whole one is the newest there is. Nothing
is deleted on this machine: it keeps its name, in a directory beside. SageMaker then removes the copy in S3, where the
bucket keeps its versions.

Some checkpoints are several files, and go together:

- Keras' `BackupAndRestore`: weights, and the epoch they are of. Its second pair (`double_checkpoint`) replaces them.
- TensorFlow's format: an index and its shards. The file `checkpoint` is made to name the newest whole one.
- A SavedModel, and Hugging Face's `checkpoint-<step>`: a folder.

What cannot be judged stays (`whole_files`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from spotkeep import events

from . import whole_files

_MOST_FILES = 100_000
_MOST_TEXT_BYTES = 2**20
_NOT_OF_THE_SCRIPT = re.compile(r"\.|step-[0-9]+$")
_SHARD = re.compile(r"(?P<name>.+)\.data-[0-9]{5}-of-(?P<count>[0-9]{5})")
_INDEX_SUFFIX = ".index"
_OF_THE_TRAINER = re.compile(r"checkpoint-[0-9]+")
_TRAINER_STATE = "trainer_state.json"
_TRAINERS_OWN = frozenset({"training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"})
"""What only the Trainer writes: Accelerate, which keeps no such state, calls its files otherwise."""
_BACKUP, _BACKUP_EPOCH = "latest.weights.h5", "training_metadata.json"
_SECOND = ".bkp"
_NAMES_THE_NEWEST = "checkpoint"
_NAMED = re.compile(r'^(model_checkpoint_path|all_model_checkpoint_paths): "(.*)"$')


class CutOff(NamedTuple):
    """A checkpoint that is not whole.

    Attributes:
        paths: Its files, or its folder.
        problem: What is wrong with it.
    """

    paths: tuple[Path, ...]
    problem: str


def put_aside_cut_off(checkpoints: Path, aside: Path) -> None:
    """Put aside what is not whole, and say so: an event and a line of standard error for each checkpoint.

    What cannot be read or moved is left to the script, and said, too.

    Args:
        checkpoints: The directory that the platform keeps.
        aside: Where to; made when something goes there.
    """
    for folder, names in _folders(checkpoints):
        _put_aside_in(folder, names, checkpoints=checkpoints, aside=aside)


def _put_aside_in(folder: Path, names: list[str], *, checkpoints: Path, aside: Path) -> None:
    try:
        for one in list(cut_off_in(folder, names)):
            for path in one.paths:
                _move(path, aside / path.relative_to(checkpoints))
            what = str(one.paths[0].relative_to(checkpoints))
            events.emit("put-aside", what=what, problem=one.problem)
            sys.stderr.write(f"spotkeep: {what} is not whole and was put aside, to {aside}: {one.problem}\n")
        _take_second_backup(folder)
        _name_newest(folder)
    except OSError as error:
        sys.stderr.write(f"spotkeep: checkpoints of the script's own are left as they are: {error}\n")


def cut_off_in(folder: Path, names: Iterable[str]) -> Iterator[CutOff]:
    """Find what is not whole in one folder.

    Args:
        folder: Where.
        names: The names of the regular files in it.

    Raises:
        OSError: If a file cannot be read.
    """
    here = frozenset(names)
    broken = {
        name: problem
        for name in sorted(here)
        if name.endswith(whole_files.NAMES)
        if (problem := whole_files.problem_of(folder / name)) is not None
    }
    if _OF_THE_TRAINER.fullmatch(folder.name):
        if broken:
            name, problem = min(broken.items())
            yield CutOff((folder,), f"{name}: {problem}")
            return
        if here & _TRAINERS_OWN and _TRAINER_STATE not in here:
            yield CutOff((folder,), f"its {_TRAINER_STATE} is missing")
            return
    backup = broken.pop(_BACKUP, None)
    if _BACKUP_EPOCH in here and backup is None:
        backup = _backup_problem(folder, here)
    if backup is not None:
        yield CutOff(tuple(folder / name for name in (_BACKUP, _BACKUP_EPOCH) if name in here), backup)
    for name, problem in broken.items():
        yield CutOff((folder / name,), problem)
    for problem, files in _tensorflow_problems(folder, here):
        saved_model = folder.name == "variables" and (folder.parent / "saved_model.pb").exists()
        yield CutOff((folder.parent,) if saved_model else tuple(folder / name for name in files), problem)


def _backup_problem(folder: Path, here: frozenset[str]) -> str | None:
    if _BACKUP not in here:
        return f"{_BACKUP} is missing beside it"  # Keras would go on in that epoch with new weights
    return None if _is_object(folder / _BACKUP_EPOCH) else f"{_BACKUP_EPOCH} beside it is not whole"


def _is_object(path: Path) -> bool:
    try:
        return isinstance(json.loads(_text(path)), dict)
    except (ValueError, RecursionError):
        return False


def _tensorflow_problems(folder: Path, here: frozenset[str]) -> Iterator[tuple[str, list[str]]]:
    shards: dict[str, list[str]] = {}
    for name in sorted(here):
        match = _SHARD.fullmatch(name)
        if match:
            shards.setdefault(match["name"], []).append(name)
        elif name.endswith(_INDEX_SUFFIX) and whole_files.is_table(folder / name):
            shards.setdefault(name[: -len(_INDEX_SUFFIX)], [])
    for name, found in shards.items():
        index = name + _INDEX_SUFFIX
        if index not in here:
            yield f"{index} is missing beside it", found
        elif not whole_files.is_table(folder / index):
            yield "the end of the index is missing", [index, *found]
        elif not found or len(found) < int(found[0][-5:]):
            yield f"it has {len(found)} of {int(found[0][-5:]) if found else 1} shards", [index, *found]


def _take_second_backup(folder: Path) -> None:
    """Put the second pair of `BackupAndRestore` in the place of the first, if it is whole and the first is gone.

    Keras takes it only when loading the first fails, and not when that is missing.
    """
    weights, epoch = folder / (_BACKUP + _SECOND), folder / (_BACKUP_EPOCH + _SECOND)
    if (folder / _BACKUP).exists() or not (weights.is_file() and epoch.is_file() and _is_object(epoch)):
        return
    if whole_files.problem_of(weights) is None:
        # The weights last: without them an interruption in between leaves nothing that Keras would take.
        epoch.replace(folder / _BACKUP_EPOCH)
        weights.replace(folder / _BACKUP)


def _name_newest(folder: Path) -> None:
    """Let TensorFlow's file `checkpoint` name what is there; it names what is not, when it reached S3 first.

    Without any of that it goes, too: nothing is lost by it.
    """
    path = folder / _NAMES_THE_NEWEST
    if not path.is_file() or path.is_symlink():
        return
    named = [match.groups() for line in _text(path).splitlines() if (match := _NAMED.match(line))]
    gone = [name for _, name in named if not any((folder / (name + end)).exists() for end in (_INDEX_SUFFIX, ""))]
    if not gone:
        return
    there = [name for key, name in named if key.startswith("all_") and name not in gone]
    if not there:
        path.unlink()
        return
    draft = path.with_name(f".{path.name}.spotkeep")
    lines = [f'model_checkpoint_path: "{there[-1]}"', *(f'all_model_checkpoint_paths: "{name}"' for name in there)]
    draft.write_text("\n".join(lines) + "\n", encoding="utf-8")
    draft.replace(path)


def _folders(checkpoints: Path) -> Iterator[tuple[Path, list[str]]]:
    """Give each folder and the regular files in it, without those of the library and hidden ones."""
    count = 0
    for place, folders, names in os.walk(checkpoints):
        folders[:] = sorted(name for name in folders if not _NOT_OF_THE_SCRIPT.match(name))
        count += len(names)
        if count > _MOST_FILES:
            sys.stderr.write(f"spotkeep: of the files in {checkpoints} only the first {_MOST_FILES:,} were checked\n")
            return
        folder = Path(place)
        yield folder, [name for name in names if (folder / name).is_file() and not (folder / name).is_symlink()]


def _move(path: Path, target: Path) -> None:
    if not path.exists():
        return  # went with its folder
    if target.is_dir():
        shutil.rmtree(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(str(path), str(target))


def _text(path: Path) -> str:
    with whole_files.open_unnoticed(path) as file:
        return file.read(_MOST_TEXT_BYTES).decode("utf-8", "replace")
