"""A document that makes no sense is an error and nothing else, and memory that cannot be filled is recognised."""

from __future__ import annotations

import mmap
import tempfile

import numpy as np
import pytest

from spotkeep.state.decoding import ProcessMemory, decode_state, tensor_problem
from spotkeep.state.encoding import MalformedStateError


def array_document(*, dtype, shape, order, size):
    meta = {"dtype": dtype, "shape": shape, "order": order, "offset": 0, "size": size}
    return {"dict": [["a", {"ndarray": meta}]]}


NONSENSE = [
    None,
    [],
    {"list": []},
    {"dict": [["a"]]},
    {"dict": [[1, 2]]},
    {"dict": [["a", {"exec": "print(1)"}]]},
    {"dict": [["a", {"int": 5}]]},
    {"dict": [["a", {"int": "0xzz"}]]},
    {"dict": [["a", {"float": "00"}]]},
    {"dict": [["a", {"complex": "00"}]]},
    {"dict": [["a", {"str": "ff"}]]},
    {"dict": [["a", {"tuple": 1}]]},
    {"dict": [[[], 1]]},
    {"dict": [["a", {"bytes": {"offset": 0}}]]},
    {"dict": [["a", {"bytes": {"offset": -1, "size": 1}}]]},
    {"dict": [["a", {"bytes": {"stream": True, "offset": 0, "size": 1}}]]},
    array_document(dtype="O", shape=[1], order="C", size=8),
    array_document(dtype="a", shape=[1], order="C", size=1),
    array_document(dtype="f8,f8", shape=[1], order="C", size=16),
    array_document(dtype=[["x", "a"]], shape=[1], order="C", size=1),
    array_document(dtype="<f8", shape=[2], order="C", size=8),
    array_document(dtype="<f8", shape=[1], order="X", size=8),
    array_document(dtype="<f8", shape=[-1], order="C", size=8),
    array_document(dtype="<f8", shape=1, order="C", size=8),
    array_document(dtype="no", shape=[1], order="C", size=8),
    array_document(dtype=[["a", "O"]], shape=[1], order="C", size=8),
    array_document(dtype=7, shape=[1], order="C", size=8),
    array_document(dtype="<f8", shape=[0, 2**62, 2**62], order="C", size=0),
]


@pytest.mark.parametrize("document", NONSENSE, ids=str)
def test_nonsense_is_an_error_and_nothing_else(document):
    with pytest.raises(MalformedStateError):
        decode_state(document, lambda index, offset, size: bytes(size))


def test_a_document_cannot_unfold_a_small_file_into_a_large_memory():
    array = {"ndarray": {"dtype": "|u1", "shape": [64], "order": "C", "offset": 0, "size": 64}}
    with pytest.raises(MalformedStateError, match="share the same bytes"):
        decode_state({"dict": [["a", [array] * 1000]]}, lambda index, offset, size: bytes(size))


def test_a_document_nested_without_end_is_an_error():
    document: object = []
    for _ in range(100_000):
        document = [document]
    with pytest.raises(MalformedStateError, match="nested too deeply"):
        decode_state({"dict": [["a", document]]}, lambda index, offset, size: bytes(size))
    while document:  # unfolded by hand: freeing it whole would recurse as well
        (document,) = document


@pytest.mark.torch
def test_memory_that_the_system_lets_be_read_only_is_recognised():
    torch = pytest.importorskip("torch")
    with tempfile.TemporaryFile() as file:
        file.write(bytes(8192))
        file.flush()
        mapped = {
            access: mmap.mmap(file.fileno(), 8192, access=access) for access in (mmap.ACCESS_READ, mmap.ACCESS_COPY)
        }
    arrays = {access: np.frombuffer(memory, "f4")[1024:] for access, memory in mapped.items()}
    problems = {}
    for access, array in arrays.items():
        # torch warns where NumPy says that the memory is read-only, and takes it.
        address = array.__array_interface__["data"][0]
        problems[access] = ProcessMemory().may_be_written(_TensorAt(torch, address))
    assert problems == {mmap.ACCESS_READ: False, mmap.ACCESS_COPY: True}
    assert tensor_problem(torch.zeros(3), ProcessMemory()) is None


class _TensorAt:
    """A tensor somewhere in memory: a real one over read-only memory is what no test makes."""

    is_cpu = True

    def __init__(self, torch, address):
        self.layout = torch.strided
        self._address = address

    def numel(self):
        return 1

    def data_ptr(self):
        return self._address
