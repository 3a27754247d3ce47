"""From an empty folder to a run on a local AWS with the wheel: a project, its deployment, a rehearsal, a launch."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import ROOT, Built, Install, Installed, environment
from .test_pythons import SCRIPT

pytestmark = pytest.mark.wheel


@pytest.fixture(scope="module")
def project(built: Built, elsewhere: Path) -> Iterator[tuple[Installed, Path]]:
    """A project that `spotkeep init` wrote, with its requirements installed as its README says."""
    folder = Path(tempfile.mkdtemp(dir=elsewhere))
    installed = environment(folder)
    installed.install(str(built.wheel))
    assert installed.run("init", "my-team", cwd=folder).returncode == 0
    team = folder / "my-team"
    installed.install("-r", str(team / "requirements.txt"), "--find-links", str(built.wheel.parent))
    # The local AWS is for the person who tries it, and no requirement of the project.
    installed.install("spotkeep[local]", "--find-links", str(built.wheel.parent))
    try:
        yield installed, team
    finally:
        installed.run("local", "down", cwd=team)


def test_its_files_and_nothing_is_overwritten(project: tuple[Installed, Path]) -> None:
    installed, team = project
    files = {path.relative_to(team).as_posix() for path in team.rglob("*") if path.is_file()}
    assert files >= {".gitignore", "app.py", "cdk.json", "requirements.txt", "tests/test_synth.py"}
    assert len((team / "app.py").read_text().splitlines()) <= 12
    (team / "app.py").write_text((team / "app.py").read_text() + "# ours\n")
    refused = installed.run("init", "my-team", cwd=team.parent)
    assert refused.returncode == 2
    assert "my-team/app.py\n" in refused.stderr
    assert (team / "app.py").read_text().endswith("# ours\n")


def test_its_own_tests_pass_and_notice_a_change(project: tuple[Installed, Path]) -> None:
    installed, team = project
    snapshot = team / "tests" / "snapshot.json"
    for _ in range(2):
        done = installed.program("python", "-m", "pytest", "-q", cwd=team)
        assert done.returncode == 0, done.stdout
    assert sorted(json.loads(snapshot.read_text())) == [
        "Spotkeep-Compute", "Spotkeep-Events", "Spotkeep-Jobs", "Spotkeep-Storage"
    ]  # fmt: skip
    settings = team / "cdk.json"
    before = settings.read_text()
    settings.write_text(before.replace('"notify_emails": []', '"notify_emails": ["ada@example.com"]'))
    try:
        assert installed.program("python", "-m", "pytest", "-q", cwd=team).returncode == 1
    finally:
        settings.write_text(before)


def test_a_registry_out_of_reach_is_named_and_the_command_goes_on_from_there(
    project: tuple[Installed, Path], folder: Path
) -> None:
    installed, team = project
    nowhere = {"npm_config_registry": "http://127.0.0.1:9/", "npm_config_cache": str(folder / "npm")}
    assert not list((installed.home / ".cache" / "spotkeep").glob("aws-cdk-*")), "it comes at the first deployment"
    refused = installed.run("local", "up", cwd=team, **nowhere)
    assert refused.returncode == 9, refused.stderr
    assert "npm's registry is out of reach (ECONNREFUSED)" in refused.stderr
    assert "Traceback" not in refused.stderr
    done = installed.run("local", "up", cwd=team)
    assert done.returncode == 0, done.stderr
    assert "spotkeep is deployed to it." in done.stdout


def test_a_job_is_launched_there(project: tuple[Installed, Path]) -> None:
    installed, team = project
    (team / "train.py").write_text(SCRIPT)
    written = installed.run("init", "train.py", cwd=team)
    assert written.returncode == 0, written.stderr
    assert "Lines to change:" in written.stdout
    launched = installed.run("--local", "launch", "job.yaml", "-y", cwd=team)
    assert launched.returncode == 0, launched.stdout + launched.stderr
    assert re.search(r"^completed +my-team-\w+, without an interruption", launched.stdout, flags=re.MULTILINE)


def test_cdk_reaches_the_local_aws_alone(project: tuple[Installed, Path]) -> None:
    installed, team = project
    done = installed.run("--local", "cdk", "diff", "--all", cwd=team)
    assert done.returncode == 0, done.stderr
    assert "Number of stacks with differences: 0" in done.stdout + done.stderr
    done = installed.run("--local", "cdk", "deploy", "--all", "--require-approval", "never", cwd=team)
    assert done.returncode == 0, done.stderr


def test_it_is_rehearsed_there(project: tuple[Installed, Path]) -> None:
    installed, team = project
    done = installed.run("rehearse", "job.yaml", "--set", "hyperparameters.steps=150", cwd=team)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS" in done.stdout


def test_a_folder_without_a_project_gets_the_app_that_the_wheel_carries(install: Install, folder: Path) -> None:
    installed = install("local")
    shutil.copy(ROOT / "examples" / "digits" / "job.yaml", folder)
    try:
        done = installed.run("local", "up", cwd=folder)
        assert done.returncode == 0, done.stderr
        assert json.loads(installed.run("local", "status", "--json", cwd=folder).stdout)["deployed"] is True
    finally:
        installed.run("local", "down", cwd=folder)
    assert {path.name for path in folder.iterdir()} == {".spotkeep", "job.yaml"}
