"""The honest bill (I8)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.cost.run_cost import bill, usage_of
from spotkeep_jobs.progress.job_log import Extent, JobLog
from spotkeep_jobs.record.record import Attempt, Charges, Cost, JobUsage

PRICES = {"ml.m5.xlarge": 0.36}


def usage(**fields: Any) -> JobUsage:
    facts: dict[str, Any] = {
        "instance_count": 1,
        "billable_seconds": 300.0,
        "training_seconds": 1000.0,
        "waited_seconds": 60.0,
        "redone_steps": 0,
        "redone_seconds": 0.0,
        "restart_overhead_seconds": 0.0,
    }
    return JobUsage(**facts | fields)


def attempts_with(make: Any, *usages: JobUsage | None, **fields: Any) -> list[Attempt]:
    return [
        make.attempt(attempt=number, usage=used, job_id="arn", **fields) for number, used in enumerate(usages, start=1)
    ]


def billed(make: Any, *usages: JobUsage | None, prices: dict[str, float] = PRICES) -> Cost:
    cost = bill(attempts_with(make, *usages), prices=prices)
    assert cost is not None
    return cost


def job_log(make: Any, *lines: tuple[Any, ...], **account: Any) -> JobLog:
    printed = [make.line(event, minutes, **(fields[0] if fields else {})) for event, minutes, *fields in lines]
    log: JobLog = make.log(*printed, **account)
    return log


class TestTheBill:
    def test_without_interruptions_it_says_what_aws_says(self, make: Any) -> None:
        cost = billed(make, usage())
        assert cost.saved_percent == cost.aws_saved_percent == 70.0
        assert cost.saved_seconds == 700
        assert (cost.billed_usd, cost.clean_on_demand_usd, cost.saved_usd) == (0.03, 0.1, 0.07)

    def test_work_done_twice_and_starts_done_again_are_not_savings(self, make: Any) -> None:
        cost = billed(make, usage(redone_seconds=150.0, restart_overhead_seconds=50.0, redone_steps=15))
        assert cost.clean_on_demand_seconds == 800
        assert (cost.saved_percent, cost.aws_saved_percent) == (62.5, 70.0)
        assert cost.saved_usd == pytest.approx(0.05)

    def test_interruptions_can_cost_more_than_the_discount(self, make: Any) -> None:
        cost = billed(make, usage(billable_seconds=500.0, redone_seconds=600.0, redone_steps=60))
        assert cost.saved_seconds == -100
        assert cost.saved_percent == -25.0

    def test_seconds_count_for_every_instance_but_waiting_does_not(self, make: Any) -> None:
        one, four = billed(make, usage()), billed(make, usage(instance_count=4))
        assert four.billed_seconds == 4 * one.billed_seconds
        assert four.saved_usd == pytest.approx(4 * (one.saved_usd or 0))
        assert four.waited_seconds == one.waited_seconds

    @given(
        nodes=st.integers(1, 64),
        part=st.floats(0, 1),
        redone=st.floats(0, 500),
        overhead=st.floats(0, 500),
    )
    def test_nodes_count_for_the_time_that_each_worked(
        self, make: Any, nodes: int, part: float, redone: float, overhead: float
    ) -> None:
        """A node that came late, or was lost, is in the bill and in the clean run for its own time alone."""
        seconds = 1000.0 + (nodes - 1) * 1000.0 * part
        charges = Charges(instance_seconds=seconds, instances_usd=seconds * 0.5 / 3600, on_demand_usd=seconds / 3600)
        repeated = {"redone_seconds": redone, "restart_overhead_seconds": overhead, "billable_seconds": None}
        cost = billed(make, usage(instance_count=nodes, instance_seconds=seconds, charges=charges, **repeated))
        mean = seconds / 1000.0
        assert cost.training_seconds == pytest.approx(seconds, abs=0.001)
        assert cost.clean_on_demand_seconds == pytest.approx((1000.0 - redone - overhead) * mean, abs=0.001)
        assert cost.redone_seconds == pytest.approx(redone * mean, abs=0.001)
        assert cost.billed_usd == pytest.approx(seconds * 0.5 / 3600, abs=1e-5)
        assert cost.saved_usd == pytest.approx((cost.clean_on_demand_usd or 0) - (cost.billed_usd or 0), abs=1e-5)

    def test_attempts_add_up(self, make: Any) -> None:
        cost = billed(make, usage(), usage(redone_steps=5, redone_seconds=100.0))
        assert (cost.billed_seconds, cost.training_seconds, cost.waited_seconds) == (600, 2000, 120)
        assert (cost.redone_steps, cost.clean_on_demand_seconds) == (5, 1900)

    def test_the_time_of_jobs_counts_once_whatever_number_of_instances_each_had(self, make: Any) -> None:
        cost = billed(make, usage(instance_count=4), usage(training_seconds=None), usage(training_seconds=500.0))
        assert (cost.training_seconds, cost.worked_seconds) == (4500, 1500)

    def test_an_unknown_price_is_said_never_guessed(self, make: Any) -> None:
        cost = billed(make, usage(), prices={"ml.p4d.24xlarge": 37.0})
        assert cost.usd_per_hour is cost.billed_usd is cost.clean_on_demand_usd is cost.saved_usd is None
        assert cost.saved_percent == 70.0

    def test_a_job_that_never_launched_cost_nothing_and_saved_nothing(self, make: Any) -> None:
        cost = billed(make, usage(billable_seconds=None, training_seconds=None))
        assert (cost.billed_usd, cost.saved_usd, cost.waited_seconds) == (0, 0, 60)
        assert cost.saved_percent is cost.aws_saved_percent is None

    def test_an_attempt_without_a_job_adds_nothing(self, make: Any) -> None:
        attempts = [*attempts_with(make, usage()), make.attempt(attempt=2)]
        assert bill(attempts, prices=PRICES) == billed(make, usage())

    def test_with_one_unknown_usage_the_bill_is_unknown(self, make: Any) -> None:
        assert bill(attempts_with(make, usage(), None), prices=PRICES) is None
        assert bill([], prices=PRICES) is None

    def test_with_a_forgotten_attempt_the_bill_is_unknown(self, make: Any) -> None:
        _, *later = attempts_with(make, usage(), usage(), usage())
        assert bill(later, prices=PRICES) is None

    def test_unknown_repetition_stays_unknown_in_the_sum(self, make: Any) -> None:
        cost = billed(make, usage(), usage(redone_steps=None, redone_seconds=None))
        assert cost.redone_steps is cost.redone_seconds is None
        assert cost.clean_on_demand_seconds == 2000

    @given(
        seconds=st.tuples(*[st.floats(0, 1e6)] * 4),
        instances=st.integers(1, 20),
    )
    def test_i8_it_never_claims_more_than_aws_does(self, make: Any, seconds: Any, instances: int) -> None:
        billable, more, redone, overhead = seconds
        cost = billed(
            make,
            usage(
                billable_seconds=billable, training_seconds=billable + more, redone_seconds=redone, redone_steps=1,
                restart_overhead_seconds=overhead, instance_count=instances,
            ),
        )  # fmt: skip
        assert cost.clean_on_demand_seconds <= cost.training_seconds + 0.002
        if cost.saved_percent is not None and cost.aws_saved_percent is not None:
            assert cost.saved_percent <= cost.aws_saved_percent + 0.1


class TestSteps:
    def test_a_run_left_alone_repeats_nothing(self, make: Any) -> None:
        steps = job_log(
            make, ("start", 0), ("resume", 1, {"step": 0}), ("progress", 11, {"step": 100}), ("exit", 12)
        ).steps
        assert (steps.last_step, steps.redone_steps, steps.seconds_per_step) == (100, 0, 6.0)
        assert steps.loading_again_seconds == 0

    def test_steps_after_the_checkpoint_are_repeated_and_loading_again_is_counted(self, make: Any) -> None:
        steps = job_log(
            make,
            ("start", 0), ("resume", 1, {"step": 0}), ("progress", 11, {"step": 100}),
            ("start", 20), ("resume", 22, {"step": 80}), ("progress", 32, {"step": 180}),
        ).steps  # fmt: skip
        assert (steps.redone_steps, steps.last_step) == (20, 180)
        assert steps.loading_again_seconds == 120

    def test_a_script_that_ignores_its_checkpoints_repeats_all(self, make: Any) -> None:
        steps = job_log(
            make,
            ("start", 0), ("progress", 1, {"step": 1}), ("progress", 10, {"step": 100}),
            ("start", 20), ("progress", 21, {"step": 1}), ("finish", 40, {"step": 200}),
        ).steps  # fmt: skip
        assert steps.redone_steps == 100

    def test_a_damaged_checkpoint_that_was_skipped_is_no_progress(self, make: Any) -> None:
        steps = job_log(make, ("start", 0), ("fallback", 0.5, {"step": 900}), ("resume", 1, {"step": 800})).steps
        assert steps.last_step == 800

    def test_the_next_attempt_repeats_what_the_last_one_had_reached(self, make: Any) -> None:
        earlier = attempts_with(make, usage(last_step=100))
        steps = job_log(
            make, ("start", 0), ("resume", 1, {"step": 60}), ("progress", 5, {"step": 120}), earlier=earlier
        ).steps
        assert steps.redone_steps == 40
        assert steps.loading_again_seconds == 60

    @given(
        lives=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=6),
    )
    def test_repeated_plus_distinct_steps_are_all_steps(self, make: Any, lives: list[tuple[int, int]]) -> None:
        lines: list[tuple[Any, ...]] = []
        reached = trained = 0
        seen: set[int] = set()
        for number, (back, forward) in enumerate(lives):
            begins = max(0, reached - back)
            lines += [
                ("start", 10 * number),
                ("resume", 10 * number + 1, {"step": begins}),
                ("progress", 10 * number + 2, {"step": begins + forward}),
            ]
            seen |= set(range(begins, begins + forward))
            trained += forward
            reached = begins + forward
        steps = job_log(make, *lines).steps
        assert steps.redone_steps == trained - len(seen)


class TestUsage:
    STORY = (
        ("Starting", 0.0), ("Downloading", 2.0), ("Training", 3.0), ("Interrupted", 13.0), ("Starting", 13.5),
        ("Downloading", 20.0), ("Training", 21.0), ("Uploading", 41.0), ("Completed", 42.0),
    )  # fmt: skip

    def use(self, make: Any, log: JobLog, story: Any = STORY, **more: Any) -> JobUsage:
        end: datetime = make.noon + timedelta(minutes=42)
        job = make.job(*story, TrainingTimeInSeconds=1900, BillableTimeInSeconds=600)
        return usage_of(job=job, log=log, ended_at=end, **{"earlier": []} | more)

    def test_waiting_loading_and_repeating_are_measured(self, make: Any) -> None:
        log = job_log(
            make,
            ("start", 3), ("resume", 3, {"step": 0}), ("progress", 13, {"step": 100}),
            ("start", 21), ("resume", 21.5, {"step": 90}), ("finish", 41, {"step": 285}),
        )  # fmt: skip
        used = self.use(make, log)
        assert used.waited_seconds == (2 + 0.5 + 6.5) * 60
        assert used.restart_overhead_seconds == 60 + 30
        assert used.redone_steps == 10
        assert used.redone_seconds == pytest.approx(10 * (10 + 19.5) * 60 / (100 + 195))
        assert (used.billable_seconds, used.training_seconds, used.last_step) == (600, 1900, 285)

    def test_a_silent_script_that_was_interrupted_repeated_an_unknown_amount(self, make: Any) -> None:
        used = self.use(make, JobLog())
        assert used.redone_steps is used.redone_seconds is None
        assert used.restart_overhead_seconds == 60

    def test_a_silent_script_left_alone_repeated_nothing(self, make: Any) -> None:
        used = self.use(make, JobLog(), story=(*self.STORY[:3], *self.STORY[7:]))
        assert (used.redone_steps, used.redone_seconds, used.restart_overhead_seconds) == (0, 0, 0)

    def test_a_log_that_is_not_all_here_tells_no_repetition(self, make: Any) -> None:
        log = job_log(make, ("start", 3), ("progress", 4, {"step": 1}), extent=Extent.CUT)
        used = self.use(make, log)
        assert used.redone_steps is None
        assert not used.log_complete

    def test_what_follows_an_attempt_whose_log_is_not_all_here_repeated_an_unknown_amount(self, make: Any) -> None:
        log = job_log(make, ("start", 3), ("resume", 4, {"step": 100}), ("progress", 9, {"step": 110}))
        for training_seconds, known in ((1000.0, False), (None, True)):
            before = usage(training_seconds=training_seconds, last_step=None, log_complete=False)
            used = self.use(make, log, story=self.STORY[:3], earlier=attempts_with(make, before))
            assert ((used.redone_steps is None), (used.redone_seconds is None)) == (not known, not known)

    def test_a_next_attempt_repeats_its_whole_start_up(self, make: Any) -> None:
        earlier = attempts_with(make, usage(last_step=100))
        log = job_log(make, ("start", 3), ("resume", 4, {"step": 100}), ("progress", 9, {"step": 110}), earlier=earlier)
        used = self.use(make, log, story=(*self.STORY[:3], *self.STORY[7:]), earlier=earlier)
        assert used.restart_overhead_seconds == 60 + 60
        assert used.redone_steps == 0
