"""The notes of the writers in a folder of checkpoints, and the place of this process among the writers."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Callable

from spotkeep.errors import LockLostError, SaveError

from .storage import LocalStorage, disk_advice
from .writers import MAX_NOTE_BYTES, NOTES_KEPT, Token, Writers, note_name, parse_note_name

_MOST_CLAIMS = 20

_logger = logging.getLogger("spotkeep")


class WriterNotes:
    """The notes of the writers in a folder.

    Attributes:
        token: The token of this writer. None before it has begun, and for a writer that needs none.
        removes_up_to: The last token whose checkpoints this process may remove. It is its own one, and before the disk
            has taken its note the one before that. None for a process outside of any run, which may remove all.

    Args:
        path: The folder.
        storage: The file operations.
    """

    def __init__(self, path: Path, *, storage: LocalStorage) -> None:
        self.token: Token | None = None
        self.removes_up_to: Token | None = None
        self._served: tuple[int, int] | None = None
        self._path = path
        self._storage = storage
        self._lost: LockLostError | None = None
        self._read: dict[str, Writers] = {}
        self._passed_over: set[str] = set()

    def writers(self) -> Writers:
        """Read the notes of the writers so far.

        A note that cannot be read is passed over, because later ones repeat it.
        """
        names = self._storage.names(self._path)
        notes = {name: self._read.get(name) or self._read_note(name) for name in names if parse_note_name(name)}
        self._read = {name: note for name, note in notes.items() if note is not None}
        return Writers().joined(self._read.values(), names=names)

    def learn(self, writers: Writers) -> None:
        """Keep a note of writers that S3 or another rank knows.

        Raises:
            SaveError: If the disk refuses.
        """
        here = self.writers()
        known = here.joined([writers])
        if known.began == here.began:
            return
        # A note that cannot be read may have this name.
        self._storage.remove_file(self._path / note_name(max(known.began)))
        with contextlib.suppress(FileExistsError):  # another rank of this disk learns the same
            self._write_note(known)

    def forget(self) -> None:
        """Remove all notes, where S3 alone says who has written.

        Raises:
            OSError: If the disk refuses.
        """
        for name in filter(parse_note_name, self._storage.names(self._path)):
            self._storage.remove_file(self._path / name)
        self._read.clear()

    def require_lock(self, lock: tuple[int, int] | None) -> None:
        """Refuse a writer whose run has gone on under a later lock.

        Args:
            lock: Its attempt and its lease. None outside of a run.

        Raises:
            LockLostError: If a writer under a later lock has begun.
        """
        later = None if lock is None else self.writers().later_than(lock)
        if lock is not None and later is not None:
            raise LockLostError(str(self._path), own=f"attempt {lock[0]}, lease {lock[1]}", later=str(later))

    def begin(
        self, lock: tuple[int, int] | None, *, step: int | None, claim: Callable[[Token, Writers], bool] | None = None
    ) -> None:
        """Begin to write. What earlier writers save beyond this step is not read from now on.

        Args:
            lock: The attempt and the lease of this writer. None outside of a run.
            step: The step of the checkpoint that it goes on from. None without one.
            claim: Takes the token in S3 too. Gives false where another writer has it, whose note is here then.

        Raises:
            LockLostError: If a writer under a later lock has begun.
            RemoteError: If S3 refuses.
            SaveError: If the disk refuses.
        """
        for _ in range(_MOST_CLAIMS):
            self.require_lock(lock)
            begun = self.writers().begin(lock, step=step)
            if begun is None:
                return
            token, writers = begun
            # A full disk may refuse the note, and those before this writer are what makes room for it.
            self.removes_up_to = token.predecessor
            if claim is not None and not claim(token, writers):
                continue
            with contextlib.suppress(FileExistsError):  # another writer has just taken it
                self._write_note(writers)
                self.take(token)
                return
        raise SaveError(f"{_MOST_CLAIMS} other writers have begun in {self._path} meanwhile; end them, and start again")

    def take(self, token: Token | None) -> None:
        """Write with this token from now on, which a note gives to this process or to rank 0 of its training."""
        self.token = self.removes_up_to = token

    def serve(self, lock: tuple[int, int]) -> None:
        """Copy what is written under this lock from now on. The process that writes takes tokens of its own."""
        self.take(None)
        self._served = lock

    def writer(self) -> Token | None:
        """Return the token of this writer. For a process that copies, it is that of the newest writer under its lock.

        None for a writer without a token.
        """
        if self.token is not None:
            return self.token
        found = self.writers()
        if self._served is None:
            return found.newest
        return max((each for each in found.tokens if each.lock <= self._served), default=None)

    def lose(self, error: LockLostError) -> None:
        """Save nothing more, because S3 shows a later writer. Each save raises this error."""
        self._lost = error

    def later_writer(self) -> LockLostError | None:
        """Look for a later writer than this one. Gives the error to raise, or None."""
        if self._lost is None and self.token is not None:
            newest = self._newest_note()
            if newest is not None and newest > self.token:
                self._lost = LockLostError(str(self._path), own=f"writer {self.token}", later=str(newest))
        return self._lost

    def may_remove(self) -> bool:
        """Say if no later writer has begun. For one without a note, no writer since it has asked for its token."""
        newest, last = self._newest_note(), self.removes_up_to
        return self.later_writer() is None and (last is None or newest is None or newest <= last)

    def require_no_later_writer(self) -> None:
        """Refuse to write once a later writer has begun.

        Raises:
            LockLostError: If one has.
        """
        later = self.later_writer()
        if later is not None:
            raise later

    def remove_old(self) -> None:
        """Remove the notes before the latest ones, which repeat them."""
        notes = sorted(filter(None, map(parse_note_name, self._storage.names(self._path))), reverse=True)
        for token in notes[NOTES_KEPT:]:
            with contextlib.suppress(OSError):
                self._storage.remove_file(self._path / note_name(token))

    def _newest_note(self) -> Token | None:
        return max(filter(None, map(parse_note_name, self._storage.names(self._path))), default=None)

    def _read_note(self, name: str) -> Writers | None:
        try:
            return Writers.parse(bytes(self._storage.read(self._path / name, max_bytes=MAX_NOTE_BYTES)))
        except (OSError, ValueError) as error:
            if name not in self._passed_over:
                self._passed_over.add(name)
                _logger.warning("passing over the note %s in %s: %s", name, self._path, error)
            return None

    def _write_note(self, writers: Writers) -> None:
        """Write a new note.

        Raises:
            FileExistsError: If another writer has this token.
            SaveError: If the disk refuses.
        """
        token = max(writers.began)
        try:
            self._storage.make_directory(self._path)
            self._write_whole(self._path / note_name(token), writers.to_bytes())
            self._storage.sync_directory(self._path)
        except FileExistsError:
            raise
        except OSError as error:
            raise SaveError(
                f"the note of the writer {token} cannot be written to {self._path}: {error.strerror or error}; "
                f"{disk_advice(error)}"
            ) from error

    def _write_whole(self, path: Path, raw: bytes) -> None:
        """Write a new file, and leave no part of one where the disk refuses."""
        with self._storage.create(path) as descriptor:
            try:
                self._storage.write_at(descriptor, memoryview(raw), 0)
                self._storage.sync(descriptor)
            except OSError:
                with contextlib.suppress(OSError):
                    self._storage.remove_file(path)
                raise
