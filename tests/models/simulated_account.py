"""An account whose functions run at the same time, whose calls take time, and that is held to AWS's rates.

Each invocation of a function is a process that is held before each of its calls. What comes first in the account's time
goes on first, so functions meet each other between any two calls, as they do in Lambda. A call that AWS throttles is
made again as botocore does it (standard mode), and its backoff takes the function's time.
"""

from __future__ import annotations

import heapq
import itertools
import json
import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from spotkeep_jobs.backends.sagemaker.api import CREATE_ATTEMPTS
from spotkeep_local.access.call_rates import CallRates
from tests.models.account import Account
from tests.models.faults import Process
from tests.models.unsureness import SERVICES, throttle_of

DYNAMODB_CALL_SECONDS: Final = 0.01
CALL_SECONDS: Final = 0.05
"""Of every other service. AWS promises no time; the shorter calls are, the more of them come in a second."""
_LONGEST_BACKOFF_SECONDS: Final = 20.0
_WRITE_UNIT_BYTES: Final = 1_024
_READ_UNIT_BYTES: Final = 4_096
_UNITS_OF_A_TRANSACTED_WRITE: Final = 2


class SimulatedAccount(Account):
    """The account.

    Attributes:
        rates: Those of AWS.
        write_units: What DynamoDB bills of writes, so far.
        read_units: What it bills of reads.
        function_seconds: For how long functions ran, in all.
        invocations: How many did, by function.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rates = CallRates()
        self.write_units = 0.0
        self.read_units = 0.0
        self.function_seconds = 0.0
        self.invocations: dict[str, int] = {}
        self._to_come: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._goes_on_at: dict[Process, float] = {}
        self._item_bytes: dict[tuple[str, str], int] = {}
        self._chance = random.Random(1)  # noqa: S311 - reproducible, not secret

    # Time

    def at(self, seconds: float, act: Callable[[], None]) -> None:
        """Let something happen at a time, or now if that is over."""
        heapq.heappush(self._to_come, (max(seconds, self.seconds), next(self._order), act))

    def happens(self) -> None:
        """Let happen what comes next."""
        self.seconds, _, act = heapq.heappop(self._to_come)
        act()

    def waits(self, seconds: float) -> None:
        """Let time pass for the function that asks, while others go on."""
        process = Process.current()
        if process is None:
            self.seconds += seconds
            return
        self._goes_on_at[process] = self.seconds + seconds
        process.call("(waits)", lambda: None)

    def invoke(
        self, function: str, work: Callable[[], object], *, timeout: float, ended: Callable[[Process], None]
    ) -> None:
        """Run a function from now on, beside what runs already.

        Args:
            function: Its name.
            work: What it does.
            timeout: After how many seconds Lambda would end it.
            ended: Called when it has ended.
        """
        self.invocations[function] = self.invocations.get(function, 0) + 1
        process = Process(function, work, began=self.seconds, timeout=timeout, skew=0.0)

        def goes_on() -> None:
            process.go_on(1)
            if process.ended:
                self.function_seconds += self.seconds - process.began
                ended(process)
            else:
                self.at(self._goes_on_at.pop(process, self.seconds), goes_on)

        self.at(self.seconds, goes_on)

    # Calls

    def counted(self, operation: str, act: Callable[[], Any], *, hands: str | None = None) -> Any:
        for attempt in range(CREATE_ATTEMPTS):
            self.waits(DYNAMODB_CALL_SECONDS if SERVICES[operation] == "dynamodb" else CALL_SECONDS)
            if self.rates.takes(operation, at=self.seconds):
                break
            self.calls[operation] += 1
            if attempt + 1 == CREATE_ATTEMPTS:
                raise throttle_of(operation)
            self.waits(min(self._chance.random() * 2**attempt, _LONGEST_BACKOFF_SECONDS))
        answer = super().counted(operation, act, hands=hands)
        if operation in ("Query", "GetItem"):
            found = answer.get("Items", [answer["Item"]] if "Item" in answer else [])
            size = sum(self._item_bytes.get(_key_of(item), 0) for item in found)
            self.read_units += max(1, -(-size // _READ_UNIT_BYTES))
        elif operation in ("PutItem", "DeleteItem"):
            self.write_units += 1
        return answer

    def transact_write_items(self, **parameters: Any) -> None:
        """As DynamoDB's client; what it bills is counted."""
        items = [each["Put"]["Item"] for each in parameters["TransactItems"] if "Put" in each]
        sizes = {_key_of(item): len(json.dumps(item)) for item in items}
        units = len(parameters["TransactItems"]) - len(items)
        units += sum(-(-size // _WRITE_UNIT_BYTES) for size in sizes.values())
        self.write_units += _UNITS_OF_A_TRANSACTED_WRITE * units
        self.counted("TransactWriteItems", lambda: self.dynamodb.transact_write_items(**parameters))
        self._item_bytes |= sizes


def _key_of(item: Mapping[str, Any]) -> tuple[str, str]:
    return item["pk"]["S"], item["sk"]["S"]
