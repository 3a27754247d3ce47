"""The training of several ranks that is tortured. Each number of its state says where it belongs.

A number holds the step, the tensor and the place in the tensor. So a tensor with bytes of two steps, of two ranks or of
another place is seen as such, with any number of ranks. The model is divided by FSDP2, and gloo takes it through real
steps whose gradients are 0. As a script (``torchrun -m tests.torture.checkpoint.ranks.training JOB``) this is one rank.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from spotkeep import Checkpointer
from tests.torture.checkpoint import interposition
from tests.torture.checkpoint.interposition import Interposition
from tests.torture.checkpoint.ranks.world import start_of_process
from tests.torture.checkpoint.training import CHECKPOINTS, LINE_PREFIX, mark_of

Job = dict[str, Any]

MEETING_SECONDS = 400
_PRETENDED_RANKS = 11
_STEP = 2**32
_TENSOR = 2**24
_RANK = 2**16
_COMMON = 545_003
"""Numbers of the common tensor. It has more chunks than there are ranks, and each rank writes some."""
_APART = 3001
_COMMON_NUMBER, _APART_NUMBER = 40, 41


class Places:
    """The place of a rank, as a loader has one. It takes the places of all ranks where their number has changed."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.own = {"rank": rank, "ranks": ranks, "step": 0}
        self.loaded: list[dict[str, int]] = []

    def state_dict(self) -> dict[str, int]:
        """Give the place."""
        return dict(self.own)

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Take the own place."""
        self.loaded = [dict(state)]

    def load_rank_states(self, states: Sequence[dict[str, int]], *, rank: int, world_size: int) -> None:
        """Take the places of all ranks."""
        assert (rank, world_size) == (self.own["rank"], self.own["ranks"])
        self.loaded = [dict(state) for state in states]


class RankTraining:
    """One rank's part of the state.

    Args:
        rank: The number of this rank.
        ranks: The number of all.
        divided: True for a model that the ranks divide. False for a plain one, on one rank.
        fence: The fence of their world. 0 where all disks are one.
    """

    def __init__(self, *, rank: int, ranks: int, divided: bool, fence: int = 0) -> None:
        self.rank, self.fence = rank, fence
        self.model = torch.nn.Sequential(torch.nn.Linear(61, 33), torch.nn.Tanh(), torch.nn.Linear(33, 5)).double()
        with torch.no_grad():
            for number, parameter in enumerate(self.model.parameters()):
                parameter.copy_(_numbers(number, parameter.numel()).view(parameter.shape))
        if divided:
            mesh = init_device_mesh("cpu", (ranks,))
            for module in (self.model[0], self.model[2], self.model):
                fully_shard(module, mesh=mesh)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.0, momentum=1.0)
        self.common = _numbers(_COMMON_NUMBER, _COMMON)
        self.apart = _numbers(_APART_NUMBER, _APART) + rank * _RANK
        self.history: dict[str, Any] = {"steps": [], "ranks": ranks, "worlds": []}
        self.places = Places(rank, ranks)
        self.rng = random_numbers(rank, 0)

    @property
    def state(self) -> dict[str, Any]:
        """The objects that all ranks have in common."""
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "tensors": {"common": self.common, "apart": self.apart},
            "history": self.history,
        }

    @property
    def per_rank(self) -> dict[str, Any]:
        """The objects that each rank has for itself."""
        return {"places": self.places, "rng": self.rng}

    def take_step(self) -> None:
        """Train one step, and count in each number."""
        self.optimizer.zero_grad()
        (self.model(torch.ones(2, 61, dtype=torch.float64)).sum() * 0).backward()
        self.optimizer.step()
        step, counted = len(self.history["steps"]) + 1, mark_of([self.fence]) * _STEP
        for number, parameter in enumerate(self.model.parameters()):
            local = _local(parameter)
            local += counted
            momentum = _local(self.optimizer.state[parameter]["momentum_buffer"])
            momentum.copy_(local + (_momentum_number(number) - number) * _TENSOR)
        self.common += counted
        self.apart += counted
        self.history["steps"].append(step)
        self.history["worlds"].append(self.fence)
        self.places.own["step"] = step
        self.rng.random(3)

    def look(self) -> dict[str, Any]:
        """Describe the state by the steps that its numbers are of, and by what they do not say themselves."""
        seen: dict[str, Any] = {}
        for name, number, tensor in self._tensors():
            whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            seen[name] = _facts(whole.detach().flatten(), number)
        apart = self.apart
        owner = int(apart[0].item()) % _TENSOR // _RANK
        return {
            "tensors": {**seen, "apart": _facts(apart - owner * _RANK, _APART_NUMBER)},
            "apart of": owner,
            "history": list(self.history["steps"]),
            "worlds": list(self.history["worlds"]),
            "ranks": self.history["ranks"],
            "places": self.places.loaded,
            "random": self._random_owner(),
        }

    def be_this_rank(self, ranks: int) -> None:
        """Take up this rank's own numbers again, after a restore from another number of ranks."""
        step = len(self.history["steps"])
        self.apart.copy_(
            _numbers(_APART_NUMBER, _APART) + (self.rank * _RANK + mark_of(self.history["worlds"]) * _STEP)
        )
        self.history["ranks"] = ranks
        self.places.own["step"] = step
        self.rng.bit_generator.state = random_numbers(self.rank, step).bit_generator.state

    def _tensors(self) -> Iterator[tuple[str, int, torch.Tensor]]:
        for number, (name, parameter) in enumerate(self.model.named_parameters()):
            yield name, number, parameter
            momentum = self.optimizer.state.get(parameter, {}).get("momentum_buffer")
            if momentum is not None:
                yield f"momentum of {name}", _momentum_number(number), momentum
        yield "common", _COMMON_NUMBER, self.common

    def _random_owner(self) -> int | None:
        """Give the rank whose random state this is after the steps of the history. None for no such rank."""
        step = len(self.history["steps"])
        state = self.rng.bit_generator.state
        return next((rank for rank in range(8) if random_numbers(rank, step).bit_generator.state == state), None)


