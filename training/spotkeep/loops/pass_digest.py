"""A running digest of a pass, of the indices of its batches or of their content.

A pass that is begun again is compared with it, so that only trained batches are passed over.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping
from typing import Any

from spotkeep.errors import UsageError
from spotkeep.loaded import loaded

_WHOLE_BYTES = 4096
_SAMPLES = 64
_DEEPEST = 6


class PassDigest:
    """The digest of the batches of a pass so far.

    Attributes:
        count: Number of batches.
    """

    def __init__(self) -> None:
        self.count = 0
        self._last = b""
        self._marks: list[bytes] = []

    @classmethod
    def of(cls, saved: Mapping[str, Any], *, count: int) -> PassDigest:
        """Give the digest that `state_dict` gave after so many batches, to go on with."""
        digest = cls()
        digest.count, digest._last, digest._marks = count, saved["last"], _marks(saved)
        return digest

    def add(self, batch: bytes) -> None:
        """Go on with a batch's `index_bytes` or `content_bytes`."""
        self._last = hashlib.blake2b(batch, key=self._last, digest_size=16).digest()
        self.count += 1
        if not self.count & (self.count - 1):
            self._marks.append(self._last)

    def state_dict(self) -> dict[str, Any]:
        """Give the digest, and those after 1, 2, 4, 8, ... batches, by which a difference is found."""
        return {"last": self._last, "marks": b"".join(self._marks)}

    def require_same(self, saved: Mapping[str, Any], *, name: str) -> None:
        """Check that as many other batches were the same.

        Args:
            saved: The state that `state_dict` gave for them.
            name: The loader, for the message.

        Raises:
            UsageError: They were not.
        """
        if saved["last"] == self._last:
            return
        same = sum(1 for one, other in zip(_marks(saved), self._marks) if one == other)
        first = 0 if not same else 1 << (same - 1)
        end = min(1 << same, self.count)
        where = f"batch {end}" if end == first + 1 else f"a batch from {first + 1} to {end}"
        raise UsageError(
            f"the {name} does not give the batches that were trained on: of the {self.count} batches that the "
            f"interrupted pass had given, {where} is another one. Begun again, its sampler or its dataset shuffles in "
            "another way, or its data changed. Let the order follow from a seed and the epoch (set_epoch), or name "
            "what decides it: training.loader(loader, state=[sampler]). If the data or the seed was changed, change it "
            "back"
        )


def _marks(saved: Mapping[str, Any]) -> list[bytes]:
    marks: bytes = saved["marks"]
    return [marks[start : start + 16] for start in range(0, len(marks), 16)]


def index_bytes(index: Any) -> bytes:
    """Give bytes that distinguish the indices of one batch from others."""
    if type(index) is list:
        try:
            return array("q", index).tobytes()
        except (TypeError, OverflowError):
            return content_bytes(index)
    return b"%d" % index if type(index) is int else content_bytes(index)


def content_bytes(batch: Any) -> bytes:
    """Give bytes that distinguish the content of one batch from others.

    They hold all of small arrays, and samples of large ones.

    Data on a GPU counts by its form alone, because a read would wait for the GPU. Entries with names that begin with
    two underscores (WebDataset's `__url__`) are places, and no data.
    """
    parts: list[bytes] = []
    _add(batch, parts, 0)
    return b"\0".join(parts)


def _add(value: Any, parts: list[bytes], depth: int) -> None:
    if isinstance(value, str):
        parts.append(b"%d" % len(value) + value[:_WHOLE_BYTES].encode("utf-8", "surrogatepass"))
    elif isinstance(value, (bytes, bytearray, memoryview)):
        parts.append(b"%d" % len(value) + bytes(value[:_WHOLE_BYTES]) + bytes(value[-_SAMPLES:]))
    elif value is None or isinstance(value, (bool, int, float, complex)):
        parts.append(repr(value).encode())
    elif _is_array(value):
        parts.append(_array_bytes(value))
    elif depth >= _DEEPEST:
        parts.append(type(value).__name__.encode())
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not (isinstance(key, str) and key.startswith("__")):
                parts.append(str(key).encode("utf-8", "surrogatepass"))
                _add(item, parts, depth + 1)
    elif isinstance(value, (list, tuple)):
        parts.append(b"%d" % len(value))
        for item in value[:: -(-len(value) // _SAMPLES) or 1]:
            _add(item, parts, depth + 1)
    else:
        parts.append(type(value).__name__.encode())
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            _add({name: item for name, item in attributes.items() if not callable(item)}, parts, depth + 1)


def _is_array(value: Any) -> bool:
    numpy, torch = loaded("numpy"), loaded("torch")
    return (torch is not None and isinstance(value, torch.Tensor)) or (
        numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))
    )


def _array_bytes(value: Any) -> bytes:
    torch = loaded("torch")
    form = b"%a %a" % (str(value.dtype), tuple(value.shape))
    if torch is not None and isinstance(value, torch.Tensor):
        if value.device.type != "cpu" or value.layout is not torch.strided:
            return form
        value = value.detach()
        try:
            value = value.numpy()
        except (TypeError, RuntimeError):  # a type that NumPy does not have
            value = value.contiguous().reshape(-1).view(torch.uint8).numpy()
    if value.dtype.hasobject:
        return form + repr(value.reshape(-1)[:_SAMPLES].tolist()).encode("utf-8", "replace")
    if value.nbytes > _WHOLE_BYTES:
        flat = value.reshape(-1) if value.flags.c_contiguous else value.flat
        value = flat[:: -(-value.size // _SAMPLES)]
    raw: bytes = value.tobytes()
    return form + raw
