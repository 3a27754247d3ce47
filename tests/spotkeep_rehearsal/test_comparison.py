"""Pickles are compared only where the caller's own script has just written them."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.linear_model import SGDClassifier

from spotkeep_rehearsal.comparison import FileComparison, compare_files


def fitted(seed: int) -> SGDClassifier:
    draw = np.random.default_rng(0)
    model = SGDClassifier(random_state=seed, max_iter=5, tol=None)
    model.fit(draw.normal(size=(60, 4)), draw.integers(0, 2, 60))
    return model


def compared(folder: Path, one: object, other: object, *, form: str, trusted: bool = True) -> FileComparison:
    paths = [folder / f"{number}.{form}" for number in (1, 2)]
    for path, value in zip(paths, (one, other), strict=True):
        if form == "joblib":
            joblib.dump(value, path)
        else:
            path.write_bytes(pickle.dumps(value))
    (found,) = compare_files({"model": paths}, interpreter=sys.executable, path=os.defpath, trusted=trusted)
    return found


@pytest.mark.long
@pytest.mark.parametrize("form", ["pkl", "joblib"])
def test_estimators_are_compared_by_what_pickle_takes_apart(tmp_path: Path, form: str) -> None:
    assert compared(tmp_path, fitted(1), fitted(1), form=form).equal
    found = compared(tmp_path, fitted(1), fitted(2), form=form)
    assert any(difference.name.endswith("coef_") for difference in found.differences)


def test_states_in_dictionaries_name_what_differs(tmp_path: Path) -> None:
    betas = [0.9, 0.999]
    one: dict[str, object] = {"weights": np.zeros(3), "epoch": 3, "tags": {"a", "b"}, "betas": [betas, betas]}
    other = {**one, "epoch": 4, "betas": [[*betas], betas]}
    one["all"], other["all"] = one, other
    found = compared(tmp_path, one, other, form="pkl")
    assert [difference.name for difference in found.differences] == ["epoch"]


def test_numbers_alone_are_told_from_those_of_arrays_and_lists(tmp_path: Path) -> None:
    one = {"w": np.ones(3), "n": np.arange(3), "loss": 0.5, "mean": np.float32(2), "all": [0.1, 0.2], "raw": b"a"}
    other = {**one, "loss": 0.4, "mean": np.float32(3), "all": [0.1, 0.3], "raw": b"b", "new": "text"}
    found = compared(tmp_path, one, other, form="pkl")
    assert {each.name: each.is_alone for each in found.differences} == {
        "loss": True, "mean": True, "all.1": False, "raw": False, "new": True,
    }  # fmt: skip
    assert found.arrays == 1


def varint(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + varint(number >> 7)


def block(*entries: tuple[bytes, bytes]) -> bytes:
    rows = [varint(0) + varint(len(key)) + varint(len(value)) + key + value for key, value in entries]
    return b"".join(rows) + bytes(4) + (1).to_bytes(4, "little")


def write_bundle(folder: Path, weights: np.ndarray, saves: int) -> Path:
    """Write a checkpoint of TensorFlow with weights and the number of saves."""
    folder.mkdir()
    parts = [weights.astype("<f4").tobytes(), saves.to_bytes(8, "little")]
    (folder / "ckpt-1.data-00000-of-00001").write_bytes(b"".join(parts))
    size = b"\x08" + varint(len(weights))
    shape = b"\x12" + varint(len(size)) + size
    entries = [
        (b"", b"\x08\x01"),
        (b"model/w", b"\x08\x01\x12" + varint(len(shape)) + shape + b"\x28" + varint(len(parts[0]))),
        (
            b"save_counter/.ATTRIBUTES/VARIABLE_VALUE",
            b"\x08\x09\x12\x00\x20" + varint(len(parts[0])) + b"\x28\x08\x35abcd",
        ),
    ]
    data = block(*entries)
    index = block((b"z", varint(0) + varint(len(data))))
    end = varint(0) + varint(0) + varint(len(data) + 5) + varint(len(index))
    magic = 0xDB4775248B80FB57.to_bytes(8, "little")
    path = folder / "ckpt-1.index"
    path.write_bytes(data + bytes(5) + index + bytes(5) + end.ljust(40, b"\0") + magic)
    return path


def test_checkpoints_of_tensorflow_are_compared_by_value_without_their_number_of_saves(tmp_path: Path) -> None:
    one = write_bundle(tmp_path / "one", np.arange(200.0), saves=3)
    other = write_bundle(tmp_path / "other", np.arange(200.0), saves=4)
    changed = write_bundle(tmp_path / "changed", np.arange(200.0) + 0.5, saves=3)
    pairs = {
        "same": (one, other),
        "data": tuple(path.with_suffix(".data-00000-of-00001") for path in (one, other)),
        "changed": (one, changed),
    }
    found = compare_files(pairs, interpreter=sys.executable, path=os.defpath)
    assert [(each.incomparable, each.differing, each.arrays) for each in found] == [
        (None, 0, 1),
        (None, 0, 1),
        (None, 1, 1),
    ]
    assert found[2].differences[0].name == "model/w"
    assert found[2].differences[0].largest == 0.5


def test_no_code_of_a_stranger_runs(tmp_path: Path) -> None:
    found = compared(tmp_path, {"a": 1}, {"a": 2}, form="pkl", trusted=False)
    assert found.incomparable is not None
