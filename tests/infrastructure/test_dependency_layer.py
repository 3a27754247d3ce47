"""The dependency layer: built once for a lock and a platform, with uv alone, and no more in it than functions use."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack

from spotkeep_constructs.archives import is_sealed, one_process_at_a_time
from spotkeep_constructs.dependency_layer import LambdaTarget, UvLayerBuilder, kept_layer
from spotkeep_constructs.deployment_build import AWS_SERVICES, DeploymentBuild, Project
from spotkeep_constructs.errors import LayerBuildError
from spotkeep_constructs.settings import Settings

from .conftest import ROOT


@dataclass
class RecordedBuilds:
    """A layer builder that packs one file and remembers for what."""

    targets: list[LambdaTarget] = field(default_factory=list)

    def __call__(self, *, lock: Path, target: LambdaTarget, services: Collection[str], destination: Path) -> None:
        self.targets.append(target)
        destination.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(destination, "w") as archive:
            archive.writestr("python/locked.txt", lock.read_text())


def place(
    directory: Path,
    build: RecordedBuilds,
    *,
    target: LambdaTarget,
    lock: str = "one==1",
    services: Collection[str] = ("sns",),
) -> Path:
    (directory / "lambda.txt").write_text(lock)
    return kept_layer(
        lock=directory / "lambda.txt", target=target, services=services, archives=directory / "layers", build=build
    )


@pytest.mark.parametrize(
    ("endpoint", "target"),
    [
        (None, LambdaTarget.aws()),
        ("https://sts.eu-west-1.amazonaws.com", LambdaTarget.aws()),
        ("http://127.0.0.1:4566", LambdaTarget.host()),
    ],
)
def test_a_deployment_has_lambdas_packages_and_on_the_local_aws_this_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str | None, target: LambdaTarget
) -> None:
    if endpoint is None:
        monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    else:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    build = RecordedBuilds()
    platform_of(tmp_path, build, {})
    assert build.targets == [target]


def platform_of(directory: Path, build: RecordedBuilds, context: dict[str, Any]) -> None:
    project = replace(Project.at(ROOT), layers=directory / "layers", archives=directory / "archives")
    stack = Stack(App(outdir=str(directory / "cdk.out"), context=context), "Test")
    DeploymentBuild(settings=Settings(), project=project, build_layer=build).platform(stack)


def test_a_second_synth_waits_until_the_first_one_has_built_the_layer(tmp_path: Path) -> None:
    layers = tmp_path / "layers"
    found: list[bool] = []

    def second_synth() -> None:
        with one_process_at_a_time(layers):
            found.extend(is_sealed(archive) for archive in layers.glob("*/layer.zip"))

    second = threading.Thread(target=second_synth)

    class BuiltMeanwhile(RecordedBuilds):
        def __call__(self, **layer: Any) -> None:
            second.start()
            second.join(0.2)
            assert second.is_alive()
            super().__call__(**layer)

    place(tmp_path, BuiltMeanwhile(), target=LambdaTarget.aws())
    second.join()
    assert found == [True]


def test_the_oldest_layers_make_room_for_new_ones_and_the_new_one_stays(tmp_path: Path) -> None:
    build = RecordedBuilds()
    layers = tmp_path / "layers"
    for age in range(10):
        layer = place(tmp_path, build, target=LambdaTarget.host(), lock=f"one=={age}")
        os.utime(layer.parent, (age, age))
    assert len(list(layers.iterdir())) < 10
    assert layer.exists()
    # The first one again: it was forgotten, so it is built anew.
    again = place(tmp_path, build, target=LambdaTarget.host(), lock="one==0")
    assert len(build.targets) == 11
    assert again.exists()


def test_a_layer_is_built_once_for_a_lock_a_processor_a_platform_and_services_in_any_order(tmp_path: Path) -> None:
    build = RecordedBuilds()
    hashes = {
        place(tmp_path, build, target=target, lock=lock, services=services).parent.name
        for target in (LambdaTarget.aws(), LambdaTarget.host())
        for lock in ("one==1", "one==2")
        for services in (("sns",), ("logs", "sns"), ("sns", "logs"))
    }
    assert len(hashes) == 8
    assert len(build.targets) == 8


def test_nothing_is_built_when_the_cdk_asks_for_no_bundling(tmp_path: Path) -> None:
    build = RecordedBuilds()
    platform_of(tmp_path, build, {"aws:cdk:bundling-stacks": []})
    assert build.targets == []


def test_the_services_described_to_boto3_are_those_the_functions_call() -> None:
    assert set(AWS_SERVICES) == set(services_called(ROOT / "lambda"))


def services_called(source_root: Path) -> Iterator[str]:
    """First arguments of every `boto3.client(...)`, which have to be literals to be counted on."""
    for path in sorted(source_root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(attr="client"), args=[ast.Constant(value=str(service)), *_]):
                    yield service
                case ast.Call(func=ast.Attribute(attr="client" | "resource")):
                    pytest.fail(f"{path.relative_to(ROOT)}:{node.lineno} makes a client that is not named by a literal")


def bundle(
    destination: Path,
    *,
    target: LambdaTarget,
    lock: Path | None = None,
    services: Collection[str] = AWS_SERVICES,
    uv: Path | None = None,
) -> Path:
    """Build a layer of a lock, by default of the real one."""
    project = Project.at(ROOT)
    build = UvLayerBuilder(cache_directory=project.uv_cache, uv=uv)
    build(lock=lock or project.lock, target=target, services=services, destination=destination)
    return destination


@pytest.fixture
def small_lock(tmp_path: Path) -> Path:
    """One package of the real lock, without dependencies."""
    [package] = re.findall(
        r"^typing-extensions==.*?(?=^\S)", Project.at(ROOT).lock.read_text(), re.DOTALL | re.MULTILINE
    )
    path = tmp_path / "small.txt"
    path.write_text(package)
    return path


def test_a_missing_uv_is_named_with_the_way_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(LayerBuildError, match=r"uv is missing\. Install it: pip install 'spotkeep\[cdk\]'"):
        bundle(tmp_path / "layer.zip", target=LambdaTarget.host(), uv=tmp_path / "uv")


def test_a_lock_that_cannot_be_installed_is_reported_in_uvs_words(tmp_path: Path) -> None:
    lock = tmp_path / "lambda.txt"
    lock.write_text("boto3==1.43.106\n")
    with pytest.raises(LayerBuildError, match=r"(?s)could not install lambda\.txt .*hash"):
        bundle(tmp_path / "layers" / "layer.zip", target=LambdaTarget.host(), lock=lock)
    assert list((tmp_path / "layers").iterdir()) == []


def test_a_service_that_botocore_does_not_know_is_named(tmp_path: Path, small_lock: Path) -> None:
    with pytest.raises(LayerBuildError, match=r"no service named sagemakr\. Name services as `boto3\.client` does"):
        bundle(tmp_path / "layers" / "layer.zip", target=LambdaTarget.host(), lock=small_lock, services=("sagemakr",))
    assert list((tmp_path / "layers").iterdir()) == []


def test_a_layer_for_this_machine_brings_its_byte_code_and_each_build_gives_the_same_bytes(
    tmp_path: Path, small_lock: Path
) -> None:
    one, other = (
        bundle(tmp_path / name, target=LambdaTarget.host(), lock=small_lock, services=()) for name in ("one", "other")
    )
    assert one.read_bytes() == other.read_bytes()
    byte_code = importlib.util.cache_from_source("python/typing_extensions.py")
    with zipfile.ZipFile(one) as packed:
        # Flags 0b01 (PEP 552): valid by its hash, which needs no check.
        assert packed.read(byte_code)[:8] == importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little")


@pytest.mark.long
def test_the_real_lock_is_bundled_for_lambda_with_the_services_called_and_without_byte_code_of_another_python(
    tmp_path: Path,
) -> None:
    with zipfile.ZipFile(bundle(tmp_path / "layer.zip", target=LambdaTarget.aws())) as packed:
        names = packed.namelist()
    assert not [name for name in names if name.endswith(".pyc")]
    packages = {name.split("/")[1] for name in names}
    assert {"boto3", "botocore", "pydantic", "pydantic_core", "aws_lambda_powertools", "aws_xray_sdk"} <= packages
    described = {name.split("/")[3] for name in names if re.match(r"python/botocore/data/[^/]+/", name)}
    assert described == set(AWS_SERVICES)


@pytest.mark.long
def test_the_real_lock_can_be_imported_on_this_machine_and_makes_clients_of_the_services_called(tmp_path: Path) -> None:
    """As deployments on the local AWS share it, unpacked as it is on a function's path."""
    project = Project.at(ROOT)
    layer = kept_layer(
        lock=project.lock,
        target=LambdaTarget.host(),
        services=AWS_SERVICES,
        archives=project.layers,
        build=UvLayerBuilder(cache_directory=project.uv_cache),
    )
    with zipfile.ZipFile(layer) as packed:
        packed.extractall(tmp_path)
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); "
        "import pydantic, boto3, aws_lambda_powertools; print(pydantic.__file__); "
        "session = boto3.Session('id', 'secret', region_name='eu-west-1'); "
        f"print([session.client(name).meta.endpoint_url for name in {AWS_SERVICES!r}]); "
        "print(session.client('sagemaker').can_paginate('list_training_jobs'))"
    )
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", script, str(tmp_path / "python")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(str(tmp_path))
    assert ended.stdout.count("https://") == len(AWS_SERVICES)
    assert ended.stdout.endswith("True\n")
