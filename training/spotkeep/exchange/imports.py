"""Makes checkpoints of this library from those of other libraries. Nothing of them is executed."""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.chunk_checksums import chunk_checksum
from spotkeep.disk.manifest import (
    CHUNK_BYTES,
    LARGEST_NUMBER,
    MANIFEST_NAME,
    DataFile,
    Manifest,
    data_file_name,
    manifest_bytes,
)
from spotkeep.disk.staged_state import MAX_FILE_BYTES
from spotkeep.disk.storage import LocalStorage, disk_advice
from spotkeep.errors import ExchangeError, SaveError, StateError
from spotkeep.state.encoding import encode_state
from spotkeep.version import __version__

from .dcp import METADATA, read_dcp
from .elements import NUMPY_NAMES, Array, Stray
from .files import opened
from .safetensors_files import read_safetensors
from .states import key_text, named
from .torch_files import read_torch_file

_ALIGNMENT_BYTES, _BLOCK_BYTES = 64, 4096
_MAX_DEPTH = 100
_ZIP = b"PK\x03\x04"
_LEFT_OUT = object()
NAME_THE_FORMAT = "pass format='safetensors' or format='torch'"
"""The next step for a file whose name and bytes show no format."""


@dataclass(frozen=True)
class Imported:
    """The result of an import.

    Attributes:
        step: The step of the new checkpoint.
        format: The format of the source.
        size: Bytes of the checkpoint.
        tensors: Number of its tensors and arrays.
        values: Number of its plain values.
        left_out: The values of the source that only code could make, with the reasons.
    """

    step: int
    format: str
    size: int
    tensors: int
    values: int
    left_out: tuple[tuple[str, str], ...]


def import_checkpoint(
    source: str | Path,
    directory: str | Path,
    *,
    step: int = 0,
    format: str | None = None,  # noqa: A002 - the word of the command line
    under: str | None = None,
    prefix: str = "",
    arrays: str | None = None,
    overwrite: bool = False,
) -> Imported:
    """Make a checkpoint that `Checkpointer` restores from one of another library.

    Nothing in the source is executed. Memory holds one piece of an array, or an array in another order than C. A
    dictionary of tensors alone counts as the state of a module.

    Args:
        source: A folder of DCP or Orbax, a file of `torch.save`, or a file, an index or a folder of safetensors.
        directory: The folder of checkpoints of the script. It is made where there is none.
        step: The completed steps of the new checkpoint.
        format: `dcp`, `orbax`, `safetensors` or `torch`. None to look at the source.
        under: The name of the whole state, such as `model`. None keeps the names of the source. A safetensors file
            has no names above its arrays, so None means `model` there.
        prefix: Only names at the top that begin with it, without it.
        arrays: `torch` or `numpy`, the library of the arrays. None is `numpy` for Orbax, and else `torch`.
        overwrite: True to replace a checkpoint of the same step.

    Returns:
        The size, and the values that were left out.

    Raises:
        ExchangeError: The source is damaged, hostile or of no known format, or there is such a checkpoint.
        SaveError: The disk refuses.
        MissingLibraryError: Orbax is not installed.
    """
    source, target = Path(source), Path(directory) / f"step-{step}"
    if type(step) is not int or not 0 <= step <= LARGEST_NUMBER:
        raise ExchangeError(f"the step is {step!r}", hint="give a whole number from 0 on")
    if arrays not in (None, "torch", "numpy"):
        raise ExchangeError(f"arrays is {arrays!r}", hint="give torch or numpy")
    if CheckpointDirectory(target.parent).writer_notes.writers().newest is not None:
        raise ExchangeError(
            f"{target.parent} holds checkpoints of a run's writers, and no reader would take an imported one",
            hint="import into an empty folder",
        )
    if target.exists() and not overwrite:
        raise ExchangeError(f"{target} is there already", hint="give another step, or allow it to be replaced")
    kind = format or format_of(source)
    with _opened(source, kind) as state:
        if not isinstance(state, dict):
            state = {under or "state": state}
            under = None
        state = {key[len(prefix) :]: item for key, item in state.items() if str(key).startswith(prefix)}
        if kind == "safetensors" and under is None:
            under = "model"
        if under is not None:
            state = {under: state}
        if not state or not all(isinstance(name, str) for name in state):
            raise ExchangeError(f"{source} has no names at the top", hint="put its state under a name")
        writer = _Writer(target, numpy=(arrays or ("numpy" if kind == "orbax" else "torch")) == "numpy")
        size = writer.write(state, step=step)
        values = sum(not isinstance(value, (Array, Stray)) for _, value in named(state))
    return Imported(step, kind, size, writer.tensors, values, tuple(writer.left_out))


