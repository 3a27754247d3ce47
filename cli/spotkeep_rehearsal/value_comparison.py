"""Compares files of two models by their content. A program of its own, for the Python of a job.

It reads files that a job wrote, so it runs as a child process. No code from a file runs unless the caller trusts the
files. Torch loads weights only then, and NumPy loads no pickles. Trusted files are those that the caller's own script
has just written, and they may be pickles, joblib's among them. Each format needs its library. All but pickles need
NumPy. Archives of torch need torch, HDF5 and Keras need h5py, and `.cbm` needs CatBoost.

Its input is one JSON object, `{"most_bytes": 1000, "pairs": [["model.pt", "path", "path of the other"], ...]}`, with
`trusted` and `most_shown` where they differ from their defaults. It answers one JSON object a line, a line for each
pair (see `compared`). NaN equals NaN. The first file is the one that differs from the second.

Sources:
    https://huggingface.co/docs/safetensors (8 bytes of length, a JSON header, the tensors)
    https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
    https://pytorch.org/docs/stable/generated/torch.load.html (weights_only)
    https://keras.io/guides/serialization_and_saving (a zip of config.json, model.weights.h5 and metadata.json)
    https://github.com/catboost/catboost/blob/master/catboost/libs/model/model.cpp (a flatbuffer behind `CBM1`)
    https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/protobuf/tensor_bundle.proto (.index, .data-)
"""

from __future__ import annotations

import importlib
import io
import json
import os
import pickle
import re
import resource
import struct
import sys
import types
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SHOWN = 5
"""The most differences of a file that are described, the largest ones."""
_MOST_MEMORY_BYTES = 32 << 30
_MOST_ANSWER_BYTES = 8 << 20
_LONGEST_NAME = 120
_PICKLES = (".pkl", ".pickle", ".joblib")
_DEEPEST = 200
_BEFORE_ZIP = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The first bytes of a torch archive before torch 1.6, a pickle of a magic number."""
_SAFETENSORS_TYPES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8",
    "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8", "C64": "<c8", "BF16": "<u2", "F8_E4M3": "u1",
    "F8_E5M2": "u1",
}  # fmt: skip


_OF_THE_TRAINING = ("catboost_version_info", "model_guid", "output_options", "params", "train_finish_time", "training")
"""The record of its training in a model of CatBoost, with a random id, times and folders.

No prediction follows from it.
"""


_BUNDLE = re.compile(r"\.(index|data-\d{5}-of-\d{5})$")
_BUNDLE_END = 0xDB4775248B80FB57.to_bytes(8, "little")
_BUNDLE_TYPES = {
    1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 5: "<i2", 6: "i1", 9: "<i8", 10: "?", 17: "<u2", 19: "<f2", 22: "<u4",
    23: "<u8",
}  # fmt: skip
_SAVES = "save_counter/.ATTRIBUTES/VARIABLE_VALUE"
"""TensorFlow's number of saves, which is one higher where a start saves what it has loaded."""


class IncomparableError(Exception):
    """A file cannot be compared by value. The message is a clause with the reason."""


class Tensor:
    """An array with the type name of its elements in the file. NumPy has no bfloat16.

    Args:
        array: The elements.
        type_name: For example `float32`.
    """

    def __init__(self, array: Any, type_name: str | None = None) -> None:
        self.array = array
        self.type_name = type_name or str(array.dtype)


class Element(float):
    """A number of a list of numbers, which is an array in plain Python."""


