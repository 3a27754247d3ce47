"""The writers of a folder of checkpoints, and the rule by which readers pass over those of a writer that was replaced.

A writer is one start of a training, with all of its ranks. AWS may replace a machine that still lives, because it hangs
or the network is split. Its writer then goes on beside the new one. So each writer has a token, after Martin
Kleppmann's "How to do distributed locking" (2016), and a later writer has a higher one. The token is in the names of
its checkpoints, so no writer overwrites a file of another one.

A writer that begins leaves a note with the step that it went on from. A reader takes no checkpoint of an earlier writer
beyond that step. An earlier writer that finds the note saves nothing more, and a later writer removes what it has
saved meanwhile.

A training outside of a run has no token, and leaves no note. Several hosts with a disk each have one there, too.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Callable

from spotkeep.errors import UsageError

ATTEMPT_VARIABLE = "SPOTKEEP_ATTEMPT"
LEASE_VARIABLE = "SPOTKEEP_LEASE"
NOTE_PREFIX = "writers-"
NOTES_KEPT = 2
"""The number of the latest notes that stay. Each repeats those before it."""
MAX_NOTE_BYTES = 4 * 2**20

_NUMBER = r"(?:0|[1-9][0-9]{0,8})"
_TOKEN = rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}"
_FOLDER = re.compile(rf"step-(0|[1-9][0-9]{{0,17}})(?:-({_TOKEN}))?")
_NOTE = re.compile(rf"{NOTE_PREFIX}({_TOKEN})\.json")
_LOCK_NUMBER = re.compile(_NUMBER)
_NOTHING_BEFORE = -1


@dataclass(frozen=True, order=True)
class Token:
    """The place of a writer in the order of a run's writers.

    Attributes:
        attempt: Number of the attempt that holds the run's lock, from 1.
        lease: Number of the instance's lease within the attempt. 0 on SageMaker.
        start: Number of the start under that lease, from 1.
    """

    attempt: int
    lease: int
    start: int

    def __str__(self) -> str:
        return f"{self.attempt}.{self.lease}.{self.start}"

    @property
    def lock(self) -> tuple[int, int]:
        """The attempt and the lease, which the run's record gives."""
        return self.attempt, self.lease

    @property
    def predecessor(self) -> Token:
        """The token before this one. Every earlier writer has it or an earlier one."""
        return Token(self.attempt, self.lease, self.start - 1)

    @classmethod
    def parse(cls, text: str) -> Token:
        """Read the text of a token.

        Raises:
            ValueError: If it is none.
        """
        if not re.fullmatch(_TOKEN, text):
            raise ValueError(f"{text[:50]!r} is no token of a writer")
        return cls(*map(int, text.split(".")))


def lock_of(environment: Mapping[str, str]) -> tuple[int, int] | None:
    """Read the attempt and the lease under which this process may write. None outside of a run.

    Raises:
        UsageError: If a variable is no number.
    """
    if not environment.get(ATTEMPT_VARIABLE):
        return None
    numbers = []
    for name in (ATTEMPT_VARIABLE, LEASE_VARIABLE):
        text = environment.get(name) or "0"
        if not _LOCK_NUMBER.fullmatch(text):
            raise UsageError(f"{name} is {text!r}, and Spotkeep sets it to a number: leave it as it is in the job")
        numbers.append(int(text))
    return numbers[0], numbers[1]


def folder_name(step: int, token: Token | None) -> str:
    """Name the folder of a checkpoint, `step-100`, or `step-100-3.0.1` by a writer with a token."""
    return f"step-{step}" if token is None else f"step-{step}-{token}"


def parse_folder(name: str) -> tuple[int, Token | None] | None:
    """Read the name of a checkpoint's folder, the step and the token of its writer. None for another name."""
    found = _FOLDER.fullmatch(name)
    return None if found is None else (int(found[1]), None if found[2] is None else Token.parse(found[2]))


def folders_to_remove(names: Iterable[str], *, step: int, by: Token | None) -> list[str]:
    """Choose the folders of a step that a writer may remove, those of all but later writers.

    Args:
        names: The names of the folders.
        step: The step.
        by: The token of the writer. None outside of a run, for the folders of all.
    """
    found = [(name, parse_folder(name)) for name in names]
    return [
        name
        for name, parsed in found
        if parsed is not None and parsed[0] == step and (by is None or parsed[1] is None or parsed[1] <= by)
    ]


def note_name(token: Token) -> str:
    """Name the note of a writer."""
    return f"{NOTE_PREFIX}{token}.json"


def parse_note_name(name: str) -> Token | None:
    """Read the name of a writer's note. None for another name."""
    found = _NOTE.fullmatch(name)
    return None if found is None else Token.parse(found[1])


