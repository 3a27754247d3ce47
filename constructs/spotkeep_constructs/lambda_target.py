"""What the functions are built for: Lambda, or the machine that runs the local AWS."""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from typing import Literal, Self

from aws_cdk import aws_lambda as lambda_

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
        uv_platform: Platform in uv's spelling; None for this machine's own.
        tag: Names the target in a hash.
    """

    architecture: Architecture
    python_version: str
    uv_platform: str | None
    tag: str

    @classmethod
    def aws(cls) -> Self:
        """Return Lambda's own runtime on x86-64: Arm would save a fifth of the functions' bill, which is cents."""
        return cls(
            architecture="x86_64",
            python_version=_RUNTIME_PYTHON,
            uv_platform=_UV_PLATFORM,
            tag=f"{_UV_PLATFORM}-{_RUNTIME_PYTHON}",
        )

    @classmethod
    def host(cls) -> Self:
        """Return this machine's target: the local AWS runs functions with the interpreter it runs on itself."""
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        machine = platform.machine().lower()
        return cls(
            architecture="arm64" if machine in {"arm64", "aarch64"} else "x86_64",
            python_version=version,
            uv_platform=None,
            tag=f"host-{sys.platform}-{machine}-{version}",
        )

    @property
    def runs_here(self) -> bool:
        """Whether the functions run on this machine, with this very interpreter."""
        return self.uv_platform is None

    @property
    def cdk_architecture(self) -> lambda_.Architecture:
        """The processor as the CDK names it."""
        return lambda_.Architecture.ARM_64 if self.architecture == "arm64" else lambda_.Architecture.X86_64
