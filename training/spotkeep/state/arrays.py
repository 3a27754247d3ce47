"""NumPy arrays and torch tensors as raw bytes and back. Neither library is imported before it is needed.

A value can only be an array or a tensor when its library is already imported, so a save looks into `sys.modules`. A
load imports the library that the checkpoint names, because the state needs it.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib
import math
import re
import sys
from collections.abc import Sequence
from typing import Any, Callable, Union

from spotkeep.errors import MissingLibraryError
from spotkeep.loaded import loaded

Buffer = Union[bytes, bytearray, memoryview]

_MAX_DIMENSIONS = 64
_DTYPE = re.compile(r"[<>|][a-zA-Z][0-9]*(\[[0-9]*[a-zA-Z]+\])?")
"""The form of `dtype.str`, which gives the order of bytes, a kind, a size, and the unit of a time."""
_TORCH_DTYPES = frozenset(
    (
        *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
        *("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    )
)


class UnsupportedArrayError(Exception):
    """An array or tensor has a type that raw bytes cannot carry. The message names the type."""


class InvalidArrayError(Exception):
    """A stored description of an array makes no sense. The message says why."""


def is_numpy_array(value: Any) -> bool:
    """Say whether this is a plain NumPy array (a memory map counts, other subclasses do not)."""
    numpy = loaded("numpy")
    return numpy is not None and (type(value) is numpy.ndarray or isinstance(value, numpy.memmap))


def is_numpy_scalar(value: Any) -> bool:
    """Say whether this is a NumPy scalar such as `numpy.float32(1)`."""
    numpy = loaded("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


def is_torch_tensor(value: Any) -> bool:
    """Say whether this is a torch tensor or parameter."""
    torch = loaded("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_wrapper(tensor: Any) -> bool:
    """Tell if a tensor has a class of its own, with its memory anywhere."""
    torch = sys.modules["torch"]
    return type(tensor) not in (torch.Tensor, torch.nn.Parameter)


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
    # The order in memory decides the order of summation, and with it the last bit of a result.
    order = _numpy_order(array)
    raw = np.ascontiguousarray(_in_order(array, order)).reshape(-1)
    meta = {"dtype": description, "shape": list(array.shape), "order": order}
    return meta, (raw.view(np.uint8).data if raw.nbytes else b"")


def new_numpy(meta: dict[str, Any], size: int, *, like: Any = None) -> Any:
    """Give an array for a description of `dump_numpy`.

    An array `like` of the same form is reused, and otherwise a new one is made.

    Raises:
        InvalidArrayError: The description makes no sense or does not match the number of bytes.
    """
    np = _import("numpy", needed_for="arrays")
    shape = _shape(meta)
    order = meta.get("order")
    if order not in ("C", "F"):
        order = _permutation(order, len(shape))
    dtype = _numpy_dtype(meta)
    if math.prod(shape) * dtype.itemsize != size:
        raise InvalidArrayError(f"an array of shape {shape} and dtype {dtype} does not have {size} bytes")
    alike = is_numpy_array(like) and like.dtype == dtype and list(like.shape) == shape and like.flags.writeable
    if alike and _in_order(like, order).flags.c_contiguous:
        return like
    try:
        if isinstance(order, list):
            return np.empty([shape[axis] for axis in order], dtype=dtype).transpose(_inverse(order))
        return np.empty(shape, dtype=dtype, order=order)
    except (ValueError, OverflowError, MemoryError) as error:
        raise InvalidArrayError(f"an array of shape {shape} cannot be made: {error}") from error


def item_bytes(kind: str, meta: dict[str, Any]) -> int:
    """Give the size of an element, for a description of `dump_numpy` or `dump_torch`.

    Raises:
        InvalidArrayError: The description makes no sense.
    """
    size: int = (_torch_dtype(meta) if kind == "tensor" else _numpy_dtype(meta)).itemsize
    return size


def array_shape(meta: dict[str, Any]) -> tuple[int, ...]:
    """Give the shape that a description says.

    Raises:
        InvalidArrayError: It makes no sense.
    """
    return tuple(_shape(meta))


def array_order(meta: dict[str, Any]) -> list[int] | None:
    """Give the dimensions as they lie in memory, the outermost first. None for C order.

    Raises:
        InvalidArrayError: The description makes no sense.
    """
    order = meta.get("order", "C")
    dimensions = len(_shape(meta))
    if order == "F":
        return list(reversed(range(dimensions)))
    return None if order == "C" else _permutation(order, dimensions)


def array_over(kind: str, meta: dict[str, Any], raw: Buffer) -> Any:
    """Give an array or tensor with these bytes as its memory, for a description of `dump_numpy` or `dump_torch`."""
    shape, order = _shape(meta), array_order(meta)
    there = shape if order is None else [shape[axis] for axis in order]
    if kind == "tensor":
        torch = _import("torch", needed_for="tensors")
        found = torch.frombuffer(raw, dtype=torch.uint8).view(_torch_dtype(meta)).view(there)
        return found if order is None else found.permute(_inverse(order))
    found = numpy_for("arrays").frombuffer(raw, dtype=_numpy_dtype(meta)).reshape(there)
    return found if order is None else found.transpose(_inverse(order))


def here(array: Any) -> Any:
    """Give an array or tensor on the CPU. One that is there already is given itself."""
    return array.cpu() if is_torch_tensor(array) else array


def bytes_in_c_order(array: Any) -> Buffer:
    """Give the elements of an array or tensor in C order, on the CPU."""
    if is_torch_tensor(array):
        return torch_bytes(here(array.detach()).contiguous())
    return memoryview(numpy_for("arrays").ascontiguousarray(array).reshape(-1).view("u1").data)


def new_empty(kind: str, dtype: str, shape: Sequence[int]) -> Any:
    """Give an array or tensor on the CPU, with memory that is not filled."""
    if kind == "tensor":
        return _import("torch", needed_for="tensors").empty(tuple(shape), dtype=_torch_dtype({"dtype": dtype}))
    return numpy_for("arrays").empty(tuple(shape), dtype=dtype)


def numpy_order(order: Sequence[int] | None) -> str | list[int]:
    """Give the order of dimensions as `dump_numpy` describes it."""
    if order is None or list(order) == sorted(order):
        return "C"
    return "F" if list(order) == sorted(order, reverse=True) else list(order)


def numpy_for(purpose: str) -> Any:
    """Give the library NumPy.

    Raises:
        MissingLibraryError: It is not installed.
    """
    return _import("numpy", needed_for=purpose)


def empty_like(array: Any) -> Any:
    """Give a new array of NumPy with the form of another one, in C order."""
    return sys.modules["numpy"].empty(array.shape, array.dtype)


def numpy_bytes(array: Any, order: str | list[int]) -> memoryview:
    """Give the memory of an array that `new_numpy` gave, to be filled."""
    np = sys.modules["numpy"]
    flat = _in_order(array, order).reshape(-1)
    return memoryview(flat.view(np.uint8).data if array.nbytes else b"")


def _numpy_dtype(meta: dict[str, Any]) -> Any:
    np = _import("numpy", needed_for="arrays")
    try:
        description = meta["dtype"]
        dtype = np.dtype(_spelling(description) if isinstance(description, str) else _descr(description))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InvalidArrayError(f"an array's dtype cannot be read: {error}") from error
    if dtype.hasobject:
        raise InvalidArrayError("an array's dtype holds Python objects, which a checkpoint never does")
    return dtype


def _numpy_order(array: Any) -> str | list[int]:
    if array.flags.c_contiguous or not array.nbytes:
        return "C"
    if array.flags.f_contiguous:
        return "F"
    # In bytes: a field of a structured array may begin anywhere.
    return _memory_order(array.shape, array.strides, step=array.itemsize) or "C"


def _in_order(array: Any, order: str | list[int]) -> Any:
    """Give a view with the order of the memory as its C order."""
    return array if order == "C" else array.T if order == "F" else array.transpose(order)


def _memory_order(shape: Sequence[int], strides: Sequence[int], *, step: int = 1) -> list[int] | None:
    """Give the dimensions as they lie in memory, the outermost first.

    None where that is their own order, or where the elements do not fill a piece of memory.
    """
    # A dimension of one element has a stride that says nothing. Among equal strides it lies innermost, where
    # torch's `channels_last` has it.
    order = sorted(range(len(shape)), key=lambda axis: (-strides[axis], shape[axis] == 1))
    expected = step
    for axis in reversed(order):
        if shape[axis] != 1 and strides[axis] != expected:
            return None
        expected *= shape[axis]
    return None if order == list(range(len(shape))) else order


def _permutation(order: Any, dimensions: int) -> list[int]:
    if not isinstance(order, list) or not all(type(axis) is int for axis in order):
        raise InvalidArrayError(f"an array's order is {order!r}, neither C nor F nor a list of its dimensions")
    if sorted(order) != list(range(dimensions)):
        raise InvalidArrayError(f"an array's order is {order}, which are not its {dimensions} dimensions")
    return order


def _inverse(order: list[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


class DeviceBytes:
    """The raw bytes of a dense tensor that is on a GPU, as many as `len` says."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def part(self, start: int, end: int) -> DeviceBytes:
        """Give the bytes between two places."""
        return DeviceBytes(self.flat()[start:end])

    def flat(self) -> Any:
        """Give them as a tensor of bytes."""
        torch: Any = sys.modules["torch"]
        return self._tensor.reshape(-1).view(torch.uint8)

    def __len__(self) -> int:
        size: int = self._tensor.numel() * self._tensor.element_size()
        return size

    def start_copy(self, target: memoryview) -> Callable[[], None]:
        """Begin to copy the bytes to memory. Gives a function that waits for all copies from this GPU."""
        torch: Any = sys.modules["torch"]
        raw = self._tensor.reshape(-1).view(torch.uint8)
        torch.frombuffer(target, dtype=torch.uint8).copy_(raw, non_blocking=True)

        def wait() -> None:
            torch.cuda.current_stream(self._tensor.device).synchronize()

        return wait

    def fetch(self) -> Buffer:
        """Give the bytes now."""
        return torch_bytes(self._tensor.cpu())

    @property
    def device(self) -> Any:
        """The GPU they are on."""
        return self._tensor.device

    @property
    def address(self) -> tuple[str, int]:
        """The address of the first byte."""
        return (str(self._tensor.device), self._tensor.data_ptr())

    def sums(self) -> Any:
        """Add the bytes up on the GPU, first the columns of a table of 64-bit words, then the rest."""
        torch: Any = sys.modules["torch"]
        raw = self._tensor.reshape(-1).view(torch.uint8)
        row_bytes = 8 * _WORDS_IN_A_ROW
        rows = raw.numel() // row_bytes
        if not rows:
            return raw
        table = raw[: rows * row_bytes].view(rows, row_bytes)
        if table.storage_offset() % 8 or table.data_ptr() % 8:
            table = table.clone()
        # The sums are modulo 2^64, so their order does not matter.
        return torch.cat([table.view(torch.int64).sum(0).view(torch.uint8), raw[rows * row_bytes :]])


