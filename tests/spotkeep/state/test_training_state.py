"""What an optimizer updates lies in the state, or is named before the first step: its values would begin anew."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from spotkeep import Checkpointer, StateError

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

pytestmark = pytest.mark.torch


def refusal(tmp_path, state, **options):
    """What entering says of a state; None where it is taken."""
    try:
        with Checkpointer(state, tmp_path, **options):
            return None
    except StateError as error:
        return str(error)


class ArcFace(nn.Module):
    """A loss with weights, as those for faces and sentences have: one row for each class."""

    def __init__(self):
        super().__init__()
        self.centers = nn.Parameter(torch.randn(5, 3))
        self.scale = nn.Parameter(torch.tensor(30.0))


def test_a_loss_with_weights_is_named_with_its_optimizer_and_the_way_out(tmp_path):
    model, loss = nn.Linear(4, 3), ArcFace()
    optimizer = torch.optim.Adam([{"params": model.parameters()}, {"params": loss.parameters()}])
    said = refusal(tmp_path, {"model": model, "optimizer": optimizer})
    assert "state['optimizer'] updates 2 tensors that no entry holds" in said
    assert "'centers' of an ArcFace of shape (5, 3) in group 1, 'scale' of an ArcFace of shape () in group 1" in said
    assert "{'model': model, 'loss': loss, 'optimizer': optimizer}" in said
    assert refusal(tmp_path, {"model": model, "loss": loss, "optimizer": optimizer}) is None
    assert refusal(tmp_path, {"model": model, "optimizer": optimizer}, per_rank={"loss": loss}) is None
    assert refusal(tmp_path, {"model": model, "heads": [loss.centers, loss.scale], "optimizer": optimizer}) is None


def test_each_optimizer_is_looked_at_wherever_it_stands(tmp_path):
    """A GAN of which one model was forgotten; a learned temperature; a second optimizer for the centres of a loss."""
    generator, critic, temperature = nn.Linear(2, 2), nn.Linear(2, 1), nn.Parameter(torch.zeros(()))
    optimizers = {
        "generator": torch.optim.Adam(generator.parameters()),
        "others": [torch.optim.SGD(critic.parameters(), 0.1), torch.optim.SGD([temperature], 0.1)],
    }
    said = refusal(tmp_path, {"generator": generator, "optimizers": optimizers})
    assert "state['optimizers']['others'][0] updates 2 tensors" in said
    assert "'weight' of a Linear of shape (1, 2) in group 0" in said
    assert "state['optimizers']['others'][1] updates 1 tensor that no entry holds: one of shape ()" in said
    whole = {"generator": generator, "critic": critic, "temperature": temperature, "optimizers": optimizers}
    assert refusal(tmp_path, whole) is None


@pytest.mark.parametrize("optimized", [copy.deepcopy, lambda model: nn.Sequential(*map(copy.deepcopy, model))])
def test_the_optimizer_of_a_copy_is_named_though_the_values_are_equal(tmp_path, optimized):
    model = nn.Sequential(nn.Linear(4, 4))
    optimizer = torch.optim.SGD(optimized(model).parameters(), 0.1)
    assert "the optimizer was made for other tensors than the model's" in refusal(
        tmp_path, {"model": model, "optimizer": optimizer}
    )


def test_copies_in_full_precision_that_only_the_script_has_are_named(tmp_path):
    model = nn.Linear(4, 4).bfloat16()
    masters = [nn.Parameter(parameter.detach().float()) for parameter in model.parameters()]
    optimizer = torch.optim.SGD(masters, 0.1)
    assert "updates 2 tensors" in refusal(tmp_path, {"model": model, "optimizer": optimizer})
    assert refusal(tmp_path, {"model": model, "masters": masters, "optimizer": optimizer}) is None


class TestWhatIsTaken:
    """A refusal of what works is no better than a loss."""

    def test_frozen_weights_that_nothing_saves(self, tmp_path):
        """Adapters on a large model: the optimizer was given all, and updates some. They are saved alone."""

        class Adapted(nn.Module):
            def __init__(self):
                super().__init__()
                self.base, self.adapter = nn.Linear(4, 4).requires_grad_(requires_grad=False), nn.Linear(4, 4)

            def state_dict(self, *arguments, **options):
                whole = super().state_dict(*arguments, **options)
                return {name: value for name, value in whole.items() if name.startswith("adapter.")}

            def load_state_dict(self, state, **_):
                return super().load_state_dict(state, strict=False)

        model = Adapted()
        optimizer = torch.optim.AdamW(model.parameters())
        assert refusal(tmp_path, {"model": model, "optimizer": optimizer}) is None
        with Checkpointer({"model": model, "optimizer": optimizer}, tmp_path) as checkpointer:
            checkpointer.save(1)
            model.base.requires_grad_()
            with pytest.raises(StateError, match="'weight' of a Linear of shape"):
                checkpointer.save(2)

    @pytest.mark.parametrize("as_given", [lambda t: t, torch.clone, lambda t: t.numpy().copy(), lambda t: t.double()])
    def test_objects_that_save_the_model_in_a_way_of_their_own(self, tmp_path, as_given):
        class Learner:
            def __init__(self, *modules):
                self.modules = modules

            def state_dict(self):
                wholes = [module.state_dict() for module in self.modules]
                return {"nets": [{name: as_given(tensor) for name, tensor in whole.items()} for whole in wholes]}

            def load_state_dict(self, state):
                for module, whole in zip(self.modules, state["nets"], strict=True):
                    module.load_state_dict({name: torch.as_tensor(saved) for name, saved in whole.items()})

        one, two = nn.Linear(3, 3), nn.Linear(3, 3)
        optimizer = torch.optim.SGD([*one.parameters(), *two.parameters()], 0.1)
        assert refusal(tmp_path, {"learner": Learner(one, two), "optimizer": optimizer}) is None
        assert "updates 2 tensors" in refusal(tmp_path, {"learner": Learner(one), "optimizer": optimizer})

    def test_tied_flat_cast_and_wrapped(self, tmp_path):
        tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        tied[1].weight = tied[0].weight
        flat = nn.Parameter(torch.zeros(6))
        cast = nn.Linear(2, 2)

        class Wrapper:
            """As accelerate's and as those of mixed precision, which keep their own copies in their state."""

            def __init__(self, optimizer):
                self.optimizer, self.param_groups = optimizer, optimizer.param_groups
                self.masters = [nn.Parameter(torch.ones(2))]
                self.param_groups[0]["params"] += self.masters

            def state_dict(self):
                return {"masters": self.masters, **self.optimizer.state_dict()}

            def load_state_dict(self, state):
                raise AssertionError("nothing is restored here")

        optimizer = torch.optim.SGD([*tied.parameters(), flat, *cast.parameters()], 0.1)
        cast.double()  # the parameters are the same objects, with other memory
        views = [flat[:2].detach(), flat[2:].detach()]
        state = {"tied": tied, "views": views, "cast": cast, "optimizer": Wrapper(optimizer)}
        assert refusal(tmp_path, state) is None

    def test_objects_that_only_look_like_optimizers(self, tmp_path):
        class Groups:
            param_groups = "of people"

            def state_dict(self):
                return {"w": np.zeros(2)}

            def load_state_dict(self, state):
                raise AssertionError("nothing is restored here")

        assert refusal(tmp_path, {"groups": Groups()}) is None


def test_a_group_that_is_added_later_ends_the_training_at_the_next_save(tmp_path):
    """And not with an entry in the log at each save, and no checkpoint."""
    model, head = nn.Linear(4, 3), nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Checkpointer({"model": model, "optimizer": optimizer}, tmp_path, every_steps=1) as checkpointer:
        steps = checkpointer.steps(4)
        assert [next(steps), next(steps)] == [0, 1]
        optimizer.add_param_group({"params": head.parameters()})
        with pytest.raises(StateError, match="updates 2 tensors that no entry holds: 'weight' of a Linear"):
            next(steps)
    assert checkpointer.durable_step == 1
