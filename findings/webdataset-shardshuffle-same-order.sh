#!/usr/bin/env bash
# webdataset 1.0.2: `WebDataset(urls, shardshuffle=100)` gives the shards in the same order in every epoch, and so does `.shuffle(100, seed=1)`
# for the samples: each pass makes its generator anew from the seed. A good guess is that a shuffle is another one in each epoch, as that of
# torch's DataLoader. `detshuffle=True` counts the epochs. Seen on 2026-11-28.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target "$folder" \
  webdataset==1.0.2 braceexpand==0.1.7 numpy==2.3.4 pyyaml==6.0.3
seen="$(PYTHONPATH="$folder" python3 -W ignore - "$folder" <<'PYTHON'
import io
import sys
import tarfile

import webdataset

urls = [f"{sys.argv[1]}/{shard}.tar" for shard in range(8)]
for shard, url in enumerate(urls):
    with tarfile.open(url, "w") as tar:
        info = tarfile.TarInfo(f"{shard}.txt")
        info.size = 1
        tar.addfile(info, io.BytesIO(str(shard).encode()))
for options in ({}, {"detshuffle": True}):
    dataset = webdataset.WebDataset(urls, shardshuffle=100, **options).decode().to_tuple("txt")
    epochs = ["".join(text for (text,) in dataset) for _ in range(3)]
    print(len(set(epochs)), end=" ")
PYTHON
)"
echo "$seen"
expected="1 3 "
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-28 it was: $expected" >&2; exit 1; }
