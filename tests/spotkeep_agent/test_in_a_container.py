"""Trainings in a container: real agents, and the docker of the local AWS, which runs a container as a process."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spotkeep_fleet.record import FAILED, FINISHED, INPUT_ERROR
from spotkeep_local.ec2.catalog import DOCKER

from .cloud import Cloud, Instance
from .conftest import HELD, ends_well, events_of, job, launch, one_volume, total
from .containers.recording_docker import RecordingDocker

IN_ECR = "123456789012.dkr.ecr.us-east-1.amazonaws.com/team/training:7"
PYTHON = f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}"


@pytest.fixture
def boot(cloud: Cloud, tmp_path: Path) -> Callable[..., Instance]:
    """Boot an instance of an AMI with docker."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "docker").write_text(DOCKER)
    (programs / "docker").chmod(0o755)

    def boot(path: Path = programs, **fields: Any) -> Instance:
        return cloud.boot("us-east-1a", PATH=f"{path}{os.pathsep}{PYTHON}", **fields)

    return boot


def left_of_docker(instance: Instance) -> list[str]:
    """Logins and containers that are still on an instance."""
    run = instance.root / "run"
    found = [run / "spotkeep/docker", *(run / "docker").glob("container-*")]
    return [str(path) for path in found if path.exists()]


def test_a_run_in_a_container_from_its_first_boot_to_its_end(cloud: Cloud, boot: Callable[..., Instance]) -> None:
    launch(cloud, image=IN_ECR)
    instance = boot()
    assert instance.finish() == 0, instance.lines
    assert cloud.record.training.state == FINISHED
    assert (cloud.record.training.step, total(cloud)) == (6, "15")
    assert cloud.calls["GetAuthorizationToken"] == 1
    assert left_of_docker(instance) == []
    pulled = next(event for event in events_of(instance) if event["event"] == "image-pulled")
    assert (pulled["what"], pulled["digest"][:7]) == (IN_ECR, "sha256:")
    one_volume(cloud)


@pytest.mark.long
def test_an_image_that_is_not_there_fails_the_run_before_its_data_are_fetched(
    cloud: Cloud, boot: Callable[..., Instance], tmp_path: Path
) -> None:
    launch(cloud, image="python:3.99", channels={"train": "s3://bucket/data/"})
    docker = RecordingDocker(tmp_path / "recorded")
    docker.answer("pull", code=1, said="Error response from daemon: manifest for python:3.99 not found")
    assert boot(docker.path).finish() == 0
    training = cloud.record.training
    assert (training.state, training.exit_code) == (INPUT_ERROR, None)
    assert "the image python:3.99 cannot be pulled" in (training.failure or "")
    assert cloud.calls["s3:GET"] == 0


@pytest.mark.long
def test_a_registry_that_is_away_is_a_setback_and_the_next_instance_tries(
    cloud: Cloud, boot: Callable[..., Instance], tmp_path: Path
) -> None:
    launch(cloud, image="python:3.12")
    docker = RecordingDocker(tmp_path / "recorded")
    docker.answer_always("info", code=1, said="Cannot connect to the Docker daemon")
    instance = boot(docker.path)
    assert instance.finish() == 3
    assert "left: docker does not answer: Cannot connect to the Docker daemon" in "\n".join(instance.lines)
    assert (cloud.record.setbacks, cloud.record.training.state) == (1, "waiting")
    ends_well(cloud, boot())
    assert cloud.record.setbacks == 0, "it trains"


@pytest.mark.long
def test_a_notice_while_it_pulls_is_obeyed_at_once(cloud: Cloud, boot: Callable[..., Instance], tmp_path: Path) -> None:
    launch(cloud, image="python:3.12")
    docker = RecordingDocker(tmp_path / "recorded")
    docker.answer_always("pull", seconds=600)
    instance = boot(docker.path)
    instance.wait_for("image-pulling")
    while not docker.calls("pull"):
        time.sleep(0.05)
    instance.announce(60)
    assert instance.finish(seconds=300) == 0
    assert "left: notice" in "\n".join(instance.lines)
    assert cloud.record.lease is None
    assert cloud.record.setbacks == 0


@pytest.mark.long
def test_what_a_crashed_agent_left_running_is_ended_before_the_next_one_trains(
    cloud: Cloud, boot: Callable[..., Instance]
) -> None:
    """A container outlives the command that runs it."""
    launch(cloud, **HELD, image=IN_ECR)
    instance = boot()
    instance.wait_for('"event":"saved"')
    instance.kill_agent()
    assert left_of_docker(instance)
    cloud.new_job(job(image=IN_ECR))
    instance.start_agent(PATH=f"{cloud.folder / 'programs'}{os.pathsep}{PYTHON}")
    ends_well(cloud, instance)
    assert left_of_docker(instance) == []


RUNNER_IS_KILLED_THEN_FAILS = """
import os, pathlib, sys

killed = pathlib.Path(os.environ["SPOTKEEP_CHECKPOINT_DIR"], "killed")
if not killed.exists():
    killed.touch()
    os.kill(os.getppid(), 9)  # as the kernel does when memory runs out; the runner can then leave no reason
sys.exit("it is broken")
"""


@pytest.mark.long
def test_exit_codes_are_those_of_a_training_without_a_container(cloud: Cloud, boot: Callable[..., Instance]) -> None:
    launch(cloud, script=RUNNER_IS_KILLED_THEN_FAILS, image=IN_ECR, max_script_retries=1)
    instance = boot()
    assert instance.finish() == 0
    instance.wait_for("the training ended with exit code 137, failure 1 of 2")
    training = cloud.record.training
    assert (training.state, training.exit_code) == (FAILED, 1)
    assert "exited with code 1:\nit is broken" in (training.failure or "")
    assert left_of_docker(instance) == []
