"""Worlds of ranks. They are forked from a process that has torch loaded, or started by torchrun.

As a script this module is the process that forks. It never has a thread or a connection of its own.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.forking import environment_of_script, fork
from tests.torture.checkpoint.training import LINE_PREFIX

Job = dict[str, Any]

LIMIT_SECONDS = 500.0
KILLED = -signal.SIGKILL
DID_NOT_END = "did not end"
_STARTED = 19


@dataclass(frozen=True, kw_only=True)
class RankEnd:
    """One rank's end, and its words before.

    Attributes:
        exit_code: As `subprocess` gives it, or `DID_NOT_END`. None where torchrun alone knows it.
        words: Its lines for the judge. A last line that a kill cut short is no line.
        errors: The end of its other output.
    """

    exit_code: int | str | None
    words: tuple[dict[str, Any], ...]
    errors: str


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """The ends of a world whose rank was suspended, and of the world that took its place meanwhile.

    Attributes:
        before: The words of the first world's ranks until the second one began.
        first: The ends of its ranks, after it went on.
        second: The ends of the second world's ranks. Empty where no rank of the first one was suspended.
    """

    before: tuple[dict[str, Any], ...]
    first: list[RankEnd]
    second: list[RankEnd]


class RankForge:
    """A process that forks one world of ranks after another."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.torture.checkpoint.ranks.world"],
            env=environment_of_script(OMP_NUM_THREADS="1"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def kill(self) -> None:
        """Kill the process that forks, and all ranks."""
        os.killpg(self._process.pid, signal.SIGKILL)

    def run(
        self,
        job: Job,
        *,
        ranks: int,
        scratch: Path,
        kill_all: bool = False,
        kill_after: tuple[int, float] | None = None,
        holds: bool = False,
    ) -> list[RankEnd]:
        """Run one attempt of the training. Gives the ends of the ranks, in their order.

        Args:
            job: The job, as `training.take_part` takes it.
            ranks: The number of ranks.
            scratch: A folder for the ranks' output and their meeting.
            kill_all: Kill all ranks as soon as one was killed.
            kill_after: A rank, and the seconds after its first word when it is killed.
            holds: Leave a rank that is suspended as it is.

        Raises:
            RuntimeError: The process that forks has ended.
        """
        whole = _placed(job, scratch)
        answer = self._ask(
            {"job": whole, "ranks": ranks, "kill_all": kill_all, "kill_after": kill_after, "holds": holds}
        )
        return _all_ends(whole, answer["ends"])

    def run_and_replace(self, job: Job, *, ranks: int, by: Job, by_ranks: int, scratch: Path) -> Replacement:
        """Run an attempt, and another one to its end while a fault of the kind `stop` suspends a rank of the first.

        Args:
            job: The job of the first one, with the fault.
            ranks: The number of its ranks.
            by: The job of the other one.
            by_ranks: The number of its ranks.
            scratch: A folder for the ranks' output and their meetings.

        Raises:
            RuntimeError: The process that forks has ended.
        """
        first, second = _placed(job, scratch), _placed(by, scratch)
        answer = self._ask({"job": first, "ranks": ranks, "meanwhile": {"job": second, "ranks": by_ranks}})
        before = (understand(said, None).words for said in answer.get("said", ()))
        return Replacement(
            before=tuple(word for words in before for word in words),
            first=_all_ends(first, answer["ends"]),
            second=_all_ends(second, answer.get("meanwhile", ())),
        )

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process that forks the ranks has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> RankForge:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def run_with_torchrun(job: Job, *, ranks: int, scratch: Path) -> tuple[int, list[RankEnd]]:
    """Run one attempt under torchrun. Gives its exit code, 124 where it did not end, and the words of the ranks."""
    output = scratch / f"output-{time.monotonic_ns()}"
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)),
        *("-m", "tests.torture.checkpoint.ranks.training", json.dumps({**job, "output": str(output)})),
    ]
    with (scratch / "torchrun.log").open("w") as log:
        process = subprocess.Popen(
            command,
            env=environment_of_script(OMP_NUM_THREADS="1"),
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            code = process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code = 124
    return code, [end_of_rank(output, rank, None) for rank in range(ranks)]


def understand(output: str, exit_code: int | str | None) -> RankEnd:
    """Read the output of a rank."""
    words = []
    others = []
    for line in output.splitlines(keepends=True):
        if not line.startswith(LINE_PREFIX):
            others.append(line)
        elif line.endswith("\n"):
            words.append(json.loads(line[len(LINE_PREFIX) :]))
    return RankEnd(exit_code=exit_code, words=tuple(words), errors="".join(others)[-3000:])


def start_of_process() -> str:
    """Give the moment in which this process has started. Its number may be another one's later."""
    return _stat("self")[_STARTED]


def is_process(pid: int, started: str, *, states: str = "RSDIT") -> bool:
    """Say whether a process of that start is in one of these states. The default is any in which it has not ended."""
    try:
        fields = _stat(str(pid))
    except OSError:
        return False
    return fields[_STARTED] == started and fields[0] in states


def _stat(pid: str) -> list[str]:
    """Read the state of a process and what follows it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _placed(job: Job, scratch: Path) -> Job:
    name = f"{time.monotonic_ns()}"
    return {"output": str(scratch / f"output-{name}"), "meeting": str(scratch / f"meeting-{name}"), **job}


def _all_ends(job: Job, codes: Sequence[int | str]) -> list[RankEnd]:
    return [end_of_rank(Path(job["output"]), rank, code) for rank, code in enumerate(codes)]


def end_of_rank(output: Path, rank: int, exit_code: int | str | None) -> RankEnd:
    """Read the output of a rank from its file."""
    path = output.with_name(f"{output.name}.{rank}")
    return understand(path.read_text(errors="replace") if path.exists() else "", exit_code)


def main() -> None:
    """Fork the worlds that standard input asks for, one JSON document a line."""
    from tests.torture.checkpoint.ranks import training

    training.prepare()
    # A rank that looks for garbage in what is imported would copy the memory that it shares with the others.
    gc.freeze()
    for line in sys.stdin:
        answer = _world(json.loads(line))
        try:
            print(json.dumps(answer), flush=True)
        except BrokenPipeError:  # The one that asked has ended.
            os._exit(0)


def _world(request: dict[str, Any]) -> dict[str, Any]:
    """Run one world, and another one while a rank of it is suspended, if the request has one."""
    pids = [fork(partial(_be_rank, rank, request)) for rank in range(request["ranks"])]
    output = request["job"]["output"]
    answer: dict[str, Any] = {}

    def on_stop(pid: int) -> None:
        if "meanwhile" in request and not answer:
            said = [Path(f"{output}.{rank}") for rank in range(request["ranks"])]
            answer["said"] = [path.read_text(errors="replace") if path.exists() else "" for path in said]
            answer["meanwhile"] = _world(request["meanwhile"])["ends"]
        if not request.get("holds"):
            os.kill(pid, signal.SIGCONT)

    kill_all, kill_after = request.get("kill_all", False), request.get("kill_after")
    answer["ends"] = _ends(pids, output, kill_all=kill_all, kill_after=kill_after, on_stop=on_stop)
    return answer


def _be_rank(rank: int, request: dict[str, Any]) -> None:
    from tests.torture.checkpoint.ranks import training

    output = os.open(f"{request['job']['output']}.{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    training.meet_and_take_part(request["job"], rank=rank, ranks=request["ranks"])


def _ends(
    pids: list[int],
    output: str,
    *,
    kill_all: bool,
    kill_after: tuple[int, float] | None,
    on_stop: Callable[[int], None],
) -> list[int | str]:
    ends: dict[int, int | str] = {}
    begun = time.monotonic()
    first_word: float | None = None
    while len(ends) < len(pids):
        for pid in pids:
            if pid in ends:
                continue
            found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
            if found and os.WIFSTOPPED(status):
                on_stop(pid)
            elif found:
                ends[pid] = os.waitstatus_to_exitcode(status)
                if kill_all and ends[pid] == KILLED:
                    _kill([other for other in pids if other not in ends])
            elif time.monotonic() - begun > LIMIT_SECONDS:
                _kill([pid])
                os.waitpid(pid, 0)
                ends[pid] = DID_NOT_END
        if kill_after is not None:
            victim, seconds = kill_after
            said = Path(f"{output}.{victim}")
            if first_word is None and said.exists() and said.stat().st_size:
                first_word = time.monotonic()
            if first_word is not None and time.monotonic() - first_word >= seconds:
                _kill([pids[victim]] if pids[victim] not in ends else [])
                kill_after = None
        time.sleep(0.003)
    return [ends[pid] for pid in pids]


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