def main() -> None:
    """Answer the request on the standard input."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # What libraries print is no answer.
    os.dup2(2, 1)
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_DATA, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_ANSWER_BYTES, _MOST_ANSWER_BYTES))
    asked = json.load(sys.stdin)
    options = {name: asked[name] for name in ("most_bytes", "trusted", "most_shown") if name in asked}
    sys.path += asked.get("import_from", [])
    for name, one, other in asked["pairs"]:
        answers.write(json.dumps(compared(name, one, other, **options), allow_nan=False) + "\n")
        answers.flush()


def compared(
    name: str, one: str, other: str, *, most_bytes: int, trusted: bool = False, most_shown: int = SHOWN
) -> dict[str, Any]:
    """Compare two files.

    Args:
        name: The file's name.
        one: The path of the first one.
        other: The path of the second one.
        most_bytes: The most bytes to unpack.
        trusted: True if code from the files may run.
        most_shown: The most differences that are described.

    Returns:
        The file's name. Also the reason that it cannot be compared, or the number of differing values, the largest
        differences, and the number of arrays of floats that both files have.
    """
    try:
        values, others = (dict(_values_of(path, most_bytes=most_bytes, trusted=trusted)) for path in (one, other))
        found = [each for each in (_difference(key, values, others) for key in _all_keys(values, others)) if each]
    except IncomparableError as error:
        return {"name": name, "incomparable": str(error)}
    except Exception as error:  # noqa: BLE001 - whatever a library says of a stranger's file, the others are compared
        return {
            "name": name,
            "incomparable": f"{type(error).__name__}: {str(error).strip() or 'no reason given'}"[:300],
        }
    found.sort(
        key=lambda each: (each["what"] is not None, each["not_finite"] > 0, each["largest"] or 0.0), reverse=True
    )
    return {
        "name": name,
        "compared": len(_all_keys(values, others)),
        "differing": len(found),
        "differences": found[:most_shown],
        "arrays": sum(1 for key in values if key in others and _is_of_floats(values[key])),
    }


def _is_of_floats(value: Any) -> bool:
    if not isinstance(value, Tensor) or not value.array.ndim:
        return False
    # NumPy has no floats of eight bits.
    return value.array.dtype.kind in "fc" or value.type_name.startswith("F8")


def _is_alone(value: Any) -> bool:
    """Return True for a number or a text that is no part of an array."""
    if isinstance(value, Tensor):
        return not value.array.ndim and value.array.dtype.kind in "biuf"
    return value is None or (isinstance(value, (bool, int, float, str)) and not isinstance(value, Element))


def _all_keys(values: Mapping[str, Any], others: Mapping[str, Any]) -> list[str]:
    return sorted({*values, *others})


def _difference(key: str, values: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any] | None:
    described: dict[str, Any] = {
        "name": key if len(key) <= _LONGEST_NAME else f"{key[:_LONGEST_NAME]}...",
        "what": None,
        "values": 1,
        "changed": 1,
        "largest": None,
        "largest_relative": None,
        "not_finite": 0,
        "is_alone": all(_is_alone(each[key]) for each in (values, others) if key in each),
    }
    one, other = values.get(key), others.get(key)
    if key not in others or key not in values:
        return {**described, "what": "is missing" if key not in values else "is new"}
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        if isinstance(one, Tensor) or isinstance(other, Tensor):
            return {**described, "what": "is another kind of value"}
        if one == other or (one != one and other != other):
            return None
        numbers = all(isinstance(each, (int, float)) for each in (one, other))
        return {**described, "what": f"is {one!r}, not {other!r}"[:_LONGEST_NAME] if numbers else "is another value"}
    if one.type_name != other.type_name:
        return {**described, "what": f"has the type {one.type_name}, not {other.type_name}"}
    if one.array.shape != other.array.shape:
        return {**described, "what": f"has the shape {_shape(one)}, not {_shape(other)}"}
    distances = _distances(one.array, other.array)
    return {**described, **distances} if distances else None


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.array.shape)) or "of a number"


def _distances(one: Any, other: Any) -> dict[str, Any] | None:
    numpy = _module("numpy")
    changed = one != other
    if one.dtype.kind in "fc":
        changed = changed & ~((one != one) & (other != other))
    count = int(numpy.count_nonzero(changed))
    if not count:
        return None
    distances: dict[str, Any] = {"values": int(one.size), "changed": count}
    if one.dtype.kind in "iufc":
        # Wide enough for the difference of any two of 64 bits.
        wide = "c16" if one.dtype.kind == "c" else numpy.longdouble
        before, after = (numpy.atleast_1d(array)[numpy.atleast_1d(changed)].astype(wide) for array in (other, one))
        with numpy.errstate(all="ignore"):
            apart = numpy.abs(after - before)
            relative = apart / numpy.abs(before)
        distances["not_finite"] = int(numpy.count_nonzero(~numpy.isfinite(apart)))
        distances["largest"] = _largest(apart)
        distances["largest_relative"] = _largest(relative)
    return distances


def _largest(numbers: Any) -> float | None:
    numpy = _module("numpy")
    finite = numbers[numpy.isfinite(numbers)].astype("f8")
    finite = finite[numpy.isfinite(finite)]
    return float(finite.max()) if finite.size else None


def _values_of(path: str, *, most_bytes: int, trusted: bool) -> Iterator[tuple[str, Any]]:
    """Yield every value of a file, by name. The first bytes of the file show its format."""
    with Path(path).open("rb") as file:
        begins = file.read(len(_BEFORE_ZIP))
    if begins.startswith(b"\x93NUMPY"):
        yield "", Tensor(_module("numpy").load(path, mmap_mode="r", allow_pickle=False))
    elif begins.startswith(b"\x89HDF\r\n\x1a\n"):
        yield from _hdf5(path, most_bytes=most_bytes)
    elif begins.startswith(_BEFORE_ZIP):
        yield from _torch(path, trusted=trusted)
    elif begins.startswith(b"PK\x03\x04"):
        yield from _zipped(path, most_bytes=most_bytes, trusted=trusted)
    elif _BUNDLE.search(path):
        yield from _tensorflow(Path(_BUNDLE.sub(".index", path)))
    elif begins.startswith(b"CBM1"):
        yield from _catboost(path)
    elif begins[8:9] == b"{" and struct.unpack("<Q", begins[:8])[0] <= Path(path).stat().st_size:
        yield from _safetensors(path)
    elif trusted and (begins[:1] == b"\x80" or path.endswith(_PICKLES) or begins[:1] == b"\x78"):
        yield from _parts(_unpickled(path), "")
    elif trusted and begins[:1] in (b"{", b"["):
        yield from _parts(json.loads(Path(path).read_bytes()), "")
    else:
        raise IncomparableError("its format is none of torch, safetensors, NumPy, HDF5, Keras and CatBoost")


def _unpickled(path: str) -> Any:
    try:
        # joblib reads every pickle, and a plain one cannot be read by pickle where joblib wrote arrays into it.
        return importlib.import_module("joblib").load(path)
    except ImportError:
        with Path(path).open("rb") as file:
            return pickle.load(file)  # noqa: S301 - the caller's own script has just written it


def _parts(value: Any, place: str, above: tuple[int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the parts of an object as pickle would take it apart.

    An object in two places is taken apart in both. It may be one object in one run and two equal ones in the other.
    """
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        yield place, value
    elif id(value) in above or len(above) > _DEEPEST:
        yield place, "a part of itself"
    else:
        kind = type(value).__module__.partition(".")[0]
        if kind == "torch" and hasattr(value, "detach"):
            yield place, _of_torch(value, _module("torch"))
        elif kind == "numpy" and getattr(getattr(value, "dtype", None), "kind", "O") != "O":
            array = _module("numpy").asarray(value)
            for name in array.dtype.names or ("",):
                yield (f"{place}.{name}", Tensor(array[name])) if name else (place, Tensor(array))
        elif isinstance(value, (set, frozenset)):
            yield place, repr(sorted(map(repr, value)))
        elif isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)):
            yield place, getattr(value, "__qualname__", repr(value))
        else:
            for name, each in _inside(value):
                yield from _parts(each, f"{place}.{name}" if place else name, (*above, id(value)))


