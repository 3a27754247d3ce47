"""The words by which a host starts its ranks: torchrun's own, around the command of the job file."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.runner.environment import Hardware, find_hardware
from spotkeep.runner.ranks import MeetingPlace, network_variables, process_count, ranks_command
from spotkeep_fleet.ranks import MPI, TORCHRUN, Ranks, torchrun_line

SECOND_OF_TWO = MeetingPlace(hosts=2, host_rank=1, address="algo-1", port=7777)
MEETING = ["--nnodes=2", "--node_rank=1", "--master_addr=algo-1", "--master_port=7777", "--max_restarts=0"]
EIGHT = Hardware(cpus=96, gpus=8, neurons=0)


def words(line: str, *, ranks: Ranks | None = None, place: MeetingPlace = SECOND_OF_TWO, **environment: str) -> str:
    command = ranks_command(
        ranks or Ranks(), command=line.split(), place=place, hardware=EIGHT, environment=environment
    )
    return " ".join(command).replace(" ".join(MEETING), "MEETING")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("python train.py --x", "python -m torch.distributed.run MEETING --nproc_per_node=8 --no_python python "
         "train.py --x"),
        ("/opt/conda/bin/python3.11 -X dev -m pkg", "/opt/conda/bin/python3.11 -m torch.distributed.run MEETING "
         "--nproc_per_node=8 --no_python /opt/conda/bin/python3.11 -X dev -m pkg"),
        ("./train --x", "torchrun MEETING --nproc_per_node=8 --no_python ./train --x"),
        ("torchrun train.py --x", "torchrun MEETING --nproc_per_node=8 train.py --x"),
        ("torchrun --nproc-per-node 4 train.py", "torchrun MEETING --nproc-per-node 4 train.py"),
        ("torchrun --nproc_per_node=4 -m pkg", "torchrun MEETING --nproc_per_node=4 -m pkg"),
        ("python -m torch.distributed.run train.py --nproc-per-node", "python -m torch.distributed.run MEETING "
         "--nproc_per_node=8 train.py --nproc-per-node"),
        ("torchrun --standalone train.py", "torchrun --nproc_per_node=8 --standalone train.py"),
        ("torchrun --virtual-local-rank train.py --nnodes 3", "torchrun MEETING --nproc_per_node=8 "
         "--virtual-local-rank train.py --nnodes 3"),
        ("python -u -X dev -m torch.distributed.run train.py", "python -u -X dev -m torch.distributed.run MEETING "
         "--nproc_per_node=8 train.py"),
    ],
)  # fmt: skip
def test_torchrun_gets_the_hosts_and_the_number_of_ranks(line, expected):
    assert words(line) == expected


def test_neuron_compiles_first_where_the_job_asks_for_it_as_with_the_drivers_of_aws():
    assert words("python train.py", RUN_NEURON_PARALLEL_COMPILE="1").startswith("neuron_parallel_compile python -m")


def test_mpirun_starts_the_ranks_of_one_host():
    started = words("python train.py", ranks=Ranks(launcher=MPI, processes=2))
    assert started.startswith("mpirun --host localhost:2 -np 2 --allow-run-as-root")
    assert started.endswith(" python train.py")


@pytest.mark.parametrize(
    ("asked", "hardware", "expected"),
    [
        (3, EIGHT, 3),
        (None, EIGHT, 8),
        (None, Hardware(cpus=128, gpus=0, neurons=32), 32),
        (None, Hardware(cpus=4, gpus=0, neurons=0), 1),
    ],
)
def test_the_number_of_ranks_is_asked_for_or_that_of_gpus_or_of_neuron_cores_or_one(asked, hardware, expected):
    assert process_count(Ranks(processes=asked), hardware) == expected


LISTS = [{"neuron_device": 0, "nc_count": 2}, {"neuron_device": 1, "nc_count": 2}]


@pytest.mark.parametrize(
    ("devices", "tool", "gpus", "neurons"),
    [
        (("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"), ("false",), 2, 0),
        (("neuron0", "neuron1"), ("echo", json.dumps(LISTS)), 0, 4),
        (("neuron0", "neuron1"), ("no-such-tool",), 0, 2),
        (("neuron0", "neuron1"), ("false",), 0, 2),
        (("neuron0",), ("echo", '{"error": "x"}'), 0, 1),
        (("null",), ("echo", json.dumps(LISTS)), 0, 0),
    ],
)
def test_neuron_cores_are_those_that_the_tool_lists_or_else_the_devices(tmp_path, devices, tool, gpus, neurons):
    for name in devices:
        (tmp_path / name).touch()
    found = find_hardware(tmp_path, list_neurons=tool)
    assert (found.gpus, found.neurons) == (gpus, neurons)


def test_types_with_an_elastic_fabric_adapter_use_it_between_hosts_alone():
    assert network_variables(instance_type="ml.p4d.24xlarge", hosts=2) == {
        "FI_PROVIDER": "efa", "NCCL_PROTO": "simple", "FI_EFA_USE_DEVICE_RDMA": "1", "RDMAV_FORK_SAFE": "1",
    }  # fmt: skip
    assert network_variables(instance_type="ml.g5.48xlarge", hosts=2) == {"FI_PROVIDER": "efa", "NCCL_PROTO": "simple"}
    assert network_variables(instance_type="ml.p4d.24xlarge", hosts=1) == {}
    assert network_variables(instance_type="ml.g5.xlarge", hosts=2) == {}


OPTIONS = st.sampled_from(
    [["--standalone"], ["--nproc-per-node", "4"], ["--nproc_per_node=4"], ["--nnodes", "2"], ["--log-dir", "logs"],
     ["--rdzv_backend=c10d"], ["--no-python"], ["--redirects", "3"], ["--master_port", "1"]]
)  # fmt: skip


@given(
    program=st.sampled_from([["torchrun"], ["/usr/bin/torchrun"], ["python3", "-m", "torch.distributed.run"]]),
    options=st.lists(OPTIONS, unique_by=lambda words: words[0].replace("_", "-").partition("=")[0]),
    rest=st.sampled_from([["train.py"], ["train.py", "--nnodes", "9"], []]),
)
def test_a_line_of_torchrun_is_read_whole_and_no_word_of_it_is_lost(program, options, rest):
    given_words = [word for words in options for word in words]
    line = torchrun_line([*program, *given_words, *rest])
    assert line is not None
    assert (list(line.program), [word for option in line.options for word in option], list(line.rest)) == (
        program,
        given_words,
        rest,
    )
    command = ranks_command(
        Ranks(processes=2), command=[*program, *given_words, *rest], place=SECOND_OF_TWO, hardware=EIGHT, environment={}
    )
    kept = [word for word in command if word not in (*MEETING, "--nproc_per_node=2")]
    assert kept == [*program, *given_words, *rest]
    places_hosts = any(word.startswith(("--standalone", "--nnodes", "--rdzv", "--master")) for word in given_words)
    assert ("--nnodes=2" in command) is not places_hosts
    assert any(word.replace("_", "-").startswith("--nproc-per-node") for word in command)


def test_other_commands_are_no_line_of_torchrun():
    for command in (["python", "train.py"], ["python", "-m", "torch"], [], ["accelerate", "launch", "train.py"]):
        assert torchrun_line(command) is None
    assert Ranks().launcher == TORCHRUN
