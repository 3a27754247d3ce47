"""The trials of ranks. Each ruins a training of four ranks in one way and goes on with one to four.

Every trial demands the same. A restored state is as a whole that of the step it says, on every rank. No step is lost
that any rank had called durable. No rank hangs. The last attempt trains to its end. Most attempts are those of a run,
and their writers have tokens. Of a world that was replaced while it hung, no later one reads a checkpoint that it wrote
since.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.writers import parse_folder
from tests.torture.checkpoint import interposition
from tests.torture.checkpoint.crash_disk import CrashDisk, DiskCall
from tests.torture.checkpoint.interposition import EXCHANGE
from tests.torture.checkpoint.ranks.world import DID_NOT_END, KILLED, RankEnd, RankForge, run_with_torchrun
from tests.torture.checkpoint.training import CHECKPOINTS, mark_of
from tests.torture.checkpoint.trials import TrialFindings, contents

RANKS = 4
STEPS = 3
"""Steps of the first attempt, each with a checkpoint. The third one removes the first."""

DISK_FAULTS = ("eio", "enospc", "short", "no-rename")
_KILLED_AT_RANDOM = "random kill"
_LOST_WRITES = "lost writes"
_FAILED_SYNC = "failed fsync"
_REPLACED = "stop"
_SURVIVAL = (0.0, 0.9, 0.5)


@dataclass(frozen=True, kw_only=True)
class RankTrial:
    """One trial.

    Attributes:
        kind: A kind of fault of `interposition.KINDS`, `kill-all`, `random kill`, `lost writes` or `failed fsync`. A
            `stop` lets the next attempt take the place of the first one while that hangs.
        rank: The rank that is struck.
        call: The number of the call of that rank, or of its message. Of lost writes, the number in the record of all
            ranks.
        name: The name of the call.
        then: The numbers of ranks of the attempts after it.
        second: A rank of the first of these attempts that is killed too, and its call. None for no second kill.
        seed: Of what is left to chance.
        by_torchrun: True where torchrun starts the first attempt.
    """

    kind: str
    rank: int
    call: int
    name: str
    then: tuple[int, ...]
    second: tuple[int, int] | None = None
    seed: int
    by_torchrun: bool = False

    @property
    def in_a_run(self) -> bool:
        """True where the attempts are those of a run, so that their writers have tokens."""
        return self.kind in (_LOST_WRITES, _FAILED_SYNC, _REPLACED) or self.seed % 4 != 0

    @property
    def group(self) -> str:
        """The row of the table that counts it."""
        return "kills under torchrun" if self.by_torchrun else _GROUP_OF_KIND[self.kind]

    def __str__(self) -> str:
        at = f"{self.kind} at call {self.call} ({self.name}) of rank {self.rank}"
        second = "" if self.second is None else f", then kill at call {self.second[1]} of rank {self.second[0]}"
        torchrun = " under torchrun" if self.by_torchrun else ""
        return f"{at}{torchrun}, restored by {' and '.join(map(str, self.then))}{second}"


_GROUP_OF_KIND = {
    "kill": "kills at file operations",
    "kill-midway": "kills at file operations",
    "kill-message": "kills at messages",
    "kill-all": "all killed at once",
    _KILLED_AT_RANDOM: "random kills",
    **dict.fromkeys(DISK_FAULTS, "a disk that refuses"),
    _LOST_WRITES: "lost writes",
    _FAILED_SYNC: "failed fsync",
    _REPLACED: "replaced while it hangs",
}
GROUPS = (*dict.fromkeys(_GROUP_OF_KIND.values()), "kills under torchrun")


def plan(*, seed: int, trials: int, by_torchrun: int, calls: Sequence[Sequence[str]]) -> list[RankTrial]:
    """Draw the trials. The same seed and the same calls give the same trials.

    Args:
        seed: The seed.
        trials: How many.
        by_torchrun: How many of them torchrun starts.
        calls: The names of the calls of each rank in an undisturbed attempt.
    """
    chance = random.Random(seed)  # noqa: S311 - reproducible, not secret
    places = [
        (rank, call, name)
        for rank, names in enumerate(calls)
        for one in (False, True)
        for call, name in enumerate(name for name in names if (name == EXCHANGE) == one)
    ]
    operations = [place for place in places if place[2] != EXCHANGE]

    def every(*kinds: str) -> list[tuple[int, int, str, str]]:
        return [(*place, kind) for place in places for kind in kinds if interposition.applies(kind, place[2])]

    shares = (
        (0.32, every("kill", "kill-midway")),
        (0.16, every("kill-message")),
        (0.10, every(_REPLACED)),
        (0.08, [(*place, "kill-all") for place in operations]),
        (0.04, [(rank, 0, "any", _KILLED_AT_RANDOM) for rank in range(RANKS)]),
        (0.14, every(*DISK_FAULTS)),
        (0.12, [(0, number, "any", _LOST_WRITES) for number in range(1, len(places) + 1)]),
        (0.04, [(*place, _FAILED_SYNC) for place in operations if "sync" in place[2]]),
    )
    forked = trials - by_torchrun
    drawn = [place for share, among in shares for place in _draw(among, max(1, round(forked * share)), chance)]
    drawn = drawn[:forked] + _draw(shares[0][1], max(0, forked - len(drawn)), chance)
    made = [_trial(place, chance) for place in drawn]
    made += [_trial(place, chance, by_torchrun=True) for place in _draw(shares[0][1], by_torchrun, chance)]
    # A run that is stopped has then done some of each kind.
    chance.shuffle(made)
    return made


def _draw(among: list[Any], count: int, chance: random.Random) -> list[Any]:
    """Draw so that each has its turn before any has a second one."""
    drawn: list[Any] = []
    while len(drawn) < count:
        drawn += chance.sample(among, min(len(among), count - len(drawn)))
    return drawn


def _trial(place: tuple[int, int, str, str], chance: random.Random, *, by_torchrun: bool = False) -> RankTrial:
    rank, call, name, kind = place
    sizes = [chance.choices((1, 2, 3, 4), (4, 3, 2, 2))[0] for _ in range(2)]
    second = None
    if kind.startswith("kill") and chance.random() < 0.25:
        second = (chance.randrange(sizes[0]), chance.randrange(30))
    return RankTrial(
        kind=kind,
        rank=rank,
        call=call,
        name=name,
        then=tuple(sizes[: 1 if second is None else 2]),
        second=second,
        seed=chance.randrange(2**32),
        by_torchrun=by_torchrun,
    )


@dataclass(kw_only=True)
class RankJudge:
    """Judges the attempts on one folder, in the order in which they ran.

    Attributes:
        title: The name of the trial, for its problems.
        durable: The newest step that any rank has called durable.
        begun: The newest step that any rank has begun.
        found: The findings so far.
    """

    title: str
    durable: int = 0
    begun: int = 0
    found: TrialFindings = field(default_factory=lambda: TrialFindings(trials=1))

    def see(
        self, ends: Sequence[RankEnd], *, total_steps: int, victim: int | None = None, all_die: bool = False
    ) -> None:
        """Judge an attempt.

        Args:
            ends: The ends of its ranks.
            total_steps: The steps of the whole training.
            victim: The rank that is killed. None for an attempt that must come to its end.
            all_die: True where all ranks are killed with it.
        """
        was_killed = victim is not None and ends[victim].exit_code in (KILLED, None)
        if victim is not None and not was_killed:
            self.count(**{"not reached": 1})
        for rank, end in enumerate(ends):
            codes = ((0, 1, KILLED) if all_die or rank == victim else (0, 1)) if was_killed else (0,)
            if end.exit_code not in (*codes, None):
                said = "hangs" if end.exit_code == DID_NOT_END else f"ended with {end.exit_code}"
                self.note(f"rank {rank} {said}: {last_words(end)}")
            self.found += TrialFindings(kills=int(end.exit_code == KILLED))
            finished = False
            for word in end.words:
                if word["what"] == "finished":
                    finished = True
                    if word["step"] != total_steps:
                        self.note(f"rank {rank} ended after step {word['step']}", wrong_ends=1)
            if not finished and not was_killed:
                self.note(f"rank {rank} did not come to the end: {last_words(end)}", wrong_ends=1)
        self.see_states(ends)
        self.hear([word for end in ends for word in end.words])

    def see_states(self, ends: Sequence[RankEnd]) -> None:
        """Judge what the ranks restored, and what they ended with."""
        steps = set()
        for rank, end in enumerate(ends):
            for word in end.words:
                if word["what"] == "restored":
                    steps.add(word["step"])
                    self._see_restored(word, rank=rank, ranks=len(ends))
                elif word["what"] == "finished":
                    self._see_numbers(word, "ended with")
        if len(steps) > 1:
            self.note(f"the ranks restored different steps: {sorted(steps)}", corrupt=1)
        for step in steps:
            if step < self.durable:
                self.note(f"step {step} was restored after {self.durable} was durable", lost=self.durable - step)
            if step > self.begun:
                self.note(f"step {step} was restored, and {self.begun} is the newest that was begun", corrupt=1)
            if self.begun:
                self.count(**{"the newest restored" if step == self.begun else "an older one restored": 1})
        self.durable = max([self.durable, *steps])

    def hear(self, words: Sequence[dict[str, Any]]) -> None:
        """Take the words of a world that hangs: what is durable, and what was begun."""
        self.durable = max([self.durable, *(word["step"] for word in words if word["what"] == "durable")])
        self.begun = max([self.begun, *(word["step"] for word in words if word["what"] == "begun")])

    def see_replaced(self, ends: Sequence[RankEnd]) -> None:
        """Judge a world that another one has replaced. It ends, and its numbers are whole."""
        for rank, end in enumerate(ends):
            if end.exit_code not in (0, 1):
                said = "hangs" if end.exit_code == DID_NOT_END else f"ended with {end.exit_code}"
                self.note(f"rank {rank}, replaced, {said}: {last_words(end)}")
            for word in end.words:
                if word["what"] == "restored":
                    self._see_restored(word, rank=rank, ranks=len(ends))
        self.count(**{"replaced, ended by the lost lock": int(any("LockLostError" in end.errors for end in ends))})

    def _see_restored(self, word: dict[str, Any], *, rank: int, ranks: int) -> None:
        step, saved_by = word["step"], word["ranks"]
        self._see_numbers(word, "restored")
        if not step:
            return
        places = [{"rank": number, "ranks": saved_by, "step": step} for number in range(saved_by)]
        same = saved_by == ranks
        for name, seen, expected in (
            ("the common part that differs", word["apart of"], rank if same else 0),
            ("the place", word["places"], [places[rank]] if same else places),
            ("the random state", word["random"], rank if rank < saved_by else None),
        ):
            if seen != expected:
                self.note(f"rank {rank} got {name} {seen} and not {expected} of step {step}", corrupt=1)

    def _see_numbers(self, word: dict[str, Any], verb: str) -> None:
        rank, step = word["rank"], word["step"]
        if word["history"] != [*range(1, step + 1)]:
            self.note(f"rank {rank} {verb} the history {word['history']} of step {step}", corrupt=1)
        for name, facts in word["tensors"].items():
            if facts["steps"] != [mark_of(word["worlds"])] or facts["misplaced"]:
                self.note(
                    f"rank {rank} {verb} {name} of step {step} with numbers of the steps {facts['steps']}, "
                    f"{facts['misplaced']} of them from elsewhere",
                    corrupt=1,
                )

    def note(self, problem: str, **counts: int) -> None:
        """Note something that must not be."""
        self.found += TrialFindings(problems=(f"{self.title}: {problem}",), **counts)  # type: ignore[arg-type]

    def count(self, **figures: int) -> None:
        """Count something for the report."""
        self.found += TrialFindings(figures=figures)


def _is_refused(end: RankEnd) -> bool:
    """Say whether a rank ended on entering, because some rank could not make the folder of the checkpoints."""
    return end.exit_code == 1 and not end.words and "of the checkpoints cannot be made" in last_words(end)


def last_words(end: RankEnd) -> str:
    return (end.errors.strip().splitlines() or ["no word"])[-1][:300]


class RankRecording:
    """The calls of all ranks in one attempt, in their order.

    Args:
        forge: Forks the ranks.
        scratch: An empty folder.
        job: More of the job, such as a fault.

    Raises:
        ValueError: The record does not lead to the directory that the ranks left, so a call went around it.
    """

    def __init__(self, forge: RankForge, scratch: Path, **job: Any) -> None:
        record, root = scratch / "record.jsonl", scratch / "recorded"
        root.mkdir()
        begun = time.monotonic()
        whole = {"root": str(root), "total_steps": STEPS, "record": str(record), "attempt": 1, **job}
        self.ends = forge.run(whole, ranks=RANKS, scratch=scratch)
        self.seconds = time.monotonic() - begun
        self.calls: list[DiskCall] = [json.loads(line) for line in record.read_text().splitlines()]
        disk = CrashDisk()
        disk.follow(self.calls)
        disk.leave_everything(scratch / "replayed")
        if contents(scratch / "replayed") != contents(root):
            raise ValueError("replaying the recorded calls does not give what the ranks left: a call was missed")

    def names(self) -> list[list[str]]:
        """Give the names of the counted calls of each rank."""
        return counted_names(self.calls, ranks=RANKS)


def counted_names(calls: Sequence[DiskCall], *, ranks: int) -> list[list[str]]:
    """Give the names of the counted calls of each rank in a record."""
    return [
        [
            str(call.get("name", call["call"]))
            for call in calls
            if call["rank"] == rank and call["call"] not in ("close", "announce") and call.get("changes", True)
        ]
        for rank in range(ranks)
    ]


def run_trial(
    trial: RankTrial, forge: RankForge, recording: RankRecording, folder: Path | None = None
) -> TrialFindings:
    """Do one trial.

    Args:
        trial: The trial.
        forge: Forks the ranks.
        recording: An undisturbed attempt.
        folder: The place of temporary folders. None for the usual one.
    """
    judge = RankJudge(title=str(trial))
    with _scratch(folder) as scratch:
        if trial.kind == _LOST_WRITES:
            point = trial.call * len(recording.calls) // sum(map(len, recording.names()))
            restore_after_power_cut(recording.calls[:point], trial, judge, forge, scratch)
        elif trial.kind == _FAILED_SYNC:
            _fail_sync(trial, judge, forge, scratch)
        elif trial.kind == _REPLACED:
            _replace(trial, judge, forge, scratch)
        else:
            root = scratch / "root"
            root.mkdir()
            _first_attempt(trial, judge, forge, scratch, root, seconds=recording.seconds)
            _resume(trial, judge, forge, scratch, root)
    return judge.found


def _first_attempt(
    trial: RankTrial, judge: RankJudge, forge: RankForge, scratch: Path, root: Path, *, seconds: float
) -> None:
    job: dict[str, Any] = {"root": str(root), "total_steps": STEPS, "jitter": trial.seed, **_attempt(trial, 1)}
    at_random = trial.kind == _KILLED_AT_RANDOM
    if not at_random:
        kind = "kill" if trial.kind == "kill-all" else trial.kind
        job |= {"fault": f"{kind}:{trial.call}", "rank": trial.rank}
    if trial.by_torchrun:
        code, ends = run_with_torchrun(job, ranks=RANKS, scratch=scratch)
        if code not in (0, 1):
            judge.note(f"torchrun ended with {code}")
        judge.see(ends, total_steps=STEPS, victim=trial.rank)
        judge.found += TrialFindings(kills=code)
        return
    moment = random.Random(trial.seed).uniform(0, seconds * 0.8)  # noqa: S311
    ends = forge.run(
        job,
        ranks=RANKS,
        scratch=scratch,
        kill_all=trial.kind == "kill-all",
        kill_after=(trial.rank, moment) if at_random else None,
    )
    if trial.kind in DISK_FAULTS and all(_is_refused(end) for end in ends):
        judge.count(**{"refused on entering": 1})
    elif trial.kind in DISK_FAULTS:
        # A disk that refuses does not end a training, and does not change it.
        judge.see(ends, total_steps=STEPS)
        if trial.kind == "no-rename":
            judge.durable = 0
    else:
        judge.see(ends, total_steps=STEPS, victim=trial.rank, all_die=trial.kind == "kill-all")


def _attempt(trial: RankTrial, number: int) -> dict[str, int]:
    """Give the attempt of a job, if it is one of a run."""
    return {"attempt": number} if trial.in_a_run else {}


def _replace(trial: RankTrial, judge: RankJudge, forge: RankForge, scratch: Path) -> None:
    """Suspend a rank, let another attempt train to its end, and let the first one go on beside what it left."""
    root = scratch / "root"
    root.mkdir()
    job = {"root": str(root), "total_steps": STEPS, "jitter": trial.seed, "fault": f"stop:{trial.call}"}
    by = {"root": str(root), "total_steps": STEPS + 1}
    found = forge.run_and_replace(
        {**job, "rank": trial.rank, **_attempt(trial, 1)},
        ranks=RANKS,
        by={**by, **_attempt(trial, 2)},
        by_ranks=trial.then[0],
        scratch=scratch,
    )
    if not found.second:
        judge.count(**{"not reached": 1})
        judge.see(found.first, total_steps=STEPS)
        return
    judge.hear(found.before)
    judge.see(found.second, total_steps=STEPS + 1)
    judge.see_replaced(found.first)
    directory = CheckpointDirectory(root / CHECKPOINTS)
    began = next((begin for token, begin in directory.writer_notes.writers().began.items() if token.attempt == 2), None)
    for step in directory.steps():
        _, token = parse_folder(directory.name(step)) or (step, None)
        if token is not None and token.attempt == 1 and step > (began or 0):
            judge.note(f"{directory.name(step)} is read, and the second attempt went on from {began}", corrupt=1)
    _resume(trial, judge, forge, scratch, root, done=2)


def _resume(trial: RankTrial, judge: RankJudge, forge: RankForge, scratch: Path, root: Path, *, done: int = 1) -> None:
    total_steps = STEPS + done - 1
    for number, ranks in enumerate(trial.then):
        total_steps += 1
        # One rank divides nothing half of the time, as a script for one GPU does.
        job: dict[str, Any] = {
            "root": str(root),
            "total_steps": total_steps,
            "plain": ranks == 1 and trial.seed % 2 == 0,
            **_attempt(trial, number + done + 1),
        }
        if number == 0 and trial.second is not None:
            rank, call = trial.second
            job |= {"fault": f"kill:{call}", "rank": rank}
            judge.see(forge.run(job, ranks=ranks, scratch=scratch), total_steps=total_steps, victim=rank)
        else:
            judge.see(forge.run(job, ranks=ranks, scratch=scratch), total_steps=total_steps)


def restore_after_power_cut(
    calls: Sequence[DiskCall], trial: RankTrial, judge: RankJudge, forge: RankForge, scratch: Path
) -> None:
    """Cut the power of the machine of all ranks after these calls, and go on with what the disk then holds.

    In a third of the trials everything unsafe is lost, in a third nearly everything is there, in a third each part
    decides for itself.
    """
    chance = random.Random(trial.seed)  # noqa: S311 - reproducible, not secret
    likely = 0.0 if trial.kind == _FAILED_SYNC else _SURVIVAL[trial.seed % len(_SURVIVAL)]
    disk = CrashDisk()
    disk.follow(calls)
    judge.durable, judge.begun = disk.announced, STEPS
    root = Path(tempfile.mkdtemp(prefix="root-", dir=scratch))
    disk.leave(root, survives=lambda: chance.random() < likely, chance=chance)
    _resume(trial, judge, forge, scratch, root)


def _fail_sync(trial: RankTrial, judge: RankJudge, forge: RankForge, scratch: Path) -> None:
    """Let one fsync of one rank fail, then cut the power whenever a rank calls something durable: it must be there."""
    failed = RankRecording(forge, scratch, fault=f"eio:{trial.call}", rank=trial.rank)
    if all(_is_refused(end) for end in failed.ends):
        judge.count(**{"refused on entering": 1})
        return
    judge.see(failed.ends, total_steps=STEPS)
    announced = 0
    for point, call in enumerate(failed.calls):
        if call["call"] == "announce" and call["step"] > announced:
            announced = call["step"]
            restore_after_power_cut(failed.calls[: point + 1], trial, judge, forge, scratch)


@contextmanager
def _scratch(folder: Path | None) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="torture-ranks-", dir=folder, ignore_cleanup_errors=True) as path:
        yield Path(path)
