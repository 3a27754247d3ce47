#!/usr/bin/env bash
# safetensors 0.6.2 with numpy 2.3.4 and ml_dtypes 0.5.3: `safetensors.numpy.save` takes a NumPy array of bfloat16 and writes it as BF16,
# and `safetensors.numpy.load` of the very same bytes fails with a KeyError. A good guess is that what one function of a module
# writes the other one reads, or that the first one refuses. Seen on 2026-11-28.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" numpy==2.3.4 ml_dtypes==0.5.3 safetensors==0.6.2
seen="$(PYTHONPATH="$folder" python3 - <<'PYTHON'
import ml_dtypes
import numpy
import safetensors.numpy

written = safetensors.numpy.save({"weight": numpy.arange(4, dtype=ml_dtypes.bfloat16)})
try:
    print(safetensors.numpy.load(written)["weight"].dtype)
except KeyError as error:
    print(b'"dtype":"BF16"' in written, "KeyError", error)
PYTHON
)"
echo "$seen"
expected="True KeyError 'BF16'"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-28 it was: $expected" >&2; exit 1; }
