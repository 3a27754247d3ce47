"""Copies from GPUs that go on while the training does, on a stream of their own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from spotkeep.state.arrays import DeviceBytes, torch_bytes

from .chunk_checksums import ROW_BYTES, column_sums

_streams: dict[Any, Any] = {}


class DeviceTransfer:
    """A copy of tensors from their GPUs to memory, and the sums of what they held when it began.

    The sums are those of the moment, whatever is copied. They cost a GPU one read of the tensors.

    Args:
        copies: The bytes, and the locked memory that they go to.
    """

    def __init__(self, copies: Sequence[tuple[DeviceBytes, memoryview]]) -> None:
        torch: Any = sys.modules["torch"]
        # On the training's stream, so before anything that it starts from here on.
        self._sums = [raw.sums() for raw, _ in copies]
        self._devices = [raw.device for raw, _ in copies]
        self._ends: dict[Any, Any] = {}
        for device in dict.fromkeys(self._devices):
            stream = _stream_of(device)
            stream.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(stream):
                for raw, target in copies:
                    if raw.device == device:
                        raw.start_copy(target)
                self._ends[device] = stream.record_event()

    def hold(self) -> None:
        """Let what the training starts from here on wait for the copies, on the GPUs. This thread goes on."""
        torch: Any = sys.modules["torch"]
        for device, end in self._ends.items():
            torch.cuda.current_stream(device).wait_event(end)

    def wait(self) -> None:
        """Wait until the memory has all."""
        for end in self._ends.values():
            end.synchronize()

    def sums(self) -> list[bytes]:
        """Give the sums of the bytes of each tensor when the copy began."""
        torch: Any = sys.modules["torch"]
        found = []
        for device, sums in zip(self._devices, self._sums):
            with torch.cuda.stream(_stream_of(device)):
                found.append(bytes(torch_bytes(sums.cpu())))
        return found


def device_sums(raws: Sequence[DeviceBytes]) -> list[bytes]:
    """Give the sums of bytes on GPUs as they are now."""
    return [bytes(torch_bytes(sums.cpu())) for sums in [raw.sums() for raw in raws]]


def sums_here(raw: memoryview) -> bytes:
    """Give the sums of bytes in memory, as `DeviceBytes.sums` adds them up on a GPU."""
    whole = len(raw) // ROW_BYTES * ROW_BYTES
    sums = column_sums(raw[:whole], whole) if whole else []
    return b"".join([*map(bytes, sums), bytes(raw[whole:])])


def _stream_of(device: Any) -> Any:
    if device not in _streams:
        _streams[device] = sys.modules["torch"].cuda.Stream(device)
    return _streams[device]
