"""The field `distributed`: what is taken, what is refused with each reason, and the ranks that a job starts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.runner.environment import Hardware
from spotkeep.runner.ranks import MeetingPlace, ranks_command
from spotkeep_fleet.ranks import Ranks
from spotkeep_jobs.document.command import training_spec_of
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
from spotkeep_jobs.document.request import Validation, validate


def judged(**fields: Any) -> Validation:
    document = {
        "name": "first",
        "command": "python train.py",
        "image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/i:1",
    }
    return validate({**document, **fields}, defaults=DeploymentDefaults(instance_type="ml.g5.12xlarge"))


def refused(**fields: Any) -> dict[str, str]:
    return {each.field: f"{each.problem}. {each.fix}" for each in judged(**fields).problems}


@pytest.mark.parametrize(
    ("given_field", "ranks"),
    [
        (None, None),
        ("none", None),
        ("torchrun", Ranks("torchrun", None)),
        ("mpi", Ranks("mpi", None)),
        ({"launcher": "torchrun"}, Ranks("torchrun", None)),
        ({"launcher": "torchrun", "processes": "auto"}, Ranks("torchrun", None)),
        ({"launcher": "torchrun", "processes": 4}, Ranks("torchrun", 4)),
    ],
)
def test_the_ranks_of_a_job_stand_in_its_spec(given_field: Any, ranks: Ranks | None) -> None:
    request = judged(distributed=given_field).accepted()
    assert training_spec_of(request).distributed == ranks
    assert judged(**request.as_document()).accepted() == request


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"distributed": "torch"}, "distributed.launcher", "Choose torchrun, mpi or none"),
        ({"distributed": True}, "distributed", "Write torchrun, mpi or none"),
        ({"distributed": {"processes": 4}}, "distributed.launcher", "is required"),
        ({"distributed": {"launcher": "torchrun", "processes": 0}}, "distributed.processes", "1 to 512"),
        ({"distributed": {"launcher": "torchrun", "processes": True}}, "distributed.processes", "1 to 512"),
        ({"distributed": {"launcher": "none", "processes": 4}}, "distributed.processes", "starts no ranks"),
        ({"distributed": {"launcher": "torchrun", "nodes": 2}}, "distributed.nodes", "not a known field"),
        ({"distributed": "torchrun", "command": "cd src\npython train.py\n"}, "distributed", "as setup"),
        ({"distributed": "torchrun", "command": "accelerate launch train.py"}, "command", "starts ranks itself"),
        ({"distributed": "torchrun", "command": ["sh", "-c", "exec torchrun a.py"]}, "command", "starts ranks itself"),
        ({"distributed": "torchrun", "command": "uv run torchrun a.py"}, "command", "starts ranks itself"),
        ({"distributed": "torchrun", "command": "python -m accelerate.commands.launch a.py"}, "command",
         "starts ranks itself"),
        ({"distributed": "torchrun", "command": "python -u -W ignore -m accelerate.commands.launch a.py"}, "command",
         "starts ranks itself"),
        ({"distributed": "torchrun", "command": "env A=1 python -m torch.distributed.run a.py"}, "command",
         "starts ranks itself"),
        ({"distributed": "torchrun", "command": "uv run python -m accelerate.commands.launch a.py"}, "command",
         "starts ranks itself"),
        ({"distributed": "mpi", "command": "torchrun a.py"}, "command", "starts ranks itself"),
        ({"distributed": "mpi", "instance_count": 2}, "distributed", "by ssh"),
        ({"distributed": "torchrun", "instance_count": 2, "command": "torchrun --standalone a.py"}, "command",
         "the runner gives torchrun the hosts"),
        ({"distributed": {"launcher": "torchrun", "processes": 4}, "command": "torchrun --nproc_per_node=8 a.py"},
         "distributed.processes", "Remove one of the two"),
        ({"distributed": "torchrun", "command": None}, "distributed", "has no effect without a command"),
        ({"distributed": "torchrun", "backend": "ec2", "instance_count": 2, "instance_types": ["g5.xlarge"]},
         "instance_count", "Write nodes: for instances that train together"),
        ({"distributed": "torchrun", "instance_count": 2, "stuck": {"after": "30m", "restart": True}},
         "stuck.restart", "wait for each other"),
        ({"distribution": {"torch_distributed": {"enabled": True}}}, "distribution", "Did you mean `distributed`?"),
    ],
)  # fmt: skip
def test_what_cannot_be_started_is_refused_with_the_way(fields: dict[str, Any], field: str, said: str) -> None:
    assert said in refused(**fields)[field]


def test_all_reasons_come_at_once() -> None:
    line = "torchrun --nnodes 2 --nproc-per-node 8 a.py"
    both = refused(distributed={"launcher": "torchrun", "processes": 4}, instance_count=2, command=line)
    assert set(both) == {"command", "distributed.processes"}
    assert set(refused(distributed="mpi", instance_count=2, command="srun a")) == {"command", "distributed"}


def test_instance_count_on_ec2_is_answered_with_nothing_of_sagemaker() -> None:
    """Nodes on EC2 train together by torchrun alone."""
    on_ec2 = {"backend": "ec2", "instance_count": 2, "instance_types": ["g5.xlarge"]}
    assert "distributed" not in refused(**on_ec2, distributed="mpi")
    assert not any("SM_HOSTS" in warning for warning in judged(**on_ec2).warnings)


def test_a_line_of_torchrun_needs_two_more_lines_and_no_other_change() -> None:
    request = judged(
        command="torchrun --nproc-per-node 8 train.py", instance_count=2, distributed="torchrun"
    ).accepted()
    assert request.command == ("torchrun", "--nproc-per-node", "8", "train.py")
    assert judged(command="torchrun --standalone train.py", distributed="torchrun").accepted()
    for one_rank in ("uv run train.py", "python -m pkg --launcher torchrun", "./train", "bash train.sh"):
        assert judged(command=one_rank, distributed="torchrun").accepted()


@pytest.mark.parametrize(
    ("fields", "is_warned"),
    [
        ({}, True),
        ({"command": "torchrun --nproc-per-node 8 train.py"}, True),
        ({"distributed": "none"}, False),
        ({"distributed": "torchrun"}, False),
        ({"command": ["sh", "-c", 'exec torchrun --node-rank "$SM_CURRENT_HOST_RANK" a.py']}, False),
        ({"command": "echo $SM_HOSTS\npython train.py\n"}, False),
        ({"instance_count": 1}, False),
    ],
)
def test_hosts_that_do_not_know_of_each_other_are_warned_of(fields: dict[str, Any], is_warned: bool) -> None:
    warnings = judged(**{"instance_count": 2, **fields}).warnings
    assert any("without distributed" in each for each in warnings) is is_warned


@pytest.mark.parametrize(("checkpoints", "said"), [(True, True), (False, False)])
def test_hosts_that_replace_each_others_checkpoints_are_warned_of(checkpoints: bool, said: bool) -> None:
    """SageMaker copies the checkpoints of all hosts to one prefix."""
    (warning,) = (each for each in judged(instance_count=2, checkpoints=checkpoints).warnings if "SM_HOSTS" in each)
    assert ("replace each other" in warning) is said


COMMANDS = st.sampled_from(
    ["python train.py", "torchrun train.py", "torchrun --nproc-per-node 4 a.py", "torchrun --nnodes 2 a.py",
     "./train --x", "accelerate launch a.py", "python -m torch.distributed.run --standalone a.py",
     "python -u -m torch.distributed.run a.py", "nice python -X dev -m torch.distributed.launch a.py",
     "cd a\npython b.py\n",
     ["bash", "-c", "torchrun a.py"], "mpirun a"]
)  # fmt: skip


@given(
    command=COMMANDS,
    launcher=st.sampled_from(["torchrun", "mpi", "none"]),
    processes=st.sampled_from(["auto", 1, 8]),
    hosts=st.integers(1, 3),
)
def test_what_is_accepted_starts_its_ranks_on_each_host_once(
    command: Any, launcher: str, processes: Any, hosts: int
) -> None:
    validation = judged(
        command=command, distributed={"launcher": launcher, "processes": processes}, instance_count=hosts
    )
    if validation.request is None:
        return
    spec = training_spec_of(validation.request)
    if spec.distributed is None:
        assert launcher == "none"
        return
    assert not isinstance(spec.command, str)
    for rank in range(hosts):
        words = ranks_command(
            spec.distributed, command=spec.command, environment={}, hardware=Hardware(cpus=1, gpus=2, neurons=0),
            place=MeetingPlace(hosts=hosts, host_rank=rank, address="algo-1", port=7777),
        )  # fmt: skip
        line = " ".join(words)
        assert hosts == 1 or f"--nnodes={hosts} --node_rank={rank} --master_addr=algo-1" in line
        starters = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "mpirun", "accelerate")
        assert sum(line.count(each) for each in starters) == 1


@pytest.mark.parametrize("count", [0, "two", {"min": 2, "max": 4}])
def test_a_number_of_hosts_that_cannot_be_read_hides_no_problem_of_the_command(count: Any) -> None:
    two_numbers = {"launcher": "torchrun", "processes": 4}
    said = refused(instance_count=count, command="torchrun --nproc-per-node 8 train.py", distributed=two_numbers)
    assert set(said) == {"instance_count", "distributed.processes"}
    assert set(refused(instance_count=count, command="deepspeed train.py", distributed="torchrun")) == {
        "instance_count",
        "command",
    }
