"""Compares, at each save, the common state of a training's ranks, and finds the entries that differ.

The first save of a process compares everything. All of a large state at each save would cost too much. So a later save
compares the small values, and one in 32 of the large arrays, other ones each time. After any difference all are
compared once more. An entry that differs then is each rank's own for as long as the process lasts.

`DistributedDataParallel` gives rank 0's buffers to all at the next forward pass (`broadcast_buffers`). These may
differ, and rank 0's count.
"""

from __future__ import annotations

import hashlib
import logging
import marshal
from collections.abc import Sequence
from typing import Any, Callable

from spotkeep.disk.chunk_checksums import chunk_checksum
from spotkeep.state.arrays import DeviceBytes, address_of, device_digests
from spotkeep.state.differences import Differences, differences, digest_tree, own_paths, own_places
from spotkeep.state.encoding import Blob, EncodedState, Json

from .distributed import Ranks, together
from .joinables import Joinables
from .rank_shares import encode_share

_logger = logging.getLogger("spotkeep")

_PATHS_SHOWN = 5
_LARGE_BYTES = 8192
_TURNS = 32
_OF_NO_VERSION = 2  # of marshal's: equal values have equal bytes
_NOT_COMPARED = "-"
_OWN = "own"
_OTHER_FORM = "another form than at the save before"


class RankComparison:
    """Puts together the part of each rank. Rank 0 writes the common state, and the others write their differences.

    Args:
        ranks: The others, for the thread that trains.
        joinables: The wrappers of this process.
    """

    def __init__(self, ranks: Ranks, joinables: Joinables) -> None:
        self._ranks = ranks
        self._joinables = joinables
        self._saves = 0
        self._differ = False  # the same on all ranks
        # Indices of blobs: their places change with the size of what is before them.
        self._own: set[int] = set()  # known to differ
        self._made_equal: set[int] = set()
        self._blob_count = -1

    def encode(self, encode_parts: Callable[[], tuple[EncodedState, EncodedState]]) -> EncodedState:
        """Give the part of this rank. Every rank must call it. The document is a `ShareDocument`.

        Args:
            encode_parts: Encodes the state that all ranks are said to share, and each rank's own.

        Raises:
            StateError: An entry cannot be saved.
            OtherRankError: An entry of another rank cannot be saved.
            RankLostError: A rank is gone.
        """
        encoded: list[EncodedState] = []  # what is common, what is own
        self._saves += 1

        def encode_and_compare() -> Json:
            encoded.extend(encode_parts())
            if len(encoded[0].blobs) != self._blob_count:
                return _OTHER_FORM
            return None if self._differ else self._root(encoded[0])

        roots = together(self._ranks, encode_and_compare)
        common, own = encoded
        found: Differences = None
        if self._differ or len(set(roots)) > 1 or _OTHER_FORM in roots:
            whole = not self._differ or _OTHER_FORM in roots
            found = self._differences(common, own, whole=whole)
        return encode_share(common, own, found, rank=self._ranks.rank)

    def _differences(self, common: EncodedState, own: EncodedState, *, whole: bool) -> Differences:
        """Find the differences of this rank from rank 0.

        Args:
            common: The state that all ranks are said to share.
            own: The state that the script passes as each rank's own.
            whole: Compare everything.
        """
        trees: list[Json] = []

        def compare() -> Json:
            if whole:
                self._look_again(common, own)
            trees.append(digest_tree(common.document, self._digest_of(common, whole=whole)))
            return None if self._ranks.rank else trees[0]

        of_first = together(self._ranks, compare)[0]
        found = differences(common.document, trees[0], of_first)
        places = own_places(found)
        self._own = {index for index, blob in enumerate(common.blobs) if (blob.file_index, blob.offset) in places}
        differ = self._ranks.exchange(found is not None)
        if not self._differ and found is not None and True not in differ[: self._ranks.rank]:
            paths = ", ".join(own_paths(found)[:_PATHS_SHOWN])
            _logger.info("each rank keeps its own values of what differs from rank to rank: %s", paths)
        self._differ = any(differ)
        return found

    def _look_again(self, common: EncodedState, own: EncodedState) -> None:
        """Find entries that torch makes equal before they count, and forget the known differences."""
        self._joinables.find()
        buffers = self._joinables.buffers_made_equal(self._ranks.world_size)
        addresses = set(map(address_of, buffers))
        if addresses:
            # What the script passes as each rank's own is compared wherever it stands.
            addresses -= {address_of(blob.raw) for blob in own.blobs}
        self._made_equal = {
            index for index, blob in enumerate(common.blobs) if addresses and address_of(blob.raw) in addresses
        }
        self._own = set()
        self._blob_count = len(common.blobs)

    def _compared(self, common: EncodedState, *, whole: bool) -> list[Blob]:
        """Choose the entries to compare, which are the small ones and the large ones of this turn, or all."""
        known, turn = self._made_equal | self._own, self._saves % _TURNS
        return [
            blob
            for index, blob in enumerate(common.blobs)
            if (whole or index % _TURNS == turn or _is_small(blob.raw)) and index not in known
        ]

    def _root(self, common: EncodedState) -> str:
        """Give a fast digest of all compared entries, which does not show the place of a difference."""
        small: list[Any] = []
        large: list[Blob] = []
        for blob in self._compared(common, whole=False):
            if _is_small(blob.raw):
                small.append(blob.raw)
            else:
                large.append(blob)
        document = hashlib.blake2b(marshal.dumps(common.document, _OF_NO_VERSION), digest_size=16)
        return " ".join([document.hexdigest(), chunk_checksum(b"".join(small)), *_digests(large)])

    def _digest_of(self, common: EncodedState, *, whole: bool) -> Callable[[Json], str]:
        compared = self._compared(common, whole=whole)
        digests = {(blob.file_index, blob.offset): digest for blob, digest in zip(compared, _digests(compared))}
        own = (common.blobs[index] for index in self._own)
        digests.update({(blob.file_index, blob.offset): _OWN for blob in own})

        def digest_of(place: Json) -> str:
            return digests.get((place["file"], place["offset"]), _NOT_COMPARED) if place["size"] else ""

        return digest_of


def _is_small(raw: Any) -> bool:
    """Tell if something is compared each time. On a GPU a comparison takes about as long for any size."""
    return type(raw) is not DeviceBytes and len(raw) < _LARGE_BYTES


def _digests(blobs: Sequence[Blob]) -> list[str]:
    """Give a digest of each. Equal bytes on devices of the same kind have equal ones."""
    on_devices = iter(device_digests([blob.raw for blob in blobs if isinstance(blob.raw, DeviceBytes)]))
    return [next(on_devices) if isinstance(blob.raw, DeviceBytes) else _digest(blob.raw) for blob in blobs]


def _digest(raw: Any) -> str:
    if len(raw) < _LARGE_BYTES:
        return hashlib.blake2b(raw, digest_size=8).hexdigest()
    return chunk_checksum(raw)
