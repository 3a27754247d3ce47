"""The folder of a training's checkpoints. Each training has one, the same at each start of its script.

A folder belongs to one training. In one process, a second training would find the checkpoints of the first one there.
It would take them for its own, and have nothing left to do. So a process remembers the folders of its trainings.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .errors import UsageError
from .start import directory_at_start

DIRECTORY_VARIABLE = "SPOTKEEP_CHECKPOINT_DIR"
PLATFORM_DIRECTORY = Path("/opt/ml/checkpoints")
_DEFAULT_DIRECTORY = "checkpoints"
BEST_MODELS = "best-models"
"""The folder beside the checkpoints for copies of best models (`integrations/kept_models.py`)."""
RECORD_OF_A_COPY = "copy.json"
"""The file that says of such a copy that it is whole."""

_LONGEST_NAME = 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_TAKEN_NAMES = (
    (re.compile(r"step-[0-9]*(-[0-9.]*)?"), "it is the name of a checkpoint"),
    (
        re.compile(r"data-[0-9]+\.bin|manifest\.json|(interruptions|exits-on-notice|writers-[0-9.]*)\.json"),
        "it is the name of a file of the library's",
    ),
    (re.compile(BEST_MODELS), "it is the name of the folder for copies of best models"),
    (re.compile(r"tensorboard"), "it is the name of the folder for TensorBoard"),
    (re.compile(r"checkpoint([-_]?[0-9]+)?"), "it is the name that other libraries give to checkpoints of their own"),
    (
        re.compile(r".*\.(draft|sagemaker-uploading|sagemaker-uploaded)"),
        "it is the name of a file that is being copied",
    ),
)


@dataclass(frozen=True)
class TrainingFolder:
    """The folder of a training.

    Attributes:
        path: The folder of its checkpoints, absolute but for the one that the environment gives.
        label: The training's name in job events, which is the folder's path below the platform's kept folder, or None
            for that folder itself.
        kept: True if it lies in a folder that the platform keeps for this run alone.
        warning: The problem with the place. None for no problem.
    """

    path: Path
    label: str | None = None
    kept: bool = False
    warning: str | None = None

    def named(self, name: str | None) -> TrainingFolder:
        """Give the folder in it that the training of this name has."""
        if name is None:
            return self
        return replace(self, path=self.path / name, label=name if self.label is None else f"{self.label}/{name}")


def find_folder(
    directory: str | os.PathLike[str] | None, *, environment: Mapping[str, str] | None = None
) -> TrainingFolder:
    """Find the folder of a training.

    Where a platform keeps a folder, a relative path is one in there, because the working directory is lost with the
    machine. Elsewhere a relative path is one in the directory that the script was started from. A library may have
    changed the working directory since, to another one at each start (Hydra). A later start would then find no
    checkpoint.

    Args:
        directory: The argument of `Checkpointer`.
        environment: The environment, by default the process's.
    """
    kept = kept_folder(environment)
    if kept is None:
        given = Path(_DEFAULT_DIRECTORY if directory is None else directory)
        called = "the default directory" if directory is None else f"directory={str(directory)!r}"
        return TrainingFolder(given) if given.is_absolute() else _from_the_start(given, called=called)
    if directory is None:
        return TrainingFolder(kept, kept=True)
    path = kept / directory  # an absolute one stays as it is
    place = _place_below(path, kept)
    if place is not None:
        return TrainingFolder(path, label=place or None, kept=True)
    return TrainingFolder(
        path,
        warning=(
            f"directory={str(directory)!r} lies outside of {kept}, which is all that the platform keeps: with the "
            "machine its checkpoints are lost, and the next attempt begins at step 0. Leave directory= out, or pass a "
            "relative one (it is a folder in there), name= or remote=. If it is on a file system that outlives the "
            "machine, nothing is lost"
        ),
    )


def name_problems(name: Any) -> list[str]:
    """List the problems of a training's name, which becomes the name of a folder and a part of a key in S3."""
    if not isinstance(name, str):
        return [f"it is of the type {type(name).__name__}, no text"]
    problems = []
    if not _NAME.fullmatch(name):
        problems.append("it must be letters of a to z, digits, '.', '_' and '-', and begin with a letter or a digit")
    if len(name) > _LONGEST_NAME:
        problems.append(f"it has {len(name)} characters, more than {_LONGEST_NAME}")
    problems += [why for pattern, why in _TAKEN_NAMES if pattern.fullmatch(name)]
    return problems


def require_name(name: str | None) -> None:
    """Refuse a name that no training can have.

    Raises:
        UsageError: With all that is wrong with it.
    """
    problems = [] if name is None else name_problems(name)
    if problems:
        raise UsageError(
            f"name={name!r} cannot be the name of a training: {'; '.join(problems)}; pass one like 'fold-2'"
        )


