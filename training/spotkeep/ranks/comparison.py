"""Compares, at each save, what the ranks of a training have in common, and finds what they have not.

The first save of a process compares everything. To read all of a large state at each save would cost too much, so a
later one compares the small values, and one in sixteen of the large arrays, other ones each time. As soon as anything
differs, everything is compared at each save.

`DistributedDataParallel` gives rank 0's buffers to all at the next forward pass (`broadcast_buffers`). These may
differ: rank 0's are the ones that count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any, Callable

from spotkeep.disk.chunk_checksums import chunk_checksum
from spotkeep.state.arrays import DeviceBytes, address_of, device_digests
from spotkeep.state.differences import NOT_COMPARED, Differences, differences, digest_tree, root_digest
from spotkeep.state.encoding import Blob, EncodedState, Json

from .distributed import Ranks, together
from .joinables import Joinables
from .rank_shares import encode_share

_LARGE_BYTES = 8192
_TURNS = 16


class RankComparison:
    """Puts together what each rank writes: rank 0 what all have in common, the others what they have otherwise.

    Args:
        ranks: The others, for the thread that trains.
        joinables: The wrappers of this process.
    """

    def __init__(self, ranks: Ranks, joinables: Joinables) -> None:
        self._ranks = ranks
        self._joinables = joinables
        self._saves = 0
        self._differ = False

    def encode(self, encode_parts: Callable[[], tuple[EncodedState, EncodedState]]) -> EncodedState:
        """Give what this rank writes. Every rank must call it. The document is a `ShareDocument`.

        Args:
            encode_parts: Encodes what all ranks are said to have in common, and what is each rank's own.

        Raises:
            StateError: If anything in it cannot be saved.
            OtherRankError: If that is so on another rank.
            RankLostError: If a rank is gone.
        """
        encoded: list[EncodedState] = []  # what is common, what is own
        trees: list[Json] = []

        def compare(turn: int | None) -> Json:
            if not encoded:
                encoded.extend(encode_parts())
            trees.append(self._tree(*encoded, turn=turn))
            return root_digest(trees[-1])

        turn = None if self._differ or not self._saves else self._saves % _TURNS
        if turn is None and (self._saves & (self._saves - 1)) == 0:
            self._joinables.find()
        self._saves += 1
        found: Differences = None
        roots = together(self._ranks, partial(compare, turn))
        if len(set(roots)) > 1 and turn is not None:
            self._joinables.find()
            roots = together(self._ranks, partial(compare, None))
        if len(set(roots)) > 1:
            self._differ = True
            of_first = self._ranks.exchange(trees[-1] if self._ranks.rank == 0 else None)[0]
            found = differences(encoded[0].document, trees[-1], of_first)
        common, own = encoded
        return encode_share(common, own, found, rank=self._ranks.rank)

    def _tree(self, common: EncodedState, own: EncodedState, *, turn: int | None) -> Json:
        """Give the digests of a state.

        Args:
            common: The state.
            own: What is each rank's own by the script's word. It is compared wherever it stands.
            turn: Which large arrays to compare; None for all.
        """
        made_equal = set(map(address_of, self._joinables.buffers_made_equal(self._ranks.world_size)))
        if made_equal:
            made_equal -= {address_of(blob.raw) for blob in own.blobs}
        compared = [
            blob
            for index, blob in enumerate(common.blobs)
            if (turn is None or len(blob.raw) < _LARGE_BYTES or index % _TURNS == turn)
            and not (made_equal and address_of(blob.raw) in made_equal)
        ]
        digests = {(blob.file_index, blob.offset): digest for blob, digest in zip(compared, _digests(compared))}

        def digest_of(place: Json) -> str:
            return digests.get((place["file"], place["offset"]), NOT_COMPARED) if place["size"] else ""

        return digest_tree(common.document, digest_of)


def _digests(blobs: Sequence[Blob]) -> list[str]:
    """Give a digest of each: equal for equal bytes that are on devices of the same kind."""
    on_devices = iter(device_digests([blob.raw for blob in blobs if isinstance(blob.raw, DeviceBytes)]))
    return [next(on_devices) if isinstance(blob.raw, DeviceBytes) else _digest(blob.raw) for blob in blobs]


def _digest(raw: Any) -> str:
    if len(raw) < _LARGE_BYTES:
        return hashlib.blake2b(raw, digest_size=8).hexdigest()
    return chunk_checksum(raw)
