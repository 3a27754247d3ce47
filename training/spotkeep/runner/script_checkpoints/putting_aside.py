"""Finds checkpoints of the script's own that an interruption cut off, and puts them aside before the script starts.

A script that knows nothing of Spotkeep takes its newest checkpoint, and a cut-off one ends it at each attempt. So
cut-off ones leave the checkpoint directory, and the newest whole one is the newest of all. Nothing is deleted on this
machine, and files keep their names in a directory beside. SageMaker then removes the copy in S3, where the bucket keeps
its versions.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from spotkeep import events

from . import files
from .accelerate import ACCELERATE
from .distributed import DCP, DEEPSPEED, DEEPSPEED_TAG, name_latest
from .folder import Folder, Kind, Series, place_of, read_folder, series_of
from .keras import BACKUP, EPOCH, backup_problem, take_second_backup
from .orbax import ORBAX
from .shards import shards_in
from .tensorflow import SAVED_MODEL, name_newest, tables_in
from .trainer import TRAINER

_KINDS = (TRAINER, ACCELERATE, DCP, DEEPSPEED_TAG, ORBAX, SAVED_MODEL)
_PARTS = (DCP, DEEPSPEED, DEEPSPEED_TAG)
"""The kinds that may be inside a checkpoint of another kind."""
_NEAREST = 3
"""So many checkpoints on each side are compared."""
_ENOUGH = 2
_STATES = (".pt", ".pth", ".safetensors", ".ckpt", ".h5", ".keras")
_NUMBER = re.compile(r"[0-9](?!$)")
_OF_A_STEP = re.compile(r"(.*[^a-z])?(checkpoint|ckpt|epoch|step|iter|iteration)[-_=]?[0-9]+(\.ckpt)?|[0-9]+")
_BY_CHANCE = re.compile(r"[0-9a-f]{32}")
_OF_A_RANK = re.compile(r".*(rank|shard|part|rng|-of-|mp_|pp_).*")


class CutOff(NamedTuple):
    """A checkpoint that is not whole.

    Attributes:
        paths: Its files, or its folder.
        problem: The damage, in words.
    """

    paths: tuple[Path, ...]
    problem: str


def cut_off_in(folder: Folder, unreadable: Callable[[OSError], None]) -> Iterator[CutOff]:
    """Find the cut-off checkpoints in a folder and below it. It reads, and changes nothing.

    A folder that is one checkpoint goes as a whole, for the least of its parts. Elsewhere a file goes alone, or with
    those that are nothing without it.

    Args:
        folder: The folder.
        unreadable: Called for each checkpoint that cannot be read and so is not judged.
    """
    for numbered in _series_in(folder):
        yield from _cut_off_of(numbered, unreadable)
    try:
        yield from list(_broken_files(folder))
    except OSError as error:
        unreadable(error)


def _series_in(folder: Folder) -> list[list[Folder]]:
    found: dict[str, list[Folder]] = {}
    for inner in sorted(folder.folders.values(), key=lambda each: place_of(each.path.name)):
        found.setdefault(series_of(inner.path.name), []).append(inner)
    return list(found.values())


def _cut_off_of(numbered: list[Folder], unreadable: Callable[[OSError], None]) -> Iterator[CutOff]:
    whole: list[tuple[Kind | None, Folder]] = []
    for place, inner in enumerate(numbered):
        if not inner.complete:
            continue
        before, after = numbered[max(place - _NEAREST, 0) : place], numbered[place + 1 : place + 1 + _NEAREST]
        try:
            kind = _kind_of(inner, whole)
            series = Series([each for other, each in whole[-_NEAREST:] if other is kind], before, after)
            if kind is not None:
                problem = _broken_part(inner, kind) or kind.problem(inner, series)
            else:
                found = list(cut_off_in(inner, unreadable))
                if not _is_of_a_step(inner):
                    yield from found
                    continue
                problem = _first(inner, found) if found else _missing(inner, series)
        except OSError as error:
            unreadable(error)
            continue
        if problem is None:
            whole.append((kind, inner))
        else:
            yield CutOff((inner.path,), problem)


def _kind_of(folder: Folder, whole: list[tuple[Kind | None, Folder]]) -> Kind | None:
    kind = next((each for each in _KINDS if each.recognises(folder)), None)
    if kind is None and _is_of_a_step(folder) and DEEPSPEED.recognises(folder):
        return DEEPSPEED  # elsewhere it may hold several, and goes by its parts
    if kind is None and whole and _is_part_of(folder, whole[-1][1]):
        return whole[-1][0]  # of which nothing has arrived that says so
    return kind


def _is_part_of(folder: Folder, earlier: Folder) -> bool:
    """Say whether a folder of a step only holds files that the one before holds, too."""
    names = _names_below(folder)
    return _OF_A_STEP.fullmatch(folder.path.name.lower()) is not None and bool(names) and names <= _names_below(earlier)


def _names_below(folder: Folder) -> set[str]:
    paths = (folder.name_of(inner.path / name) for inner in folder.below() for name in inner.files | inner.links)
    return {series_of(_BY_CHANCE.sub("0", path)) for path in paths}


def _broken_part(checkpoint: Folder, its_kind: Kind) -> str | None:
    for inner in checkpoint.below():
        for name in sorted(inner.files):
            problem = files.problem_of(inner.path / name)
            if problem is not None:
                return f"{checkpoint.name_of(inner.path / name)}: {problem}"
        for kind in _PARTS:
            of_its_own = inner is checkpoint and kind is its_kind
            problem = kind.problem(inner, Series()) if not of_its_own and kind.recognises(inner) else None
            if problem is not None:
                return problem if inner is checkpoint else f"{checkpoint.name_of(inner.path)}: {problem}"
    return None


def _is_of_a_step(folder: Folder) -> bool:
    """Say whether a folder is one checkpoint by its name, and does not hold several itself."""
    names = [name for name in folder.files if files.is_judged(name) and not _OF_A_RANK.fullmatch(name)]
    name = folder.path.name.lower()
    return (
        not name.isdigit() and _OF_A_STEP.fullmatch(name) is not None and len(set(map(series_of, names))) == len(names)
    )


def _missing(folder: Folder, series: Series) -> str | None:
    """Name the files that at least two earlier checkpoints have and this one lacks. The script made their layout."""
    before, after = ([states for states in map(_states, each) if states] for each in (series.earlier, series.after))
    if len(before) < _ENOUGH:
        return None
    each_time = frozenset.intersection(*before)
    gone = sorted(name for name in each_time - folder.names if all(name in states for states in after))
    return f"{gone[0]} is missing, which those before have" if gone and each_time & folder.names else None


def _states(folder: Folder) -> frozenset[str]:
    return frozenset(name for name in folder.files if name.endswith(_STATES) and not _NUMBER.search(name))


def _first(folder: Folder, found: list[CutOff]) -> str:
    return f"{folder.name_of(found[0].paths[0])}: {found[0].problem}"


def _broken_files(folder: Folder) -> Iterator[CutOff]:
    broken = {
        name: problem for name in sorted(folder.files) if (problem := files.problem_of(folder.path / name)) is not None
    }
    broken.update(dict.fromkeys(_boosters_without_a_beginning(folder), "it ends in its first words"))
    for names, problem in _broken_groups(folder, broken):
        for name in names:
            broken.pop(name, None)
        yield CutOff(tuple(folder.path / name for name in names), problem)
    for name, problem in broken.items():
        yield CutOff((folder.path / name,), problem)


def _boosters_without_a_beginning(folder: Folder) -> Iterator[str]:
    """Find files that are too short to show their format, with numbers among models of XGBoost or LightGBM."""
    numbered = [name for name in sorted(folder.files) if files.may_be_booster(name) and place_of(name)]
    boosters = {series_of(name) for name in numbered if files.is_booster(folder.path / name)}
    for name in numbered:
        if series_of(name) in boosters and files.ends_before_it_says_what_it_is(folder.path / name):
            yield name


def _broken_groups(folder: Folder, broken: dict[str, str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Find files that go together, of which one is broken or missing."""
    problem = broken.get(BACKUP) or backup_problem(folder)
    if problem:
        yield tuple(name for name in (BACKUP, EPOCH) if name in folder.files), problem
    for shards in shards_in(folder):
        problem = shards.problem or next((f"{each}: {broken[each]}" for each in shards.present if each in broken), None)
        if problem:
            yield shards.present, problem
    yield from tables_in(folder)