def part_of(raw: Buffer | DeviceBytes, start: int, end: int) -> Buffer | DeviceBytes:
    """Give the bytes between two places. Nothing is copied."""
    return raw.part(start, end) if isinstance(raw, DeviceBytes) else memoryview(raw)[start:end]


def host_bytes(raw: Buffer | DeviceBytes) -> Buffer:
    """Give bytes that may be on a GPU as bytes that are here."""
    return raw.fetch() if isinstance(raw, DeviceBytes) else raw


_WORDS_IN_A_ROW = 511
"""No power of two, so that a value that moves among equal ones changes another sum."""


_JOINED_BYTES = 64 * 2**20
"""So many bytes are copied into one piece on a GPU."""


def joined_device_digests(raws: Sequence[DeviceBytes]) -> list[str]:
    """Give digests of many small pieces, joined on their GPU. A kernel for each piece would take longer."""
    if not raws:
        return []
    torch: Any = sys.modules["torch"]
    groups: list[list[DeviceBytes]] = []
    room = 0
    for raw in raws:
        if not groups or raw.device != groups[-1][0].device or len(raw) > room:
            groups.append([])
            room = _JOINED_BYTES
        groups[-1].append(raw)
        room -= len(raw)
    return device_digests([DeviceBytes(torch.cat([raw.flat() for raw in group])) for group in groups])


