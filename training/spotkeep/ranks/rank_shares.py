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


def view_for(manifest: Manifest, *, rank: int, world_size: int, per_rank: Collection[str]) -> RankView:
    """Give the part that a rank reads. For another number of ranks it is the common state alone.

    Args:
        manifest: The manifest of the checkpoint.
        rank: The rank in the resumed training.
        world_size: The number of ranks in the resumed training.
        per_rank: The names of each rank's own state there.
    """
    if manifest.world_size == world_size:
        return manifest.view(rank)
    if manifest.ranks:
        return manifest.common_view()
    # One process wrote it, which has everything in common with itself.
    return RankView({"dict": [pair for pair in state_pairs(manifest.state) if pair[0] not in per_rank]})


def states_of_ranks(manifest: Manifest, *, per_rank: Collection[str]) -> RankView:
    """Give the own state of each rank in one document, by its number.

    Args:
        manifest: The manifest of the checkpoint.
        per_rank: The names of each rank's own state in the resumed training.
    """
    if manifest.ranks:
        return RankView({"dict": [[str(rank), share.state] for rank, share in enumerate(manifest.ranks)]})
    own = [pair for pair in state_pairs(manifest.state) if pair[0] in per_rank]
    return RankView({"dict": [["0", {"dict": own}]]})


def own_names(manifest: Manifest, *, per_rank: Collection[str]) -> frozenset[str]:
    """Name the entries that `states_of_ranks` has of any rank."""
    pairs = (
        pair
        for _, state in state_pairs(states_of_ranks(manifest, per_rank=per_rank).state)
        for pair in state_pairs(state)
    )
    return frozenset(name for name, _ in pairs if isinstance(name, str))
