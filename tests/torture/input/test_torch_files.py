"""Files of `torch.save` from strangers: values and arrays with all their bytes, or an error of an exchange."""

from __future__ import annotations

import contextlib
import io
import os
import zipfile
from collections.abc import Iterator
from typing import Any

from hypothesis import given

from spotkeep.errors import ExchangeError
from spotkeep.exchange.elements import Array
from spotkeep.exchange.pickles import Call, Global, Persistent, written_pickle
from spotkeep.exchange.torch_files import read_torch_file

from .bounds import bounded, fed_by_strangers
from .exchanged import read_arrays
from .mutations import CUTS, FLIPS, damaged
from .pickled import mutated_pickle


def tensor(shape: tuple[int, ...], strides: tuple[int, ...]) -> Call:
    place = Persistent(("storage", Global("torch", "FloatStorage"), "0", "cpu", 6))
    return Call(Global("torch._utils", "_rebuild_tensor_v2"), (place, 0, shape, strides, False, None))


SUBCLASS = Call(
    Global("torch._tensor", "_rebuild_from_type_v2"), (Global("torch", "Size"), Global("a", "B"), ((1,),), {})
)
PARAMETER = Call(Global("torch._utils", "_rebuild_parameter"), (tensor((2,), (1,)), True, None))
VALUE = {
    "a": tensor((2, 3), (3, 1)),
    "b": [tensor((3, 2), (1, 3)), PARAMETER, 1j, (b"raw", bytearray(b"x"))],
    "s": SUBCLASS,
}
PICKLE = written_pickle(VALUE)


def archive(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as members:
        members.writestr("archive/data.pkl", content)
        members.writestr("archive/byteorder", b"little")
        members.writestr("archive/data/0", bytes(range(24)))
    return file.getvalue()


@contextlib.contextmanager
def opened(raw: bytes) -> Iterator[int]:
    descriptor = os.memfd_create("torch")
    try:
        os.write(descriptor, raw)
        yield descriptor
    finally:
        os.close(descriptor)


def read(raw: bytes) -> Any:
    with opened(raw) as descriptor, bounded(), contextlib.suppress(ExchangeError):
        value, _ = read_torch_file(descriptor)
        read_arrays(value)
        return value
    return None


def test_the_file_that_is_altered_is_a_whole_one() -> None:
    found = read(archive(PICKLE))
    assert isinstance(found["a"], Array)
    assert found["b"][2:] == [1j, (b"raw", bytearray(b"x"))]
    assert found["s"] == (1,)


@fed_by_strangers(share=0.8)
@given(mutated_pickle(PICKLE))
def test_a_file_with_any_pickle_is_read_or_refused(content: bytes) -> None:
    read(archive(content))


@fed_by_strangers(share=0.2)
@given(FLIPS, CUTS)
def test_a_damaged_file_is_read_or_refused(flips: list[tuple[int, int]], cut: int | None) -> None:
    read(damaged(archive(PICKLE), flips, cut))
