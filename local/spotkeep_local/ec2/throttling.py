"""Refuses requests as AWS does when there are too many: so many times, operation by operation, as it was told."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from spotkeep_local.ec2.errors import Ec2Error

if TYPE_CHECKING:
    from collections.abc import Mapping


class Throttle:
    """Counts what is left to be refused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: dict[str, int] = {}

    def set(self, refusals: Mapping[str, int]) -> None:
        """How often each operation is refused from now on; the others not at all."""
        with self._lock:
            self._left = dict(refusals)

    def pass_or_refuse(self, operation: str) -> None:
        """Lets a request through, or not.

        Raises:
            Ec2Error: RequestLimitExceeded.
        """
        with self._lock:
            left = self._left.get(operation, 0)
            if left > 0:
                self._left[operation] = left - 1
                raise Ec2Error("RequestLimitExceeded", "Request limit exceeded.", status=503)
