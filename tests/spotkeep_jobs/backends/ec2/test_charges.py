"""The bill of a fleet: by the second, at the price of the second; what is not known is said."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spotkeep_jobs.backends.ec2.charges import AttemptStorage, charges_of, cost_so_far
from spotkeep_jobs.backends.ec2.charges import billed as sums_of
from spotkeep_jobs.backends.ec2.facts import ProvisionedVolume, SpotPrice
from spotkeep_jobs.backends.ec2.history import EarlierInstances, InstanceLife
from spotkeep_jobs.cost.run_cost import bill
from spotkeep_jobs.notifications.texts.endings import ending_notification, facts_of
from spotkeep_jobs.record.deployment_records import StoragePrices
from spotkeep_jobs.record.record import Attempt, Charges, Cost, Ending, JobUsage, Place, Run, Volume
from spotkeep_jobs.record.states import EndReason, RunState

NOON = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
ON_DEMAND = {"g5.xlarge": 1.0}


def at(hours: float) -> datetime:
    return NOON + timedelta(hours=hours)


def life(*, launched: float = 0, ended: float | None = 2, **fields: Any) -> InstanceLife:
    given = {"instance_id": "i-1", "instance_type": "g5.xlarge", "zone": "us-east-1a", "spot": True, **fields}
    return InstanceLife(launched_at=at(launched), ended_at=None if ended is None else at(ended), **given)


def price(usd: float, *, since: float, zone: str = "us-east-1a") -> SpotPrice:
    return SpotPrice(instance_type="g5.xlarge", zone=zone, since=at(since), usd_per_hour=usd)


def charged(*lives: InstanceLife, prices: tuple[SpotPrice, ...] = (), until: float = 2, **more: Any) -> Charges:
    given = {"on_demand_usd_per_hour": ON_DEMAND, **more}
    return charges_of(lives, spot_prices=prices, until=at(until), **given)


PRICES = StoragePrices(ebs_gp3=0.073, ebs_gp3_iops=0.005, ebs_gp3_throughput=40.96, ebs_snapshot=0.05)


def volume(*, size_gb: int = 100, type: str = "gp3", **provisioned: int) -> ProvisionedVolume:  # noqa: A002
    return ProvisionedVolume(size_gb=size_gb, type=type, **provisioned)


GP3 = volume()


def stored(
    volume: ProvisionedVolume | None = GP3, *, root_volume: ProvisionedVolume | None = GP3, **more: Any
) -> AttemptStorage:
    return AttemptStorage(volume=volume, root_volume=root_volume, **{"prices": PRICES, **more})


def test_a_price_that_moves_is_counted_as_it_moves() -> None:
    prices = (price(0.4, since=1.5), price(0.2, since=-3), price(9.0, since=-1, zone="us-east-1b"))
    bill = charged(life(), prices=prices)
    assert bill.instances_usd == pytest.approx(1.5 * 0.2 + 0.5 * 0.4)
    assert bill.on_demand_usd == pytest.approx(2.0)
    assert bill.billable_seconds == pytest.approx(7200 * 0.5 / 2.0)


def test_an_instance_costs_a_minute_at_least() -> None:
    bill = charged(life(ended=10 / 3600), prices=(price(0.6, since=-1),))
    assert (bill.instance_seconds, bill.instances_usd) == (60.0, pytest.approx(0.01))


TAKEN, ITS_OWN_DOING = "Server.SpotInstanceTermination", "Client.InstanceInitiatedShutdown"


@pytest.mark.parametrize(
    ("ended_by", "hours", "usd"),
    [
        (TAKEN, 0.99, 0.0),
        (TAKEN, 1.0, 0.2),
        (ITS_OWN_DOING, 0.5, 0.1),
        ("Client.UserInitiatedShutdown", 0.5, 0.1),
        (None, 0.5, 0.1),
    ],
)
def test_an_instance_that_ec2_takes_within_its_first_hour_is_free(
    ended_by: str | None, hours: float, usd: float
) -> None:
    found = charged(life(ended=hours, ended_by=ended_by), prices=(price(0.2, since=-1),))
    assert found.instances_usd == pytest.approx(usd)
    assert found.on_demand_usd == pytest.approx(hours), "the same time on demand is not free"


def test_of_a_free_instance_no_spot_price_is_missing() -> None:
    found = charged(life(ended=0.5, ended_by=TAKEN))
    assert (found.instances_usd, found.unknown) == (0.0, ())


def test_an_on_demand_instance_is_never_free() -> None:
    found = charged(life(ended=0.5, ended_by=TAKEN, spot=False))
    assert (found.instances_usd, found.on_demand_usd) == (0.5, 0.5)


def test_an_unknown_price_is_named_and_not_guessed() -> None:
    elsewhere = life(zone="us-east-1b", launched=3, ended=4)
    bill = charged(life(), elsewhere, prices=(price(0.2, since=-1),), on_demand_usd_per_hour={}, until=4)
    assert (bill.instances_usd, bill.on_demand_usd, bill.billable_seconds) == (None, None, None)
    assert set(bill.unknown) == {"on demand g5.xlarge", "spot g5.xlarge in us-east-1b"}
    late = charged(life(), prices=(price(0.2, since=1),))
    assert late.unknown == ("spot g5.xlarge in us-east-1a",)


def test_without_an_on_demand_price_the_bill_is_known_and_the_saving_is_not() -> None:
    bill = charged(life(), prices=(price(0.2, since=-1),), on_demand_usd_per_hour={})
    assert bill.instances_usd == pytest.approx(0.4)
    assert bill.billable_seconds is None


@pytest.mark.parametrize("prices", [{"g5.xlarge": 1.0}, {}])
def test_the_cost_so_far_stays_when_instances_without_a_known_price_become_sums(prices: dict[str, float]) -> None:
    first, last = life(ended=2), life(launched=2, ended=None, instance_id="i-2")

    def so_far(*lives: InstanceLife, earlier: EarlierInstances | None = None) -> Any:
        return cost_so_far(
            lives, spot_prices=(), on_demand_usd_per_hour=prices, now=at(3), storage=stored(None), earlier=earlier
        )

    sums = EarlierInstances(
        count=1,
        first_launched_at=at(0),
        last_launched_at=at(0),
        last_ended_at=at(2),
        worked=timedelta(hours=2),
        trained=timedelta(hours=2),
        futile=0,
        billed=sums_of([first], spot_prices=(), until=at(3)),
    )
    assert so_far(last, earlier=sums) == so_far(first, last)
    assert so_far(first, last).usd == pytest.approx(3 * prices.get("g5.xlarge", 0.0), abs=0.1)


def test_the_volume_is_on_the_bill_from_the_first_instance_to_the_last() -> None:
    lives = (life(ended=1), life(launched=3, ended=4))
    prices = (price(0.2, since=-1),)
    bill = charged(*lives, prices=prices, until=4, storage=stored())
    assert (bill.storage_gb_hours, bill.storage_usd) == (400.0, pytest.approx(0.04))
    bill = charged(*lives, prices=prices, until=4, storage=stored(volume(type="io2")))
    assert (bill.storage_usd, bill.unknown) == (None, ("io2 storage",))


def test_each_instance_has_a_root_volume_on_the_bill_for_as_long_as_it_lives() -> None:
    """Also where EC2 bills nothing for the instance; and a minute at least, as for that."""
    lives = (life(ended=0.5, ended_by=TAKEN), life(launched=3, ended=4), life(launched=5, ended=5))
    storage = stored(None, root_volume=volume(size_gb=40))
    bill = charged(*lives, prices=(price(0.2, since=-1),), until=9, storage=storage)
    assert bill.root_volume_gb_hours == pytest.approx(40 * (1.5 + 1 / 60), abs=0.001)
    assert bill.root_volume_usd == pytest.approx(40 * (1.5 + 1 / 60) * 0.073 / 730, abs=1e-6)
    assert (bill.storage_gb_hours, bill.storage_usd, bill.unknown) == (0.0, None, ())


@pytest.mark.parametrize(
    ("provisioned", "usd_a_month"),
    [
        ({}, 7.3),
        ({"iops": 3_000, "throughput_mib_s": 125}, 7.3),
        ({"throughput_mib_s": 250}, 7.3 + 125 * 0.04),
        ({"iops": 4_000}, 7.3 + 1_000 * 0.005),
        ({"iops": 16_000, "throughput_mib_s": 1_000}, 7.3 + 13_000 * 0.005 + 875 * 0.04),
    ],
)
def test_of_gp3_what_is_provisioned_beyond_what_is_included_is_billed(
    provisioned: dict[str, int], usd_a_month: float
) -> None:
    """AWS's pages have 0.04 USD for a MiB/s, its list 40.96 for a GiB/s."""
    storage = stored(volume(**provisioned), root_volume=volume(**provisioned))
    bill = charged(life(ended=73), prices=(price(0.2, since=-1),), until=73, storage=storage)
    assert bill.storage_usd == bill.root_volume_usd == pytest.approx(usd_a_month / 10)


