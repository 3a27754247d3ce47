"""The ranks of small data-parallel trainings, as real processes over gloo on this machine.

Run as a script it imports torch once and then forks the ranks of one training after another, which takes milliseconds.
One line of JSON in: what to run. Two lines out: the processes' numbers, and how they ended.
"""

from __future__ import annotations

import errno
import gc
import hashlib
import json
import os
import signal
import sys
import threading
import time
import warnings
from collections import OrderedDict
from functools import partial
from pathlib import Path

from tests.forking import fork
from tests.ports import free_ports


def main() -> None:
    import_what_training_takes()
    for line in sys.stdin:
        job = json.loads(line)
        port = free_ports()
        pids = [fork(partial(run_rank, rank, job, port)) for rank in range(job["world_size"])]
        print(json.dumps(pids), flush=True)
        print(json.dumps(ends_of(pids, limit_seconds=job["limit_seconds"])), flush=True)


def import_what_training_takes() -> None:
    """Once, before the ranks are forked: torch imports half of itself at the first step of an optimizer."""
    import torch
    import torch.distributed.fsdp

    import spotkeep.checkpointer
    import spotkeep.integrations.sharded
    import spotkeep.integrations.virtual_ranks
    import spotkeep.loops.torch_batches
    import spotkeep.ranks.shared_directory  # noqa: F401

    torch.set_num_threads(1)
    layer = torch.nn.Linear(1, 1)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(1)).sum().backward()
    optimizer.step()
    # A rank that looks for garbage in what is imported would copy the memory that it shares with the others.
    gc.freeze()


def ends_of(pids: list[int], *, limit_seconds: float) -> list[int | str]:
    ends: dict[int, int | str] = {}
    limit = time.monotonic() + limit_seconds
    while len(ends) < len(pids):
        for pid in pids:
            if pid in ends:
                continue
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                ends[pid] = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > limit:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                ends[pid] = "did not end"
        time.sleep(0.005)
    return [ends[pid] for pid in pids]


def run_rank(rank: int, job: dict, port: int) -> None:
    out = os.open(f"{job['out']}.{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    kinds = {
        "steps": train,
        "epochs": train_epochs,
        "samples": go_through_samples,
        "shards": train_sharded,
        "reshard": reshard,
        "apart": train_apart,
        "uneven": train_uneven,
        "free": train_free,
        "back": go_back,
        "folds": train_folds,
        "virtual": train_virtual,
    }
    kinds[job.get("kind", "steps")](rank, job, port)


