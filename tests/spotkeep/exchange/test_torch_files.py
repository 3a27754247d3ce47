"""Files of torch.save are those that torch itself reads and writes, to the bit, and hostile ones are refused."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.errors import ExchangeError
from spotkeep.exchange import export_checkpoint, import_checkpoint, torch_files
from spotkeep.exchange.elements import Array, Stray
from spotkeep.exchange.pickles import Call, Global, Persistent, written_pickle
from spotkeep.exchange.torch_files import read_torch_file, write_torch_file
from spotkeep.state.encoding import encode_state

DTYPES = [
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
    "complex128", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2",
]  # fmt: skip


def array(*values: float) -> Array:
    raw = np.array(values, "<f4").tobytes()
    return Array("tensor", "float32", (len(values),), lambda: iter([raw]))


def file_with(value: Any) -> bytes:
    file = io.BytesIO()
    write_torch_file(file, value)
    return file.getvalue()


@contextmanager
def reading(tmp_path: Path, raw: bytes) -> Iterator[Any]:
    path = tmp_path / "x.pt"
    path.write_bytes(raw)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        yield read_torch_file(descriptor)[0]
    finally:
        os.close(descriptor)


def floats(value: Array) -> list[float]:
    found: list[float] = np.frombuffer(b"".join(value.pieces()), "<f4").tolist()
    return found


def test_what_is_written_is_read_without_torch(tmp_path: Path) -> None:
    value = {"a": array(1, 2, 3), "b": [array(), (4, "x", b"\xff", None, 2.5, 2**70)], 3: {}}
    with reading(tmp_path, file_with(value)) as found:
        assert floats(found["a"]) == [1, 2, 3]
        assert floats(found["b"][0]) == []
        assert found["b"][1] == (4, "x", b"\xff", None, 2.5, 2**70)
        assert found[3] == {}


def test_the_bytes_of_tensors_are_aligned(tmp_path: Path) -> None:
    raw = file_with([array(*range(number)) for number in range(1, 40)])
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        assert archive.testzip() is None
        for info in archive.infolist():
            start = info.header_offset + 30 + int.from_bytes(raw[info.header_offset + 26 :][:2], "little")
            assert (start + int.from_bytes(raw[info.header_offset + 28 :][:2], "little")) % 64 == 0


@pytest.mark.torch
@pytest.mark.parametrize("mapped", [False, True])
def test_torch_reads_every_type_and_order_without_leave_to_run_code(tmp_path: Path, *, mapped: bool) -> None:
    torch = pytest.importorskip("torch")
    raw = torch.arange(16 * 60, dtype=torch.uint8)
    state = {name: raw[: 16 * (getattr(torch, name).itemsize)].view(getattr(torch, name)) for name in DTYPES}
    state["bool"] = state["bool"].view(torch.uint8) > 3
    state |= {
        "columns": torch.arange(6.0).reshape(2, 3).t(),
        "last": torch.arange(120.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "none": torch.zeros(2, 0, 3),
        "number": torch.tensor(2.5),
        "large": torch.arange(600_000.0),
        "numpy": np.asfortranarray(np.arange(6, dtype=">f8").reshape(2, 3)),
    }
    CheckpointDirectory(tmp_path / "checkpoints").write(encode_state(state), step=1)
    export_checkpoint(tmp_path / "checkpoints", tmp_path / "x.pt", format="torch")
    found = torch.load(tmp_path / "x.pt", weights_only=True, mmap=mapped)
    assert found["numpy"].tolist() == [[0, 1, 2], [3, 4, 5]]
    for name, tensor in state.items():
        if name != "numpy":
            assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape)
            assert bits(found[name]) == bits(tensor), name


def bits(tensor: Any) -> bytes:
    import torch

    raw: bytes = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return raw


@pytest.mark.torch
def test_files_of_torch_are_read_to_the_bit(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    shared = torch.arange(20.0)
    state = {
        "tied": [shared, shared],
        "view": shared[3:9:2],
        "columns": torch.arange(6).reshape(2, 3).t(),
        "expanded": torch.tensor([1.5]).expand(4, 3),
        "complex": torch.complex(torch.arange(4.0), torch.ones(4)).to(torch.complex128).reshape(2, 2).t(),
        "parameter": torch.nn.Parameter(torch.ones(3)),
        "scalar": torch.tensor(7),
        "empty": torch.zeros(0, 3),
        "size": torch.Size([2, 3]),
        "device": torch.device("cpu"),
        "plain": OrderedDict(a=(1, 2.5, "x", None, True, b"\xfe", 3 + 4j)),
        **{f"of {name}": torch.arange(16 * 16, dtype=torch.uint8).view(getattr(torch, name)) for name in DTYPES[1:]},
    }
    file = io.BytesIO()
    torch.save(state, file)
    with reading(tmp_path, file.getvalue()) as found:
        assert found["size"] == (2, 3)
        assert found["device"] == "cpu"
        assert found["plain"] == dict(state["plain"])
        for name in state.keys() - {"tied", "size", "device", "plain"}:
            tensor = state[name].detach()
            assert (found[name].dtype, found[name].shape) == (str(tensor.dtype)[6:], tuple(tensor.shape))
            assert b"".join(found[name].pieces()) == bits(tensor), name
        assert [floats(each) for each in found["tied"]] == [shared.tolist()] * 2


@pytest.mark.torch
def test_values_that_only_code_could_make_are_left_out_and_named(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    marker = tmp_path / "executed"

    class Hostile:
        def __reduce__(self) -> Any:
            return (Path.touch, (marker,))

    torch.save(
        {"w": torch.ones(2), "hostile": Hostile(), "set": {1}, "sparse": torch.eye(2).to_sparse()}, tmp_path / "x"
    )
    made = import_checkpoint(tmp_path / "x", tmp_path / "imported")
    assert not marker.exists()
    assert [name for name, _ in made.left_out] == ["hostile", "set", "sparse"]
    assert CheckpointDirectory(tmp_path / "imported").read(0).state.keys() == {"w"}


def test_an_old_form_is_refused_with_the_way(tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2) + pickle.dumps(1001, protocol=2))
    with pytest.raises(ExchangeError, match="load it with torch and save it again"):
        import_checkpoint(tmp_path / "x.pt", tmp_path / "imported", format="torch")


def archive_of(content: bytes, *, storages: dict[str, bytes] | None = None, **options: Any) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", options.get("compression", zipfile.ZIP_STORED)) as archive:
        archive.writestr("x/data.pkl", content)
        archive.writestr("x/byteorder", options.get("order", "little"))
        for name, raw in (storages or {}).items():
            archive.writestr(f"x/data/{name}", raw)
    return file.getvalue()


def tensor(**changes: Any) -> Any:
    form = {"type": "FloatStorage", "key": "0", "offset": 0, "shape": (2,), "strides": (1,)} | changes
    storage = Persistent(("storage", Global("torch", form["type"]), form["key"], "cpu", 2))
    ordered = Call(Global("collections", "OrderedDict"), ())
    return Call(
        Global("torch._utils", "_rebuild_tensor_v2"),
        (storage, form["offset"], form["shape"], form["strides"], False, ordered),
    )


def with_tensor(**changes: Any) -> bytes:
    return archive_of(written_pickle([tensor(**changes)]), storages={"0": bytes(8)})


def test_the_hostile_files_below_are_good_without_what_makes_them_hostile(tmp_path: Path) -> None:
    with reading(tmp_path, with_tensor()) as found:
        assert floats(found[0]) == [0, 0]


LONG = b"(X\0\0\x10\0" + b"x" * 2**20 + b"\x85q\x01"
ENCODED = b"c_codecs\nencode\nh\x01R"


def call_of(name: str, *arguments: Any) -> bytes:
    return archive_of(written_pickle([Call(Global(*name.rsplit(".", 1)), arguments)]))


def with_storages_in_one_place(count: int) -> bytes:
    """Storages of a megabyte, each of them the same."""
    value = [tensor(key=f"{number:04d}") for number in range(count)]
    raw = archive_of(written_pickle(value), storages={f"{number:04d}": b"" for number in range(1, count)})
    file = io.BytesIO(raw)
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("x/data/0000", bytes(2**20))
        whole = archive.getinfo("x/data/0000")
        for number in range(1, count):
            info = archive.getinfo(f"x/data/{number:04d}")
            info.header_offset, info.CRC = whole.header_offset, whole.CRC
            info.file_size = info.compress_size = whole.file_size
    return file.getvalue()


def with_changed_storage(raw: bytes) -> bytes:
    at = raw.index(b"x/data/0") + len(b"x/data/0")
    return raw[:at] + b"\x01" + raw[at + 1 :]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "no file of torch.save"),
        (b"PK\x03\x04" + bytes(100), "no file of torch.save"),
        (file_with([array(1)])[:-30], "no file of torch.save"),
        (archive_of(b"cos\nsystem\n(X\x04\0\0\0trueR."), "cannot be read"),
        (archive_of(b"\x80\x02]q\0h\0a."), "contains itself"),
        (archive_of(written_pickle([1]), order="big"), "little-endian"),
        (archive_of(written_pickle({(1, 2): 3})), "has a key of type tuple"),
        (archive_of(written_pickle([1] * 1000), compression=zipfile.ZIP_DEFLATED), "compressed"),
        (with_tensor(key="7"), "the storage '7' is missing"),
        (with_tensor(key="../../0"), "is missing"),
        (with_tensor(shape=(3,)), "beyond the end"),
        (with_tensor(offset=1), "beyond the end"),
        (with_tensor(strides=(2,)), "beyond the end"),
        (with_tensor(strides=(1, 1)), "makes no sense"),
        (with_tensor(shape=(-2,)), "makes no sense"),
        (with_tensor(shape=(2.0,)), "makes no sense"),
        (with_tensor(shape=7), "makes no sense"),
        (with_tensor(shape=(2**62, 2**62)), "makes no sense"),
        (with_tensor(shape=(2**40,), strides=(0,)), "many times the bytes"),
        (archive_of(written_pickle([tensor(shape=(2,)) for _ in range(10)]), storages={}), "is missing"),
        (with_changed_storage(with_tensor()), "its checksum does not hold"),
        (archive_of(written_pickle([Call(Global("torch._utils", "_rebuild_tensor_v2"), (1,))])), "makes no sense"),
        (call_of("_codecs.encode", "a", "utf-8"), "makes no sense"),
        (call_of("torch._tensor._rebuild_from_type_v2", Global("torch", "Size"), None, 5), "only its own code"),
        (call_of("builtins.complex", 10**400, 0), "makes no sense"),
        (call_of("builtins.complex", "1", 0), "makes no sense"),
        (call_of("torch.Size", "x" * 9), "makes no sense"),
        (archive_of(LONG + ENCODED * 999 + b"l."), "many times the bytes"),
        (with_storages_in_one_place(20), "share"),
    ],
)
def test_a_hostile_file_is_refused(tmp_path: Path, raw: bytes, why: str) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(raw)
    with pytest.raises(ExchangeError, match=why):
        import_checkpoint(path, tmp_path / "imported", format="torch")
    assert not (tmp_path / "imported").exists()


def test_a_storage_of_an_unknown_type_is_left_out(tmp_path: Path) -> None:
    with reading(tmp_path, with_tensor(type="QInt8Storage")) as found:
        assert isinstance(found[0], Stray)


def test_values_that_are_unfolded_from_few_bytes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_files, "_MOST_VALUES", 2**40)
    # A list of a list, 40 times twice: each is there once, and there would be 2^40 of them.
    doubled = b"\x80\x02]q\0" + b"".join(b"](h%ch%ceq%c" % (n, n, n + 1) for n in range(40)) + b"."
    raw = archive_of(b"\x80\x02(" + doubled[2:-1] + b"l.")
    with pytest.raises(ExchangeError, match=r"too many|nested too deeply"):
        import_checkpoint(written(tmp_path, raw), tmp_path / "imported")


def written(tmp_path: Path, raw: bytes) -> Path:
    path = tmp_path / "x.pt"
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("mutate", [lambda raw, at: raw[:at], lambda raw, at: raw[:at] + b"\xff" + raw[at + 1 :]])
def test_any_cut_or_altered_byte_is_an_error_or_reads_whole(
    tmp_path: Path, mutate: Callable[[bytes, int], bytes]
) -> None:
    whole = file_with({"a": array(1, 2, 3), "b": (1, "x")})
    outcomes = set()
    for at in range(0, len(whole), 7):
        try:
            with reading(tmp_path, mutate(whole, at)) as found:
                floats(found["a"]) if isinstance(found, dict) and isinstance(found.get("a"), Array) else None
                outcomes.add("read")
        except ExchangeError:
            outcomes.add("refused")
    assert "refused" in outcomes
