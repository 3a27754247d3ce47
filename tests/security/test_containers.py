"""A script in a container, or the author of its image, wants more than a script has; a neighbour wants its secrets.

Who: code of a run on EC2 with an `image`; and another user of the instance, who may list processes and read what
everybody may read. With what: what docker lets a container do, the command lines of all processes, files. What it would
gain: root on the instance, and with it the instance's role; the password of Amazon ECR, which reads every image of the
account; what the job file's environment holds.
"""

from __future__ import annotations

import json
import stat
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from spotkeep.runner.job import import_root
from spotkeep_agent.containers.container import Container
from spotkeep_agent.containers.docker import Docker
from spotkeep_agent.training.user import current_user
from tests.spotkeep_agent.containers.recording_docker import RecordingDocker

REGISTRY = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
ENVIRONMENT = {"EPOCHS": "3", "TEXT": 'two\nlines "quoted"'}


@pytest.fixture
def recorded(tmp_path: Path) -> RecordingDocker:
    return RecordingDocker(tmp_path / "recorded")


@pytest.fixture
def docker(recorded: RecordingDocker, tmp_path: Path) -> Docker:
    environment = {"PATH": str(recorded.path)}
    return Docker(environment=environment, configuration=tmp_path / "logins", cancelled=threading.Event())


@pytest.fixture
def words(docker: Docker, tmp_path: Path) -> list[str]:
    """What docker is called with to run a training."""
    no_calls: Any = None
    made = Container(
        f"{REGISTRY}/training:7", docker=docker, calls=no_calls, user=current_user(), state=tmp_path, gpus=True,
        adapters=tmp_path / "infiniband",
    )  # fmt: skip
    return made.command(
        ["run", "--", "python", "train.py"],
        environment=ENVIRONMENT,
        base=tmp_path / "ml",
        notices=tmp_path / "job",
        file_systems={tmp_path / "data": False},
    )


def test_a_container_has_the_rights_of_the_script_and_no_more(words: list[str]) -> None:
    user = current_user()
    options = dict(pairwise(words))
    assert options["--user"] == f"{user.uid}:{user.gid}"
    assert options["--cap-drop"] == "ALL"
    assert options["--security-opt"] == "no-new-privileges"
    # The rule that closes the metadata service goes by user: it holds in the instance's own network and users.
    assert (options["--network"], options["--userns"]) == ("host", "host")
    assert {"--privileged", "--device", "--cap-add", "--pid", "--volume", "-v"}.isdisjoint(words)


def test_it_sees_the_folders_of_the_job_where_they_are_on_the_instance_and_nothing_else(
    words: list[str], tmp_path: Path
) -> None:
    mounts = [after for word, after in pairwise(words) if word == "--mount"]
    own = [str(tmp_path / "ml"), str(tmp_path / "job"), current_user().home]
    readonly = [str(tmp_path / "data"), import_root(), str(tmp_path / "environment.json")]
    assert mounts == [
        *(f"type=bind,source={path},target={path}" for path in own),
        *(f"type=bind,source={path},target={path},readonly" for path in readonly),
    ]


def test_the_environment_is_on_no_command_line_and_only_the_user_that_trains_reads_its_file(
    words: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "environment.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o400
    assert json.loads(file.read_text()) == ENVIRONMENT
    assert not [word for word in words if "EPOCHS" in word or "quoted" in word]
    assert {"--env", "-e", "--env-file"}.isdisjoint(words)


def test_the_password_is_on_no_command_line_and_in_no_file_afterwards(
    docker: Docker, recorded: RecordingDocker, tmp_path: Path
) -> None:
    docker.login(REGISTRY, user="AWS", password="secret")
    (call,) = recorded.calls("login")
    assert call.words == ["login", "--username", "AWS", "--password-stdin", REGISTRY]
    assert call.given == "secret"
    assert call.config == str(tmp_path / "logins"), "not root's own, which may name a store of credentials"
    assert stat.S_IMODE((tmp_path / "logins").stat().st_mode) == 0o700
    docker.forget_logins()
    assert not (tmp_path / "logins").exists()
