"""The dependency layer: built once for a lock and a platform, with uv alone, and never a surprise."""

from __future__ import annotations

import importlib.machinery
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aws_cdk import App, Stack

from spotkeep_constructs.dependency_layer import DependencyLayer, UvLayerBuilder
from spotkeep_constructs.errors import LayerBuildError
from spotkeep_constructs.lambda_target import LambdaTarget
from stacks.project import Project

from .conftest import ROOT


@dataclass
class RecordedBuilds:
    """A layer builder that packs one file and remembers for what."""

    targets: list[LambdaTarget] = field(default_factory=list)

    def __call__(self, *, lock: Path, target: LambdaTarget, destination: Path) -> None:
        self.targets.append(target)
        destination.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(destination, "w") as archive:
            archive.writestr("python/locked.txt", lock.read_text())


def place(directory: Path, build: RecordedBuilds, *, target: LambdaTarget, lock: str = "one==1") -> DependencyLayer:
    directory.mkdir(exist_ok=True)
    (directory / "lambda.txt").write_text(lock)
    stack = Stack(App(outdir=str(directory / "cdk.out")), "Test")
    return DependencyLayer(
        stack,
        "Layer",
        lock=directory / "lambda.txt",
        target=target,
        archives=directory / "layers",
        build=build,
    )


def test_a_layer_is_built_once_for_a_lock_and_a_platform(tmp_path: Path) -> None:
    build = RecordedBuilds()
    first = place(tmp_path, build, target=LambdaTarget.aws("x86_64"))
    second = place(tmp_path, build, target=LambdaTarget.aws("x86_64"))
    assert first.asset_hash == second.asset_hash
    assert len(build.targets) == 1


def test_the_hash_changes_with_the_lock_the_processor_and_the_platform(tmp_path: Path) -> None:
    build = RecordedBuilds()
    hashes = {
        place(tmp_path, build, target=target, lock=lock).asset_hash
        for target in (LambdaTarget.aws("x86_64"), LambdaTarget.aws("arm64"), LambdaTarget.host())
        for lock in ("one==1", "one==2")
    }
    assert len(hashes) == 6
    assert len(build.targets) == 6


def test_nothing_is_built_when_the_cdk_asks_for_no_bundling(tmp_path: Path) -> None:
    build = RecordedBuilds()
    (tmp_path / "lambda.txt").write_text("one==1")
    app = App(outdir=str(tmp_path / "cdk.out"), context={"aws:cdk:bundling-stacks": []})
    layer = DependencyLayer(
        Stack(app, "Test"),
        "Layer",
        lock=tmp_path / "lambda.txt",
        target=LambdaTarget.aws("x86_64"),
        archives=tmp_path / "layers",
        build=build,
    )
    assert build.targets == []
    assert layer.asset_hash == place(tmp_path, build, target=LambdaTarget.aws("x86_64")).asset_hash


def test_a_missing_uv_is_named_with_the_way_to_get_it(tmp_path: Path) -> None:
    build = UvLayerBuilder(cache_directory=tmp_path, uv=tmp_path / "uv")
    with pytest.raises(LayerBuildError, match=r"uv is missing\. Run `make setup`"):
        build(lock=tmp_path / "lambda.txt", target=LambdaTarget.host(), destination=tmp_path / "layer.zip")


def test_a_lock_that_cannot_be_installed_is_reported_in_uvs_words(tmp_path: Path) -> None:
    lock = tmp_path / "lambda.txt"
    lock.write_text("boto3==1.43.106\n")
    build = UvLayerBuilder(cache_directory=tmp_path / "cache")
    with pytest.raises(LayerBuildError, match=r"(?s)could not install lambda\.txt .*hash"):
        build(lock=lock, target=LambdaTarget.host(), destination=tmp_path / "layers" / "layer.zip")
    assert list((tmp_path / "layers").iterdir()) == []


@pytest.mark.slow
def test_the_real_lock_is_bundled_for_this_machine_and_can_be_imported(tmp_path: Path) -> None:
    project = Project.at(ROOT)
    archive = tmp_path / "layer.zip"
    UvLayerBuilder(cache_directory=project.uv_cache)(lock=project.lock, target=LambdaTarget.host(), destination=archive)
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(tmp_path / "opt")
    names = {path.name for path in (tmp_path / "opt" / "python").iterdir()}
    assert {"boto3", "botocore", "pydantic", "pydantic_core", "aws_lambda_powertools", "aws_xray_sdk"} <= names
    (compiled,) = (tmp_path / "opt" / "python" / "pydantic_core").glob("_pydantic_core*.so")
    assert any(compiled.name.endswith(suffix) for suffix in importlib.machinery.EXTENSION_SUFFIXES)
    ended = subprocess.run(
        [
            *(sys.executable, "-I", "-S", "-c"),
            "import sys; sys.path.insert(0, sys.argv[1]); import pydantic, boto3, aws_lambda_powertools; "
            "print(pydantic.__file__)",
            str(tmp_path / "opt" / "python"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(str(tmp_path))
