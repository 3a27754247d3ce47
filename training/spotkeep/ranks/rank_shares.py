"""The division of a checkpoint among the ranks that write it together. Pure.

All ranks have the same bytes in the common state, which are stream 0. Each rank writes a range of it. The ranges are
chosen so that all ranks write about as many bytes, those of their own streams included. A rank's own stream has its
boxes of divided arrays, its differences from rank 0, and the state that the script passed as each rank's own. That of
rank 0 also has the entries of the common state that are not equal on all ranks. So no range mixes values of two ranks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate

from spotkeep.disk.manifest import (
    CHUNK_BYTES,
    Manifest,
    RankShare,
    Stream,
    boxes_document,
    files_document,
    parse_boxes,
    parse_files,
    parse_share,
    share_document,
    state_pairs,
)
from spotkeep.state.differences import Differences, moved, own_paths, with_places
from spotkeep.state.encoding import BlobPlaces, EncodedState, Json, StreamPart
from spotkeep.state.resharding import SavedBox, written_boxes, written_bytes


@dataclass(frozen=True)
class ShareDocument:
    """The state documents of one rank's part.

    Attributes:
        common: The common state of all ranks, or None on other ranks than 0.
        differences: The differences of this rank from it.
        own: The rank's own state.
        boxes: For each divided array the boxes that this rank writes.
    """

    common: Json
    differences: Differences
    own: Json
    boxes: tuple[tuple[SavedBox, ...], ...]

    @property
    def share(self) -> RankShare:
        """The rank's own part in the form of a manifest."""
        return RankShare(self.own, self.differences)


@dataclass(frozen=True)
class EncodedShare:
    """The part of one rank, ready to be written.

    Attributes:
        document: Its documents.
        parts: Its range of the common stream, and its own stream.
    """

    document: ShareDocument
    parts: tuple[StreamPart, StreamPart]


@dataclass(frozen=True)
class WrittenShare:
    """The written part of one rank.

    Attributes:
        common: The files of its range of the common stream.
        own: The files of its own stream.
        share: Its own part in the form of a manifest.
        boxes: For each divided array the boxes that it has written.
    """

    common: Stream
    own: Stream
    share: RankShare
    boxes: tuple[tuple[SavedBox, ...], ...]

    def as_message(self) -> Json:
        """Give it as JSON."""
        return {
            "common": files_document(self.common),
            "own": files_document(self.own),
            "share": share_document(self.share),
            "boxes": boxes_document(self.boxes),
        }

    @classmethod
    def from_message(cls, message: Json, numbers: ShareNumbers) -> WrittenShare:
        """Read a message of `as_message`.

        Args:
            message: The message.
            numbers: The numbers of its files in the checkpoint.

        Raises:
            MalformedManifestError: A file has the name or the number of another.
        """
        return cls(
            common=parse_files(message["common"], first=numbers.common),
            own=parse_files(message["own"], first=numbers.own),
            share=parse_share(message["share"]),
            boxes=parse_boxes(message["boxes"]),
        )


@dataclass(frozen=True)
class ShareNumbers:
    """The numbers of a rank's data files in a checkpoint.

    Attributes:
        common: The number of its first file of the common stream.
        own: The number of the first file of its own stream.
    """

    common: int
    own: int


def share_numbers(counts: Sequence[tuple[int, int]]) -> list[ShareNumbers]:
    """Give the numbers of the files of all ranks, those of the common stream first, then each rank's own.

    Args:
        counts: For each rank the number of its files of the common stream, and of its own.
    """
    common, own = 0, sum(count for count, _ in counts)
    numbers = []
    for count, own_count in counts:
        numbers.append(ShareNumbers(common, own))
        common, own = common + count, own + own_count
    return numbers


def own_bytes(common: EncodedState, own: EncodedState, differing: Collection[int] = ()) -> int:
    """Count the bytes of a rank's own stream, but for the entries that rank 0 alone writes.

    Args:
        common: The state that all ranks are said to share.
        own: The state that the script passed as each rank's own.
        differing: The indices of blobs of the common state that differ from those of rank 0.
    """
    boxes = sum(map(written_bytes, common.divided))
    return boxes + sum(len(common.blobs[index].raw) for index in differing) + sum(len(blob.raw) for blob in own.blobs)