def _inside(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((str(key), each) for key, each in value.items())
    elif isinstance(value, (list, tuple)):
        numbers = len(value) > 1 and all(type(each) in (int, float) for each in value) and float in map(type, value)
        yield from ((str(number), Element(each) if numbers else each) for number, each in enumerate(value))
    else:
        reduced = value.__reduce_ex__(2)
        rest = reduced if isinstance(reduced, str) else [list(each) if _is_iterator(each) else each for each in reduced]
        yield type(value).__name__, rest


def _is_iterator(value: Any) -> bool:
    return isinstance(value, Iterator)


def _zipped(path: str, *, most_bytes: int, trusted: bool) -> Iterator[tuple[str, Any]]:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if sum(member.file_size for member in archive.infolist()) > most_bytes:
            raise IncomparableError(f"it holds more than {most_bytes:,} bytes")
        if any(name.rpartition("/")[-1] == "data.pkl" for name in names):
            yield from _torch(path, trusted=trusted)
        elif "model.weights.h5" in names:
            for name in names:
                if name == "model.weights.h5":
                    yield from _hdf5(io.BytesIO(archive.read(name)), most_bytes=most_bytes)
                elif name.endswith(".json"):
                    # metadata.json says when the file was written.
                    text = None if name == "metadata.json" else archive.read(name)
                    yield name, text and json.loads(text, object_hook=_without_addresses)
                else:
                    yield name, archive.read(name)
        elif names and all(name.endswith(".npy") for name in names):
            numpy = _module("numpy")
            for name in names:
                with archive.open(name) as member:
                    array = numpy.lib.format.read_array(member, allow_pickle=False)
                yield name[: -len(".npy")], Tensor(array)
        else:
            raise IncomparableError("it is a zip archive of something else than torch's, NumPy's or Keras's")


def _without_addresses(entry: dict[str, Any]) -> dict[str, Any]:
    """Leave out the address in memory that Keras writes beside an object that layers share."""
    return {name: value for name, value in entry.items() if name != "shared_object_id"}


def _safetensors(path: str) -> Iterator[tuple[str, Any]]:
    numpy = _module("numpy")
    content = numpy.memmap(path, mode="r", dtype="u1")
    (length,) = struct.unpack("<Q", content[:8].tobytes())
    header = json.loads(content[8 : 8 + length].tobytes())
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        type_name = tensor["dtype"]
        if type_name not in _SAFETENSORS_TYPES:
            raise IncomparableError(f"its {name} has the type {type_name}")
        start, end = (8 + length + offset for offset in tensor["data_offsets"])
        array = content[start:end].view(_SAFETENSORS_TYPES[type_name]).reshape(tensor["shape"])
        if type_name == "BF16":
            # The upper half of a float32.
            array = (array.astype("<u4") << 16).view("<f4")
        yield name, Tensor(array, type_name)


def _hdf5(source: Any, *, most_bytes: int) -> Iterator[tuple[str, Any]]:
    h5py = _module("h5py")
    numpy = _module("numpy")
    with h5py.File(source, "r") as file:
        found: list[tuple[str, Any]] = []
        file.visititems(lambda name, item: found.append((name, item)) if isinstance(item, h5py.Dataset) else None)
        if sum(item.nbytes for _, item in found) > most_bytes:
            raise IncomparableError(f"it holds more than {most_bytes:,} bytes")
        for name, item in found:
            if item.is_virtual or item.external:
                raise IncomparableError(f"its {name} is kept in another file")
            yield name, Tensor(numpy.asarray(item[()]))


def _tensorflow(index: Path) -> Iterator[tuple[str, Any]]:
    """Yield the values of a checkpoint of TensorFlow. Its index is a table of LevelDB without compression."""
    table = index.read_bytes()
    if table[-8:] != _BUNDLE_END:
        raise IncomparableError("its index is none of TensorFlow's")
    _, _, offset, size = _numbers(table, len(table) - 48, count=4)
    shards = 1
    for _, handle in _block(table, offset, size):
        start, length = _numbers(handle, 0, count=2)
        for key, entry in _block(table, start, length):
            fields = dict(_fields(entry))
            if not key:
                shards = fields.get(1, 1)
                continue
            name = key.decode("utf-8", "replace")
            if name == _SAVES:
                continue
            if 7 in fields:
                raise IncomparableError(f"its {name} is in slices")
            shard = index.with_suffix(f".data-{fields.get(3, 0):05d}-of-{shards:05d}")
            with shard.open("rb") as file:
                file.seek(fields.get(4, 0))
                content = file.read(fields.get(5, 0))
            kind = _BUNDLE_TYPES.get(fields.get(1, 0))
            if kind is None:
                yield name, content
            else:
                sizes = [dict(_fields(each)).get(1, 0) for number, each in _fields(fields.get(2, b"")) if number == 2]
                yield name, Tensor(_module("numpy").frombuffer(content, dtype=kind).reshape(sizes))


def _numbers(content: bytes, place: int, *, count: int) -> list[int]:
    """Read variable-length numbers."""
    found: list[int] = []
    while len(found) < count:
        number, place = _number(content, place)
        found.append(number)
    return found


def _number(content: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = content[place]
        number, shift, place = number | (byte & 0x7F) << shift, shift + 7, place + 1
        if byte < 0x80:
            return number, place


def _block(table: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block of LevelDB. A key begins with the shared part of the one before."""
    if table[offset + size]:
        raise IncomparableError("its index is compressed")
    block, place, key = table[offset : offset + size], 0, b""
    end = size - 4 - 4 * int.from_bytes(block[-4:], "little")
    while place < end:
        shared, place = _number(block, place)
        own, place = _number(block, place)
        length, place = _number(block, place)
        key = key[:shared] + block[place : place + own]
        place += own
        yield key, block[place : place + length]
        place += length


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the numbers and values of a protocol buffer's fields."""
    place = 0
    while place < len(message):
        tag, place = _number(message, place)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, place = _number(message, place)
            yield number, value
        elif kind == 2:
            length, place = _number(message, place)
            yield number, message[place : place + length]
            place += length
        else:
            place += 4 if kind == 5 else 8


def _catboost(path: str) -> Iterator[tuple[str, Any]]:
    model = _module("catboost").CatBoost().load_model(path)
    if model.get_text_feature_indices() or model.get_embedding_feature_indices():
        raise IncomparableError("it has features of text or embeddings, whose parts in the file have ids of chance")
    metadata = model.get_metadata()
    for name in _OF_THE_TRAINING:
        if name in metadata:
            del metadata[name]
    yield "the values of its leaves", Tensor(model.get_leaf_values())
    yield "all but the record of its training", model._serialize_model()


def _torch(path: str, *, trusted: bool) -> Iterator[tuple[str, Any]]:
    torch = _module("torch")
    if trusted:
        yield from _parts(torch.load(path, map_location="cpu", weights_only=False), "")
        return
    try:
        tree = torch.load(path, map_location="cpu", weights_only=True)
    except TypeError as error:
        raise IncomparableError(f"torch {torch.__version__} cannot load weights alone") from error
    except Exception as error:
        because = next((line for line in str(error).splitlines() if "GLOBAL" in line or "Unsupported" in line), "")
        raise IncomparableError(
            f"it is not of weights alone, and nothing else is loaded. {because}"[:300].rstrip()
        ) from error
    names: set[str] = set()
    for name, value in _leaves(tree, "", torch):
        if name in names:
            raise IncomparableError(f"two of its values are called {name}")
        names.add(name)
        yield name, value


def _leaves(value: Any, place: str, torch: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        yield place, _of_torch(value, torch)
    elif isinstance(value, (Mapping, list, tuple)):
        for key, each in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _leaves(each, f"{place}.{key}" if place else str(key), torch)
    else:
        yield place, value


def _of_torch(tensor: Any, torch: Any) -> Tensor:
    type_name = str(tensor.dtype).rpartition(".")[-1]
    dense = tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()
    if dense.is_quantized:
        dense = dense.dequantize()
    dense = dense.resolve_conj().resolve_neg()
    if dense.is_floating_point() and dense.dtype not in (torch.float16, torch.float32, torch.float64):
        # NumPy has no type of its own for these; each of their values is a float32.
        dense = dense.to(torch.float32)
    return Tensor(dense.numpy(), type_name)


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise IncomparableError(f"that needs {name}, which {sys.executable} has not") from error


if __name__ == "__main__":
    main()
