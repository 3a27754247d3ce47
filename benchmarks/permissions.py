"""Measures what judging one authorization takes: ``python -m benchmarks.permissions``.

Each role of a synthesized deployment asks for the actions that its own policies name, on resources that fit them.
Finding what AWS documents of the action counts, and so does reading the service's data for the first time, which is
then the slowest.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from rich.console import Console

from benchmarks import report
from benchmarks.report import PROJECT, STATE
from spotkeep_local.cdk import npm_package
from spotkeep_local.iam.authorization import Authorization
from spotkeep_local.iam.evaluation import Caller, Policies, evaluate
from spotkeep_local.iam.policy import Policy
from spotkeep_local.iam.reference import PACKAGE, Reference
from tests.infrastructure.conftest import Templates
from tests.security import policies as deployed

MOST_MS: Final = 1.0
"""What one judged call may take."""
_ROLES: Final = ("ExecutionRole", "InstanceRole", "RunRole", "LauncherRole", "ControllerRole", "UsersPolicy")


def main() -> int:
    """Measure, print a table, write JSON. Returns 0 when the target is kept, 1 otherwise."""
    options = _options()
    console = Console()
    with console.status("synthesizing"), tempfile.TemporaryDirectory() as scratch:
        templates = _synthesized(Path(scratch))
    with console.status("judging"):
        reference = Reference(npm_package(PACKAGE) / "data")
        found = {
            role: _measured(tuple(deployed.Policies(templates).of(role)), reference, rounds=options.rounds)
            for role in _ROLES
        }
    document = {
        "target_ms": MOST_MS,
        "kept": all(figures["p99_ms"] <= MOST_MS for figures in found.values()),
        "roles": found,
    }
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


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.permissions", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="how often each is judged (default 200)")
    parser.add_argument("--output", type=Path, default=STATE / "bench" / "permissions.json")
    return parser.parse_args()


def _synthesized(folder: Path) -> Templates:
    context = json.loads((PROJECT / "cdk.json").read_text())["context"]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "CDK_OUTDIR": str(folder),
        "CDK_CONTEXT_JSON": json.dumps({**context, "lambda_platform": "host"}),
    }
    without_rules = "import app, sys; sys.exit(app.main(judge=False))"
    subprocess.run([sys.executable, "-c", without_rules], cwd=PROJECT, env=environment, check=True, capture_output=True)
    return Templates.read(folder)


def _measured(identity: tuple[Policy, ...], reference: Reference, *, rounds: int) -> dict[str, Any]:
    caller = Caller.role_session(
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
            began = time.perf_counter_ns()
            reference.problem_of(authorization)
            evaluate(authorization, caller=caller, policies=policies)
            taken_ms.append((time.perf_counter_ns() - began) / 1e6)
    return {
        "statements": sum(len(policy.statements) for policy in identity),
        "authorizations": len(asked),
        "median_ms": round(median(taken_ms), 4),
        "p99_ms": round(quantiles(taken_ms, n=100)[-1], 4),
        "slowest_ms": round(max(taken_ms), 4),
    }


def _asked(identity: tuple[Policy, ...]) -> Iterator[Authorization]:
    context = {"aws:requestedregion": (deployed.REGION,), "aws:securetransport": ("true",), "s3:prefix": ("runs/a-1/",)}
    for policy in identity:
        for statement in policy.statements:
            resource = statement.resources[0].text.replace("*", "x") if statement.resources else "*"
            for action in statement.actions:
                yield Authorization(action=action.text.replace("*", "x"), resource=resource, context=context)


if __name__ == "__main__":
    sys.exit(main())