@pytest.mark.parametrize(
    ("price_name", "missing"),
    [("ebs_gp3", "gp3 storage"), ("ebs_gp3_iops", "gp3 IOPS"), ("ebs_gp3_throughput", "gp3 throughput")],
)
def test_a_volume_of_which_a_price_is_missing_has_no_cost_and_the_price_is_named(price_name: str, missing: str) -> None:
    fast = volume(iops=4_000, throughput_mib_s=250)
    prices = PRICES.model_copy(update={price_name: None})
    bill = charged(life(), prices=(price(0.2, since=-1),), storage=stored(fast, root_volume=fast, prices=prices))
    assert (bill.storage_usd, bill.root_volume_usd, bill.unknown) == (None, None, (missing,))
    plain = charged(life(), prices=(price(0.2, since=-1),), storage=stored(prices=prices))
    assert plain.unknown == ((missing,) if missing == "gp3 storage" else ()), "what is included misses no price"


def test_root_volumes_that_are_not_known_are_named_and_not_left_out() -> None:
    bill = charged(life(), prices=(price(0.2, since=-1),), storage=stored(root_volume=None))
    assert (bill.root_volume_gb_hours, bill.root_volume_usd, bill.unknown) == (0.0, None, ("root volumes",))


def test_snapshots_are_billed_for_what_they_held_and_their_time_or_named_as_unknown() -> None:
    storage = stored(snapshot_gb_hours=73)
    prices = (price(0.2, since=-1),)
    known = charged(life(), prices=prices, storage=storage)
    assert known.snapshot_gb_hours == 73
    assert known.snapshot_usd == pytest.approx(0.005)
    storage = replace(storage, prices=PRICES.model_copy(update={"ebs_snapshot": None}))
    unpriced = charged(life(), prices=prices, storage=storage)
    assert (unpriced.snapshot_usd, unpriced.unknown) == (None, ("snapshot storage",))
    stayed = charged(life(), prices=prices, storage=replace(storage, snapshot_gb_hours=0.0))
    assert (stayed.snapshot_usd, stayed.unknown) == (None, ()), "a run that never moved misses no price"


