"""Items are written as boto3's own serializer writes them, and come back as they were."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from boto3.dynamodb.types import TypeSerializer
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.record.states import RunState
from spotkeep_jobs.record.table_client import from_dynamodb, to_dynamodb

_TEXTS = st.text() | st.sampled_from(RunState)
_NUMBERS = st.integers(-(10**15), 10**15) | st.floats(-1e15, 1e15)
_VALUES = st.recursive(
    _TEXTS | _NUMBERS | st.booleans() | st.none() | st.binary(min_size=1),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


def with_decimals(value: Any) -> Any:
    """The value as boto3 takes it, which knows no floats."""
    if isinstance(value, float):
        return Decimal(0) if abs(value) < 1e-130 else Decimal(str(value))
    if isinstance(value, dict):
        return {name: with_decimals(inner) for name, inner in value.items()}
    return [with_decimals(inner) for inner in value] if isinstance(value, list) else value


@given(st.dictionaries(st.text(), _VALUES))
def test_any_item_is_written_as_boto3_writes_it_and_comes_back(item: dict[str, Any]) -> None:
    exact = with_decimals(item)
    written = to_dynamodb(item)
    assert written == {name: TypeSerializer().serialize(value) for name, value in exact.items()}
    assert from_dynamodb(written) == exact


def test_a_number_that_dynamodb_has_no_digits_for_is_nothing() -> None:
    assert to_dynamodb({"loss": 1e-200, "values": (1.5, -1e-300)}) == {
        "loss": {"N": "0"},
        "values": {"L": [{"N": "1.5"}, {"N": "0"}]},
    }
