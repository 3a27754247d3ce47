"""Writes the local AWS's state to disk while it runs, so that a hard kill loses next to nothing.

ministack saves once, when it is shut down in good order. `StateSaver` makes a pass soon after every change:
it takes each service's state, compares it with what is on disk, and writes what differs. A pass that found a
difference is followed by another, because much of what a request starts (a stack's resources, a function
called by an event) happens after its answer.

CloudFormation is written last: a stack must never be on disk as complete before its resources are.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from spotkeep_local.errors import PersistenceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_log = logging.getLogger(__name__)

_WRITTEN_LAST = "cloudformation"
_SETTLING_DELAY_SECONDS = 1.0
# A pass may take at most a fifth of the time, however much state there is.
_PAUSE_PER_SECOND_OF_WORK = 4.0


class StateStore(Protocol):
    """Where state comes from and goes to."""

    def getters(self) -> Mapping[str, Callable[[], Mapping[str, Any] | None]]:
        """What returns each service's state, by the service's name."""
        ...

    def write(self, name: str, state: Mapping[str, Any]) -> None:
        """Makes one service's state durable, atomically.

        Raises:
            PersistenceError: It could not be written.
        """
        ...


class StateSaver:
    """Saves changed state from a thread of its own.

    Args:
        store: Where state comes from and goes to.
        delay_seconds: From the first unsaved change to the pass that saves it.
    """

    def __init__(self, *, store: StateStore, delay_seconds: float) -> None:
        self._store = store
        self._delay_seconds = delay_seconds
        self._fingerprints: dict[str, bytes] = {}
        self._changed = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="state-saver", daemon=True)

    def start(self) -> None:
        """Starts saving."""
        self._thread.start()

    def note_change(self) -> None:
        """Says that something may have changed. Cheap; any thread."""
        self._changed.set()

    def stop(self) -> None:
        """Ends the thread and makes a last pass."""
        self._stopping.set()
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join()
        self.save()

    def save(self) -> bool:
        """Makes one pass.

        Returns:
            Whether anything was written, or could not be and has to be tried again.
        """
        unsettled = False
        getters = self._store.getters()
        for name in sorted(getters, key=lambda name: (name == _WRITTEN_LAST, name)):
            unsettled = self._save_one(name, getters[name]) or unsettled
        return unsettled

    def _save_one(self, name: str, get_state: Callable[[], Mapping[str, Any] | None]) -> bool:
        try:
            state = get_state()
            if state is None:
                return False
            fingerprint = _fingerprint(state)
        except RuntimeError as error:
            # A dictionary changed while it was copied: a request is at work, the next pass sees its result.
            _log.debug("%s changed while it was read: %s", name, error)
            return True
        if self._fingerprints.get(name) == fingerprint:
            return False
        try:
            self._store.write(name, state)
        except PersistenceError:
            _log.exception("state of %s is not saved; trying again", name)
            return True
        self._fingerprints[name] = fingerprint
        return True

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._changed.wait()
            if self._stopping.wait(self._delay_seconds):
                return
            self._changed.clear()
            began = time.monotonic()
            unsettled = self.save()
            took_seconds = time.monotonic() - began
            if self._stopping.wait(took_seconds * _PAUSE_PER_SECOND_OF_WORK):
                return
            if unsettled:
                self._changed.wait(_SETTLING_DELAY_SECONDS)
                self._changed.set()


def _fingerprint(state: Mapping[str, Any]) -> bytes:
    # Pickled only to be compared, never to be loaded: it is the fastest walk over nested dictionaries.
    return hashlib.blake2b(pickle.dumps(state, protocol=5)).digest()
