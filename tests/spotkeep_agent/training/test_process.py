"""What the training sees, and how its process is watched and ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotkeep_agent.as_user.files import UserFiles
from spotkeep_agent.training.process import TrainingProcess, runner_command, search_path, training_environment
from spotkeep_agent.training.supplies import put_spec
from spotkeep_agent.training.user import TrainingUser, current_user
from spotkeep_fleet.instance_job import NodesSpec, VolumeSpec
from spotkeep_fleet.training_spec import SPEC_VARIABLE, JobSource, encode_spec, spec_file_name
from tests.models.ec2 import instance_job

USER = TrainingUser("spotkeep", 995, 994, "/home/spotkeep")


def environment(**changes: Any) -> dict[str, str]:
    job = instance_job(("python", "train.py"), VolumeSpec(size_gb=8), **changes)
    inherited = {"PATH": "/bin", "HOME": "/root", "SPOTKEEP_RUN_TABLE": "runs", "AWS_REGION": "us-east-1"}
    return training_environment(
        inherited=inherited,
        run="run",
        job=job,
        base=Path("/opt/ml"),
        notice_file=Path("/run/spotkeep/job/notice.json"),
        user=USER,
        lease=4,
    )


def test_the_training_knows_the_id_of_its_launch_whatever_its_job_says() -> None:
    found = environment(environment={"SPOTKEEP_LAUNCH": "another"}, launch="feed")
    assert found["SPOTKEEP_LAUNCH"] == "feed"


def test_the_training_gets_its_job_and_not_what_is_the_agents() -> None:
    found = environment(environment={"EPOCHS": "3"}, attempt=2)
    assert "EPOCHS" not in found, "the runner has it from the spec"
    assert found["SPOTKEEP_EVENTS"] == "stdout", "the agent reads the events"
    assert found["SAGEMAKER_BASE_DIR"] == "/opt/ml"
    assert found["HOME"] == "/home/spotkeep"
    assert (found["SPOTKEEP_RUN"], found["SPOTKEEP_ATTEMPT"], found["SPOTKEEP_LEASE"]) == ("run", "2", "4")
    assert "SPOTKEEP_RUN_TABLE" not in found


def test_the_ranks_of_several_nodes_know_that_their_agents_copy() -> None:
    assert "SPOTKEEP_NODES" not in environment()
    nodes = NodesSpec(at_least=1, at_most=3, wait_seconds=600, key="k" * 16)
    assert environment(nodes=nodes, checkpoint_uri="s3://bucket/run")["SPOTKEEP_NODES"] == "3"


def test_the_agent_listens_for_notices_and_the_sdks_find_no_metadata_service_unless_the_job_opens_it() -> None:
    found = environment()
    assert (found["SPOTKEEP_INSTANCE_METADATA"], found["SPOTKEEP_REBALANCE"]) == ("off", "save")
    assert found["AWS_EC2_METADATA_DISABLED"] == "true"
    found = environment(rebalance="leave", instance_metadata="open")
    assert (found["SPOTKEEP_INSTANCE_METADATA"], found["SPOTKEEP_REBALANCE"]) == ("off", "leave")
    assert "AWS_EC2_METADATA_DISABLED" not in found


def test_the_runner_is_the_one_of_this_library_and_finds_the_spec_on_the_volume(tmp_path: Path) -> None:
    assert runner_command() == [sys.executable, "-m", "spotkeep", "run"]
    job = instance_job("cd src\npython train.py\n", setup="a\nb\n", source=JobSource(git_url="https://x/y.git"))
    found = training_environment(
        inherited={}, run="run", job=job, base=tmp_path, notice_file=tmp_path, user=USER, lease=1
    )
    place = Path(found[SPEC_VARIABLE])
    put_spec(UserFiles(tmp_path), job.training)
    assert place.read_bytes() == encode_spec(job.training)
    assert place.name == spec_file_name(place.read_bytes())


def test_a_spec_that_a_script_replaced_is_put_again_and_an_earlier_one_goes(tmp_path: Path) -> None:
    earlier, later = instance_job(("false",)).training, instance_job(("true",)).training
    put_spec(UserFiles(tmp_path), earlier)
    put_spec(UserFiles(tmp_path), later)
    [place] = (tmp_path / "input/data/spotkeep-spec").iterdir()
    place.write_bytes(encode_spec(earlier))
    put_spec(UserFiles(tmp_path), later)
    assert place.read_bytes() == encode_spec(later)


def test_the_reason_of_one_that_left_none_is_its_end_and_its_last_words(tmp_path: Path) -> None:
    job = instance_job(("python", "train.py"), VolumeSpec(size_gb=8))
    program = "import os; print('spotkeep-event: {}'); print('last words', flush=True); os.kill(os.getpid(), 9)"
    process = start(tmp_path, program, [], [])
    assert process.wait(30) == 137
    assert process.failure(job) == "python train.py was killed by signal 9 (exit code 137):\nlast words"


def test_a_container_that_docker_cannot_start_says_why(tmp_path: Path) -> None:
    job = instance_job(("python", "train.py"), VolumeSpec(size_gb=8), image="python:3.12")
    said = 'docker: Error response from daemon: exec: "python3": executable file not found in $PATH: unknown'
    process = start(tmp_path, f"print({said!r}); raise SystemExit(127)", [], [])
    assert process.wait(30) == 127
    assert process.failure(job) == f"docker run python:3.12 exited with code 127:\n{said}"
    assert process.never_entered(job)
    assert not process.never_entered(replace(job, image=None)), "a script's own code"


def test_the_kernels_kills_meanwhile_say_that_memory_ran_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel took the runner itself, in its container or not, which could leave no reason."""
    kills = iter([4, 5])
    monkeypatch.setattr("spotkeep_agent.training.process.memory_kills", lambda: next(kills))
    job = instance_job(("python", "train.py"), VolumeSpec(size_gb=8), image="python:3.12")
    process = start(tmp_path, "import os; os.kill(os.getpid(), 9)", [], [])
    assert process.wait(30) == 137
    assert "memory ran out, and the kernel killed a process" in process.failure(job)


