"""Sweeps and trials in the run table: they are read back as they were written."""

from __future__ import annotations

import math

from spotkeep_jobs.record.record import Cost
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.states import TrialState
from spotkeep_jobs.record.sweep import Sweep, SweepChange, Trial
from tests.models.clock import NOON
from tests.models.dynamodb import InMemoryDynamoDb

COST = Cost(
    billed_seconds=30.5, training_seconds=100.0, waited_seconds=2.0, redone_steps=None, redone_seconds=None,
    restart_overhead_seconds=0.1, clean_on_demand_seconds=99.9, saved_seconds=69.4, saved_percent=None,
    aws_saved_percent=69.5,
)  # fmt: skip
TRIALS = (
    Trial(sweep="s", number=1, run="s-1", parameters={"lr": 0.1, "depth": 18, "name": "Größe", "warm": True}),
    Trial(
        sweep="s", number=2, run="s-2", parameters={"lr": 1e-300}, state=TrialState.PAUSED, attempt=3, pause_at_step=9,
        values={3: 0.30000000000000004, 9: math.inf}, best=0.30000000000000004, best_step=3, step=9, ended_at=NOON,
        cost=COST,
    ),
    Trial(sweep="s", number=10, run="s-10", parameters={}, values={3: -math.inf}, best=-math.inf),
)  # fmt: skip


def table_with(*trials: Trial) -> RunTable:
    table = RunTable.of(client=InMemoryDynamoDb(), table_name="runs")  # type: ignore[arg-type]
    sweep, _ = table.sweeps.open(
        Sweep(sweep="s", name="s", created_at=NOON, updated_at=NOON, token="token", document={"sweep": {}})
    )
    table.sweeps.commit(SweepChange(sweep=sweep, trials=trials))
    return table


def test_trials_are_read_back_to_the_last_digit_in_the_order_of_their_numbers() -> None:
    sweep, trials = table_with(*reversed(TRIALS)).sweeps.with_trials("s")
    assert sweep.version == 1
    assert trials == list(TRIALS)


def test_what_is_no_number_is_read_back_too() -> None:
    [trial] = table_with(TRIALS[0].model_copy(update={"values": {3: math.nan}})).sweeps.with_trials("s")[1]
    assert math.isnan(trial.values[3])