def device_digests(raws: Sequence[DeviceBytes]) -> list[str]:
    """Give a digest of each, added up on its GPU. Equal bytes have equal digests."""
    if not raws:
        return []
    torch: Any = sys.modules["torch"]
    sums: dict[Any, list[tuple[int, Any]]] = {}
    for index, raw in enumerate(raws):
        sums.setdefault(raw.device, []).append((index, raw.sums()))
    digests = [""] * len(raws)
    for parts in sums.values():
        fetched = torch_bytes(torch.cat([part for _, part in parts]).cpu())
        start = 0
        for index, part in parts:
            end = start + part.numel()
            digests[index] = hashlib.blake2b(fetched[start:end], digest_size=8).hexdigest()
            start = end
    return digests


def address_of(value: Any) -> tuple[str, int] | None:
    """Give the address of a tensor's memory, or of the bytes that `dump_torch` gave for it. None without memory."""
    if isinstance(value, DeviceBytes):
        return value.address
    if isinstance(value, memoryview):
        return None if value.readonly or not value.nbytes else ("cpu", ctypes.addressof(_first_byte(value)))
    value = getattr(value, "_local_tensor", value)  # of a tensor that is divided among ranks
    if not is_torch_tensor(value) or not value.numel() or not (value.is_cpu or value.is_cuda):
        return None
    return (str(value.device), value.data_ptr())