def start(tmp_path: Path, program: str, lines: list[str], events: list[Mapping[str, Any]]) -> TrainingProcess:
    return TrainingProcess(
        [sys.executable, "-c", program],
        environment={"PATH": os.defpath},
        directory=tmp_path,
        user=current_user(),
        on_line=lines.append,
        on_event=events.append,
    )


def test_lines_and_events_are_reported_and_the_exit_code_is_its_own(tmp_path: Path) -> None:
    lines: list[str] = []
    events: list[Mapping[str, Any]] = []
    program = """
import sys
print('hello')
print('spotkeep-event: {"event": "saved", "step": 3}')
print('spotkeep-event: {"event": "sav')
print('error', file=sys.stderr)
sys.exit(9)
"""
    process = start(tmp_path, program, lines, events)
    assert process.wait(30) == 9
    assert sorted(lines)[:2] == ["error", "hello"]
    assert events == [{"event": "saved", "step": 3}]


def test_a_line_that_is_nested_deep_does_not_end_the_reading(tmp_path: Path) -> None:
    events: list[Mapping[str, Any]] = []
    program = """
print('spotkeep-event: ' + '[' * 100_000)
print('spotkeep-event: {"event": "saved", "step": 4}')
"""
    process = start(tmp_path, program, [], events)
    assert process.wait(30) == 0
    assert events == [{"event": "saved", "step": 4}]


def test_all_that_it_started_is_ended_with_it(tmp_path: Path) -> None:
    lines: list[str] = []
    program = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""
    process = start(tmp_path, program, lines, [])
    while not lines:
        time.sleep(0.01)
    assert process.wait(0.01) is None
    process.kill()
    assert process.exit_code == 137
    child = Path(f"/proc/{lines[0]}/stat")
    while child.exists() and child.read_text().split()[2] != "Z":
        time.sleep(0.01)


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """The commands of an image that has python3 alone, as Amazon Linux 2023."""
    commands = tmp_path / "usr/bin"
    commands.mkdir(parents=True)
    (commands / "python3").symlink_to(sys.executable)
    return commands


@pytest.mark.parametrize("framework", ["opt/pytorch", "opt/tensorflow"])
def test_a_deep_learning_ami_trains_with_its_framework(tmp_path: Path, system: Path, framework: str) -> None:
    commands = tmp_path / framework / "bin"
    commands.mkdir(parents=True)
    (commands / "python").symlink_to(sys.executable)
    path = search_path(str(system), root=tmp_path, own=tmp_path / "own")
    assert path == f"{commands}:{system}"


def test_an_image_without_a_command_python_gets_one(tmp_path: Path, system: Path) -> None:
    for _ in range(2):  # a training that is started again
        path = search_path(str(system), root=tmp_path, own=tmp_path / "own")
    assert path == f"{system}:{tmp_path / 'own'}", "what the image has goes before"
    found = subprocess.run(["/usr/bin/env", "python", "-c", "print(1)"], env={"PATH": path}, capture_output=True)
    assert found.stdout == b"1\n"


def test_a_python_of_the_image_stays_what_it_is(tmp_path: Path, system: Path) -> None:
    (system / "python").symlink_to(sys.executable)
    assert search_path(str(system), root=tmp_path, own=tmp_path / "own") == str(system)
