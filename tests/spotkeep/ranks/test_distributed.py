"""How the ranks talk to each other: what fails on one of them fails on all."""

from __future__ import annotations

import subprocess
import sys

import pytest

from spotkeep.errors import DamagedCheckpointError, OtherRankError, RankLostError, StateError, UsageError
from spotkeep.ranks import distributed
from spotkeep.ranks.distributed import LentTensors, join_ranks, together


def test_together_gives_every_rank_what_each_gave(world):
    assert world(3).run(lambda ranks: together(ranks, lambda: ranks.rank**2)) == [[0, 1, 4]] * 3


def test_together_fails_on_all_ranks_when_it_fails_on_one(world):
    def act(ranks):
        if ranks.rank == 1:
            raise StateError(["a lambda"])

    zero, one, two = world(3).run(lambda ranks: together(ranks, lambda: act(ranks)))
    assert isinstance(one, StateError)
    assert str(zero) == str(two) == "rank 1: this state cannot be saved and restored:\n  - a lambda"
    assert isinstance(zero, OtherRankError)


def test_damage_counts_only_when_nothing_worse_is_wrong(world):
    problems = [None, DamagedCheckpointError("step-1/data-00000.bin", "altered"), None]

    def act(ranks):
        if problems[ranks.rank] is not None:
            raise problems[ranks.rank]

    for found in world(3).run(lambda ranks: together(ranks, lambda: act(ranks))):
        assert isinstance(found, DamagedCheckpointError)
        assert found.file == "step-1/data-00000.bin"
    problems[2] = UsageError("no")
    damaged, other, own = world(3).run(lambda ranks: together(ranks, lambda: act(ranks)))
    assert isinstance(damaged, OtherRankError)
    assert isinstance(other, OtherRankError)
    assert own is problems[2]


def test_a_rank_that_leaves_takes_the_others_along(world):
    def act(ranks):
        if ranks.rank == 0:
            raise SystemExit(75)

    assert [left.code for left in world(2).run(lambda ranks: together(ranks, lambda: act(ranks)))] == [75, 75]


def test_a_rank_that_is_killed_fails_the_others(world):
    def act(ranks):
        if ranks.rank == 1:
            raise world.Killed
        return together(ranks, lambda: None)

    zero, one = world(2).run(act)
    assert isinstance(zero, RankLostError)
    assert isinstance(one, world.Killed)


def test_a_process_alone_talks_to_itself():
    channels = join_ranks({})
    assert (channels.training.rank, channels.training.world_size) == (0, 1)
    assert channels.writing.exchange({"a": 1}) == [{"a": 1}]
    assert channels.training.largest([3, 4]) == [3, 4]


@pytest.mark.parametrize("environment", [{"WORLD_SIZE": "1", "RANK": "0"}, {"WORLD_SIZE": "2"}, {"WORLD_SIZE": "two"}])
def test_an_environment_without_other_ranks_is_none(environment):
    assert join_ranks(environment).training.world_size == 1


def test_ranks_that_cannot_talk_are_refused():
    with pytest.raises(UsageError, match=r"this is rank 3 of 8, and torch.distributed is not initialised"):
        join_ranks({"WORLD_SIZE": "8", "RANK": "3"})


@pytest.mark.torch
def test_ranks_that_cannot_meet_name_the_limit_on_open_files(monkeypatch):
    distributed = pytest.importorskip("torch.distributed")

    def refuse(**_):
        raise RuntimeError("socket: Too many open files")

    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_rank", lambda: 0)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(distributed, "new_group", refuse)
    with pytest.raises(UsageError, match=r"Too many open files; .* a higher limit on open files \(ulimit -n\)"):
        join_ranks({})


