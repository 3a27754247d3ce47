#!/usr/bin/env bash
# webdataset 1.0.2: a shard that was cut off between two files, or in the header of one, is read as a shorter one, without an error or a warning. A
# cut in the bytes of a file is an error. A good guess is that a cut shard is always seen, because a tar file has a mark at its end. Cause: it
# reads by Python's tarfile, which takes a header that is cut for the end, and does not ask for the mark. Copies that end early leave such shards.
# Seen on 2026-11-30.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" webdataset==1.0.2 numpy
seen="$(cd "$folder" && PYTHONPATH="$folder" python3 - <<'PYTHON'
import io
import tarfile

import webdataset

written = io.BytesIO()
with tarfile.open(fileobj=written, mode="w") as shard:
    for number in range(100):
        info = tarfile.TarInfo(f"{number:03}.txt")
        info.size = 600  # With its header three blocks of 512 bytes.
        shard.addfile(info, io.BytesIO(b"x" * info.size))
for name, cut in (("between two files", 50 * 1536), ("in a header", 50 * 1536 + 100), ("in a file", 50 * 1536 + 700)):
    with open("shard.tar", "wb") as file:
        file.write(written.getvalue()[:cut])
    try:
        print(f"{name}: {sum(1 for _ in webdataset.WebDataset('shard.tar', shardshuffle=False))} samples of 100")
    except tarfile.ReadError:
        print(f"{name}: an error")
PYTHON
)"
echo "$seen"
expected="between two files: 50 samples of 100
in a header: 50 samples of 100
in a file: an error"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-30 it was:" "$expected" >&2; exit 1; }
