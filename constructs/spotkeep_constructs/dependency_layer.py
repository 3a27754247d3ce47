"""The functions' third-party packages, in a layer for each hashed lock.

uv builds a layer, and a synth keeps it for the next.

No Docker is needed, since uv picks wheels for the target platform. The asset's hash is ours (lock, target, services,
way of building). It changes when the platform does, and never because a wheel's file times did.

A cold start unpacks and reads the layer, so the layer holds no more than the functions use. Descriptions of AWS
services are most of the bytes of botocore. The layer keeps the descriptions of the services that the functions call.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, Self
from urllib.parse import urlsplit

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_lambda as lambda_
from constructs import Construct
from uv import find_uv_bin

from spotkeep_constructs.archives import (
    forget_oldest,
    is_sealed,
    keep,
    one_process_at_a_time,
    seal,
    sha256,
    zip_bytes,
    zip_directory,
)
from spotkeep_constructs.errors import LayerBuildError

Architecture = Literal["x86_64", "arm64"]

RUNTIME = lambda_.Runtime.PYTHON_3_13
_RUNTIME_PYTHON = "3.13"

# Amazon Linux 2023, which the runtime stands on, has glibc 2.34; uv's names of the older platforms pick old wheels.
_UV_PLATFORM = "x86_64-manylinux_2_28"


@dataclass(frozen=True, kw_only=True)
class LambdaTarget:
    """The interpreter and platform that function dependencies are chosen for.

    Attributes:
        architecture: Processor the functions are declared for.
        python_version: Interpreter, as `major.minor`.
        uv_platform: Platform in uv's spelling, or None for this machine's own.
        tag: The target's name in a hash.
    """

    architecture: Architecture
    python_version: str
    uv_platform: str | None
    tag: str

    @classmethod
    def aws(cls) -> Self:
        """Return Lambda's own runtime on x86-64. Arm would save a fifth of the functions' bill, which is cents."""
        return cls(
            architecture="x86_64",
            python_version=_RUNTIME_PYTHON,
            uv_platform=_UV_PLATFORM,
            tag=f"{_UV_PLATFORM}-{_RUNTIME_PYTHON}",
        )

    @classmethod
    def host(cls) -> Self:
        """Return this machine's target. The local AWS runs functions with its own interpreter."""
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        machine = platform.machine().lower()
        return cls(
            architecture="arm64" if machine in {"arm64", "aarch64"} else "x86_64",
            python_version=version,
            uv_platform=None,
            tag=f"host-{sys.platform}-{machine}-{version}",
        )

    @classmethod
    def of_this_deployment(cls) -> Self:
        """Return this machine's target where AWS's clients go to a loopback address, else Lambda's."""
        endpoint = urlsplit(os.environ.get("AWS_ENDPOINT_URL", "")).hostname
        return cls.host() if endpoint in ("127.0.0.1", "localhost", "::1") else cls.aws()

    @property
    def runs_here(self) -> bool:
        """True when the functions run on this machine, with this same interpreter."""
        return self.uv_platform is None

    @property
    def cdk_architecture(self) -> lambda_.Architecture:
        """The processor as the CDK names it."""
        return lambda_.Architecture.ARM_64 if self.architecture == "arm64" else lambda_.Architecture.X86_64


# Part of the hash: raise it when the way a layer is packed changes.
_LAYOUT = "2"

_LAYERS_KEPT = 6


class LayerBuilder(Protocol):
    """Builds a layer's archive. The seam that tests replace."""

    def __call__(self, *, lock: Path, target: LambdaTarget, services: Collection[str], destination: Path) -> None:
        """Install the packages of a lock and pack them under `python/`.

        Args:
            lock: Requirements with hashes.
            target: The interpreter and platform to install for.
            services: The AWS services that clients are made for, as `boto3.client` names them.
            destination: The archive to write, whole or not at all.

        Raises:
            LayerBuildError: The layer could not be built.
        """


class UvLayerBuilder:
    """Builds layers with uv.

    Args:
        cache_directory: uv's cache of downloads.
        uv: The path of uv. By default it is the program of the package `uv`.
    """

    def __init__(self, *, cache_directory: Path, uv: Path | None = None) -> None:
        self._uv = uv or Path(find_uv_bin())
        self._cache_directory = cache_directory

    def __call__(self, *, lock: Path, target: LambdaTarget, services: Collection[str], destination: Path) -> None:
        """Install the packages of a lock and pack them under `python/`."""
        if not self._uv.exists():
            raise LayerBuildError(
                f"The functions' dependencies are bundled with uv, and {self._uv} is missing. "
                "Install it: pip install 'spotkeep[cdk]'"
            )
        destination.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=destination.parent, prefix=".layer-") as scratch:
            packages = Path(scratch, "python")
            self._install(lock, target, packages)
            _remove_other_services(packages, services)
            if target.runs_here:
                _compile(packages)
            zip_directory(Path(scratch), destination, byte_code=target.runs_here)

    def _install(self, lock: Path, target: LambdaTarget, packages: Path) -> None:
        command = [
            *(str(self._uv), "pip", "install", "--quiet", "--no-progress", "--no-deps", "--no-config"),
            *("--require-hashes", "--only-binary", ":all:", "--requirement", str(lock)),
            *("--target", str(packages), "--python-version", target.python_version),
        ]
        if target.uv_platform:
            command += ["--python-platform", target.uv_platform]
        else:
            command += ["--python", sys.executable]
        ended = _run(command, UV_CACHE_DIR=str(self._cache_directory))
        if ended.returncode != 0:
            raise LayerBuildError(
                f"uv could not install {lock.name} for {target.tag} (exit status {ended.returncode}):\n"
                f"{ended.stderr.strip()}\n"
                "Check the network and the package index this machine uses; what was downloaded before is kept "
                f"in {self._cache_directory}."
            )


