"""AWS's price list in the local AWS, with a few published prices of us-east-1 in the shape of the real answer.

A rehearsal shows priced and unpriced runs. For any other type or region there is no product, as AWS answers for types
that it does not sell. The figures are AWS's of the month in `AS_OF`. They bill nothing here.
Source: https://aws.amazon.com/sagemaker/pricing/, https://aws.amazon.com/s3/pricing/,
https://aws.amazon.com/ebs/pricing/, https://aws.amazon.com/ec2/pricing/on-demand/
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from spotkeep_local.service_base.aws_service import AwsService, JsonProtocol, ServiceError, page_of

REGION: Final = "us-east-1"
AS_OF: Final = "August 2026"
ORIGIN: Final = f"the local AWS's price list (AWS's of {AS_OF}), not your bill"
"""The source of the dollars in a rehearsal's output."""
TARGET: Final = "AWSPriceListService"
_LONGEST_PAGE: Final = 100


@dataclass(frozen=True, kw_only=True)
class Product:
    """One line of the list.

    Attributes:
        service: Its service code.
        usage_type: The billed usage.
        unit: The unit of the price.
        tiers_usd: The price from so many units on.
        attributes: Other attributes that distinguish it.
    """

    service: str
    usage_type: str
    unit: str
    tiers_usd: Mapping[int, str]
    attributes: Mapping[str, str] = field(default_factory=dict)


_LINUX: Final = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "operation": "RunInstances",
}
_WINDOWS: Final = {**_LINUX, "operatingSystem": "Windows", "operation": "RunInstances:0002"}


def _on_ec2(instance_type: str, usd: str, attributes: Mapping[str, str] = _LINUX) -> Product:
    return Product(
        service="AmazonEC2",
        usage_type=f"BoxUsage:{instance_type}",
        unit="Hrs",
        tiers_usd={0: usd},
        attributes={"instanceType": instance_type, **attributes},
    )


_TRAINING_USD: Final = {
    "ml.m5.large": "0.115",
    "ml.m5.xlarge": "0.23",
    "ml.m5.2xlarge": "0.461",
    "ml.m5.4xlarge": "0.922",
    "ml.m5.12xlarge": "2.765",
    "ml.m5.24xlarge": "5.53",
    "ml.c5.xlarge": "0.204",
    "ml.c5.2xlarge": "0.408",
    "ml.c5.4xlarge": "0.816",
    "ml.c5.9xlarge": "1.836",
    "ml.c5.18xlarge": "3.672",
    "ml.g4dn.xlarge": "0.7364",
    "ml.g4dn.2xlarge": "0.94",
    "ml.g4dn.4xlarge": "1.505",
    "ml.g4dn.8xlarge": "2.72",
    "ml.g4dn.12xlarge": "4.89",
    "ml.g4dn.16xlarge": "5.44",
    "ml.g5.xlarge": "1.408",
    "ml.g5.2xlarge": "1.515",
    "ml.g5.4xlarge": "2.03",
    "ml.g5.8xlarge": "3.06",
    "ml.g5.12xlarge": "7.09",
    "ml.g5.16xlarge": "5.12",
    "ml.g5.24xlarge": "10.18",
    "ml.g5.48xlarge": "20.36",
    "ml.p3.2xlarge": "3.825",
    "ml.p3.8xlarge": "14.688",
    "ml.p3.16xlarge": "28.152",
}
"""US dollars an hour of on-demand training.

Those of ml.m5.large, ml.m5.xlarge and ml.g5.2xlarge are of `AS_OF`. The others were published earlier. AWS may have
changed them since.
"""
PRODUCTS: Final = (
    *(
        Product(service="AmazonSageMaker", usage_type=f"USE1-Train:{instance_type}", unit="Hrs", tiers_usd={0: usd})
        for instance_type, usd in _TRAINING_USD.items()
    ),
    Product(
        service="AmazonS3",
        usage_type="TimedStorage-ByteHrs",
        unit="GB-Mo",
        tiers_usd={0: "0.023", 51_200: "0.022", 512_000: "0.021"},
    ),
    _on_ec2("m5.large", "0.096"),
    _on_ec2("m5.large", "0.188", _WINDOWS),
    _on_ec2("m5.xlarge", "0.192"),
    _on_ec2("m5a.large", "0.086"),
    _on_ec2("m5a.xlarge", "0.172"),
    _on_ec2("m6i.large", "0.096"),
    _on_ec2("m6i.xlarge", "0.192"),
    _on_ec2("m6a.xlarge", "0.1728"),
    _on_ec2("m7i.xlarge", "0.2016"),
    _on_ec2("c5.large", "0.085"),
    _on_ec2("g5.xlarge", "1.006"),
    _on_ec2("g5.2xlarge", "1.212"),
    _on_ec2("g6.2xlarge", "0.9776"),
    Product(service="AmazonEC2", usage_type="EBS:VolumeUsage.gp3", unit="GB-Mo", tiers_usd={0: "0.08"}),
    Product(service="AmazonEC2", usage_type="EBS:VolumeP-IOPS.gp3", unit="IOPS-Mo", tiers_usd={0: "0.005"}),
    Product(service="AmazonEC2", usage_type="EBS:VolumeP-Throughput.gp3", unit="GiBps-mo", tiers_usd={0: "40.96"}),
    Product(service="AmazonEC2", usage_type="EBS:SnapshotUsage", unit="GB-Mo", tiers_usd={0: "0.05"}),
)


