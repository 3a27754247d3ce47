"""A kept pool of ranks: eight processes that have torch loaded, and meet in one world after another.

A world of some ranks begins with a process group over gloo and ends without one. The processes stay, because torch's
first steps in a process take longer than all the others. As a script this module is the process that forks them. It
never has a thread or a connection itself. So it can fork others in the place of ranks that died.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any

from tests.forking import environment_of_script, fork

SIZE = 8
LIMIT_SECONDS = 240.0

Job = dict[str, Any]
Answer = dict[str, Any]


class WorldError(AssertionError):
    """A rank failed, died or did not end."""


class RankPool:
    """Ranks for one world after another."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spotkeep.ranks.resharding.pool"],
            env=environment_of_script(OMP_NUM_THREADS="1", SPOTKEEP_EVENTS="none"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, job: Job, *, ranks: int, folder: Path) -> list[Answer]:
        """Do a job on each rank of a new world. Gives the answers in the order of the ranks.

        Args:
            job: The job, as `trials.do` takes it.
            ranks: The size of the world.
            folder: A folder for the place where the ranks meet.

        Raises:
            WorldError: A rank failed, died or did not end. The next world gets new processes.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"job": job, "ranks": ranks, "folder": str(folder)}), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise WorldError("the process that forks the ranks has ended")
        answers: list[Answer] = json.loads(line)
        problems = {rank: answer["failed"] for rank, answer in enumerate(answers) if "failed" in answer}
        if problems:
            raise WorldError(_in_short(problems))
        return answers

    def close(self) -> None:
        """End the ranks."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> RankPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _in_short(problems: dict[int, str]) -> str:
    """Give one traceback as a whole and the last line of each other. A rank that lost another one says little."""
    last = {rank: text.rstrip().rpartition("\n")[2] for rank, text in problems.items()}
    lost = ("Connection", "RankLost", "OtherRank", "read error", "write error")
    first = next((rank for rank, line in last.items() if not any(word in line for word in lost)), min(problems))
    others = [f"rank {rank}: {line[:200]}" for rank, line in last.items() if rank != first]
    return "\n".join([f"rank {first}: {problems[first]}", *others])


@dataclass
class _Worker:
    pid: int
    jobs: int
    answers: int

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.jobs)
        os.close(self.answers)


def main() -> None:
    """Fork the ranks, and give them the jobs of standard input."""
    from tests.spotkeep.ranks.resharding import trials

    trials.import_all()
    # A rank that looks for garbage in what is imported would copy the memory that it shares with the others.
    gc.freeze()
    workers: list[_Worker] = []
    for number, line in enumerate(sys.stdin):
        request = json.loads(line)
        while len(workers) < SIZE:
            workers.append(_new_worker(workers))
        meeting = str(Path(request["folder"]) / f"world-{os.getpid()}-{number}")
        for rank in range(request["ranks"]):
            whole = {"job": request["job"], "rank": rank, "ranks": request["ranks"], "meeting": meeting}
            with suppress(BrokenPipeError):
                os.write(workers[rank].jobs, json.dumps(whole).encode() + b"\n")
        answers = _answers(workers[: request["ranks"]])
        if any("failed" in answer for answer in answers):
            for worker in workers:
                worker.end()
            workers = []
        print(json.dumps(answers), flush=True)
    for worker in workers:
        worker.end()


def _new_worker(others: list[_Worker]) -> _Worker:
    jobs_to_read, jobs = os.pipe()
    answers, answers_to_write = os.pipe()

    def work() -> None:
        for end in (jobs, answers, *(end for other in others for end in (other.jobs, other.answers))):
            os.close(end)
        # Standard output belongs to the answers of the process that forks.
        os.dup2(2, 1)
        _serve(jobs_to_read, answers_to_write)

    pid = fork(work)
    os.close(jobs_to_read)
    os.close(answers_to_write)
    return _Worker(pid, jobs, answers)


def _serve(jobs: int, answers: int) -> None:
    from tests.spotkeep.ranks.resharding import trials

    with ExitStack() as ended:
        lines = ended.enter_context(os.fdopen(jobs))
        out = ended.enter_context(os.fdopen(answers, "w"))
        for line in lines:
            request = json.loads(line)
            answer = trials.do_in_world(
                request["job"], rank=request["rank"], ranks=request["ranks"], meeting=request["meeting"]
            )
            print(json.dumps(answer), file=out, flush=True)
            if "failed" in answer:
                return  # Its connections close, so the others learn of it.


def _answers(workers: list[_Worker]) -> list[Answer]:
    """Wait for the answer of each rank."""
    read: dict[int, bytes] = {worker.answers: b"" for worker in workers}
    left = set(read)
    limit = time.monotonic() + LIMIT_SECONDS
    while left and (seconds := limit - time.monotonic()) > 0:
        for answers in connection.wait(list(left), seconds):
            assert isinstance(answers, int)
            some = os.read(answers, 2**20)
            read[answers] += some
            if not some or some.endswith(b"\n"):
                left.discard(answers)
    return [_answer(read[worker.answers], late=worker.answers in left) for worker in workers]


def _answer(raw: bytes, *, late: bool) -> Answer:
    if raw.endswith(b"\n"):
        answer: Answer = json.loads(raw)
        return answer
    return {"failed": f"no answer within {LIMIT_SECONDS:.0f} s" if late else "it ended without an answer"}


if __name__ == "__main__":
    main()
