"""What a sweep of many trials asks of AWS, on the model of an account that takes one CreateTrainingJob a second.

Time is the model's: a call takes ten milliseconds, and a CreateTrainingJob that comes too early waits, as botocore's
retries do. No clock of this machine is in any figure but `describe_s`.

Prices: DynamoDB on demand in us-east-1, https://aws.amazon.com/dynamodb/pricing/on-demand/ and Lambda,
https://aws.amazon.com/lambda/pricing/, November 2026.
"""

from __future__ import annotations

import io
import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from rich.console import Console

from benchmarks.control.measures import MeasuredPlane, quiet
from spotkeep_cli.sweeps.sweep_view import sweep_page
from spotkeep_jobs.functions.controller_wiring import full_pass_on
from spotkeep_jobs.record.states import SweepState, TrialState
from tests.models.sagemaker import ModelJob

CREATE_EVERY_SECONDS: Final = 1.0
"""For each account and region: AWS General Reference, "SageMaker endpoints and quotas"."""
CALL_SECONDS: Final = 0.01
PASS_EVERY_SECONDS: Final = 300
PARALLEL: Final = 50
_NAME: Final = "sweep"
_USD_PER_WRITE_UNIT: Final = 0.625e-6
_USD_PER_READ_UNIT: Final = 0.125e-6
_USD_PER_GB_SECOND: Final = 0.0000166667
_USD_PER_INVOCATION: Final = 0.2e-6
_FUNCTION_GB: Final = 0.5
_UNITS_OF_A_TRANSACTED_WRITE: Final = 2
_WRITE_UNIT_BYTES: Final = 1_024
_READ_UNIT_BYTES: Final = 4_096


@dataclass
class _Account:
    """What the simulated account sees of the calls."""

    last_created_at: float = -CREATE_EVERY_SECONDS
    waited: int = 0
    write_units: float = 0.0
    read_units: float = 0.0
    item_bytes: dict[tuple[str, str], int] = field(default_factory=dict)
    """What was last written by a transaction, by its key."""


def measured(*, trials: int) -> dict[str, Any]:
    """Run a sweep to its end on the models of AWS, and count.

    Args:
        trials: How many.

    Returns:
        Figures by name: AWS calls a trial, US dollars of the control plane for 1,000 trials, bytes of the table, the
        time of a pass, how many CreateTrainingJob calls waited, and the seconds that `describe` takes.
    """
    with quiet():
        return _measured(trials)


def _measured(trials: int) -> dict[str, Any]:
    plane, account = MeasuredPlane(), _Account()
    service = plane.service
    _watch(plane, account)
    document = {
        "name": _NAME,
        "run": _NAME,
        "command": "python train.py",
        "sweep": {"trials": [{"seed": seed} for seed in range(trials)], "parallel": PARALLEL},
    }
    invocations, began, passes = 1, service.seconds, []
    plane.launching.sweeps.launch.launch(document, default_token=_NAME)
    plane.launching.sweeps.advance.advance(_NAME)
    next_pass = service.seconds + PASS_EVERY_SECONDS
    while (sweep := plane.record.sweep(_NAME)) is not None and sweep.state is not SweepState.COMPLETED:
        live = [job for job in service.launched if job.live]
        for job in live:
            _trains_to_its_end(plane, job)
            invocations += 2 + len(service.functions.waiting)
            plane.advance_sweeps()
        if service.seconds >= next_pass:
            before = service.seconds
            full_pass_on(plane.parts).run()
            passes.append(service.seconds - before)
            plane.advance_sweeps()
            next_pass = service.seconds + PASS_EVERY_SECONDS
    calls = Counter(service.calls)
    items = service.dynamodb.items
    recorded = plane.record.sweep_and_trials(_NAME)[1]
    seconds = service.seconds - began
    busy_seconds = sum(calls.values()) * CALL_SECONDS
    usd = (
        account.write_units * _USD_PER_WRITE_UNIT
        + account.read_units * _USD_PER_READ_UNIT
        + invocations * _USD_PER_INVOCATION
        + busy_seconds * _FUNCTION_GB * _USD_PER_GB_SECOND
    )
    return {
        "trials": trials,
        "parallel": PARALLEL,
        "completed": sum(trial.state is TrialState.COMPLETED for trial in recorded),
        "jobs": calls["CreateTrainingJob"],
        "calls_a_trial": round(sum(calls.values()) / trials, 1),
        "calls": dict(sorted(calls.items())),
        "invocations_a_trial": round(invocations / trials, 2),
        "usd_a_thousand_trials": round(1_000 * usd / trials, 4),
        "table_bytes_a_trial": round(sum(len(json.dumps(item)) for item in items.values()) / trials),
        "longest_pass_s": round(max(passes, default=0.0), 2),
        "creates_that_waited": account.waited,
        "model_hours": round(seconds / 3_600, 2),
        "describe_s": _describe_seconds(plane),
        "trials_recorded": len(recorded),
    }


def _watch(plane: MeasuredPlane, account: _Account) -> None:
    """Let calls take time, hold CreateTrainingJob to its rate, and count DynamoDB's units."""
    service = plane.service
    counted = service._counted

    def call(operation: str, act: Any, *, hands: str | None = None) -> Any:
        if operation == "CreateTrainingJob":
            free_at = account.last_created_at + CREATE_EVERY_SECONDS
            if service.seconds < free_at:
                account.waited += 1
                service.seconds = free_at
            account.last_created_at = service.seconds
        service.seconds += CALL_SECONDS
        answer = counted(operation, act, hands=hands)
        if operation in {"PutItem", "DeleteItem"}:
            account.write_units += 1
        if operation in {"Query", "GetItem"}:
            found = answer.get("Items", [answer["Item"]] if "Item" in answer else [])
            size = sum(account.item_bytes.get(_key_of(item), 0) for item in found)
            account.read_units += max(1, -(-size // _READ_UNIT_BYTES))
        return answer

    transact = service.dynamodb.transact_write_items

    def transact_write_items(**parameters: Any) -> None:
        items = [each["Put"]["Item"] for each in parameters["TransactItems"] if "Put" in each]
        deletes = len(parameters["TransactItems"]) - len(items)
        sizes = {_key_of(item): len(json.dumps(item)) for item in items}
        account.item_bytes |= sizes
        units = deletes + sum(-(-size // _WRITE_UNIT_BYTES) for size in sizes.values())
        account.write_units += _UNITS_OF_A_TRANSACTED_WRITE * units
        transact(**parameters)

    service.dynamodb.transact_write_items = transact_write_items  # type: ignore[method-assign]
    service._counted = call  # type: ignore[method-assign]
    service._called = call
    service.functions._called = call


def _key_of(item: Mapping[str, Any]) -> tuple[str, str]:
    return item["pk"]["S"], item["sk"]["S"]


def _trains_to_its_end(plane: MeasuredPlane, job: ModelJob) -> None:
    """Let a job get capacity and complete; its events come in two batches."""
    service = plane.service
    for happens in (partial(service.gets_capacity, job), partial(service.ends, job, "Completed")):
        sent = len(service.events)
        happens()
        plane.events_come(service.events[sent:])


def _describe_seconds(plane: MeasuredPlane) -> float:
    """Return what `spotkeep describe` takes to read a sweep and to draw its page, without the network."""
    console = Console(file=io.StringIO(), width=110)
    began = time.perf_counter()
    sweep, trials = plane.record.sweep_and_trials(_NAME)
    if sweep is not None:
        console.print(sweep_page(sweep, trials, now=plane.service.now(), width=110, everything=False))
    return round(time.perf_counter() - began, 3)