# On the bill of a run


VOLUME = "vol-0123456789abcdef0"


def a_run(cost: Cost) -> Run:
    return Run(
        run="count",
        name="count",
        place=Place(backend="ec2", capacity="spot", instance_type="g5.xlarge"),
        state=RunState.COMPLETED,
        ending=Ending(at=NOON, reason=EndReason.COMPLETED),
        job_name="count-1",
        created_at=NOON,
        updated_at=NOON,
        checkpoint_uri="s3://b/c/",
        output_prefix="s3://b/o/",
        token="t",
        request={},
        cost=cost,
        volume=Volume(id=VOLUME),
    )


def billed(charges: Charges) -> Cost:
    usage = JobUsage(
        instance_count=1, billable_seconds=charges.billable_seconds, training_seconds=7200, waited_seconds=60,
        redone_steps=0, redone_seconds=0.0, restart_overhead_seconds=600, last_step=100, charges=charges,
    )  # fmt: skip
    attempt = Attempt(
        run="count",
        attempt=1,
        state=RunState.COMPLETED,
        ending=Ending(at=NOON, reason=EndReason.COMPLETED),
        job_name="count-1",
        job_id="fleet-1",
        place=Place(backend="ec2", capacity="spot", instance_type="g5.xlarge"),
        created_at=NOON,
        usage=usage,
    )
    cost = bill([attempt], prices={})
    assert cost is not None
    return cost


