"""`spotkeep first-account`: a plan and a question first, a ceiling, and a removal that names what is left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from spotkeep_cli.errors import ExitCode
from spotkeep_jobs.record.record import Pool
from spotkeep_jobs.record.states import EndReason, PoolState, RunState

RUN = "first-account-stop-1a2b3c"
DENIED = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "DeleteObjects")


class Bucket:
    """The S3 of who deployed: objects with their versions, until they are deleted."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.refuses = False

    def get_paginator(self, operation: str) -> Any:
        assert operation == "list_object_versions"

        def paginate(*, Prefix: str, **_bucket: str) -> Iterator[Any]:  # noqa: N803
            found = [{"Key": key, "VersionId": "1"} for key in self.keys if key.startswith(Prefix)]
            yield {"Versions": found[:1], "DeleteMarkers": found[1:]}

        return SimpleNamespace(paginate=paginate)

    def delete_objects(self, *, Delete: dict[str, Any], **_bucket: str) -> Any:  # noqa: N803
        if self.refuses:
            raise DENIED
        gone = [each["Key"] for each in Delete["Objects"]]
        self.keys = [key for key in self.keys if key not in gone]
        return {}


@pytest.fixture
def bucket(deployment: Any, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """What the administrator reaches, who is asked for by the command."""
    made = Bucket()
    deleted = deployment.logs
    deleted.delete_log_stream = lambda **stream: deleted.lines.pop(stream["logStreamName"].partition("/")[0])
    sts = SimpleNamespace(get_caller_identity=lambda: {"UserId": "A", "Arn": "arn:aws:iam::123456789012:user/ada"})

    def describe(**_job: str) -> Any:
        raise ClientError({"Error": {"Code": "ValidationException", "Message": "no such job"}}, "DescribeTrainingJob")

    sagemaker = SimpleNamespace(describe_training_job=describe)
    clients = {"s3": made, "logs": deleted, "sts": sts, "sagemaker": sagemaker}
    session = SimpleNamespace(client=clients.__getitem__)
    monkeypatch.setattr("spotkeep_cli.aws.connection.administrator_session", lambda _options: session)
    return made


@pytest.fixture
def prices(deployment: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """The launcher's judgement on each job."""
    monkeypatch.chdir(tmp_path)
    answer = {"ok": True, "warnings": [], "request": {"name": "x"}, "usd_per_hour": 0.12, "worst_case_usd": 0.02}
    deployment.answers["validate"] = answer
    return answer


@pytest.mark.usefixtures("bucket", "prices")
def test_the_plan_names_each_job_with_its_type_and_its_highest_cost_and_asks(spotkeep: Any, deployment: Any) -> None:
    found = spotkeep("first-account", "--queue", "cpu", columns=120)
    assert found.exit_code == ExitCode.USAGE, found.output  # there is no terminal to ask on
    assert "needs an answer" in found.stderr
    rows = {line.split()[0]: line.split()[-1] for line in found.stdout.splitlines() if " ml.m5.large " in line}
    assert rows == {"pool": "$0.02", "spot": "$0.04", "stop": "$0.04", "hosts": "$0.02", "queue": "$0.02"}
    assert "2 x ml.m5.large" in found.stdout
    assert "$0.14" in found.stdout
    assert "Left out: fleet. the deployment has no fleets" in found.stdout
    assert {each["action"] for each in deployment.invocations} == {"validate"}


@pytest.mark.usefixtures("bucket")
def test_a_plan_above_the_ceiling_is_refused(spotkeep: Any, deployment: Any, prices: dict[str, Any]) -> None:
    prices["worst_case_usd"] = 1.0
    found = spotkeep("first-account", "--yes", "--ceiling", "3")
    assert found.exit_code == ExitCode.REFUSED
    assert "the plan costs up to 6.00 USD, and the ceiling is 3.00 USD" in found.stderr
    assert {each["action"] for each in deployment.invocations} == {"validate"}


@pytest.mark.usefixtures("bucket", "prices")
def test_a_job_that_is_refused_is_left_out_with_the_reason(spotkeep: Any, deployment: Any, tmp_path: Path) -> None:
    problem = {"field": "instance_type", "found": "ml.m5.large", "problem": "is not allowed", "fix": "Choose another."}
    deployment.answers["validate"] = {"ok": False, "problems": [problem]}
    found = spotkeep("first-account", "--yes", "--json", "--report", str(tmp_path), columns=200)
    report = json.loads(found.stdout)
    assert all("is not allowed" in job["problem"] for job in report["jobs"] if job["kind"] not in ("queue", "fleet"))
    assert all(answer["verdict"] == "not answered" for answer in report["answers"])


def recorded(deployment: Any, make: Any) -> None:
    runs = make.run(RUN, name="first-account"), make.run(RUN, name="first-account")
    ended = make.run(RUN, name="first-account", state=RunState.STOPPED, end_reason=EndReason.STOPPED_BY_USER)
    deployment.dynamodb.add(*runs, ended, attempts=[make.attempt(RUN)])
    deployment.dynamodb.add(make.run("first-account-mine", name="mine"))
    deployment.logs.lines[f"{RUN}-1"] = ["spotkeep says"]
    deployment.answers["stop"] = {"ok": True, "run": RUN}


def test_a_clean_up_stops_what_runs_and_deletes_objects_and_logs_of_first_hours_alone(
    spotkeep: Any, deployment: Any, bucket: Bucket, make: Any
) -> None:
    recorded(deployment, make)
    other = "runs/first-account-mine/checkpoints/x"
    bucket.keys = [f"runs/{RUN}/checkpoints/a", f"runs/{RUN}/output/b", f"sources/{RUN}/c", f"specs/{RUN}/d", other]
    found = spotkeep("first-account", "--clean-up", "--yes", "--json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout) == {
        "ok": True,
        "removed": [f"{RUN} was stopped", f"4 objects of {RUN}", f"1 log streams of {RUN}"],
        "left": [],
    }
    assert bucket.keys == [other]
    assert deployment.logs.lines == {}
    assert [each["action"] for each in deployment.invocations] == ["stop"]


def test_what_cannot_be_removed_is_named_with_the_reason_and_the_rest_goes(
    spotkeep: Any, deployment: Any, bucket: Bucket, make: Any
) -> None:
    recorded(deployment, make)
    bucket.keys, bucket.refuses = [f"runs/{RUN}/checkpoints/a"], True
    found = spotkeep("first-account", "--clean-up", "--yes", columns=200)
    assert found.exit_code == ExitCode.ORPHAN
    assert f"the objects of {RUN}" in found.stderr
    assert "AccessDenied" in found.stderr
    assert "spotkeep first-account --clean-up" in found.stderr
    assert deployment.logs.lines == {}


def test_a_pool_that_another_job_took_is_over_once_the_launcher_has_asked(
    spotkeep: Any, deployment: Any, bucket: Bucket, make: Any
) -> None:
    run = make.run(RUN, name="first-account", state=RunState.STOPPED, end_reason=EndReason.STOPPED_BY_USER)
    pool = {
        "run": RUN, "attempt": 1, "name": "first-account", "job_name": f"{RUN}-1", "kept_since": make.now,
        "traits": {"role_arn": "r", "instance_type": "ml.m5.large", "instance_count": 1, "volume_size_gb": 31},
        "keep_alive_seconds": 600, "kept_until": make.now, "chain_since": make.now,
    }  # fmt: skip
    deployment.dynamodb.add(run, pools=[Pool.model_validate(pool)])

    def ask(payload: dict[str, Any]) -> Any:
        taken = Pool.model_validate({**pool, "state": PoolState.REUSED, "reused_by": f"{RUN}-2"})
        deployment.dynamodb.add(run, pools=[taken])
        return {"ok": False, "problems": [{"field": "run", "found": RUN, "problem": f"{payload['action']}: gone"}]}

    deployment.invoke_launcher = ask
    found = spotkeep("first-account", "--clean-up", "--yes", "--json")
    assert json.loads(found.stdout) == {"ok": True, "removed": [], "left": []}


@pytest.mark.usefixtures("bucket", "prices")
def test_when_the_cost_comes_to_the_ceiling_the_jobs_are_stopped_and_removed(
    spotkeep: Any, deployment: Any, make: Any, bucket: Bucket, tmp_path: Path
) -> None:
    run = "first-account-pool-012345"
    dear = make.run(run, name="first-account", cost=make.cost(billed_usd=4.999))
    ended = make.run(run, name="first-account", state=RunState.STOPPED, cost=make.cost(billed_usd=4.999))
    deployment.answers |= {"launch": {"ok": True, "run": run}, "stop": {"ok": True, "run": run}}

    def launch(payload: dict[str, Any]) -> Any:
        if "action" not in payload:
            bucket.keys.append(f"runs/{run}/checkpoints/a")
            deployment.dynamodb.add(dear, attempts=[make.attempt(run)])
        if payload.get("action") == "stop":
            deployment.dynamodb.add(ended, attempts=[make.attempt(run)])
        return answered(payload)

    answered, deployment.invoke_launcher = deployment.invoke_launcher, launch
    found = spotkeep("first-account", "--yes", "--report", str(tmp_path))
    assert found.exit_code == ExitCode.RUN_STOPPED, (found.output, found.exception)
    assert "5.00 USD are spent, and the ceiling is 5.00 USD" in found.stderr
    assert [each.get("action", "launch") for each in deployment.invocations][-2:] == ["launch", "stop"]
    assert bucket.keys == []
    assert json.loads((tmp_path / "report.json").read_text())["ended_early"].startswith("5.00 USD are spent")


def test_without_a_deployment_the_command_says_how_one_is_made(spotkeep: Any) -> None:
    found = spotkeep("first-account", reachable=False)
    assert found.exit_code == ExitCode.NO_CONNECTION
    assert "spotkeep cdk deploy --all -c drills=true" in found.stderr
