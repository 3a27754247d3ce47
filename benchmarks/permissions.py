"""Measures the time of permission checks (``python -m benchmarks.permissions``).

The first measure is a whole call, as the local AWS judges it. It reads the request, its authorizations and the caller's
policies, decides and counts. There is one request for each judged operation. The session's role has the policies of the
deployment's largest role, and one more that allows everything. The first time of each operation stands apart, since it
reads botocore's model and AWS's documentation of the service. Each time is compared with boto3's time for making the
same request.

The second measure is one authorization. Each role of a synthesized deployment asks for the actions that its own
policies name, on resources that fit them.

All figures are processor time, which other work on the machine does not change much.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from statistics import median, quantiles
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.report import PROJECT, STATE
from benchmarks.synth import WITHOUT_RULES, synth_environment
from spotkeep_local.daemon.server import server_environment
from spotkeep_local.daemon.state_directory import StateDirectory
from spotkeep_local.iam.authorization import Authorization
from spotkeep_local.iam.calls import INVOKE_BY_URL
from spotkeep_local.iam.evaluation import CallingPrincipal, Policies, Question
from spotkeep_local.iam.policy import PolicyDocument
from spotkeep_local.iam.reference import Reference
from spotkeep_local.options import ServerOptions
from spotkeep_local.principals import AccessKey, Principal
from spotkeep_local.service_base.aws_service import HttpRequest
from tests.infrastructure.conftest import Templates
from tests.models.aws_requests import CALLS, CONTENT, sent
from tests.models.iam_account import ACCOUNT_ID, REGION
from tests.security import policies as deployed

if TYPE_CHECKING:
    from spotkeep_local.iam.judge import Judge

MOST_MS: Final = 1.0
"""The most milliseconds of one judged call."""
_MADE_ROUNDS: Final = 5
_SHOWN: Final = 5
_ROLES: Final = ("ExecutionRole", "InstanceRole", "RunRole", "LauncherRole", "ControllerRole", "UsersPolicy")


def main() -> int:
    """Measure, print a table, write JSON. Returns 0 when the target is kept, 1 otherwise."""
    options = _options()
    console = Console()
    with console.status("synthesizing"), tempfile.TemporaryDirectory() as scratch:
        templates = _synthesized(Path(scratch))
        calls = _calls(tuple(deployed.Policies(templates).documents("ControllerRole")), rounds=options.rounds)
    with console.status("judging"):
        reference = Reference()
        found = {
            role: _measured(tuple(deployed.Policies(templates).of(role)), reference, rounds=options.rounds)
            for role in _ROLES
        }
    document = {
        "target_ms": MOST_MS,
        "kept": calls["p99_ms"] <= MOST_MS
        and calls["slowest"][0]["median_ms"] <= MOST_MS
        and all(figures["p99_ms"] <= MOST_MS for figures in found.values()),
        "calls": calls,
        "roles": found,
    }
    console.print(_drawn(calls))
    console.print()
    table = report.table("role", "statements", "authorizations", "median", "p99", f"target {MOST_MS:g} ms")
    for role, figures in found.items():
        table.add_row(
            role,
            str(figures["statements"]),
            str(figures["authorizations"]),
            *(f"{figures[name]:.3f} ms" for name in ("median_ms", "p99_ms")),
            "kept" if figures["p99_ms"] <= MOST_MS else "missed",
        )
    console.print(table)
    report.write(options.output, document, console)
    return 0 if document["kept"] else 1


def _calls(policies: tuple[tuple[str, Mapping[str, Any]], ...], *, rounds: int) -> dict[str, Any]:
    """Judge each operation's request, and return the figures.

    Args:
        policies: The policies of the caller, by their names.
        rounds: Number of times that each call is judged.
    """
    with tempfile.TemporaryDirectory() as folder:
        # ministack reads its environment while it is imported, and is of this process alone.
        options = ServerOptions(region=REGION, account_id=ACCOUNT_ID)
        os.environ.update(server_environment(StateDirectory(Path(folder)), port=4566, options=options, inherited={}))
        from spotkeep_local.ec2.service import Ec2Service
        from spotkeep_local.iam.judge import Judge
        from spotkeep_local.iam.local_account import LocalAccount

        nothing: Any = None
        cloud = Ec2Service(
            state_dir=Path(folder) / "ec2",
            endpoint_port=4566,
            options=options,
            surroundings=SimpleNamespace(launch_template=lambda **_: None, subnet=lambda _: None),  # type: ignore[arg-type]
            publish_event=nothing,
            file_systems=Path(folder) / "file-systems",
            ministack=nothing,
        ).cloud
        account = LocalAccount(
            account_id=ACCOUNT_ID,
            cloud=cloud,
            job_tags=lambda _: {},
            experiment_tags=lambda _: {},
            batch_tags=lambda _: {},
        )
        judge = Judge(account=account, reference=Reference())
        _make_role(policies)
        principal = Principal(
            arn=f"arn:aws:sts::{ACCOUNT_ID}:assumed-role/worker/session", user_id="AROA:session", account_id=ACCOUNT_ID
        )
        key = AccessKey(access_key_id="ASIAEXAMPLE", secret_access_key="", principal=principal)
        return _figures(
            {
                f"{service}.{operation}": _judged(service, operation, parameters, judge=judge, key=key, rounds=rounds)
                for service, operations in CALLS.items()
                for operation, parameters in operations.items()
                # Which is no operation of boto3's.
                if operation != INVOKE_BY_URL
            }
        )


def _make_role(policies: tuple[tuple[str, Mapping[str, Any]], ...]) -> None:
    """Make the caller's role in the ministack of this process."""
    from spotkeep_local.ministack.application import handler_of

    everything = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}
    role = {"RoleName": "worker", "AssumeRolePolicyDocument": json.dumps(everything)}
    iam = handler_of("iam")

    async def answer(request: HttpRequest) -> tuple[int, bytes]:
        status, _headers, body = await iam(request.method, request.path, request.headers, request.body, request.query)
        return status, body

    requests = [sent("iam", "CreateRole", role)]
    requests += [
        sent("iam", "PutRolePolicy", {"RoleName": "worker", "PolicyName": name, "PolicyDocument": json.dumps(document)})
        for name, document in (*policies, ("everything", everything))
    ]
    for request in requests:
        status, body = asyncio.run(answer(request))
        if status != HTTPStatus.OK:
            raise RuntimeError(f"the role of the caller could not be made: {body.decode()}")


