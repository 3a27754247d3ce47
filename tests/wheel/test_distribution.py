"""The files that are published: which packages a wheel has, and that a build depends on the sources alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from spotkeep_constructs.training_bundle import bundle_bytes

from .conftest import ROOT, Built, build

pytestmark = pytest.mark.wheel

OURS = {
    "spotkeep",
    "spotkeep_agent",
    "spotkeep_cli",
    "spotkeep_client",
    "spotkeep_constructs",
    "spotkeep_fleet",
    "spotkeep_jobs",
    "spotkeep_local",
    "spotkeep_pages",
    "spotkeep_planner",
    "spotkeep_rehearsal",
    "spotkeep_stacks",
}


def test_the_same_sources_give_the_same_bytes_also_from_the_sdist(built: Built, folder: Path) -> None:
    again = build(folder / "again")
    assert again.wheel.read_bytes() == built.wheel.read_bytes()
    assert again.sdist.read_bytes() == built.sdist.read_bytes()
    shutil.unpack_archive(built.sdist, folder / "unpacked")
    [project] = (folder / "unpacked").iterdir()
    assert build(folder / "of-sdist", project=project).wheel.read_bytes() == built.wheel.read_bytes()


def test_twine_finds_nothing_wrong(built: Built) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", str(built.wheel), str(built.sdist)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("PASSED") == 2


def test_a_wheel_puts_no_name_but_ours_beside_other_packages(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as packed:
        top = {name.split("/")[0] for name in packed.namelist()}
    assert {name for name in top if not name.endswith(".dist-info")} == OURS


def test_what_a_deployment_is_made_of_is_in_it_as_the_checkout_has_it(built: Built, folder: Path) -> None:
    shutil.unpack_archive(built.wheel, folder, format="zip")
    files = folder / "spotkeep_constructs" / "files"
    for name in ("cdk.json", "locks/lambda.txt", "locks/search.txt", "package.json", "package-lock.json"):
        assert (files / name).read_bytes() == (ROOT / name).read_bytes()
    functions = {path.parent.name for path in (ROOT / "lambda").glob("*/handler.py")}
    assert {path.name for path in (files / "lambda").iterdir()} == functions
    assert bundle_bytes(folder) == bundle_bytes(ROOT / "training")


def test_nothing_is_required_and_the_extras_are_for_a_newer_python(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as packed:
        [name] = [name for name in packed.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = message_from_bytes(packed.read(name))
    assert metadata["Requires-Python"] == ">=3.9"
    required = metadata.get_all("Requires-Dist", [])
    assert [each for each in required if "extra ==" not in each] == []
    for extra in ("cli", "cdk", "local", "planner", "client", "sagemaker"):
        own = [each for each in required if f"extra == '{extra}'" in each and not each.startswith("spotkeep[")]
        assert own, extra
        assert [each for each in own if "python_version >= '3.11'" not in each] == [], extra