def format_of(source: Path) -> str:
    """Name the format of a checkpoint of another library.

    Raises:
        ExchangeError: It is of none that is known here.
    """
    if source.is_dir():
        if (source / METADATA).exists():
            return "dcp"
        if any((source / name).exists() for name in ("_METADATA", "_CHECKPOINT_METADATA", "manifest.ocdbt")):
            return "orbax"
        if any(source.glob("*.safetensors")):
            return "safetensors"
    elif source.name.endswith((".safetensors", ".safetensors.index.json")):
        return "safetensors"
    elif source.is_file():
        with source.open("rb") as file:
            if file.read(len(_ZIP)) == _ZIP:
                return "torch"
    raise ExchangeError(
        f"{source} is no checkpoint of DCP, Orbax or safetensors, and no file of torch.save",
        hint=f"if it is one with another name, {NAME_THE_FORMAT}" if source.is_file() else "",
    )


@contextmanager
def _opened(source: Path, kind: str) -> Iterator[Any]:
    if kind == "dcp":
        with read_dcp(source) as state:
            yield state
    elif kind == "safetensors":
        with read_safetensors(source) as (arrays, _):
            yield arrays
    elif kind == "torch":
        with opened([source]) as (descriptor,):
            yield read_torch_file(descriptor)[0]
    elif kind == "orbax":
        from .orbax import read_orbax

        yield read_orbax(source)
    else:
        raise ExchangeError(f"there is no format {kind!r}", hint="one of dcp, orbax, safetensors, torch")


