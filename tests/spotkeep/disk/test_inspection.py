"""Inspecting a checkpoint: what it holds and what is damaged is reported exactly, and nothing in it is believed."""

from __future__ import annotations

import hashlib
import json
import os
import tracemalloc
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotkeep.disk import staged_state
from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.chunk_checksums import chunk_checksum
from spotkeep.disk.inspection import Entry, InspectedCheckpoint, outline
from spotkeep.disk.manifest import CHUNK_BYTES, DataFile, Manifest, manifest_bytes
from spotkeep.errors import DamagedCheckpointError, NewerFormatError
from spotkeep.state.divided import Box
from spotkeep.state.encoding import MalformedStateError, encode_state
from spotkeep.state.resharding import SavedBox

STATE = {
    "model": {"weight": np.arange(12, dtype="f4").reshape(3, 4), "bias": np.zeros(0)},
    "optimizer": {"state": {0: {"step": 7}}, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999)}]},
    "rng": ((3, (1, 2, 3), None), b"raw"),
    "empty": {},
    "seen": Counter("aab"),
    "loss": float("nan"),
}


@pytest.fixture
def written(checkpoints):
    def write(state, *, step=5):
        directory = checkpoints()
        directory.write(encode_state(state), step=step)
        return directory.path

    return write


def manifest_of(state, *files):
    return Manifest(step=5, epochs_completed=None, created=0.0, library="spotkeep", streams=(files,), state=state)


def put(path: Path, state, *data: bytes):
    """A checkpoint whose digests are right and whose document is the attacker's."""
    path = path / "step-5"
    path.mkdir(parents=True)
    files = []
    for index, raw in enumerate(data):
        (path / f"data-{index:05d}.bin").write_bytes(raw)
        files.append(DataFile(f"data-{index:05d}.bin", len(raw), (chunk_checksum(raw),)))
    (path / "manifest.json").write_bytes(manifest_bytes(manifest_of(state, *files)))


def test_a_state_is_outlined_without_reading_data(written):
    path = written(STATE)
    (path / "step-5" / "data-00000.bin").unlink()
    with InspectedCheckpoint(path, 5) as checkpoint:
        entries = {entry.name: entry for entry in checkpoint.entries()}
    assert list(entries) == [
        "model.weight",
        "model.bias",
        "optimizer.state.0.step",
        "optimizer.param_groups.0.lr",
        "optimizer.param_groups.0.betas",
        "rng.0",
        "rng.1",
        "empty",
        "seen.a",
        "seen.b",
        "loss",
    ]
    weight = entries["model.weight"]
    assert (weight.kind, weight.dtype, weight.shape, weight.item_bytes) == ("ndarray", "<f4", (3, 4), 4)
    assert (weight.size, weight.boxes) == (48, (SavedBox(Box.whole((48,)), 0, 0),))
    assert entries["optimizer.param_groups.0.betas"].value == (0.9, 0.999)
    assert entries["rng.0"].value == (3, (1, 2, 3), None)
    assert entries["rng.1"].kind == "bytes"
    assert entries["empty"].value == {}
    assert entries["seen.a"].value == 2


def test_names_are_distinguished(written):
    path = written({"a": {0: 1, "0": 2}, "a.0": 3})
    with InspectedCheckpoint(path, 5) as checkpoint:
        assert {entry.name: entry.value for entry in checkpoint.entries()} == {"a.0": 1, "a.0~2": 2, "a.0~3": 3}


@given(
    sizes=st.lists(st.integers(0, CHUNK_BYTES), min_size=1, max_size=6),
    piece_bytes=st.integers(10_000, 2 * CHUNK_BYTES),
)
@settings(max_examples=30)
def test_pieces_are_the_bytes_of_the_entry(tmp_path_factory, sizes, piece_bytes):
    state = {str(index): bytes([index % 251 + 1]) * size for index, size in enumerate(sizes)}
    path = tmp_path_factory.mktemp("pieces")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staged_state, "MAX_FILE_BYTES", CHUNK_BYTES)
        CheckpointDirectory(path).write(encode_state(state), step=5)
    with InspectedCheckpoint(path, 5) as checkpoint:
        for entry in checkpoint.entries():
            pieces = list(checkpoint.pieces(entry, piece_bytes))
            assert b"".join(pieces) == state[entry.name]
            assert all(len(piece) == piece_bytes for piece in pieces[:-1])
        assert list(checkpoint.damage()) == []


