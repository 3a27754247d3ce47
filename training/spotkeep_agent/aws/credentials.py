"""Credentials that are fetched once and renewed before they run out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Callable

from spotkeep_fleet.signed_fetch import Credentials, FetchError, find_credentials

_RENEW_SECONDS = 300.0
_PAUSE_SECONDS = 30.0
"""Between two tries to renew credentials that are still good."""

_logger = logging.getLogger("spotkeep.agent")


class CurrentCredentials:
    """Credentials for several threads. While one thread renews them, the others use the valid ones.

    Args:
        fetch: Returns new credentials, or raises FetchError.
        renew_seconds: Seconds before their end at which they are renewed.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        fetch: Callable[[], Credentials],
        *,
        renew_seconds: float = _RENEW_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._fetch = fetch
        self._renew_seconds = renew_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._found: Credentials | None = None
        self._not_before = 0.0

    def get(self) -> Credentials:
        """Return the credentials.

        Raises:
            FetchError: If there are none, and none can be had.
        """
        found = self._found
        if found is not None and self._left(found) > 0:
            if self._left(found) >= self._renew_seconds or not self._lock.acquire(blocking=False):
                return found
            try:
                return self._renew(found)
            finally:
                self._lock.release()
        with self._lock:
            if self._found is None or self._found is found:
                self._found = self._fetch()
            return self._found

    def forget(self) -> None:
        """Fetch new ones next time, because AWS says that these have expired."""
        self._found = None

    def _left(self, credentials: Credentials) -> float:
        return float("inf") if credentials.expires_at is None else credentials.expires_at - self._clock()

    def _renew(self, found: Credentials) -> Credentials:
        if self._clock() < self._not_before:
            return found
        try:
            self._found = renewed = self._fetch()
        except FetchError as error:
            self._not_before = self._clock() + _PAUSE_SECONDS
            _logger.warning("the credentials are good for %.0f s and cannot be renewed: %s", self._left(found), error)
            return found
        return renewed


def instance_credentials(environment: Mapping[str, str]) -> CurrentCredentials:
    """Return the credentials of the environment, or of the instance's role."""
    return CurrentCredentials(lambda: find_credentials(environment))
