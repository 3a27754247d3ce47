#!/usr/bin/env bash
# ml_dtypes 0.5.3 with numpy 2.3.4: `mean` of 1,000 ones in bfloat16 is 0.256, because NumPy adds numbers of this type one after the other
# in bfloat16 itself, where 256 + 1 is 256. For NumPy's own float16 it adds in float32, and gives 1.0. A good guess is that
# the mean of ones is one, as in JAX and torch, which are where such arrays come from. Seen on 2026-11-28.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" numpy==2.3.4 ml_dtypes==0.5.3
seen="$(PYTHONPATH="$folder" python3 - <<'PYTHON'
import ml_dtypes
import numpy

for kind in (numpy.float16, ml_dtypes.bfloat16):
    ones = numpy.ones(1000, dtype=kind)
    print(ones.dtype, float(numpy.sum(ones)), round(float(numpy.mean(ones)), 3))
PYTHON
)"
echo "$seen"
expected="float16 1000.0 1.0
bfloat16 256.0 0.256"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-28 it was: $expected" >&2; exit 1; }