class _Writer:
    """Writes one checkpoint, whole or not at all. Memory holds a chunk.

    Args:
        target: Its folder.
        numpy: True where arrays become those of NumPy, and no tensors of torch.
    """

    def __init__(self, target: Path, *, numpy: bool) -> None:
        self._target, self._numpy = target, numpy
        self._draft = target.with_name(f".{target.name}.draft")
        self._storage = LocalStorage()
        self._parts: list[tuple[int, Callable[[], Iterator[bytes]]]] = []
        self._end = 0
        self.tensors = 0
        self.left_out: list[tuple[str, str]] = []

    def write(self, state: Mapping[str, Any], *, step: int) -> int:
        document = self._node(dict(state), (), in_optimizer=False)
        if self.left_out and not self.tensors:
            name, why = self.left_out[0]
            raise ExchangeError(f"it holds no tensor that can be imported: {name} is {why}")
        try:
            self._storage.make_directory(self._target.parent)
            self._storage.remove_tree(self._draft)
            self._storage.make_directory(self._draft)
            size = self._write(document, step)
            # What is replaced stands until the new one is whole. No reader takes a folder of the draft's name.
            if self._storage.is_directory(self._target) and MANIFEST_NAME in self._storage.names(self._target):
                self._storage.remove_file(self._target / MANIFEST_NAME)
                self._storage.sync_directory(self._target)
            self._storage.remove_tree(self._target)
            self._storage.rename(self._draft, self._target)
            self._storage.sync_directory(self._target.parent)
        except BaseException as error:
            with contextlib.suppress(OSError):
                self._storage.remove_tree(self._draft)
            if isinstance(error, OSError):
                advice = disk_advice(error, when_full="name a directory with more room")
                raise SaveError(f"{self._target} could not be written: {error.strerror or error}; {advice}") from error
            raise
        return size

    def _write(self, document: Any, step: int) -> int:
        files: list[DataFile] = []
        chunks = self._chunks()
        while chunk := next(chunks, b""):
            files.append(self._data_file(len(files), chunk, chunks))
        self._storage.sync_directory(self._draft)
        manifest = Manifest(
            step=step,
            epochs_completed=None,
            created=round(time.time(), 3),
            library=f"spotkeep {__version__}",
            streams=(tuple(files),),
            state=document,
        )
        raw = manifest_bytes(manifest)
        draft = self._draft / f"{MANIFEST_NAME}.draft"
        self._storage.write(draft, raw)
        self._storage.rename(draft, self._draft / MANIFEST_NAME)
        self._storage.sync_directory(self._draft)
        return len(raw) + sum(file.size for file in files)

    def _data_file(self, number: int, chunk: bytes, following: Iterator[bytes]) -> DataFile:
        """Write one data file of whole chunks, which begins with `chunk`."""
        name, size, checksums = data_file_name(number), 0, []
        with self._storage.create(self._draft / name) as descriptor:
            while chunk:
                self._storage.write_at(descriptor, memoryview(chunk), size)
                checksums.append(chunk_checksum(chunk))
                size += len(chunk)
                chunk = next(following, b"") if size < MAX_FILE_BYTES else b""
            self._storage.sync(descriptor)
        return DataFile(name=name, size=size, chunks=tuple(checksums))

    def _chunks(self) -> Iterator[bytes]:
        """Give the bytes of the stream, a chunk at a time."""
        waiting, end = bytearray(), 0
        for offset, pieces in self._parts:
            for piece in itertools.chain([b"\0" * (offset - end)], pieces()):
                waiting += piece
                end += len(piece)
                while len(waiting) >= CHUNK_BYTES:
                    yield bytes(waiting[:CHUNK_BYTES])
                    del waiting[:CHUNK_BYTES]
        if waiting:
            yield bytes(waiting) + b"\0" * (-len(waiting) % _BLOCK_BYTES)

    def _place(self, size: int, pieces: Callable[[], Iterator[bytes]]) -> dict[str, int]:
        alignment = _BLOCK_BYTES if size >= _BLOCK_BYTES else _ALIGNMENT_BYTES
        offset = -(-self._end // alignment) * alignment
        self._end = offset + size
        if size:
            self._parts.append((offset, pieces))
        return {"offset": offset, "size": size}

    def _node(self, value: Any, names: tuple[str, ...], *, in_optimizer: bool) -> Any:
        if len(names) > _MAX_DEPTH:
            raise ExchangeError("its state is nested too deeply")
        if isinstance(value, Array):
            return self._array(value)
        if isinstance(value, Stray):
            self.left_out.append((".".join(names), value.why))
            return _LEFT_OUT
        if isinstance(value, dict):
            inside = in_optimizer or value.keys() >= {"state", "param_groups"}
            pairs = [
                [self._plain(key), self._node(item, (*names, key_text(key)), in_optimizer=inside)]
                for key, item in value.items()
            ]
            pairs = [pair for pair in pairs if pair[1] is not _LEFT_OUT]
            if not inside and names and _is_of_a_module(value):
                return {"state_dict": {"items": pairs}}
            return {"dict": pairs}
        if isinstance(value, (list, tuple)):
            items = [
                self._node(item, (*names, str(index)), in_optimizer=in_optimizer) for index, item in enumerate(value)
            ]
            items = [None if item is _LEFT_OUT else item for item in items]
            return items if isinstance(value, list) else {"tuple": items}
        if isinstance(value, (bytes, bytearray)):
            raw = bytes(value)
            return {type(value).__name__: self._place(len(raw), lambda: iter([raw]))}
        return self._plain(value)

    def _array(self, array: Array) -> Any:
        self.tensors += 1
        place = self._place(array.size, array.pieces)
        if not self._numpy:
            return {"tensor": {"dtype": array.dtype, "shape": list(array.shape), **place}}
        dtype = _NUMPY_DTYPES.get(array.dtype)
        if dtype is None:
            raise ExchangeError(f"NumPy has no {array.dtype}", hint="import it with arrays of torch")
        return {"ndarray": {"dtype": dtype, "shape": list(array.shape), "order": "C", **place}}

    def _plain(self, value: Any) -> Any:
        try:
            ((_, node),) = encode_state({"value": value}).document["dict"]
        except StateError as error:
            raise ExchangeError(f"a value in it cannot be saved: {error}") from error
        return node


def _is_of_a_module(value: Mapping[Any, Any]) -> bool:
    return bool(value) and all(isinstance(key, str) and isinstance(item, Array) for key, item in value.items())


_KINDS = re.compile(r"(bool|u?int|float|complex)([0-9]*)")


def _numpy_dtype(name: str) -> str:
    kind, bits = _KINDS.fullmatch(name).groups()  # type: ignore[union-attr]
    size = int(bits or 8) // 8
    code = {"bool": "b", "int": "i", "uint": "u", "float": "f", "complex": "c"}[kind]
    return f"{'|' if size == 1 else '<'}{code}{size}"


_NUMPY_DTYPES = {name: _numpy_dtype(name) for name in NUMPY_NAMES.values()}
