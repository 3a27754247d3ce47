"""What docker says, and what that means: here again, on the next instance, or nowhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spotkeep_agent.containers import docker as module
from spotkeep_agent.containers.docker import Docker
from spotkeep_agent.errors import ImageRefusedError, ImageUnavailableError

from .recording_docker import RecordingDocker

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/team/training:7"
REGISTRY = IMAGE.partition("/")[0]
DIGEST = "sha256:" + "ab" * 32


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RecordingDocker:
    monkeypatch.setattr(module, "_FIRST_PAUSE_SECONDS", 0.001)
    return RecordingDocker(tmp_path / "recorded")


@pytest.fixture
def cancelled() -> threading.Event:
    return threading.Event()


@pytest.fixture
def docker(recorded: RecordingDocker, cancelled: threading.Event, tmp_path: Path) -> Docker:
    return Docker(environment={"PATH": str(recorded.path)}, configuration=tmp_path / "logins", cancelled=cancelled)


def cancel_after(begun: Callable[[], object], cancelled: threading.Event) -> None:
    """Let a notice come a moment after something has begun, however long that takes."""

    def wait() -> None:
        while not begun():
            time.sleep(0.01)
        time.sleep(0.5)
        cancelled.set()

    threading.Thread(target=wait, daemon=True).start()


class TestWhatTheAmiHas:
    def test_docker_with_nvidias_runtime_is_all_that_is_needed(self, docker: Docker, recorded: RecordingDocker) -> None:
        docker.require(gpus=True)
        assert [call.words for call in recorded.calls()] == [["info", "--format", "{{json .Runtimes}}"]]

    def test_without_docker_it_says_which_ami_has_it(self, tmp_path: Path) -> None:
        none = Docker(environment={"PATH": str(tmp_path)}, configuration=tmp_path, cancelled=threading.Event())
        with pytest.raises(ImageRefusedError, match=r"the AMI has no docker.*instance_ami.*or remove image"):
            none.require(gpus=False)

    def test_gpus_without_nvidias_runtime_are_refused_and_an_instance_without_gpus_is_not(
        self, docker: Docker, recorded: RecordingDocker
    ) -> None:
        recorded.answer_always("info", said='{"runc":{}}')
        with pytest.raises(ImageRefusedError, match=r"NVIDIA GPUs.*no runtime nvidia.*nvidia-ctk.*instance_ami"):
            docker.require(gpus=True)
        docker.require(gpus=False)

    def test_nvidias_toolkit_on_the_path_will_do(self, docker: Docker, recorded: RecordingDocker) -> None:
        """Docker finds the toolkit's hook by itself, without a runtime of that name."""
        recorded.answer_always("info", said='{"runc":{}}')
        tool = recorded.path / "nvidia-ctk"
        tool.write_text("#!/bin/sh\n")
        tool.chmod(0o755)
        docker.require(gpus=True)

    def test_a_service_that_is_not_started_is_started(self, docker: Docker, recorded: RecordingDocker) -> None:
        recorded.answers["info"] = []
        recorded.answer("info", code=1, said="Cannot connect to the Docker daemon at unix:///var/run/docker.sock")
        recorded.answer("info", said="{}")
        started = recorded.path / "started"
        systemctl = recorded.path / "systemctl"
        systemctl.write_text(f'#!/bin/sh\necho "$@" > {started}\n')
        systemctl.chmod(0o755)
        docker.require(gpus=False)
        assert started.read_text() == "start docker\n"

    def test_a_notice_ends_the_wait_for_the_service(
        self, docker: Docker, recorded: RecordingDocker, cancelled: threading.Event
    ) -> None:
        recorded.answer_always("info", code=1, said="Cannot connect to the Docker daemon")
        systemctl = recorded.path / "systemctl"
        begun = recorded.path / "begun"
        systemctl.write_text(f"#!/bin/sh\n: > {begun}\nexec /bin/sleep 600\n")
        systemctl.chmod(0o755)
        cancel_after(begun.exists, cancelled)
        with pytest.raises(ImageUnavailableError, match="systemctl start was broken off"):
            docker.require(gpus=False)

    def test_a_docker_that_does_not_answer_is_for_the_next_instance(
        self, docker: Docker, recorded: RecordingDocker
    ) -> None:
        recorded.answer_always("info", code=1, said="Cannot connect to the Docker daemon")
        with pytest.raises(ImageUnavailableError, match="docker does not answer: Cannot connect"):
            docker.require(gpus=False)


class TestLogin:
    def test_a_login_that_is_refused_is_refused_to_the_next_instance_as_well(
        self, docker: Docker, recorded: RecordingDocker
    ) -> None:
        said = "Error response from daemon: login attempt failed with status: 401 Unauthorized"
        recorded.answer_always("login", code=1, said=said)
        with pytest.raises(ImageRefusedError, match=r"the login to .* failed: .*401 Unauthorized"):
            docker.login(REGISTRY, user="AWS", password="secret")
        assert len(recorded.calls("login")) == 1


