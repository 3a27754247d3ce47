"""The words that run a container, what is in its environment, and what it enters with."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from spotkeep.runner.layout import import_root
from spotkeep_agent.containers import enter
from spotkeep_agent.containers.container import Container, container_environment
from spotkeep_agent.containers.docker import Docker
from spotkeep_agent.errors import AwsCallRefusedError, AwsUnavailableError, ImageRefusedError, ImageUnavailableError
from spotkeep_agent.training.user import current_user
from spotkeep_fleet.ecr_images import EcrRegistry, ecr_registry

from .recording_docker import RecordingDocker

IN_ECR = "123456789012.dkr.ecr.us-east-1.amazonaws.com/team/training:7"
PUBLIC = "public.ecr.aws/docker/library/python:3.12"


class Ecr:
    """Answers GetAuthorizationToken."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[str] = []

    def json(self, service: str, target: str, document: Mapping[str, Any], *, version: str) -> dict[str, Any]:
        self.asked.append(f"{service} {target} {version} {dict(document)}")
        if isinstance(self.answer, Exception):
            raise self.answer
        return dict(self.answer)


def token(text: str) -> dict[str, Any]:
    return {"authorizationData": [{"authorizationToken": base64.b64encode(text.encode()).decode()}]}


@pytest.fixture
def recorded(tmp_path: Path) -> RecordingDocker:
    return RecordingDocker(tmp_path / "recorded")


def container(
    recorded: RecordingDocker, folder: Path, *, image: str = IN_ECR, answer: Any = None, gpus: bool = False
) -> tuple[Container, Ecr]:
    docker = Docker(
        environment={"PATH": str(recorded.path)}, configuration=folder / "logins", cancelled=threading.Event()
    )
    ecr: Any = Ecr(token("AWS:secret") if answer is None else answer)
    made = Container(
        image, docker=docker, calls=ecr, user=current_user(), state=folder, gpus=gpus, adapters=folder / "infiniband"
    )
    return made, ecr


class TestItsImage:
    def test_one_of_ecr_is_pulled_with_a_login_that_is_forgotten(
        self, recorded: RecordingDocker, tmp_path: Path
    ) -> None:
        brought, ecr = container(recorded, tmp_path)
        brought.bring()
        assert ecr.asked == ["ecr AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken 1.1 {}"]
        assert [call.words[0] for call in recorded.calls()] == ["info", "rm", "login", "pull"]
        assert recorded.calls("login")[0].given == "secret"
        assert {call.config for call in recorded.calls()} == {str(tmp_path / "logins")}, "the AMI's own is not used"
        assert not (tmp_path / "logins").exists()

    def test_a_public_one_is_pulled_without(self, recorded: RecordingDocker, tmp_path: Path) -> None:
        brought, ecr = container(recorded, tmp_path, image=PUBLIC)
        brought.bring()
        assert ecr.asked == []
        assert [call.words[0] for call in recorded.calls()] == ["info", "rm", "pull"]

    def test_a_login_is_forgotten_after_a_failure_as_well(self, recorded: RecordingDocker, tmp_path: Path) -> None:
        recorded.answer("pull", code=1, said="manifest unknown")
        brought, _ = container(recorded, tmp_path)
        with pytest.raises(ImageRefusedError):
            brought.bring()
        assert not (tmp_path / "logins").exists()

    def test_a_password_that_the_role_may_not_have_names_what_to_do(
        self, recorded: RecordingDocker, tmp_path: Path
    ) -> None:
        refused = AwsCallRefusedError(
            call="ecr:GetAuthorizationToken", code="AccessDeniedException", message="", status=400
        )
        brought, _ = container(recorded, tmp_path, answer=refused)
        with pytest.raises(ImageRefusedError, match=r"AccessDeniedException.*Deploy again"):
            brought.bring()

    @pytest.mark.parametrize("answer", [AwsUnavailableError("x"), {}, {"authorizationData": [{}]}, token("no colon")])
    def test_an_answer_without_a_password_is_for_the_next_instance(
        self, recorded: RecordingDocker, tmp_path: Path, answer: Any
    ) -> None:
        brought, _ = container(recorded, tmp_path, answer=answer)
        with pytest.raises(ImageUnavailableError):
            brought.bring()

    def test_its_registry_is_in_its_name(self) -> None:
        assert ecr_registry(IN_ECR) == EcrRegistry(host=IN_ECR.partition("/")[0], region="us-east-1")
        in_china = "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn/x@sha256:00"
        assert (ecr_registry(in_china) or EcrRegistry("", "")).region == "cn-north-1"
        for other in (PUBLIC, "python:3.12", "evil.example/123456789012.dkr.ecr.us-east-1.amazonaws.com/x"):
            assert ecr_registry(other) is None


