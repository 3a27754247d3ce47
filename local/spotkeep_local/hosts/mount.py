"""The `mount` of an instance, for the file systems of the local AWS. Each is a folder of this machine.

It is a bind mount, or a link on a host without mounts. A link lets a job write with `ro` as well.

Usage: `python -I -S mount.py FOLDER -t KIND -o OPTIONS SOURCE POINT`, as mount(8). It runs without our packages on its
path, so it imports the standard library alone. FOLDER has a folder for each file system, and FSx's descriptions.

Sources: the messages of mount.lustre(8) and mount.nfs(8)
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
"""The folders of the machine's own `mount` and `umount`."""
_SOURCE = re.compile(r"(?P<id>fs-[0-9a-f]+)\.(fsx|efs)\.[a-z0-9.-]+?(@tcp)?:(?P<path>/.*)")
_FAILED = 32


def main(words: list[str]) -> int:
    """Mount a directory of a file system. Returns the exit code."""
    folder, _, kind, _, options, source, point = words
    directory = _directory(Path(folder), kind, source)
    if directory is None:
        print(f"mount.{kind}: mount {source} at {point} failed: No such file or directory", file=sys.stderr)
        return _FAILED
    if "SPOTKEEP_LOCAL_INSTANCE_ROOT" in os.environ:
        Path(point).rmdir()
        Path(point).symlink_to(directory)
        return 0
    command = ["mount", "--bind", str(directory), point]
    read_only = ["mount", "-o", "remount,bind,ro", point] if "ro" in options.split(",") else ["true"]
    for each in (command, read_only):
        if code := subprocess.run(each, env={"PATH": SYSTEM_PATH}, check=False).returncode:
            return code
    return 0


def _directory(folder: Path, kind: str, source: str) -> Path | None:
    found = _SOURCE.fullmatch(source)
    if found is None:
        return None
    parts = [part for part in found["path"].split("/") if part]
    if kind == "lustre":
        described = json.loads((folder / "fsx.json").read_text())["file_systems"].get(found["id"])
        if described is None or parts[:1] != [described["LustreConfiguration"]["MountName"]]:
            return None
        del parts[0]
    root = folder / found["id"]
    root.mkdir(exist_ok=True)  # The root of a new file system is there, and nothing in it.
    directory = root.joinpath(*parts)
    return directory if ".." not in parts and directory.is_dir() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
