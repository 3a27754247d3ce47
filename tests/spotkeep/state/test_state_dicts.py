"""What torch's modules and optimizers keep beside their items comes back: versions, frozen layers, modes, types."""

from __future__ import annotations

import logging
from functools import partial

import pytest

from spotkeep import Checkpointer, RandomStates, StateMismatchError
from spotkeep.disk.checkpoint_directory import CheckpointDirectory

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

STEPS, STOPPED_AFTER = 6, 3


class ProcessEndedError(Exception):
    """The process ends here."""


def train(make, step, directory, *, stop_after=None):
    """Train in one process: gives the parts of the state as they are at the end."""
    torch.manual_seed(0)
    parts = make()
    with Checkpointer({"random": RandomStates(), **parts}, directory, every_steps=1) as checkpointer:
        for done in checkpointer.steps(STEPS):
            if done == stop_after:
                raise ProcessEndedError
            step(parts, done)
    return parts


def interrupted(make, step, directory):
    with pytest.raises(ProcessEndedError):
        train(make, step, directory, stop_after=STOPPED_AFTER)
    return train(make, step, directory)


def contents(value):
    """Everything that decides the next step: types, shapes, strides and bits of tensors, flags, plain values."""
    if isinstance(value, torch.Tensor):
        raw = value.detach().contiguous().reshape(-1).view(torch.uint8).tolist()
        return value.dtype, value.shape, value.stride(), value.requires_grad, raw
    if isinstance(value, torch.nn.Module):
        parts = {name: (type(module), module.training) for name, module in value.named_modules()}
        return parts, contents(value.state_dict(keep_vars=True))
    if hasattr(value, "state_dict"):
        return contents(value.state_dict())
    if isinstance(value, dict):
        return {key: contents(item) for key, item in value.items()}
    return [contents(item) for item in value] if isinstance(value, (list, tuple)) else value


def assert_ends_as_one_left_alone(make, step, tmp_path):
    whole = train(make, step, tmp_path / "left alone")
    parts = interrupted(make, step, tmp_path / "interrupted")
    assert {name: contents(part) for name, part in parts.items()} == {
        name: contents(part) for name, part in whole.items()
    }


def learn(parts, done):
    model, optimizer = parts["model"], parts["optimizer"]
    optimizer.zero_grad()
    images = torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(done))
    model(images).float().square().mean().backward()
    optimizer.step()


def with_optimizer(build, optimizer):
    def make():
        model = build()
        return {"model": model, "optimizer": optimizer(model.parameters())}

    return make


def convolutions():
    """In the order of memory that is fastest on a GPU; a kernel of one channel and one of a point among them."""
    layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 8, 3, groups=8), torch.nn.Conv2d(8, 2, 1)]
    return torch.nn.Sequential(*layers).to(memory_format=torch.channels_last)


