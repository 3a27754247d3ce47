"""NumPy arrays and torch tensors as raw bytes and back, without importing either before they are needed.

A value can only be an array or a tensor when its library is already imported, so saving looks into `sys.modules`;
loading imports the library that the checkpoint names, because the state could not be given back without it.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import sys
from typing import Any, Union

from .errors import MissingLibraryError

Buffer = Union[bytes, bytearray, memoryview]

_MAX_DIMENSIONS = 64
_TORCH_DTYPES = frozenset(
    (
        *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
        *("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    )
)


class UnsupportedArrayError(Exception):
    """An array or tensor has a type that raw bytes cannot carry; the message says which."""


class InvalidArrayError(Exception):
    """A stored description of an array makes no sense; the message says why."""


def is_numpy_array(value: Any) -> bool:
    """Say whether this is a plain NumPy array (a memory map counts, other subclasses do not)."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and (type(value) is numpy.ndarray or isinstance(value, numpy.memmap))


def is_numpy_scalar(value: Any) -> bool:
    """Say whether this is a NumPy scalar such as `numpy.float32(1)`."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


def is_torch_tensor(value: Any) -> bool:
    """Say whether this is a torch tensor or parameter."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def dump_numpy(array: Any) -> tuple[dict[str, Any], Buffer]:
    """Describe a NumPy array or scalar and give its raw bytes.

    Raises:
        UnsupportedArrayError: If its elements are Python objects, or a type that its description would not restore.
    """
    import numpy as np

    array = np.asarray(array)
    dtype = array.dtype
    if dtype.hasobject:
        raise UnsupportedArrayError(
            f"an array of dtype {dtype} holds Python objects, which cannot be stored as raw bytes: "
            "convert it to numbers or fixed-length strings, or keep the values in a list"
        )
    description = dtype.descr if dtype.names else dtype.str
    if np.dtype(description) != dtype:
        raise UnsupportedArrayError(
            f"an array of dtype {dtype} cannot be described portably: convert it to a plain dtype first"
        )
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    # The order in memory decides the order of summation, and with it the last bit of a result.
    raw = np.ascontiguousarray(array.T if fortran else array).reshape(-1)
    meta = {"dtype": description, "shape": list(array.shape), "order": "F" if fortran else "C"}
    return meta, (raw.view(np.uint8).data if raw.nbytes else b"")


def load_numpy(meta: dict[str, Any], raw: Buffer) -> Any:
    """Give back the array that `dump_numpy` described.

    Raises:
        InvalidArrayError: If the description makes no sense or does not match the number of bytes.
    """
    np = _import("numpy", needed_for="arrays")
    shape = _shape(meta)
    order = meta.get("order")
    if order not in ("C", "F"):
        raise InvalidArrayError(f"an array's order is {order!r}, neither C nor F")
    try:
        description = meta["dtype"]
        dtype = np.dtype(description if isinstance(description, str) else _descr(description))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidArrayError(f"an array's dtype cannot be read: {error}") from error
    if dtype.hasobject:
        raise InvalidArrayError("an array's dtype holds Python objects, which a checkpoint never does")
    if math.prod(shape) * dtype.itemsize != len(raw):
        raise InvalidArrayError(f"an array of shape {shape} and dtype {dtype} does not have {len(raw)} bytes")
    try:
        array = np.empty(shape, dtype=dtype, order=order)
    except (ValueError, OverflowError, MemoryError) as error:
        raise InvalidArrayError(f"an array of shape {shape} cannot be made: {error}") from error
    if len(raw):
        flat = np.frombuffer(raw, dtype=dtype)
        array[...] = flat.reshape(shape[::-1]).T if order == "F" else flat.reshape(shape)
    return array


def dump_torch(tensor: Any) -> tuple[dict[str, Any], Buffer]:
    """Describe a torch tensor and give its raw bytes. It comes back on the CPU, without `requires_grad`.

    Raises:
        UnsupportedArrayError: If the tensor is sparse, quantized, on the meta device, or of an unknown dtype.
    """
    torch = sys.modules["torch"]
    dtype = str(tensor.dtype).replace("torch.", "", 1)
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta or dtype not in _TORCH_DTYPES:
        raise UnsupportedArrayError(
            f"a tensor of dtype {dtype}, layout {tensor.layout}, device {tensor.device} cannot be stored as raw "
            "bytes: make it a dense tensor first"
        )
    _require_little_endian()
    dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    size = dense.numel() * dense.element_size()
    if not size:
        return {"dtype": dtype, "shape": list(tensor.shape)}, b""
    raw = (ctypes.c_char * size).from_address(dense.data_ptr())
    raw.keeps_alive = dense  # the memory belongs to the tensor
    return {"dtype": dtype, "shape": list(tensor.shape)}, memoryview(raw).cast("B")


def load_torch(meta: dict[str, Any], raw: Buffer) -> Any:
    """Give back the tensor that `dump_torch` described, on the CPU.

    Raises:
        InvalidArrayError: If the description makes no sense or does not match the number of bytes.
    """
    torch = _import("torch", needed_for="tensors")
    _require_little_endian()
    shape, name = _shape(meta), meta.get("dtype")
    dtype = getattr(torch, name, None) if isinstance(name, str) and name in _TORCH_DTYPES else None
    if dtype is None:
        raise InvalidArrayError(f"a tensor's dtype is {name!r}, which this torch does not know")
    if math.prod(shape) * dtype.itemsize != len(raw):
        raise InvalidArrayError(f"a tensor of shape {shape} and dtype {name} does not have {len(raw)} bytes")
    try:
        if not len(raw):
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(bytearray(raw), dtype=dtype).reshape(shape)
    except (RuntimeError, OverflowError, TypeError) as error:
        raise InvalidArrayError(f"a tensor of shape {shape} cannot be made: {error}") from error


def _shape(meta: dict[str, Any]) -> list[int]:
    shape = meta.get("shape")
    if (
        not isinstance(shape, list)
        or len(shape) > _MAX_DIMENSIONS
        or not all(type(size) is int and 0 <= size < 2**63 for size in shape)
    ):
        raise InvalidArrayError(f"an array's shape is {shape!r}, not a list of sizes")
    return shape


def _descr(description: Any) -> Any:
    """JSON turns the tuples of a structured dtype into lists; NumPy wants the tuples."""
    if not isinstance(description, list):
        raise TypeError(f"a structured dtype is {description!r}, not a list of fields")
    fields = []
    for field in description:
        if not isinstance(field, list) or len(field) not in (2, 3):
            raise TypeError(f"a field of a structured dtype is {field!r}")
        name, kind = field[0], field[1]
        name = tuple(name) if isinstance(name, list) else name
        kind = kind if isinstance(kind, str) else _descr(kind)
        fields.append((name, kind, *(tuple(shape) for shape in field[2:])))
    return fields


def _import(name: str, *, needed_for: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingLibraryError(
            f"the checkpoint holds {needed_for}, and {name} is not installed here ({error}); use an image that has it"
        ) from error


def _require_little_endian() -> None:
    if sys.byteorder != "little":
        raise UnsupportedArrayError("tensors are stored little-endian, and this machine is big-endian")
