"""The libraries of checkpoints, behind one interface. Each saves some arrays and restores them in its documented way.

All elements of all arrays are random numbers plus the step. So a mixture of two steps is seen at once.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Protocol

ARRAYS, ROWS, COLUMNS = 8, 384, 512
"""The number of arrays, and the shape of each, 768 KiB of float32. Two and three ranks divide the rows."""

_LARGEST = 2**20
"""Float32 has all whole numbers up to many steps beyond it."""

DIVIDED = True
"""False for arrays that each rank of a world holds whole."""

ADDED = 0.0
"""A number that a second process adds to all elements beside the step, so that its checkpoints are known."""

Saved = Callable[[int], None]
"""Called with a step once its checkpoint is durable, by the word of the library."""


class Library(Protocol):
    """A library of checkpoints, in a process of its own.

    Attributes:
        name: Its name and version.
        verbs: For each verb of a manager its name in this library, None without one.
    """

    name: str
    verbs: dict[str, str | None]

    def load(self) -> None:
        """Import all that it takes, before processes are forked. It starts no thread."""

    def meet(self, rank: int, ranks: int, port: int) -> None:
        """Make this process a rank of a world, in the way that the library expects."""

    def part(self) -> None:
        """Wait for the other ranks of the world."""

    def train(self, folder: Path, steps: int, saved: Saved) -> None:
        """Restore what is there, and save each further step, in a process or on each rank of a world."""

    def restore(self, folder: Path) -> tuple[int, dict[str, Any]]:
        """Restore the newest checkpoint that the library finds. Gives its step and the whole arrays, on each rank.

        Raises:
            Exception: It finds none that it can restore.
        """


VERBS = ("save", "restore", "all steps", "latest", "best", "wait", "delete")


class _OnTorch:
    """A library whose ranks are those of torch's process group."""

    torch: Any

    def meet(self, rank: int, ranks: int, port: int) -> None:
        """Join torch's process group."""
        _join_torch(self.torch, rank, ranks, port)

    def part(self) -> None:
        """Wait for the other ranks."""
        _part_torch(self.torch)


class Spotkeep(_OnTorch):
    """This library."""

    verbs: ClassVar[dict[str, str | None]] = {
        "save": "Checkpointer.save",
        "restore": "Checkpointer.restore",
        "all steps": "Checkpointer.all_steps",
        "latest": "Checkpointer.latest_step",
        "best": "Checkpointer.best_step",
        "wait": "Checkpointer.wait",
        "delete": "Checkpointer.delete",
    }

    def load(self) -> None:
        """Import it."""
        self.checkpointer = import_module("spotkeep.checkpointer").Checkpointer
        self.torch = import_module("torch")
        import_module("spotkeep.ranks.shared_directory")
        self.name = f"Spotkeep {import_module('spotkeep.version').__version__}"

    def train(self, folder: Path, steps: int, saved: Saved) -> None:
        """Save each step."""
        state = TorchState(self.torch)
        with self.checkpointer(state.tensors, folder, every_steps=10**6) as checkpointer:
            for step in range(checkpointer.step + 1, steps + 1):
                state.train(step)
                checkpointer.save(step, wait=True)
                saved(step)

    def restore(self, folder: Path) -> tuple[int, dict[str, Any]]:
        """Restore the newest good one."""
        state = TorchState(self.torch)
        with self.checkpointer(state.tensors, folder, every_steps=10**6) as checkpointer:
            return checkpointer.step, state.whole()


class Dcp(_OnTorch):
    """`torch.distributed.checkpoint`, with a folder for each step, as its tutorials have it."""

    verbs: ClassVar[dict[str, str | None]] = dict.fromkeys(VERBS) | {
        "save": "save",
        "restore": "load",
        "wait": "async_save(...).result",
    }

    def load(self) -> None:
        """Import it."""
        self.torch = import_module("torch")
        self.dcp = import_module("torch.distributed.checkpoint")
        self.name = f"DCP, torch {self.torch.__version__.partition('+')[0]}"

    def train(self, folder: Path, steps: int, saved: Saved) -> None:
        """Save each step."""
        state = TorchState(self.torch)
        for step in range(_newest(folder) + 1, steps + 1):
            state.train(step)
            self.dcp.save(state.tensors, checkpoint_id=folder / f"step-{step}", no_dist=not _in_world(self.torch))
            saved(step)

    def restore(self, folder: Path) -> tuple[int, dict[str, Any]]:
        """Restore the folder with the highest number."""
        step = _newest(folder)
        state = TorchState(self.torch)
        self.dcp.load(state.tensors, checkpoint_id=folder / f"step-{step}", no_dist=not _in_world(self.torch))
        return step, state.whole()