class InBfloat16(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Conv2d(3, 2, 3).to(torch.bfloat16)

    def forward(self, images):
        return self.inner(images.to(torch.bfloat16))


class MasterCopies(torch.optim.Optimizer):
    """Copies and momentum in float32, in a list and a dictionary, and a count of integers, whatever the parameters."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state["copies"] = [parameter.float().clone()]
                    state["more"] = {"momentum": torch.zeros_like(parameter, dtype=torch.float32)}
                    state["count"] = torch.zeros((), dtype=torch.int64)
                momentum = state["more"]["momentum"].mul_(0.9).add_(parameter.grad.float())
                state["count"] += 1
                parameter.copy_(state["copies"][0].sub_(momentum, alpha=group["lr"]))


OPTIMIZERS = {
    "momentum of channels_last weights": (convolutions, lambda found: torch.optim.SGD(found, 0.1, momentum=0.9)),
    "Adam, foreach, amsgrad": (convolutions, lambda found: torch.optim.Adam(found, amsgrad=True, foreach=True)),
    "Adam, fused": (convolutions, lambda found: torch.optim.Adam(found, fused=True)),
    "a learning rate in a tensor": (InBfloat16, lambda found: torch.optim.Adam(found, torch.tensor(0.1))),
    "float32 beside bfloat16": (InBfloat16, MasterCopies),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_an_optimizer_goes_on_with_the_types_and_the_order_in_memory_it_had(kind, tmp_path):
    assert_ends_as_one_left_alone(with_optimizer(*OPTIMIZERS[kind]), learn, tmp_path)


def test_adafactor_of_transformers_keeps_float32_beside_bfloat16(tmp_path):
    optimization = pytest.importorskip("transformers.optimization")
    assert_ends_as_one_left_alone(with_optimizer(InBfloat16, optimization.Adafactor), learn, tmp_path)


class Versioned(torch.nn.Module):
    """Version 1 kept the square of its scale."""

    _version = 2

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.full((6,), 3.0))

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *others):
        if local_metadata.get("version", 1) < 2:
            state_dict[prefix + "scale"] = state_dict[prefix + "scale"].sqrt()
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *others)

    def forward(self, images):
        return images * self.scale


def test_a_module_that_asks_for_its_version_is_told_it(tmp_path):
    def build():
        return torch.nn.Sequential(Versioned(), torch.nn.BatchNorm2d(3))

    assert_ends_as_one_left_alone(with_optimizer(build, lambda found: torch.optim.SGD(found, 0.1)), learn, tmp_path)


class Holder:
    """Keeps the state_dict of a module among other things."""

    def __init__(self, module):
        self.module = module

    def state_dict(self):
        return {"best": self.module.state_dict(), "score": 1.0}

    def load_state_dict(self, state):
        self.module.load_state_dict(state["best"])


def test_a_state_dict_inside_of_another_object_keeps_its_version(tmp_path):
    def make():
        return {"holder": Holder(torch.nn.Sequential(Versioned()))}

    with Checkpointer(make(), tmp_path) as checkpointer:
        checkpointer.save(1)
    restored = make()
    assert Checkpointer(restored, tmp_path).restore() == 1
    assert restored["holder"].module[0].scale.tolist() == [3.0] * 6


def test_layers_that_were_unfrozen_and_modes_that_were_changed_stay_so(tmp_path):
    def make():
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Dropout(), torch.nn.Flatten()
        )
        model[0].requires_grad_(False)
        model[1].eval()
        factor = torch.ones(4)
        return {"model": model, "factors": [factor], "optimizer": torch.optim.SGD([*model.parameters(), factor], 0.1)}

    def step(parts, done):
        if done == 1:
            parts["model"][0].weight.requires_grad_()
            parts["factors"][0].requires_grad_()
            parts["model"][1].train()
            parts["model"][2].eval()
        learn(parts, done)

    assert_ends_as_one_left_alone(make, step, tmp_path)


def test_what_a_training_turns_into_another_type_or_order_on_its_way_comes_back_so(tmp_path):
    def step(parts, done):
        if done == 1:
            parts["model"].to(torch.float64).to(memory_format=torch.channels_last)
        parts["model"].zero_grad()
        parts["model"](torch.ones(1, 3, 6, 6, dtype=parts["model"].weight.dtype)).square().sum().backward()
        with torch.no_grad():
            parts["model"].weight.sub_(parts["model"].weight.grad, alpha=0.1)

    assert_ends_as_one_left_alone(lambda: {"model": torch.nn.Conv2d(3, 4, 3)}, step, tmp_path)


class Halves(torch.nn.Module):
    """Takes what it is given for something else, but for what it gave itself a moment before."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.first = True

    def _load_from_state_dict(self, state_dict, prefix, *others):
        if state_dict[prefix + "weight"][0] != 1:
            state_dict[prefix + "weight"] = state_dict[prefix + "weight"] / 2
        super()._load_from_state_dict(state_dict, prefix, *others)


def test_a_module_that_holds_something_else_after_it_was_restored_is_named(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(400, 400), Halves())
    with Checkpointer({"model": module, "other": torch.zeros(9)}, tmp_path) as checkpointer:
        with torch.no_grad():
            module[1].weight.mul_(8)
        checkpointer.save(1)
    with pytest.raises(StateMismatchError) as refusal:
        Checkpointer({"model": module, "other": torch.zeros(9)}, tmp_path).restore()
    assert refusal.value.problems == (
        "state['model']['1.weight']: its values are not the saved ones, after it was restored",
    )


def test_another_number_of_parameter_groups_says_how_to_make_them_as_they_were(tmp_path):
    def make():
        model = torch.nn.Linear(2, 2)
        return {"model": model, "optimizer": torch.optim.SGD([model.weight], 0.1)}

    state = make()
    with Checkpointer(state, tmp_path) as checkpointer:
        state["optimizer"].add_param_group({"params": [state["model"].bias]})
        checkpointer.save(1)
    with pytest.raises(StateMismatchError) as refusal:
        Checkpointer(make(), tmp_path).restore()
    assert refusal.value.problems == (
        "state['optimizer']: the checkpoint has parameter groups of [1, 1] parameters, the script of [1]",
    )
    assert "on_restore=lambda step, epoch: optimizer.add_param_group" in str(refusal.value)


def test_on_restore_makes_the_state_as_it_was_before_anything_is_compared(tmp_path):
    """Layers that are added, an embedding that grows and a parameter group more, from the third step on."""

    def grow(parts):
        model = parts["model"]
        model.append(torch.nn.Linear(4, 4))
        model[0] = torch.nn.Embedding(9, 4)
        parts["optimizer"].add_param_group({"params": [*model[1].parameters(), model[0].weight]})

    def make():
        model = torch.nn.Sequential(torch.nn.Embedding(5, 4))
        return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)}

    def step(parts, done):
        if done == 2:
            grow(parts)
        parts["optimizer"].zero_grad()
        parts["model"](torch.tensor([done % 5])).square().sum().backward()
        parts["optimizer"].step()

    whole = train(make, step, tmp_path / "left alone")
    for stopped_after in (2, 3):
        directory = tmp_path / f"interrupted after {stopped_after}"
        with pytest.raises(ProcessEndedError):
            train(make, step, directory, stop_after=stopped_after)
        torch.manual_seed(0)
        parts, seen = make(), []

        def as_it_was(step, epoch, parts=parts, seen=seen):
            seen.append((step, epoch))
            if step > 2:
                grow(parts)

        state = {"random": RandomStates(), **parts}
        with Checkpointer(state, directory, every_steps=1, on_restore=as_it_was) as checkpointer:
            for done in checkpointer.steps(STEPS):
                step(parts, done)
        assert seen == [(stopped_after, None)]
        assert {name: contents(part) for name, part in parts.items()} == {
            name: contents(part) for name, part in whole.items()
        }


