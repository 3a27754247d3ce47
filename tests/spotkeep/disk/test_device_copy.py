"""Late copies from a GPU. Without one, a stand-in for its streams copies as late as a GPU may: when it has to."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from functools import partial

import pytest

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.chunk_checksums import chunk_checksums
from spotkeep.disk.device_copy import device_sums, sums_here
from spotkeep.disk.late_copy import DeviceCopy
from spotkeep.disk.manifest import CHUNK_BYTES, Progress
from spotkeep.disk.retention import Retention
from spotkeep.errors import SaveError
from spotkeep.events import TrainingEvents
from spotkeep.notices.notice import NoticeWatch
from spotkeep.remote.second_tier import SecondTier
from spotkeep.saves import BackgroundWriter
from spotkeep.schedule.late_copying import CopyWay
from spotkeep.state.arrays import DeviceBytes
from spotkeep.state.encoding import Blob, encode_state
from spotkeep.state.optimizer_steps import UpdatedMemory

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Gpu:
    """Its streams: what is to be copied is copied when the training's stream waits for it, or when it is let go."""

    def __init__(self):
        self.pending = []
        self.done = threading.Event()
        self.lock = threading.Lock()
        self.locked = []

    def run(self):
        with self.lock:
            for copy in self.pending:
                copy()
            self.pending.clear()
            self.done.set()

    def current_stream(self, device):
        return self

    def wait_stream(self, other):
        assert other is self

    def record_event(self):
        return self

    def wait_event(self, event):
        event.run()

    def synchronize(self):
        assert self.done.wait(60)


@pytest.fixture
def gpu(monkeypatch):
    gpu = Gpu()
    monkeypatch.setattr("spotkeep.disk.device_copy._streams", {})
    monkeypatch.setattr("spotkeep.disk.staged_state.lock_pages", lambda memory: gpu.locked.append(memory))
    monkeypatch.setattr(torch.cuda, "current_stream", gpu.current_stream)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: gpu)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    really_start = DeviceBytes.start_copy

    def start_copy(raw, target):
        copy = partial(really_start, raw, target)
        gpu.pending.append(copy)

        def wait():
            gpu.pending.remove(copy)
            copy()

        return wait

    monkeypatch.setattr(DeviceBytes, "start_copy", start_copy)
    return gpu


@pytest.fixture
def directory(tmp_path):
    return CheckpointDirectory(tmp_path)


@pytest.fixture
def writer(directory):
    tier = SecondTier(directory, remote=None, retention=Retention(), events=TrainingEvents())
    return BackgroundWriter(directory, retention=Retention(), tier=tier, watch=NoticeWatch())


def tensors():
    torch.manual_seed(0)
    return {"weight": torch.rand(700_001), "moment": torch.rand(900_000).bfloat16(), "scale": torch.rand(7)}


def start(writer, state, way):
    """Save tensors as those of a GPU, all of an optimizer but the last."""
    encoded = encode_state(state)
    blobs = [Blob(blob.offset, DeviceBytes(tensor)) for blob, tensor in zip(encoded.blobs, state.values(), strict=True)]
    updated = UpdatedMemory(
        ("cpu", tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes) for tensor in list(state.values())[:2]
    )
    encoded = replace(encoded, blobs=tuple(blobs))
    writer.start(encoded, step=1, reason="interval", progress=Progress(), way=way, updated=updated)


def require_saved(directory, expected):
    found = directory.read(1).state
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_the_training_goes_on_and_the_optimizer_waits_on_the_gpu(writer, directory, gpu):
    state = tensors()
    expected = {name: tensor.clone() for name, tensor in state.items()}
    start(writer, state, CopyWay.LATE)
    assert isinstance(writer.late, DeviceCopy)
    assert len(gpu.pending) == 2, "what no optimizer changes is copied at once"
    assert len(gpu.locked) == 1
    state["scale"].zero_()
    writer.finish_copy()
    assert not gpu.pending
    for tensor in state.values():
        tensor.zero_()
    assert writer.wait_until_idle()
    assert writer.collect().problem is None
    require_saved(directory, expected)


def test_what_changes_before_it_is_copied_is_no_checkpoint(writer, directory, gpu):
    state = tensors()
    start(writer, state, CopyWay.LATE)
    state["moment"].data.clamp_(0, 0.5)
    writer.finish_copy()
    assert writer.wait_until_idle()
    with pytest.raises(SaveError, match="its tensors changed before they were copied"):
        raise writer.collect().problem
    assert [memory[1] for memory in writer.late.changed] == [state["moment"].data_ptr()]
    assert directory.steps() == []


@pytest.mark.parametrize("changes", [False, True])
def test_a_compared_save_is_a_checkpoint_and_finds_the_change(writer, directory, gpu, changes):
    state = tensors()
    expected = {name: tensor.clone() for name, tensor in state.items()}
    start(writer, state, CopyWay.COMPARED)
    assert not gpu.pending
    if changes:
        state["weight"][500_000] = 3
    writer.finish_copy()
    assert len(writer.late.changed) == changes
    assert writer.wait_until_idle()
    assert writer.collect().problem is None
    require_saved(directory, expected)


def test_without_another_thread_all_is_copied_before_the_start_returns(writer, directory, gpu, monkeypatch):
    state = tensors()
    expected = {name: tensor.clone() for name, tensor in state.items()}

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(Gpu, "synchronize", Gpu.run)
    start(writer, state, CopyWay.LATE)
    assert writer.collect().problem is None
    for tensor in state.values():
        tensor.zero_()
    require_saved(directory, expected)


def test_a_gpu_that_fails_is_no_checkpoint(writer, directory, gpu, monkeypatch):
    def fail(event):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(Gpu, "synchronize", fail)
    start(writer, tensors(), CopyWay.LATE)
    writer.finish_copy()
    assert writer.wait_until_idle()
    with pytest.raises(SaveError, match="illegal memory access"):
        raise writer.collect().problem
    assert directory.steps() == []


@pytest.mark.parametrize("size", [1, 4087, 4088, 4089, 3 * CHUNK_BYTES + 5])
def test_sums_of_a_gpu_and_of_memory_are_the_same(size):
    tensor = torch.randint(0, 256, (size,), dtype=torch.uint8)
    (found,) = device_sums([DeviceBytes(tensor)])
    assert found == sums_here(memoryview(tensor.numpy()))
    assert chunk_checksums(memoryview(tensor.numpy()), CHUNK_BYTES)
