"""What is exported is what was saved: read back by the format's own library, to the bit."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.inspection import InspectedCheckpoint
from spotkeep.errors import DamagedCheckpointError
from spotkeep.exchange.elements import Array, in_row_major
from spotkeep.exchange.exports import Exported
from spotkeep.exchange.states import array_of
from spotkeep.state.encoding import encode_state
from spotkeep_cli.checkpoints.export import ExportFormat, export
from spotkeep_cli.errors import UsageError

NUMPY_DTYPES = ["b1", "i1", "<i2", ">i4", "<i8", "u1", "<u2", "<u4", ">u8", "<f2", ">f4", "<f8"]


def exported(path: Path, state: dict[str, Any], as_format: ExportFormat, **options: Any) -> tuple[Path, Exported]:
    CheckpointDirectory(path).write(encode_state(state), step=7)
    target = path / "out"
    with InspectedCheckpoint(path, 7) as checkpoint:
        return target, export(checkpoint, target, as_format=as_format, **{"overwrite": False, **options})


def read_plainly(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The header and the bytes of each tensor, with nothing but what the format says."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    places = {name: entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"}
    assert sorted(end for _, end in places.values())[-1:] in ([len(raw) - start], [])
    return header, {name: raw[start + first : start + end] for name, (first, end) in places.items()}


def test_names_are_joined_and_plain_values_are_metadata(tmp_path: Path) -> None:
    state = {
        "model": {"w": np.arange(6, dtype="f4").reshape(2, 3), "b": np.float64(2.5)},
        "lr": 0.1,
        "betas": (0.9, 0.99),
        "text": np.array(["a"]),
        "wide": np.zeros(2, "c16"),
        "raw": b"x",
        "__metadata__": np.zeros(3),
    }
    path, written = exported(tmp_path, state, ExportFormat.SAFETENSORS)
    header, data = read_plainly(path)
    assert set(data) == {"model.w", "model.b"}
    assert data["model.w"] == state["model"]["w"].tobytes()
    assert header["model.b"]["shape"] == []
    metadata = header["__metadata__"]
    assert (metadata["lr"], metadata["betas"], metadata["spotkeep.step"]) == ("0.1", "(0.9, 0.99)", "7")
    assert {name for name, _ in written.left_out} == {"text", "wide", "raw", "__metadata__"}
    assert written == Exported(size=path.stat().st_size, tensors=2, values=2, left_out=written.left_out)


def test_every_tensor_is_aligned_to_its_elements(tmp_path: Path) -> None:
    state = {str(n): np.zeros(n + 1, dtype) for n, dtype in enumerate(NUMPY_DTYPES)}
    path, _ = exported(tmp_path, state, ExportFormat.SAFETENSORS)
    header, _ = read_plainly(path)
    header_bytes = int.from_bytes(path.read_bytes()[:8], "little")
    for name, array in state.items():
        assert (8 + header_bytes + header[name]["data_offsets"][0]) % array.itemsize == 0


@settings(max_examples=50)
@given(
    st.dictionaries(
        st.text(min_size=1, max_size=8),
        st.builds(
            lambda dtype, shape, order, seed: np.asarray(
                np.random.default_rng(seed).integers(0, 2, size=shape).astype(dtype), order=order
            ),
            st.sampled_from(NUMPY_DTYPES),
            st.lists(st.integers(0, 4), max_size=3),
            st.sampled_from("CF"),
            st.integers(0, 99),
        ),
        max_size=5,
    )
)
def test_the_safetensors_library_reads_the_same(tmp_path_factory: Any, state: dict[str, Any]) -> None:
    library = pytest.importorskip("safetensors.numpy")
    path, written = exported(tmp_path_factory.mktemp("export"), state, ExportFormat.SAFETENSORS)
    found = library.load(path.read_bytes())
    assert written.left_out == ()
    assert len(found) == len(state)
    for name, array in state.items():
        assert found[name].dtype == array.dtype.newbyteorder("<")
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.torch
def test_the_safetensors_library_reads_torchs_own_types(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("safetensors.torch")
    names = "bool uint8 int16 int64 float16 bfloat16 float32 float64 complex64 float8_e4m3fn float8_e5m2"
    state = {name: torch.arange(6).reshape(2, 3).to(getattr(torch, name)) for name in names.split()}
    path, written = exported(tmp_path, {"model": state}, ExportFormat.SAFETENSORS)
    found = library.load_file(path)
    assert written.left_out == ()
    for name, tensor in state.items():
        assert found[f"model.{name}"].dtype == tensor.dtype
        assert torch.equal(found[f"model.{name}"].view(torch.uint8), tensor.view(torch.uint8))


@pytest.mark.torch
def test_torch_loads_its_file_without_leave_to_run_code(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = {
        "model": model,
        "optimizer": optimizer,
        "column": np.asfortranarray(np.arange(6, dtype=">f8").reshape(2, 3)),
        "scalar": np.float32(1.5),
        "words": [np.array(["a"]), 1],
        "rng": (1, (2, None), b"x"),
    }
    path, written = exported(tmp_path, state, ExportFormat.TORCH)
    found = torch.load(path, weights_only=True)
    fresh = torch.nn.Linear(3, 2)
    fresh.load_state_dict(found["model"])
    assert torch.equal(fresh.weight, model.weight)
    torch.optim.AdamW(fresh.parameters()).load_state_dict(found["optimizer"])
    assert found["column"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["scalar"] == 1.5
    assert found["rng"] == (1, (2, None), b"x")
    assert found["words"] == [None, 1]
    assert [name for name, _ in written.left_out] == ["words.0"]
    assert written.size == path.stat().st_size


@pytest.mark.parametrize("as_format", [ExportFormat.SAFETENSORS, ExportFormat.TORCH, ExportFormat.DCP])
def test_a_damaged_checkpoint_leaves_no_file(tmp_path: Path, as_format: ExportFormat) -> None:
    CheckpointDirectory(tmp_path).write(encode_state({"w": np.ones(5_000)}), step=7)
    data = tmp_path / "step-7" / "data-00000.bin"
    target = tmp_path / "out"
    target.write_text("older")
    data.write_bytes(b"\x01" + data.read_bytes()[1:])
    with InspectedCheckpoint(tmp_path, 7) as checkpoint, pytest.raises(DamagedCheckpointError):
        export(checkpoint, target, as_format=as_format, overwrite=True)
    assert target.read_text() == "older"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "step-7"]


def test_a_file_that_appeared_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with pytest.raises(UsageError, match="is there already"):
        exported(tmp_path, {"w": np.ones(3)}, ExportFormat.SAFETENSORS, on_bytes=lambda _: target.write_text("theirs"))
    assert target.read_text() == "theirs"


def test_a_link_is_something_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="is there already"):
        exported(tmp_path, {"w": np.ones(3)}, ExportFormat.SAFETENSORS)
    with InspectedCheckpoint(tmp_path, 7) as checkpoint:
        export(checkpoint, tmp_path / "out", as_format=ExportFormat.SAFETENSORS, overwrite=True)
    assert not (tmp_path / "out").is_symlink()
    assert not (tmp_path / "elsewhere").exists()


def test_the_file_has_the_rights_of_any_new_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        path, _ = exported(tmp_path, {"w": np.ones(3)}, ExportFormat.SAFETENSORS)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_header_that_no_reader_takes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spotkeep.exchange.safetensors_files.MAX_HEADER_BYTES", 1000)
    with pytest.raises(UsageError, match="cannot hold this state"):
        exported(tmp_path, {"text": "x" * 1000}, ExportFormat.SAFETENSORS)
    assert not (tmp_path / "out").exists()


@given(
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    item=st.sampled_from(["u1", "u2", "u4", "u8"]),
    data=st.data(),
)
def test_any_order_of_the_dimensions_becomes_rows(shape: list[int], item: str, data: st.DataObject) -> None:
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    array = np.arange(np.prod(shape), dtype=item).reshape(shape)
    raw = array.transpose(order).tobytes()
    moved = np.ascontiguousarray(array.transpose(order)).transpose(np.argsort(order))
    strides = [stride // array.itemsize for stride in moved.strides]
    assert in_row_major(raw, shape=shape, strides=strides, item_bytes=array.itemsize) == array.tobytes()


@pytest.mark.parametrize("dtype", [">f4", "<f4", ">i8", ">u2", "|b1", ">c8"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (0, 2, 1)], ids=["C", "F", "columns of each matrix"])
def test_what_was_saved_leaves_as_others_read_it(tmp_path: Path, dtype: str, order: tuple[int, ...]) -> None:
    # More than one piece of it, so that no element is torn.
    array = np.arange(600_000).reshape(3, 40, -1).transpose(order).astype(dtype, order="C").transpose(np.argsort(order))
    CheckpointDirectory(tmp_path).write(encode_state({"x": b"odd", "w": array}), step=1)
    with InspectedCheckpoint(tmp_path, 1) as checkpoint:
        entry = checkpoint.entries()[1]
        found = array_of(checkpoint, entry)
        assert isinstance(found, Array)
        raw = b"".join(found.pieces())
    assert found.dtype == array.dtype.name
    assert raw == array.astype(array.dtype.newbyteorder("<")).tobytes()
