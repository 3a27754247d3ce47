"""The division of a checkpoint among the ranks that write it together. Pure.

Rank 0 writes the common state once. Each other rank writes its differences from rank 0, and then the state that the
script passed as each rank's own. All files have numbers in one row, first the common ones, then those of each rank. So
a reader that knows the other ranks' numbers of files knows its own names.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from spotkeep.disk.manifest import (
    DataFile,
    Manifest,
    RankShare,
    RankView,
    files_document,
    parse_files,
    parse_share,
    share_document,
    state_pairs,
    with_files_from,
)
from spotkeep.errors import WorldSizeError
from spotkeep.state.arrays import is_floating
from spotkeep.state.differences import Differences, apart, own_paths
from spotkeep.state.encoding import Blob, EncodedState, Json


@dataclass(frozen=True)
class ShareDocument:
    """The state documents of one rank's part.

    Attributes:
        common: The common state of all ranks, or None on other ranks than 0.
        common_files: The number of its files.
        differences: The differences of this rank from it, with files numbered from 0.
        own: The rank's own state, with files numbered after those.
        own_files: The number of files of both.
    """

    common: Json
    common_files: int
    differences: Differences
    own: Json
    own_files: int


@dataclass(frozen=True)
class WrittenShare:
    """The written part of one rank.

    Attributes:
        files: Its files, those of the common state first.
        share: The number of its own files, and their content. The file numbers are those of the checkpoint.
    """

    files: tuple[DataFile, ...]
    share: RankShare

    def as_message(self) -> Json:
        """Give it as JSON."""
        return {"files": files_document(self.files), "share": share_document(self.share)}

    @classmethod
    def from_message(cls, message: Json, *, first: int) -> WrittenShare:
        """Read a message of `as_message`.

        Args:
            message: The message.
            first: The number of its first file in the checkpoint.

        Raises:
            MalformedManifestError: A file has the name or the number of another.
        """
        return cls(parse_files(message["files"], first=first), parse_share(message["share"]))


def encode_share(
    common: EncodedState, own: EncodedState, differences: Differences = None, *, rank: int
) -> EncodedState:
    """Put together the part of one rank. The document is a `ShareDocument`.

    Args:
        common: The state that all ranks are said to share.
        own: The state that the script passed as each rank's own.
        differences: The differences of this rank from rank 0 in the common state.
        rank: Its number.
    """
    written = common if rank == 0 else EncodedState(document=None, blobs=())
    differing, differing_blobs = apart(differences, common.blobs)
    first = file_count(written.blobs)
    first_own = file_count(differing_blobs)
    document = ShareDocument(
        common=written.document,
        common_files=first,
        differences=differing,
        own=with_files_from(own.document, first_own),
        own_files=first_own + file_count(own.blobs),
    )
    moved = [replace(blob, file_index=blob.file_index + first) for blob in differing_blobs]
    moved += [replace(blob, file_index=blob.file_index + first + first_own) for blob in own.blobs]
    return EncodedState(document=document, blobs=(*written.blobs, *moved))


def file_count(blobs: Sequence[Blob]) -> int:
    """Count the data files of an encoded state's bytes."""
    return 1 + max((blob.file_index for blob in blobs), default=-1)


def first_files(counts: Sequence[int]) -> list[int]:
    """Give the number of each rank's first file, where each rank has so many."""
    return [sum(counts[:rank]) for rank in range(len(counts))]


def rank_share(document: ShareDocument, *, first: int) -> RankShare:
    """Give a rank's own part in the form of the checkpoint.

    Args:
        document: The part that the rank writes.
        first: The number of its first file.
    """
    first += document.common_files
    return RankShare(
        file_count=document.own_files,
        state=with_files_from(document.own, first),
        differences=with_files_from(document.differences, first),
    )


def merged(shares: Sequence[WrittenShare]) -> tuple[tuple[DataFile, ...], tuple[RankShare, ...]]:
    """Put together the parts of all ranks, with the files in order, and each rank's part."""
    return tuple(file for share in shares for file in share.files), tuple(share.share for share in shares)


def differing_paths(manifest: Manifest) -> list[str]:
    """Name the entries that the ranks of a checkpoint were said to share and did not."""
    return list(dict.fromkeys(path for share in manifest.ranks for path in own_paths(share.differences)))


def trained_names(state: Json) -> frozenset[str]:
    """Give the names at the top of a state document that hold trained numbers, for example parts of a model.

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
    """Choose the part of a checkpoint for a rank.

    Args:
        manifest: The manifest of the checkpoint.
        rank: The rank in the resumed training.
        world_size: The number of ranks in the resumed training.
        per_rank: The names of each rank's own state there.
        change_allowed: Another number of ranks may go on without each rank's own state.
        trained: The names among `per_rank` that hold trained numbers (`trained_names`).

    Raises:
        WorldSizeError: Another number of ranks wrote it, and it has a state that only they could use. Trained numbers
            are refused even where the change is allowed, because the training would begin with the initial ones.
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
