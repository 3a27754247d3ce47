"""The functions' third-party packages: one layer, built from a hashed lock with uv, kept between synths.

No Docker: uv picks wheels for the target platform. The asset's hash is ours (lock, target, way of building), so it
changes when the platform does and never because a wheel's file times did.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Protocol

from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from spotkeep_constructs.archives import keep, sha256, zip_bytes, zip_directory
from spotkeep_constructs.errors import LayerBuildError
from spotkeep_constructs.lambda_target import RUNTIME, LambdaTarget

# Part of the hash: raise it when the way a layer is packed changes.
_LAYOUT = "1"


class LayerBuilder(Protocol):
    """Builds a layer's archive; the seam that tests replace."""

    def __call__(self, *, lock: Path, target: LambdaTarget, destination: Path) -> None:
        """Installs what a lock names and packs it under `python/`.

        Args:
            lock: Requirements with hashes.
            target: What to install for.
            destination: The archive to write, whole or not at all.

        Raises:
            LayerBuildError: It could not be built.
        """


class UvLayerBuilder:
    """Builds layers with uv, which has to be in the environment's own `bin`.

    Args:
        cache_directory: uv's cache of downloads.
        uv: The program. Default: beside the running interpreter.
    """

    def __init__(self, *, cache_directory: Path, uv: Path | None = None) -> None:
        self._uv = uv or Path(sys.executable).parent / "uv"
        self._cache_directory = cache_directory

    def __call__(self, *, lock: Path, target: LambdaTarget, destination: Path) -> None:
        """See `LayerBuilder`."""
        if not self._uv.exists():
            raise LayerBuildError(
                f"The functions' dependencies are bundled with uv, and {self._uv} is missing. "
                "Run `make setup`, which installs it."
            )
        destination.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=destination.parent, prefix=".layer-") as scratch:
            command = [
                *(str(self._uv), "pip", "install", "--quiet", "--no-progress", "--no-deps", "--no-config"),
                *("--require-hashes", "--only-binary", ":all:", "--requirement", str(lock)),
                *("--target", str(Path(scratch, "python")), "--python-version", target.python_version),
            ]
            if target.uv_platform:
                command += ["--python-platform", target.uv_platform]
            else:
                command += ["--python", sys.executable]
            ended = subprocess.run(
                command,
                env={**os.environ, "UV_CACHE_DIR": str(self._cache_directory)},
                capture_output=True,
                text=True,
                check=False,
            )
            if ended.returncode != 0:
                raise LayerBuildError(
                    f"uv could not install {lock.name} for {target.tag} (exit status {ended.returncode}):\n"
                    f"{ended.stderr.strip()}\n"
                    "Check the network and the package index this machine uses; what was downloaded before is kept "
                    f"in {self._cache_directory}."
                )
            zip_directory(Path(scratch), destination)


class DependencyLayer(Construct):
    """A Lambda layer with the locked dependencies of every function.

    Each stack has its own layer version of the same archive: a version's ARN changes with every release, and a stack
    must not import from another what that one is about to replace.

    Attributes:
        layer: The layer version.
        asset_hash: Hash of the lock, the target and the way of building.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        lock: Path,
        target: LambdaTarget,
        archives: Path,
        build: LayerBuilder,
    ) -> None:
        """Places the layer; builds its archive unless an earlier synth did.

        The archive is not built when the CDK asks for no bundling (`cdk destroy`, `cdk ls`): the hash is known without.

        Args:
            scope: Parent construct.
            id: Construct id.
            lock: Requirements with hashes.
            target: What to bundle for.
            archives: Directory that keeps built layers, one folder a hash.
            build: Builds an archive that is not there yet.

        Raises:
            LayerBuildError: It could not be built.
        """
        super().__init__(scope, id)
        self.asset_hash = sha256("layer", _LAYOUT, lock.read_bytes(), target.tag)
        if Stack.of(self).bundling_required:
            archive = archives / self.asset_hash / "layer.zip"
            if not archive.exists():
                build(lock=lock, target=target, destination=archive)
        else:
            empty = zip_bytes({"python/README": b"not bundled\n"})
            archive = keep(archives / "unbundled", "layer.zip", empty)
        self.layer = lambda_.LayerVersion(
            self,
            "Layer",
            code=lambda_.Code.from_asset(str(archive), asset_hash=self.asset_hash),
            compatible_runtimes=[RUNTIME],
            compatible_architectures=[target.cdk_architecture],
            description=f"Spotkeep's locked dependencies for {target.tag}",
            removal_policy=RemovalPolicy.DESTROY,
        )