def test_damage_is_named_by_file_and_place(written):
    path = written({"w": np.ones(4 * CHUNK_BYTES + 4096, dtype="u1")})
    data = path / "step-5" / "data-00000.bin"
    with data.open("r+b") as file:
        for chunk in (0, 2, 3):
            file.seek(chunk * CHUNK_BYTES + 17)
            file.write(b"\0")
    with InspectedCheckpoint(path, 5) as checkpoint:
        looked_at: list[int] = []
        found = list(checkpoint.damage(looked_at.append))
        assert [error.offsets for error in found] == [(0, CHUNK_BYTES), (2 * CHUNK_BYTES, 4 * CHUNK_BYTES)]
        assert {error.file for error in found} == {"step-5/data-00000.bin"}
        assert "chunks 2 to 3 do not" in found[1].problem
        assert sum(looked_at) == 4 * CHUNK_BYTES + 4096
        with pytest.raises(DamagedCheckpointError) as failure:
            checkpoint.bytes_at(0, CHUNK_BYTES, 2 * CHUNK_BYTES)
        assert failure.value.offsets == (2 * CHUNK_BYTES, 3 * CHUNK_BYTES)


@given(position=st.integers(0, 2 * CHUNK_BYTES + 999), bit=st.integers(0, 7))
def test_every_flipped_bit_is_found_in_its_chunk(flippable, position, bit):
    data = flippable / "step-5" / "data-00000.bin"
    with data.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))
    try:
        with InspectedCheckpoint(flippable, 5) as checkpoint:
            [found] = checkpoint.damage()
        start, end = found.offsets
        assert start <= position < end
        assert end - start <= CHUNK_BYTES
    finally:
        with data.open("r+b") as file:
            file.seek(position)
            file.write(bytes([byte]))


@pytest.fixture(scope="module")
def flippable(tmp_path_factory):
    path = tmp_path_factory.mktemp("flippable")
    CheckpointDirectory(path).write(encode_state({"w": np.ones(2 * CHUNK_BYTES + 1000, dtype="u1")}), step=5)
    return path


@pytest.mark.parametrize(("size", "offsets"), [(60, (60, 4096)), (0, (0, 4096)), (4130, (4096, 4130))])
def test_a_file_of_another_size_says_from_where(written, size, offsets):
    path = written({"w": b"x" * 4096})
    os.truncate(path / "step-5" / "data-00000.bin", size)
    with InspectedCheckpoint(path, 5) as checkpoint:
        [found] = checkpoint.damage()
    assert found.offsets == offsets
    assert found.problem == f"{size:,} bytes instead of 4,096"


def test_a_missing_file_is_named(written):
    path = written({"w": b"x" * 4096})
    (path / "step-5" / "data-00000.bin").unlink()
    with InspectedCheckpoint(path, 5) as checkpoint:
        [found] = checkpoint.damage()
    assert (found.file, found.offsets) == ("step-5/data-00000.bin", None)
    assert "missing" in found.problem


def test_no_link_is_followed(written, tmp_path):
    path = written({"w": b"x" * 4096})
    outside = tmp_path / "outside.bin"
    data = path / "step-5" / "data-00000.bin"
    data.rename(outside)
    data.symlink_to(outside)
    with InspectedCheckpoint(path, 5) as checkpoint:
        [found] = checkpoint.damage()
        assert "links are not followed" in found.problem
    data.unlink()
    os.mkfifo(data)
    with InspectedCheckpoint(path, 5) as checkpoint:
        assert [error.problem for error in checkpoint.damage()] == ["not a regular file"]
    (path / "step-6").symlink_to(path / "step-5")
    with pytest.raises(DamagedCheckpointError, match="not a directory"):
        InspectedCheckpoint(path, 6)
    (path / "step-5" / "manifest.json").rename(tmp_path / "manifest.json")
    (path / "step-5" / "manifest.json").symlink_to(tmp_path / "manifest.json")
    with pytest.raises(DamagedCheckpointError, match="links are not followed"):
        InspectedCheckpoint(path, 5)


