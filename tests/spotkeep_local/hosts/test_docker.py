"""The docker of a host: what it promises, each time as a program of its own.

What it does in a host with namespaces: `ec2/test_hosts.py`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spotkeep_local.hosts.process_identity import start_time

IN_ECR = "123456789012.dkr.ecr.us-east-1.amazonaws.com/team/training:7"
SCRIPT = (
    "import os, signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(75)); print('up', flush=True); "
)

Docker = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A host that is a process group."""
    return {
        "PATH": os.defpath,
        "SPOTKEEP_LOCAL_INSTANCE_ROOT": str(tmp_path),
        "DOCKER_CONFIG": str(tmp_path / "logins"),
        "OF_THE_HOST": "1",
    }


@pytest.fixture
def docker(environment: dict[str, str]) -> Docker:
    def docker(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*words), env=environment, input=given, capture_output=True, text=True, check=False
        )

    return docker


def command(*words: str) -> list[str]:
    return [sys.executable, "-I", "-m", "spotkeep_local.hosts.docker", *words]


def run_words(
    program: str,
    *,
    name: str = "training",
    image: str = "python:3.12",
    entrypoint: str = "python3",
    folder: Path = Path("/"),
) -> list[str]:
    return [
        "run", "--rm", "--name", name, "--pull", "never", "--log-driver", "none", "--network", "host",
        "--userns", "host", "--user", f"{os.getuid()}:{os.getgid()}", "--cap-drop", "ALL",
        "--security-opt", "no-new-privileges", "--mount", f"type=bind,source={folder},target={folder},readonly",
        "--workdir", str(folder), "--entrypoint", entrypoint, image, "-c", program,
    ]  # fmt: skip


def test_an_image_of_ecr_needs_a_login_and_any_other_none(docker: Docker, tmp_path: Path) -> None:
    refused = docker("pull", IN_ECR)
    assert (refused.returncode, "no basic auth credentials" in refused.stderr) == (1, True)
    assert docker("login", "--username", "AWS", "--password-stdin", IN_ECR.partition("/")[0], given="x").returncode == 0
    kept = tmp_path / "logins/config.json"
    assert (list(json.loads(kept.read_text())["auths"]), kept.stat().st_mode & 0o777) == (
        [IN_ECR.partition("/")[0]],
        0o600,
    )
    pulled = docker("pull", IN_ECR)
    assert (pulled.returncode, "Digest: sha256:" in pulled.stdout) == (0, True)
    assert docker("pull", "python:3.12").returncode == 0


def test_a_container_has_its_images_environment_and_not_the_hosts(docker: Docker, tmp_path: Path) -> None:
    docker("pull", "python:3.12")
    program = "import json, os; print(json.dumps([list(os.environ), os.getcwd()]))"
    done = docker(*run_words(program, folder=tmp_path))
    names, folder = json.loads(done.stdout)
    # Python itself sets the last one where there is no locale.
    assert {*names} - {"LC_CTYPE"} == {"HOME", "PATH", "SPOTKEEP_LOCAL_INSTANCE_ROOT"}
    assert folder == str(tmp_path)


def test_exit_codes_are_those_of_the_command_or_dockers_own(docker: Docker, tmp_path: Path) -> None:
    assert docker(*run_words("1")).returncode == 125, "the image was not pulled"
    docker("pull", "python:3.12")
    assert docker(*run_words("raise SystemExit(9)")).returncode == 9
    assert docker(*run_words("import os; os.kill(os.getpid(), 9)")).returncode == 137
    missing = docker(*run_words("1", folder=tmp_path / "missing"))
    assert (missing.returncode, "bind source path does not exist" in missing.stderr) == (125, True)
    none = docker(*run_words("1", entrypoint="python4"))
    assert (none.returncode, '"python4": executable file not found' in none.stderr) == (127, True)
    assert none.stderr.startswith("docker: Error response from daemon: ")
    # Words that the agent does not say are refused.
    assert docker("run", "--privileged", "python:3.12").returncode == 2
    assert docker("ps").returncode == 2


def test_sigterm_is_passed_on_a_name_is_taken_once_and_it_outlives_a_command_that_is_killed(
    docker: Docker, environment: dict[str, str]
) -> None:
    docker("pull", "python:3.12")
    words = run_words(SCRIPT + "print(os.getpid(), flush=True); time.sleep(600)")
    with subprocess.Popen(command(*words), env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "up\n"
        assert docker(*words).returncode == 125
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 75
    assert docker("rm", "--force", "training").returncode == 1, "it is gone with its end"

    with subprocess.Popen(command(*words), env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        running.stdout.readline()
        container = int(running.stdout.readline())
        running.kill()
    os.kill(container, 0)
    assert docker("rm", "--force", "training").returncode == 0
    ends = time.monotonic() + 60
    while start_time(container) is not None:
        assert time.monotonic() < ends, "it goes on"
        time.sleep(0.05)
