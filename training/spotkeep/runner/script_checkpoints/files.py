"""Tells if a framework's file is whole. A file of no known format is not judged."""

from __future__ import annotations

import re
from pathlib import Path

from .boosters import LIGHTGBM, UBJSON, begins_as_booster, booster_problem
from .containers import (
    COMPRESSED,
    HDF5,
    HEAD_BYTES,
    NPY,
    ZIP,
    compressed_problem,
    hdf5_problem,
    npy_problem,
    safetensors_problem,
    zeros_problem,
    zip_problem,
)
from .folder import place_of
from .pickles import PROTOCOLS, pickle_problem
from .reading import open_unnoticed

_PICKLES = (".pkl", ".pickle", ".joblib")
_BINARY = (
    ".h5",
    ".hdf5",
    ".keras",
    ".npz",
    ".npy",
    ".pt",
    ".pth",
    ".pth.tar",
    ".ckpt",
    ".safetensors",
    ".ubj",
    *_PICKLES,
)
"""The name endings of files that hold weights or a state, and are never empty."""
_OF_TORCH = re.compile(
    r"(pytorch_model|adapter_model|diffusion_pytorch_model|optimizer|scheduler|sampler|dl_state_dict|training_args)"
    r"([-_.][^/]*)?\.bin"
)
_COMPRESSED = (*_PICKLES, ".pkl.gz", ".npy.gz")
_BOOSTERS = re.compile(r".*\.(json|txt|model|xgb|bst|lgb|bin|deprecated|[0-9]+)|[^.]+|.*\.snapshot_iter_[0-9]+")
"""Names of XGBoost's and LightGBM's models, and of many other files. The content decides."""
_SHORTEST_BYTES = 22
"""The length of an empty zip file. A superblock is longer."""
_FIRST_BYTES = (b"\x80", b"x", b"\x1f")
"""Of a pickle, of zlib and of gzip."""
_BEGINNINGS = (HDF5, ZIP, NPY, UBJSON, LIGHTGBM)


def is_judged(name: str) -> bool:
    """Say whether the name is that of a file of weights or of a state, which `problem_of` judges."""
    return name.endswith(_BINARY) or _OF_TORCH.fullmatch(name) is not None or name.endswith(_COMPRESSED)


def problem_of(path: Path, *, name: str | None = None) -> str | None:
    """Say why a file is not whole. None for a whole one and for one that is not judged.

    Args:
        path: Its path.
        name: Its name, which decides its possible formats, if that is not the path's. A copy may have another.

    Raises:
        OSError: It cannot be read.
    """
    name = name or path.name
    judged = is_judged(name)
    if not judged and not _BOOSTERS.fullmatch(name):
        return None
    with open_unnoticed(path) as file:
        size = file.seek(0, 2)
        file.seek(0)
        head = file.read(HEAD_BYTES)
        if not judged:
            return zip_problem(file) if name.endswith(".bin") and head[:4] == ZIP else booster_problem(file, head, size)
        if not head.strip(b"\0"):
            return zeros_problem(file, size)
        if head in _FIRST_BYTES or (
            len(head) < _SHORTEST_BYTES and any(each.startswith(head[: len(each)]) for each in _BEGINNINGS)
        ):
            return "it ends in its first words"
        if head.startswith(HDF5):
            return hdf5_problem(file, head, size, kept_open=not place_of(Path(name).stem) and ".weights." not in name)
        if head.startswith(ZIP):
            return zip_problem(file)
        if head.startswith(NPY):
            return npy_problem(file, head, size)
        if name.endswith(".safetensors"):
            return safetensors_problem(file, head, size)
        if name.endswith(_PICKLES) and head.startswith(PROTOCOLS):
            return pickle_problem(file, size)
        if name.endswith(_COMPRESSED) and head.startswith(COMPRESSED):
            return compressed_problem(file)
        return booster_problem(file, head, size)


def may_be_booster(name: str) -> bool:
    """Say whether a model of XGBoost or LightGBM may have this name, and any other file."""
    return not is_judged(name) and _BOOSTERS.fullmatch(name) is not None


def ends_before_it_says_what_it_is(path: Path) -> bool:
    """Tell if a file is so short that it may be the beginning of a booster's model with a name of no format.

    Raises:
        OSError: It cannot be read.
    """
    with open_unnoticed(path) as file:
        head = file.read(len(UBJSON) + 1)
    beginnings = (UBJSON, LIGHTGBM, b'{"learner":{')
    return any(beginning.startswith(head) and beginning != head for beginning in beginnings)


def is_booster(path: Path) -> bool:
    """Say whether a file begins as a model of XGBoost or LightGBM.

    Raises:
        OSError: If it cannot be read.
    """
    with open_unnoticed(path) as file:
        return begins_as_booster(file.read(HEAD_BYTES))