def kept_folder(environment: Mapping[str, str] | None = None) -> Path | None:
    """Give the folder that the platform keeps for the run. None where there is none.

    Args:
        environment: The process's by default.
    """
    variable = (os.environ if environment is None else environment).get(DIRECTORY_VARIABLE)
    if variable:
        return Path(variable)
    return PLATFORM_DIRECTORY if PLATFORM_DIRECTORY.is_dir() else None


def _place_below(path: Path, kept: Path) -> str | None:
    """Give the way from the kept folder to a path, "" for the folder itself. None where the path is not below it."""
    try:
        place = path.resolve().relative_to(kept.resolve()).as_posix()
    except ValueError:
        return None
    return "" if place == "." else place


def _from_the_start(given: Path, *, called: str) -> TrainingFolder:
    began = directory_at_start()
    path = given if began is None else began / given
    with contextlib.suppress(OSError):
        if path.resolve() != given.resolve():
            return TrainingFolder(
                path,
                warning=(
                    f"the working directory is {Path.cwd()}, and the script was started from {began}: {called} is "
                    f"taken from there, so that each start of the script finds its checkpoints, in {path}. Pass an "
                    "absolute path to have them elsewhere"
                ),
            )
    return TrainingFolder(path)


@dataclass(frozen=True)
class _Stay:
    """A training in a place.

    Attributes:
        training: The training.
        step: Number of steps that it had done when it left.
        ended: True if it came to its end. None where it left and that is not known, False while it is there.
    """

    training: weakref.ref[Any]
    step: int = 0
    ended: bool | None = False


class TrainingsHere:
    """The trainings of this process, by their folders and their prefixes in S3."""

    def __init__(self) -> None:
        self._stays: dict[str, _Stay] = {}
        self._lock = threading.Lock()

    def enter(self, training: Any, places: Iterable[str]) -> list[str]:
        """Take note that a training begins, or goes on, in its places. Gives warnings for people.

        Args:
            training: The object that trains. The same one may come again.
            places: The places. Each is one text, however it was spelled.

        Raises:
            UsageError: If another training is in one of them, or has ended there.
        """
        chosen, warnings = list(places), []
        with self._lock:
            for place in chosen:
                stay = self._stays.get(place)
                other = None if stay is None else stay.training()
                if stay is None or other is training:
                    continue
                if stay.ended:
                    raise UsageError(_ended_there(place, stay.step))
                if stay.ended is None:
                    warnings.append(_left_there(place, stay.step))
                elif other is not None:
                    raise UsageError(_open_there(place))
            self._stays.update(dict.fromkeys(chosen, _Stay(weakref.ref(training))))
        return warnings

    def leave(self, training: Any, *, step: int, ended: bool | None) -> None:
        """Take note that a training has left.

        Args:
            training: The object that entered.
            step: Completed steps.
            ended: True if it has come to its end. None where that is not known. One that was broken off may be taken up
                again.
        """
        with self._lock:
            own = [place for place, stay in self._stays.items() if stay.training() is training and stay.ended is False]
            for place in own:
                stay = self._stays.pop(place)
                if ended is not False:
                    self._stays[place] = replace(stay, step=step, ended=ended)

    def has_been_in(self, place: str) -> bool:
        """Say whether a training of this process is, or was, in a place."""
        return place in self._stays

    def forget(self) -> None:
        """Forget all trainings, as a new process would."""
        with self._lock:
            self._stays.clear()


TRAININGS_HERE = TrainingsHere()


def _ways_out(place: str) -> str:
    """Give advice for several trainings in one script."""
    of_its_own = "remote=" if place.startswith("s3://") else "directory="
    return (
        f'give each training of the script a name of its own, the same one at each start (name="fold-2"), or a '
        f"{of_its_own} of its own"
    )


def _ended_there(place: str, step: int) -> str:
    return (
        f"{place} holds the checkpoints of a training that ended in this process, after step {step}: another training "
        f"would take them for its own, get that one's model, and train nothing. For another training, "
        f"{_ways_out(place)}. To go on with that one (in a notebook: the same cell once more), restart the process or "
        "the notebook's kernel"
    )


def _open_there(place: str) -> str:
    return (
        f"another training of this process is at work with the checkpoints in {place}, and each would take the other's "
        f"for its own. For one training with several models, pass all of them in one state; else {_ways_out(place)}"
    )


def _left_there(place: str, step: int) -> str:
    return (
        f"this process has left a training at step {step}, before its end, by a `break` or an error, and its "
        f"checkpoints in {place} are taken up now. If this is another training, it goes on with that one's model: "
        f"{_ways_out(place)}"
    )