class TestPull:
    def test_it_gives_the_digest_of_what_is_there(self, docker: Docker, recorded: RecordingDocker) -> None:
        recorded.answer("pull", said=f"7: Pulling from team/training\nDigest: {DIGEST}\nStatus: Image is up to date\n")
        assert docker.pull(IMAGE) == DIGEST
        assert [call.words for call in recorded.calls()] == [["pull", IMAGE]]

    @pytest.mark.parametrize(
        ("said", "what_to_do"),
        [
            (f"Error response from daemon: manifest for {IMAGE} not found: manifest unknown", "name, tag or digest"),
            ("Error response from daemon: pull access denied for x, repository does not exist", "repository's policy"),
            ("denied: User: arn:aws:sts::1:x is not authorized to perform: ecr:BatchGetImage", "repository's policy"),
            ("no matching manifest for linux/arm64/v8 in the manifest list entries", "processors"),
            ("failed to register layer: write /usr/lib/x: no space left on device", "instance_volume_gb"),
        ],
    )
    def test_what_no_instance_can_have_is_not_tried_again(
        self, docker: Docker, recorded: RecordingDocker, said: str, what_to_do: str
    ) -> None:
        recorded.answer_always("pull", code=1, said=f"Using default tag\n{said}\n")
        with pytest.raises(ImageRefusedError) as refused:
            docker.pull(IMAGE)
        assert f"the image {IMAGE} cannot be pulled: " in str(refused.value)
        assert said[-40:] in str(refused.value)
        assert what_to_do in str(refused.value)
        assert len(recorded.calls("pull")) == 1

    def test_what_may_pass_is_tried_again_and_not_for_ever(self, docker: Docker, recorded: RecordingDocker) -> None:
        recorded.answer("pull", code=1, said="net/http: TLS handshake timeout")
        recorded.answer("pull", code=1, said="toomanyrequests: You have reached your unauthenticated pull rate limit")
        recorded.answer("pull", said=f"Digest: {DIGEST}\n")
        assert docker.pull(IMAGE) == DIGEST
        recorded.answer_always("pull", code=1, said="unexpected EOF")
        before = len(recorded.calls("pull"))
        with pytest.raises(ImageUnavailableError, match="5 times: unexpected EOF"):
            docker.pull(IMAGE)
        assert len(recorded.calls("pull")) - before == 5

    def test_a_notice_ends_a_pull_in_the_middle(
        self, docker: Docker, recorded: RecordingDocker, cancelled: threading.Event
    ) -> None:
        recorded.answer_always("pull", seconds=600)
        began = time.monotonic()
        cancel_after(lambda: recorded.calls("pull"), cancelled)
        with pytest.raises(ImageUnavailableError, match="was broken off"):
            docker.pull(IMAGE)
        assert time.monotonic() - began < 300

    def test_a_notice_ends_the_wait_for_the_next_try(
        self, docker: Docker, recorded: RecordingDocker, cancelled: threading.Event, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "_FIRST_PAUSE_SECONDS", 600.0)
        recorded.answer_always("pull", code=1, said="unexpected EOF")
        cancel_after(lambda: recorded.calls("pull"), cancelled)
        with pytest.raises(ImageUnavailableError, match="broken off"):
            docker.pull(IMAGE)
        assert len(recorded.calls("pull")) == 1

    def test_a_pull_that_hangs_is_given_up(
        self, docker: Docker, recorded: RecordingDocker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "_PULL_SECONDS", 0.5)
        recorded.answer_always("pull", seconds=600)
        with pytest.raises(ImageUnavailableError, match=r"took more than"):
            docker.pull(IMAGE)


class TestTheEnd:
    def test_a_container_is_killed_and_removed_even_after_a_notice(
        self, docker: Docker, recorded: RecordingDocker, cancelled: threading.Event
    ) -> None:
        cancelled.set()
        docker.remove("training")
        assert [call.words for call in recorded.calls()] == [["rm", "--force", "training"]]

    def test_what_cannot_be_removed_ends_nothing(
        self, docker: Docker, recorded: RecordingDocker, caplog: pytest.LogCaptureFixture
    ) -> None:
        recorded.answer_always("rm", code=1, said="Error response from daemon: No such container: training")
        docker.remove("training")
        assert not caplog.records
        recorded.answer_always("rm", code=1, said="Error response from daemon: device or resource busy")
        docker.remove("training")
        assert "device or resource busy" in caplog.text
        (recorded.path / "docker").unlink()
        docker.remove("training")
        assert "no docker" in caplog.text
