"""Checkpoints with a part from each rank, of torch's DCP (FSDP, Lightning's sharded `.ckpt`) and of DeepSpeed.

DCP's `.metadata` is written last. It is a pickle that names the files and the places of all tensors in them.
Source: `torch/distributed/checkpoint/filesystem.py`, and for DeepSpeed `save_checkpoint` in
`deepspeed/runtime/engine.py`.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from .containers import ZIP, safetensors_problem
from .folder import Folder, Kind, Series, place_of
from .pickles import PROTOCOLS, pickle_problem, plain_values
from .reading import open_unnoticed, text_of

_METADATA = ".metadata"
_DATA = re.compile(r"__[0-9]+_[0-9]+\.distcp")
_REST_OF_LIGHTNINGS = "meta.pt"
_MOST_METADATA_BYTES = 2**25

_LATEST = "latest"
_STATES = re.compile(
    r"(?:.*_)?zero_pp_rank_([0-9]+)_mp_rank_([0-9]+)_(model|optim)_states\.pt|mp_rank_([0-9]+)_model_states\.pt"
)
_RECOVERY = "zero_to_fp32.py"


def _is_dcp(folder: Folder) -> bool:
    return any(_DATA.fullmatch(name) for name in folder.files) or bool(_ends(_metadata(folder)))


def _metadata(folder: Folder) -> bytes:
    if _METADATA not in folder.files:
        return b""
    with open_unnoticed(folder.path / _METADATA) as file:
        return file.read(_MOST_METADATA_BYTES)


def _dcp_problem(folder: Folder, series: Series) -> str | None:
    if _METADATA not in folder.names:
        return f"its {_METADATA} is missing"
    if any(_REST_OF_LIGHTNINGS in each.names for each in series.earlier) and _REST_OF_LIGHTNINGS not in folder.names:
        return f"its {_REST_OF_LIGHTNINGS} is missing"
    content = _metadata(folder)
    if content.startswith(PROTOCOLS) and len(content) < _MOST_METADATA_BYTES:
        problem = pickle_problem(io.BytesIO(content), len(content))
    else:
        problem = None if content or _METADATA not in folder.files else "it is empty"
    if problem:
        return f"{_METADATA}: {problem}"
    for name, end in _ends(content).items():
        if name not in folder.names:
            return f"{name} is missing"
        problem = _data_problem(folder.path / name, end)
        if problem:
            return f"{name}: {problem}"
    return None


def _data_problem(path: Path, end: int) -> str | None:
    with open_unnoticed(path) as file:
        size = file.seek(0, 2)
        file.seek(0)
        head = file.read(9)
        if size < end or (size > end and head.startswith(ZIP)):
            return f"it has {size:,} bytes, and {end:,} by its {_METADATA}"
        # Written as safetensors, it has a header that is not counted.
        return safetensors_problem(file, head, size) if head[8:] == b"{" else None


def _ends(metadata: bytes) -> dict[str, int]:
    """Read the length of each file from the places and the lengths of its tensors."""
    ends: dict[str, int] = {}
    values = plain_values(metadata)
    for place in range(len(values) - 5):
        keys, (name, offset, length) = tuple(values[place : place + 6 : 2]), values[place + 1 : place + 6 : 2]
        if keys == ("relative_path", "offset", "length") and isinstance(offset, int) and isinstance(length, int):
            ends[str(name)] = max(ends.get(str(name), 0), offset + length)
    return {name: end for name, end in ends.items() if _DATA.fullmatch(name)}


def _is_deepspeed(folder: Folder) -> bool:
    return _RECOVERY in folder.names or (_LATEST in folder.files and any(map(_is_tag, folder.folders.values())))


def _is_tag(folder: Folder) -> bool:
    return any(_STATES.fullmatch(name) for name in folder.names)


def _tag_problem(folder: Folder, _: Series) -> str | None:
    ranks: dict[str, set[int]] = {"model": set(), "optim": set()}
    for match in filter(None, map(_STATES.fullmatch, folder.names)):
        ranks[match[3] or "model"].add(int(match[1] or 0))
    if not ranks["model"]:
        return "the states of its model are missing"
    missing = {rank for kind in ranks.values() for rank in set(range(max(kind, default=-1))) - kind}
    return f"the states of rank {min(missing)} are missing" if missing else None


def _deepspeed_problem(folder: Folder, _: Series) -> str | None:
    if _LATEST not in folder.names:
        return f"its {_LATEST} is missing"
    tag = text_of(folder.path / _LATEST).strip()
    named = folder.folders.get(tag)
    if named is None:
        return f"{tag}, which its {_LATEST} names, is missing" if tag not in folder.names else None
    return None


def name_latest(folder: Folder) -> None:
    """Let DeepSpeed's file `latest` name the newest folder. Without any folder the file is removed.

    Raises:
        OSError: It cannot be read or written.
    """
    path = folder.path / _LATEST
    tags = [name for name, inner in folder.folders.items() if _is_tag(inner)]
    if _LATEST not in folder.files or not tags or (folder.path / text_of(path).strip()).exists():
        return
    there = [name for name in tags if (folder.path / name).exists()]
    if not there:
        path.unlink()
        return
    draft = path.with_name(f".{path.name}.spotkeep")
    draft.write_text(max(there, key=place_of), encoding="utf-8")
    draft.replace(path)


DCP = Kind(_is_dcp, _dcp_problem)
DEEPSPEED_TAG = Kind(_is_tag, _tag_problem)
DEEPSPEED = Kind(_is_deepspeed, _deepspeed_problem)
