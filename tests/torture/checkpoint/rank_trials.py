"""Trials of several ranks. Each kills ranks at file operations, and resumes with any number of ranks.

Each trial demands that all ranks restore one step, that each part is bit for bit that of the step, that no durable step
is lost, that no rank waits for a dead one, and that the end is that of a training that was left alone.

The findings of each trial go to a file at once. A run that was stopped goes on with the trials that are left.
"""

from __future__ import annotations

import functools
import hashlib
import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import spotkeep
from spotkeep.events import EVENT_PREFIX
from tests.forking import environment_of_script
from tests.torture.checkpoint import interposition, trials
from tests.torture.checkpoint.attempt import Size
from tests.torture.checkpoint.rank_training import generator_digest, rows_digest, table_at
from tests.torture.checkpoint.training import LINE_PREFIX, reference_digests
from tests.torture.checkpoint.trials import TrialFindings
from tests.torture.stages import Done

FIRST_RANKS = 4
RANKS = (1, 2, 3, 4, 4, 5, 8)
"""The numbers of ranks that go on, as often as they are drawn."""
SIZE = Size(total_steps=6, every_steps=2, state_bytes=5 * 2**20)
"""A state of more chunks than ranks, so that each rank writes a part of what is common."""

_LIMIT_SECONDS = 90.0
_KILLED = -signal.SIGKILL
_KINDS = ("kill", "kill-midway")


@dataclass(frozen=True, kw_only=True)
class RankAttempt:
    """The ranks of one training, as they ended.

    Attributes:
        world_size: The number of ranks.
        exit_codes: Of each rank. None for one that did not end.
        said: The words of each rank, by `restored` and `finished`.
        durable: The newest step that rank 0 called durable, 0 for none.
        errors: The last line of each rank's output.
    """

    world_size: int
    exit_codes: tuple[int | None, ...]
    said: tuple[dict[str, dict[str, Any]], ...]
    durable: int
    errors: tuple[str, ...]


class RankPool:
    """A process that has imported torch, and forks the ranks of one training after another."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.torture.checkpoint.rank_training", "--serve"],
            env=environment_of_script(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, job: dict[str, Any]) -> list[int | None]:
        """Run a training. Gives the exit code of each rank."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({**job, "limit_seconds": _LIMIT_SECONDS}) + "\n")
        self._process.stdin.flush()
        ends: list[int | None] = json.loads(self._process.stdout.readline())
        return ends

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def run_torchrun(job: dict[str, Any]) -> list[int | None]:
    """Run a training under torchrun. All ranks have its exit code, since torchrun ends those that are left."""
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(job["world_size"])]
    done = subprocess.run(
        [sys.executable, "-m", *torchrun, "-m", "tests.torture.checkpoint.rank_training", json.dumps(job)],
        env=environment_of_script(), capture_output=True, text=True, timeout=2 * _LIMIT_SECONDS, check=False,
    )  # fmt: skip
    return [done.returncode] * job["world_size"]


Run = Callable[[dict[str, Any]], list[int | None]]
Calls = dict[str, list[list[str]]]
"""By the number of ranks, for each rank, the names of its calls that change the folder."""


