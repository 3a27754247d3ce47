"""Boxes of a saved array and live memory: any division comes back from any other, and only what it needs is read."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.manifest import CHUNK_BYTES
from spotkeep.disk.storage import ReadableFile
from spotkeep.state import resharding
from spotkeep.state.decoding import decode_state
from spotkeep.state.divided import Box, DividedArray, Part
from spotkeep.state.encoding import MalformedStateError
from spotkeep.state.resharding import SavedBox, Scattered, boxes_between, pieces_of
from tests.spotkeep.reshard import grid, restore_on, save_on

SHAPES = st.lists(st.integers(1, 7), max_size=4)
DTYPES = st.sampled_from(["u1", "<f2", "<f4", "<c16", "S3", [("a", "<i4"), ("b", "u1")]])


@st.composite
def divisions(draw, shape):
    """Boxes that cover an array, one for each place of a grid."""
    return grid(shape, [draw(st.integers(1, 3)) for _ in shape])


@given(data=st.data(), shape=SHAPES, dtype=DTYPES)
@settings(max_examples=100)
def test_any_boxes_come_back_in_any_other_ones(data, shape, dtype):
    order = data.draw(st.none() | st.permutations(range(len(shape))))
    raw = np.random.default_rng(0).bytes(math.prod(shape) * np.dtype(dtype).itemsize)
    whole = np.frombuffer(raw, dtype).reshape(shape)
    stream, saved = bytearray(), []
    for box in data.draw(divisions(shape)):
        part = whole[box.slices_in(Box.whole(shape))]
        stream += bytes(-len(stream) % 64)
        saved.append(SavedBox(box, 1, len(stream)))
        stream += np.ascontiguousarray(part if order is None else part.transpose(order)).tobytes()
    live = [Part(box, empty(box.shape, dtype, data)) for box in data.draw(divisions(shape))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resharding, "_LONG_BYTES", data.draw(st.sampled_from([1, 16, 2**16])))
        pieces = [piece for one in saved for piece in pieces_of(one, live, order=order, item_bytes=whole.itemsize)]
    read = 0
    for offset, piece in pieces:
        read += len(piece)
        if not isinstance(piece, Scattered):
            piece[:] = stream[offset : offset + len(piece)]
            continue
        cuts = sorted({0, len(piece), *(cut // 64 * 64 for cut in data.draw(st.lists(st.integers(0, len(piece)))))})
        for start, end in itertools.pairwise(cuts):
            # As chunks are cut: at places that every size of an element's parts divides.
            start, end = (max(cut - offset % 64, 0) if cut < len(piece) else cut for cut in (start, end))
            chunk = memoryview(bytes(stream[offset + start : offset + end]))
            piece.put(start, chunk)
            assert not piece.differs(start, chunk)
        if len(piece):
            assert piece.differs(0, memoryview(bytes(byte ^ 1 for byte in stream[offset : offset + len(piece)])))
    for part in live:
        assert part.local.tobytes() == whole[part.box.slices_in(Box.whole(shape))].tobytes()
    assert read <= len(stream), "no byte is read for two pieces"


def empty(shape, dtype, data):
    """Memory in any order, with gaps perhaps."""
    if data.draw(st.booleans()) and shape:
        return np.zeros([*shape[:-1], 2 * shape[-1]], dtype)[..., ::2]
    return np.zeros(shape, dtype, order=data.draw(st.sampled_from(["C", "F"])))


@given(shape=st.lists(st.integers(1, 5), min_size=1, max_size=4), data=st.data())
def test_boxes_between_two_places_have_the_elements_there(shape, data):
    size = math.prod(shape)
    start = data.draw(st.integers(0, size))
    end = data.draw(st.integers(start, size))
    numbers = np.arange(size).reshape(shape)
    boxes = list(boxes_between(shape, start, end))
    found = [number for box in boxes for number in numbers[box.slices_in(Box.whole(shape))].ravel()]
    assert found == list(range(start, end))
    assert len(boxes) <= 2 * len(shape)


class Reads:
    """Counts the bytes that are read of data files."""

    def __init__(self, monkeypatch):
        self.count = 0
        read_into = ReadableFile.read_into

        def counted(file, target, offset, *, cached=True):
            got = read_into(file, target, offset, cached=cached)
            self.count += got
            return got

        monkeypatch.setattr(ReadableFile, "read_into", counted)


@pytest.mark.parametrize(("before", "after"), [(4, 1), (4, 2), (2, 4), (3, 5), (2, 3), (8, 7)])
def test_shards_along_the_first_dimension_are_read_once_where_they_are_needed(
    world, tmp_path, monkeypatch, before, after
):
    whole = np.random.default_rng(0).integers(0, 256, (840, 32 * 1024), dtype="u1")  # 26 MiB
    save_on(world, tmp_path, [{"w": divided(whole, before, rank)} for rank in range(before)])
    for rank in range(after):
        reads = Reads(monkeypatch)
        array = divided(np.zeros_like(whole), after, rank)
        restore_on(tmp_path, {"w": array}, rank=rank, world_size=after)
        (part,) = array.parts
        assert part.local.tobytes() == whole[part.box.slices_in(Box.whole(whole.shape))].tobytes()
        manifest = CheckpointDirectory(tmp_path).read_manifest(1)
        met = sum(
            1
            for saved in manifest.divided[0]
            if saved.box.offsets[0] < part.box.ends[0] and part.box.offsets[0] < saved.box.ends[0]
        )
        assert reads.count <= 1.05 * part.local.nbytes + 2 * CHUNK_BYTES * met
        monkeypatch.undo()


def divided(whole, ranks, rank):
    size = -(-len(whole) // ranks)
    part = whole[rank * size : (rank + 1) * size]
    box = Box((rank * size, 0), part.shape)
    return DividedArray(kind="ndarray", dtype=whole.dtype.str, shape=whole.shape, parts=(Part(box, part.copy()),))


def test_a_rank_may_hold_none_of_an_array(world, tmp_path):
    whole = np.arange(12.0)

    def of(boxes):
        parts = tuple(Part(box, whole[box.slices_in(Box.whole((12,)))].copy()) for box in boxes)
        return DividedArray(kind="ndarray", dtype="<f8", shape=(12,), parts=parts)

    save_on(world, tmp_path, [{"w": of([Box((0,), (12,))])}, {"w": of([])}])
    for rank in range(2):
        live = of([Box((3,), (4,))]) if rank else of([])
        found = restore_on(tmp_path, {"w": live}, rank=rank, world_size=2)
        assert found["w"] is live
    assert CheckpointDirectory(tmp_path).read(1).state["w"].tolist() == whole.tolist()


def test_plain_arrays_become_divided_ones_and_divided_ones_plain(world, tmp_path):
    whole = np.asfortranarray(np.arange(60.0).reshape(5, 12))
    columns = grid((5, 12), [1, 2])
    order = (1, 0)
    states = [
        {
            "w": DividedArray(
                kind="ndarray",
                dtype="<f8",
                shape=(5, 12),
                order=order,
                parts=(Part(box, whole[box.slices_in(Box.whole((5, 12)))].copy("F")),),
            )
        }
        for box in columns
    ]
    save_on(world, tmp_path / "divided", states)
    live = {"w": np.zeros((5, 12), order="F")}
    restore_on(tmp_path / "divided", live, rank=0, world_size=1)
    assert live["w"].tolist() == whole.tolist()
    save_on(world, tmp_path / "plain", [{"w": whole}] * 2)
    for rank, state in enumerate(states):
        local = state["w"].parts[0].local
        local[:] = -1
        restore_on(tmp_path / "plain", state, rank=rank, world_size=2)
        assert local.tolist() == whole[columns[rank].slices_in(Box.whole((5, 12)))].tolist()


def document(**changes):
    return {"dict": [["w", {"ndarray": {"dtype": "u1", "shape": [4], "order": "C", "divided": 0, **changes}}]]}


@pytest.mark.parametrize(
    ("found", "boxes"),
    [
        (document(divided=1), [[SavedBox(Box((0,), (4,)), 1, 0)]]),
        (document(divided=-1), [[SavedBox(Box((0,), (4,)), 1, 0)]]),
        (document(divided="0"), [[SavedBox(Box((0,), (4,)), 1, 0)]]),
        (document(shape=[5]), [[SavedBox(Box((0,), (4,)), 1, 0)]]),
        (document(shape=[4, 1]), [[SavedBox(Box((0,), (4,)), 1, 0)]]),
        (document(dtype="O"), [[SavedBox(Box((0,), (4,)), 1, 0)]]),
        (document(), [[SavedBox(Box((0,), (3,)), 1, 0)]]),
        (document(), [[SavedBox(Box((0,), (3,)), 1, 0), SavedBox(Box((2,), (2,)), 1, 64)]]),
        (document(), [[SavedBox(Box((0,), (2,)), 1, 0), SavedBox(Box((2,), (2,)), 1, 0)]]),
        (document(), [[SavedBox(Box((0,), (4,)), 1, 3)]]),
        (document(), [[]]),
        ({"dict": [*document()["dict"], ["v", document()["dict"][0][1]]]}, [[SavedBox(Box((0,), (4,)), 1, 0)]]),
    ],
)
def test_boxes_that_make_no_sense_are_damage(found, boxes):
    part = Part(Box((1,), (2,)), np.zeros(2, "u1"))
    for live in ({}, {"w": DividedArray(kind="ndarray", dtype="u1", shape=(4,), parts=(part,))}):
        with pytest.raises(MalformedStateError):
            decode_state(found, lambda stream, offset, size: bytes(size), divided=boxes, live=live)


@pytest.mark.parametrize(
    "found", [7, None, {}, {"dtype": "u1"}, {"dtype": "u1", "shape": [4], "order": "C", "offset": 3, "size": 4}]
)
def test_a_plain_array_that_makes_no_sense_is_damage_for_a_divided_one_too(found):
    live = {"w": DividedArray(kind="ndarray", dtype="u1", shape=(4,), parts=())}
    with pytest.raises(MalformedStateError):
        decode_state({"dict": [["w", {"ndarray": found}]]}, lambda stream, offset, size: bytes(size), live=live)
