#!/usr/bin/env bash
# zstandard 0.25.0: a `.zst` file that was cut off in its middle is a shorter file, without a word, by each way that reads it piece by piece,
# also with a checksum in it. So it is through fsspec 2026.9.0, and a table that pandas 3.1.1 reads ends with a number that was cut. A good
# guess is an error, as Python's own `gzip`, `bz2` and `lzma` raise EOFError. `ZstdDecompressor.decompress` of all bytes at once raises.
# Seen on 2026-11-30.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" zstandard==0.25.0 fsspec==2026.9.0 pandas==3.1.1 numpy==2.4.6
cd "$folder"
seen="$(PYTHONPATH="$folder" python3 -W ignore - <<'PYTHON'
import bz2
import gzip
import io
import lzma
import random

import fsspec
import pandas
import zstandard

ROWS = 20_000
numbers = random.Random(1)
text = "".join(f"{row},{numbers.random()}\n" for row in range(ROWS)).encode()


def cut(packed):
    return packed[: len(packed) // 2]


def copied(data):
    out = io.BytesIO()
    zstandard.ZstdDecompressor().copy_stream(io.BytesIO(data), out)
    return out.getvalue()


zst = cut(zstandard.ZstdCompressor(write_checksum=True).compress(text))
with open("table.csv.zst", "wb") as file:
    file.write(zst)
WAYS = {
    "gzip": lambda: gzip.decompress(cut(gzip.compress(text, mtime=0))),
    "bz2": lambda: bz2.open(io.BytesIO(cut(bz2.compress(text)))).read(),
    "lzma": lambda: lzma.open(io.BytesIO(cut(lzma.compress(text)))).read(),
    "zstandard decompress": lambda: zstandard.ZstdDecompressor().decompress(zst),
    "zstandard open": lambda: zstandard.open("table.csv.zst").read(),
    "zstandard read_to_iter": lambda: b"".join(zstandard.ZstdDecompressor().read_to_iter(zst)),
    "zstandard copy_stream": lambda: copied(zst),
    "zstandard decompressobj": lambda: zstandard.ZstdDecompressor().decompressobj().decompress(zst),
    "fsspec": lambda: fsspec.open("table.csv.zst", compression="infer").open().read(),
    "pandas": lambda: pandas.read_csv("table.csv.zst", header=None).to_csv(header=False).encode(),
}
for name, read in WAYS.items():
    try:
        rows = read().count(b"\n")
    except (EOFError, zstandard.ZstdError) as error:
        print(f"{name}: {type(error).__name__}")
    else:
        print(f"{name}: {rows} rows of {ROWS}")
PYTHON
)"
echo "$seen"
expected="gzip: EOFError
bz2: EOFError
lzma: EOFError
zstandard decompress: ZstdError
zstandard open: 5446 rows of 20000
zstandard read_to_iter: 5446 rows of 20000
zstandard copy_stream: 5446 rows of 20000
zstandard decompressobj: 5446 rows of 20000
fsspec: 5446 rows of 20000
pandas: 5447 rows of 20000"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-30 it was: $expected" >&2; exit 1; }
