"""The manifest, which is the file that makes a directory of bytes a checkpoint. Pure, with text in and values out.

It is written last, so a directory without one is not a checkpoint. Its first bytes are a digest of the rest. So a
manifest that was cut short or altered is noticed before anything in it is believed. See docs/checkpoint-format.md.

A stream is a row of data files that is read as one. Stream 0 holds the common state of all ranks, and stream `r + 1`
the bytes of rank `r` alone. In format 3, which is still read, each file is a stream.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from spotkeep.errors import NewerFormatError
from spotkeep.state.differences import (
    Differences,
    are_differences,
    arrays_in,
    own_document,
    with_differences,
    without_divided,
)
from spotkeep.state.divided import Box
from spotkeep.state.encoding import Json, MalformedStateError
from spotkeep.state.resharding import SavedBox

from .chunk_checksums import CHECKSUM_NAME

MANIFEST_NAME = "manifest.json"
FORMAT_VERSION = 4
CHUNK_BYTES = 2**20
MAX_MANIFEST_BYTES = 256 * 2**20
LARGEST_NUMBER = 2**53 - 1
"""The largest step, epoch or size. Up to it all readers of JSON agree on every whole number (RFC 8259)."""
LATEST_SECONDS = 2**33
"""The latest time, in seconds since the epoch. It is in the year 2242."""
_FORMAT_OF_FILES = 3
_LARGEST_FLOAT = sys.float_info.max
_LONGEST_LIBRARY = 80
_LONGEST_MADE_BY = 400
_MOST_MADE_BY = 200

_HEAD = b'{"sha256":"'
_NECK = b'","manifest":'
_TAIL = b"}\n"
_FILE_NAME = re.compile(r"data-[0-9]{5}\.bin")
_CHUNK_CHECKSUM = re.compile(r"[0-9a-f]{8}")


class MalformedManifestError(Exception):
    """These bytes are not a manifest. The message says why."""


@dataclass(frozen=True)
class DataFile:
    """One file of raw bytes.

    Attributes:
        name: Its name in the checkpoint's directory, `data-00000.bin` and so on.
        size: Its length in bytes.
        chunks: The checksum of each MiB (`chunk_checksums`), eight hexadecimal digits each.
    """

    name: str
    size: int
    chunks: tuple[str, ...]


Stream = tuple[DataFile, ...]
"""Data files that are read as one. All but the last have whole chunks."""


@dataclass(frozen=True)
class RankShare:
    """The part of a checkpoint that belongs to one rank of a distributed training.

    Examples are its random numbers and its place in the data.

    Attributes:
        state: Its state document.
        differences: Its differences from rank 0 in the state that all ranks should have in common.
    """

    state: Json
    differences: Differences = None


@dataclass(frozen=True)
class Progress:
    """The progress of the training, besides its step and its state.

    Attributes:
        epochs_completed: Number of completed epochs, when the training counts them.
        metrics: The values that the script had logged, by name.
        measured_at: The step of each logged value, by name.
        made_by: Short texts that describe the training by its arguments, hyperparameters, script and data.
        metadata: The values that the script keeps beside the state, by name. They are JSON values.
    """

    epochs_completed: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    measured_at: Mapping[str, int] = field(default_factory=dict)
    made_by: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """The description of a checkpoint in its manifest.

    Attributes:
        step: Number of completed steps.
        epochs_completed: Number of completed epochs, when the training counts them.
        created: Time of its creation, in seconds since the epoch.
        library: The library that wrote it, for example `spotkeep 0.1.0`.
        streams: The data files of each stream. The first is that of the common state, then comes that of each rank.
        state: The state document of `state_encoding`, with the state that all ranks have in common.
        metrics: The values that the script had logged, by name.
        measured_at: The step of each logged value, by name.
        made_by: Short texts that describe the training by its arguments, hyperparameters, script and data.
        metadata: The values that the script keeps beside the state, by name. They are JSON values.
        ranks: The part of each rank. Empty when one process wrote all of it.
        divided: The boxes of each array that is divided among the ranks. The state refers to it by its number.
    """

    step: int
    epochs_completed: int | None
    created: float
    library: str
    streams: tuple[Stream, ...]
    state: Json
    metrics: Mapping[str, float] = field(default_factory=dict)
    measured_at: Mapping[str, int] = field(default_factory=dict)
    made_by: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    ranks: tuple[RankShare, ...] = ()
    divided: tuple[tuple[SavedBox, ...], ...] = ()

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All data files, in the order of their names."""
        return tuple(file for stream in self.streams for file in stream)

    def files_for(self, *documents: Json) -> list[DataFile]:
        """Give the data files of the streams that state documents refer to, in the order of their names."""
        chosen: set[int] = set()
        for _, node in (found for document in documents for found in arrays_in(document)):
            chosen.update(self._streams_of(node))
        return [file for number, stream in enumerate(self.streams) if number in chosen for file in stream]

    def _streams_of(self, node: Json) -> set[int]:
        number = node.get("divided")
        if number is None:
            stream = node.get("stream", 0)
            return {stream} if type(stream) is int else set()
        known = type(number) is int and 0 <= number < len(self.divided)
        return {saved.stream for saved in self.divided[number]} if known else set()

    @property
    def world_size(self) -> int:
        """The number of ranks that wrote it."""
        return len(self.ranks) or 1

    @property
    def own_ranks(self) -> int:
        """The number of ranks that it suits. Any other number loses state. 0 where no rank has a state of its own."""
        own = any(list(state_pairs(share.state)) or share.differences is not None for share in self.ranks)
        return len(self.ranks) if own else 0

    def state_of(self, rank: int) -> Json:
        """Give the state document of one of its ranks, with the common state and the rank's own."""
        if not self.ranks:
            return self.state
        common = with_differences(self.state, self.ranks[rank].differences)
        return {"dict": [*state_pairs(common), *state_pairs(self.ranks[rank].state)]}

    def whole_state(self) -> Any:
        """Give one state document of everything, with the own state of each rank under `rank 0`, `rank 1` and so on."""
        if not self.ranks:
            return self.state
        pairs = list(state_pairs(self.state))
        taken = {name for name, _ in pairs if isinstance(name, str)}
        for rank, share in enumerate(self.ranks):
            name = f"rank {rank}"
            while name in taken:
                name += "~"
            # Divided arrays are in the common part, in the documents of ranks too.
            differences = without_divided(own_document(share.differences))
            own = [*state_pairs(differences), *state_pairs(share.state)]
            pairs += [[name, {"dict": own}]] if own else []
        return {"dict": pairs}


