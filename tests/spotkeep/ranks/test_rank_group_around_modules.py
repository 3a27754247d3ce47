"""What torch wraps around modules keeps something between steps: an entry holds it, or it is named."""

from __future__ import annotations

import pytest

from spotkeep.ranks.rank_group import Joinables

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _group(tmp_path):
    """torch's wrappers need one; theirs is of this process alone."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


class HookState:
    """As docs/distributed-training.md shows it."""

    def __init__(self, kept, *names):
        self.kept, self.names = kept, names

    def state_dict(self):
        return {name: getattr(self.kept, name) for name in self.names}

    def load_state_dict(self, state):
        for name, value in state.items():
            setattr(self.kept, name, value)


def problems(*states):
    joinables = Joinables()
    joinables.find()
    return joinables.problems(*states)


def test_what_a_communication_hook_keeps_is_held_by_an_entry_or_named():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook

    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    for hook, kept in (
        (powerSGD_hook.powerSGD_hook, powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)),
        (post_localSGD_hook.post_localSGD_hook, post_localSGD_hook.PostLocalSGDState(None, None, 4)),
    ):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        model.register_comm_hook(kept, hook)
        (problem,) = problems({"model": model}, {})
        assert f"the communication hook {hook.__name__} of a DistributedDataParallel" in problem
        assert f"keeps a {type(kept).__name__} from step to step" in problem
        assert problems({"model": model}, {"hooks": [HookState(kept, "iter")]}) == []
        del model
    for kept in (None, torch.distributed.group.WORLD, object()):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        model.register_comm_hook(kept, default_hooks.fp16_compress_hook)
        assert problems({"model": model}) == []
        del model


@pytest.mark.filterwarnings("ignore:`torch.jit")  # by the module that has it, when it is imported
def test_an_optimizer_that_is_divided_among_the_ranks_is_named_with_its_part():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    net = torch.nn.Linear(2, 2)
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.SGD, lr=0.1)
    (problem,) = problems({"model": net, "optimizers": {"main": optimizer}})
    assert problem.startswith("state['optimizers']['main'] is a ZeroRedundancyOptimizer")
    assert "per_rank={'optimizer': optimizer.optim}" in problem
    assert problems({"model": net}, {"optimizer": optimizer.optim}) == []
    optimizer.consolidate_state_dict()
    assert problems({"model": net, "optimizer": optimizer}) == []


def test_a_block_of_join_counts_only_while_it_lasts():
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    joinables = Joinables()
    joinables.find()
    assert not joinables.joining
    for _ in range(2):
        with model.join():
            assert joinables.joining
        assert not joinables.joining
    with model.join(enable=False):
        assert not joinables.joining