def train(rank: int, job: dict, port: int) -> None:
    import numpy as np
    import torch
    import torch.distributed as dist

    from spotkeep import Checkpointer
    from spotkeep.ranks import distributed

    world_size = job["world_size"]
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), SPOTKEEP_EVENTS="stdout", **job.get("environment", {})
    )
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(6, 12), torch.nn.BatchNorm1d(12), torch.nn.Dropout(0.3), torch.nn.Linear(12, 2)
    )
    model = torch.nn.parallel.DistributedDataParallel(net)
    # DistributedDataParallel arranges its buckets anew after its first step, and with three or more ranks the last bit
    # of a sum depends on them: so the first step is one that does not count.
    model(torch.ones(4, 6)).sum().backward()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    torch.manual_seed(100 + rank)
    rng = np.random.default_rng(rank)
    seen = {"batches": []}
    per_rank = {"torch": torch.default_generator, "rng": rng, "seen": seen} if job.get("per_rank", True) else {}
    if "notes" in job:
        per_rank["note"] = [job["notes"][rank]]
    directory = job["directory"][rank] if isinstance(job["directory"], list) else job["directory"]
    lay_traps(rank, job)
    distributed._ANSWER_SECONDS = job.get("answer_seconds", 60)
    if rank == job.get("stays_away"):
        return
    state = {"model": model, "optimizer": optimizer, "schedule": schedule}
    options = {"every_steps": 4, **job.get("options", {})}
    with Checkpointer(state, directory, per_rank=per_rank, **options) as checkpointer:
        began = checkpointer.step
        for step in (own_loop if job.get("own_loop") else Checkpointer.steps)(checkpointer, job["steps"]):
            if [rank, step] == job.get("notice_at_begin"):
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(job["long_step_seconds"])
            batch = torch.from_numpy(rng.normal(size=(4, 6)).astype("float32"))
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            schedule.step()
            seen["batches"].append(step)
            time.sleep(job.get("step_seconds", 0))
            if [rank, step] == job.get("notice"):
                os.kill(os.getpid(), signal.SIGTERM)
            if [rank, step] == job.get("kill_in_step"):
                wait_for_checkpoint(job)
                os.kill(os.getpid(), signal.SIGKILL)
    if "second" in job:
        with Checkpointer(state, directory, per_rank=per_rank, **job["second"]) as checkpointer:
            assert [*checkpointer.steps(2)] == [0, 1]
    # Of a batch norm's averages rank 0's count: the next step begins with giving them to the others.
    whole = net.state_dict() if rank == 0 else dict(net.named_parameters())
    weights = hashlib.sha256(b"".join(part.detach().numpy().tobytes() for part in whole.values()))
    own = hashlib.sha256(repr((rng.bit_generator.state, seen, torch.get_rng_state().tolist())).encode())
    result = {"began": began, "weights": weights.hexdigest(), "own": own.hexdigest()}
    Path(f"{job['out']}.{rank}.json").write_text(json.dumps(result), encoding="utf-8")
    dist.destroy_process_group()


def wait_for_checkpoint(job: dict) -> None:
    """Wait until the first host has the whole checkpoint of a step, where the job names one."""
    if "with_checkpoint" in job:
        manifest = Path(job["directory"][0], f"step-{job['with_checkpoint']}", "manifest.json")
        while not manifest.exists():
            time.sleep(0.01)


def own_loop(checkpointer, total: int):
    """A loop that counts its own steps, as docs/training-scripts.md shows it."""
    done = checkpointer.step
    while done < total:
        yield done
        done += 1
        if checkpointer.interrupted or done % 4 == 0 or done == total:
            checkpointer.save(done, wait=done % 8 == 0)
        if checkpointer.interrupted:
            raise SystemExit(75)


