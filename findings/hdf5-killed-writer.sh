#!/usr/bin/env bash
# h5py 3.14.0 (HDF5 1.14.6): a file whose writer was killed between a flush and its end. Each version of the format notes in its
# superblock that a writer has the file open. HDF5 heeds that note in version 3 alone (libver="latest") and refuses the file. In the
# version that h5py writes by default, and in version 2, it opens half a file without a word, as if it was closed: a good guess is
# that it refuses, or warns, in all. Seen on 2026-11-28.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" numpy==2.3.4 h5py==3.14.0
seen="$(cd "$folder" && PYTHONPATH="$folder" python3 - <<'PYTHON'
import os

import h5py


def write_half(path, version):
    with h5py.File(path, "w", libver=version) as file:
        file["first"] = [1.0]
        file.flush()
        os._exit(0)  # as a kill: the second is never written, and nothing closes the file


for version, offset in (("earliest", 20), ("v108", 11), ("latest", 11)):
    path = f"{version}.h5"
    writer = os.fork()
    if not writer:
        write_half(path, version)
    os.waitpid(writer, 0)
    with open(path, "rb") as file:
        noted = file.read(24)[offset] & 1
    try:
        with h5py.File(path) as file:
            print(version, noted, "opens:", *file)
    except OSError:
        print(version, noted, "is refused")
PYTHON
)"
echo "$seen"
expected="earliest 1 opens: first
v108 1 opens: first
latest 1 is refused"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-28 it was: $expected" >&2; exit 1; }
