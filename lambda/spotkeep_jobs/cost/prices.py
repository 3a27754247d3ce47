"""The prices that a function works with, and AWS's price list, from which they are read.

`KnownPrices` is a mapping by instance type in memory. The owner of the mapping brings it up to date. Decisions are pure
and take a mapping. This one changes between two invocations and never while a decision is made. `refresh` is called at
the beginning of an invocation, and reads at most one item of the run table an hour.

Reads AWS's price list and its products. No other module calls the Pricing API's client.

Products are distinguished by their usage type, which names the billed thing and nothing else. `USE1-Train:ml.m5.xlarge`
is an hour of that instance at training, and `EU-BoxUsage:g5.xlarge` is one of an EC2 instance. The region's short name
before it is missing in us-east-1 for older services.

On EC2 the usage type is the same for Linux, Windows and licensed software on top. The operation shows the difference.
`RunInstances` alone is Linux with nothing on it.
Sources:
    https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-price-list-query-api.html
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/billing-info-fields.html (Platform details and usage operation)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep_jobs.errors import SpotkeepJobsError, UnreadableRecordError
from spotkeep_jobs.record.deployment_records import PriceBook, StoragePrices

if TYPE_CHECKING:
    from spotkeep_jobs.record.run_table import RunTable

_ENDPOINT_REGIONS: Final = {"ap": "ap-south-1", "eu": "eu-central-1"}
"""The Pricing API answers for every region, and lives in three.
Source: https://docs.aws.amazon.com/general/latest/gr/billing.html (AWS Price List Service)"""

_REGION_MARK: Final = r"(?:[A-Z0-9]{2,5}-)?"
TRAINING_HOURS: Final = re.compile(_REGION_MARK + r"Train:(ml\.[a-z0-9-]+\.[a-z0-9]+)")
EC2_HOURS: Final = re.compile(_REGION_MARK + r"BoxUsage:([a-z0-9-]+\.[a-z0-9-]+)")
_S3_STANDARD: Final = re.compile(_REGION_MARK + r"TimedStorage-ByteHrs")
_EBS_GP3: Final = re.compile(_REGION_MARK + r"EBS:VolumeUsage\.gp3")
_EBS_GP3_IOPS: Final = re.compile(_REGION_MARK + r"EBS:VolumeP-IOPS\.gp3")
_EBS_GP3_THROUGHPUT: Final = re.compile(_REGION_MARK + r"EBS:VolumeP-Throughput\.gp3")
_EBS_SNAPSHOT: Final = re.compile(_REGION_MARK + r"EBS:SnapshotUsage")


class PricesNotReadError(SpotkeepJobsError):
    """AWS's price list could not be read. The known prices stay, and the next pass asks again."""

    def __init__(self, *, region: str, reason: str) -> None:
        super().__init__(f"the prices of {region} could not be read: {reason}. Those known before stay")


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    service: str
    usage_type_holds: str
    attributes: Mapping[str, str] = field(default_factory=dict)


_LINUX_ON_DEMAND: Final = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "operation": "RunInstances",
}
"""The attributes of AmazonEC2's products for an instance as a fleet launches it, on demand, shared and unlicensed."""
MOST_PAGES: Final = 40
"""The most pages of one question, of 100 products each. EC2's Linux instances of a region are some ten."""
_TRAINING_INSTANCES: Final = _Wanted(service="AmazonSageMaker", usage_type_holds="Train:ml.")
_EC2_INSTANCES: Final = _Wanted(service="AmazonEC2", usage_type_holds="BoxUsage:", attributes=_LINUX_ON_DEMAND)
_OBJECTS: Final = _Wanted(service="AmazonS3", usage_type_holds="TimedStorage-ByteHrs")
_VOLUMES: Final = _Wanted(service="AmazonEC2", usage_type_holds="EBS:VolumeUsage.gp3")
_VOLUME_IOPS: Final = _Wanted(service="AmazonEC2", usage_type_holds="EBS:VolumeP-IOPS.gp3")
_VOLUME_THROUGHPUT: Final = _Wanted(service="AmazonEC2", usage_type_holds="EBS:VolumeP-Throughput.gp3")
_SNAPSHOTS: Final = _Wanted(service="AmazonEC2", usage_type_holds="EBS:SnapshotUsage")