class Torchsnapshot(_OnTorch):
    """torchsnapshot, with a folder for each step, as its documentation has it."""

    verbs: ClassVar[dict[str, str | None]] = dict.fromkeys(VERBS) | {
        "save": "Snapshot.take",
        "restore": "Snapshot.restore",
        "wait": "PendingSnapshot.wait",
    }

    def load(self) -> None:
        """Import it."""
        self.torch = import_module("torch")
        self.library = import_module("torchsnapshot")
        self.name = f"torchsnapshot {self.library.__version__}"

    def train(self, folder: Path, steps: int, saved: Saved) -> None:
        """Save each step."""
        state = TorchState(self.torch)
        replicated = [] if DIVIDED else ["**"]
        for step in range(_newest(folder) + 1, steps + 1):
            state.train(step)
            held = {"state": self.library.StateDict(**state.tensors)}
            self.library.Snapshot.take(str(folder / f"step-{step}"), held, replicated=replicated)
            saved(step)

    def restore(self, folder: Path) -> tuple[int, dict[str, Any]]:
        """Restore the folder with the highest number."""
        step = _newest(folder)
        state = TorchState(self.torch)
        held = self.library.StateDict(**state.tensors)
        self.library.Snapshot(str(folder / f"step-{step}")).restore({"state": held})
        state.tensors.update(held)
        return step, state.whole()


class Orbax:
    """Orbax' CheckpointManager."""

    verbs: ClassVar[dict[str, str | None]] = {
        "save": "CheckpointManager.save",
        "restore": "CheckpointManager.restore",
        "all steps": "CheckpointManager.all_steps",
        "latest": "CheckpointManager.latest_step",
        "best": "CheckpointManager.best_step",
        "wait": "CheckpointManager.wait_until_finished",
        "delete": "CheckpointManager.delete",
    }

    def load(self) -> None:
        """Import it."""
        logging.disable(logging.CRITICAL)
        self.jax = import_module("jax")
        self.orbax = import_module("orbax.checkpoint")
        self.name = f"Orbax {self.orbax.__version__}"

    def meet(self, rank: int, ranks: int, port: int) -> None:
        """Join JAX' processes."""
        self.jax.config.update("jax_cpu_collectives_implementation", "gloo")
        self.jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=ranks, process_id=rank)

    def part(self) -> None:
        """Wait for the other processes."""
        import_module("jax.experimental.multihost_utils").sync_global_devices("part")

    def _manager(self, folder: Path) -> Any:
        return self.orbax.CheckpointManager(
            folder, options=self.orbax.CheckpointManagerOptions(max_to_keep=3, enable_async_checkpointing=False)
        )

    def _arrays(self, step: int) -> dict[str, Any]:
        mesh = self.jax.sharding.Mesh(self.jax.devices(), ("rows",))
        spec = self.jax.sharding.PartitionSpec("rows") if DIVIDED else self.jax.sharding.PartitionSpec()
        division = self.jax.sharding.NamedSharding(mesh, spec)
        return {
            name: self.jax.make_array_from_callback(array.shape, division, (array + (step + ADDED)).__getitem__)
            for name, array in first_values().items()
        }

    def train(self, folder: Path, steps: int, saved: Saved) -> None:
        """Save each step."""
        with contextlib.closing(self._manager(folder)) as manager:
            for step in range((manager.latest_step() or 0) + 1, steps + 1):
                manager.save(step, args=self.orbax.args.StandardSave(self._arrays(step)))
                manager.wait_until_finished()
                saved(step)

    def restore(self, folder: Path) -> tuple[int, dict[str, Any]]:
        """Restore the newest one."""
        with contextlib.closing(self._manager(folder)) as manager:
            step = manager.latest_step()
            if step is None:
                raise FileNotFoundError("no checkpoint")
            found = manager.restore(step, args=self.orbax.args.StandardRestore(self._arrays(0)))
            gather = import_module("jax.experimental.multihost_utils").process_allgather
            return step, {name: gather(array, tiled=True) if DIVIDED else array for name, array in found.items()}


