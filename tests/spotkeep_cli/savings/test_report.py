"""Sums of what is known (I8); what is not known is counted, never guessed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from spotkeep_cli.aws.stored_objects import StoredVersion
from spotkeep_cli.savings.report import NO_OWNER, GroupedBy, RunStorage, report_savings, storage_by_run


def test_the_total_is_over_seconds_not_over_percentages(make: Any) -> None:
    small = make.cost(billed_seconds=10, clean_on_demand_seconds=20, saved_seconds=10, training_seconds=20)
    large = make.cost(billed_seconds=900, clean_on_demand_seconds=1000, saved_seconds=100, training_seconds=1100)
    total = report_savings([make.completed("a", cost=small), make.completed("b", cost=large)]).total
    assert total.saved_percent == pytest.approx(100 * 110 / 1020)
    assert total.aws_saved_percent == pytest.approx(100 * (1 - 910 / 1120))


def test_a_run_that_cost_more_than_it_saved_counts_against_the_rest(make: Any) -> None:
    lost = make.cost(saved_seconds=-50, saved_usd=-0.01)
    won = make.cost(saved_seconds=400, saved_usd=0.02)
    total = report_savings([make.completed("a", cost=lost), make.completed("b", cost=won)]).total
    assert total.saved_seconds == 350
    assert total.saved_usd == pytest.approx(0.01)


def test_unknown_prices_and_unreported_steps_are_counted(make: Any) -> None:
    unknown = make.cost(usd_per_hour=None, billed_usd=None, clean_on_demand_usd=None, saved_usd=None)
    silent = make.cost(redone_steps=None, redone_seconds=None)
    total = report_savings([make.completed("a", cost=unknown), make.completed("b", cost=silent)]).total
    assert (total.runs_without_price, total.runs_without_redone_work) == (1, 1)
    assert total.saved_at_most
    assert not report_savings([make.completed("a")]).total.saved_at_most
    assert total.billed_usd == pytest.approx(0.0153)
    nothing_known = report_savings([make.completed("a", cost=unknown)]).total
    assert nothing_known.billed_usd is None


def test_no_runs_have_no_percentage() -> None:
    total = report_savings([]).total
    assert total.saved_percent is None
    assert total.aws_saved_percent is None
    assert total.billed_usd is None


def test_owners_and_weeks_are_added_up_and_add_up_to_the_total(make: Any) -> None:
    runs = [
        make.completed("a", owner="ada", created_at=make.now),
        make.completed("b", owner="ada", created_at=make.now - timedelta(days=7)),
        make.completed("c", owner=None, created_at=make.now - timedelta(days=7)),
        make.run("no-bill-yet", owner="ada"),
    ]
    by_owner = report_savings(runs, by=GroupedBy.OWNER)
    assert [(group.name, group.runs) for group in by_owner.groups] == [(NO_OWNER, 1), ("ada", 2)]
    by_week = report_savings(runs, by=GroupedBy.WEEK)
    assert [group.runs for group in by_week.groups] == [2, 1]
    assert all("-W" in group.name for group in by_week.groups)
    for report in (by_owner, by_week):
        assert sum(group.total.saved_seconds for group in report.groups) == pytest.approx(report.total.saved_seconds)
        assert [group[report.grouped_by.value] for group in report.as_document()["groups"]]
    assert "groups" not in report_savings(runs).as_document()


GIGABYTE_MONTH = 2**30 * 730 * 3600


def test_storage_is_on_the_bill_where_its_price_is_known(make: Any) -> None:
    runs = [make.completed("a"), make.completed("b")]
    storage = {"a": RunStorage(stored_bytes=2**30, byte_seconds=GIGABYTE_MONTH / 10)}
    priced = report_savings(runs, storage=storage, s3_usd_per_gigabyte_month=0.023)
    assert [line.storage_usd for line in priced.lines] == pytest.approx([0.0023, 0.0])
    without = report_savings(runs).total
    assert priced.total.saved_usd == pytest.approx(without.saved_usd - 0.0023)
    assert priced.total.saved_percent == pytest.approx(100 * priced.total.saved_usd / without.clean_on_demand_usd)
    assert (without.storage_usd, without.stored_bytes) == (None, None)


def test_volumes_and_snapshots_are_shown_as_storage_that_the_bill_has_already(make: Any) -> None:
    plain = make.completed("plain")
    stored = {"storage_usd": 0.5, "snapshot_usd": 0.25, "snapshot_gb_hours": 9.0, "root_volume_usd": 0.125}
    cost = plain.cost.model_copy(update=stored)
    report = report_savings([plain, make.completed("on-ec2").model_copy(update={"cost": cost})])
    assert report.total.ebs_usd == 0.875
    assert report.total.saved_usd == report_savings([plain, plain]).total.saved_usd, "not taken off twice"
    on_ec2 = report.as_document()["runs"][1]
    assert (on_ec2["volume_usd"], on_ec2["snapshot_usd"], on_ec2["storage_usd"]) == (0.5, 0.25, None)
    assert on_ec2["root_volume_usd"] == 0.125
    assert report_savings([plain]).total.ebs_usd is None


def test_storage_without_a_price_is_reported_in_bytes_and_changes_no_sum(make: Any) -> None:
    storage = {"a": RunStorage(stored_bytes=2**30, byte_seconds=GIGABYTE_MONTH)}
    total = report_savings([make.completed("a")], storage=storage).total
    assert (total.stored_bytes, total.storage_usd) == (2**30, None)
    assert total.saved_usd == report_savings([make.completed("a")]).total.saved_usd


def test_awss_percentage_leaves_idle_pools_out_of_a_sum_as_it_does_of_a_run(make: Any) -> None:
    cost = make.cost(billed_seconds=1000, training_seconds=1000, idle_pool_seconds=400)
    total = report_savings([make.completed("a", cost=cost)]).total
    assert total.aws_saved_percent == pytest.approx(100 * (1 - 600 / 1000))
    assert total.idle_pool_seconds == 400


def test_aws_shows_no_percentage_of_a_run_on_ec2_and_a_sum_leaves_it_out(make: Any) -> None:
    on_sagemaker = make.completed("a", cost=make.cost(billed_seconds=600, training_seconds=1000))
    place = on_sagemaker.place.model_copy(update={"backend": "ec2"})
    on_ec2 = on_sagemaker.model_copy(update={"run": "b", "place": place})
    assert report_savings([on_ec2]).total.aws_saved_percent is None
    both = report_savings([on_sagemaker, on_ec2])
    assert both.total.aws_saved_percent == pytest.approx(40)
    assert [line.figures.aws_saved_percent for line in both.lines] == [pytest.approx(40), None]


def test_every_version_is_stored_since_it_was_written(make: Any) -> None:
    versions = [
        StoredVersion(run="a", size=100, written_at=make.now - timedelta(hours=2)),
        StoredVersion(run="a", size=50, written_at=make.now - timedelta(hours=1)),
        StoredVersion(run="b", size=7, written_at=make.now + timedelta(seconds=5)),
    ]
    storage = storage_by_run(versions, now=make.now)
    assert storage["a"] == RunStorage(stored_bytes=150, byte_seconds=100 * 7200 + 50 * 3600)
    assert storage["b"] == RunStorage(stored_bytes=7, byte_seconds=0.0), "a clock that is ahead owes nothing"