def test_torch_is_not_imported_to_find_out():
    code = (
        "import sys; from spotkeep.ranks.distributed import join_ranks; "
        "join_ranks({}); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


ENDS_AFTER_A_COLLECTIVE = """
import sys
import torch
import torch.distributed as dist
from spotkeep.ranks.distributed import join_ranks

dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=2)
join_ranks({}).training.join()
tensors = [torch.ones(10) for _ in range(50)]
for tensor in tensors:
    dist.all_reduce(tensor)
"""


@pytest.mark.torch
def test_a_rank_ends_well_right_after_a_collective_of_the_script(tmp_path):
    """Each try has two chances in five to end by an abort, where the interpreter does not wait for gloo's threads."""
    for number in range(6):
        command = [sys.executable, "-c", ENDS_AFTER_A_COLLECTIVE, str(tmp_path / f"meeting-{number}")]
        ranks = [subprocess.Popen([*command, str(rank)], stderr=subprocess.PIPE, text=True) for rank in range(2)]
        errors = [rank.communicate()[1] for rank in ranks]
        assert [rank.returncode for rank in ranks] == [0, 0], errors


EXCHANGES = """
import sys
import torch.distributed as dist
from spotkeep.ranks.distributed import join_ranks

rank = int(sys.argv[2])
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=rank, world_size=2)
ranks = join_ranks({}).training
lengths = [0, 1, 4085, 4086, 4087, 4088, 10_000]
for ours in lengths:
    for theirs in lengths:
        texts = ["a" * ours, "b" * theirs]
        assert ranks.exchange(texts[rank]) == texts, (ours, theirs)
"""


@pytest.mark.torch
def test_every_rank_gets_the_messages_of_all_however_long_each_is(tmp_path):
    """With its quotes and its size, a text of 4,086 characters is the longest one that fills the first round."""
    command = [sys.executable, "-c", EXCHANGES, str(tmp_path / "meeting")]
    ranks = [subprocess.Popen([*command, str(rank)], stderr=subprocess.PIPE, text=True) for rank in range(2)]
    errors = [rank.communicate()[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], errors


ENDS_WHILE_A_THREAD_HOLDS_A_TENSOR = """
import atexit, sys, threading, time
import torch
import torch.distributed as dist
from spotkeep.ranks.distributed import TorchRanks

script, held, let_go = threading.get_ident(), threading.Event(), threading.Event()
atexit.register(lambda: print("let go" if let_go.is_set() else "held", flush=True))  # The last of all.

class Held(torch.Tensor):
    def __del__(self):
        if threading.get_ident() != script:
            held.set()
            time.sleep(1.0)  # The thread of the group, which a busy machine does not run, stands here.
            let_go.set()

class Ranks(TorchRanks):
    def _numbers(self, numbers):
        return super()._numbers(numbers).as_subclass(Held)

dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
ranks = Ranks(torch)
ranks.join()
while not held.wait(0.05):  # Now and then the thread is the last one that holds a tensor.
    ranks.largest([1])
"""


def test_the_end_waits_until_no_thread_holds_a_tensor():
    class Tensor:
        pass

    lent, held, pauses = LentTensors(), [Tensor(), Tensor()], []
    lent.lend(*held)

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 4:
            held.clear()

    lent.wait(pause=pause)
    assert len(pauses) == 4
    lent.wait(pause=pauses.append)
    assert len(pauses) == 5  # The collectives of the script are not known.


@pytest.mark.torch
def test_a_rank_ends_well_though_a_thread_of_gloo_holds_a_tensor_for_long(tmp_path):
    command = [sys.executable, "-c", ENDS_WHILE_A_THREAD_HOLDS_A_TENSOR, str(tmp_path / "meeting")]
    rank = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (rank.returncode, rank.stdout) == (0, "let go\n"), rank.stderr


@pytest.mark.torch
def test_a_rank_that_has_lost_another_one_ends_without_waiting_for_its_collective(monkeypatch):
    """The traceback of its error holds the tensors until the process has ended."""
    torch = pytest.importorskip("torch")

    def lost(*_arguments, **_options):
        raise RuntimeError("Connection closed by peer")

    lent = LentTensors()
    monkeypatch.setattr(distributed, "_lent", lent)
    monkeypatch.setattr(torch.distributed, "all_reduce", lost)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        ranks = distributed.TorchRanks(torch)
        ranks.join()
        with pytest.raises(RankLostError) as error:
            ranks.largest([1])
    finally:
        torch.distributed.destroy_process_group()
    pauses = []
    lent.wait(pause=pauses.append)
    assert len(pauses) == 1
    assert error.value.__traceback__ is not None
