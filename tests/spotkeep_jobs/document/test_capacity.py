"""Disks of instance types, and where a run looks for capacity next: each ending, each bound, whatever the history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import botocore.session
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.cost.run_cost import bill
from spotkeep_jobs.document.capacity import (
    Fallback,
    NextJob,
    fallbacks_of,
    first_job,
    has_local_disks,
    larger_disks,
    local_disks_gb,
)
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
from spotkeep_jobs.document.request import JobRequest, Validation, validate
from spotkeep_jobs.record.record import Attempt, Ending, JobUsage, Place
from spotkeep_jobs.record.states import EndReason
from spotkeep_jobs.runs.ending import NoMoreJobs, next_job

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
PRICES = {"ml.g5.xlarge": 1.408, "ml.g5.2xlarge": 1.515}
DEFAULTS = DeploymentDefaults(image="image", instance_type="ml.g5.xlarge", checkpoint_bucket="b", prices=PRICES)
TWO_TYPES = ["ml.g5.xlarge", "ml.g5.2xlarge"]
NO_CAPACITY = [EndReason.CAPACITY, EndReason.MAX_WAIT_EXCEEDED, EndReason.QUOTA]


def asked(**fields: Any) -> JobRequest:
    return validate({"name": "first", "command": "python train.py"} | fields, defaults=DEFAULTS).accepted()


def ended(
    reason: EndReason,
    *,
    number: int = 1,
    fallback: int = 0,
    trained: float = 0.0,
    billed: float = 0.0,
    at: datetime = NOON,
    words: str | None = None,
) -> Attempt:
    return Attempt(
        run="first",
        attempt=number,
        fallback=fallback,
        ending=Ending(at=at, reason=reason, failure_reason=words),
        job_name=f"first-{number}",
        job_id="arn",
        place=Place(capacity="spot", instance_type="ml.g5.xlarge"),
        created_at=NOON,
        usage=JobUsage(
            instance_count=1, billable_seconds=billed, training_seconds=trained, waited_seconds=0.0,
            redone_steps=0, redone_seconds=0.0, restart_overhead_seconds=0.0,
        ),
    )  # fmt: skip


def judged(
    request: JobRequest,
    attempts: Sequence[Attempt],
    *,
    prices: Mapping[str, float] = PRICES,
    deadline_at: datetime | None = None,
) -> NextJob | NoMoreJobs:
    cost = bill(attempts, prices=prices)
    return next_job(request=request, attempts=attempts, cost=cost, prices=prices, deadline_at=deadline_at)


def after(request: JobRequest, *attempts: Attempt) -> NextJob | NoMoreJobs:
    return judged(request, attempts)


def the_next(request: JobRequest, *attempts: Attempt) -> NextJob:
    found = after(request, *attempts)
    assert isinstance(found, NextJob)
    return found


def the_end(request: JobRequest, *attempts: Attempt) -> str | None:
    found = after(request, *attempts)
    assert isinstance(found, NoMoreJobs)
    return found.because


class TestFallbacks:
    def test_auto_is_spot_with_each_type_then_on_demand_with_any(self) -> None:
        assert fallbacks_of(asked(capacity="auto", instance_types=TWO_TYPES, longest_wait="30m")) == (
            Fallback(capacity="spot", instance_types=("ml.g5.xlarge",), longest_wait_seconds=1_800),
            Fallback(capacity="spot", instance_types=("ml.g5.2xlarge",), longest_wait_seconds=1_800),
            Fallback(capacity="on-demand", instance_types=tuple(TWO_TYPES), longest_wait_seconds=1_800),
        )

    def test_on_demand_alone_waits_as_long_as_the_document_says(self) -> None:
        (fallback,) = fallbacks_of(asked(capacity="on-demand", instance_types=TWO_TYPES, longest_wait="2h"))
        assert fallback.longest_wait_seconds == 7_200
        (fallback,) = fallbacks_of(asked(capacity="on-demand", instance_types=TWO_TYPES))
        assert fallback.longest_wait_seconds is None

    def test_spot_only_leaves_on_demand_out(self) -> None:
        fallbacks = fallbacks_of(asked(capacity="auto", instance_types=TWO_TYPES, spot_only=True))
        assert [fallback.capacity for fallback in fallbacks] == ["spot", "spot"]

    def test_fallbacks_are_taken_as_written_a_spot_fallback_with_several_types_one_after_the_other(self) -> None:
        ladder = [
            {"instance_types": TWO_TYPES, "longest_wait": "10m"},
            {"capacity": "on-demand", "instance_type": "ml.g5.2xlarge"},
        ]
        request = asked(ladder=ladder)
        assert request.capacity == "auto"
        assert [(str(fallback), fallback.longest_wait_seconds) for fallback in fallbacks_of(request)] == [
            ("spot ml.g5.xlarge", 600),
            ("spot ml.g5.2xlarge", 600),
            ("on-demand ml.g5.2xlarge", 3_600),
        ]

    def test_without_fallbacks_there_is_one_way_and_awss_own_limit_ends_its_wait(self) -> None:
        assert fallbacks_of(asked()) == (Fallback(capacity="spot", instance_types=("ml.g5.xlarge",)),)

    def test_reading_the_recorded_document_gives_the_same_fallbacks(self) -> None:
        request = asked(
            ladder=[{"instance_types": TWO_TYPES}, {"capacity": "on-demand", "instance_type": TWO_TYPES[1]}]
        )
        assert fallbacks_of(JobRequest.model_validate(request.as_document())) == fallbacks_of(request)


class TestWhatFollows:
    @pytest.mark.parametrize("reason", NO_CAPACITY)
    def test_no_capacity_is_answered_by_the_next_fallback(self, reason: EndReason) -> None:
        job = the_next(asked(capacity="auto", instance_types=TWO_TYPES), ended(reason))
        assert (job.position, str(job.fallback)) == (1, "spot ml.g5.2xlarge")
        assert "for spot ml.g5.xlarge" in job.because

    @pytest.mark.parametrize("reason", [EndReason.MAX_WAIT_EXCEEDED, EndReason.QUOTA])
    def test_below_the_last_fallback_there_is_nothing(self, reason: EndReason) -> None:
        assert "no fallback below on-demand" in str(the_end(asked(capacity="auto"), ended(reason, fallback=1)))

    @pytest.mark.parametrize(
        "reason",
        [EndReason.MAX_WAIT_EXCEEDED, EndReason.QUOTA, EndReason.SCRIPT_FAILED, EndReason.MAX_RUNTIME_EXCEEDED],
    )
    def test_a_plain_spot_run_ends_as_it_always_did(self, reason: EndReason) -> None:
        assert the_end(asked(), ended(reason)) is None

    def test_sagemaker_is_asked_again_later_and_later_that_had_no_capacity_for_the_last_fallback(self) -> None:
        attempts: list[Attempt] = []
        pauses = []
        for number in range(1, 8):
            attempts.append(ended(EndReason.CAPACITY, number=number))
            job = the_next(asked(capacity="on-demand"), *attempts)
            assert (job.position, job.no_capacity_since) == (0, NOON)
            pauses.append(job.pause_seconds // 60)
        assert pauses == [5, 10, 20, 40, 60, 60, 60]

    def test_a_job_that_trained_begins_the_pauses_anew(self) -> None:
        trained = ended(EndReason.SCRIPT_FAILED, number=2).model_copy(update={"started_at": NOON})
        attempts = [ended(EndReason.CAPACITY), trained, ended(EndReason.CAPACITY, number=3)]
        assert the_next(asked(capacity="on-demand", script_retries=3), *attempts).pause_seconds == 300

    @pytest.mark.parametrize(
        ("fields", "hours"),
        [({"capacity": "on-demand"}, 24), ({"max_run": "1h", "max_wait": "5h"}, 4), ({"longest_wait": "3h"}, 3)],
    )
    def test_it_is_not_asked_again_after_the_longest_wait(self, fields: dict[str, Any], hours: int) -> None:
        request = asked(**{"capacity": "spot"} | ({"capacity": "auto"} if "longest_wait" in fields else {}) | fields)
        fallback = len(fallbacks_of(request)) - 1
        for minutes, follows in ((-10, True), (-5, False)):
            at = NOON + timedelta(hours=hours, minutes=minutes)
            last = ended(EndReason.CAPACITY, fallback=fallback, at=at)
            assert isinstance(after(request, last), NextJob) is follows
        assert "no capacity for" in str(the_end(request, last))

    @pytest.mark.parametrize(
        "words",
        [
            "InternalServerError: We encountered an internal error. Please try again.",
            "Received status from SageMaker: InternalServerError: We encountered an internal error.",
            "Received status from SageMaker:InternalServerError",
            "AlgorithmError: host lost: algo-2 is gone, exit code: 75",
        ],
    )
    def test_an_error_of_sagemakers_own_is_answered_by_another_job_later_and_later_within_max_attempts(
        self, words: str
    ) -> None:
        request = asked(capacity="spot", max_attempts=5)
        attempts: list[Attempt] = []
        pauses = []
        for number in range(1, 5):
            failed = ended(EndReason.PLATFORM_ERROR, number=number, words=words)
            attempts.append(failed)
            job = the_next(request, *attempts)
            assert (job.position, job.no_capacity_since) == (0, None)
            assert ("a host of the job was gone" if "host lost" in words else "InternalServerError") in job.because
            pauses.append(job.pause_seconds // 60)
        assert pauses == [0, 5, 10, 20]
        last = ended(EndReason.PLATFORM_ERROR, number=5, words=words)
        assert "5 jobs (max_attempts)" in str(the_end(request, *attempts, last))

    @pytest.mark.parametrize("words", [None, "", "UnknownError: oh", "no retry left: InternalServerError"])
    def test_a_failure_of_another_class_may_fail_each_time_and_ends_the_run(self, words: str | None) -> None:
        failed = ended(EndReason.PLATFORM_ERROR, words=words)
        assert the_end(asked(capacity="auto", max_total_run="9d"), failed) is None

    @pytest.mark.parametrize(
        "reason",
        [
            EndReason.COMPLETED, EndReason.STOPPED_BY_USER, EndReason.INPUT_ERROR, EndReason.PLATFORM_ERROR,
            EndReason.JOB_VANISHED, EndReason.LAUNCH_REFUSED,
        ],
    )  # fmt: skip
    def test_no_fallback_mends_these(self, reason: EndReason) -> None:
        assert the_end(asked(capacity="auto", script_retries=3, max_total_run="9d"), ended(reason)) is None

    def test_a_script_has_a_budget_of_its_own_and_stays_on_its_fallback(self) -> None:
        request = asked(capacity="auto", script_retries=1)
        waited = ended(EndReason.MAX_WAIT_EXCEEDED)
        failed = ended(EndReason.SCRIPT_FAILED, number=2, fallback=1)
        assert the_next(request, waited, failed).position == 1
        again = ended(EndReason.SCRIPT_FAILED, number=3, fallback=1)
        assert the_end(request, waited, failed, again) == "the script has failed 2 times (script_retries)"
        assert the_end(asked(capacity="auto"), failed) is None

    def test_a_long_run_goes_on_after_a_jobs_time_limit(self) -> None:
        request = asked(max_run="1d", max_total_run="60h")
        first = ended(EndReason.MAX_RUNTIME_EXCEEDED, trained=86_400)
        assert the_next(request, first).max_run_seconds == 86_400
        second = ended(EndReason.MAX_RUNTIME_EXCEEDED, number=2, trained=86_400)
        assert the_next(request, first, second).max_run_seconds == 60 * 3_600 - 2 * 86_400
        third = ended(EndReason.MAX_RUNTIME_EXCEEDED, number=3, trained=12 * 3_600)
        assert the_end(request, first, second, third) == "the run has trained the 2d12h it may"


class TestDeadline:
    """With a deadline the policy decides when a run goes on demand, and work done twice does not end it."""

    REQUEST: ClassVar[dict[str, Any]] = {"instance_types": TWO_TYPES, "deadline": "60h", "longest_wait": "30m"}

    def test_the_last_spot_fallback_waits_as_long_as_the_policy_says(self) -> None:
        assert [(str(fallback), fallback.longest_wait_seconds) for fallback in fallbacks_of(asked(**self.REQUEST))] == [
            ("spot ml.g5.xlarge", 1_800),
            ("spot ml.g5.2xlarge", None),
            ("on-demand ml.g5.xlarge or ml.g5.2xlarge", None),
        ]

    def test_leaving_spot_leads_to_on_demand_past_the_other_spot_fallbacks(self) -> None:
        left = ended(EndReason.DEADLINE).to_end(EndReason.DEADLINE, text="2.0 h to spare", at=NOON)
        job = the_next(asked(**self.REQUEST), left)
        assert (job.position, job.fallback.capacity, job.because) == (2, "on-demand", "2.0 h to spare")

    def test_a_launch_without_time_for_spot_begins_on_demand(self) -> None:
        job = first_job(asked(**self.REQUEST), prices=PRICES, on_demand_because="no time")
        assert (job.position, job.fallback.capacity, job.because) == (2, "on-demand", "no time")

    def test_the_run_may_train_until_then_whatever_was_done_twice(self) -> None:
        request, deadline_at = asked(**self.REQUEST, max_run="24h"), NOON + timedelta(hours=60)
        trained = ended(EndReason.MAX_RUNTIME_EXCEEDED, trained=86_400)
        job = judged(request, [trained], deadline_at=deadline_at)
        assert isinstance(job, NextJob)
        assert (job.max_run_seconds, job.because) == (86_400, "the run has trained 1d")
        late = ended(EndReason.MAX_RUNTIME_EXCEEDED, trained=86_400, at=deadline_at)
        end = judged(request, [late], deadline_at=deadline_at)
        assert end == NoMoreJobs(because="its deadline has passed")


class TestBounds:
    def test_attempts(self) -> None:
        request = asked(capacity="auto", max_attempts=1)
        assert the_end(request, ended(EndReason.CAPACITY)) == "the run has had its 1 jobs (max_attempts)"

    def test_cost_cuts_the_first_job(self) -> None:
        assert first_job(asked(max_cost=1.408, max_run="5h"), prices=PRICES).max_run_seconds == 3_600

    def test_cost_pays_for_the_warm_pool_too(self) -> None:
        request = asked(max_cost=1.408, max_run="5h", capacity="on-demand", keep_alive="10m")
        assert first_job(request, prices=PRICES).max_run_seconds == 3_000

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"instance_count": 4}, "Give 0.10 or more for 4 instances"),
            ({"capacity": "on-demand", "keep_alive": "10m"}, "Give 0.26 or more"),
            (
                {
                    "backend": "ec2",
                    "instance_type": "g5.xlarge",
                    "nodes": {"min": 2, "max": 8},
                    "distributed": "torchrun",
                },
                "Give 2.27 or more for 8 instances",
            ),
        ],
    )
    def test_a_cost_that_is_not_worth_a_start_names_the_least_that_is(self, fields: dict[str, Any], words: str) -> None:
        prices = PRICES | {"g5.xlarge": 1.0}
        defaults = replace(DEFAULTS, prices=prices, fleet_instance_types=("g5.xlarge",))
        document = {"name": "first", "command": "python train.py", "max_run": "5h"} | fields

        def fixes(max_cost: float) -> list[str]:
            found = validate(document | {"max_cost": max_cost}, defaults=defaults)
            return [each.fix for each in found.problems if each.field == "max_cost"]

        least = float(words.split()[1])
        assert fixes(least) == []
        (fix,) = fixes(round(least - 0.01, 2))
        assert fix == f"{words}, or choose a cheaper instance type."

    def test_cost_leaves_what_a_spot_job_saved_to_the_next(self) -> None:
        request = asked(max_cost=1.408, max_run="5h")
        cheap = ended(EndReason.MAX_RUNTIME_EXCEEDED, trained=3_600, billed=1_080)
        assert the_next(request, cheap).max_run_seconds == 3_600 - 1_080

    def test_cost_ends_the_run_when_it_is_spent(self) -> None:
        request = asked(capacity="auto", max_cost=1.408, max_run="5h")
        dear = ended(EndReason.CAPACITY, trained=3_590, billed=3_590)
        assert "cost 1.40 of the 1.41 USD" in str(the_end(request, dear))

    def test_a_cost_that_is_not_known_is_not_guessed(self) -> None:
        request = asked(capacity="auto", max_cost=10)
        found = judged(request, [ended(EndReason.CAPACITY, billed=5)], prices={})
        assert isinstance(found, NoMoreJobs)
        assert "not known" in str(found.because)

    @given(
        reasons=st.lists(st.sampled_from(list(EndReason)), min_size=1, max_size=40),
        billed=st.floats(0, 4_000),
        max_cost=st.none() | st.floats(0.1, 20),
        max_attempts=st.integers(1, 12),
        retries=st.integers(0, 3),
        spot_only=st.booleans(),
    )
    def test_whatever_happens_the_bounds_hold(
        self, reasons: list[EndReason], billed: float, max_cost: float | None, max_attempts: int, retries: int,
        spot_only: bool,
    ) -> None:  # fmt: skip
        request = asked(
            capacity="auto", instance_types=TWO_TYPES, max_cost=max_cost, max_attempts=max_attempts,
            script_retries=retries, spot_only=spot_only, max_run="1h", max_total_run="10h",
        )  # fmt: skip
        job: NextJob | NoMoreJobs = first_job(request, prices=PRICES)
        attempts: list[Attempt] = []
        for reason in reasons:
            if isinstance(job, NoMoreJobs):
                break
            assert not (spot_only and job.fallback.capacity == "on-demand")
            assert attempts == [] or job.position >= attempts[-1].fallback
            used = min(billed, job.max_run_seconds)
            attempts.append(
                ended(reason, number=len(attempts) + 1, fallback=job.position, trained=used, billed=used).model_copy(
                    update={"instance_type": job.fallback.instance_types[-1]}
                )
            )
            job = judged(request, attempts)
        assert len(attempts) <= max_attempts
        assert sum(each.end_reason is EndReason.SCRIPT_FAILED for each in attempts) <= retries + 1
        spent = sum((each.usage.billable_seconds or 0) * PRICES[each.place.instance_type] / 3_600
                    for each in attempts if each.usage)  # fmt: skip
        # The first job lasts a second at least.
        assert max_cost is None or spent <= max_cost + 0.001


IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1"
NOT_IN_THE_TABLE = {"ml.p6e-gb200.36xlarge"}


def judged_storage(**fields: Any) -> Validation:
    return validate(
        {"name": "first", "command": "python train.py", "image": IMAGE, **fields},
        defaults=DeploymentDefaults(fleet_instance_types=("m5.xlarge",)),
    )


@pytest.mark.parametrize(
    ("instance_type", "expected"),
    [
        ("ml.m5.xlarge", False),
        ("ml.p3.2xlarge", False),
        ("ml.m7i-flex.large", False),
        ("ml.g4dn.xlarge", True),
        ("ml.p3dn.24xlarge", True),
        ("ml.p4de.24xlarge", True),
        ("ml.p6e-gb200.36xlarge", True),
        ("ml.g6e.xlarge", True),
        ("ml.r5d.large", True),
        ("ml.trn1.2xlarge", True),
    ],
)
def test_types_with_local_disks_are_known(instance_type: str, expected: bool) -> None:
    assert has_local_disks(instance_type) is expected


def test_the_table_has_every_type_that_sagemaker_trains_on_and_no_other() -> None:
    model = botocore.session.get_session().get_service_model("sagemaker")
    types = model.shape_for("TrainingInstanceType").enum  # type: ignore[attr-defined]
    own = {each for each in types if has_local_disks(each)}
    assert {each for each in types if local_disks_gb(each) is not None} == own - NOT_IN_THE_TABLE


@pytest.mark.parametrize(
    ("instance_type", "gb", "fix"),
    [
        ("ml.g5.xlarge", 251, "Choose ml.g5.2xlarge, or give 250 at most"),
        ("ml.g5.2xlarge", 3_000, "Choose ml.g5.12xlarge, or give 450 at most"),
        ("ml.p4d.24xlarge", 8_001, "Choose a type without disks of its own, or give 8,000 at most"),
    ],
)
def test_more_than_its_disks_hold_is_refused_with_the_type_that_has_it(instance_type: str, gb: int, fix: str) -> None:
    [problem] = judged_storage(instance_type=instance_type, volume_size_gb=gb).problems
    assert (problem.field, problem.found) == ("volume_size_gb", f"{gb:,}")
    assert instance_type in problem.problem
    assert fix in problem.fix


def test_every_type_of_a_ladder_is_asked_and_each_is_named_once() -> None:
    ladder = [
        {"capacity": "spot", "instance_types": ["ml.g5.xlarge"]},
        {"capacity": "on-demand", "instance_types": ["ml.g5.xlarge", "ml.m5.xlarge", "ml.g4dn.xlarge"]},
    ]
    problems = judged_storage(ladder=ladder, volume_size_gb=300).problems
    assert [problem.problem.split()[3] for problem in problems] == ["ml.g5.xlarge", "ml.g4dn.xlarge"]


def test_a_volume_that_is_asked_for_and_not_given_is_warned_of() -> None:
    [warning] = judged_storage(instance_type="ml.g5.xlarge", volume_size_gb=100).warnings
    assert "volume_size_gb 100 has no effect on ml.g5.xlarge" in warning
    assert "250 GB" in warning
    [unknown] = judged_storage(instance_type="ml.p6e-gb200.36xlarge", volume_size_gb=100).warnings
    assert "has no effect" in unknown
    for fields in ({"instance_type": "ml.g5.xlarge"}, {"instance_type": "ml.m5.xlarge", "volume_size_gb": 100}):
        assert judged_storage(**fields).warnings == ()


def test_on_ec2_a_volume_is_a_volume_whatever_disks_there_are() -> None:
    on_ec2 = {"backend": "ec2", "instance_types": ["g5.xlarge", "g5.2xlarge"], "volume": {"size_gb": 500}}
    assert judged_storage(**on_ec2).problems == ()


def test_the_next_larger_disks_are_of_the_same_family() -> None:
    assert larger_disks("ml.g5.xlarge", than_gb=1) == "ml.g5.xlarge"
    assert larger_disks("ml.g5.xlarge", than_gb=7_601) is None
    assert larger_disks("ml.m5.xlarge", than_gb=1) is None
