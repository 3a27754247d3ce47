"""Tasks of SkyPilot and dstack become job files, and each field is taken or named."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_cli.importing.task_file import import_task
from spotkeep_cli.importing.training_job import ImportedJob
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
from spotkeep_jobs.document.request import validate


def imported(text: str, backend: Any = "sagemaker") -> tuple[dict[str, Any], dict[str, str]]:
    job = import_task(yaml.safe_load(text), name="task", backend=backend)
    return job.fields, {each.field: each.why for each in job.left_out}


def test_a_task_of_skypilot_on_several_nodes_starts_the_same_ranks() -> None:
    """The form of its page on distributed jobs."""
    fields, left_out = imported("""
        name: resnet-distributed
        workdir: .
        num_nodes: 2
        resources: {accelerators: "A100:8", use_spot: true, disk_size: 200, infra: aws/us-east-1, ports: 8081}
        envs: {EPOCHS: 3, HF_TOKEN: null}
        setup: pip install -r requirements.txt
        run: |
          MASTER_ADDR=$(echo "$SKYPILOT_NODE_IPS" | head -n1)
          echo "on $MASTER_ADDR"
          torchrun \\
            --nnodes=$SKYPILOT_NUM_NODES --nproc_per_node=$SKYPILOT_NUM_GPUS_PER_NODE \\
            --master_addr=$MASTER_ADDR --node_rank $SKYPILOT_NODE_RANK --master_port=8008 \\
            --log-dir logs train.py --epochs 20
    """)
    assert fields == {
        "name": "resnet-distributed", "instance_count": 2, "source": ".", "setup": "pip install -r requirements.txt",
        "command": ["torchrun", "--log-dir", "logs", "train.py", "--epochs", "20"], "distributed": "torchrun",
        "instance_types": ["ml.p4d.24xlarge"], "capacity": "spot", "volume_size_gb": 200, "environment": {"EPOCHS": 3},
    }  # fmt: skip
    assert set(left_out) == {"run", "resources.infra", "resources.ports", "envs.HF_TOKEN"}


def test_a_task_of_dstack_on_several_nodes_starts_the_same_ranks() -> None:
    """The form of its page on distributed tasks."""
    fields, left_out = imported("""
        type: task
        name: train-distrib
        nodes: 2
        python: 3.12
        env: [NCCL_DEBUG=INFO, WANDB_API_KEY]
        commands:
          - pip install -r requirements.txt
          - torchrun --nproc-per-node=$DSTACK_GPUS_PER_NODE --node-rank=$DSTACK_NODE_RANK --nnodes=$DSTACK_NODES_NUM
              --master-addr=$DSTACK_MASTER_NODE_IP --master-port=12345 train.py --batch 32
        resources: {gpu: "H100:8", shm_size: 24GB}
        spot_policy: auto
        max_duration: 6h
    """)
    assert fields == {
        "name": "train-distrib", "instance_count": 2, "source": ".", "setup": "pip install -r requirements.txt\n",
        "command": ["torchrun", "train.py", "--batch", "32"], "distributed": "torchrun",
        "instance_types": ["ml.p5.48xlarge"], "capacity": "auto", "max_run": "6h",
        "environment": {"NCCL_DEBUG": "INFO"},
    }  # fmt: skip
    assert set(left_out) == {"commands", "python", "env.WANDB_API_KEY", "resources.shm_size"}


SKYPILOT_ON_TWO = """
num_nodes: 2
resources: {accelerators: "A100:8", use_spot: true, disk_size: 200}
run: torchrun --nnodes=$SKYPILOT_NUM_NODES --node_rank=$SKYPILOT_NODE_RANK train.py
"""
DSTACK_ON_TWO = """
type: task
nodes: 2
instance_types: [p5.48xlarge, p4d.24xlarge]
resources: {disk: 200GB}
spot_policy: spot
commands: ["torchrun --nnodes=$DSTACK_NODES_NUM --node-rank=$DSTACK_NODE_RANK train.py"]
"""


@pytest.mark.parametrize(
    ("task", "types"),
    [(SKYPILOT_ON_TWO, ["p4d.24xlarge"]), (DSTACK_ON_TWO, ["p5.48xlarge", "p4d.24xlarge"])],
)
def test_on_ec2_the_nodes_of_a_task_are_those_of_a_fleet(task: str, types: list[str]) -> None:
    fields, _ = imported(task, "ec2")
    accepted = validate(
        {**fields, "source": None}, defaults=DeploymentDefaults(fleet_instance_types=("g5.xlarge",))
    ).accepted()
    assert (accepted.hosts, accepted.types, accepted.volume_or_default.size_gb) == (2, tuple(types), 200)
    assert {"instance_count", "volume_size_gb"}.isdisjoint(fields)


def test_nodes_that_would_not_know_of_each_other_are_refused_by_the_doctor() -> None:
    fields, _ = imported("num_nodes: 2\nrun: echo $SKYPILOT_NODE_RANK\nresources: {instance_type: g5.xlarge}", "ec2")
    named = {each.field: each.problem for each in validate(fields).problems}
    assert named.keys() == {"distributed", "command"}
    assert named["distributed"].startswith("is not torchrun")
    assert named["command"].startswith("has several lines")


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("num_nodes: 2\nrun: 'cd src\n\n\n  echo $SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES'", ["1 of 2"]),
        ("num_nodes: 2\nrun: |\n  echo \"$SKYPILOT_NODE_IPS\" | head -n1\n  echo $SKYPILOT_NUM_GPUS_PER_NODE",
         ["algo-1", "8"]),
        ("type: task\nnodes: 2\ncommands: [echo $DSTACK_GPUS_NUM, echo $DSTACK_MASTER_NODE_IP]", ["16", "algo-1"]),
        ("type: task\nnodes: 2\ncommands: ['echo \"$DSTACK_NODES_IPS\"']", ["algo-1", "algo-2"]),
    ],
)  # fmt: skip
def test_other_lines_keep_the_variables_of_their_tool(tmp_path: Any, task: str, said: list[str]) -> None:
    fields, _ = imported(task)
    assert fields["distributed"] == "none"
    hosts = {"SM_HOSTS": '["algo-1","algo-2"]', "SM_HOST_COUNT": "2", "SM_CURRENT_HOST_RANK": "1", "SM_NUM_GPUS": "8"}
    (tmp_path / "src").mkdir()
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", fields["command"]], cwd=tmp_path, check=True, capture_output=True, text=True,
        env={"PATH": "/usr/bin:/bin", "SM_MASTER_ADDR": "algo-1", **hosts},
    )  # fmt: skip
    assert done.stdout.splitlines() == said


@pytest.mark.parametrize(
    "run",
    [
        "torchrun train.py --lr $LR", "torchrun train.py && echo done", "torchrun a.py\ntorchrun b.py",
        "cd src\ntorchrun a.py", "accelerate launch train.py", "torchrun 'a.py",
        "echo '{}' > config.json\ntorchrun a.py", "set -e; python prepare.py\ntorchrun a.py",
        "export DATA=$HOME/data\ntorchrun a.py",
    ],
)  # fmt: skip
def test_lines_that_do_more_than_start_torchrun_stay_as_they_are(run: str) -> None:
    fields, _ = imported(yaml.safe_dump({"run": run}))
    assert "distributed" not in fields
    assert run in fields["command"]


@pytest.mark.parametrize("first", ['$(echo "$SKYPILOT_NODE_IPS" | head -n1)', '`echo "$SKYPILOT_NODE_IPS" | head -n1`'])
@pytest.mark.parametrize("quote", ["", '"'])
def test_the_first_host_may_be_found_within_the_line_of_torchrun(first: str, quote: str) -> None:
    place = f"--nnodes=$SKYPILOT_NUM_NODES --master_addr={quote}{first}{quote} --node_rank=$SKYPILOT_NODE_RANK"
    fields, left_out = imported(yaml.safe_dump({"num_nodes": 2, "run": f"torchrun {place} train.py --lr 0.1"}), "ec2")
    assert (fields["command"], fields["distributed"]) == (["torchrun", "train.py", "--lr", "0.1"], "torchrun")
    assert left_out["run"].startswith("the runner gives torchrun the hosts")
    fields, _ = imported(yaml.safe_dump({"num_nodes": 2, "run": f"torchrun {place} train.py --host {first}"}))
    assert (first in fields["command"], fields["distributed"]) == (True, "none")


def test_variables_that_lines_export_reach_the_ranks() -> None:
    fields, _ = imported("""
        num_nodes: 2
        envs: {NCCL_DEBUG: WARN, EPOCHS: 3}
        run: |
          export NCCL_DEBUG=INFO
          export NOTE="two words"
          export MASTER_ADDR=$(echo "$SKYPILOT_NODE_IPS" | head -n1)
          torchrun --nnodes=$SKYPILOT_NUM_NODES --master_addr=$MASTER_ADDR train.py
    """)
    assert fields["command"] == ["torchrun", "train.py"]
    assert fields["environment"] == {"NCCL_DEBUG": "INFO", "EPOCHS": 3, "NOTE": "two words"}


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ("A100:8", "ml.p4d.24xlarge"), ("A100-80GB:8", "ml.p4de.24xlarge"), ("A100:80GB:8", "ml.p4de.24xlarge"),
        ({"A10G": 4}, "ml.g5.12xlarge"), ({"name": "L4", "count": 1}, "ml.g6.xlarge"), ("T4", "ml.g4dn.xlarge"),
        ("24GB", None), ("A100:3", None), (8, None), ({"name": ["A100", "H100"], "count": "8..16"}, None), ([], None),
    ],
)  # fmt: skip
def test_gpus_are_an_instance_type_or_one_is_asked_for(gpus: Any, expected: str | None) -> None:
    fields, left_out = imported(yaml.safe_dump({"run": "python a.py", "resources": {"accelerators": gpus}}))
    assert fields.get("instance_types") == (None if expected is None else [expected])
    if expected is None and gpus:
        assert "write instance_type" in left_out["resources.accelerators"]


def test_a_secret_is_named_and_its_value_stands_nowhere() -> None:
    job = import_task({"run": "python a.py", "secrets": {"HF_TOKEN": "hf_" + "x" * 8}}, name="task")
    assert "hf_" not in job.as_job_file()
    assert "AWS Secrets Manager" in job.as_job_file()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from(
    [1, "name", "workdir", "num_nodes", "nodes", "resources", "envs", "env", "setup", "run", "commands", "image",
     "instance_types", "spot_policy", "max_duration", "file_mounts", "secrets", "anything"]
)  # fmt: skip


@given(
    task=st.dictionaries(FIELDS, VALUES, max_size=6),
    kind=st.sampled_from([{"type": "task"}, {"run": "python a.py"}]),
    backend=st.sampled_from(["sagemaker", "ec2"]),
)
def test_whatever_a_task_holds_it_is_taken_or_named(task: dict[Any, Any], kind: dict[str, str], backend: Any) -> None:
    job = import_task({**task, **kind}, name="task", backend=backend)
    assert isinstance(job, ImportedJob)
    assert yaml.safe_load(job.as_job_file()) == job.fields
    validate(job.fields)


def test_another_document_is_no_task() -> None:
    for document in ([], None, {}, {"type": "service"}, {"name": "a", "command": "python a.py", "run": "x"}):
        with pytest.raises(ValueError, match="it is n"):
            import_task(document, name="task")


@pytest.mark.parametrize(
    ("task", "named"),
    [
        ("run: a\nresources: {cloud: aws, region: b, zone: c}", "resources.cloud, resources.region, resources.zone"),
        ("run: a\nfile_mounts: {/a: b}\nvolumes: {/a: b}", "file_mounts, volumes"),
        ("type: task\ncommands: [a]\nresources: {cpu: 4, memory: 8GB}", "resources.cpu, resources.memory"),
        ("type: task\ncommands: [a]\nbackends: [aws]\nregions: [b]", "backends, regions"),
    ],
)
def test_parts_that_are_left_out_for_one_reason_are_named_once(task: str, named: str) -> None:
    _, left_out = imported(task)
    assert list(left_out) == [named]


@pytest.mark.parametrize(
    ("task", "named"),
    [
        ("num_nodes: 2\nsetup: python fetch.py $SKYPILOT_SETUP_NODE_RANK\nrun: python train.py $SKYPILOT_TASK_ID",
         {"setup.SKYPILOT_SETUP_NODE_RANK", "run.SKYPILOT_TASK_ID"}),
        ("num_nodes: 2\nsetup: python a.py $SKYPILOT_NODE_RANK\nrun: python train.py", {"setup.SKYPILOT_NODE_RANK"}),
        ("type: task\nnodes: 2\ncommands: ['mpirun --hostfile $DSTACK_MPI_HOSTFILE -n $DSTACK_GPUS_NUM python a.py']",
         {"commands.DSTACK_MPI_HOSTFILE"}),
        ("num_nodes: 2\nrun: python train.py $SKYPILOT_NODE_RANK", set()),
    ],
)  # fmt: skip
def test_variables_that_a_job_does_not_have_are_named(task: str, named: set[str]) -> None:
    """A block of bash ends at one without a value."""
    _, left_out = imported(task)
    assert set(left_out) == named
    assert all("no such variable" in why for why in left_out.values())