@dataclass(frozen=True)
class FilePiece:
    """A piece of some bytes of a stream, which lies in one data file.

    Attributes:
        file: The data file.
        start: Its first byte in the file.
        size: Its length in bytes.
        before: The number of the bytes that lie in earlier files.
    """

    file: DataFile
    start: int
    size: int
    before: int


class StreamFiles:
    """Finds the bytes of one stream in its data files.

    Args:
        files: The data files of the stream.
    """

    def __init__(self, files: Stream) -> None:
        self._files = files
        self._ends = list(accumulate(file.size for file in files))

    @property
    def size(self) -> int:
        """The length of the stream in bytes."""
        return self._ends[-1] if self._ends else 0

    def pieces(self, offset: int, size: int) -> list[FilePiece]:
        """Give the pieces of some bytes, in order.

        Raises:
            MalformedStateError: If the stream ends before them.
        """
        if offset + size > self.size:
            name = self._files[-1].name if self._files else "a stream without files"
            raise MalformedStateError(f"it refers to bytes beyond the end of {name}")
        found, before = [], 0
        number = bisect.bisect_right(self._ends, offset)
        while before < size:
            file, end = self._files[number], self._ends[number]
            start = offset + before - (end - file.size)
            length = min(size - before, file.size - start)
            found.append(FilePiece(file, start, length, before))
            number, before = number + 1, before + length
        return found


def data_file_name(index: int) -> str:
    """Name the data file with this number."""
    return f"data-{index:05d}.bin"


def is_data_file_name(name: str) -> bool:
    """Say whether this is the name of a data file."""
    return _FILE_NAME.fullmatch(name) is not None


def files_document(files: Sequence[DataFile]) -> list[dict[str, Any]]:
    """Write data files as they stand in a manifest."""
    return [{"name": file.name, "size": file.size, "chunks": list(file.chunks)} for file in files]


def parse_files(document: Any, *, first: int = 0) -> tuple[DataFile, ...]:
    """Read a document of `files_document`.

    Args:
        document: Any JSON value.
        first: The number of the first file.

    Raises:
        MalformedManifestError: If it is no document of `files_document`.
    """
    _expect(isinstance(document, list), "files", document)
    return tuple(_data_file(first + index, file) for index, file in enumerate(document))


def boxes_document(divided: Sequence[Sequence[SavedBox]]) -> Json:
    """Write the boxes of divided arrays as they stand in a manifest."""
    return [
        [[list(one.box.offsets), list(one.box.shape), one.stream, one.offset] for one in boxes] for boxes in divided
    ]


def parse_boxes(document: Any) -> tuple[tuple[SavedBox, ...], ...]:
    """Read a document of `boxes_document`.

    Raises:
        MalformedManifestError: If it is no document of `boxes_document`.
    """
    _expect(isinstance(document, list) and all(isinstance(boxes, list) for boxes in document), "divided", document)
    return tuple(tuple(map(_saved_box, boxes)) for boxes in document)


