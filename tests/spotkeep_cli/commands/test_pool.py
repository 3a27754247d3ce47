"""Warm pools on the command line: listed, matched, extended, ended, and taken over by `launch --like`."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from spotkeep_cli.errors import ExitCode
from spotkeep_jobs.record.record import Pool

OLD = "sweep-7f3a90c1"
ROLE = "arn:aws:iam::123456789012:role/spotkeep-execution"


def a_pool(now: Any, **fields: Any) -> dict[str, Any]:
    since = now - timedelta(minutes=12)
    document: dict[str, Any] = {
        "run": OLD,
        "attempt": 1,
        "name": "sweep",
        "owner": "ada@example.com",
        "job_name": f"{OLD}-1",
        "state": "AVAILABLE",
        "traits": {
            "role_arn": ROLE,
            "instance_type": "ml.g5.xlarge",
            "instance_count": 1,
            "volume_size_gb": 30,
        },
        "kept_since": since.isoformat(),
        "keep_alive_seconds": 1800,
        "kept_until": (since + timedelta(minutes=30)).isoformat(),
        "chain_since": (since - timedelta(hours=1)).isoformat(),
        "usd_per_hour": 1.408,
    }
    return document | fields


DIFFERENCES = [
    {"criterion": "ResourceConfig.InstanceType", "wanted": "ml.m5.xlarge", "offered": "ml.g5.xlarge"},
    {"criterion": "ResourceConfig.VolumeSizeInGB", "wanted": "50 GB", "offered": "30 GB"},
]


@pytest.fixture
def pools(deployment: Any, make: Any) -> Any:
    """A deployment with two pools, of which the job takes the second's."""
    other = a_pool(make.now, run="vision-00c0ffee", owner=None, usd_per_hour=None)
    deployment.answers["pools"] = {"ok": True, "pools": [a_pool(make.now), other]}
    deployment.answers["validate"] = {
        "ok": True,
        "warnings": [],
        "usd_per_hour": 1.408,
        "request": {
            "name": "digits",
            "command": ["python", "train.py"],
            "capacity": "on-demand",
            "instance_type": "ml.g5.xlarge",
            "max_run": 3600,
            "keep_alive": 1800,
        },
        "pools": [
            {"fits": True, "differences": [], "pool": a_pool(make.now)},
            {"fits": False, "differences": DIFFERENCES, "pool": other},
        ],
    }
    deployment.dynamodb.add(
        make.completed(
            OLD,
            instance_type="ml.g5.xlarge",
            capacity="on-demand",
            request={"name": "sweep", "instance_count": 1, "volume_size_gb": 30, "keep_alive": 900},
        )
    )
    return deployment


@pytest.mark.parametrize("columns", [100, 60])
def test_the_list(pools: Any, spotkeep: Any, snapshot: SnapshotAssertion, columns: int) -> None:
    result = spotkeep("pool", "ls", columns=columns)
    assert result.exit_code == ExitCode.DONE
    assert result.output == snapshot


def test_the_list_as_json_is_the_launchers_answer(pools: Any, spotkeep: Any) -> None:
    assert json.loads(spotkeep("pool", "ls", "--json").stdout) == pools.answers["pools"]


def test_no_pool_at_all_says_how_to_get_one(pools: Any, spotkeep: Any) -> None:
    pools.answers["pools"] = {"ok": True, "pools": []}
    assert "capacity: on-demand and keep_alive" in spotkeep("pool", "ls").output


def test_a_match_names_the_pool_and_every_criterion_of_the_others(
    pools: Any, spotkeep: Any, job_file: Path, snapshot: SnapshotAssertion
) -> None:
    result = spotkeep("pool", "match", "job.yaml")
    assert result.exit_code == ExitCode.DONE
    assert result.output == snapshot


def test_a_job_that_fits_none_is_shown_how_to(pools: Any, spotkeep: Any, job_file: Path) -> None:
    pools.answers["validate"]["pools"] = pools.answers["validate"]["pools"][1:]
    output = spotkeep("pool", "match", str(job_file)).output
    assert "takes none of them" in output
    assert "--like vision-00c0ffee" in output


def test_a_match_as_json(pools: Any, spotkeep: Any, job_file: Path) -> None:
    answer = json.loads(spotkeep("pool", "match", str(job_file), "--json").stdout)
    assert answer["takes"] == OLD
    assert [each["fits"] for each in answer["pools"]] == [True, False]
    assert answer["pools"][1]["differences"] == DIFFERENCES


def test_without_pools_a_match_says_so(pools: Any, spotkeep: Any, job_file: Path) -> None:
    pools.answers["validate"]["pools"] = []
    assert "starts on new instances" in spotkeep("pool", "match", str(job_file)).output