def endpoint_region(region: str) -> str:
    """Return the region of the Pricing API to ask, on the same side of the world as another region.

    Args:
        region: The region of the wanted prices.
    """
    return _ENDPOINT_REGIONS.get(region.partition("-")[0], "us-east-1")


class PriceList:
    """AWS's prices, on a boto3 client of `pricing` in `endpoint_region`."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def read(self, region: str, /, *, now: datetime) -> PriceBook:
        """Read a region's prices.

        Raises:
            PricesNotReadError: AWS refused or could not answer.
        """
        try:
            return PriceBook(
                region=region,
                fetched_at=now,
                instance_usd_per_hour={
                    **instance_prices(self._products(_EC2_INSTANCES, region), EC2_HOURS),
                    **instance_prices(self._products(_TRAINING_INSTANCES, region), TRAINING_HOURS),
                },
                storage=StoragePrices(
                    s3_standard=storage_price(self._products(_OBJECTS, region), _S3_STANDARD),
                    ebs_gp3=storage_price(self._products(_VOLUMES, region), _EBS_GP3),
                    ebs_gp3_iops=storage_price(self._products(_VOLUME_IOPS, region), _EBS_GP3_IOPS, unit="IOPS-Mo"),
                    # AWS's pages show it per MiB/s; its list has it per GiB/s.
                    ebs_gp3_throughput=storage_price(
                        self._products(_VOLUME_THROUGHPUT, region), _EBS_GP3_THROUGHPUT, unit="GiBps-mo"
                    ),
                    ebs_snapshot=storage_price(self._products(_SNAPSHOTS, region), _EBS_SNAPSHOT),
                ),
            )
        except (BotoCoreError, ClientError) as error:
            raise PricesNotReadError(region=region, reason=str(error)) from error

    def _products(self, wanted: _Wanted, region: str) -> Iterator[Mapping[str, Any]]:
        pages = self._client.get_paginator("get_products").paginate(
            ServiceCode=wanted.service,
            Filters=[
                {"Type": "TERM_MATCH", "Field": "regionCode", "Value": region},
                {"Type": "CONTAINS", "Field": "usagetype", "Value": wanted.usage_type_holds},
                *({"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in wanted.attributes.items()),
            ],
        )
        for number, page in enumerate(pages):
            if number == MOST_PAGES:
                # Cut off, a second price of a type could be missing: rather none than perhaps a wrong one.
                raise PricesNotReadError(region=region, reason=f"{wanted.service} has more than {MOST_PAGES} pages")
            for product in page["PriceList"]:
                yield json.loads(product)


def instance_prices(products: Iterable[Mapping[str, Any]], usage_type: re.Pattern[str]) -> dict[str, float]:
    """On-demand dollars per hour of instances, by type, from products of AWS's price list.

    A type with two different prices is left out, because the billed one is not known.

    Args:
        products: As the price list gives them.
        usage_type: Matches the usage types that are wanted. Its group is the instance type.
    """
    found: dict[str, set[float]] = {}
    for product in products:
        named = usage_type.fullmatch(_usage_type(product))
        price = _first_tier_usd(product, unit="Hrs")
        if named is not None and price is not None:
            found.setdefault(named[1], set()).add(price)
    return {name: prices.pop() for name, prices in sorted(found.items()) if len(prices) == 1}


def storage_price(
    products: Iterable[Mapping[str, Any]], usage_type: re.Pattern[str], *, unit: str = "GB-Mo"
) -> float | None:
    """Return dollars per unit from products of AWS's price list, in the first tier.

    Args:
        products: As the price list gives them.
        usage_type: The usage type that is wanted.
        unit: The unit of its price, as the list spells it, for example a gigabyte and month. A price in another unit
            does not count.

    Returns:
        None when there is no such product, or several with different prices.
    """
    found = {
        price
        for product in products
        if usage_type.fullmatch(_usage_type(product)) and (price := _first_tier_usd(product, unit=unit)) is not None
    }
    return found.pop() if len(found) == 1 else None


def _usage_type(product: Mapping[str, Any]) -> str:
    return str(product.get("product", {}).get("attributes", {}).get("usagetype", ""))


def _first_tier_usd(product: Mapping[str, Any], *, unit: str) -> float | None:
    tiers = [
        dimension
        for term in product.get("terms", {}).get("OnDemand", {}).values()
        for dimension in term.get("priceDimensions", {}).values()
        if dimension.get("unit") == unit and float(dimension.get("beginRange") or 0) == 0
    ]
    prices = {float(tier["pricePerUnit"]["USD"]) for tier in tiers if "USD" in tier.get("pricePerUnit", {})}
    # A price of nothing is a free tier or a placeholder, and no price.
    prices.discard(0.0)
    return prices.pop() if len(prices) == 1 else None


READ_AGAIN_AFTER: Final = timedelta(hours=1)
"""The greatest age of the prices in one function's memory."""
READ_AGAIN_WITHOUT_BOOK_AFTER: Final = timedelta(minutes=5)
"""The same, while there is no book. A deployment reads it as it is made, and each pass tries again."""
TRIED_AGAIN_AFTER: Final = timedelta(hours=1)
"""After AWS could not answer. Where it never does (no permission, no network), only the settings' prices are known."""
FETCH_AGAIN_AFTER: Final = timedelta(days=1)
"""The greatest age of the book before AWS is asked again. It changes its prices a few times a year."""