def test_storage_is_on_the_bill_and_in_the_notification_and_not_in_the_savings() -> None:
    known = Charges(
        instance_seconds=7200, instances_usd=0.8, on_demand_usd=2.0, storage_gb_hours=200, storage_usd=0.1,
        snapshot_gb_hours=3, snapshot_usd=0.02, root_volume_gb_hours=80, root_volume_usd=0.03,
    )  # fmt: skip
    cost = billed(known)
    clean_usd = (7200 - 600) / 3600
    assert (cost.billed_usd, cost.storage_usd) == (pytest.approx(0.95), pytest.approx(0.1))
    assert (cost.root_volume_gb_hours, cost.root_volume_usd) == (80, 0.03)
    assert (cost.snapshot_gb_hours, cost.snapshot_usd) == (3, 0.02)
    assert (cost.clean_on_demand_usd, cost.aws_saved_percent) == (pytest.approx(clean_usd), None)
    assert cost.saved_usd == pytest.approx(clean_usd - 0.95)
    assert cost.saved_percent == round(100 * (clean_usd - 0.95) / clean_usd, 1)
    said = " ".join(" ".join(facts_of(a_run(cost))).split())
    assert "$0.10 of it for 200.0 GiB hours of volume; $0.02 of it for 3.0 GiB hours of snapshots" in said
    assert "; $0.03 of it for 80.0 GiB hours of the instances' root volumes" in said
    assert "at most" not in said
    unpriced = billed(known.model_copy(update={"snapshot_usd": None, "unknown": ("snapshot storage",)}))
    said = " ".join(" ".join(facts_of(a_run(unpriced))).split())
    assert "3.0 GiB hours of snapshots, which moved it, whose price is not known here" in said
    assert "Saved at most $" in said
    without_volume = billed(Charges(instance_seconds=7200, instances_usd=0.8, root_volume_gb_hours=80))
    said = " ".join(" ".join(facts_of(a_run(without_volume))).split())
    assert "Storage 80.0 GiB hours of the instances' root volumes, whose price is not known here" in said


def test_a_saving_that_no_price_supports_is_not_claimed() -> None:
    cost = billed(Charges(instance_seconds=7200, instances_usd=0.8, unknown=("on demand g5.xlarge",)))
    assert (cost.billed_usd, cost.saved_percent, cost.saved_usd) == (pytest.approx(0.8), None, None)
    assert cost.unknown_prices == ("on demand g5.xlarge",)


@pytest.mark.parametrize(
    ("when_done", "for_a_person", "says"),
    [
        ("keep", False, "it is kept, and billed"),
        ("delete", False, "deleted within minutes"),
        ("delete", True, "it has what is not in S3 (`spotkeep logs` says what), so it is kept"),
    ],
)
def test_the_notification_says_what_it_cost_and_what_becomes_of_the_volume(
    when_done: str, for_a_person: bool, says: str
) -> None:
    cost = billed(
        Charges(instance_seconds=7200, instances_usd=0.8, storage_gb_hours=9, unknown=("on demand g5.xlarge",))
    )
    volume = Volume(id=VOLUME, is_for_a_person=for_a_person)
    run = a_run(cost).model_copy(update={"request": {"volume": {"when_done": when_done}}, "volume": volume})
    notification = ending_notification(run=run, deployment="spotkeep", created_at=NOON)
    words = " ".join(notification.body.split())
    assert "$0.80 for 2 h of instances" in words
    assert "not known: the price of on demand g5.xlarge" in words
    assert says in words
    assert "SageMaker" not in words
