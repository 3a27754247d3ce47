"""The copy of the state: laid out like the files, kept between saves, never half believed."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from spotkeep.snapshot import AbandonedSnapshotError, Snapshot
from spotkeep.state_encoding import Blob, encode_state


def taken(snapshot, blobs):
    images = snapshot.arrange(blobs)
    snapshot.copy(blobs, images)
    return images


def test_it_holds_every_blob_at_its_place_and_zeros_between():
    snapshot = Snapshot()
    taken(snapshot, [Blob(file_index=0, offset=0, raw=b"\xff" * 5000)])
    blobs = [Blob(0, 64, b"abc"), Blob(0, 128, b"de"), Blob(1, 0, b"f")]
    images = taken(snapshot, blobs)
    assert [image.index for image in images] == [0, 1]
    assert bytes(images[0].raw) == b"\0" * 64 + b"abc" + b"\0" * 61 + b"de" + b"\0" * (4096 - 130)
    assert bytes(images[1].raw) == b"f" + b"\0" * 4095


def test_files_are_whole_blocks():
    images = taken(Snapshot(), encode_state({"w": np.ones(5000, dtype="u1"), "v": np.ones(9, dtype="u1")}).blobs)
    assert [len(image.raw) for image in images] == [8192]


def test_its_memory_is_kept_and_grows_only_when_it_must():
    snapshot = Snapshot()
    for size in (9000, 5000, 9000):
        taken(snapshot, [Blob(0, 0, bytes(size))])
        assert snapshot.capacity_bytes == 12288
    taken(snapshot, [Blob(0, 0, bytes(20_000))])
    assert snapshot.capacity_bytes == 20_480


def test_what_is_there_can_be_written_before_the_rest_is():
    snapshot = Snapshot()
    blobs = [Blob(0, 0, bytes(4096)), Blob(1, 0, b"x")]
    images = snapshot.arrange(blobs)
    seen = []

    def write():
        for image in images:
            snapshot.wait(image.start + len(image.raw))
            seen.append(bytes(image.raw[:1]))

    writer = threading.Thread(target=write)
    writer.start()
    snapshot.copy(blobs, images)
    writer.join()
    assert seen == [b"\0", b"x"]


def test_a_copy_that_is_broken_off_is_told_to_who_waits():
    class Unreadable:
        def __len__(self):
            return 8

    snapshot = Snapshot()
    blobs = [Blob(0, 0, Unreadable())]  # type: ignore[arg-type]
    images = snapshot.arrange(blobs)
    with pytest.raises(TypeError):
        snapshot.copy(blobs, images)
    with pytest.raises(AbandonedSnapshotError):
        snapshot.wait(1)


def test_more_memory_than_there_is_is_an_error_of_its_own():
    class Endless:
        def __len__(self):
            return 2**60

    with pytest.raises(MemoryError, match="for a copy of the state"):
        Snapshot().arrange([Blob(0, 0, Endless())])  # type: ignore[arg-type]
