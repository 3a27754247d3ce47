"""Memory that a GPU can copy to at full speed: locked in place, known to the CUDA driver."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from typing import Any, Callable

_PORTABLE = 1  # cudaHostRegisterPortable: for the GPUs of all contexts


def lock_pages(memory: Any) -> Callable[[], None] | None:
    """Register memory with the CUDA driver that torch uses.

    Args:
        memory: A writable buffer that stays where it is.

    Returns:
        What gives it back, to be called before the memory goes; None where the driver refuses, as it does beyond the
        limit on locked memory. Copies work then too, only slower.
    """
    torch: Any = sys.modules["torch"]
    cudart = torch.cuda.cudart()
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if int(cudart.cudaHostRegister(address, len(memory), _PORTABLE)) != 0:
        # CUDA keeps an error for the next call that asks for the last one (cudaGetLastError), and torch asks after
        # each kernel that it launches: the training's next would fail for it. So it is asked here, with a kernel of
        # our own.
        with contextlib.suppress(RuntimeError):
            torch.ones(1, device="cuda")
        return None

    def unlock() -> None:
        cudart.cudaHostUnregister(address)

    return unlock