def train_epochs(rank: int, job: dict, port: int) -> None:
    """A script with loops of its own over a DataLoader that gives each rank its part of the data.

    Its last layer joins the optimizer in the second epoch.
    """
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    from spotkeep import ResumableTraining

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), SPOTKEEP_EVENTS="stdout")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=job["world_size"])
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(40, 6))
    net = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.Dropout(0.3), torch.nn.Linear(12, 2))
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net[0].parameters(), lr=0.1, momentum=0.9)
    sampler = DistributedSampler(data, seed=3)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    torch.manual_seed(100 + rank)

    def add_the_last_layer() -> None:
        optimizer.add_param_group({"params": net[2].parameters(), "lr": 0.05})

    def as_it_was(step: int, epoch: int | None) -> None:
        assert epoch in (step // len(loader), (step - 1) // len(loader))  # Its end may be still to come.
        if step > len(loader):
            add_the_last_layer()

    state = {"model": model, "optimizer": optimizer}
    training = ResumableTraining(state, directory=job["directory"], every_steps=2, on_restore=as_it_was)
    loader = training.loader(loader)
    steps = 0
    for epoch in training.epochs(3):
        sampler.set_epoch(epoch)
        if epoch >= 1 and len(optimizer.param_groups) == 1:
            add_the_last_layer()
        for (batch,) in loader:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            steps += 1
            if [rank, steps] == job.get("kill_in_step"):
                os.kill(os.getpid(), signal.SIGKILL)
            if [rank, steps] == job.get("notice"):
                os.kill(os.getpid(), signal.SIGTERM)
    weights = hashlib.sha256(b"".join(part.detach().numpy().tobytes() for part in net.parameters())).hexdigest()
    own = hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()
    Path(f"{job['out']}.{rank}.json").write_text(json.dumps({"began": steps, "weights": weights, "own": own}))
    dist.destroy_process_group()


def go_through_samples(rank: int, job: dict, port: int) -> None:
    """Go through the samples of two epochs, of which a sampler gives each rank its part, and print their numbers.

    A batch size for all ranks makes GlobalBatches, and one for a rank DistributedSampler.
    """
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, DistributedSampler

    from spotkeep import GlobalBatches, ResumableTraining

    class Rows(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 48

        def __getitem__(self, index: int) -> tuple[int, float]:
            return index, float(torch.rand(()))

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), SPOTKEEP_EVENTS="stdout")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=job["world_size"])
    torch.manual_seed(rank)
    model = torch.nn.Linear(1, 1)
    training = ResumableTraining({"model": model}, directory=job["directory"], every_steps=1)
    if "global_batch" in job:
        batches = GlobalBatches(48, batch_size=job["global_batch"], seed=3)
        made = DataLoader(Rows(), batch_sampler=batches, num_workers=job["workers"])
    else:
        made = DataLoader(Rows(), job["batch_size"], sampler=DistributedSampler(range(48), seed=3))
    loader = training.loader(made)
    for epoch in training.epochs(2):
        if "global_batch" not in job:
            made.sampler.set_epoch(epoch)
        for number, (rows, drawn) in enumerate(loader, loader.start):
            print("samples", json.dumps([epoch, number, rank, rows.tolist(), drawn.tolist()]), flush=True)
            if [epoch, number, rank] == job.get("notice"):
                os.kill(os.getpid(), signal.SIGTERM)
    dist.destroy_process_group()


def train_sharded(rank: int, job: dict, port: int) -> None:
    """A model of which each rank holds a part, in one of several divisions."""
    import torch
    import torch.distributed as dist

    from spotkeep import Checkpointer
    from spotkeep.integrations.sharded import ShardedState

    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), SPOTKEEP_EVENTS="stdout", **job.get("environment", {})
    )
    warnings.simplefilter("ignore")  # torch's own, about what it has left behind
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=job["world_size"])
    torch.manual_seed(0)
    models = divided_models(job.get("division", "fully_shard"), rank, job["world_size"])
    parameters = [parameter for model in models for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-2)
    torch.manual_seed(100 + rank)
    shards = ShardedState(models, optimizer)
    if "hook_warns" in job:
        warnings.simplefilter("always")
        models[0].register_state_dict_post_hook(lambda *_: warnings.warn(job["hook_warns"], stacklevel=1))
    per_rank = {"torch": torch.default_generator}
    directory = job["directory"][rank] if isinstance(job["directory"], list) else job["directory"]
    options = {"every_steps": 4, **job.get("options", {})}
    with Checkpointer({"shards": shards}, directory, per_rank=per_rank, **options) as checkpointer:
        began = checkpointer.step
        taken = parts_of({"shards": shards.state_dict()})
        for step in checkpointer.steps(job["steps"]):
            # Ranks with parts of one computation have the same data, and those with computations of their own have not.
            data = None if job.get("division", "fully_shard") in OWN_DATA else torch.Generator().manual_seed(step)
            optimizer.zero_grad()
            sum(model(torch.randn(4, model.inputs, generator=data)).square().mean() for model in models).backward()
            optimizer.step()
            time.sleep(job.get("step_seconds", 0))
            if [rank, step] == job.get("kill_in_step"):
                os.kill(os.getpid(), signal.SIGKILL)
        ended = parts_of({"shards": shards.state_dict()})
    torch.save({"taken": taken, "ended": ended}, f"{job['out']}.{rank}.parts")
    digest = hashlib.sha256(repr(ended).encode()).hexdigest()
    own = hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()
    Path(f"{job['out']}.{rank}.json").write_text(json.dumps({"began": began, "weights": digest, "own": own}))
    dist.destroy_process_group()