def random_numbers(rank: int, step: int) -> np.random.Generator:
    """Give the generator of a rank after some steps."""
    generator = np.random.default_rng(rank)
    for _ in range(step):
        generator.random(3)
    return generator


def _numbers(number: int, count: int) -> torch.Tensor:
    return torch.arange(count, dtype=torch.float64) + number * _TENSOR


def _momentum_number(number: int) -> int:
    return 20 + number


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach()


def _facts(whole: torch.Tensor, number: int) -> dict[str, Any]:
    expected = _numbers(number, len(whole))
    first = torch.floor(whole[0] / _STEP)
    if torch.equal(whole, expected + first * _STEP):
        return {"steps": [int(first)], "misplaced": 0}
    numbers = torch.nan_to_num(whole, nan=-1.0)
    steps = torch.floor(numbers / _STEP)
    wrong = int((numbers - steps * _STEP != expected).sum())
    return {"steps": [int(step) for step in torch.unique(steps)], "misplaced": wrong}


def take_part(job: Job, *, rank: int, ranks: int) -> None:
    """Restore, train to the end, and say what was found. The process group is made.

    Args:
        job: The `root`, a folder that is there, and the `total_steps`. A `fault` strikes `rank`. A `record` is a file
            for all calls. The number `jitter` draws the moments at which a rank lets the others go first. The number
            `attempt` is that of a run's attempt. Ranks of several nodes have `nodes`, a root and the seconds by which a
            clock is wrong for each, in the place of `root`, and the `fence` of their world.
        rank: The number of this rank.
        ranks: The number of all.
    """
    os.environ["SPOTKEEP_EVENTS"] = "stdout"
    os.environ["SPOTKEEP_PROGRESS_SECONDS"] = "0"
    if "attempt" in job:
        os.environ["SPOTKEEP_ATTEMPT"] = str(job["attempt"])
    fence = job.get("fence", 0)
    root, checkpoints = str(job.get("root")), CHECKPOINTS
    if "nodes" in job:
        root, ahead = job["nodes"][rank * len(job["nodes"]) // ranks]
        checkpoints = "checkpoints"
        os.environ.update(SPOTKEEP_LEASE=str(fence), SPOTKEEP_NODES=str(len(job["nodes"])))
        right = time.time
        time.time = lambda: right() + ahead
    strikes = "fault" in job and job["rank"] == rank
    between = interposition.install(
        Path(root),
        fault=interposition.parse_fault(job["fault"]) if strikes else None,
        record=Path(job["record"]) if "record" in job else None,
        rank=rank,
    )
    _count_exchanges(between, random.Random(f"{job['jitter']} {rank}") if "jitter" in job else None)  # noqa: S311
    training = RankTraining(rank=rank, ranks=ranks, divided=not job.get("plain"), fence=fence)
    # On a busy machine a notice may come after the last step. A rank that it ends there has lost nothing.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    durable = 0

    def say_durable(step: int | None) -> None:
        nonlocal durable
        if step is not None and step > durable:
            durable = step
            between.announce(step)
            _say("durable", step=step)

    with Checkpointer(
        training.state, Path(root, checkpoints), every_steps=1, keep_last=2, per_rank=training.per_rank
    ) as checkpointer:
        _say("restored", step=checkpointer.step, rank=rank, **training.look())
        training.be_this_rank(ranks)
        for step in checkpointer.steps(job["total_steps"]):
            _say("begun", step=step + 1)
            training.take_step()
            say_durable(checkpointer.durable_step)
    say_durable(checkpointer.durable_step)
    _say("finished", step=checkpointer.step, rank=rank, **training.look())


def _count_exchanges(between: Interposition, chance: random.Random | None) -> None:
    """Count the messages of the library, which are these two collectives. FSDP2 uses others."""

    def counted(collective: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if chance is not None and chance.random() < 0.3:
                time.sleep(chance.random() * 0.01)
            between.exchange()
            return collective(*arguments, **options)

        return call

    for name in ("all_gather", "all_reduce"):
        setattr(dist, name, counted(getattr(dist, name)))


def meet_and_take_part(job: Job, *, rank: int, ranks: int) -> None:
    """Meet the other ranks of this machine in a file, and train with them."""
    _say_here(job)
    if job.get("plain"):
        take_part(job, rank=rank, ranks=ranks)
        return
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(job["meeting"], ranks),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=MEETING_SECONDS),
    )
    take_part(job, rank=rank, ranks=ranks)
    dist.destroy_process_group()