def test_a_metric_whose_state_dict_is_empty_is_named_with_the_way_out(tmp_path, caplog):
    torchmetrics = pytest.importorskip("torchmetrics")
    state = {"mean": torchmetrics.MeanMetric(), "kept": torchmetrics.MeanMetric(), "dropout": torch.nn.Dropout()}
    state["kept"].persistent(True)
    with caplog.at_level(logging.WARNING, "spotkeep"), Checkpointer(state, tmp_path):
        pass
    (record,) = caplog.records
    assert "the state_dict of state['mean'] is empty" in record.getMessage()
    assert "metric.persistent(True)" in record.getMessage()


class PrivateSGD(torch.optim.SGD):
    """Stands for the optimizer of Opacus, which calls a hook of its accountant after each step."""

    __module__ = "opacus.optimizers.optimizer"
    step_hook = None


class Accountant:
    """Stands for an accountant of Opacus, which counts the steps."""

    __module__ = "opacus.accountants.rdp"

    def state_dict(self):
        return {"history": [(1.0, 0.1, 7)]}

    def load_state_dict(self, state):
        self.history = state["history"]


@pytest.mark.parametrize("counted", ["by none", "outside", "in the state"])
def test_the_steps_that_spend_a_privacy_budget_are_in_the_state_or_a_warning_names_it(counted, tmp_path, caplog):
    """`findings/opacus-resumed-training-forgets-its-budget.sh` shows the smaller epsilon that Opacus gives without."""
    model = torch.nn.Linear(1, 1)
    state = {"model": model, "optimizer": PrivateSGD(model.parameters())}
    state["optimizer"].step_hook = None if counted == "by none" else print
    if counted == "in the state":
        state["accountant"] = Accountant()
    with caplog.at_level(logging.WARNING, "spotkeep"), Checkpointer(state, tmp_path):
        pass
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == (counted == "outside")
    assert all("state['optimizer'] adds the noise" in text and "privacy_engine.accountant" in text for text in said)


@pytest.mark.parametrize(
    "wrap", [torch.nn.DataParallel, partial(torch.compile, backend="eager")], ids=["DataParallel", "compile"]
)
def test_a_wrapper_of_torch_is_not_in_the_names_of_a_checkpoint(wrap, tmp_path):
    saved, restored = (torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)) for _ in range(2))
    saved[1].eval()
    for parameter in saved[0].parameters():
        parameter.requires_grad_(False)
    Checkpointer({"model": wrap(saved)}, tmp_path / "of a wrapper").save(1)
    Checkpointer({"model": saved}, tmp_path / "of the module").save(1)

    plain = Checkpointer({"model": restored}, tmp_path / "of a wrapper")
    assert plain.restore(strict=False) == 1
    assert plain.left_out == ()
    assert contents(restored.state_dict()) == contents(saved.state_dict())

    wrapped = wrap(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).eval())
    Checkpointer({"model": wrapped}, tmp_path / "of the module").restore()
    assert wrapped.training
    (inner,) = wrapped.children()
    assert contents(inner) == contents(saved)


def test_a_module_with_a_loader_of_its_own_takes_its_state_back_in_a_wrapper(tmp_path):
    class Scaled(torch.nn.Linear):
        def get_extra_state(self):
            return {"scale": 2}

        def set_extra_state(self, state):
            assert state == {"scale": 2}

    torch.manual_seed(0)
    saved, restored = (torch.nn.DataParallel(Scaled(3, 2)) for _ in range(2))
    for model in (saved, restored):
        with Checkpointer({"model": model}, tmp_path) as checkpointer:
            checkpointer.save(1)
    assert contents(restored) == contents(saved)


