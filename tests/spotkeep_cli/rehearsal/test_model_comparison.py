"""Files whose bytes differ are compared by what they hold, by a child process that runs none of the code in them."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import sys
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from spotkeep_cli.rehearsal.evidence import RunEvidence
from spotkeep_cli.rehearsal.model_comparison import (
    compare_models,
    hash_model_files,
    hash_of_hashes,
    interpreter_of,
    model_files_of,
)
from spotkeep_rehearsal import value_comparison
from spotkeep_rehearsal.comparison import MOST_FILE_BYTES, FileComparison, compare_files, comparison_of

WEIGHTS = {"kernel": np.arange(6, dtype="f4").reshape(2, 3), "bias": np.array([1.0, np.nan], dtype="f4")}


def written(tmp_path: Path, *contents: bytes) -> list[Path]:
    paths = [tmp_path / str(number) for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


def compared(tmp_path: Path, one: bytes, other: bytes) -> FileComparison:
    """Compare in this process, as the child process does."""
    paths = map(str, written(tmp_path, one, other))
    return comparison_of(value_comparison.compared("model", *paths, most_bytes=MOST_FILE_BYTES))


def npy(array: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def npz(arrays: dict[str, Any], *, year: int = 2026) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", (year, 1, 1, 0, 0, 0)), npy(array))
    return buffer.getvalue()


def safetensors(arrays: dict[str, tuple[str, list[int], bytes]], **metadata: str) -> bytes:
    header: dict[str, Any] = {"__metadata__": metadata}
    data = b""
    for name, (kind, shape, raw) in arrays.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def test_equal_values_in_other_bytes_are_equal_and_nan_equals_nan(tmp_path: Path) -> None:
    assert compared(tmp_path, npz(WEIGHTS), npz(WEIGHTS, year=2027)) == FileComparison(name="model", compared=2)


def test_the_tensors_that_differ_are_reported_the_worst_first_with_how_much(tmp_path: Path) -> None:
    one = {"kernel": WEIGHTS["kernel"] + np.float32(0.5), "bias": WEIGHTS["bias"].copy(), "scale": np.zeros(3)}
    one["bias"][0] = 3.0
    found = compared(tmp_path, npz(one), npz({**WEIGHTS, "scale": np.zeros(3)}))
    assert (found.compared, found.differing) == (3, 2)
    worst, next_ = found.differences
    assert (worst.name, worst.changed, worst.values, worst.largest, worst.largest_relative) == ("bias", 1, 2, 2.0, 2.0)
    assert (next_.name, next_.changed, next_.largest, next_.largest_relative) == ("kernel", 6, 0.5, 0.5)


def test_of_many_differences_the_worst_are_reported(tmp_path: Path) -> None:
    one, other = ({f"w{number}": np.full(2, number * factor) for number in range(1, 21)} for factor in (1.0, 2.0))
    found = compared(tmp_path, npz(one), npz(other))
    assert found.differing == 20
    assert [each.name for each in found.differences] == ["w20", "w19", "w18", "w17", "w16"]


@pytest.mark.parametrize(
    ("one", "what"),
    [
        ({"bias": WEIGHTS["bias"]}, "is missing"),
        ({**WEIGHTS, "kernel": WEIGHTS["kernel"].astype("f8")}, "has the type float64, not float32"),
        ({**WEIGHTS, "kernel": WEIGHTS["kernel"].reshape(3, 2)}, "has the shape 3x2, not 2x3"),
    ],
)
def test_another_shape_or_type_is_named(tmp_path: Path, one: dict[str, Any], what: str) -> None:
    (difference,) = compared(tmp_path, npz(one), npz(WEIGHTS)).differences
    assert (difference.name, difference.what) == ("kernel", what)


def test_what_is_not_a_number_in_one_only_is_counted(tmp_path: Path) -> None:
    (difference,) = compared(tmp_path, npy(np.array([np.nan, np.inf, 1.0])), npy(np.array([0.0, 0.0, 1.5]))).differences
    assert (difference.changed, difference.not_finite, difference.largest) == (3, 2, 0.5)


def test_whole_numbers_of_64_bits_differ_by_one(tmp_path: Path) -> None:
    one, other = (npy(np.array([2**63 - 1 - less, 0])) for less in (0, 1))
    (difference,) = compared(tmp_path, one, other).differences
    assert (difference.name, difference.largest, difference.changed) == ("", 1.0, 1)


def test_safetensors_differ_by_their_tensors_not_by_their_metadata(tmp_path: Path) -> None:
    half = np.array([1.5, -2.0], dtype="<f4").view("<u4") >> 16
    tensors = {"a": ("BF16", [2], half.astype("<u2").tobytes()), "b": ("F32", [1, 1], struct.pack("<f", 3))}
    assert compared(tmp_path, safetensors(tensors, when="now"), safetensors(tensors, when="then")).differing == 0
    other = {**tensors, "a": ("BF16", [2], (half + 1).astype("<u2").tobytes())}
    (difference,) = compared(tmp_path, safetensors(other), safetensors(tensors)).differences
    assert (difference.name, difference.changed, difference.largest) == ("a", 2, 2**-6)


@pytest.mark.parametrize(
    ("content", "because"),
    [
        (b'{"finished": 1}', "its format is none of torch, safetensors, NumPy, HDF5, Keras and CatBoost"),
        (pickle.dumps({"weights": [1.0]}), "its format is none of"),
        (npz({"a": np.zeros(1)})[:-30], "BadZipFile"),
        (npy(np.array([{}], dtype=object), allow_pickle=True), "ValueError"),
        (struct.pack("<Q", 8) + b"{" * 8, "JSONDecodeError"),
        (b"", "its format is none of"),
    ],
)
def test_what_cannot_be_compared_says_why_and_no_more(tmp_path: Path, content: bytes, because: str) -> None:
    found = compared(tmp_path, content, content + b" ")
    assert found.incomparable is not None
    assert because in found.incomparable
    assert found.differing == 0


def test_no_pickle_of_a_strangers_job_runs(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> Any:
            return (os.mkdir, (str(tmp_path / "harm"),))

    harmful = npy(np.array([Harmful()], dtype=object), allow_pickle=True)
    (found,) = compare_files(
        {"model": written(tmp_path, harmful, harmful)}, interpreter=sys.executable, path=os.defpath
    )
    assert "ValueError" in str(found.incomparable)
    assert not (tmp_path / "harm").exists()


def test_a_comparison_is_bounded_in_time_and_ends_with_its_reason(tmp_path: Path) -> None:
    paths = written(tmp_path, npy(np.zeros(1)), npy(np.ones(1)))
    (found,) = compare_files({"model": paths}, interpreter=sys.executable, path=os.defpath, most_seconds=0.001)
    assert found.incomparable == "the comparison took more than 0.001 s"
    (tmp_path / "broken").write_text("#!/bin/sh\necho no such library >&2\nexit 1\n")
    (tmp_path / "broken").chmod(0o755)
    for interpreter, because in (("broken", "broke off: no such library"), ("absent", "cannot be started")):
        (found,) = compare_files({"model": paths}, interpreter=str(tmp_path / interpreter), path=os.defpath)
        assert because in str(found.incomparable)


def test_the_python_is_the_jobs_own() -> None:
    assert Path(interpreter_of(["python", "train.py"])) == Path(sys.prefix) / "bin" / "python"
    assert Path(interpreter_of(["torchrun", "train.py"])) == Path(sys.prefix) / "bin" / "python3"
    assert interpreter_of([sys.executable, "train.py"]) == sys.executable
    assert interpreter_of(f"python prepare.py\n{sys.executable} train.py | tee log\n") == sys.executable
    assert Path(interpreter_of("cd src\ntorchrun train.py\n")) == Path(sys.prefix) / "bin" / "python3"


def hdf5(weights: dict[str, Any]) -> bytes:
    h5py = pytest.importorskip("h5py")
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", track_order=True) as file:
        for name, value in weights.items():
            file.create_dataset(f"layers/{name}", data=value)
    return buffer.getvalue()


def test_hdf5_is_compared_by_its_datasets(tmp_path: Path) -> None:
    turned = dict(reversed(WEIGHTS.items()))
    assert compared(tmp_path, hdf5(WEIGHTS), hdf5(turned)) == FileComparison(name="model", compared=2)
    (difference,) = compared(tmp_path, hdf5({**WEIGHTS, "bias": np.zeros(2, "f4")}), hdf5(WEIGHTS)).differences
    assert (difference.name, difference.changed, difference.not_finite) == ("layers/bias", 2, 1)


def test_keras_is_compared_by_weights_and_configuration_whenever_it_was_written(tmp_path: Path) -> None:
    def keras(weights: dict[str, Any], *, when: str = "now", units: int = 3, **address: int) -> bytes:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("metadata.json", json.dumps({"date_saved": when}))
            archive.writestr("config.json", json.dumps({"layers": [{"units": units, "dtype": address}]}))
            archive.writestr("model.weights.h5", hdf5(weights))
        return buffer.getvalue()

    assert compared(tmp_path, keras(WEIGHTS), keras(WEIGHTS, when="then")).differing == 0
    # Where an object that layers share lay in memory; a model that was loaded from a file shares none.
    assert compared(tmp_path, keras(WEIGHTS), keras(WEIGHTS, shared_object_id=139907454574928)).differing == 0
    (difference,) = compared(tmp_path, keras(WEIGHTS), keras(WEIGHTS, units=4)).differences
    assert (difference.name, difference.what) == ("config.json", "is another value")


@pytest.mark.torch
@pytest.mark.boosters
def test_catboost_is_compared_by_its_trees_whenever_they_were_trained(tmp_path: Path) -> None:
    catboost = pytest.importorskip("catboost")

    def trained(seed: int = 0, *, texts: bool = False) -> bytes:
        rows = np.random.default_rng(0).normal(size=(200, 2))
        said = np.where(rows > 0, "more than nothing", "nothing at all")
        data = catboost.Pool(said if texts else rows, rows[:, 0] > 0, text_features=[0, 1] if texts else None)
        model = catboost.CatBoostClassifier(
            iterations=2, random_seed=seed, verbose=False, thread_count=1, allow_writing_files=False
        )
        model.fit(data).save_model(str(tmp_path / "model.cbm"))
        return (tmp_path / "model.cbm").read_bytes()

    one, other = trained(), trained()
    assert one != other
    assert compared(tmp_path, one, other) == FileComparison(name="model", compared=2)
    found = compared(tmp_path, one, trained(seed=1))
    assert found.differing == 2
    assert found.differences[1].name == "the values of its leaves"
    assert found.differences[1].changed > 0
    assert "features of text" in (compared(tmp_path, trained(texts=True), one).incomparable or "")


def test_two_processes_of_one_training_save_equal_weights_in_other_bytes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tensors = {
        "weight": torch.tensor([[1.0, float("nan")]]),
        "half": torch.tensor([1.5], dtype=torch.bfloat16),
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "lr": 0.1, "name": "adam"},
    }
    turned = {name: tensors[name] for name in reversed(tensors)}

    def saved(tree: Any, **options: Any) -> bytes:
        buffer = io.BytesIO()
        torch.save(tree, buffer, **options)
        return buffer.getvalue()

    one, other = saved(tensors), saved(turned)
    assert one != other
    assert compared(tmp_path, one, other) == FileComparison(name="model", compared=5)
    assert compared(tmp_path, one, saved(tensors, _use_new_zipfile_serialization=False)).compared == 5
    lost = {**tensors, "half": tensors["half"] + 1, "optimizer": {**tensors["optimizer"], "lr": 0.2}}
    rate, half = compared(tmp_path, saved(lost), other).differences
    assert (rate.name, rate.what) == ("optimizer.lr", "is 0.2, not 0.1")
    assert (half.name, half.changed, half.largest) == ("half", 1, 1.0)

    module = compared(tmp_path, saved(torch.nn.Linear(1, 1)), saved(torch.nn.Linear(1, 1)))
    assert "it is not of weights alone" in str(module.incomparable)
    assert "torch.nn" in str(module.incomparable)


def test_files_of_both_archives_are_taken_out_and_compared() -> None:
    def model(arrays: dict[str, Any], **others: bytes) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            for name, content in {"./sub/model.npz": npz(arrays), **others}.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        return buffer.getvalue()

    objects = {"a": model(WEIGHTS, log=b"1"), "b": model({**WEIGHTS, "bias": np.zeros(2, "f4")}, log=b"22", same=b"")}
    s3 = SimpleNamespace(get_object=lambda Bucket, Key: {"Body": io.BytesIO(objects[Key])})  # noqa: N803
    run_items: Any = {
        run: SimpleNamespace(output_uri=f"s3://bucket/{run}", request={"command": ["python", "train.py"]})
        for run in "ab"
    }
    evidence = [
        RunEvidence(
            run=run,
            state="COMPLETED",
            failure=None,
            attempts=1,
            lives=(),
            model_files=hash_model_files(io.BytesIO(objects[run])),
        )
        for run in "ab"
    ]
    log, weights = compare_models(*evidence, records=run_items, s3=s3)  # type: ignore[arg-type]
    assert (log.name, bool(log.incomparable)) == ("log", True)
    assert (weights.name, weights.differing) == ("sub/model.npz", 1)


def archive(files: dict[str, bytes], *, mtime: int = 0) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), mtime
            tar.addfile(member, io.BytesIO(content))
    buffer.seek(0)
    return buffer


def test_the_archives_timestamps_and_order_do_not_matter() -> None:
    first = hash_model_files(archive({"./a": b"1", "b/c": b"2"}, mtime=1))
    second = hash_model_files(archive({"b/c": b"2", "a": b"1"}, mtime=2))
    assert first == second
    assert hash_of_hashes(first) == hash_of_hashes(second)


def test_one_flipped_byte_changes_the_hash_of_its_file_alone() -> None:
    first = hash_model_files(archive({"a": b"1", "b": b"2"}))
    second = hash_model_files(archive({"a": b"1", "b": b"3"}))
    assert [name for name in first if first[name] != second[name]] == ["b"]
    assert hash_of_hashes(first) != hash_of_hashes(second)


def test_the_files_are_those_of_the_archive_in_s3() -> None:
    def download(bucket: str, key: str, file: io.BytesIO) -> None:
        assert (bucket, key) == ("models", "run/model.tar.gz")
        file.write(archive({"./weights.npy": b"abc"}).read())

    s3: Any = SimpleNamespace(download_fileobj=download)
    found = model_files_of("s3://models/run/model.tar.gz", s3)
    assert {name: file.size_bytes for name, file in found.items()} == {"weights.npy": 3}


def test_no_model_has_no_files_and_no_hash() -> None:
    s3: Any = None
    assert model_files_of(None, s3) == {}
    assert hash_of_hashes({}) is None


def test_what_is_no_archive_is_refused() -> None:
    with pytest.raises(tarfile.TarError):
        hash_model_files(io.BytesIO(b"not an archive"))