def _saved_box(document: Any) -> SavedBox:
    _expect(isinstance(document, list) and len(document) == 4, "divided", document)
    offsets, shape, stream, offset = document
    sizes = isinstance(offsets, list) and isinstance(shape, list) and all(map(_is_count, (*offsets, *shape)))
    _expect(sizes and _is_count(stream) and _is_count(offset), "divided", document)
    return SavedBox(Box(tuple(offsets), tuple(shape)), stream, offset)


def share_document(share: RankShare) -> dict[str, Json]:
    """Write a rank's own part in the form of a manifest."""
    document = {"state": share.state}
    return document if share.differences is None else {**document, "differences": share.differences}


def parse_share(share: Any) -> RankShare:
    """Read a document of `share_document`.

    Raises:
        MalformedManifestError: If it is no document of `share_document`.
    """
    _expect(isinstance(share, dict), "ranks", share)
    state, found = share.get("state"), share.get("differences")
    # A rank's own part has names that the others' common part has not; `decode_state` looks at the rest.
    _expect(isinstance(state, dict) and isinstance(state.get("dict"), list), "ranks' state", state)
    _expect(found is None or are_differences(found), "ranks' differences", found)
    return RankShare(state=state, differences=found)


def state_pairs(state: Any) -> Iterator[Any]:
    """Give the names and values at the top of a state document. Nothing where there is no such thing."""
    pairs = state.get("dict") if isinstance(state, dict) else None
    return (pair for pair in (pairs if isinstance(pairs, list) else ()) if isinstance(pair, list) and len(pair) == 2)


def manifest_bytes(manifest: Manifest) -> bytes:
    """Write a manifest as the bytes of its file, in the newest format."""
    document = {
        "format": FORMAT_VERSION,
        "library": manifest.library,
        "step": manifest.step,
        "epochs_completed": manifest.epochs_completed,
        "created": manifest.created,
        "metrics": dict(manifest.metrics),
        "measured_at": dict(manifest.measured_at),
        "checksum": CHECKSUM_NAME,
        "chunk_bytes": CHUNK_BYTES,
        "files": files_document(manifest.files),
        "state": manifest.state,
    }
    if manifest.made_by:
        document["made_by"] = dict(manifest.made_by)
    if manifest.metadata:
        document["metadata"] = dict(manifest.metadata)
    if manifest.ranks:
        document["ranks"] = [
            {"files": len(stream), **share_document(share)}
            for stream, share in zip(manifest.streams[1:], manifest.ranks)
        ]
    if manifest.divided:
        document["divided"] = boxes_document(manifest.divided)
    body = json.dumps(document, separators=(",", ":"), allow_nan=False).encode("ascii")
    return _HEAD + hashlib.sha256(body).hexdigest().encode("ascii") + _NECK + body + _TAIL