def _judged(
    service: str, operation: str, parameters: dict[str, Any], *, judge: Judge, key: AccessKey, rounds: int
) -> _Operation:
    given = {**parameters, **CONTENT.get(operation, {})}
    request = sent(service, operation, given)
    taken_ms, made_ms = [], []
    for _ in range(rounds + 1):
        began = time.thread_time_ns()
        judge.denial(request, key)
        taken_ms.append((time.thread_time_ns() - began) / 1e6)
    for _ in range(_MADE_ROUNDS):
        began = time.thread_time_ns()
        sent(service, operation, given)
        made_ms.append((time.thread_time_ns() - began) / 1e6)
    return _Operation(first_ms=taken_ms[0], taken_ms=tuple(taken_ms[1:]), made_ms=median(made_ms))


@dataclass(frozen=True, kw_only=True)
class _Operation:
    """Milliseconds of one operation's request, when judged first, when judged again, and when made by boto3."""

    first_ms: float
    taken_ms: tuple[float, ...]
    made_ms: float


def _figures(operations: Mapping[str, _Operation]) -> dict[str, Any]:
    together = [taken for operation in operations.values() for taken in operation.taken_ms]
    by_operation: list[dict[str, Any]] = [
        {
            "operation": name,
            "median_ms": round(median(operation.taken_ms), 4),
            "p99_ms": round(quantiles(operation.taken_ms, n=100)[-1], 4),
            "first_ms": round(operation.first_ms, 3),
            "of_making_it": round(median(operation.taken_ms) / operation.made_ms, 3),
        }
        for name, operation in operations.items()
    ]
    return {
        "operations": len(operations),
        "median_ms": round(median(together), 4),
        "p99_ms": round(quantiles(together, n=100)[-1], 4),
        "of_making_it": round(median(figures["of_making_it"] for figures in by_operation), 3),
        "first_seconds": round(sum(operation.first_ms for operation in operations.values()) / 1000, 3),
        "slowest": sorted(by_operation, key=lambda figures: -figures["median_ms"]),
    }


def _drawn(calls: Mapping[str, Any]) -> Table:
    columns = ("median", "p99", "first time", "of making it")
    table = report.table("a whole call", *columns)
    table.add_row(
        f"all {calls['operations']} operations",
        *(f"{calls[name]:.3f} ms" for name in ("median_ms", "p99_ms")),
        f"{calls['first_seconds']:.2f} s together",
        f"{calls['of_making_it']:.2f}",
    )
    for figures in calls["slowest"][:_SHOWN]:
        table.add_row(
            figures["operation"],
            *(f"{figures[name]:.3f} ms" for name in ("median_ms", "p99_ms", "first_ms")),
            f"{figures['of_making_it']:.2f}",
        )
    return table


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.permissions", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="how often each is judged (default 200)")
    parser.add_argument("--output", type=Path, default=STATE / "bench" / "permissions.json")
    return parser.parse_args()


def _synthesized(folder: Path) -> Templates:
    environment = synth_environment(folder, project_dir=PROJECT)
    subprocess.run([sys.executable, "-c", WITHOUT_RULES], cwd=PROJECT, env=environment, check=True, capture_output=True)
    return Templates.read(folder)


def _measured(identity: tuple[PolicyDocument, ...], reference: Reference, *, rounds: int) -> dict[str, Any]:
    caller = CallingPrincipal.role_session(
        f"arn:aws:sts::{deployed.ACCOUNT}:assumed-role/role/session",
        role_arn=f"arn:aws:iam::{deployed.ACCOUNT}:role/role",
        user_id="AROA:session",
        tags={"run": "a-1"},
    )
    policies = Policies(identity=identity, resource_account=deployed.ACCOUNT)
    asked = list(_asked(identity))
    taken_ms = []
    for _ in range(rounds):
        for authorization in asked:
            began = time.thread_time_ns()
            reference.problem_of(authorization)
            Question(authorization=authorization, caller=caller, policies=policies).decided()
            taken_ms.append((time.thread_time_ns() - began) / 1e6)
    return {
        "statements": sum(len(policy.statements) for policy in identity),
        "authorizations": len(asked),
        "median_ms": round(median(taken_ms), 4),
        "p99_ms": round(quantiles(taken_ms, n=100)[-1], 4),
        "slowest_ms": round(max(taken_ms), 4),
    }


def _asked(identity: tuple[PolicyDocument, ...]) -> Iterator[Authorization]:
    context = {"aws:requestedregion": (deployed.REGION,), "aws:securetransport": ("true",), "s3:prefix": ("runs/a-1/",)}
    for policy in identity:
        for statement in policy.statements:
            resource = statement.resources[0].text.replace("*", "x") if statement.resources else "*"
            for action in statement.actions:
                yield Authorization(action=action.text.replace("*", "x"), resource=resource, context=context)


if __name__ == "__main__":
    sys.exit(main())
