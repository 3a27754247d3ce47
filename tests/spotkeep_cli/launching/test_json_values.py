"""What is JSON already is sent as it is; where Python's value has no form there, its place is named."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spotkeep_cli.launching.json_values import plain

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(value=JSON_VALUES)
def test_what_is_json_stays_as_it_is(value: Any) -> None:
    assert plain(value) == (value, [])
    assert json.loads(json.dumps(plain(value)[0])) == json.loads(json.dumps(value))


@given(value=JSON_VALUES, wrong=st.sampled_from([b"x", {1}, object(), complex(1, 2), {b"name": 1}]))
def test_what_is_not_is_named_wherever_it_stands(value: Any, wrong: Any) -> None:
    document = {"fields": value, "last": [value, {"here": wrong}]}
    [problem] = plain(document)[1]
    assert problem.field in ("last[1].here", "last[1].here (a name)")