def pricing_service() -> AwsService:
    """Make the service, with GetProducts alone."""
    return AwsService(JsonProtocol("pricing", target=TARGET), {"GetProducts": get_products})


def get_products(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of GetProducts.

    Args:
        request: The request as the API takes it, with filters TERM_MATCH, EQUALS and CONTAINS.

    Raises:
        ServiceError: A filter is not one that is answered here.
    """
    filters = [(entry["Type"], entry["Field"], entry["Value"]) for entry in request.get("Filters", ())]
    found = [_document(each) for each in PRODUCTS if each.service == request["ServiceCode"]]
    found = [each for each in found if all(_passes(each["product"]["attributes"], *wanted) for wanted in filters)]
    documents = [json.dumps(each) for each in found]
    return {"FormatVersion": "aws_v1", **page_of(documents, request, member="PriceList", longest=_LONGEST_PAGE)}


def _passes(attributes: Mapping[str, str], kind: str, name: str, value: str) -> bool:
    if kind in {"TERM_MATCH", "EQUALS"}:
        return attributes.get(name) == value
    if kind == "CONTAINS":
        return value in attributes.get(name, "")
    raise ServiceError(f"the local AWS has no filter of type {kind}", code="InvalidParameterException")


def _document(product: Product) -> dict[str, Any]:
    distinguished_by = " ".join([product.usage_type, *product.attributes.values()])
    sku = hashlib.sha256(distinguished_by.encode()).hexdigest()[:16].upper()
    return {
        "product": {
            "sku": sku,
            "attributes": {
                "servicecode": product.service,
                "regionCode": REGION,
                "usagetype": product.usage_type,
                **product.attributes,
            },
        },
        "serviceCode": product.service,
        "terms": {"OnDemand": {f"{sku}.TERM": {"sku": sku, "priceDimensions": dict(_dimensions(sku, product))}}},
    }


def _dimensions(sku: str, product: Product) -> Iterator[tuple[str, dict[str, Any]]]:
    begins = sorted(product.tiers_usd)
    for begin, end in zip(begins, [*begins[1:], None], strict=True):
        yield (
            f"{sku}.TERM.{begin}",
            {
                "unit": product.unit,
                "beginRange": str(begin),
                "endRange": "Inf" if end is None else str(end),
                "pricePerUnit": {"USD": product.tiers_usd[begin]},
            },
        )