class Lightning:
    """Lightning's Trainer, with its ModelCheckpoint and `ckpt_path="last"`."""

    verbs: ClassVar[dict[str, str | None]] = dict.fromkeys(VERBS) | {
        "save": "Trainer.save_checkpoint",
        "restore": "Trainer.fit(ckpt_path=...)",
        "latest": 'ckpt_path="last"',
        "best": "ModelCheckpoint.best_model_path",
    }

    def load(self) -> None:
        """Import it."""
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        self.torch = import_module("torch")
        self.lightning = import_module("lightning.pytorch")
        self._ranks = 1
        self.name = f"Lightning {import_module('lightning').__version__}"

    def meet(self, rank: int, ranks: int, port: int) -> None:
        """Say what torchrun says to a script."""
        os.environ.update(
            RANK=str(rank), LOCAL_RANK=str(rank), GROUP_RANK="0", WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks),
            MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_RUN_ID="guarantees",
        )  # fmt: skip
        self._ranks = ranks

    def part(self) -> None:
        """Wait for the other ranks."""
        _part_torch(self.torch)

    def _strategy(self) -> str:
        return "auto" if self._ranks == 1 else "ddp"

    def _trainer(self, steps: int, callbacks: list[Any]) -> Any:
        return self.lightning.Trainer(
            max_steps=steps,
            accelerator="cpu",
            devices=self._ranks,
            strategy=self._strategy(),
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=callbacks,
            num_sanity_val_steps=0,
        )

    def _module(self, saved: Saved) -> Any:
        torch = self.torch

        class Module(self.lightning.LightningModule):  # type: ignore[name-defined,misc]
            def __init__(self) -> None:
                super().__init__()
                self.automatic_optimization = False
                self.state = TorchState(torch)
                self.weights = torch.nn.ParameterDict(self.state.tensors)
                self.state.tensors = {name: weight.data for name, weight in self.weights.items()}

            def training_step(self, batch: Any, index: int) -> None:
                del batch, index
                before = self.global_step
                if before:
                    saved(before)
                self.optimizers().step()  # counts the step
                self.state.train(before + 1)

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), lr=0.0)

        return Module()

    def _fit(self, folder: Path, steps: int, saved: Saved) -> Any:
        module = self._module(saved)
        keep = import_module("lightning.pytorch.callbacks").ModelCheckpoint(
            dirpath=folder, every_n_train_steps=1, save_top_k=1, monitor=None, save_last=True
        )
        trainer = self._trainer(steps, [keep])
        data = self.torch.utils.data.DataLoader(self.torch.zeros(10**6, 1))
        trainer.fit(module, data, ckpt_path="last")
        return trainer, module

    def train(self, folder: Path, steps: int, saved: Saved) -> None:
        """Save each step. A step is durable when the next one begins."""
        self._fit(folder, steps, saved)

    def restore(self, folder: Path) -> tuple[int, dict[str, Any]]:
        """Let a Trainer that has nothing to do take the last one."""
        held: list[tuple[int, Any]] = []

        class Seen(self.lightning.Callback):  # type: ignore[name-defined,misc]
            def on_train_start(self, trainer: Any, module: Any) -> None:
                whole = {name: weight.detach().clone().numpy() for name, weight in module.weights.items()}
                held.append((trainer.global_step, whole))
                trainer.should_stop = True

        trainer = self._trainer(10**6, [Seen(), self._last(folder)])
        data = self.torch.utils.data.DataLoader(self.torch.zeros(4, 1))
        trainer.fit(self._module(lambda _: None), data, ckpt_path="last")
        return held[0]

    def _last(self, folder: Path) -> Any:
        return import_module("lightning.pytorch.callbacks").ModelCheckpoint(dirpath=folder, save_last=True)


LIBRARIES: dict[str, Callable[[], Any]] = {
    "spotkeep": Spotkeep,
    "dcp": Dcp,
    "torchsnapshot": Torchsnapshot,
    "orbax": Orbax,
    "lightning": Lightning,
}


def first_values() -> dict[str, Any]:
    """Give the random numbers that the step is added to, by the names of the arrays."""
    random = import_module("numpy").random.default_rng
    return {
        f"w{number}": random(number).integers(0, _LARGEST, (ROWS, COLUMNS)).astype("float32")
        for number in range(ARRAYS)
    }


class TorchState:
    """The arrays as tensors, which the ranks of a world divide by their rows.

    Attributes:
        tensors: The tensors, by name.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._first = {name: self._divided(torch.from_numpy(array)) for name, array in first_values().items()}
        self.tensors = {name: torch.zeros_like(tensor) for name, tensor in self._first.items()}

    def _divided(self, tensor: Any) -> Any:
        if not _in_world(self._torch) or not DIVIDED:
            return tensor
        tensors = import_module("torch.distributed.tensor")
        ranks = self._torch.distributed.get_world_size()
        mesh = import_module("torch.distributed.device_mesh").init_device_mesh("cpu", (ranks,))
        return tensors.distribute_tensor(tensor, mesh, [tensors.Shard(0)])

    def train(self, step: int) -> None:
        """Do a step."""
        for name, tensor in self.tensors.items():
            tensor.copy_(self._first[name] + (step + ADDED))

    def whole(self) -> dict[str, Any]:
        """Give the arrays of all ranks."""
        return {
            name: (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).numpy()
            for name, tensor in self.tensors.items()
        }


def _join_torch(torch: Any, rank: int, ranks: int, port: int) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)


def _part_torch(torch: Any) -> None:
    if _in_world(torch):
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def _in_world(torch: Any) -> bool:
    return bool(torch.distributed.is_initialized())


def _newest(folder: Path) -> int:
    """Find the highest number of a folder, as scripts do."""
    return max((int(path.name.removeprefix("step-")) for path in folder.glob("step-*")), default=0)


def add_contenders(state: Path) -> None:
    """Make the packages that are installed beside the locked environment importable."""
    sys.path.append(str(state / "bench" / "contenders"))
