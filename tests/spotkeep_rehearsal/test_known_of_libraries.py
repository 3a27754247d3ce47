"""What is known of a script's libraries is said where it fits, and nowhere else."""

from __future__ import annotations

import pytest

from spotkeep_cli.rehearsal.spot import words_of
from spotkeep_rehearsal.known_of_libraries import what_is_not_rehearsed


@pytest.mark.parametrize(
    "command",
    [
        ["accelerate", "launch", "--num_processes", "2", "train.py"],
        ["/opt/bin/accelerate", "launch", "--multi_gpu", "--num-processes=2", "train.py"],
        ["python", "-m", "accelerate.commands.accelerate_cli", "launch", "--num_processes=2", "train.py"],
        [
            "bash",
            "-c",
            "cd src && accelerate launch --dynamo_backend no --num_processes 2 train.py && cp a b",
        ],
        "cd src\naccelerate launch --dynamo_backend no \\\n  --num_processes 2 train.py\n",
    ],
)
def test_ranks_that_accelerate_starts_only_on_gpus_are_not_rehearsed_without_one(command: list[str] | str) -> None:
    said = what_is_not_rehearsed(words_of(command), has_gpu=False)
    assert said is not None
    assert said.startswith("one process was rehearsed, not 2")
    assert "torchrun --nproc-per-node 2" in said
    assert what_is_not_rehearsed(words_of(command), has_gpu=True) is None


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["python", "train.py", "--num_processes", "2"],
        ["accelerate", "launch", "train.py"],
        ["accelerate", "launch", "--num_processes", "1", "train.py"],
        ["torchrun", "--nproc-per-node", "2", "train.py"],
        "# accelerate launch --num_processes 2 train.py\npython train.py\n",
    ],
)
def test_other_commands_are_rehearsed_as_they_are(command: list[str] | str) -> None:
    assert what_is_not_rehearsed(words_of(command), has_gpu=False) is None
