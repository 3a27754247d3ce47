"""Whose part of a checkpoint is whose, when several ranks write it together. Pure.

What the ranks have in common is written once, by rank 0: in data-parallel training that is the state by definition
(buffers such as a batch norm's differ between the ranks, and the next step takes rank 0's). What belongs to a rank is
written by that rank. All files stand in one row, first those of the common state, then those of each rank, so a reader
that knows how many files the others have knows the names of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spotkeep.disk.manifest import (
    DataFile,
    Manifest,
    RankShare,
    RankView,
    files_document,
    parse_files,
    state_pairs,
    with_files_from,
)
from spotkeep.errors import WorldSizeError
from spotkeep.state.arrays import host_bytes, is_floating
from spotkeep.state.encoding import EncodedState, Json, encode_state, stateful_kind
from spotkeep.state.random_states import RandomStates


@dataclass(frozen=True)
class ShareDocument:
    """The state documents of what one rank writes.

    Attributes:
        common: What all ranks have in common; None unless this is rank 0.
        common_files: How many files it has.
        own: What is the rank's own, its files numbered from 0.
        own_files: How many files that has.
        random_states: A digest of each random generator that is said to be common to all ranks.
    """

    common: Json
    common_files: int
    own: Json
    own_files: int
    random_states: Mapping[str, str]


@dataclass(frozen=True)
class WrittenShare:
    """What one rank has written.

    Attributes:
        files: Its files, those of the common state first.
        own_files: How many of them are its own.
        own: The state document of what is its own; the file numbers are those of the checkpoint.
    """

    files: tuple[DataFile, ...]
    own_files: int
    own: Json

    def as_message(self) -> Json:
        """Give it as JSON."""
        return {"files": files_document(self.files), "own_files": self.own_files, "own": self.own}

    @classmethod
    def from_message(cls, message: Json, *, first: int) -> WrittenShare:
        """Read what `as_message` gave.

        Args:
            message: The message.
            first: The number of its first file in the checkpoint.

        Raises:
            MalformedManifestError: If a file has the name or the number of another.
        """
        return cls(parse_files(message["files"], first=first), message["own_files"], message["own"])


def encode_share(state: Mapping[str, Any], per_rank: Mapping[str, Any], *, rank: int) -> EncodedState:
    """Encode what one rank writes. The document is a `ShareDocument`.

    Raises:
        StateError: If anything in it cannot be saved.
    """
    common = encode_state(dict(state)) if rank == 0 else EncodedState(document=None, blobs=())
    own = encode_state(dict(per_rank))
    first = file_count(common)
    document = ShareDocument(
        common=common.document,
        common_files=first,
        own=own.document,
        own_files=file_count(own),
        random_states=random_digests(state),
    )
    moved = (replace(blob, file_index=blob.file_index + first) for blob in own.blobs)
    return EncodedState(document=document, blobs=(*common.blobs, *moved))


def random_digests(state: Mapping[str, Any]) -> dict[str, str]:
    """Give a digest of each random generator in a state: those of all ranks are equal, or they are not common."""
    digests = {}
    for name, value in state.items():
        if isinstance(value, RandomStates) or stateful_kind(value) not in (None, "state_dict"):
            encoded = encode_state({name: value})
            digest = hashlib.sha256(json.dumps(encoded.document).encode("ascii"))
            for blob in encoded.blobs:
                digest.update(host_bytes(blob.raw))
            digests[name] = digest.hexdigest()
    return digests


def file_count(encoded: EncodedState) -> int:
    """Count the data files of an encoded state."""
    return 1 + max((blob.file_index for blob in encoded.blobs), default=-1)


def first_files(counts: Sequence[int]) -> list[int]:
    """Give the number of each rank's first file, where each rank has so many."""
    return [sum(counts[:rank]) for rank in range(len(counts))]


def own_state(document: ShareDocument, *, first: int) -> Json:
    """Give the state document of what is a rank's own, as it stands in the checkpoint.

    Args:
        document: What the rank writes.
        first: The number of its first file.
    """
    return with_files_from(document.own, first + document.common_files)


def merged(shares: Sequence[WrittenShare]) -> tuple[tuple[DataFile, ...], tuple[RankShare, ...]]:
    """Put together what all ranks have written: the files in order, and each rank's part."""
    files = tuple(file for share in shares for file in share.files)
    return files, tuple(RankShare(file_count=share.own_files, state=share.own) for share in shares)


def trained_names(state: Json) -> frozenset[str]:
    """Give the names at the top of a state document under which trained numbers stand: parts of a model, for example.

    An array of floating-point numbers counts as trained. Random states and places in the data are whole numbers.
    """
    return frozenset(str(name) for name, value in state_pairs(state) if _is_trained(value))


def _is_trained(state: Json) -> bool:
    if isinstance(state, list):
        return any(map(_is_trained, state))
    if not isinstance(state, dict):
        return False
    # The description of an array, or of one whose numbers NumPy has no name for (`integrations/jax.py`).
    described = state if "dtype" in state else {name: value for name, value in state_pairs(state) if name == "dtype"}
    return is_floating(described) or any(map(_is_trained, state.values()))


def view_for(
    manifest: Manifest,
    *,
    rank: int,
    world_size: int,
    per_rank: Collection[str],
    change_allowed: bool,
    trained: Collection[str] = (),
) -> RankView:
    """Choose what a rank takes of a checkpoint.

    Args:
        manifest: That of the checkpoint.
        rank: The rank of the training that goes on.
        world_size: Likewise.
        per_rank: The names that are each rank's own there.
        change_allowed: Whether another number of ranks may go on without what was each rank's own.
        trained: The names among `per_rank` under which trained numbers stand (`trained_names`).

    Raises:
        WorldSizeError: If another number of ranks wrote it, and there is something that only they could use. Trained
            numbers are refused even where the change is allowed: the training would begin with the initial ones.
    """
    if manifest.world_size == world_size:
        return manifest.view(rank)
    if manifest.ranks:
        own = dict.fromkeys(str(name) for share in manifest.ranks for name, _ in state_pairs(share.state))
        lost = frozenset().union(trained, *(trained_names(share.state) for share in manifest.ranks))
    else:
        own = dict.fromkeys(name for name, _ in state_pairs(manifest.state) if name in per_rank)
        lost = frozenset(trained) | (trained_names(manifest.state) & own.keys())
    if lost or (own and not change_allowed):
        raise WorldSizeError(
            manifest.step,
            written_by=manifest.world_size,
            world_size=world_size,
            names=tuple(dict.fromkeys((*own, *sorted(lost)))),
            trained=tuple(sorted(lost)),
        )
    if manifest.ranks:
        return manifest.common_view()
    # One process wrote it, which has everything in common with itself.
    return RankView({"dict": [pair for pair in state_pairs(manifest.state) if pair[0] not in own]})
