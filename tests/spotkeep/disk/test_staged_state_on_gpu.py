"""States on a GPU: copied into locked pages. Without a GPU the driver is a stand-in, and two tests are left out."""

from __future__ import annotations

import pytest

from spotkeep import Checkpointer
from spotkeep.disk.staged_state import StagedState, lock_pages
from spotkeep.state.arrays import DeviceBytes
from spotkeep.state.encoding import Blob, StreamPart, encode_state

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
needs_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Driver:
    """Takes note of what is locked, and of who waits. Like CUDA, it keeps an error until the last is asked for."""

    def __init__(self, *, refuses=False):
        self.refuses = refuses
        self.last_error = 0
        self.locked = {}
        self.asked = 0
        self.waited = 0

    def cudaHostRegister(self, address, size, flags):  # noqa: N802 - the driver's name
        self.asked += 1
        if not self.refuses:
            self.locked[address] = size
        self.last_error = 2 if self.refuses else 0
        return self.last_error

    def launch(self, *_, device):
        """What torch does with any kernel."""
        assert device == "cuda"
        error, self.last_error = self.last_error, 0
        if error:
            raise RuntimeError("CUDA error: out of memory")

    def cudaHostUnregister(self, address):  # noqa: N802 - the driver's name
        del self.locked[address]

    def synchronize(self):
        self.waited += 1


@pytest.fixture
def driver(monkeypatch):
    driver = Driver()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: driver)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: driver)
    return driver


def blobs_of(*tensors):
    blobs, end = [], 0
    for tensor in tensors:
        blobs.append(Blob(end, DeviceBytes(tensor)))
        end += -(-len(blobs[-1].raw) // 4096) * 4096
    return blobs


def taken(staged, blobs):
    images = staged.arrange([StreamPart.whole(blobs)])
    staged.copy(images)
    return images


def test_memory_is_locked_until_it_is_given_back(driver):
    memory = bytearray(5000)
    unlock = lock_pages(memory)
    assert list(driver.locked.values()) == [5000]
    unlock()
    assert not driver.locked


def test_a_driver_that_refuses_is_no_error_now_nor_for_the_next_kernel_of_the_training(driver, monkeypatch):
    monkeypatch.setattr(torch, "ones", driver.launch)
    driver.refuses = True
    assert lock_pages(bytearray(10)) is None
    driver.launch(device="cuda")


def test_what_is_on_a_gpu_is_copied_and_waited_for_beside_what_is_not(driver):
    on_device = [torch.arange(3000.0), torch.tensor(7, dtype=torch.bfloat16), torch.ones(2, 3, dtype=torch.bool)]
    blobs = [*blobs_of(*on_device), Blob(2**20, b"\1" * 5000)]
    (image,) = taken(StagedState(), blobs)
    for blob, tensor in zip(blobs, on_device, strict=False):
        raw = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
        assert image.raw[blob.offset : blob.offset + len(raw)] == raw
    assert image.raw[2**20 : 2**20 + 5000] == b"\1" * 5000
    assert driver.waited == len(on_device)


def test_memory_is_locked_once_and_let_go_before_it_is_replaced(driver):
    staged = StagedState()
    for _ in range(3):
        taken(staged, blobs_of(torch.zeros(5000)))
    assert list(driver.locked.values()) == [staged.capacity_bytes]
    taken(staged, blobs_of(torch.zeros(50_000)))
    assert list(driver.locked.values()) == [staged.capacity_bytes]
    assert driver.asked == 2
    del staged
    assert not driver.locked


def test_a_refusal_is_taken_for_an_answer(driver, monkeypatch):
    state = torch.ones(2000, dtype=torch.uint8)
    monkeypatch.setattr(torch, "ones", driver.launch)
    driver.refuses = True
    staged = StagedState()
    for _ in range(3):
        (image,) = taken(staged, blobs_of(state))
        assert image.raw[:2000] == b"\1" * 2000
    assert driver.asked == 1


def test_a_state_without_a_gpu_locks_nothing(driver):
    staged = StagedState()
    taken(staged, encode_state({"w": torch.ones(5000)}).blobs)
    assert driver.asked == driver.waited == 0


@needs_a_gpu
def test_memory_that_a_gpu_refuses_is_no_error_of_the_next_kernel():
    memory = bytearray(2**20)
    unlock = lock_pages(memory)
    assert unlock is not None
    assert lock_pages(memory) is None, "it is locked already"
    assert (torch.ones(3, device="cuda") * 2).tolist() == [2, 2, 2]
    unlock()


@needs_a_gpu
def test_a_training_on_a_gpu_comes_back_bit_for_bit(tmp_path):
    weights = torch.rand(3, 1_000_003, device="cuda").t()
    expected = weights.clone()
    with Checkpointer({"weights": weights, "here": torch.ones(5)}, directory=tmp_path) as checkpointer:
        checkpointer.save(1, wait=False)
        weights.zero_()
        checkpointer.wait()
    again = torch.zeros_like(weights)
    Checkpointer({"weights": again, "here": torch.zeros(5)}, directory=tmp_path).restore()
    assert torch.equal(again, expected)
