"""AWS's price list in memory, spelled as boto3's client of `pricing`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final

from tests.models.faults import Called, Model

REGION: Final = "eu-west-1"


def product(usage_type: str, *usd: str, unit: str = "Hrs", begins: tuple[str, ...] = ("0",)) -> dict[str, Any]:
    """Return a product of the region as GetProducts gives it: one on-demand term with a tier for each price."""
    tiers = {
        f"SKU.TERM.{number}": {"unit": unit, "beginRange": begin, "pricePerUnit": {"USD": price}}
        for number, (price, begin) in enumerate(zip(usd, begins, strict=True))
    }
    return {
        "product": {"attributes": {"usagetype": usage_type, "regionCode": REGION}, "sku": "SKU"},
        "terms": {"OnDemand": {"SKU.TERM": {"priceDimensions": tiers}}, "Reserved": {}},
    }


class Pricing(Model):
    """The products of AWS's services.

    Attributes:
        products: By the service's code.
        queries: What was asked of GetProducts, once for all pages of a question.
    """

    def __init__(self, called: Called | None = None, **products: list[dict[str, Any]]) -> None:
        super().__init__(called)
        self.products = products
        self.queries: list[dict[str, Any]] = []

    def get_paginator(self, operation: str) -> Any:
        assert operation == "get_products"
        return SimpleNamespace(paginate=self._pages)

    def _pages(self, **query: Any) -> Iterator[Any]:
        self.queries.append(query)
        found = [
            json.dumps(each)
            for each in self.products.get(query["ServiceCode"], ())
            if all(_fits(each["product"]["attributes"], **asked) for asked in query["Filters"])
        ]
        yield self._call("GetProducts", lambda: {"PriceList": found})


def _fits(attributes: dict[str, str], *, Type: str, Field: str, Value: str) -> bool:  # noqa: N803 - AWS's names
    held = attributes.get(Field, "")
    return Value in held if Type == "CONTAINS" else Value == held
