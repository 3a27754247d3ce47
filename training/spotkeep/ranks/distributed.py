"""The messages between the ranks of a distributed training about checkpoints.

They have three process groups of gloo, apart from the training's own, or three channels of JAX's coordination service.
They are for the thread that trains, the thread that writes, and the thread that agrees on meetings. So their messages
neither mix with nor wait behind the training's collectives (NCCL's run in the order of the GPU's stream). A killed rank
of torch is noticed at once, because its connections close. The rank that notices closes its own, so no rank waits for a
dead one. Files are no channel, because each host of a SageMaker job has its own disk. Messages are JSON.

The groups end with the block of the Checkpointer, so a process with many trainings has those of one at a time. Each
rank ends its own without a message. All that it has sent to the others is with the system by then.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import json
import os
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Callable, Protocol

from spotkeep.errors import (
    ChangedStateError,
    CheckpointError,
    DamagedCheckpointError,
    OtherRankError,
    RankLostError,
    UsageError,
)
from spotkeep.loaded import loaded
from spotkeep.state.arrays import torch_bytes

Json = Any

_ANSWER_SECONDS = 1800.0
_JAX_POLL_MS = 1000
_LAST_PAUSE_SECONDS, _HOLD_PAUSE_SECONDS, _LONGEST_HOLD_SECONDS = 0.2, 0.02, 30.0
_SIZE_BYTES = 8
_FIRST_BYTES = 4096
"""The size of a message and its beginning, which all ranks send at once. That is the whole of most messages."""
_TIMED_OUT = "DEADLINE_EXCEEDED"
_GONE = "another rank of this training is gone, or does not answer"
_joined = itertools.count()  # Each process of JAX joins as often as the others.


class Ranks(Protocol):
    """The processes of one training, each of which makes the same calls in the same order."""

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""

    @property
    def world_size(self) -> int:
        """The number of ranks."""

    def join(self) -> None:
        """Meet the other ranks, at first or after `leave`. Every rank must call it.

        Raises:
            RankLostError: If one of them was lost before.
            UsageError: If not every rank comes.
        """

    def leave(self) -> None:
        """End the connections of this rank. Not collective, and the other ranks do not wait."""

    def exchange(self, message: Json) -> list[Json]:
        """Send an answer to all ranks, and give the answers of all, in the order of the ranks.

        Raises:
            RankLostError: If one of them is gone.
        """

    def largest(self, numbers: Sequence[int]) -> list[int]:
        """Give the largest number that any rank has in each place.

        Raises:
            RankLostError: If one of them is gone.
        """


class OneRank:
    """A training of one process, which has no other rank to talk to."""

    rank = 0
    world_size = 1

    def join(self) -> None:
        """Meet the other ranks, of which there is none."""

    def leave(self) -> None:
        """End the connections, of which there is none."""

    def exchange(self, message: Json) -> list[Json]:
        """Send an answer to all ranks, and give the answers of all."""
        return [message]

    def largest(self, numbers: Sequence[int]) -> list[int]:
        """Give the largest number that any rank has in each place."""
        return list(numbers)


class LentTensors:
    """The tensors that gloo's threads may still hold.

    A thread of a group holds the tensors of a collective until shortly after the script has the result. Where the
    interpreter ends in between, that thread aborts the process (torch 2.13; pull request 179291 of PyTorch). To end the
    groups instead would wait for a collective that lost its other ranks.
    """

    def __init__(self) -> None:
        self._tensors: list[weakref.ref[Any]] = []

    def lend(self, *tensors: Any) -> None:
        """Note the tensors of a collective that begins."""
        # Another thread may do so for its own group. A list is replaced, and never changed.
        self._tensors = [each for each in self._tensors if each() is not None] + [weakref.ref(each) for each in tensors]

    def give_up(self) -> None:
        """Wait for none of them. A lost rank's collective holds its tensors, and so does the traceback of its error."""
        self._tensors = []

    def wait(self, *, pause: Callable[[float], object] = time.sleep) -> None:
        """Wait until no thread holds one of them any more, on a busy machine too.

        The collectives of the script are not known here, so there is a pause in any case.
        """
        pause(_LAST_PAUSE_SECONDS)
        ends = time.monotonic() + _LONGEST_HOLD_SECONDS
        while any(each() is not None for each in self._tensors) and time.monotonic() < ends:
            pause(_HOLD_PAUSE_SECONDS)


