"""torch's modules, optimizers, schedules and tensors come back bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep import Checkpointer, MissingLibraryError, StateError, StateMismatchError
from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.state.decoding import decode_state
from spotkeep.state.encoding import encode_state

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

DTYPES = [
    *("bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2"),
]


def round_trip(tmp_path, state):
    directory = CheckpointDirectory(tmp_path / "checkpoints")
    directory.write(encode_state(state), step=1)
    return directory.read(1).state


def test_tensors_of_every_dtype_and_shape(tmp_path):
    def tensor(name, shape):
        dtype = getattr(torch, name)
        count = int(np.prod(shape)) * dtype.itemsize
        raw = torch.randint(0, 2 if name == "bool" else 256, (count,), dtype=torch.uint8)
        return raw.view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)

    shapes = [(), (0,), (3,), (2, 0, 3), (2, 3, 4)]
    state = {f"{name} {shape}": tensor(name, shape) for name in DTYPES for shape in shapes}
    restored = round_trip(tmp_path, state)
    for name, saved in state.items():
        assert (restored[name].dtype, restored[name].shape) == (saved.dtype, saved.shape), name
        assert torch.equal(restored[name].reshape(-1).view(torch.uint8), saved.reshape(-1).view(torch.uint8)), name


def test_views_conjugates_and_parameters_are_stored_by_value(tmp_path):
    base = torch.arange(12.0).reshape(3, 4)
    state = {
        "turned": base.T,
        "every second": base[:, ::2],
        "conjugate": torch.tensor([1 + 2j]).conj(),
        "negative": torch.tensor([1 + 2j]).conj().imag,
        "parameter": torch.nn.Parameter(base),
    }
    restored = round_trip(tmp_path, state)
    for name, value in state.items():
        assert torch.equal(restored[name], value.detach()), name
        assert restored[name].requires_grad is (name == "parameter")


@given(shape=st.lists(st.integers(0, 3), max_size=4), data=st.data())
def test_a_dense_tensor_has_the_strides_it_had(shape, data):
    order = data.draw(st.permutations(range(len(shape))))
    tensor = torch.arange(float(np.prod(shape))).reshape(shape).permute(order)
    encoded = encode_state({"t": tensor, "like": tensor.clone()})
    raw = {blob.offset: bytes(blob.raw) for blob in encoded.blobs}
    live = {"like": torch.zeros_like(tensor)}
    restored = decode_state(encoded.document, lambda index, offset, size: raw[offset], live=live)
    assert torch.equal(restored["t"], tensor)
    assert torch.equal(live["like"], tensor) or tensor.stride() != tensor.clone().stride()
    assert restored["t"].stride() == tensor.stride() or 0 in shape or 1 in shape


def test_channels_last_weights_have_the_strides_that_kernels_choose_by():
    """One channel, or one pixel: where a dimension of one element has a stride that says nothing."""
    shapes = [(8, 1, 3, 3), (8, 4, 1, 1), (1, 4, 3, 3), (2, 3, 4, 5)]
    state = {str(shape): torch.zeros(shape).to(memory_format=torch.channels_last) for shape in shapes}
    encoded = encode_state(state)
    raw = {blob.offset: bytes(blob.raw) for blob in encoded.blobs}
    restored = decode_state(encoded.document, lambda index, offset, size: raw[offset])
    assert {name: value.stride() for name, value in restored.items()} == {
        name: value.stride() for name, value in state.items()
    }


TENSORS_WITHOUT_PLAIN_BYTES = {
    "sparse": lambda: torch.zeros(3).to_sparse(),
    "meta": lambda: torch.zeros(3, device="meta"),
    "nested": lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
    "jagged": lambda: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged),
}


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.parametrize("kind", TENSORS_WITHOUT_PLAIN_BYTES)
def test_tensors_without_plain_bytes_are_refused(kind):
    with pytest.raises(StateError, match="make it a dense tensor first"):
        encode_state({"t": TENSORS_WITHOUT_PLAIN_BYTES[kind]()})


class Wrapper(torch.Tensor):
    """A tensor that has no memory: its values are in another one, as those of quantization libraries are."""

    @staticmethod
    def __new__(cls, inner, device="cpu"):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=device)

    def __init__(self, inner, device="cpu"):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, operation, types, arguments=(), keywords=None):
        (wrapper,) = (value for value in arguments if isinstance(value, cls))
        found = operation(*(value.inner if value is wrapper else value for value in arguments), **(keywords or {}))
        fetched = wrapper.device.type != "cpu" and operation is torch.ops.aten._to_copy.default
        return found if fetched else cls(found, wrapper.device)


def test_a_tensor_without_memory_of_its_own_is_refused_by_name():
    """Its address is null: a copy from there ends the training with a segmentation fault."""
    with pytest.raises(StateError, match=r"state\['t'\]: a tensor of type Wrapper has no memory of its own"):
        encode_state({"t": Wrapper(torch.ones(3))})
    assert encode_state({"empty": Wrapper(torch.ones(0))}).blobs == ()
    given_back = torch.nn.Parameter(torch.ones(3))
    given_back.untyped_storage().resize_(0)
    with pytest.raises(StateError, match="a tensor of type Parameter has no memory of its own"):
        encode_state({"t": given_back})


def test_a_tensor_of_a_device_that_gives_no_addresses_is_fetched(tmp_path):
    """As those of torch_xla are, on a TPU or an AWS Trainium."""
    state = {"t": Wrapper(torch.arange(3.0), device="xla")}
    assert torch.equal(round_trip(tmp_path, state)["t"], torch.arange(3.0))


def build():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[4, 4, 9])
    return {
        "model": model,
        "optimizer": optimizer,
        "schedule": schedule,
        "random": torch.default_generator,
        "average": torch.zeros(2),
    }


def take_step(parts):
    parts["optimizer"].zero_grad()
    output = parts["model"](torch.randn(6, 5))
    output.square().mean().backward()
    parts["optimizer"].step()
    parts["schedule"].step()
    parts["average"].mul_(0.9).add_(output.detach().mean(dim=0))


def test_a_training_that_was_interrupted_ends_where_none_was(tmp_path):
    whole = build()
    for _ in range(12):
        take_step(whole)
    for stop_at in (3, 10, 12):
        parts = build()
        with Checkpointer(parts, tmp_path, every_steps=1) as checkpointer:
            for _ in checkpointer.steps(stop_at):
                take_step(parts)
    for name, value in parts["model"].state_dict().items():
        assert torch.equal(value, whole["model"].state_dict()[name]), name
    assert torch.equal(parts["average"], whole["average"])
    assert parts["schedule"].get_last_lr() == whole["schedule"].get_last_lr()


def test_a_tensor_of_another_shape_does_not_fit(tmp_path):
    with Checkpointer({"t": torch.zeros(3)}, tmp_path) as checkpointer:
        checkpointer.save(1)
    with pytest.raises(StateMismatchError, match="float32 of shape"):
        Checkpointer({"t": torch.zeros(4)}, tmp_path).restore()
    with pytest.raises(StateMismatchError, match="the checkpoint has a Tensor, the script a ndarray"):
        Checkpointer({"t": np.zeros(3)}, tmp_path).restore()
    with pytest.raises(StateMismatchError, match="refused what was saved"):
        Checkpointer({"t": torch.nn.Linear(2, 2)}, tmp_path).restore()


def test_without_torch_a_checkpoint_with_tensors_says_what_is_missing(tmp_path, monkeypatch):
    directory = CheckpointDirectory(tmp_path)
    directory.write(encode_state({"t": torch.zeros(3)}), step=1)
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(MissingLibraryError, match="use an image that has it"):
        directory.read(1)
