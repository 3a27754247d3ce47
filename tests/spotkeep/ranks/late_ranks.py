"""Two ranks that train, save late, and then restore each checkpoint. Each prints one line of JSON.

Arguments: the folder, the kind of model (`replicated`, `divided`), the rank that changes a tensor by hand or -1, and
the rank that copies all at once or -1.
"""

from __future__ import annotations

import copy
import json
import os
import sys
from functools import partial

from spotkeep import Checkpointer
from spotkeep.disk.late_copy import LateCopy
from spotkeep.schedule.late_copying import COMPARED_SAVES, CopyWay, LateCopying
from tests.forking import fork
from tests.ports import free_ports

WIDTH = 800
FIRST_LATE = COMPARED_SAVES + 1
STEPS = COMPARED_SAVES + 4


def main() -> int:
    directory, kind, changing, at_once = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    port = free_ports()
    ranks = [fork(partial(train, rank, port, directory, kind, changing, at_once)) for rank in range(2)]
    return max(os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks)


def train(rank, port, directory, kind, changing, at_once):
    import torch
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    late = []
    really_copy = LateCopy.copy

    def note(one):
        late.append(not one._compares)
        really_copy(one)

    LateCopy.copy = note
    LateCopying.medians = {CopyWay.LATE: 1.0, CopyWay.AT_ONCE: 0.5 if rank == at_once else 2.0}  # on every machine
    LateCopy._copy_beside = lambda one: None  # nothing is copied before the step of the optimizer
    state = made(kind)
    model, optimizer = state["model"], state["optimizer"]
    states = {}
    with Checkpointer(state, directory, every_steps=1, keep_last=STEPS) as checkpointer:
        for step in checkpointer.steps(STEPS):
            if step == FIRST_LATE and rank == changing:
                parameter = next(model.parameters())
                getattr(parameter, "_local_tensor", parameter).data.clamp_(-0.001, 0.001)
            torch.manual_seed(10 * step + rank)
            model(torch.randn(4, WIDTH)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            states[step + 1] = kept(state)
        saved = sorted(checkpointer.all_steps())
    equal = []
    for step in saved:
        found = made(kind)
        Checkpointer(found, directory).restore(step)
        equal.append(are_equal(kept(found), states[step]))
    os.write(1, (json.dumps({"rank": rank, "saved": saved, "late": late, "equal": equal}) + "\n").encode())
    dist.barrier()
    dist.destroy_process_group()


def made(kind):
    import torch
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH))
    if kind == "divided":
        for layer in (model[0], model[2]):
            fully_shard(layer)
        model = fully_shard(model)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model)
    return {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), 0.01)}


def kept(state):
    return {name: copy.deepcopy(value.state_dict()) for name, value in state.items()}


def are_equal(one, other):
    import torch

    if isinstance(one, torch.Tensor):
        return torch.equal(getattr(one, "_local_tensor", one), getattr(other, "_local_tensor", other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(are_equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(are_equal, one, other))
    return one == other


if __name__ == "__main__":
    sys.exit(main())
