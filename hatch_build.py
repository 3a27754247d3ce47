"""Compiles the C sources for each Linux when the package is built or installed.

A wheel also carries the files outside of packages that a deployment is made of (`spotkeep_constructs.carried`).

The compiler comes from the package index like everything else, and for one version of it the same source gives the
same bytes, so the bundle that a deployment uploads depends on the sources alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("training/spotkeep/native/copy_and_add.c")
ARCHITECTURES = ("x86_64", "aarch64")
"""As `platform.machine()` names them."""

_FLAGS = (
    "-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-s",
    # Alone: whatever it would need of a libc is an error of the linker's.
    "-ffreestanding", "-nostdlib", "-Wl,-z,defs",
)  # fmt: skip


_CARRIED = ("cdk.json", "locks/lambda.txt", "locks/search.txt", "package.json", "package-lock.json")


class NativeBuild(BuildHookInterface):  # type: ignore[type-arg]
    """Hatchling's hook, called before a package is put together. Makes the shared libraries and lists carried files."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and name the files of the wheel that are in no package of it.

        Args:
            version: The kind of build, `standard` or `editable`.
            build_data: What hatchling goes on with.

        Raises:
            subprocess.CalledProcessError: If the compiler refuses; it has said why.
        """
        root = Path(self.root)
        cache = str(root / ".spotkeep/cache/zig")
        environment = os.environ | {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
        for architecture in ARCHITECTURES:
            library = SOURCE.with_name(f"{SOURCE.stem}-linux-{architecture}.so")
            compiler = (sys.executable, "-m", "ziglang", "cc", "-target", f"{architecture}-linux-none")
            command = (*compiler, *_FLAGS, "-o", str(library), str(SOURCE))
            subprocess.run(command, cwd=root, env=environment, check=True)
            build_data["artifacts"].append(f"/{library}")
        if version == "standard":
            functions = sorted(path.parent.relative_to(root) for path in root.glob("lambda/*/handler.py"))
            pages = sorted(path.relative_to(root) for path in root.glob("docs/*.md"))
            build_data["force_include"] |= {
                str(path): f"spotkeep_constructs/files/{path}" for path in (*map(Path, _CARRIED), *functions, *pages)
            }