def put_aside_cut_off(checkpoints: Path, aside: Path) -> None:
    """Put cut-off checkpoints aside, and report each by an event and a line of standard error.

    Unreadable or immovable ones are left to the script, and reported, too.

    Args:
        checkpoints: The directory that the platform keeps.
        aside: The directory for them, made with the first.
    """
    try:
        _put_aside(checkpoints, aside)
    except OSError as error:
        _leave(error)


def _leave(error: OSError) -> None:
    sys.stderr.write(f"spotkeep: checkpoints of the script's own are left as they are: {error}\n")


def _put_aside(checkpoints: Path, aside: Path) -> None:
    before = read_folder(checkpoints)
    if not before.complete:
        sys.stderr.write(
            f"spotkeep: in {checkpoints} are folders that cannot be read, or too many files: not all were checked\n"
        )
    for one in list(cut_off_in(before, _leave)):
        for path in one.paths:
            _move(path, aside / path.relative_to(checkpoints))
        what = str(one.paths[0].relative_to(checkpoints))
        events.emit("put-aside", what=what, problem=one.problem)
        sys.stderr.write(f"spotkeep: {what} is not whole and was put aside, to {aside}: {one.problem}\n")
    for folder in before.below():
        if folder.path.is_dir():
            take_second_backup(folder)
            name_newest(folder)
            name_latest(folder)
            _lead_links_to_newest(folder)


def _lead_links_to_newest(folder: Folder) -> None:
    """Point a link to a removed checkpoint to the newest of its series, or remove it.

    Lightning's `last.ckpt` is such a link (`save_last="link"`).
    """
    for name in folder.links:
        link = folder.path / name
        if link.exists() or not link.is_symlink():
            continue
        gone = Path(os.path.normpath(folder.path / link.readlink()))
        left = [path for path in gone.parent.iterdir() if series_of(path.name) == series_of(gone.name)]
        left = [path for path in left if place_of(path.name) < place_of(gone.name) and not path.is_symlink()]
        link.unlink()
        if left:
            newest = max(left, key=lambda path: place_of(path.name))
            link.symlink_to(os.path.relpath(newest, folder.path))


def _move(path: Path, target: Path) -> None:
    if not path.exists():
        return  # went with its folder
    if target.is_dir():
        shutil.rmtree(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(str(path), str(target))
