"""Weights in several files and the index that names them, of Hugging Face and of Keras (`.weights.json`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from .folder import Folder
from .reading import json_object

_INDEX_SUFFIXES = (".index.json", ".weights.json")
_SHARD = re.compile(
    r"(?P<name>model|pytorch_model|diffusion_pytorch_model|adapter_model)-[0-9]{5}-of-(?P<count>[0-9]{5})"
    r"\.(?P<ending>safetensors|bin)"
)
"""Where the index is missing, only the names that Hugging Face's libraries give are known."""


class Shards(NamedTuple):
    """An index and the files that it names.

    Attributes:
        present: Those that are there, the index first.
        problem: Why they are not whole together, or None.
    """

    present: tuple[str, ...]
    problem: str | None


def shards_in(folder: Folder) -> Iterator[Shards]:
    """Find weights in several files in one folder.

    Raises:
        OSError: If an index cannot be read.
    """
    named: set[str] = set()
    for index in sorted(name for name in folder.files if name.endswith(_INDEX_SUFFIXES)):
        content = json_object(folder.path / index)
        if content is None:
            yield Shards((index,), f"{index} is not whole")
            continue
        if not isinstance(content.get("weight_map"), dict):
            continue
        files = sorted(set(_names(content["weight_map"])))
        named.update(files)
        missing = [name for name in files if name not in folder.names]
        present = (index, *(name for name in files if name in folder.files))
        yield Shards(present, f"{missing[0]}, which {index} names, is missing" if missing else None)
    alone: dict[str, list[str]] = {}
    for name in sorted(folder.files - named):
        match = _SHARD.fullmatch(name)
        if match:
            alone.setdefault(f"{match['name']}.{match['ending']}{_INDEX_SUFFIXES[0]}", []).append(name)
    for index, names in alone.items():
        if index not in folder.names:
            yield Shards(tuple(names), f"{index} is missing beside it")


def _names(weights: dict[str, Any]) -> Iterator[str]:
    for value in weights.values():
        yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str))
