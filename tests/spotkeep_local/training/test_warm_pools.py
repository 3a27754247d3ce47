"""Warm pools with real hosts: who takes one, what stays on it, what it costs, and how it ends."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_local.training.job import Ending, PoolStatus, SecondaryStatus, TrainingJob, WarmPool
from spotkeep_local.training.warm_pools import (
    LONGEST_CHAIN_SECONDS,
    expires_at,
    instances_in_pools,
    pool_after,
    pool_for,
)

REMEMBERING_SCRIPT = """
import json.tool, os, pathlib
base = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
cache = base / "sagemaker" / "warmpoolcache"
cache.mkdir(parents=True, exist_ok=True)
home = pathlib.Path.home() / "state"
print("cached:", *sorted(path.name for path in cache.iterdir()))
print("home:", home.read_text() if home.exists() else "fresh")
print("remaining:", *sorted(path.name for path in (base / "model").iterdir()))
(cache / os.environ["TRAINING_JOB_NAME"]).touch()
home.write_text("used")
(base / "model" / "weights").write_text("1")
compiled = list(pathlib.Path(os.environ["PYTHONPYCACHEPREFIX"]).rglob("tool*.pyc"))
print("made at", compiled[0].stat().st_mtime_ns)
"""


def resources(seconds: int = 600, **changes: Any) -> dict[str, Any]:
    return {
        "InstanceType": "ml.m5.large",
        "InstanceCount": 1,
        "VolumeSizeInGB": 10,
        "KeepAlivePeriodInSeconds": seconds,
    } | changes


def create(training: Any, name: str, *, seconds: int = 600, **changes: Any) -> None:
    training.create(name, REMEMBERING_SCRIPT, **{"spot": False, "ResourceConfig": resources(seconds)} | changes)


def run(training: Any, name: str, **changes: Any) -> dict[str, Any]:
    create(training, name, **changes)
    ended: dict[str, Any] = training.wait_ended(name)
    return ended


def pool(training: Any, name: str) -> dict[str, Any]:
    status: dict[str, Any] = training.describe(name)["WarmPoolStatus"]
    return status


def keep_alive(training: Any, name: str, seconds: int) -> None:
    training.call("UpdateTrainingJob", TrainingJobName=name, ResourceConfig={"KeepAlivePeriodInSeconds": seconds})


@pytest.mark.long
class TestHosts:
    def test_the_next_job_begins_on_the_very_host_and_one_that_leaves_no_pool_ends_it(self, training: Any) -> None:
        create(training, "first")
        assert pool(training, "first")["Status"] in {"InUse", "Available"}
        training.wait_ended("first")
        assert pool(training, "first")["Status"] == "Available"

        run(training, "second")
        assert pool(training, "first") == {
            "Status": "Reused",
            "ResourceRetainedBillableTimeInSeconds": pool(training, "first")["ResourceRetainedBillableTimeInSeconds"],
            "ReusedByJob": "second",
        }
        assert pool(training, "second")["Status"] == "Available"
        assert training.facts("second").took_over == "first"
        *of_first, made = training.log("first")[-4:]
        assert of_first == ["cached:", "home: fresh", "remaining:"]
        # A fresh host makes the byte code of what the job imports; the next job finds it there.
        assert training.log("second")[-4:] == ["cached: first", "home: used", "remaining:", made]

        for status, names in (("Reused", ["first"]), ("Available", ["second"]), ("Terminated", [])):
            found = training.call("ListTrainingJobs", WarmPoolStatusEquals=status)["TrainingJobSummaries"]
            assert [summary["TrainingJobName"] for summary in found] == names
            assert all(summary["WarmPoolStatus"]["Status"] == status for summary in found)
        _, message = training.refusal(
            "UpdateTrainingJob", TrainingJobName="first", ResourceConfig={"KeepAlivePeriodInSeconds": 60}
        )
        assert "Reused" in message

        assert "WarmPoolStatus" not in run(training, "third", seconds=0)
        assert pool(training, "second")["ReusedByJob"] == "third"
        assert list((training.folder / "hosts").rglob("warmpoolcache")) == []

    def test_a_job_that_never_had_its_data_leaves_none(self, training: Any) -> None:
        request = training.request("first", spot=False, ResourceConfig=resources())
        training.put("code/train.py", REMEMBERING_SCRIPT)
        request["CheckpointConfig"]["S3Uri"] = "s3://no-such-bucket/checkpoints/"
        training.call("CreateTrainingJob", **request)
        assert training.wait_ended("first")["TrainingJobStatus"] == "Failed"
        assert pool(training, "first")["Status"] == "Terminated"

    def test_its_time_is_changed_while_it_waits_and_its_host_ends_with_it(self, training: Any) -> None:
        run(training, "first")
        code, message = training.refusal(
            "UpdateTrainingJob", TrainingJobName="first", ResourceConfig={"KeepAlivePeriodInSeconds": 3601}
        )
        assert (code, "at most 3600" in message) == ("ValidationException", True)
        keep_alive(training, "first", 1)
        assert training.describe("first")["ResourceConfig"]["KeepAlivePeriodInSeconds"] == 1
        training.wait_until(lambda: pool(training, "first")["Status"] == "Terminated")
        assert pool(training, "first")["ResourceRetainedBillableTimeInSeconds"] == 1
        training.wait_until(lambda: not (training.folder / "hosts" / "first").exists())

        training.create("second", "", spot=False, ResourceConfig=resources())
        training.wait_ended("second")
        keep_alive(training, "second", 0)
        assert pool(training, "second")["Status"] == "Terminated"
        assert not (training.folder / "hosts" / "second").exists()

    def test_it_outlives_the_server_and_no_longer_than_its_time(self, training: Any) -> None:
        run(training, "first")
        run(training, "short", seconds=1, ResourceConfig=resources(1, InstanceType="ml.m5.xlarge"))
        training.service.stop()
        time.sleep(1.1)
        training.restart()
        training.wait_until(lambda: pool(training, "short")["Status"] == "Terminated")
        assert pool(training, "short")["ResourceRetainedBillableTimeInSeconds"] == 1
        run(training, "second")
        assert training.log("second")[-4] == "cached: first"


# The rules, without processes.


def a_job(name: str = "first", *, waiting: bool = True, **changes: Any) -> TrainingJob:
    request = {"RoleArn": "role", "ResourceConfig": resources(600)} | changes
    kept = WarmPool(chain_since=0.0, status=PoolStatus.AVAILABLE, kept_since=1000.0)
    return TrainingJob(
        name=name,
        arn=name,
        request=request,
        created_at=0.0,
        updated_at=1000.0,
        warm_pool=kept if waiting else WarmPool(chain_since=0.0),
    )


class TestRules:
    @given(st.floats(0, 2000))
    def test_a_pool_is_taken_before_its_time_is_over_and_not_after(self, now: float) -> None:
        found = pool_for({"RoleArn": "role", "ResourceConfig": resources(60)}, [a_job()], now=now)
        assert (found is not None) == (now < 1600.0)

    @pytest.mark.parametrize(
        "other",
        [
            {"RoleArn": "another"},
            {"ResourceConfig": resources(InstanceType="ml.m5.xlarge")},
            {"ResourceConfig": resources(VolumeSizeInGB=11)},
            {"EnableNetworkIsolation": True},
            {"VpcConfig": {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]}},
            {"EnableManagedSpotTraining": True},
        ],
        ids=["role", "type", "volume", "isolation", "network", "spot"],
    )
    def test_a_job_that_differs_in_a_criterion_takes_none(self, other: dict[str, Any]) -> None:
        same = {"RoleArn": "role", "ResourceConfig": resources(60)}
        assert pool_for(same, [a_job()], now=1300.0) is not None
        assert pool_for(same | other, [a_job()], now=1300.0) is None

    def test_of_several_the_one_that_waits_longest_is_taken(self) -> None:
        jobs = [replace(a_job("late"), updated_at=1200.0), a_job("early")]
        found = pool_for({"RoleArn": "role", "ResourceConfig": resources(60)}, jobs, now=1300.0)
        assert found is not None
        assert found.name == "early"

    def test_the_chain_ends_after_28_days(self) -> None:
        job = a_job()
        kept = WarmPool(status=PoolStatus.AVAILABLE, chain_since=0.0, kept_since=LONGEST_CHAIN_SECONDS - 100.0)
        assert expires_at(replace(job, warm_pool=kept)) == LONGEST_CHAIN_SECONDS

    def test_idle_time_stops_when_the_pool_is_over(self) -> None:
        kept = WarmPool(status=PoolStatus.AVAILABLE, chain_since=0.0, kept_since=10.0)
        assert kept.idle_seconds(15.2) == 6
        assert kept.over(PoolStatus.REUSED, now=15.0).idle_seconds(99.0) == 5
        assert WarmPool(chain_since=0.0).idle_seconds(99.0) == 0

    def test_the_quota_counts_what_is_in_use_or_waits(self) -> None:
        over = replace(a_job(), warm_pool=WarmPool(chain_since=0.0, status=PoolStatus.REUSED))
        assert instances_in_pools([a_job(), a_job(waiting=False), over]) == 2

    @pytest.mark.parametrize(
        ("reason", "has_host", "status"),
        [
            (None, True, PoolStatus.AVAILABLE),
            ("AlgorithmError: x", True, PoolStatus.AVAILABLE),
            ("InternalServerError: x", True, PoolStatus.TERMINATED),
            (None, False, PoolStatus.TERMINATED),
        ],
    )
    def test_only_some_endings_leave_one(self, reason: str | None, has_host: bool, status: PoolStatus) -> None:
        ending = Ending(secondary=SecondaryStatus.FAILED, failure_reason=reason)
        left = pool_after(a_job(waiting=False), ending, has_hosts=has_host, now=5.0)
        assert left is not None
        assert left.status is status