def encode_share(
    common: EncodedState,
    own: EncodedState,
    differences: Differences = None,
    *,
    rank: int,
    own_bytes: Sequence[int],
    alone: Collection[int] = (),
) -> EncodedShare:
    """Put together the part of one rank.

    Args:
        common: The state that all ranks are said to share.
        own: The state that the script passed as each rank's own.
        differences: The differences of this rank from rank 0 in the common state.
        rank: Its number.
        own_bytes: For each rank the bytes of its own stream (`own_bytes`).
        alone: The indices of blobs of the common state that rank 0 alone writes.
    """
    shared, places = BlobPlaces(), BlobPlaces(rank + 1)
    boxes = tuple(
        tuple(SavedBox(box, rank + 1, places.place(raw)["offset"]) for box, raw in written_boxes(array))
        for array in common.divided
    )
    moved_to = {}
    for index, blob in enumerate(common.blobs):
        if index not in alone:
            moved_to[blob.offset] = shared.place(blob.raw)
        elif rank == 0:
            moved_to[blob.offset] = places.place(blob.raw)
    document = None
    if rank == 0:
        document = with_places(common.document, moved_to) if alone else common.document
    share = ShareDocument(
        common=document,
        differences=moved(differences, common.blobs, places),
        own=moved(own.document, own.blobs, places),
        boxes=boxes,
    )
    stream = StreamPart.whole(shared.blobs)
    of_first_alone = sum(len(common.blobs[index].raw) for index in alone)
    start, end = even_ranges(stream.size, [own_bytes[0] + of_first_alone, *own_bytes[1:]])[rank]
    return EncodedShare(share, (stream.between(start, end), StreamPart.whole(places.blobs)))


def even_ranges(size: int, own_bytes: Sequence[int]) -> list[tuple[int, int]]:
    """Divide the common stream so that all ranks write about as many bytes. Each range has whole chunks.

    Args:
        size: The length of the common stream in bytes.
        own_bytes: For each rank the bytes that it writes besides.
    """
    ordered = sorted(own_bytes)
    level, left = 0, size
    for count, (own, more) in enumerate(zip(ordered, [*ordered[1:], None]), 1):
        # All ranks below the level are filled up to the next one's own bytes, or to the end.
        room = left if more is None else min((more - own) * count, left)
        level, left = own - (-room // count), left - room
        if not left:
            break
    ends = accumulate(max(level - own, 0) for own in own_bytes)
    cuts = [0, *(min(-(-end // CHUNK_BYTES) * CHUNK_BYTES, size) for end in ends)]
    cuts[-1] = size
    return list(zip(cuts, cuts[1:]))


def merged(
    shares: Sequence[WrittenShare],
) -> tuple[tuple[Stream, ...], tuple[RankShare, ...], tuple[tuple[SavedBox, ...], ...]]:
    """Put together the parts of all ranks, as streams, each rank's part, and the boxes of each divided array."""
    common = tuple(file for share in shares for file in share.common)
    boxes = zip(*(share.boxes for share in shares))
    return (
        (common, *(share.own for share in shares)),
        tuple(share.share for share in shares),
        tuple(tuple(box for of_rank in of_array for box in of_rank) for of_array in boxes),
    )


def differing_paths(manifest: Manifest) -> list[str]:
    """Name the entries that the ranks of a checkpoint were said to share and did not."""
    return list(dict.fromkeys(path for share in manifest.ranks for path in own_paths(share.differences)))


def view_for(manifest: Manifest, *, rank: int, world_size: int, per_rank: Collection[str]) -> Json:
    """Give the state document that a rank reads. For another number of ranks it is the common state alone.

    Args:
        manifest: The manifest of the checkpoint.
        rank: The rank in the resumed training.
        world_size: The number of ranks in the resumed training.
        per_rank: The names of each rank's own state there.
    """
    if manifest.world_size == world_size:
        return manifest.state_of(rank)
    if manifest.ranks:
        return manifest.state
    # One process wrote it, which has everything in common with itself.
    return {"dict": [pair for pair in state_pairs(manifest.state) if pair[0] not in per_rank]}


def states_of_ranks(manifest: Manifest, *, per_rank: Collection[str]) -> Json:
    """Give the own state of each rank in one document, by its number.

    Args:
        manifest: The manifest of the checkpoint.
        per_rank: The names of each rank's own state in the resumed training.
    """
    if manifest.ranks:
        return {"dict": [[str(rank), share.state] for rank, share in enumerate(manifest.ranks)]}
    return {"dict": [["0", {"dict": [pair for pair in state_pairs(manifest.state) if pair[0] in per_rank]}]]}


def own_names(manifest: Manifest, *, per_rank: Collection[str]) -> frozenset[str]:
    """Name the entries that `states_of_ranks` has of any rank."""
    states = state_pairs(states_of_ranks(manifest, per_rank=per_rank))
    return frozenset(name for _, state in states for name, _ in state_pairs(state) if isinstance(name, str))