def parse_manifest(raw: bytes) -> Manifest:
    """Read a manifest from the bytes of its file.

    Raises:
        MalformedManifestError: If they are no bytes of `manifest_bytes`.
        NewerFormatError: If they are whole, but in a format from the future.
    """
    start = len(_HEAD) + 64 + len(_NECK)
    digest, body = raw[len(_HEAD) : len(_HEAD) + 64], raw[start : -len(_TAIL)]
    framed = raw.startswith(_HEAD) and raw[start - len(_NECK) : start] == _NECK and raw.endswith(_TAIL)
    if not framed or hashlib.sha256(body).hexdigest().encode("ascii") != digest:
        raise MalformedManifestError("the manifest is cut short or altered: its digest does not match")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedManifestError(f"the manifest is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise MalformedManifestError("the manifest is not a JSON object")
    version = document.get("format")
    if type(version) is int and version > FORMAT_VERSION:
        raise NewerFormatError(
            f"a checkpoint has format {str(version)[:_LONGEST_LIBRARY]}, written by "
            f"{str(document.get('library'))[:_LONGEST_LIBRARY]}; this library knows formats up to {FORMAT_VERSION}. "
            "Resume with the newer library."
        )
    try:
        return _checked(document)
    except RecursionError as error:
        raise MalformedManifestError("the manifest is nested too deeply") from error


def _checked(document: dict[str, Any]) -> Manifest:
    version = document.get("format")
    _expect(type(version) is int and _FORMAT_OF_FILES <= version <= FORMAT_VERSION, "format", version)
    _expect(document.get("checksum") == CHECKSUM_NAME, "checksum", document.get("checksum"))
    _expect(document.get("chunk_bytes") == CHUNK_BYTES, "chunk_bytes", document.get("chunk_bytes"))
    step, epochs = document.get("step"), document.get("epochs_completed")
    created: Any = document.get("created")
    _expect(_is_count(step), "step", step)
    _expect(epochs is None or _is_count(epochs), "epochs_completed", epochs)
    _expect(type(created) in (int, float) and 0 <= created <= LATEST_SECONDS, "created", created)
    metrics = document.get("metrics")
    _expect(isinstance(metrics, dict) and all(_is_finite(value) for value in metrics.values()), "metrics", metrics)
    measured_at = document.get("measured_at", {})
    _expect(isinstance(measured_at, dict) and all(map(_is_count, measured_at.values())), "measured_at", measured_at)
    _expect(set(measured_at) <= set(metrics or {}), "measured_at", measured_at)
    made_by = document.get("made_by", {})
    _expect(isinstance(made_by, dict) and all(isinstance(text, str) for text in made_by.values()), "made_by", made_by)
    metadata = document.get("metadata", {})
    _expect(isinstance(metadata, dict), "metadata", metadata)
    files = parse_files(document.get("files"))
    shares: Any = document.get("ranks", [])
    _expect(isinstance(shares, list) and len(shares) != 1, "ranks", shares)
    state = document.get("state")
    if version == _FORMAT_OF_FILES:
        streams: tuple[Stream, ...] = tuple((file,) for file in files)
        state, shares = _in_streams(state), _in_streams(shares)
        _own_files(shares, files)
    else:
        streams = _streams(files, _own_files(shares, files))
    ranks = tuple(map(parse_share, shares))
    return Manifest(
        step=int(step or 0),
        epochs_completed=epochs,
        created=float(created or 0),
        library=str(document.get("library"))[:_LONGEST_LIBRARY],
        streams=streams,
        state=state,
        metrics=metrics or {},
        measured_at=measured_at,
        made_by={name[:_LONGEST_MADE_BY]: made_by[name][:_LONGEST_MADE_BY] for name in list(made_by)[:_MOST_MADE_BY]},
        metadata=metadata,
        ranks=ranks,
        divided=parse_boxes(document.get("divided", [])),
    )


def _own_files(shares: list[Any], files: Stream) -> list[int]:
    """Give the number of files of each rank's own."""
    counts: list[int] = []
    for share in shares:
        _expect(isinstance(share, dict), "ranks", share)
        count = share.get("files")
        _expect(_is_count(count), "ranks' files", count)
        counts.append(count)
    _expect(sum(counts) <= len(files), "ranks' files", counts)
    return counts


def _streams(files: Stream, own: Sequence[int]) -> tuple[Stream, ...]:
    """Divide the files into those of the common state and those of each rank."""
    end = len(files) - sum(own)
    streams = [files[:end]]
    for count in own:
        streams.append(files[end : end + count])
        end += count
    for stream in streams:
        for file in stream[:-1]:
            _expect(file.size and file.size % CHUNK_BYTES == 0, "file size", file.size)
    return tuple(streams)


def _in_streams(document: Any) -> Any:
    """Give a document of format 3 with the numbers of its files as those of streams."""
    if isinstance(document, list):
        return [_in_streams(item) for item in document]
    if not isinstance(document, dict):
        return document
    if "file" in document and "offset" in document:
        place = {name: value for name, value in document.items() if name != "file"}
        return place if document["file"] == 0 else {**place, "stream": document["file"]}
    return {kind: _in_streams(body) for kind, body in document.items()}


def _data_file(index: int, file: Any) -> DataFile:
    _expect(isinstance(file, dict), "files", file)
    name, size, chunks = file.get("name"), file.get("size"), file.get("chunks")
    _expect(isinstance(name, str) and _FILE_NAME.fullmatch(name), "file name", name)
    _expect(name == data_file_name(index), "file name", name)
    _expect(_is_count(size), "file size", size)
    _expect(isinstance(chunks, list) and len(chunks) == -(-size // CHUNK_BYTES), "file's chunks", name)
    for chunk in chunks:
        _expect(isinstance(chunk, str) and _CHUNK_CHECKSUM.fullmatch(chunk), "chunk's checksum", chunk)
    return DataFile(name=name, size=size, chunks=tuple(chunks))


def _is_count(found: Any) -> bool:
    return type(found) is int and 0 <= found <= LARGEST_NUMBER


def _is_finite(found: Any) -> bool:
    """Return whether something is a number that a float holds. Neither NaN nor an integer of a thousand digits is."""
    return type(found) in (int, float) and -_LARGEST_FLOAT <= found <= _LARGEST_FLOAT


def _expect(sensible: object, field: str, found: Any) -> None:
    if not sensible:
        raise MalformedManifestError(f"the manifest's {field} is {str(found)[:80]!r}, which makes no sense")
