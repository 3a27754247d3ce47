"""Writes checkpoints in the formats of other libraries. Each byte is verified on its way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.inspection import InspectedCheckpoint
from spotkeep.errors import ExchangeError

from .dcp import write_dcp
from .elements import Array, Stray
from .files import new_file, new_folder
from .safetensors_files import METADATA, NAMES, index_document, shard_names, shards, write_safetensors
from .states import as_text, key_text, named, state_of
from .torch_files import write_torch_file

FORMATS = ("dcp", "orbax", "safetensors", "torch")
"""The formats of other libraries."""
_LEFT_OUT = object()


@dataclass(frozen=True)
class Exported:
    """The result of an export.

    Attributes:
        size: Bytes of the file, or of all files in the folder.
        tensors: Number of tensors in it.
        values: Number of plain values in it.
        left_out: The entries that the format cannot hold, with the reasons.
    """

    size: int
    tensors: int
    values: int
    left_out: tuple[tuple[str, str], ...]


def export_checkpoint(
    directory: str | Path,
    target: str | Path,
    *,
    format: str,  # noqa: A002 - the word of the command line
    step: int | None = None,
    overwrite: bool = False,
    shard_bytes: int | None = None,
) -> Exported:
    """Write a checkpoint for another library. Memory holds one piece of an array, or an array in another order than C.

    * `dcp` makes a folder for `torch.distributed.checkpoint.load`, on any number of ranks.
    * `safetensors` makes a file. With `shard_bytes` it makes a folder, with several files and an index where the arrays
      have more bytes than that.
    * `torch` makes a file for `torch.load(file, weights_only=True)`.
    * `orbax` makes a folder for Orbax's `StandardCheckpointer`. It needs the package `orbax-checkpoint`.

    Args:
        directory: The folder of checkpoints.
        target: The file or folder to write. It is there whole or not at all.
        format: `dcp`, `safetensors`, `torch` or `orbax`.
        step: The checkpoint. None for the newest.
        overwrite: True to replace `target`.
        shard_bytes: The most bytes of arrays in each file of a folder of safetensors. None for one file.

    Returns:
        The size, and the entries that the format cannot hold.

    Raises:
        ExchangeError: The target cannot be written, or the format cannot hold the state.
        DamagedCheckpointError: The checkpoint is damaged. Nothing was written.
        MissingLibraryError: The format needs a package that is not installed.
    """
    directory = Path(directory)
    if step is None:
        steps = CheckpointDirectory(directory).steps()
        if not steps:
            raise ExchangeError(f"there is no checkpoint in {directory}")
        step = steps[0]
    with InspectedCheckpoint(directory, step) as checkpoint:
        return write_export(checkpoint, Path(target), format=format, overwrite=overwrite, shard_bytes=shard_bytes)


def write_export(
    checkpoint: InspectedCheckpoint,
    target: Path,
    *,
    format: str,  # noqa: A002 - the word of the command line
    overwrite: bool,
    shard_bytes: int | None = None,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> Exported:
    """Write an open checkpoint for another library. See `export_checkpoint`.

    Args:
        checkpoint: The checkpoint.
        target: The file or folder to write.
        format: One of `FORMATS`.
        overwrite: True to replace the target.
        shard_bytes: The most bytes of arrays in each file of a folder of safetensors. None for one file.
        on_bytes: Called with each number of bytes read.
    """
    if format not in FORMATS:
        raise ExchangeError(f"there is no format {format!r}", hint=f"one of {', '.join(FORMATS)}")
    state = _counted(state_of(checkpoint), on_bytes)
    if format == "safetensors":
        return _safetensors(checkpoint, state, target, overwrite=overwrite, shard_bytes=shard_bytes)
    left_out: list[tuple[str, str]] = []
    state = _without_strays(state, (), left_out)
    if format == "torch":
        with new_file(target, overwrite=overwrite) as file:
            write_torch_file(file, state)
            size = file.seek(0, 2)
    else:
        with new_folder(target, overwrite=overwrite) as folder:
            if format == "dcp":
                write_dcp(folder, state)
            else:
                from .orbax import write_orbax

                write_orbax(folder, state, left_out)
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    names = {name for name, _ in left_out}
    held = [value for name, value in named(state) if name not in names]
    tensors = sum(isinstance(value, Array) for value in held)
    return Exported(size, tensors, len(held) - tensors, tuple(left_out))


def _safetensors(
    checkpoint: InspectedCheckpoint, state: Any, target: Path, *, overwrite: bool, shard_bytes: int | None
) -> Exported:
    arrays: dict[str, Array] = {}
    left_out: list[tuple[str, str]] = []
    metadata = {"format": "pt", "spotkeep.step": str(checkpoint.step), "spotkeep.library": checkpoint.manifest.library}
    values = 0
    for name, value in _apart(state):
        if isinstance(value, (bytes, bytearray)):
            left_out.append((name, "bytes, not an array"))
        elif isinstance(value, Stray):
            left_out.append((name, value.why))
        elif not isinstance(value, Array):
            metadata[name] = as_text(value)
            values += 1
        elif name == METADATA:
            left_out.append((name, "the format keeps this name for itself"))
        elif value.dtype not in NAMES:
            left_out.append((name, f"safetensors has no {value.dtype}"))
        else:
            arrays[name] = value
    if shard_bytes is None:
        with new_file(target, overwrite=overwrite) as file:
            size = write_safetensors(file, arrays, metadata=metadata)
        return Exported(size, len(arrays), values, tuple(left_out))
    parts = shards(arrays, most_bytes=shard_bytes)
    names = ["model.safetensors"] if len(parts) == 1 else shard_names("model.safetensors", len(parts))
    with new_folder(target, overwrite=overwrite) as folder:
        size = 0
        for name, part in zip(names, parts):
            with (folder / name).open("wb") as file:
                size += write_safetensors(file, part, metadata=metadata)
        if len(parts) > 1:
            index = json.dumps(index_document(names, parts), indent=2).encode()
            (folder / "model.safetensors.index.json").write_bytes(index)
            size += len(index)
    return Exported(size, len(arrays), values, tuple(left_out))


def _apart(state: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Give the values by name. Those of a name that is there already get a number behind it."""
    times: dict[str, int] = {}
    found = []
    for name, value in named(state):
        times[name] = times.get(name, 0) + 1
        found.append((name if times[name] == 1 else f"{name}~{times[name]}", value))
    return found


def _without_strays(value: Any, names: tuple[str, ...], left_out: list[tuple[str, str]]) -> Any:
    """Leave out the arrays that no other library has. In a list, None takes the place."""
    if isinstance(value, dict):
        items = ((key, _without_strays(item, (*names, key_text(key)), left_out)) for key, item in value.items())
        return type(value)({key: item for key, item in items if item is not _LEFT_OUT})
    if isinstance(value, (list, tuple)):
        found = [_without_strays(item, (*names, str(index)), left_out) for index, item in enumerate(value)]
        return type(value)(None if item is _LEFT_OUT else item for item in found)
    if isinstance(value, Stray):
        left_out.append((".".join(names), value.why))
        return _LEFT_OUT
    return value


def _counted(value: Any, on_bytes: Callable[[int], None]) -> Any:
    if isinstance(value, dict):
        return type(value)({key: _counted(item, on_bytes) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return type(value)(_counted(item, on_bytes) for item in value)
    if not isinstance(value, Array):
        return value

    def read() -> Any:
        for piece in value.read():
            on_bytes(len(piece))
            yield piece

    return Array(value.kind, value.dtype, value.shape, read)