@dataclass(frozen=True)
class Writers:
    """The known writers of a folder. Pure.

    Attributes:
        began: The step that each writer went on from. None for one that began without a checkpoint.
        without_note: Other writers, whose checkpoints are there, or a note that cannot be read.
    """

    began: Mapping[Token, int | None] = field(default_factory=dict)
    without_note: frozenset[Token] = frozenset()

    @property
    def tokens(self) -> frozenset[Token]:
        """The tokens of all known writers."""
        return self.without_note.union(self.began)

    @property
    def newest(self) -> Token | None:
        """The writer with the highest token. None where no writer had one."""
        return max(self.tokens, default=None)

    def joined(self, others: Iterable[Writers], *, names: Iterable[str] = ()) -> Writers:
        """Give these writers and those of other notes.

        Args:
            others: The writers of other notes.
            names: The names of folders and notes, which show writers, too.
        """
        began = {token: step for note in (self, *others) for token, step in note.began.items()}
        shown = {token for name in names for token in (_writer_of(name), parse_note_name(name)) if token is not None}
        return Writers(began, frozenset(shown - began.keys()))

    def reads(self, step: int, token: Token | None) -> bool:
        """Say if readers take a checkpoint of this writer. None is a writer without a token, before all others."""
        return all(
            step <= (_NOTHING_BEFORE if begin is None else begin)
            for later, begin in self.began.items()
            if token is None or later > token
        )

    def readable(self, names: Iterable[str]) -> dict[int, list[str]]:
        """Choose the folders that readers take, by their steps. The latest writer's comes first."""
        found: dict[int, list[tuple[Token | None, str]]] = {}
        for name in names:
            parsed = parse_folder(name)
            if parsed is not None and self.reads(*parsed):
                found.setdefault(parsed[0], []).append((parsed[1], name))
        return {step: [name for _, name in sorted(folders, key=_latest_first)] for step, folders in found.items()}

    def chosen(self, names: Iterable[str], *, is_whole: Callable[[str], bool]) -> dict[int, str]:
        """Choose the folder of each step, the newest step first.

        Args:
            names: The names of folders.
            is_whole: Gives true for a folder with a manifest. The latest of these comes before all others.
        """
        readable = sorted(self.readable(names).items(), reverse=True)
        return {step: next(filter(is_whole, folders), folders[0]) for step, folders in readable}

    def unread(self, names: Iterable[str], *, by: Token | None = None) -> list[str]:
        """Choose the folders that no reader takes.

        Args:
            names: The names of folders.
            by: The token of a writer that may remove them, those of earlier writers. None for the folders of all.
        """
        return [
            name
            for name in names
            for step, token in filter(None, [parse_folder(name)])
            if (by is None or token is None or token < by) and not self.reads(step, token)
        ]

    def begin(self, lock: tuple[int, int] | None, *, step: int | None) -> tuple[Token, Writers] | None:
        """Give the token of a writer that begins now, and the writers with it.

        None where no token is needed, because neither this writer nor an earlier one has a lock.

        Args:
            lock: The attempt and the lease of this writer. One without them goes on under those of the last writer.
            step: The step of the checkpoint that it goes on from. None without one.
        """
        newest = self.newest
        if lock is None:
            if newest is None:
                return None
            lock = newest.lock
        starts = [token.start for token in self.tokens if token.lock == lock]
        token = Token(*lock, max(starts, default=0) + 1)
        return token, Writers({**self.began, token: step})

    def later_than(self, lock: tuple[int, int]) -> Token | None:
        """Give the newest writer under a later lock, whose folder this is now. None for none."""
        newest = self.newest
        return newest if newest is not None and newest.lock > lock else None

    def to_bytes(self) -> bytes:
        """Write them as the bytes of a note."""
        rows = [[str(token), step] for token, step in sorted(self.began.items())]
        body = json.dumps({"writers": rows}, separators=(",", ":"))
        digest = hashlib.sha256(body.encode("ascii")).hexdigest()
        return f'{{"sha256":"{digest}","note":{body}}}\n'.encode("ascii")

    @classmethod
    def parse(cls, raw: bytes) -> Writers:
        """Read the bytes of a note.

        Raises:
            ValueError: If they are no bytes of `to_bytes`.
        """
        try:
            document: Any = json.loads(raw)["note"]["writers"]
            found = cls({Token.parse(token): _step(step) for token, step in document})
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"it is no note of writers: {error}") from error
        if found.to_bytes() != raw:
            raise ValueError("it is cut short or altered")
        return found


def _writer_of(name: str) -> Token | None:
    parsed = parse_folder(name)
    return None if parsed is None else parsed[1]


def _latest_first(folder: tuple[Token | None, str]) -> tuple[bool, tuple[int, int, int]]:
    token = folder[0]
    return token is None, (0, 0, 0) if token is None else (-token.attempt, -token.lease, -token.start)


def _step(value: Any) -> int | None:
    if value is not None and (type(value) is not int or value < 0):
        raise ValueError(f"{str(value)[:50]!r} is no step")
    return value