class TestItsCommand:
    def words(self, recorded: RecordingDocker, tmp_path: Path, **fields: Any) -> list[str]:
        made, _ = container(recorded, tmp_path, **fields)
        environment = {"EPOCHS": "3", "TEXT": 'two\nlines "quoted"'}
        return made.command(
            ["run", "--", "python", "train.py"],
            environment=environment,
            base=tmp_path / "ml",
            notices=tmp_path / "job",
            file_systems={tmp_path / "mnt/train": False, tmp_path / "mnt/shared": True},
        )

    def test_file_systems_are_shown_at_their_own_places(self, recorded: RecordingDocker, tmp_path: Path) -> None:
        shown = f"type=bind,source={tmp_path}/mnt/{{0}},target={tmp_path}/mnt/{{0}}"
        words = self.words(recorded, tmp_path)
        assert f"{shown.format('train')},readonly" in words
        assert shown.format("shared") in words

    def test_it_leaves_nothing_and_pulls_nothing(self, recorded: RecordingDocker, tmp_path: Path) -> None:
        words = self.words(recorded, tmp_path)
        assert "--rm" in words
        options = dict(pairwise(words))
        assert (options["--pull"], options["--log-driver"]) == ("never", "none")
        assert int(options["--stop-timeout"]) > 120
        assert int(options["--shm-size"]) > 64 * 2**20, "data loaders pass their batches through it"

    def test_gpus_are_asked_for_where_there_are_some(self, recorded: RecordingDocker, tmp_path: Path) -> None:
        words = self.words(recorded, tmp_path, gpus=True)
        assert words[words.index("--gpus") + 1] == "all"
        assert "--gpus" not in self.words(recorded, tmp_path)

    def test_elastic_fabric_adapters_are_passed_on_where_there_are_some(
        self, recorded: RecordingDocker, tmp_path: Path
    ) -> None:
        assert "--device" not in self.words(recorded, tmp_path)
        devices = tmp_path / "infiniband"
        devices.mkdir()
        for name in ("uverbs1", "uverbs0", "rdma_cm"):
            (devices / name).touch()
        words = self.words(recorded, tmp_path)
        given = [words[place + 1] for place, word in enumerate(words) if word == "--device"]
        assert given == [f"{devices}/uverbs0", f"{devices}/uverbs1"]

    def test_of_the_agents_environment_it_has_where_aws_is(self) -> None:
        inherited = {"PATH": "/usr/bin", "HOME": "/root", "AWS_REGION": "us-east-1", "SPOTKEEP_RUN_TABLE": "t"}
        assert container_environment(inherited) == {"AWS_REGION": "us-east-1"}


class TestEntering:
    def enter(self, tmp_path: Path, *words: str, **image: str) -> subprocess.CompletedProcess[str]:
        given = tmp_path / "environment.json"
        given.write_text(json.dumps({"TEXT": 'two\nlines "quoted"', "SAGEMAKER_BASE_DIR": str(tmp_path / "ml")}))
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}"
        return subprocess.run(
            ["python3", "-I", str(enter.__file__), str(given), import_root(), *words],
            env={"PATH": path, **image}, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def test_the_runner_gets_the_environment_to_the_letter_beside_the_images(self, tmp_path: Path) -> None:
        program = "import os, spotkeep; print(repr([os.environ[name] for name in ('TEXT', 'OF_THE_IMAGE')]))"
        done = self.enter(tmp_path, "run", "--", "python3", "-c", program, OF_THE_IMAGE="1", PYTHONPATH="/of/image")
        assert done.returncode == 0, done.stderr
        assert repr(['two\nlines "quoted"', "1"]) in done.stdout.splitlines()

    def test_a_python_that_is_too_old_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(enter.sys, "version_info", (3, 8, 18))
        with pytest.raises(SystemExit, match=r"python3 of the image is 3\.8, and 3\.9 or later is needed"):
            enter.main()
