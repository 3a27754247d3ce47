"""What a function URL hands to the launcher: whatever the request was, it is read as JSON or refused."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.handler import came_by_url, read_invocation
from spotkeep_jobs.errors import RequestRefusedError
from spotkeep_jobs.record.fields import Caller

from .bounds import bounded, fed_by_strangers

ADA = "arn:aws:sts::111122223333:assumed-role/People/ada"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)
NESTED = st.builds(
    lambda opening, depth: opening * depth, st.sampled_from(["[", '{"a":', '[{"":']), st.integers(0, 10**5)
)
DIGITS = st.builds(
    lambda sign, count: sign + "9" * count, st.sampled_from(["", "-", "1e", "0."]), st.integers(1, 10**5)
)
BODIES = st.one_of(
    JSON,
    st.text(),
    NESTED,
    DIGITS,
    JSON.map(json.dumps),
    st.binary().map(lambda content: base64.b64encode(content).decode()),
)
ARNS = st.one_of(
    st.just(ADA),
    JSON,
    st.builds(
        lambda start, rest: start + rest, st.sampled_from([ADA, ADA[:30], "arn:aws:iam::111122223333:user/"]), st.text()
    ),
    st.integers(0, 10**5).map(lambda count: "arn:aws:iam::111122223333:user/" + "a/" * count),
)
EVENTS = st.fixed_dictionaries(
    {
        "requestContext": st.fixed_dictionaries(
            {"http": st.fixed_dictionaries({"method": st.sampled_from(["POST", "GET", "", None, 7])})},
            optional={
                "authorizer": JSON | st.fixed_dictionaries({"iam": JSON | st.fixed_dictionaries({"userArn": ARNS})})
            },
        )
    },
    optional={"body": BODIES, "isBase64Encoded": st.booleans() | JSON, "version": JSON},
)


@fed_by_strangers(share=0.8)
@given(event=EVENTS | JSON, verify=st.booleans())
def test_an_event_is_read_or_refused(event: Any, verify: bool) -> None:
    with bounded():
        try:
            invocation = read_invocation(event, verify_callers=verify)
        except RequestRefusedError:
            return
    assert invocation.caller is not None or not verify
    if not came_by_url(event):
        assert invocation.payload is event
        assert invocation.caller is None


@fed_by_strangers(share=0.2)
@given(arn=ARNS)
def test_a_caller_is_printable_and_has_a_name(arn: Any) -> None:
    with bounded():
        caller = Caller.of(arn, verified=True)
    if caller is not None:
        assert caller.arn.isascii()
        assert caller.arn.isprintable()
        assert caller.name
        assert caller.arn.endswith(caller.name)


@pytest.mark.parametrize("event", [None, [], "POST", 7, {}, {"requestContext": None}, {"requestContext": {"http": []}}])
def test_what_is_no_url_event_is_the_payload_itself(event: Any) -> None:
    assert read_invocation(event, verify_callers=False).payload is event
