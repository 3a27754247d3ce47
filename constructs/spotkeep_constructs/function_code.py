"""The code of all functions in one archive; which of them runs is said by the name of the handler.

It is built, uploaded and unpacked once, where an archive a function would hold the shared packages once each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from aws_cdk import aws_lambda as lambda_

from spotkeep_constructs.archives import keep, python_sources, sha256, zip_bytes
from spotkeep_constructs.errors import PropertyError

SHARED_PACKAGE = "spotkeep_jobs"
STEERING = ("spotkeep_planner/__init__.py", "spotkeep_planner/errors.py", "spotkeep_planner/steering/")
"""The part of the planner that steers a run: the rest needs packages that the functions do not have."""
PACKED_VARIABLES = "variables.json"
"""The archive's file of variables that the environment has no room for, by name; functions read both alike."""


def code_files(functions: Path, *, planner: Path, training: Path) -> dict[str, bytes]:
    """Return what the functions run, by path in the archive.

    Args:
        functions: The source root that holds a package a function, and `SHARED_PACKAGE`.
        planner: The source root of the planner.
        training: The source root whose fleet record the functions carry.

    Raises:
        PropertyError: The first is no such source root.
    """
    packages = [path.parent for path in sorted(functions.glob("*/__init__.py"))]
    if SHARED_PACKAGE not in {package.name for package in packages}:
        raise PropertyError(
            name="FunctionCode.functions",
            problem=f"holds no package {SHARED_PACKAGE}",
            found=str(functions),
            fix="Give the directory lambda/ of a checkout of Spotkeep.",
        )
    files: dict[str, bytes] = {}
    for package in (*packages, training / "spotkeep_fleet"):
        files |= python_sources(package)
    steering = python_sources(planner / "spotkeep_planner")
    return files | {name: content for name, content in steering.items() if name.startswith(STEERING)}


@dataclass(frozen=True, kw_only=True)
class FunctionCode:
    """The archive, as a synth keeps it.

    Attributes:
        archive: Where it is kept.
        digest: Its hash, and so the asset's.
        packages: The packages in it that hold a handler.
    """

    archive: Path
    digest: str
    packages: frozenset[str]

    @classmethod
    def pack(cls, files: Mapping[str, bytes], *, variables: Mapping[str, str], archives: Path) -> Self:
        """Pack it; the same files and variables give the same bytes.

        Args:
            files: Content by path in the archive.
            variables: What `PACKED_VARIABLES` holds: settings of the functions that a team may make long.
            archives: The directory that keeps built archives, one folder a hash.
        """
        packed = {PACKED_VARIABLES: json.dumps(variables, sort_keys=True).encode()}
        content = zip_bytes({**files, **packed})
        digest = sha256(content)
        return cls(
            archive=keep(archives / digest, "functions.zip", content),
            digest=digest,
            packages=frozenset(name.removesuffix("/handler.py") for name in files if name.endswith("/handler.py")),
        )

    def asset(self) -> lambda_.Code:
        """Return the code of a function."""
        return lambda_.Code.from_asset(str(self.archive), asset_hash=self.digest)
