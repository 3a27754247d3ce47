"""Libraries are inspected when they are whole."""

from __future__ import annotations

import json
import sys
import threading
from types import ModuleType

import pytest

from spotkeep.disk.checksum_copy import copy_bytes, unlocked
from spotkeep.loaded import loaded
from spotkeep.state.arrays import is_numpy_array, is_numpy_scalar, is_torch_tensor
from spotkeep.state.random_states import capture_random_states


def test_a_module_is_given_when_it_is_imported_and_not_before() -> None:
    assert loaded("json") is json
    assert loaded("a_module_that_is_not_there") is None


def test_a_module_that_another_thread_is_importing_is_not_there_yet(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    half, whole = threading.Event(), threading.Event()
    monkeypatch.setattr(sys, "half_imported", half, raising=False)
    monkeypatch.setattr(sys, "go_on", whole, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "slow_library.py").write_text("import sys\nsys.half_imported.set()\nsys.go_on.wait(20)\nname = 1\n")
    importing = threading.Thread(target=__import__, args=("slow_library",))
    importing.start()
    assert half.wait(20)
    assert "slow_library" in sys.modules
    assert loaded("slow_library") is None
    whole.set()
    importing.join()
    assert loaded("slow_library").name == 1


def test_saving_goes_on_while_a_thread_imports_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checksums of the first save import it; the second save met it without `copyto`, and ended the training."""
    half = ModuleType("numpy")
    half.__spec__ = type("Spec", (), {"_initializing": True})()  # type: ignore[assignment]
    for name in ("numpy", "numpy.random", "torch"):
        monkeypatch.setitem(sys.modules, name, half)
    target = bytearray(1 << 20)
    copy_bytes(unlocked(memoryview(target)), unlocked(b"\x07" * len(target)))
    assert target == b"\x07" * len(target)
    assert not is_numpy_array([1])
    assert not is_numpy_scalar(1)
    assert not is_torch_tensor(1)
    assert "numpy" not in capture_random_states()
