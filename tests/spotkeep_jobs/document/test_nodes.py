"""The fields `nodes`, `nodes_wait` and `network`: what is taken, what is refused with each reason, and what n cost."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.document.capacity import affordable_seconds, fallbacks_of
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults, SpendingLimits
from spotkeep_jobs.document.nodes import NodesRange
from spotkeep_jobs.document.request import JobRequest, Validation, validate
from spotkeep_jobs.document.spending import worst_case_usd

NOW = datetime(2026, 11, 29, tzinfo=UTC)
PRICES = {"g5.xlarge": 1.0, "g5.2xlarge": 1.5}
DOCUMENT = {
    "name": "first",
    "command": "python train.py",
    "backend": "ec2",
    "instance_types": ["g5.xlarge", "g5.2xlarge"],
    "distributed": "torchrun",
    "nodes": 2,
}
SAGEMAKER = {
    "backend": None,
    "instance_types": ["ml.g5.xlarge"],
    "image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/i:1",
}


def judged(limit_usd: float | None = None, volume_limit_gb: int | None = None, **fields: Any) -> Validation:
    limits = SpendingLimits(run_cost_limit_usd=limit_usd, volume_size_limit_gb=volume_limit_gb)
    defaults = DeploymentDefaults(
        fleet_instance_types=("g5.xlarge",), instance_type="ml.g5.xlarge", prices=PRICES, limits=limits
    )
    return validate({**DOCUMENT, **fields}, defaults=defaults, now=NOW)


def test_a_network_in_one_word_is_shown_its_form() -> None:
    said = refused(nodes=2, network="cluster")["network"]
    assert said.startswith("is not an object")
    assert 'For example: {"placement": "cluster", "efa": true}.' in said


def test_a_warm_pool_on_ec2_is_one_problem() -> None:
    said = judged(nodes=2, keep_alive="30m").problems
    assert [(each.field, each.found, each.problem) for each in said] == [
        ("keep_alive", "30m", "is not taken with backend: ec2")
    ]


def refused(**fields: Any) -> dict[str, str]:
    return {each.field: f"{each.problem} (found {each.found}). {each.fix}" for each in judged(**fields).problems}


@pytest.mark.parametrize(
    ("given_field", "several", "hosts"),
    [
        (None, None, 1),
        (1, None, 1),
        ({"min": 1, "max": 1}, None, 1),
        (2, NodesRange(min=2, max=2), 2),
        ({"min": 1, "max": 4}, NodesRange(min=1, max=4), 4),
        ({"min": 2, "max": 8}, NodesRange(min=2, max=8), 8),
        (64, NodesRange(min=64, max=64), 64),
    ],
)
def test_the_nodes_of_a_run(given_field: Any, several: NodesRange | None, hosts: int) -> None:
    request = judged(nodes=given_field).accepted()
    assert (request.several_nodes, request.hosts) == (several, hosts)
    assert judged(**{"nodes": None, **request.as_document()}).accepted() == request


def test_the_wait_and_the_network_have_defaults() -> None:
    request = judged().accepted()
    assert (request.nodes_wait_seconds, request.network) == (600, None)
    asked = judged(nodes_wait="30m", network={"placement": "cluster", "efa": True}).accepted()
    assert asked.nodes_wait_seconds == 1800
    assert asked.network is not None
    assert (asked.network.placement, asked.network.efa) == ("cluster", True)
    assert judged(**asked.as_document()).accepted() == asked


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"nodes": 0}, "nodes", "1 to 64"),
        ({"nodes": 65}, "nodes", "1 to 64"),
        ({"nodes": True}, "nodes", "as {min: 2, max: 8}"),
        ({"nodes": "2"}, "nodes", "is neither a whole number"),
        ({"nodes": {"min": 2}}, "nodes.max", "is required"),
        ({"nodes": {"min": 2, "max": 65}}, "nodes.max", "1 to 64"),
        ({"nodes": {"min": 2, "max": 2, "wait": 3}}, "nodes.wait", "is not a known field"),
        ({"nodes": {"min": 3, "max": 2}}, "nodes.min", "is above nodes.max (2)"),
        ({"nodes": {"min": 2, "max": 1}}, "nodes.min", "is above nodes.max (1)"),
        ({"distributed": None}, "distributed", "found nothing). Write distributed: torchrun"),
        ({"distributed": "none"}, "distributed", "found none). Write distributed: torchrun"),
        ({"distributed": "mpi"}, "distributed", "found mpi). Write distributed: torchrun"),
        ({"checkpoints": False}, "checkpoints", "Let the script save checkpoints"),
        ({"volume": {"volume": "vol-0123456789abcdef0"}}, "volume.volume", "copy its data to S3"),
        ({"volume": {"snapshot": "snap-0123456789abcdef0"}}, "volume.snapshot", "copy its data to S3"),
        ({"volume": {"type": "io2", "iops": 3000}}, "volume.iops", "only size_gb counts"),
        ({"volume": {"when_done": "delete"}}, "volume.when_done", "only size_gb counts"),
        ({"nodes_wait": "30s"}, "nodes_wait", "1m to 1d"),
        ({"nodes": 1, "nodes_wait": "10m"}, "nodes_wait", "found 10m). Write nodes: 2 or more"),
        ({"nodes": 1, "network": {"efa": True}}, "network", "one instance has no network to others"),
        ({"nodes": None, "network": {"efa": True}}, "network", "Write nodes: 2 or more"),
        ({"network": {"placement": "spread"}}, "network.placement", "Choose cluster"),
        ({"network": {"efa": "yes"}}, "network.efa", "Write true or false"),
        ({"instance_count": 2}, "instance_count", "Write nodes:"),
        ({"command": "torchrun --nnodes 2 a.py"}, "command", "the runner gives torchrun the hosts"),
        ({"stuck": {"after": "30m", "restart": True}}, "stuck.restart", "2 instances"),
        ({"queue": "gpu"}, "queue", "backend"),
        ({"num_nodes": 2}, "num_nodes", "Did you mean `nodes`?"),
        ({**SAGEMAKER, "nodes": 2}, "nodes", "instance_count:"),
        ({**SAGEMAKER, "nodes": None, "nodes_wait": 600}, "nodes_wait", "add backend: ec2"),
        ({**SAGEMAKER, "nodes": None, "network": {"efa": True}}, "network", "add backend: ec2"),
        ({**SAGEMAKER, "nodes": None, "num_nodes": 2}, "num_nodes", "Did you mean `instance_count`?"),
    ],
)
def test_what_nodes_cannot_do_is_refused_with_the_way(fields: dict[str, Any], field: str, said: str) -> None:
    assert said in refused(**fields)[field]


@pytest.mark.parametrize(
    ("unread", "fields"),
    [
        ({"distributed": {"launcher": "torchrun", "processes": -1}}, {"nodes.min", "checkpoints", "volume.type"}),
        ({"volume": {"size": 9, "type": "io2"}}, {"nodes.min", "checkpoints", "distributed"}),
        ({"checkpoints": "no"}, {"nodes.min", "distributed", "volume.type"}),
    ],
)
def test_a_field_that_cannot_be_read_hides_no_problem_of_the_nodes(unread: dict[str, Any], fields: set[str]) -> None:
    others = {"distributed": "mpi", "checkpoints": False, "volume": {"type": "io2"}, "nodes": {"min": 8, "max": 2}}
    found = {problem.field for problem in judged(**others | unread).problems}
    assert fields <= found
    assert any(field.partition(".")[0] in unread for field in found)


@pytest.mark.parametrize("has_group", [True, False, None])
def test_nodes_are_refused_where_the_deployment_is_older_than_they_are(has_group: bool | None) -> None:
    """Its functions know nodes before its stacks do: without the security group no node reaches another one."""
    defaults = DeploymentDefaults(fleet_instance_types=("g5.xlarge",), prices=PRICES, nodes_network=has_group)
    problems = validate(DOCUMENT, defaults=defaults, now=NOW).problems
    assert [each.field for each in problems] == (["nodes"] if has_group is False else [])
    assert all("cdk deploy --all" in each.fix for each in problems)
    one = validate({**DOCUMENT, "nodes": 1}, defaults=defaults, now=NOW)
    assert not one.problems


def test_all_reasons_come_at_once() -> None:
    both = refused(
        nodes={"min": 3, "max": 2},
        checkpoints=False,
        distributed="mpi",
        volume={"volume": "vol-0123456789abcdef0", "type": "gp2"},
        instance_count=2,
    )
    assert set(both) == {
        *("nodes.min", "checkpoints", "distributed", "volume.volume", "volume.type", "instance_count"),
    }


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"nodes_wait": "10m", "network": {"efa": True}, "volume": {"size_gb": 100}, "max_price": 2},
        {"instance_type": None, "nodes": 8},
        {"instance_type": None, "instance_types": ["g5.xlarge", "g6.xlarge"]},
    ],
)
def test_nodes_without_a_backend_are_one_problem_with_one_fix(fields: dict[str, Any]) -> None:
    assert refused(**{"backend": None, **fields}) == {
        "nodes": "is for EC2, and a job without backend runs on SageMaker "
        f"(found {fields.get('nodes', 2)}). Add backend: ec2."
    }
    judged(**{**fields, "backend": "ec2"}).accepted()


def test_what_backend_ec2_leaves_wrong_is_named_with_it() -> None:
    assert list(refused(backend=None, checkpoints=False)) == ["nodes", "checkpoints"]


def test_of_nodes_on_sagemaker_only_they_are_wrong() -> None:
    given_fields = {**SAGEMAKER, "nodes_wait": "10m", "network": {"efa": True}}
    assert list(refused(**given_fields)) == ["nodes"]
    assert list(refused(**{**given_fields, "backend": None})) == ["nodes"]


@pytest.mark.parametrize("command", ["cd a\npython b.py\n", "accelerate launch a.py", "torchrun --nnodes 2 a.py"])
def test_no_remedy_is_one_that_nodes_refuse(command: str) -> None:
    assert not any("distributed: none" in text for text in refused(command=command).values())
    assert any("distributed: none" in text for text in refused(command=command, nodes=1, instance_count=2).values())


nodes_ranges = st.integers(1, 64).flatmap(
    lambda most: st.integers(1, most).map(lambda least: {"min": least, "max": most})
)


@given(nodes=nodes_ranges, runs_seconds=st.integers(60, 100_000))
def test_the_worst_case_counts_the_most_nodes(nodes: dict[str, int], runs_seconds: int) -> None:
    def worst(**fields: Any) -> float:
        request = judged(max_run=runs_seconds, **fields).accepted()
        return worst_case_usd(request, prices=PRICES, now=NOW)

    assert worst(nodes=nodes) == pytest.approx(nodes["max"] * worst(nodes=None))


@given(nodes=nodes_ranges, max_cost=st.floats(100, 10_000))
def test_max_cost_pays_for_the_most_nodes(nodes: dict[str, int], max_cost: float) -> None:
    request = judged(nodes=nodes, max_cost=max_cost).accepted()
    seconds = affordable_seconds(request, fallbacks_of(request)[0], spent_usd=0.0, prices=PRICES)
    assert seconds is not None
    assert (seconds + 960) / 3600 * 1.5 * nodes["max"] <= max_cost + 1e-6


def test_the_ceiling_of_a_deployment_counts_nodes() -> None:
    assert judged(limit_usd=100, nodes=None).request is not None
    assert "144.00 USD" in refused(limit_usd=100, nodes=2)["max_wait"]


def test_nodes_without_checkpoints_are_not_warned_of_a_volume_that_they_do_not_have() -> None:
    assert any("on the volume alone" in each for each in judged(nodes=1, checkpoints=False).warnings)
    assert not any("volume" in each for each in judged(checkpoints=False).warnings)


def test_a_root_disk_is_bounded_where_the_document_asks_for_it() -> None:
    assert judged(volume_limit_gb=50).request is not None
    assert "volume.size_gb" in refused(volume_limit_gb=50, volume={"size_gb": 60})


def test_a_recorded_request_keeps_its_nodes() -> None:
    request = judged(nodes={"min": 2, "max": 8}).accepted()
    assert JobRequest.model_validate(request.as_document()) == request


def test_a_wait_for_nodes_that_leaves_no_time_for_another_place_is_named() -> None:
    [warning] = [each for each in judged(nodes_wait="3h", max_run="1h", max_wait="2h").warnings if "nodes_wait" in each]
    assert "nodes_wait 3h is as long as the whole run may take (max_wait 2h)" in warning
    assert not any("nodes_wait" in each for each in judged(nodes_wait="1h", max_run="1h", max_wait="2h").warnings)


@pytest.mark.parametrize("launcher", [None, "none"])
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("pip install x\npython train.py", "has several lines, and ranks are started of one program"),
        ("mpirun -n 2 python train.py", "starts ranks itself, and distributed: torchrun would start it once a rank"),
        ("torchrun --nnodes 2 train.py", "places the hosts itself, as distributed: torchrun does on 2 hosts"),
    ],
)
def test_a_command_that_torchrun_cannot_start_is_named_together_with_torchrun(
    launcher: str | None, command: str, said: str
) -> None:
    found = refused(distributed=launcher, command=command)
    assert found.keys() == {"distributed", "command"}
    assert found["command"].startswith(said)


@pytest.mark.parametrize("backend", ["ec2", None])
def test_a_range_of_instances_is_answered_with_nodes(backend: str | None) -> None:
    given = {} if backend == "ec2" else SAGEMAKER
    said = refused(nodes=None, distributed=None, instance_count={"min": 2, "max": 8}, **given)["instance_count"]
    assert said == (
        "is a range, and a job of SageMaker has one number of instances (found {'max': 8, 'min': 2}). "
        "Write one number. Or let the number change while it trains: backend: ec2, with nodes: {min: 2, max: 8}."
    )
