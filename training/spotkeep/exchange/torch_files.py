"""Files of `torch.save`, written and read without torch. Memory holds one piece of a tensor.

Such a file is a zip archive without compression. A pickle in it has the values. Each tensor refers to a storage, and
the bytes of a storage are a member of the archive. Source: `torch/serialization.py`.
"""

from __future__ import annotations

import io
import math
import os
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Callable

from spotkeep.errors import ExchangeError
from spotkeep.pickle_operations import MalformedPickleError

from .elements import ITEM_BYTES, PIECE_BYTES, Array, Stray, in_row_major, require_little_endian
from .pickles import Call, Global, Persistent, name_of, read_pickle, written_pickle

_STORAGES = {
    "BoolStorage": "bool", "ByteStorage": "uint8", "CharStorage": "int8", "ShortStorage": "int16",
    "IntStorage": "int32", "LongStorage": "int64", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "FloatStorage": "float32", "DoubleStorage": "float64", "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}  # fmt: skip
_STORAGE_OF = {dtype: storage for storage, dtype in _STORAGES.items()}
_UNTYPED = Global("torch.storage", "UntypedStorage")
"""The storage of types that have none of their own, such as those of eight bits."""
_REBUILD = "torch._utils._rebuild_tensor_v2"
_REBUILD_UNTYPED = "torch._utils._rebuild_tensor_v3"
_ORDERED = Call(Global("collections", "OrderedDict"), ())
_ALIGNMENT_BYTES = 64
_ZIP64_FROM = 2**31
_MOST_PICKLE_BYTES = 2**30
_MOST_DIMENSIONS = 64
_MOST_VALUES, _SPARE_VALUES = 5_000_000, 10_000
_MAX_DEPTH = 100
_MOST_TIMES = 8
"""The tensors of a file may have so many times its bytes, as some share a storage."""
_MOST_SPARE_BYTES = 64 * 2**20


def write_torch_file(file: BinaryIO, value: Any) -> None:
    """Write a file for `torch.load(file, weights_only=True)`.

    Args:
        file: A file open for writing, at its beginning and able to seek.
        value: Plain values, with an `Array` for each tensor.

    Raises:
        ExchangeError: A value is of a kind that such a file does not have.
    """
    require_little_endian()
    arrays: list[Array] = []
    try:
        content = written_pickle(_described(value, arrays, 0))
    except MalformedPickleError as error:
        raise ExchangeError(f"a torch file cannot hold this state: {error}") from error
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        _member(archive, file, "data.pkl", len(content), iter([content]))
        for name, text in ((".format_version", b"1"), (".storage_alignment", b"64"), ("byteorder", b"little")):
            _member(archive, file, name, len(text), iter([text]))
        for number, array in enumerate(arrays):
            _member(archive, file, f"data/{number}", array.size, array.pieces())
        _member(archive, file, "version", 2, iter([b"3\n"]))


def _described(value: Any, arrays: list[Array], depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ExchangeError("the state is nested too deeply for a torch file")
    if isinstance(value, Array):
        arrays.append(value)
        return _tensor(value, len(arrays) - 1)
    if isinstance(value, dict):
        return type(value)((key, _described(item, arrays, depth + 1)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return type(value)(_described(item, arrays, depth + 1) for item in value)
    return value


def _tensor(array: Array, number: int) -> Call:
    name = _STORAGE_OF.get(array.dtype)
    count = math.prod(array.shape)
    storage = _UNTYPED if name is None else Global("torch", name)
    length = array.size if name is None else count
    place = Persistent(("storage", storage, str(number), "cpu", length))
    form = (place, 0, tuple(array.shape), _strides(array.shape), False, _ORDERED)
    if name is None:
        return Call(Global("torch._utils", "_rebuild_tensor_v3"), (*form, Global("torch", array.dtype)))
    return Call(Global("torch._utils", "_rebuild_tensor_v2"), form)


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(max(size, 1) for size in shape[axis + 1 :]) for axis in range(len(shape)))


def _member(archive: zipfile.ZipFile, file: BinaryIO, name: str, size: int, pieces: Iterator[bytes]) -> None:
    """Write a member whose bytes begin at a multiple of 64, as torch's own do."""
    info = zipfile.ZipInfo(f"archive/{name}")
    info.file_size = size
    large = size >= _ZIP64_FROM
    before = file.tell() + 30 + len(info.filename) + 4 + (20 if large else 0)
    info.extra = struct.pack("<HH", 0x4246, -before % _ALIGNMENT_BYTES) + b"\0" * (-before % _ALIGNMENT_BYTES)
    with archive.open(info, "w", force_zip64=large) as member:
        for piece in pieces:
            member.write(piece)


class Slice(io.RawIOBase):
    """A part of an open file, as a file of its own for reading.

    Args:
        descriptor: The file.
        start: Its first byte.
        size: The number of its bytes.
    """

    def __init__(self, descriptor: int, start: int, size: int) -> None:
        self._descriptor, self._start, self._size, self._at = descriptor, start, size, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise OSError(22, "a place before the beginning")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """Return the place."""
        return self._at

    def readinto(self, target: Any) -> int:
        """Fill memory from the place on."""
        view = memoryview(target).cast("B")
        raw = self.bytes_at(self._at, min(len(view), max(self._size - self._at, 0)))
        view[: len(raw)] = raw
        self._at += len(raw)
        return len(raw)

    def bytes_at(self, offset: int, size: int) -> bytes:
        """Give the bytes at a place, all of them or up to the end of the file."""
        parts: list[bytes] = []
        size = min(size, self._size - offset) if offset >= 0 else 0
        while size > 0 and (part := os.pread(self._descriptor, min(size, PIECE_BYTES), self._start + offset)):
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return b"".join(parts)


@dataclass(frozen=True)
class _Storage:
    """The bytes of a storage in the file."""

    start: int
    size: int


@dataclass(frozen=True)
class TensorPlace:
    """The place of a tensor's elements in a file of `torch.save`.

    Attributes:
        dtype: The name of its element type.
        shape: Its shape.
        strides: The elements from one index to the next, in each dimension.
        start: Its first byte in the file.
        file: The file.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int
    file: Slice

    @property
    def is_contiguous(self) -> bool:
        """True where its elements lie in C order."""
        expected = _strides(self.shape)
        return all(size == 1 or one == other for size, one, other in zip(self.shape, self.strides, expected))

    def bytes_at(self, first: int, count: int) -> bytes:
        """Give some elements of a contiguous tensor.

        Raises:
            ExchangeError: The file ends before them.
        """
        item = ITEM_BYTES[self.dtype]
        raw = self.file.bytes_at(self.start + first * item, count * item)
        if len(raw) != count * item:
            raise ExchangeError("a tensor's bytes are cut off")
        return raw

    def read(self) -> Iterator[bytes]:
        """Give its bytes in C order. One in another order is read at once."""
        item, count = ITEM_BYTES[self.dtype], math.prod(self.shape)
        if not count:
            return
        if not self.is_contiguous:
            yield in_row_major(self._span(), shape=self.shape, strides=self.strides, item_bytes=item)
            return
        step = PIECE_BYTES // item
        for first in range(0, count, step):
            yield self.bytes_at(first, min(step, count - first))

    def _span(self) -> bytes:
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides))
        return self.bytes_at(0, last + 1)


_NO_ARCHIVE = (zipfile.BadZipFile, ValueError, struct.error, OSError, EOFError, RuntimeError)
"""The errors with which a module of Python refuses what is no archive."""


def read_torch_file(descriptor: int, *, start: int = 0, size: int | None = None) -> tuple[Any, list[TensorPlace]]:
    """Read a file of `torch.save` without its tensors' bytes. The checksum of every storage that a tensor uses holds.

    Args:
        descriptor: The open file.
        start: The first byte, where other things stand before it.
        size: The number of its bytes. None for all behind `start`.

    Returns:
        Its value, with an `Array` for each tensor and a `Stray` for each value that only code could make, and the
        places of the tensors.

    Raises:
        ExchangeError: It is no such file, it is damaged, or it claims more than it has.
    """
    require_little_endian()
    whole = os.fstat(descriptor).st_size
    size = whole - start if size is None else size
    if start < 0 or size < 0 or start + size > whole:
        raise ExchangeError("a part of it lies beyond its end")
    file = Slice(descriptor, start, size)
    try:
        archive = zipfile.ZipFile(io.BufferedReader(file))
        return _Reader(archive, file, size).read()
    except (
        zipfile.BadZipFile,
        NotImplementedError,
        ValueError,
        struct.error,
        OSError,
        EOFError,
        RuntimeError,
    ) as error:
        if file.bytes_at(0, 2) == b"\x80\x02":
            raise ExchangeError(
                "it is of the form that torch wrote before version 1.6: load it with torch and save it again"
            ) from error
        raise ExchangeError(f"it is no file of torch.save: {error}") from error


class _Reader:
    def __init__(self, archive: zipfile.ZipFile, file: Slice, size: int) -> None:
        self._archive, self._file = archive, file
        self._left_bytes = _MOST_TIMES * size + _MOST_SPARE_BYTES
        self._left_values = 0
        self._left_unread = size
        self._storages: dict[str, _Storage] = {}
        self._open: set[int] = set()
        self.places: list[TensorPlace] = []
        names = [name for name in archive.namelist() if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(names) != 1 or len(set(archive.namelist())) != len(archive.namelist()):
            raise ExchangeError("it is no file of torch.save: it has no data.pkl, or names twice")
        self._folder = names[0].partition("/")[0]

    def read(self) -> tuple[Any, list[TensorPlace]]:
        if (order := self._small("byteorder")) not in (None, b"little"):
            raise ExchangeError(f"its bytes are in the order {str(order)[:40]}: only little-endian files are read")
        content = self._small("data.pkl", most_bytes=_MOST_PICKLE_BYTES) or b""
        try:
            value = read_pickle(content)
        except MalformedPickleError as error:
            raise ExchangeError(f"its values cannot be read: {error}") from error
        # Each operation has a byte and leaves one value at most. Others are the same ones in further places.
        self._left_values = min(_MOST_VALUES, len(content) + _SPARE_VALUES)
        return self._value(value, 0), self.places

    def _small(self, name: str, *, most_bytes: int = 100) -> bytes | None:
        try:
            info = self._archive.getinfo(f"{self._folder}/{name}")
        except KeyError:
            return None
        place = self._place(info)
        if place.size > most_bytes:
            raise ExchangeError(f"{name} has {place.size:,} bytes, more than the {most_bytes:,} allowed")
        return self._file.bytes_at(place.start, place.size)

    def _place(self, info: zipfile.ZipInfo) -> _Storage:
        """Give the place of a member's bytes. Its checksum holds."""
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or info.file_size != info.compress_size:
            raise ExchangeError(f"{info.filename[:80]} is compressed or encrypted, as torch never writes it")
        head = self._file.bytes_at(info.header_offset, 30)
        if len(head) < 30 or head[:4] != b"PK\x03\x04":
            raise ExchangeError(f"{info.filename[:80]} has no beginning")
        name_bytes, extra_bytes = struct.unpack_from("<HH", head, 26)
        place = _Storage(info.header_offset + 30 + name_bytes + extra_bytes, info.file_size)
        self._left_unread -= place.size
        if self._left_unread < 0:
            raise ExchangeError("it is no file of torch.save: its members share bytes")
        found, left, at = 0, place.size, place.start
        while left:
            piece = self._file.bytes_at(at, min(left, PIECE_BYTES))
            if not piece:
                raise ExchangeError(f"{info.filename[:80]} is cut off")
            found, at, left = zlib.crc32(piece, found), at + len(piece), left - len(piece)
        if found != info.CRC:
            raise ExchangeError(f"{info.filename[:80]} is damaged: its checksum does not hold")
        return place

    def _value(self, value: Any, depth: int) -> Any:
        self._left_values -= 1
        if depth > _MAX_DEPTH or self._left_values < 0:
            raise ExchangeError("its values are nested too deeply, or are too many")
        if isinstance(value, Call):
            return self._made(value, depth)
        if isinstance(value, (Global, Persistent)):
            return Stray(f"{value}"[:100] if isinstance(value, Global) else "a storage without a tensor")
        if isinstance(value, (dict, list)):
            if id(value) in self._open:
                raise ExchangeError("one of its values contains itself")
            self._open.add(id(value))
            made: Any = (
                {self._key(key): self._value(item, depth + 1) for key, item in value.items()}
                if isinstance(value, dict)
                else [self._value(item, depth + 1) for item in value]
            )
            self._open.discard(id(value))
            return made
        if isinstance(value, tuple):
            return tuple(self._value(item, depth + 1) for item in value)
        return value

    def _key(self, key: Any) -> Any:
        if not isinstance(key, (str, int, float, bytes, type(None))):
            raise ExchangeError(f"one of its dictionaries has a key of type {type(key).__name__}")
        return key

    def _made(self, call: Call, depth: int) -> Any:
        name, arguments = name_of(call.function), call.arguments
        if name in (_REBUILD, _REBUILD_UNTYPED):
            return self._tensor(arguments, typed=name == _REBUILD)
        if name in ("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state") and arguments:
            return self._value(arguments[0], depth + 1)
        if name == "torch._tensor._rebuild_from_type_v2" and len(arguments) > 2 and isinstance(arguments[2], tuple):
            return self._value(Call(arguments[0], arguments[2]), depth + 1)
        plain = _PLAIN_CALLS.get(name)
        values = [self._value(item, depth + 1) for item in arguments]
        if plain is not None:
            try:
                made = plain(*values)
            except (TypeError, ValueError, AttributeError, OverflowError) as error:
                raise ExchangeError(f"a {name} in it makes no sense") from error
            self._count(len(made) if isinstance(made, (bytes, bytearray, str)) else 0)
            return made
        return Stray(f"{name[:100]}, which only its own code can make")

    def _tensor(self, arguments: tuple[Any, ...], *, typed: bool) -> Any:
        if len(arguments) < (6 if typed else 7):
            raise ExchangeError("a tensor in it makes no sense")
        storage, offset, shape, strides = arguments[:4]
        if isinstance(shape, Call) and name_of(shape.function) == "torch.Size" and shape.arguments:
            shape = shape.arguments[0]
        key = storage.key if isinstance(storage, Persistent) else None
        if not isinstance(key, tuple) or len(key) < 5 or key[0] != "storage" or not isinstance(key[2], str):
            raise ExchangeError("a tensor in it has no storage")
        dtype = _STORAGES.get(getattr(key[1], "name", "")) if typed else getattr(arguments[6], "name", None)
        if dtype not in ITEM_BYTES:
            return Stray(f"a tensor of type {(dtype or name_of(key[1]))[:60]}")
        numbers = (offset, *(shape if _is_sizes(shape) else (-1,)), *(strides if _is_sizes(strides) else (-1,)))
        if not all(type(number) is int and 0 <= number < 2**62 for number in numbers) or len(shape) != len(strides):
            raise ExchangeError("a tensor in it has a shape or a place that makes no sense")
        item = ITEM_BYTES[dtype]
        count = math.prod(shape)
        self._count(count * item)
        where = self._storage(key[2])
        last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides)) if count else -1
        if (last + 1) * item > where.size:
            raise ExchangeError(f"a tensor of shape {list(shape)[:8]} refers to bytes beyond the end of its storage")
        place = TensorPlace(dtype, tuple(shape), tuple(strides), where.start + offset * item, self._file)
        self.places.append(place)
        return Array("tensor", dtype, tuple(shape), place.read)

    def _count(self, size: int) -> None:
        self._left_bytes -= size
        if self._left_bytes < 0:
            raise ExchangeError("its values have many times the bytes of the file, because they share them")

    def _storage(self, key: str) -> _Storage:
        if key not in self._storages:
            try:
                info = self._archive.getinfo(f"{self._folder}/data/{key}")
            except KeyError:
                raise ExchangeError(f"the storage {key[:40]!r} is missing") from None
            self._storages[key] = self._place(info)
        return self._storages[key]


def _is_sizes(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) <= _MOST_DIMENSIONS


def _encoded(text: Any, encoding: Any = "latin1") -> bytes:
    if encoding not in ("latin1", "latin-1"):
        raise ValueError(encoding)
    raw: bytes = text.encode("latin-1")
    return raw


_PLAIN_CALLS: dict[str, Callable[..., Any]] = {
    "_codecs.encode": _encoded,
    "builtins.bytearray": lambda raw=b"": bytearray(raw) if isinstance(raw, bytes) else bytearray(_encoded(raw)),
    "builtins.complex": lambda real, imaginary: complex(real, imaginary),
    "builtins.set": lambda *_: Stray("a set"),
    "collections.OrderedDict": lambda items=(): dict(items),
    "collections.Counter": lambda items=(): Counter(dict(items)),
    "torch.Size": lambda sizes=(): () + sizes,  # Other types are refused. A text would become a tuple of letters.
    "torch.device": lambda *names: ":".join(map(str, names)),
}
_PLAIN_CALLS |= {f"__builtin__.{name}": _PLAIN_CALLS[f"builtins.{name}"] for name in ("bytearray", "complex", "set")}