def _remove_other_services(packages: Path, services: Collection[str]) -> None:
    models = packages / "botocore" / "data"
    unknown = sorted(name for name in services if not (models / name).is_dir())
    if unknown:
        raise LayerBuildError(
            f"The locked botocore knows no service named {', '.join(unknown)}. "
            "Name services as `boto3.client` does, for example sagemaker."
        )
    # The files beside the folders (endpoints, partitions, retries, defaults) are read for every client.
    for folder in (*_folders(models), *_folders(packages / "boto3" / "data")):
        if folder.name not in services:
            shutil.rmtree(folder)


def _folders(directory: Path) -> Sequence[Path]:
    return [path for path in directory.iterdir() if path.is_dir()] if directory.is_dir() else []


def _compile(packages: Path) -> None:
    """Add byte code. The local AWS unpacks the layer at every cold start, and would compile it each time.

    Only the local AWS gets it. Byte code is bound to a minor version of Python, and Lambda's runtime may have another
    version than the synth. Python does not check it against a file time, since these archives hold none.
    """
    ended = _run(
        [
            *(sys.executable, "-m", "compileall", "-qq", "--invalidation-mode", "unchecked-hash"),
            *("-s", str(packages.parent), "-p", "/opt", str(packages)),
        ],
        # The order of a set's constants follows the hash seed, and would make each build's bytes differ.
        PYTHONHASHSEED="0",
    )
    if ended.returncode != 0:
        raise LayerBuildError(
            f"{sys.executable} could not compile the locked packages (exit status {ended.returncode}):\n"
            f"{(ended.stderr or ended.stdout).strip()}\n"
            "A locked package does not support this Python; `make lock` resolves them again."
        )


def _run(command: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


def layer_hash(*, lock: Path, target: LambdaTarget, services: Collection[str]) -> str:
    """Return the hash of a layer's inputs, which are the lock, the target, the services and the way of building."""
    return sha256("layer", _LAYOUT, lock.read_bytes(), target.tag, *sorted(services))


def kept_layer(
    *, lock: Path, target: LambdaTarget, services: Collection[str], archives: Path, build: LayerBuilder
) -> Path:
    """Return a layer's archive, and build it unless an earlier synth left it unchanged.

    When several synths need it at the same time, one builds it and the others wait.

    Args:
        lock: Requirements with hashes.
        target: The interpreter and platform to bundle for.
        services: The AWS services that the functions call, as `boto3.client` names them.
        archives: Directory that keeps built layers, one folder a hash, and forgets the oldest of several.
        build: Builds an archive that is not there yet.

    Raises:
        LayerBuildError: The layer could not be built.
    """
    archive = archives / layer_hash(lock=lock, target=target, services=services) / "layer.zip"
    with one_process_at_a_time(archives):
        if not is_sealed(archive):
            shutil.rmtree(archive.parent, ignore_errors=True)
            build(lock=lock, target=target, services=services, destination=archive)
            seal(archive)
            forget_oldest(archives, keep=_LAYERS_KEPT)
    return archive


class DependencyLayer(Construct):
    """A Lambda layer with the locked dependencies of functions.

    Each stack has its own layer version of the same archive, which is uploaded once. With one version for two stacks,
    an update would delete the old version with its own stack before it reached the other. The functions there could
    then neither be rolled back nor be deployed alone. A strong reference between the stacks would forbid the update.

    Attributes:
        layer: The layer version.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        lock: Path,
        target: LambdaTarget,
        services: Collection[str],
        archives: Path,
        build: LayerBuilder,
    ) -> None:
        """Place the layer.

        The archive is not built when the CDK asks for no bundling (`cdk destroy`, `cdk ls`), since the hash is known
        without it.

        Args:
            scope: Parent construct.
            id: Construct id.
            lock: Requirements with hashes, as for `kept_layer`.
            target: The interpreter and platform to bundle for.
            services: The AWS services that the functions call.
            archives: Directory that keeps built layers.
            build: Builds an archive that is not there yet.

        Raises:
            LayerBuildError: The layer could not be built.
        """
        super().__init__(scope, id)
        if Stack.of(self).bundling_required:
            archive = kept_layer(lock=lock, target=target, services=services, archives=archives, build=build)
        else:
            empty = zip_bytes({"python/README": b"not bundled\n"})
            archive = keep(archives / "unbundled", "layer.zip", empty)
        self.layer = lambda_.LayerVersion(
            self,
            "Layer",
            code=lambda_.Code.from_asset(
                str(archive), asset_hash=layer_hash(lock=lock, target=target, services=services)
            ),
            compatible_runtimes=[RUNTIME],
            compatible_architectures=[target.cdk_architecture],
            description=f"Spotkeep's locked dependencies for {target.tag}",
            removal_policy=RemovalPolicy.DESTROY,
        )