class RankJudge:
    """Compares attempts on one folder of checkpoints with a training that was left alone.

    Args:
        title: The name of the trial, for its problems.
    """

    def __init__(self, title: str) -> None:
        self.found = TrialFindings(trials=1)
        self._title = title
        self._durable = 0
        self._fewest_ranks = max(RANKS)

    def see(self, attempt: RankAttempt, *, killed: int | None, under_torchrun: bool = False) -> None:
        """Judge one attempt, in the order in which they ran.

        Args:
            attempt: The attempt.
            killed: The rank with a fault. None for none.
            under_torchrun: True if only one exit code is known.
        """
        codes = attempt.exit_codes
        self._fewest_ranks = min(self._fewest_ranks, attempt.world_size)
        if None in codes:
            self.note(f"rank {codes.index(None)} did not end")
        if killed is None:
            self._require(set(codes) == {0}, f"ended with {codes}: {attempt.errors}")
        elif under_torchrun:
            self.found += TrialFindings(kills=int(codes[0] != 0))
        else:
            self._require(codes[killed] in (_KILLED, 0), f"rank {killed} ended with {codes}: {attempt.errors}")
            others = {code for rank, code in enumerate(codes) if rank != killed}
            allowed = {0} if codes[killed] == 0 else {0, 1}
            self._require(others <= allowed, f"ended with {codes}: {attempt.errors}")
            self.found += TrialFindings(kills=int(codes[killed] == _KILLED))
        self._see_restored(attempt)
        self._durable = max(self._durable, attempt.durable)
        if killed is None:
            self._see_finished(attempt)

    def note(self, problem: str, **counts: int) -> None:
        """Note something that must not be."""
        self.found += TrialFindings(problems=(f"{self._title}: {problem}",), **counts)  # type: ignore[arg-type]

    def _see_restored(self, attempt: RankAttempt) -> None:
        restored = [(rank, said["restored"]) for rank, said in enumerate(attempt.said) if "restored" in said]
        steps = {said["step"] for _, said in restored}
        if len(steps) > 1:
            self.note(f"the ranks restored the steps {sorted(steps)}", mixed=1)
        for rank, said in restored:
            self._compare(rank, said, attempt.world_size)
        if steps:
            step = min(steps)
            if step < self._durable:
                self.note(f"step {step} was restored after {self._durable} was durable", lost=self._durable - step)
            self._durable = max(self._durable, step)

    def _see_finished(self, attempt: RankAttempt) -> None:
        for rank, said in enumerate(attempt.said):
            end = said.get("finished")
            if end is None or end["step"] != SIZE.total_steps:
                self.note(f"rank {rank} did not come to the end", wrong_ends=1)
            else:
                self._compare(rank, end, attempt.world_size)

    def _compare(self, rank: int, said: dict[str, Any], world_size: int) -> None:
        step = said["step"]
        right = {
            "common": _references()[step],
            "table": _table_digest(step, *said["rows"]),
            "place": step,
            "own": generator_digest(rank, step),
        }
        # A rank that an earlier attempt did not have may have a generator that follows from rank 0's.
        compared = [name for name in right if name != "own" or rank < self._fewest_ranks]
        wrong = [name for name in compared if said[name] != right[name]]
        if wrong:
            self.note(f"on rank {rank} of {world_size}, step {step} has other values: {', '.join(wrong)}", mixed=1)

    def _require(self, right: bool, problem: str) -> None:
        if not right:
            self.note(problem)


def kill_ranks(done: Done, *, count: int, torchrun: int, seed: int, pools: int, kept: Path) -> TrialFindings:
    """Kill ranks of a training of four at drawn file operations, and let drawn numbers of ranks go on.

    In every third trial the ranks that go on lose one, too.

    Args:
        done: Called with finished trials.
        count: Trials with ranks that are forked.
        torchrun: Trials with torchrun.
        seed: The trials follow from it.
        pools: Trials that run at once.
        kept: The file with the findings of an earlier run that was stopped.
    """
    with _pools(pools) as free:
        finished = _finished_trials(kept, seed=seed)
        calls = finished.pop("calls", None)
        with kept.open("a", encoding="utf-8") as file:
            if calls is None:
                calls = _record_calls(free)
                _append(file, {"trial": "calls", "found": calls})
            kinds = (("forked", count), ("torchrun", torchrun))
            plan = [f"{kind} {number}" for kind, trials_of_kind in kinds for number in range(trials_of_kind)]
            left = SimpleQueue[str]()
            total = TrialFindings()
            for trial in plan:
                if trial in finished:
                    total += _findings(finished[trial])
                    done(1)
                else:
                    left.put(trial)
            lock = threading.Lock()

            def work() -> None:
                nonlocal total
                while not left.empty():
                    trial = left.get()
                    pool = free.get()
                    try:
                        under_torchrun = trial.startswith("torchrun")
                        found = _trial(trial, calls, seed=seed, run=run_torchrun if under_torchrun else pool.run)
                    finally:
                        free.put(pool)
                    with lock:
                        total += found
                        _append(file, {"trial": trial, "found": asdict(found)})
                        done(1)

            _at_once(work, pools)
    kept.unlink()
    return total


def _trial(trial: str, calls: Calls, *, seed: int, run: Run) -> TrialFindings:
    chance = random.Random(f"{seed} {trial}")  # noqa: S311 - reproducible, not secret
    broken = [(FIRST_RANKS, *_fault(calls, FIRST_RANKS, chance))]
    if chance.random() < 1 / 3:
        ranks = chance.choice([number for number in RANKS if str(number) in calls])
        broken.append((ranks, *_fault(calls, ranks, chance)))
    last = chance.choice(RANKS)
    faults = ", ".join(f"{kind} of rank {rank} of {ranks} at call {call}" for ranks, rank, kind, call in broken)
    judge = RankJudge(f"{trial}, seed {seed}: {faults}, then {last} ranks")
    under_torchrun = trial.startswith("torchrun")
    with trials.scratch_directory() as scratch:
        for ranks, rank, kind, call in broken:
            fault = interposition.DiskFault(kind=kind, call=call)
            attempt = attempt_of(run, scratch, world_size=ranks, fault=[rank, str(fault)])
            judge.see(attempt, killed=rank, under_torchrun=under_torchrun)
        judge.see(attempt_of(run, scratch, world_size=last), killed=None)
    return judge.found


