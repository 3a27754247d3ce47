"""A rank of a training with virtual ranks, which `distributed_ranks` forks. A job may ask for a fault of the script."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import warnings
from pathlib import Path


def train(rank: int, job: dict, port: int) -> None:
    import torch
    import torch.distributed as dist

    warnings.simplefilter("ignore")  # torch's own, about what it has left behind
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), SPOTKEEP_EVENTS="stdout")
    torch.set_num_threads(job.get("threads", 1) + (job.get("fault") == "threads of a rank" and rank == 1))
    torch.use_deterministic_algorithms(True)
    if job["wrapper"] != "none":
        dist.init_process_group("gloo", rank=rank, world_size=job["world_size"])
    torch.manual_seed(0)
    net = Net(torch, width=job.get("width", 37))
    model = wrapped(net, rank, job)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    torch.manual_seed(100 + rank)  # They count for nothing.
    objects = {"model": net, "optimizer": optimizer, "schedule": schedule}
    result = (train_from_loader if "workers" in job else train_steps)(rank, job, model, objects)
    wholes = dict(net.state_dict())
    for number, own in optimizer.state_dict()["state"].items():
        wholes |= {f"{number}.{name}": value for name, value in own.items()}
    full = {name: getattr(value, "full_tensor", lambda value=value: value)() for name, value in wholes.items()}
    digests = {name: hashlib.sha256(value.detach().numpy().tobytes()).hexdigest() for name, value in full.items()}
    result["weights"] = {**digests, "norm": result.pop("norm").hex()}
    Path(f"{job['out']}.{rank}.json").write_text(json.dumps(result), encoding="utf-8")
    if job["wrapper"] != "none":
        dist.destroy_process_group()


def wrapped(net, rank: int, job: dict):
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    if job["wrapper"] == "ddp":
        options = {"gradient_as_bucket_view": True} if job["world_size"] == 2 else {}
        return torch.nn.parallel.DistributedDataParallel(net, **options)
    if job["wrapper"] == "fully_shard":
        policy = MixedPrecisionPolicy(reduce_dtype=torch.bfloat16 if job.get("fault") == "bfloat16" else None)
        for layer in (net.first, net.last, net):
            fully_shard(layer, mp_policy=policy)
    return net


def random_state() -> str:
    import torch

    return hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()


def train_steps(rank: int, job: dict, model, objects: dict) -> dict:
    import torch

    from spotkeep import Checkpointer
    from spotkeep.integrations.virtual_ranks import VirtualRanks

    net, optimizer, schedule, fault = *objects.values(), job.get("fault")
    ranks = VirtualRanks(job["count"], model, optimizer, seed=5)
    drawn = {}
    with Checkpointer({**objects, "ranks": ranks}, job["directory"], every_steps=3) as checkpointer:
        began = checkpointer.step
        for step in checkpointer.steps(job["steps"]):
            optimizer.zero_grad()
            for virtual_rank in ranks.micro_batches():
                data = torch.Generator().manual_seed(step * 1000 + virtual_rank)
                tokens, targets = torch.randint(0, 11, (6,), generator=data), torch.randn(6, 3, generator=data)
                net.skips = fault in ("some micro-batches", "some ranks") and virtual_rank % 2 == 1
                net.other = fault == "another layer" and virtual_rank % 2 == 1
                loss = (model(tokens) - targets).square().mean()
                loss.backward(retain_graph=fault == "two passes")
                if fault == "two passes":
                    loss.backward()
                drawn[f"{step} {virtual_rank}"] = random_state()
            if fault == "clipping of torch":
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            norm = ranks.clip_grad_norm_(0.5) if fault is None else 0.0
            optimizer.step()
            schedule.step()
            if [rank, step] == job.get("notice"):
                os.kill(os.getpid(), signal.SIGTERM)
    return {"began": began, "own": drawn, "norm": norm}


ROWS, BATCH_SIZE, EPOCHS = 72, 24, 2


def train_from_loader(rank: int, job: dict, model, objects: dict) -> dict:
    """Train on rows with random numbers of their own, put together by a collate function that pads and draws, too."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    from spotkeep import GlobalBatches, ResumableTraining
    from spotkeep.integrations.virtual_ranks import VirtualRanks

    class Rows(Dataset):
        def __len__(self) -> int:
            return ROWS

        def __getitem__(self, index: int):
            return index, torch.full((1 + index % 5,), float(torch.rand(())))

    def collate(rows):
        padded = torch.nn.utils.rnn.pad_sequence([values for _, values in rows], batch_first=True)
        return torch.tensor([index % 11 for index, _ in rows]), padded.mean(1) + torch.rand(())

    optimizer, schedule = objects["optimizer"], objects["schedule"]
    ranks = VirtualRanks(job["count"], model, optimizer, seed=5)
    training = ResumableTraining({**objects, "ranks": ranks}, directory=job["directory"], every_steps=1)
    batches = GlobalBatches(ROWS, batch_size=BATCH_SIZE, seed=3, virtual_ranks=ranks)
    loader = training.loader(DataLoader(Rows(), batch_sampler=batches, num_workers=job["workers"], collate_fn=collate))
    drawn, began, norm = {}, None, 0.0
    for epoch in training.epochs(EPOCHS):
        for number, micro_batches in enumerate(loader, loader.start):
            step = epoch * len(batches) + number
            began = step if began is None else began
            optimizer.zero_grad()
            taken = iter(ranks.numbers)
            for tokens, values in ranks.micro_batches(micro_batches):
                (model(tokens) - values[:, None]).square().mean().backward()
                drawn[f"{step} {next(taken)}"] = [random_state(), tokens.tolist(), values.tolist()]
            norm = ranks.clip_grad_norm_(0.5)
            optimizer.step()
            schedule.step()
            if [rank, step] == job.get("notice"):
                os.kill(os.getpid(), signal.SIGTERM)
    return {"began": began, "own": drawn, "norm": norm}


def Net(torch, *, width: int):  # noqa: N802 - torch is imported in the fork alone
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(11, 10)
            self.first = torch.nn.Linear(10, width)
            self.norm = torch.nn.BatchNorm1d(width)
            self.dropout = torch.nn.Dropout(0.3)
            self.last = torch.nn.Linear(width, 3)
            self.extra = torch.nn.Parameter(torch.ones(3))
            self.alike = torch.nn.Parameter(torch.ones(3))  # is not used, and has the shape of extra
            self.noise = torch.Generator().manual_seed(3)
            self.skips = self.other = False

        def forward(self, tokens):
            given = self.last(self.dropout(torch.tanh(self.norm(self.first(self.embedding(tokens))))))
            given = given + torch.rand(given.shape, generator=self.noise)
            return given if self.skips else given * (self.alike if self.other else self.extra)

    return Net()
