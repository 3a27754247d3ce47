"""Every client of AWS names how often it asks: botocore's own default is another from one version to the next."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    path
    for folder in ("app.py", "stacks", "constructs", "lambda", "training", "cli", "local", "planner", "examples")
    for path in ([ROOT / folder] if folder.endswith(".py") else (ROOT / folder).rglob("*.py"))
)


def without_retries(source: str) -> list[str]:
    """Return the calls that make a client or a session without a word on retries, as `line: call`.

    A client of `boto3` itself has a `config`. A session has what its clients begin with: `session_vars` that name the
    mode, handed to boto3's as `botocore_session`. A `Config` of botocore has retries with a mode.
    """
    if "boto" not in source:
        return []
    with_configs = "botocore.config" in source
    return [
        f"{call.lineno}: {ast.unparse(call)[:100]}"
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call) and not all(_named(call, with_configs=with_configs))
    ]


def _named(call: ast.Call, *, with_configs: bool) -> Iterator[bool]:
    keywords = {each.arg: each.value for each in call.keywords}
    called = ast.unparse(call.func)
    if called == "functools.partial" and call.args and ast.unparse(call.args[0]).startswith("boto3."):
        called = ast.unparse(call.args[0])
    if called.startswith("boto3.") and called.rpartition(".")[2] in {"client", "resource"}:
        # Of a session that is made on the spot, the config of its one client is enough.
        yield "config" in keywords
    elif called in {"boto3.Session", "boto3.session.Session"}:
        yield "botocore_session" in keywords
    elif called == "botocore.session.Session":
        yield "session_vars" in keywords
    elif with_configs and called.rpartition(".")[2] == "Config":
        yield "retries" in keywords and "'mode'" in ast.unparse(keywords["retries"])


def test_every_client_and_session_names_its_retries() -> None:
    assert len(SOURCES) > 300
    # It reads descriptions of services, and makes no client.
    without = {"local/spotkeep_local/service_base/clients.py": 1}
    # A session that is made on the spot is seen as a call of its own, inside the one that makes its client.
    on_the_spot = {"training/spotkeep/remote/s3_objects.py": 1}
    found = {path.relative_to(ROOT).as_posix(): without_retries(path.read_text(encoding="utf-8")) for path in SOURCES}
    assert {path: len(calls) for path, calls in found.items() if calls} == without | on_the_spot, found


@pytest.mark.parametrize(
    "source",
    [
        "import boto3; boto3.client('s3')",
        "boto3.session.Session().client('s3')",
        "functools.partial(boto3.resource, 'dynamodb')",
        "boto3.Session(region_name='us-east-1')",
        "botocore.session.Session(profile='research')",
        "from botocore.config import Config; Config(retries={'total_max_attempts': 1})",
        "from botocore.config import Config; Config(read_timeout=5)",
    ],
)
def test_one_that_does_not_is_found(source: str) -> None:
    assert without_retries(source)
