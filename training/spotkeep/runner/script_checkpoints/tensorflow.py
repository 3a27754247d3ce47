"""TensorFlow's checkpoints (an index and its shards), SavedModels, and the file `checkpoint` that names the newest."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .containers import is_table
from .folder import Folder, Kind, Series
from .reading import text_of

_SHARD = re.compile(r"(?P<name>.+)\.data-[0-9]{5}-of-(?P<count>[0-9]{5})")
_INDEX_SUFFIX = ".index"
_NAMES_THE_NEWEST = "checkpoint"
_NAMED = re.compile(r'^(model_checkpoint_path|all_model_checkpoint_paths): "(.*)"$')
_GRAPH = frozenset({"saved_model.pb", "saved_model.pbtxt"})
_VARIABLES = "variables"


def tables_in(folder: Folder) -> Iterator[tuple[tuple[str, ...], str]]:
    """Find checkpoints in one folder that are not whole. Give the names of their files, and the problem.

    Raises:
        OSError: If a file cannot be read.
    """
    shards: dict[str, list[str]] = {}
    for name in sorted(folder.files):
        match = _SHARD.fullmatch(name)
        if match:
            shards.setdefault(match["name"], []).append(name)
        elif name.endswith(_INDEX_SUFFIX) and is_table(folder.path / name):
            shards.setdefault(name[: -len(_INDEX_SUFFIX)], [])
    for name, found in shards.items():
        index = name + _INDEX_SUFFIX
        if index not in folder.files:
            yield tuple(found), f"{index} is missing beside it"
        elif not is_table(folder.path / index):
            yield (index, *found), "the end of the index is missing"
        elif not found or len(found) < int(found[0][-5:]):
            yield (index, *found), f"it has {len(found)} of {int(found[0][-5:]) if found else 1} shards"


def name_newest(folder: Folder) -> None:
    """Let the file `checkpoint` name existing checkpoints. It may reach S3 before the one that it names.

    Without any checkpoint the file is removed, and nothing is lost.

    Raises:
        OSError: It cannot be read or written.
    """
    if _NAMES_THE_NEWEST not in folder.files:
        return
    path = folder.path / _NAMES_THE_NEWEST
    named = [match.groups() for line in text_of(path).splitlines() if (match := _NAMED.match(line))]
    gone = [name for _, name in named if not any((folder.path / (name + end)).exists() for end in (_INDEX_SUFFIX, ""))]
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


def _is_saved_model(folder: Folder) -> bool:
    if _GRAPH & folder.names:
        return True
    variables = folder.folders.get(_VARIABLES, Folder(folder.path))
    return any(name.partition(".")[0] == _VARIABLES and _SHARD.fullmatch(name) for name in variables.files)


def _saved_model_problem(folder: Folder, series: Series) -> str | None:
    if not _GRAPH & folder.names:
        return "saved_model.pb is missing"
    if _VARIABLES not in folder.names:
        return f"its {_VARIABLES} are missing" if any(_VARIABLES in each.names for each in series.earlier) else None
    if _VARIABLES in folder.folders:
        return next((problem for _, problem in tables_in(folder.folders[_VARIABLES])), None)
    return None


SAVED_MODEL = Kind(_is_saved_model, _saved_model_problem)
