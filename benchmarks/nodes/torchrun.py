"""torchrun's own restart after the loss of a node, with c10d's rendezvous and a checkpoint that both nodes see."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Final

from benchmarks.nodes.training import RANKS_OF_NODE, SCRIPT, NodeOutput

SOURCES: Final = Path(__file__).parents[2] / "training"
LAST_CALL_SECONDS: Final = 1
"""How long a rendezvous with enough nodes waits for more. torchrun's default is 30. Spotkeep waits not at all after a
loss, and torchrun takes no less than 1."""
KEEP_ALIVE_SECONDS: Final = 1
"""The time between two signs of life. torchrun's default is 5. Spotkeep sees that a connection is closed."""
KEEP_ALIVE_ATTEMPTS: Final = 3
"""A node without so many signs of life is gone. It is torchrun's default."""


class TorchrunWorld:
    """Two nodes of torchrun on this machine. The first one has the store.

    Args:
        folder: A folder of its own, for the script and the checkpoints.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True)
        (folder / "train.py").write_text(SCRIPT)
        port = _free_port()
        self._nodes = [self._start(port=port, has_store=number == 0) for number in range(2)]
        self._nodes[0].step_after(0.0, ranks=2 * RANKS_OF_NODE)

    def lose_other(self) -> float:
        """Lose the node without the store. Return the seconds until the next step of the survivor."""
        lost_at = self._nodes[1].kill()
        return self._nodes[0].step_after(lost_at, ranks=RANKS_OF_NODE) - lost_at

    def lose_store(self) -> float:
        """Lose the node with the store. Return the seconds until the next step of the survivor.

        torchrun ends there, and is started anew as soon as it has.
        """
        lost_at = self._nodes[0].kill()
        self._nodes[1].process.wait(timeout=180)
        self._nodes.append(self._start(port=_free_port(), has_store=True))
        return self._nodes[-1].step_after(lost_at, ranks=RANKS_OF_NODE) - lost_at

    def close(self) -> None:
        """End what is left of it."""
        for node in self._nodes:
            node.kill()

    def _start(self, *, port: int, has_store: bool) -> NodeOutput:
        times = f"last_call_timeout={LAST_CALL_SECONDS},keep_alive_interval={KEEP_ALIVE_SECONDS}"
        return NodeOutput(
            [
                sys.executable, "-m", "torch.distributed.run", "--nnodes=1:2", f"--nproc-per-node={RANKS_OF_NODE}",
                "--max-restarts=3", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=bench",
                f"--rdzv-conf=is_host={has_store},{times},keep_alive_max_attempt={KEEP_ALIVE_ATTEMPTS}",
                "--local-addr=127.0.0.1", str(self._folder / "train.py"),
            ],
            environment={
                **os.environ,
                "PYTHONPATH": str(SOURCES),
                "OMP_NUM_THREADS": "1",
                "SPOTKEEP_CHECKPOINT_DIR": str(self._folder / "checkpoints"),
                # Without it a node that joins ends the others (docs/distributed-training.md).
                "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
            },
        )  # fmt: skip


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