def prepare() -> None:
    """Do once what each rank would do, before the ranks are forked. It starts no thread."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    import spotkeep.checkpointer
    import spotkeep.integrations.sharded
    import spotkeep.ranks.shared_directory  # noqa: F401

    torch.set_num_threads(1)
    # A group of gloo would leave threads behind. This one pretends, and no world has as many ranks. torch remembers
    # divisions by their mesh, and takes them for those of an equal one.
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=_PRETENDED_RANKS)
    training = RankTraining(rank=0, ranks=_PRETENDED_RANKS, divided=True)
    training.take_step()
    dist.destroy_process_group()


def _say_here(job: Job) -> None:
    """Let the judge of nodes find this process, before it waits for others."""
    if "nodes" in job:
        _say("here", pid=os.getpid(), started=start_of_process())


def _say(what: str, **fields: Any) -> None:
    sys.stdout.write(LINE_PREFIX + json.dumps({"what": what, **fields}) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Be one rank that torchrun has started."""
    torch.set_num_threads(1)
    job = json.loads(sys.argv[1])
    output = os.open(f"{job['output']}.{os.environ['RANK']}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    _say_here(job)
    dist.init_process_group("gloo", timeout=timedelta(seconds=MEETING_SECONDS))
    take_part(job, rank=dist.get_rank(), ranks=dist.get_world_size())
    with contextlib.suppress(RuntimeError):
        dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
