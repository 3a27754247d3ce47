"""The credentials of all calls of an agent: fetched once, renewed before they run out."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Callable

from spotkeep_fleet.signed_fetch import Credentials, find_credentials

_RENEW_SECONDS = 300.0


class CurrentCredentials:
    """The credentials of the environment, or of the instance's role. Several threads may use it.

    Args:
        environment: Where they may be set.
        clock: Seconds since the epoch.
    """

    def __init__(self, environment: Mapping[str, str], *, clock: Callable[[], float] = time.time) -> None:
        self._environment = environment
        self._clock = clock
        self._lock = threading.Lock()
        self._found: Credentials | None = None

    def get(self) -> Credentials:
        """Give them.

        Raises:
            FetchError: If there are none.
        """
        with self._lock:
            found = self._found
            if found is None or (found.expires_at is not None and found.expires_at - self._clock() < _RENEW_SECONDS):
                found = self._found = find_credentials(self._environment)
            return found

    def forget(self) -> None:
        """Fetch new ones next time: AWS says that these have run out."""
        self._found = None