_lent = LentTensors()


@functools.cache
def _wait_at_the_end() -> None:
    """Let the interpreter end once gloo's threads have let go of all tensors, in processes that have groups of it."""
    atexit.register(_lent.wait)


class TorchRanks:
    """The ranks of `torch.distributed`, over a process group of gloo's that nothing else uses.

    Args:
        torch: The library.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._distributed = torch.distributed
        self._group: Any = None
        self._process = os.getpid()
        self._is_lost = False
        self.rank: int = self._distributed.get_rank()
        self.world_size: int = self._distributed.get_world_size()

    def join(self) -> None:
        """Meet the other ranks in a new group. Every rank must call it."""
        self.leave()
        if self._is_lost:
            raise RankLostError(f"{_GONE}: it was lost before")
        _wait_at_the_end()
        there = self._distributed.get_world_size() if self._distributed.is_initialized() else 1
        if there != self.world_size:
            raise UsageError(
                f"this Checkpointer has met {self.world_size} ranks before, and there are {there} now: make a new "
                "Checkpointer once the process group has changed"
            )
        try:
            self._group = self._distributed.new_group(backend="gloo", timeout=timedelta(seconds=_ANSWER_SECONDS))
        except RuntimeError as error:
            raise UsageError(
                f"the ranks could not meet: {error}; every rank must enter its own Checkpointer, at the same place of "
                "the script. A Checkpointer keeps its connections to the end of its block, so a script with many "
                "nested blocks or many ranks needs a higher limit on open files (ulimit -n)"
            ) from error

    def leave(self) -> None:
        """End the group of this rank. Its connections close with the last reference to it."""
        if self._process != os.getpid():
            return  # A forked process has no thread of the group, and its end would wait for them.
        group, self._group = self._group, None
        if group is not None:
            # The script may have ended all groups before. An error here says so, and this one is gone then.
            with contextlib.suppress(RuntimeError, ValueError):
                self._distributed.destroy_process_group(group)

    def exchange(self, message: Json) -> list[Json]:
        """Send an answer to all ranks, and give the answers of all."""
        raw = json.dumps(message, separators=(",", ":")).encode("ascii")
        sized = len(raw).to_bytes(_SIZE_BYTES, "little") + raw
        answers = self._gather_bytes(sized[:_FIRST_BYTES], room=_FIRST_BYTES)
        ends = [_SIZE_BYTES + int.from_bytes(answer[:_SIZE_BYTES], "little") for answer in answers]
        rest = max(ends) - _FIRST_BYTES
        if rest > 0:
            later = self._gather_bytes(sized[_FIRST_BYTES:], room=rest)
            answers = [first + then for first, then in zip(answers, later)]
        return [json.loads(answer[_SIZE_BYTES:end]) for answer, end in zip(answers, ends)]

    def largest(self, numbers: Sequence[int]) -> list[int]:
        """Give the largest number that any rank has in each place."""
        values = self._numbers(numbers)
        _lent.lend(values)
        self._call(self._distributed.all_reduce, values, op=self._distributed.ReduceOp.MAX)
        found: list[int] = values.tolist()
        return found

    def _gather_bytes(self, raw: bytes, *, room: int) -> list[bytes]:
        """Give bytes of all ranks. Each has at most as many as there is room, and zeros fill it up."""
        sent = self._torch.zeros(room, dtype=self._torch.uint8, device="cpu")
        torch_bytes(sent)[: len(raw)] = raw
        return [bytes(torch_bytes(each)) for each in self._gather(sent)]

    def _numbers(self, numbers: Sequence[int]) -> Any:
        # A script may have made the GPU its default device.
        return self._torch.tensor(numbers, dtype=self._torch.int64, device="cpu")

    def _gather(self, tensor: Any) -> list[Any]:
        gathered = [self._torch.empty_like(tensor) for _ in range(self.world_size)]
        _lent.lend(*gathered, tensor)
        self._call(self._distributed.all_gather, gathered, tensor)
        return gathered

    def _call(self, collective: Callable[..., None], *arguments: Any, **options: Any) -> None:
        problem = "it was lost before" if self._is_lost else "this rank has left the others"
        if self._group is not None:
            try:
                collective(*arguments, group=self._group, **options)
            except (RuntimeError, ValueError) as error:
                problem = str(error)
            else:
                return
            # Only those who wait for the lost rank itself have noticed. The others wait for this one, so close it, and
            # let nothing keep it open: the traceback of the error would.
            self._is_lost = True
            _lent.give_up()
            self.leave()
        raise RankLostError(f"{_GONE}: {problem}")


class JaxRanks:
    """The processes of `jax.distributed`, over the keys and values of its coordination service.

    JAX's own collectives run on its devices, in the order of the training's computations. A thread that writes beside
    the training must not come between them.

    Args:
        client: The client of the service. Any thread may use it.
        rank: The number of this process.
        world_size: The number of processes.
        name: A name that all processes give this channel, and no other one.
    """

    def __init__(self, client: Any, *, rank: int, world_size: int, name: str) -> None:
        self.rank = rank
        self.world_size = world_size
        self._client = client
        self._name = f"spotkeep/{name}"
        self._round = 0
        self._is_lost = False

    def join(self) -> None:
        """Meet the other processes. The service knows them already."""

    def leave(self) -> None:
        """End the connections. The service keeps its own to the end of the process."""

    def exchange(self, message: Json) -> list[Json]:
        """Send an answer to all ranks, and give the answers of all."""
        if self._is_lost:
            raise RankLostError(f"{_GONE}: it was lost before")
        place = f"{self._name}/{self._round}"
        limit = time.monotonic() + _ANSWER_SECONDS
        try:
            self._client.key_value_set(f"{place}/{self.rank}", json.dumps(message, separators=(",", ":")))
            answers = [json.loads(self._wait(f"{place}/{rank}", limit)) for rank in range(self.world_size)]
            # All have read the round before this one, or they would not have answered.
            self._client.key_value_delete(f"{self._name}/{self._round - 1}/{self.rank}")
        except RuntimeError as error:
            self._is_lost = True
            with contextlib.suppress(RuntimeError):
                self._client.key_value_set(f"{self._name}/lost", str(self.rank))
            raise RankLostError(f"{_GONE}: {error}") from error
        self._round += 1
        return answers

    def largest(self, numbers: Sequence[int]) -> list[int]:
        """Give the largest number that any rank has in each place."""
        return [max(column) for column in zip(*self.exchange(list(numbers)))]

    def _wait(self, key: str, limit: float) -> str:
        while True:
            try:
                return str(self._client.blocking_key_value_get(key, _JAX_POLL_MS))
            except RuntimeError as error:  # noqa: PERF203 - it comes once a second, while another rank is late
                if _TIMED_OUT not in str(error) or time.monotonic() > limit or self._others_know_of_a_loss():
                    raise

    def _others_know_of_a_loss(self) -> bool:
        with contextlib.suppress(RuntimeError):
            self._client.key_value_try_get(f"{self._name}/lost")
            return True
        return False


@dataclass(frozen=True)
class Channels:
    """The channels from this process to the others.

    Attributes:
        training: For the thread that trains.
        writing: For the thread that writes.
        meetings: For the thread that agrees on meetings.
    """

    training: Ranks
    writing: Ranks
    meetings: Ranks

    def join(self) -> None:
        """Meet the other ranks on all channels. Every rank must call it.

        Raises:
            RankLostError: If one of them was lost before.
            UsageError: If not every rank comes.
        """
        for channel in (self.training, self.writing, self.meetings):
            channel.join()


def join_ranks(environment: Mapping[str, str] | None = None) -> Channels:
    """Meet the other ranks, where `torch.distributed` or `jax.distributed` has them. Every rank must call it.

    Raises:
        UsageError: If the environment says that there are others and `torch.distributed` is not initialised, or not
            every rank comes.
    """
    environment = os.environ if environment is None else environment
    torch = loaded("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not (distributed.is_available() and distributed.is_initialized()):
        of_jax: Any = getattr(loaded("jax._src.distributed"), "global_state", None)
        if of_jax is not None and of_jax.client is not None and of_jax.num_processes > 1:
            return _join_jax(of_jax)
        _require_alone(environment)
        return Channels(OneRank(), OneRank(), OneRank())
    if distributed.get_world_size() == 1:
        return Channels(OneRank(), OneRank(), OneRank())
    channels = Channels(TorchRanks(torch), TorchRanks(torch), TorchRanks(torch))
    channels.join()
    return channels


def _join_jax(state: Any) -> Channels:
    number = next(_joined)
    return Channels(
        *(
            JaxRanks(state.client, rank=state.process_id, world_size=state.num_processes, name=f"{number}/{thread}")
            for thread in ("training", "writing", "meetings")
        )
    )


def together(ranks: Ranks, act: Callable[[], Json]) -> list[Json]:
    """Run a function on every rank. It succeeds on all of them, or fails on all of them.

    Returns:
        The result of each rank, as JSON values.

    Raises:
        OtherRankError: Another rank failed, and this one did not.
        DamagedCheckpointError: Damage is the only failure, on any rank.
        RankLostError: A rank is gone.
        BaseException: The failure of this rank.
    """
    if ranks.world_size == 1:
        return [act()]
    answer, problem = None, None
    try:
        answer = act()
    except RankLostError:
        raise
    except BaseException as error:  # noqa: BLE001 - it is raised again below, when the others know
        problem = error
    answers = ranks.exchange([answer, None if problem is None else _description(problem)])
    troubles = [(rank, trouble) for rank, (_, trouble) in enumerate(answers) if trouble is not None]
    if not troubles:
        return [answer for answer, _ in answers]
    # Damage has a remedy, an older checkpoint, so it counts only when nothing else is wrong.
    serious = [(rank, trouble) for rank, trouble in troubles if trouble["kind"] != "damage"]
    rank, trouble = (serious or troubles)[0]
    if problem is not None and (not serious or not isinstance(problem, DamagedCheckpointError)):
        raise problem
    if trouble["kind"] == "exit":
        raise SystemExit(trouble["code"])
    if trouble["kind"] == "damage":
        raise DamagedCheckpointError(trouble["file"], f"{trouble['problem']} (as rank {rank} sees it)")
    raise OtherRankError(f"rank {rank}: {trouble['message']}", changed=trouble["kind"] == "changed")


def _description(problem: BaseException) -> dict[str, Any]:
    if isinstance(problem, DamagedCheckpointError):
        return {"kind": "damage", "file": problem.file, "problem": problem.problem}
    if isinstance(problem, SystemExit):
        return {"kind": "exit", "code": problem.code if isinstance(problem.code, int) else 1}
    if isinstance(problem, CheckpointError):
        return {"kind": "changed" if isinstance(problem, ChangedStateError) else "error", "message": str(problem)}
    return {"kind": "error", "message": f"{type(problem).__name__}: {problem}"}


def _require_alone(environment: Mapping[str, str]) -> None:
    """Refuse to be one of several writers that do not know of each other."""
    try:
        world_size = int(environment.get("WORLD_SIZE", "1"))
    except ValueError:
        return
    if world_size > 1 and "RANK" in environment:
        raise UsageError(
            f"the environment says that this is rank {environment['RANK']} of {world_size}, and torch.distributed is "
            "not initialised, so the ranks cannot agree on a checkpoint: call "
            "torch.distributed.init_process_group() before entering the Checkpointer, or unset RANK and WORLD_SIZE if "
            "this process trains alone"
        )