def storage_of(raw: Buffer | DeviceBytes) -> Any:
    """Give torch's storage of bytes that `dump_torch` gave for a tensor on the CPU. None for other bytes.

    It keeps the memory when the script gives the tensor another one, but for a move of the storage itself.
    """
    tensor = getattr(raw.obj, "keeps_alive", None) if isinstance(raw, memoryview) else None
    return None if tensor is None else tensor.untyped_storage()


def _first_byte(raw: memoryview) -> ctypes.c_char:
    return ctypes.c_char.from_buffer(raw)


def dump_torch(tensor: Any) -> tuple[dict[str, Any], Buffer | DeviceBytes]:
    """Describe a torch tensor and give its raw bytes. It comes back on the CPU, without `requires_grad`.

    Raises:
        UnsupportedArrayError: If the tensor is sparse, nested, quantized, on the meta device, divided among ranks, of
            an unknown dtype, or without own memory.
    """
    torch = sys.modules["torch"]
    dtype = dtype_name(tensor.dtype)
    dense, order = tensor, None
    # Nearly all are plain. A state has thousands of them, and describing each holds the training up.
    if dtype not in _TORCH_DTYPES or not _is_plain(tensor, torch):
        if is_wrapper(tensor) and torch.nn.parameter.is_lazy(tensor):
            raise UnsupportedArrayError(
                "a parameter of a lazy module has no shape yet: give the module a batch before this point, so that it "
                "makes its parameters"
            )
        _refuse_what_is_not_dense(tensor, dtype, torch)
        dense = tensor.detach().resolve_conj().resolve_neg()
        order = torch_order(dense)
        dense = dense.contiguous() if order is None else dense.permute(order)
    meta: dict[str, Any] = {"dtype": dtype, "shape": list(tensor.shape)}
    if order is not None:
        meta["order"] = order
    _require_little_endian()
    if not (dense.is_cpu or dense.is_cuda):
        # Before its address is asked for: other devices need not have any.
        dense = dense.cpu()
    if dense.numel() and not dense.data_ptr():
        raise UnsupportedArrayError(
            f"a tensor of type {type(tensor).__name__} has no memory of its own: its values are elsewhere, or were "
            "given back; save a plain tensor that has them"
        )
    return meta, (DeviceBytes(dense) if dense.is_cuda and dense.numel() else torch_bytes(dense))


def same_form(one: Any, other: Any) -> bool:
    """Say whether two tensors of one shape have the same type, and lie alike in memory."""
    return bool(one.dtype == other.dtype and torch_order(one) == torch_order(other))


@functools.cache
def dtype_name(dtype: Any) -> str:
    """Name the type of a torch tensor's elements, as documents do."""
    return str(dtype).replace("torch.", "", 1)


def is_floating(meta: dict[str, Any]) -> bool:
    """Say whether an array or tensor, as `dump_numpy` or `dump_torch` describes it, holds real or complex numbers."""
    dtype = meta.get("dtype")
    if isinstance(dtype, list):
        return any(
            is_floating({"dtype": field[1]}) for field in dtype if isinstance(field, (list, tuple)) and field[1:]
        )
    # torch says `bfloat16` or `complex64`; NumPy `<f4` or `<c8`, where the second character is the kind.
    return isinstance(dtype, str) and ("float" in dtype or "complex" in dtype or dtype[1:2] in ("f", "c"))


def _refuse_what_is_not_dense(tensor: Any, dtype: str, torch: Any) -> None:
    if type(tensor).__module__.startswith("torch.distributed."):
        raise UnsupportedArrayError(
            f"a {type(tensor).__name__} is divided among the ranks: pass the model and its optimizer as "
            "spotkeep.integrations.sharded.ShardedState(model, optimizer) in the state"
        )
    dense = tensor.layout == torch.strided and not (tensor.is_quantized or tensor.is_meta or tensor.is_nested)
    if not dense or dtype not in _TORCH_DTYPES:
        raise UnsupportedArrayError(
            f"a {'nested ' if tensor.is_nested else ''}tensor of dtype {dtype}, layout {tensor.layout}, device "
            f"{tensor.device} cannot be stored as raw bytes: make it a dense tensor first"
        )


