"""A package, or an archive built from packages, is replaced on its way into a deployment or onto a developer's machine.

Who: the owner of a package index or of a proxy before it; another user of the machine who may write to the checkout.
With what: a file of another content under the name that is expected.
What they would gain: code in every function of a deployment, or on the machine of the developer who sets the checkout
up.
"""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import pytest

from spotkeep_constructs.archives import is_sealed, keep, seal
from spotkeep_constructs.dependency_layer import LambdaTarget
from spotkeep_local import cdk
from tests.infrastructure.conftest import ROOT
from tests.infrastructure.test_dependency_layer import RecordedBuilds, place

LOCKS = sorted((ROOT / "locks").glob("*.txt"))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_package_of_every_lock_has_a_hash_and_no_lock_names_an_index(lock: Path) -> None:
    text = lock.read_text()
    entries = [entry for entry in re.split(r"\n(?=[a-z])", text) if re.match(r"[a-z]", entry)]
    assert entries
    for entry in entries:
        assert re.match(r"[a-z0-9._-]+(\[[a-z,]+\])?==\S+", entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry), entry
    assert "://" not in text
    assert not re.search(r"^--?(i|f|index-url|extra-index-url|find-links)\b", text, re.MULTILINE)


def test_nothing_is_installed_without_hashes() -> None:
    recipe = (ROOT / "Makefile").read_text()
    installs = re.findall(r"pip install [^;|&\n]*", recipe)
    assert len(installs) >= 4
    for install in installs:
        assert "--require-hashes" in install or "--no-deps --no-build-isolation -e ." in install, install
    assert 'npm-cli.js" ci' in recipe, "what package-lock.json names, by its hashes"


def test_every_npm_package_has_a_hash_and_no_registry_is_named() -> None:
    packages = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    locked = {name: package for name, package in packages.items() if name}
    assert locked
    for name, package in locked.items():
        assert package["integrity"].startswith("sha512-"), name
        assert "resolved" not in package, name


def test_a_first_deployment_installs_the_cdk_command_line_and_nothing_that_only_tests_need() -> None:
    packages = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    assert [name for name, package in packages.items() if name and not package.get("dev")] == ["node_modules/aws-cdk"]
    assert "--omit=dev" in cdk._NPM_OPTIONS


@pytest.mark.parametrize("sealed_again", [False, True])
def test_a_layer_that_another_process_replaced_is_built_anew(tmp_path: Path, *, sealed_again: bool) -> None:
    build = RecordedBuilds()
    archive = place(tmp_path, build, target=LambdaTarget.host())
    archive.write_bytes(b"evil")
    if sealed_again:
        seal(archive)
        archive.parent.chmod(0o777)  # how another user could have done it
    place(tmp_path, build, target=LambdaTarget.host())
    assert len(build.targets) == 2
    assert zipfile.is_zipfile(archive)
    place(tmp_path, build, target=LambdaTarget.host())
    assert len(build.targets) == 2, "and is then trusted again"


@pytest.mark.parametrize("writable", ["", "layer.zip", "layer.zip.sha256"])
def test_what_others_can_write_vouches_for_nothing(tmp_path: Path, writable: str) -> None:
    archive = tmp_path / "hash" / "layer.zip"
    archive.parent.mkdir()
    archive.write_bytes(b"content")
    seal(archive)
    assert is_sealed(archive)
    for mode in (0o775, 0o757):
        (archive.parent / writable).chmod(mode)
        assert not is_sealed(archive)
    (archive.parent / writable).chmod(0o755)
    assert is_sealed(archive)
    archive.rename(tmp_path / "elsewhere")
    archive.symlink_to(tmp_path / "elsewhere")
    assert not is_sealed(archive)


def test_a_kept_archive_is_known_by_its_content_and_not_by_its_name(tmp_path: Path) -> None:
    """Function code and `spotkeep.pyz`, which runs in every job."""
    keep(tmp_path, "spotkeep.pyz", b"evil")
    assert keep(tmp_path, "spotkeep.pyz", b"good").read_bytes() == b"good"