OWN_DATA = ("fully_shard", "fully_shard in replicas", "flat", "flat with names", "flat in replicas")


def divided_models(division: str, rank: int, world_size: int) -> list:
    """Give the models of this rank, which are one model on all of them together."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    class Net(torch.nn.Sequential):
        inputs = 6

    first = [("a", torch.nn.Linear(6, 7)), ("norm", torch.nn.BatchNorm1d(7)), ("active", torch.nn.Tanh())]
    last = [("b", torch.nn.Linear(7, 3))]
    net = Net(OrderedDict([*first, *last]))
    half = world_size // 2
    if division == "stages":
        if world_size == 1:
            return [net]
        stage = Net(OrderedDict(first if rank < half else last))
        stage.inputs = 6 if rank < half else 7
        return [stage]
    if division in ("flat", "flat with names", "flat in replicas"):
        options = {}
        if division == "flat in replicas":
            options["sharding_strategy"] = ShardingStrategy.HYBRID_SHARD
            options["device_mesh"] = init_device_mesh("cpu", (2, half))
        named = division != "flat"
        flat = FullyShardedDataParallel(net, device_id=torch.device("cpu"), use_orig_params=named, **options)
        flat.inputs = 6
        return [flat]
    if division in ("tensor parallel", "tensor parallel in replicas", "tensor parallel, fully_shard"):
        shape = (1, world_size) if division == "tensor parallel" else (half, 2)
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data", "tensor"))
        by_rows = RowwiseParallel(input_layouts=Replicate())
        parallelize_module(net, mesh["tensor"], {"b": by_rows if division == "tensor parallel" else ColwiseParallel()})
        divide = division == "tensor parallel, fully_shard"
        mesh = mesh["data"]
    else:
        divide, shape = True, (world_size,) if division == "fully_shard" else (2, half)
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replica", "part")[-len(shape) :])
    if divide:
        for layer in (net.a, net.b, net):
            fully_shard(layer, mesh=mesh)
    return [net]


def parts_of(value: object, path: str = "state") -> dict:
    """Give the parts of a state that this rank holds, with their offsets, and its plain values."""
    import torch

    from spotkeep.state.divided import divided_of
    from spotkeep.state.encoding import object_state, stateful_kind

    if stateful_kind(value) is not None and not isinstance(value, torch.Tensor):
        value = object_state(value)
    if isinstance(value, (dict, list, tuple)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {name: found for key, item in items for name, found in parts_of(item, f"{path}/{key}").items()}
    array = divided_of(value)
    if array is not None:
        return {path: (array.shape, [(part.box.offsets, part.local.detach().clone()) for part in array.parts])}
    return {path: value.detach().clone() if isinstance(value, torch.Tensor) else value}


def reshard(rank: int, job: dict, port: int) -> None:
    """Make two steps and a checkpoint, or go on from one, with a model that is divided in one of several ways."""
    import torch
    import torch.distributed as dist

    from spotkeep import Checkpointer

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), SPOTKEEP_EVENTS="stdout")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=job["world_size"])
    torch.manual_seed(job["seed"])
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 300), torch.nn.BatchNorm1d(300)
    )
    net = divided(model, job["division"], job["world_size"])
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    state = {"model": model, "optimizer": optimizer}
    with Checkpointer(state, job["directory"], every_steps=2) as checkpointer:
        began = checkpointer.step
        for _ in checkpointer.steps(job["steps"]):
            optimizer.zero_grad()
            net(torch.randn(4, 6)).square().mean().backward()
            optimizer.step()
    wholes = dict(model.state_dict())
    for number, own in optimizer.state_dict()["state"].items():
        wholes |= {f"{number}.{name}": value for name, value in own.items()}
    full = {name: getattr(value, "full_tensor", lambda value=value: value)() for name, value in wholes.items()}
    digests = {name: hashlib.sha256(value.detach().numpy().tobytes()).hexdigest() for name, value in full.items()}
    result = {"began": began, "weights": digests, "own": 0}
    Path(f"{job['out']}.{rank}.json").write_text(json.dumps(result), encoding="utf-8")
    dist.destroy_process_group()


def divided(net, division: str, world_size: int):
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    if division == "replicas":
        return torch.nn.parallel.DistributedDataParallel(net)
    if division == "fully sharded":
        mesh = init_device_mesh("cpu", (world_size,))
    elif division == "replicas of shards":
        mesh = init_device_mesh("cpu", (2, world_size // 2), mesh_dim_names=("replicas", "shards"))
    elif division == "two dimensions":
        both = init_device_mesh("cpu", (world_size // 2, 2), mesh_dim_names=("data", "tensor"))
        parallelize_module(net, both["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        mesh = both["data"]
    if division != "none":
        for layer in (net[0], net[2], net):
            fully_shard(layer, mesh=mesh)
    return net


def train_virtual(rank: int, job: dict, port: int) -> None:
    from tests.spotkeep.integrations.virtual_ranks_training import train

    train(rank, job, port)


def train_apart(rank: int, job: dict, port: int) -> None:
    """Ranks that go on with values of their own: a queue as MoCo has it, and weights that are averaged now and then."""
    import torch
    import torch.distributed as dist

    from spotkeep import Checkpointer

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), SPOTKEEP_EVENTS="stdout")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=job["world_size"])
    torch.manual_seed(0)

    class Contrast(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = torch.nn.Linear(6, 3)
            self.register_buffer("queue", torch.randn(8, 3))

        def forward(self, batch):
            keys = self.encoder(batch)
            loss = torch.logsumexp(keys @ self.queue.T.clone(), 1).mean()
            self.queue.copy_(torch.cat([keys.detach(), self.queue[:4]]))
            return loss

    contrast = Contrast()
    parallel = torch.nn.parallel.DistributedDataParallel(contrast, broadcast_buffers=False, static_graph=True)
    local = torch.nn.Sequential(torch.nn.Linear(6, 2))
    optimizer = torch.optim.Adam([*contrast.parameters(), *local.parameters()], lr=1e-2)
    generator = torch.Generator().manual_seed(rank)
    average = {name: weight.detach().clone() for name, weight in local.named_parameters()}
    history = []
    state = {"contrast": contrast, "local": local, "optimizer": optimizer, "generator": generator}
    state |= {"average": average, "history": history}
    with Checkpointer(state, job["directory"], every_steps=1) as checkpointer:
        began = checkpointer.step
        for step in checkpointer.steps(job["steps"]):
            batch = torch.randn(4, 6, generator=generator)
            optimizer.zero_grad()
            (parallel(batch) + local(batch).square().mean()).backward()
            optimizer.step()
            if step % 5 == 4:
                for weight in local.parameters():
                    dist.all_reduce(weight.data)
                    weight.data /= job["world_size"]
            for name, weight in local.named_parameters():
                average[name].lerp_(weight.detach(), 0.1)
            if rank == 0:
                history.append(step)
            if [rank, step] == job.get("kill_in_step"):
                os.kill(os.getpid(), signal.SIGKILL)
            if [rank, step] == job.get("notice"):
                os.kill(os.getpid(), signal.SIGTERM)
    parts = [*contrast.state_dict().values(), *local.state_dict().values(), *average.values()]
    weights = hashlib.sha256(b"".join(part.numpy().tobytes() for part in parts)).hexdigest()
    own = hashlib.sha256(repr((history, generator.get_state().tolist())).encode()).hexdigest()
    result = {"began": began, "weights": weights, "own": own}
    Path(f"{job['out']}.{rank}.json").write_text(json.dumps(result), encoding="utf-8")
    dist.destroy_process_group()


def go_back(rank: int, job: dict, port: int) -> None:
    """Ranks that restore an older checkpoint together, and remove newer ones."""
    import torch
    import torch.distributed as dist

    from spotkeep import Best, Checkpointer, UsageError

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=job["world_size"])
    weights = torch.zeros(4)
    own = {"mine": 0}
    options = {"every_steps": 1, "keep_every": 1, "keep_best": Best("loss")}
    with Checkpointer({"weights": weights}, job["directory"], per_rank={"own": own}, **options) as checkpointer:
        for step in checkpointer.steps(5):
            weights += 1
            own["mine"] = 100 * rank + step
            checkpointer.log(loss=abs(step - 1))
        found = [checkpointer.restore(4), own["mine"], checkpointer.restore("best"), own["mine"], weights[0].item()]
        refused = ""
        try:
            checkpointer.save(3)
        except UsageError as error:
            refused = str(error)
        for step in (3, 4, 5):
            checkpointer.delete(step)
        checkpointer.save(3)
    Path(f"{job['out']}.{rank}.json").write_text(
        json.dumps({"found": found, "refused": refused, "steps": checkpointer.all_steps()})
    )
    dist.destroy_process_group()


def train_folds(rank: int, job: dict, port: int) -> None:
    """One training after another, with one process group for all of them or one for each."""
    import torch
    import torch.distributed as dist

    from spotkeep import Checkpointer

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), SPOTKEEP_EVENTS="none")
    gc.disable()
    opened = []
    for fold in range(job["folds"]):
        if not dist.is_initialized():
            dist.init_process_group("gloo", rank=rank, world_size=job["world_size"])
            by_torch = opened_here()
        done = torch.zeros(1)
        with Checkpointer({"done": done}, job["directory"], every_steps=2, name=f"fold-{fold}") as checkpointer:
            for step in checkpointer.steps(4):
                done.fill_(step + 1)
                if [rank, fold] == job.get("fails") and step == 2:
                    raise KeyError("a mistake of this rank")
                if [rank, fold] == job.get("killed") and step == 2:
                    os.kill(os.getpid(), signal.SIGKILL)
        opened.append([here - before for here, before in zip(opened_here(), by_torch, strict=True)])
        if job.get("calls_outside"):
            checkpointer.delete(2)
            assert (checkpointer.restore(4), done.item()) == (4, 4)
            checkpointer.save(5)
            with checkpointer:
                assert [*checkpointer.steps(7)] == [5, 6]
            opened.append([here - before for here, before in zip(opened_here(), by_torch, strict=True)])
        if job.get("groups_of_each"):
            dist.destroy_process_group()
            # The next group of torch's meets at the same port, and no rank may come while rank 0 still listens there.
            Path(f"{job['out']}.{rank}.{fold}").touch()
            while not all(Path(f"{job['out']}.{other}.{fold}").exists() for other in range(job["world_size"])):
                time.sleep(0.01)
    Path(f"{job['out']}.{rank}.json").write_text(json.dumps({"opened": opened}), encoding="utf-8")
    if dist.is_initialized():
        dist.destroy_process_group()


def opened_here() -> list[int]:
    """Count the open files and the threads of this process."""
    return [len([*Path(f"/proc/self/{what}").iterdir()]) for what in ("fd", "task")]


def train_uneven(rank: int, job: dict, port: int) -> None:
    """Ranks with different numbers of batches: `batches` has one for each."""
    import torch
    import torch.distributed as dist

    from spotkeep import Checkpointer, ResumableTraining

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), SPOTKEEP_EVENTS="stdout")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=job["world_size"])
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(6, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_one_batch(net):
        optimizer.zero_grad()
        net(torch.ones(4, 6)).square().mean().backward()
        optimizer.step()

    if job["how"] == "a pass in join":
        training = ResumableTraining({"model": model, "optimizer": optimizer}, directory=job["directory"])
        loader = training.loader(range(job["batches"][rank]))
        for _ in training.epochs(2):
            with model.join():
                for _ in loader:
                    print("a step", flush=True)
    every_steps = job.get("every_steps", 1)
    state = {"model": model, "optimizer": optimizer}
    with Checkpointer(state, job["directory"], every_steps=every_steps) as checkpointer:
        if job["how"] == "in join":
            with model.join():
                for _ in range(job["batches"][rank]):
                    train_one_batch(model)
                    checkpointer.complete_step()
                    checkpointer.save_if_due()
        elif job["how"] == "around join":
            for _ in range(2):
                with model.join():
                    for _ in range(job["batches"][rank]):
                        train_one_batch(model)
                checkpointer.complete_step()
                checkpointer.save_if_due()
        elif job["how"] == "of steps in DDP":
            for _ in checkpointer.steps(job["batches"][rank]):
                train_one_batch(model)
        else:  # nothing between two saves in which the ranks wait for each other
            for _ in checkpointer.steps(job["batches"][rank]):
                train_one_batch(model.module)
    dist.destroy_process_group()


def train_free(rank: int, job: dict, port: int) -> None:
    """Ranks that do not wait for each other in a step."""
    import torch
    import torch.distributed as dist

    from spotkeep import Checkpointer

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), SPOTKEEP_EVENTS="stdout")
    dist.init_process_group("gloo", rank=rank, world_size=job["world_size"])
    done = torch.zeros(1)
    began: list[float] = []

    def loop(checkpointer: Checkpointer) -> None:
        for step in checkpointer.steps(job["steps"]):
            began.append(time.time())
            done.fill_(step + 1)
            if [rank, step] == job.get("notice"):
                os.kill(os.getpid(), signal.SIGTERM)
            if [rank, step] == job.get("long_step"):
                time.sleep(job["long_step_seconds"])
            if [rank, step] == job.get("fork"):
                pid = os.fork()
                if pid == 0:
                    raise SystemExit(3)
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
            if [rank, step] == job.get("asks_once_more"):
                assert not checkpointer.interrupted
            if [rank, step] == job.get("leaves"):
                raise KeyError("a mistake of this rank")
            time.sleep(job.get("step_seconds", 0))

    options = job.get("options", {"every_steps": 1000})
    try:
        with Checkpointer({"done": done}, job["directory"], **options) as outer:
            if job.get("nested"):
                for number in outer.steps(2):
                    with Checkpointer({"done": done}, job["directory"], name=f"inner-{number}", **options) as inner:
                        loop(inner)
            else:
                loop(outer)
    except KeyError:
        time.sleep(job["stays_seconds"])  # as a script that goes on to do something else
        raise
    result = {"began": began, "threads": [thread.name for thread in threading.enumerate()]}
    Path(f"{job['out']}.{rank}.json").write_text(json.dumps(result), encoding="utf-8")
    dist.destroy_process_group()


def lay_traps(rank: int, job: dict) -> None:
    """Let the process die, dawdle, or meet a full disk at a chosen point of a save."""
    from spotkeep.disk.storage import LocalStorage
    from spotkeep.ranks.shared_directory import SharedDirectory

    trap = job.get("trap")
    if trap is None or trap["rank"] != rank:
        return
    prepare, write, commit = SharedDirectory._prepare, SharedDirectory._write_data, SharedDirectory._commit
    kind, step_of_trap = trap["kind"], trap["step"]

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def prepared(self, step, document):
        first = prepare(self, step, document)
        if step == step_of_trap and kind == "slow":
            time.sleep(0.5)
        return first

    def written(self, step, *arguments):
        if step == step_of_trap and kind == "full disk":
            LocalStorage.write_some = full
        try:
            file = write(self, step, *arguments)
        finally:
            LocalStorage.write_some = write_some
        if step == step_of_trap and kind == "killed after its data":
            die()
        return file

    def committed(self, step, *arguments, **options):
        size = commit(self, step, *arguments, **options)
        if step == step_of_trap and kind == "killed after the commit":
            die()
        return size

    write_some = LocalStorage.write_some

    def full(*_arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    SharedDirectory._prepare = prepared
    SharedDirectory._write_data = written
    SharedDirectory._commit = committed


if __name__ == "__main__":
    main()