def torch_bytes(tensor: Any) -> memoryview:
    """Give the memory of a dense tensor on the CPU, to be read or filled."""
    size = tensor.numel() * tensor.element_size()
    if not size:
        return memoryview(b"")
    raw = (ctypes.c_char * size).from_address(tensor.data_ptr())
    raw.keeps_alive = tensor  # the memory belongs to the tensor
    return memoryview(raw).cast("B")


def new_torch(meta: dict[str, Any], size: int, *, like: Any = None) -> Any:
    """Give a tensor on the CPU for a description of `dump_torch`.

    The memory of `like` is reused if it fits, and otherwise new memory is taken.

    Raises:
        InvalidArrayError: The description makes no sense or does not match the number of bytes.
    """
    torch = _import("torch", needed_for="tensors")
    _require_little_endian()
    shape, name = _shape(meta), meta.get("dtype")
    dtype = _torch_dtype(meta)
    if math.prod(shape) * dtype.itemsize != size:
        raise InvalidArrayError(f"a tensor of shape {shape} and dtype {name} does not have {size} bytes")
    order = None if meta.get("order") is None else _permutation(meta["order"], len(shape))
    if is_torch_tensor(like) and like.dtype == dtype and list(like.shape) == shape and _lies_in(like, order, torch):
        return like.detach()
    try:
        if order is not None:
            return torch.empty([shape[axis] for axis in order], dtype=dtype, device="cpu").permute(_inverse(order))
        return torch.empty(shape, dtype=dtype, device="cpu")
    except (RuntimeError, OverflowError, TypeError) as error:
        raise InvalidArrayError(f"a tensor of shape {shape} cannot be made: {error}") from error


def empty_here(tensor: Any) -> Any:
    """Give a tensor on the CPU of the form of another one, with memory that is not filled yet."""
    return sys.modules["torch"].empty(tensor.shape, dtype=tensor.dtype, device="cpu")


def _torch_dtype(meta: dict[str, Any]) -> Any:
    torch, name = _import("torch", needed_for="tensors"), meta.get("dtype")
    dtype = getattr(torch, name, None) if isinstance(name, str) and name in _TORCH_DTYPES else None
    if dtype is None:
        raise InvalidArrayError(f"a tensor's dtype is {name!r}, which this torch does not know")
    return dtype


def torch_order(tensor: Any) -> list[int] | None:
    """Give a tensor's dimensions as they lie in memory, the outermost first. None where they lie in C order."""
    return _memory_order(tensor.shape, tensor.stride()) if tensor.numel() else None


def _is_plain(tensor: Any, torch: Any) -> bool:
    """Say whether a tensor's memory is its elements in C order, and nothing else."""
    if not _has_memory_here(tensor, torch) or not tensor.is_contiguous():
        return False
    # A dimension of one element may have any stride, and kernels choose by it.
    return tensor.ndim < 2 or 1 not in tensor.shape or torch_order(tensor) is None


def _lies_in(tensor: Any, order: list[int] | None, torch: Any) -> bool:
    """Say whether a tensor's memory is its elements in this order of its dimensions, and nothing else."""
    if order is None:
        return _is_plain(tensor, torch)
    return _has_memory_here(tensor, torch) and torch_order(tensor) == order


def _has_memory_here(tensor: Any, torch: Any) -> bool:
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout == torch.strided
        and tensor.is_cpu
        and not (tensor.is_nested or tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )


def _shape(meta: dict[str, Any]) -> list[int]:
    shape = meta.get("shape")
    if (
        not isinstance(shape, list)
        or len(shape) > _MAX_DIMENSIONS
        or not all(type(size) is int and 0 <= size < 2**63 for size in shape)
    ):
        raise InvalidArrayError(f"an array's shape is {shape!r}, not a list of sizes")
    return shape


def _spelling(description: str) -> str:
    """Refuse a text that no `dtype.str` gives. NumPy also reads old names and lists of types, and warns of some."""
    if _DTYPE.fullmatch(description) is None or description[1] == "a":
        raise TypeError(f"{description!r} is not NumPy's own spelling of a type, such as '<f8'")
    return description


def _descr(description: Any) -> Any:
    """Turn lists into tuples. JSON holds the tuples of a structured dtype as lists, and NumPy wants tuples."""
    if not isinstance(description, list):
        raise TypeError(f"a structured dtype is {description!r}, not a list of fields")
    fields = []
    for field in description:
        if not isinstance(field, list) or len(field) not in (2, 3):
            raise TypeError(f"a field of a structured dtype is {field!r}")
        name, kind = field[0], field[1]
        name = tuple(name) if isinstance(name, list) else name
        kind = _spelling(kind) if isinstance(kind, str) else _descr(kind)
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