def attempt_of(run: Run, scratch: Path, *, world_size: int, **options: Any) -> RankAttempt:
    """Run one attempt on the checkpoints in a folder.

    Args:
        run: Runs a job.
        scratch: The folder.
        world_size: The number of ranks.
        **options: More of the job, such as its fault.
    """
    directory = scratch / "run" / "checkpoints"
    directory.parent.mkdir(exist_ok=True)
    output = scratch / "output"
    for rank in range(world_size):
        Path(f"{output}.{rank}").unlink(missing_ok=True)
    job = {
        "world_size": world_size, "directory": str(directory), "output": str(output), "total_steps": SIZE.total_steps,
        "every_steps": SIZE.every_steps, "state_bytes": SIZE.state_bytes, **options,
    }  # fmt: skip
    codes = run(job)
    texts = [path.read_text() if (path := Path(f"{output}.{rank}")).exists() else "" for rank in range(world_size)]
    said: list[dict[str, dict[str, Any]]] = []
    durable = 0
    for text in texts:
        words: dict[str, dict[str, Any]] = {}
        for line in text.splitlines(keepends=True):
            prefix = next((one for one in (LINE_PREFIX, EVENT_PREFIX) if line.startswith(one)), None)
            if prefix is None or not line.endswith("\n"):
                continue
            fields = json.loads(line[len(prefix) :])
            if "what" in fields:
                words[fields["what"]] = fields
            elif fields["event"] == "saved":
                durable = max(durable, fields["step"])
        said.append(words)
    errors = tuple((text.strip().splitlines() or [""])[-1][:300] for text in texts)
    return RankAttempt(world_size=world_size, exit_codes=tuple(codes), said=tuple(said), durable=durable, errors=errors)


def _fault(calls: Calls, ranks: int, chance: random.Random) -> tuple[int, str, int]:
    rank = chance.randrange(ranks)
    names = calls[str(ranks)][rank]
    call = chance.randrange(len(names))
    return rank, chance.choice([kind for kind in _KINDS if interposition.applies(kind, names[call])]), call


def _record_calls(free: SimpleQueue[RankPool]) -> Calls:
    """Name the calls of each rank that change the folder, for each number of ranks.

    Raises:
        ValueError: If a training without a fault does not come to its end.
    """
    recorded: Calls = {}
    for ranks in sorted({FIRST_RANKS, *RANKS}):
        with trials.scratch_directory() as scratch:
            pool = free.get()
            try:
                attempt = attempt_of(pool.run, scratch, world_size=ranks, record=str(scratch / "record"))
            finally:
                free.put(pool)
            judge = RankJudge("without a fault")
            judge.see(attempt, killed=None)
            if judge.found.problems:
                raise ValueError("; ".join(judge.found.problems))
            recorded[str(ranks)] = [_names(Path(f"{scratch / 'record'}.{rank}")) for rank in range(ranks)]
    return recorded


def _names(record: Path) -> list[str]:
    with record.open(encoding="ascii") as lines:
        calls = [json.loads(line) for line in lines]
    return [str(call.get("name", call["call"])) for call in calls if trials.is_counted(call)]


def _finished_trials(kept: Path, *, seed: int) -> dict[str, Any]:
    """Give the findings of an earlier run of the same library and seed. Others are forgotten."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    key = {"trial": "key", "found": [seed, _library_digest()]}
    text = kept.read_text(encoding="utf-8") if kept.exists() else ""
    lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    if lines[:1] != [key]:
        lines = [key]
    # The last line may be half of one.
    kept.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return {line["trial"]: line["found"] for line in lines[1:]}


def _library_digest() -> str:
    digest = hashlib.sha256()
    for source in sorted(Path(spotkeep.__file__).parent.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _findings(document: dict[str, Any]) -> TrialFindings:
    return TrialFindings(**{**document, "problems": tuple(document["problems"])})


def _append(file: Any, line: dict[str, Any]) -> None:
    file.write(json.dumps(line) + "\n")
    file.flush()


@contextmanager
def _pools(count: int) -> Iterator[SimpleQueue[RankPool]]:
    made = [RankPool() for _ in range(count)]
    free = SimpleQueue[RankPool]()
    for pool in made:
        free.put(pool)
    try:
        yield free
    finally:
        for pool in made:
            pool.close()


def _at_once(work: Callable[[], None], threads: int) -> None:
    problems: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it is raised below
            problems.append(error)

    running = [threading.Thread(target=guarded) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if problems:
        raise problems[0]


@functools.cache
def _references() -> list[str]:
    return reference_digests(total_steps=SIZE.total_steps, state_bytes=SIZE.state_bytes)


@functools.cache
def _table_digest(step: int, begin: int, end: int) -> str:
    return rows_digest(table_at(step)[begin:end])
