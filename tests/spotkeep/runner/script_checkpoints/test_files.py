"""A file that ends too early is recognised by its head and its end, and no whole one is."""

from __future__ import annotations

import json
import os
import struct
import sys
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.runner.script_checkpoints.containers import is_table
from spotkeep.runner.script_checkpoints.files import problem_of

SIGNATURE = b"\x89HDF\r\n\x1a\n"
NOWHERE = 2**64 - 1
CONTENT = bytes(range(256)) * 4


ARRAYS = {
    "floats": np.arange(12.0).reshape(3, 4),
    "columns": np.asfortranarray(np.ones((3, 4), "f2")),
    "one": np.array(1),
    "words": np.array(["one", "three"]),
    "bytes": np.array([b"one", b"three"]),
    "flags": np.ones(30, bool),
    "days": np.array(["2020-01-01"], "M8[D]"),
    "complex": np.ones((2, 1, 2), "c16"),
}


def hdf5(version, *, flags=0, root=b"OHDR"):
    """Make an HDF5 file of 2,048 bytes with its root group's header at 96. Source: HDF5 File Format Specification."""
    if version < 2:
        head = SIGNATURE + bytes([version, 0, 0, 0, 0, 8, 8, 0]) + struct.pack("<HHI", 4, 16, 0)
        head = head[:20] + bytes([flags]) + head[21:] + (b"" if version == 0 else struct.pack("<HH", 32, 0))
        head += struct.pack("<6Q", 0, NOWHERE, 2048, NOWHERE, 0, 96)
    else:
        head = SIGNATURE + bytes([version, 8, 8, flags]) + struct.pack("<4Q", 0, NOWHERE, 2048, 96) + bytes(4)
    return (head.ljust(96, b"\0") + root + CONTENT).ljust(2048, b"\x07")


def zip_file(tmp_path):
    with zipfile.ZipFile(tmp_path / "made", "w") as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("model.weights.h5", CONTENT)
    return (tmp_path / "made").read_bytes()


def safetensors():
    header = json.dumps(
        {"__metadata__": {"format": "pt"}, "a": {"dtype": "F32", "shape": [64], "data_offsets": [0, 256]},
         "b": {"dtype": "F32", "shape": [64], "data_offsets": [256, 512]}}
    ).encode()  # fmt: skip
    return struct.pack("<Q", len(header)) + header + b"weights." * 64


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    np.savez(folder / "arrays.npz", weights=np.arange(99))
    for name, array in ARRAYS.items():
        np.save(folder / f"{name}.npy", array)
    return {
        **{f"model-{version}.h5": hdf5(version, root=b"\1\0\1\0" if version < 2 else b"OHDR") for version in range(4)},
        "model.keras": zip_file(folder),
        "arrays.npz": (folder / "arrays.npz").read_bytes(),
        "model.safetensors": safetensors(),
        **{path.name: path.read_bytes() for path in folder.glob("*.npy")},
        "pytorch_model.bin": zip_file(folder),
    }


@given(data=st.data())
def test_every_format_is_whole_as_it_was_written_and_nowhere_before_its_end(tmp_path_factory, whole, data):
    name = data.draw(st.sampled_from(sorted(whole)))
    content = whole[name]
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(content)
    assert problem_of(path) is None
    path.write_bytes(content[: data.draw(st.integers(0, len(content) - 1), label="cut")])
    assert problem_of(path) is not None


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "it is empty"),
        (bytes(9000), "it begins with zeros"),
        (hdf5(2)[:2000], "it has 2,000 of 2,048 bytes"),
        (hdf5(0, root=bytes(4)), "it was being written: its root group is missing"),
        # As a process leaves it that was killed while it closed the file: all is there, but for the last superblock.
        (hdf5(0) + CONTENT, "it was being written: it has 3,072 bytes, and ends after 2,048 by its own account"),
        (hdf5(3, flags=1), "it was being written"),
        (hdf5(0, flags=1), "it was being written"),
        (hdf5(2, flags=1), "it was being written"),
        (hdf5(3, flags=4), "it was being written"),
    ],
)
def test_it_is_said_what_is_wrong(tmp_path, content, problem):
    path = tmp_path / "model-7.h5"
    path.write_bytes(content)
    assert problem_of(path) == problem


def test_what_a_training_keeps_open_and_flushes_is_whole_as_far_as_hdf5_reads_it(tmp_path):
    for version, name, problem in [
        (0, "metrics.h5", None), (2, "metrics.h5", None), (3, "metrics.h5", "it was being written"),
        (0, "latest.weights.h5", "it was being written"),
    ]:  # fmt: skip
        (tmp_path / name).write_bytes(hdf5(version, flags=1))
        assert problem_of(tmp_path / name) == problem


@pytest.mark.parametrize(
    "content",
    [
        b"weights of a format of its own",
        b"\x80\x04\x95 a pickle that ends too ear",
        SIGNATURE + b"\x09 a version that is not known",
        bytes(512) + hdf5(2),
        bytes(2048) + hdf5(2),
    ],
)
def test_what_it_does_not_know_is_not_judged(tmp_path, content):
    path = tmp_path / "model.h5"
    path.write_bytes(content)
    assert problem_of(path) is None


@given(content=st.binary(max_size=400), name=st.sampled_from(["m.h5", "m.keras", "m.safetensors"]))
def test_any_bytes_get_an_answer(tmp_path_factory, content, name):
    path = tmp_path_factory.getbasetemp() / f"any-{name}"
    for start in (b"", SIGNATURE, b"PK\3\4"):
        path.write_bytes(start + content)
        problem_of(path)
    assert not is_table(path) or content.endswith(b"\xdb")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems note each read")
def test_reading_leaves_no_time_of_access_behind(tmp_path):
    for name, content in (("a.h5", hdf5(0)), ("b.keras", zip_file(tmp_path)), ("c.safetensors", safetensors())):
        path = tmp_path / name
        path.write_bytes(content)
        os.utime(path, ns=(0, path.stat().st_mtime_ns))
        assert problem_of(path) is None
        assert not is_table(path)
        assert path.stat().st_atime_ns == 0
        path.read_bytes()
        assert path.stat().st_atime_ns > 0, "the disk of this test notes reads"


@pytest.mark.parametrize(
    "array", [np.array([{"an": "object"}]), np.zeros(3, [("a", "f4"), ("b", "i8", 2)]), np.zeros((0, 3))]
)
def test_an_array_of_objects_or_records_or_nothing_is_whole(tmp_path, array):
    np.save(tmp_path / "array.npy", array)
    assert problem_of(tmp_path / "array.npy") is None
    with (tmp_path / "array.npy").open("ab") as file:
        np.save(file, array)
    assert problem_of(tmp_path / "array.npy") is None, "several in one file"


@pytest.mark.parametrize("name", ["data.bin", "notes.txt", "vocab.json", "tokenizer.model", "README", "model.onnx"])
def test_files_of_any_other_kind_stay_also_empty(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    assert problem_of(tmp_path / name) is None
    (tmp_path / name).write_bytes(b"{half of someth")
    assert problem_of(tmp_path / name) is None