class KnownPrices(Mapping[str, float]):
    """On-demand US dollars per hour of an instance, by type. The settings' prices come first, then AWS's."""

    def __init__(self, settings: Mapping[str, float], *, region: str) -> None:
        """Begin with the prices of the settings.

        Args:
            settings: The deployment's own prices, which have precedence over AWS's.
            region: The deployment's region.
        """
        self._settings = dict(settings)
        self.region = region
        self._prices: dict[str, float] = dict(settings)
        self._read_at: datetime | None = None
        self._asked_at: datetime | None = None
        self.book: PriceBook | None = None

    def __getitem__(self, instance_type: str) -> float:
        return self._prices[instance_type]

    def __iter__(self) -> Iterator[str]:
        return iter(self._prices)

    def __len__(self) -> int:
        return len(self._prices)

    @property
    def storage(self) -> StoragePrices:
        """The prices of storage, as far as AWS's list has them."""
        return StoragePrices() if self.book is None else self.book.storage

    def refresh(self, table: RunTable, *, now: datetime) -> None:
        """Take over the book that the run table holds, unless that was done a short while ago.

        An unreadable table leaves the known prices. A missing price stops no work.

        Args:
            table: The table with the book.
            now: The time.
        """
        fresh_for = READ_AGAIN_WITHOUT_BOOK_AFTER if self.book is None else READ_AGAIN_AFTER
        if self._read_at is not None and now - self._read_at < fresh_for:
            return
        self._read_at = now
        try:
            book = table.deployment.price_book(self.region)
        except (BotoCoreError, ClientError, UnreadableRecordError):
            return
        if book is not None:
            self._take(book)

    def fetch(self, price_list: PriceList, table: RunTable, *, now: datetime) -> bool:
        """Ask AWS and keep its book in the run table, unless the one there is of the last day, or AWS was just asked.

        Args:
            price_list: AWS's.
            table: Where the book is kept.
            now: The time.

        Returns:
            Whether AWS was asked.

        Raises:
            PricesNotReadError: AWS could not answer, or knows no price of this region. The old book stays.
        """
        if self._asked_at is not None and now - self._asked_at < TRIED_AGAIN_AFTER:
            return False
        try:
            known = table.deployment.price_book(self.region)
        except UnreadableRecordError:
            known = None  # It is read anew, and replaced.
        if known is not None and now - known.fetched_at < FETCH_AGAIN_AFTER:
            self._take(known)
            return False
        self._asked_at = now
        book = price_list.read(self.region, now=now)
        if not book.instance_usd_per_hour:
            raise PricesNotReadError(region=self.region, reason="the price list has no instance of it")
        table.deployment.keep_price_book(book)
        self._take(book)
        return True

    def _take(self, book: PriceBook) -> None:
        self.book = book
        self._prices = {**book.instance_usd_per_hour, **self._settings}