def test_a_file_that_claims_a_terabyte_costs_no_memory(tmp_path):
    size = 2**40
    directory = tmp_path / "step-5"
    directory.mkdir()
    with (directory / "data-00000.bin").open("wb") as file:
        file.truncate(size)
    chunks = ("00000000",) * (size // CHUNK_BYTES)
    array = {"ndarray": {"dtype": "|u1", "shape": [size], "order": "C", "offset": 0, "size": size}}
    (directory / "manifest.json").write_bytes(
        manifest_bytes(manifest_of({"dict": [["w", array]]}, DataFile("data-00000.bin", size, chunks)))
    )
    with InspectedCheckpoint(tmp_path, 5) as checkpoint:
        [entry] = checkpoint.entries()
        tracemalloc.start()
        with pytest.raises(DamagedCheckpointError):
            next(checkpoint.pieces(entry))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 4 * CHUNK_BYTES


def array(**changes):
    return {"ndarray": {"dtype": "<f4", "shape": [2], "order": "C", "offset": 0, "size": 8, **changes}}


def mapping(**items):
    return {"dict": [[name, item] for name, item in items.items()]}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (mapping(w=array(stream=1)), "does not exist"),
        (mapping(w=array(offset=60)), "beyond the end"),
        (mapping(w=array(offset=-1)), "offset is '-1'"),
        (mapping(w=array(size=2**70)), "size is"),
        (mapping(w=array(shape=[3])), "does not have 8 bytes"),
        (mapping(w=array(shape=[2**62, 2**62])), "does not have 8 bytes"),
        (mapping(w=array(shape="2")), "not a list of sizes"),
        (mapping(w=array(dtype="|O8")), "is not known"),
        (mapping(w=array(dtype=None)), "makes no sense"),
        (mapping(w=array(), v=array()), "share the same bytes"),
        (mapping(w={"tensor": {"dtype": "qint8", "shape": [8], "offset": 0, "size": 8}}), "is not known"),
        (mapping(w={"pickle": "cos\nsystem"}), "unknown kind"),
        (mapping(w={"int": "0x" + "f" * 10**6, "float": "0"}), "no kind of value"),
        ({"dict": [["w"]]}, "no pairs"),
        ({"tuple": 3}, "no items"),
        (mapping(w={"ndarray": 3}), "no description"),
    ],
)
def test_a_document_that_makes_no_sense_is_damage(tmp_path, document, words):
    put(tmp_path, document, b"12345678")
    with InspectedCheckpoint(tmp_path, 5) as checkpoint:
        with pytest.raises(DamagedCheckpointError, match=words):
            checkpoint.entries()
        assert [error.file for error in checkpoint.damage()] == ["step-5/manifest.json"]


def nested(depth, wrap):
    node = 1
    for _ in range(depth):
        node = wrap(node)
    return node


@pytest.mark.parametrize(
    "wrap", [lambda n: {"dict": [["a", n]]}, lambda n: [n], lambda n: {"tuple": [n, {"dict": []}]}]
)
def test_nesting_without_end_is_refused(wrap):
    with pytest.raises(MalformedStateError, match="nested too deeply"):
        outline(manifest_of(nested(300, wrap)))


def test_entries_and_names_are_bounded(monkeypatch):
    monkeypatch.setattr("spotkeep.disk.inspection.MAX_ENTRIES", 10)
    with pytest.raises(MalformedStateError, match="more than 10 entries"):
        outline(manifest_of(mapping(**{f"w{n}": n for n in range(11)})))
    with pytest.raises(MalformedStateError, match="too long"):
        outline(manifest_of({"dict": [["n" * 2**26, mapping(**{f"w{n}": n for n in range(9)})]]}))


def test_the_same_name_many_times_takes_no_longer(tmp_path):
    entries = outline(manifest_of({"dict": [["a", 1]] * 10_000}))
    assert len({entry.name for entry in entries}) == 10_000


def test_a_manifest_of_another_step_or_a_newer_format_is_refused(written):
    path = written(STATE)
    (path / "step-5").rename(path / "step-6")
    with pytest.raises(DamagedCheckpointError, match="belongs to step 5"):
        InspectedCheckpoint(path, 6)
    body = json.dumps({"format": 99, "library": "spotkeep 9"}).encode()
    (path / "step-6" / "manifest.json").write_bytes(framed(body))
    with pytest.raises(NewerFormatError):
        InspectedCheckpoint(path, 6)


def framed(body: bytes) -> bytes:
    return b'{"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'","manifest":' + body + b"}\n"


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.complex_numbers()
states = st.dictionaries(
    st.text(),
    st.recursive(
        plain | st.binary(max_size=30) | st.builds(np.arange, st.integers(0, 9)),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3),
        max_leaves=12,
    ),
    max_size=4,
)


@pytest.mark.long
@given(states)
def test_whatever_can_be_saved_can_be_outlined(tmp_path_factory, state):
    path = tmp_path_factory.mktemp("any")
    CheckpointDirectory(path).write(encode_state(state), step=5)
    with InspectedCheckpoint(path, 5) as checkpoint:
        entries = checkpoint.entries()
        assert list(checkpoint.damage()) == []
        for entry in entries:
            if entry.size is not None:
                assert len(b"".join(checkpoint.pieces(entry))) == entry.size
    assert len({entry.name for entry in entries}) == len(entries)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.sampled_from(["0x1f", "ff", "<f4"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["dict", "tuple", "ndarray", "tensor", "bytes", "int", "stream", "divided", "offset", "size", "shape"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@pytest.mark.long
@given(json_values)
def test_whatever_the_document_is_it_is_outlined_or_refused(document):
    try:
        entries = outline(replace(manifest_of(document), streams=((DataFile("data-00000.bin", 8, ("00000000",)),),)))
    except MalformedStateError:
        return
    assert all(isinstance(entry, Entry) for entry in entries)
