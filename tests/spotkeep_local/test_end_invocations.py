"""An invocation of a function dies in the middle, and the next one has a process of its own."""

from __future__ import annotations

import io
import json
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from spotkeep_local.control import LocalControl
from spotkeep_local.lifecycle import LocalAws

pytestmark = pytest.mark.long

_CODE = """\
import time

def handler(event, context):
    time.sleep(event["seconds"])
    return "done"
"""
_TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}


@pytest.fixture
def function(local_aws: LocalAws) -> str:
    session = local_aws.session()
    role = session.client("iam").create_role(RoleName="sleeper", AssumeRolePolicyDocument=json.dumps(_TRUST))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("index.py", _CODE)
    session.client("lambda").create_function(
        FunctionName="sleeper",
        Runtime="python3.13",
        Handler="index.handler",
        Role=role["Role"]["Arn"],
        Code={"ZipFile": packed.getvalue()},
        Timeout=120,
    )
    return "sleeper"


def test_an_invocation_that_is_under_way_dies_and_no_other(local_aws: LocalAws, function: str) -> None:
    client = local_aws.session().client("lambda")
    control = LocalControl(local_aws)

    def invoke(seconds: float) -> Any:
        return client.invoke(FunctionName=function, Payload=json.dumps({"seconds": seconds}).encode())

    assert control.end_invocations(function) == 0
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(invoke, 100)
        while not control.end_invocations(function):
            assert not slow.done()
            assert control.end_invocations("another") == 0
            time.sleep(0.05)
        assert "FunctionError" in slow.result()
    answer = invoke(0)
    assert json.loads(answer["Payload"].read()) == "done"
    assert control.end_invocations(function) == 0