def test_extend_sends_the_time_and_says_until_when(pools: Any, make: Any, spotkeep: Any) -> None:
    longer = a_pool(make.now, keep_alive_seconds=2700, kept_until=(make.now + timedelta(minutes=33)).isoformat())
    pools.answers["extend-pool"] = {"ok": True, "run": OLD, "pool": longer}
    result = spotkeep("pool", "extend", "sweep", "15m")
    assert pools.invocations[-1] == {"action": "extend-pool", "run": OLD, "for": "15m"}, "it has left none, as recorded"
    assert "for another 33m" in " ".join(result.output.split())


def test_extend_says_when_the_pool_was_seen_to_end_so_that_a_repeated_call_extends_it_once(
    pools: Any, make: Any, spotkeep: Any
) -> None:
    """The command itself calls again where the connection breaks: once that extended the pool again."""
    pool = Pool.model_validate(a_pool(make.now))
    pools.dynamodb.add(make.completed(OLD, capacity="on-demand"), pools=[pool])
    pools.answers["extend-pool"] = {"ok": True, "run": OLD, "pool": a_pool(make.now)}
    spotkeep("pool", "extend", OLD, "15m")
    assert pools.invocations[-1]["kept_until"] == pool.kept_until.isoformat()


def test_a_refused_extension_names_the_limit(pools: Any, spotkeep: Any) -> None:
    problem = {
        "field": "for",
        "found": "1h",
        "problem": "would make the keep-alive period 1h30m; AWS documents 1h as the longest",
        "fix": "Extend it by 30m at most, or run a job on it: its pool is kept anew.",
    }
    pools.answers["extend-pool"] = {"ok": False, "error": "refused", "problems": [problem], "warnings": []}
    result = spotkeep("pool", "extend", OLD, "1h")
    assert result.exit_code == ExitCode.REFUSED
    assert "AWS documents 1h as the longest" in " ".join(result.output.split())


def test_stop_asks_first_and_says_what_it_cost(pools: Any, make: Any, spotkeep: Any) -> None:
    over = a_pool(make.now, state="ENDED", end_reason="STOPPED_BY_USER", idle_seconds=720)
    pools.answers["stop-pool"] = {"ok": True, "run": OLD, "pool": over}
    assert spotkeep("pool", "stop", OLD).exit_code != ExitCode.DONE
    assert pools.invocations == []
    output = spotkeep("pool", "stop", OLD, "-y").output
    assert pools.invocations == [{"action": "stop-pool", "run": OLD}]
    assert "Its idle time cost $0.28" in " ".join(output.split())


class TestLaunch:
    @pytest.fixture
    def launchable(self, pools: Any) -> Any:
        pools.answers["launch"] = {
            "ok": True, "run": OLD, "job_name": f"{OLD}-1", "attempt": 1, "replayed": False, "warnings": [], "next": [],
        }  # fmt: skip
        return pools

    def test_the_match_is_shown_before_it_asks(self, launchable: Any, spotkeep: Any, job_file: Path) -> None:
        result = spotkeep("launch", str(job_file))
        assert result.exit_code != ExitCode.DONE
        assert f"it takes the one that {OLD} left" in " ".join(result.output.split())
        assert [each["action"] for each in launchable.invocations] == ["validate"]

    def test_a_match_that_fails_names_what_differs(self, launchable: Any, spotkeep: Any, job_file: Path) -> None:
        launchable.answers["validate"]["pools"] = launchable.answers["validate"]["pools"][1:]
        output = " ".join(spotkeep("launch", str(job_file)).output.split())
        assert "that of vision-00c0ffee differs in InstanceType, VolumeSizeInGB" in output

    def test_like_takes_over_what_matters_and_nothing_else(
        self, launchable: Any, spotkeep: Any, job_file: Path
    ) -> None:
        assert spotkeep("launch", str(job_file), "--like", "sweep", "-y", "--detach").exit_code == ExitCode.DONE
        sent = launchable.invocations[-1]
        assert sent["capacity"] == "on-demand"
        assert sent["instance_type"] == "ml.g5.xlarge"
        assert (sent["volume_size_gb"], sent["instance_count"], sent["keep_alive"]) == (30, 1, 900)
        assert "max_wait" not in sent
        assert sent["name"] == "digits"
        assert sent["hyperparameters"] == {"lr": "1e-3"}

    def test_like_keeps_the_files_own_keep_alive(self, launchable: Any, spotkeep: Any, job_file: Path) -> None:
        spotkeep("launch", str(job_file), "--like", OLD, "--set", "keep_alive=5m", "-y", "--detach")
        assert launchable.invocations[-1]["keep_alive"] == "5m"

    def test_like_a_run_that_is_not_there_is_refused(self, launchable: Any, spotkeep: Any, job_file: Path) -> None:
        result = spotkeep("launch", str(job_file), "--like", "no-run", "-y")
        assert "there is no run 'no-run'" in result.output
        assert launchable.invocations == []