def test_a_module_in_a_wrapper_that_does_not_fit_is_named_without_it(tmp_path):
    Checkpointer({"model": torch.nn.Linear(3, 2)}, tmp_path).save(1)
    with pytest.raises(StateMismatchError, match=r"\['weight'\] is of shape \(2, 3\) in the checkpoint"):
        Checkpointer({"model": torch.nn.DataParallel(torch.nn.Linear(4, 2))}, tmp_path).restore()


def test_a_restore_of_the_model_alone_names_no_settings_of_what_it_left_out(tmp_path, caplog):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Checkpointer({"model": model, "optimizer": optimizer}, tmp_path) as checkpointer:
        checkpointer.save(1)
    Checkpointer({"model": torch.nn.Linear(3, 2)}, tmp_path).restore(strict=False)
    assert "left out what does not fit: state['optimizer']" in caplog.text
    assert "state['optimizer'].lr" not in caplog.text


class Twice(torch.nn.Module):
    """Layers of which some are compiled, one inside another."""

    def __init__(self, compile_part):
        super().__init__()
        inner = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
        inner[0].bias.requires_grad_(False)
        inner[1].eval()
        inner[1] = compile_part(inner[1])
        self.outer = compile_part(torch.nn.Sequential(compile_part(inner), torch.nn.Linear(3, 2)))
        self.last = torch.nn.Linear(2, 1)

    def forward(self, rows):
        return self.last(self.outer(rows))


def as_it_is(part):
    return part


def as_compiled(part):
    return torch.compile(part, backend="eager")


class OfItsOwn(Twice):
    """Names its state in its own way."""

    def _load_from_state_dict(self, *arguments):
        super()._load_from_state_dict(*arguments)


def of_twice(compile_part, kind=Twice):
    net = kind(compile_part)
    return {"net": net, "optimizer": torch.optim.SGD(net.parameters(), lr=0.1)}


def step_of_twice(parts, done):
    parts["optimizer"].zero_grad()
    parts["net"](torch.full((4, 3), float(done))).sum().backward()
    parts["optimizer"].step()


@pytest.mark.filterwarnings("ignore:The given NumPy array")
@pytest.mark.parametrize("ways", [(as_compiled, as_it_is), (as_it_is, as_compiled), (as_compiled, as_compiled)])
def test_compiled_parts_go_on_as_plain_ones_and_plain_ones_as_compiled(tmp_path, ways):
    whole = train(partial(of_twice, as_it_is), step_of_twice, tmp_path / "whole")["net"]
    with pytest.raises(ProcessEndedError):
        train(partial(of_twice, ways[0]), step_of_twice, tmp_path / "c", stop_after=STOPPED_AFTER)
    again = train(partial(of_twice, ways[1]), step_of_twice, tmp_path / "c")["net"]

    def named(net):
        tensors = {name.replace("_orig_mod.", ""): contents(value) for name, value in net.state_dict().items()}
        frozen = {name.replace("_orig_mod.", ""): value.requires_grad for name, value in net.named_parameters()}
        modes = {name.replace("_orig_mod", "").strip("."): part.training for name, part in net.named_modules()}
        return tensors, frozen, {name.replace("..", "."): mode for name, mode in modes.items()}

    assert named(again) == named(whole)
    saved = CheckpointDirectory(tmp_path / "c").read(STEPS).state["net"]
    assert [name for name in saved if "_orig_mod" in name] == []
    assert saved._metadata["outer.0.1"] == {"version": 2}, "of a batch norm, and not of its wrapper"


def test_compiled_parts_of_a_module_that_names_its_own_state_keep_their_names(tmp_path):
    assert_ends_as_one_left_alone(partial(of_twice, as_compiled, OfItsOwn), step_of_twice, tmp_path)
    saved = CheckpointDirectory(tmp_path / "interrupted").read(STEPS).state["net"]
    assert "outer._orig_mod.0._orig_mod.0.weight" in saved


def test_a_compiled_part_with_an_entry_of_its_own_keeps_its_name(tmp_path):
    def make():
        parts = of_twice(as_compiled)
        torch.nn.Module.register_buffer(parts["net"].outer, "beside", torch.zeros(1))
        return parts

    assert_ends_as_one_left_alone(make, step_of_twice, tmp_path)
    saved = CheckpointDirectory(tmp_path / "interrupted").read(STEPS).state["net"]
    assert {"outer.beside", "outer._orig_mod.0.0.weight"} <= set(saved)
