"""What cannot be filled in place is refused before the training, not at its first resume."""

from __future__ import annotations

import mmap
import tempfile

import numpy as np
import pytest

from spotkeep import Checkpointer, StateError
from spotkeep.state.in_place import ProcessMemory, tensor_problem


def test_a_read_only_array_is_refused_by_its_place(tmp_path):
    """As pandas 3 gives them."""
    order = np.arange(3)
    order.flags.writeable = False
    with pytest.raises(StateError) as refusal, Checkpointer({"w": np.zeros(2), "x": [{"order": order}]}, tmp_path):
        pytest.fail("entered")
    (problem,) = refusal.value.problems
    assert problem.startswith("state['x'][0]['order']: it is read-only")


@pytest.mark.torch
class TestTorch:
    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch")

    def buffers(self, torch):
        with torch.inference_mode():
            inference = torch.zeros(3)
        return {
            "made by expand": (torch.zeros(3, 1).expand(3, 2), "as expand"),
            "made in inference mode": (inference, "inference_mode"),
        }

    @pytest.mark.parametrize("kind", ["made by expand", "made in inference mode"])
    def test_a_tensor_that_cannot_be_filled_is_refused_by_its_place(self, torch, kind, tmp_path):
        tensor, reason = self.buffers(torch)[kind]
        module = torch.nn.Sequential(torch.nn.Identity())
        module[0].register_buffer("grid", tensor)
        for state, place in (({"model": module}, "state['model']['0.grid']"), ({"t": [tensor]}, "state['t'][0]")):
            with pytest.raises(StateError, match=reason) as refusal, Checkpointer(state, tmp_path):
                pytest.fail("entered")
            assert [problem.partition(": ")[0] for problem in refusal.value.problems] == [place]

    def test_a_module_whose_own_loader_puts_another_tensor_there_is_taken(self, torch, tmp_path):
        class Replaces(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("grid", torch.zeros(3, 1).expand(3, 2))

            def _load_from_state_dict(self, state_dict, prefix, *others):
                self.grid = state_dict[prefix + "grid"]

        with Checkpointer({"model": Replaces()}, tmp_path) as checkpointer:
            checkpointer.save(1)
        model = Replaces()
        assert Checkpointer({"model": model}, tmp_path).restore() == 1

    def test_a_lazy_module_is_refused_before_it_has_seen_a_batch(self, torch, tmp_path):
        lazy = torch.nn.LazyLinear(2)
        with pytest.raises(StateError, match="give the module a batch before"), Checkpointer({"l": lazy}, tmp_path):
            pytest.fail("entered")
        lazy(torch.ones(1, 3))
        with Checkpointer({"l": lazy}, tmp_path):
            pass

    def test_memory_that_the_system_lets_be_read_only_is_recognised(self, torch):
        with tempfile.TemporaryFile() as file:
            file.write(bytes(8192))
            file.flush()
            mapped = {
                access: mmap.mmap(file.fileno(), 8192, access=access) for access in (mmap.ACCESS_READ, mmap.ACCESS_COPY)
            }
        arrays = {access: np.frombuffer(memory, "f4")[1024:] for access, memory in mapped.items()}
        problems = {}
        for access, array in arrays.items():
            # torch warns where NumPy says that the memory is read-only, and takes it.
            address = array.__array_interface__["data"][0]
            problems[access] = ProcessMemory().may_be_written(_TensorAt(torch, address))
        assert problems == {mmap.ACCESS_READ: False, mmap.ACCESS_COPY: True}
        assert tensor_problem(torch.zeros(3), ProcessMemory()) is None


class _TensorAt:
    """A tensor somewhere in memory: a real one over read-only memory is what no test makes."""

    is_cpu = True

    def __init__(self, torch, address):
        self.layout = torch.strided
        self._address = address

    def numel(self):
        return 1

    def data_ptr(self):
        return self._address
