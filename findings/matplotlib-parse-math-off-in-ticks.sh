#!/usr/bin/env bash
# matplotlib 3.11.2: with `text.parse_math: False`, which keeps the dollar signs of a label from being a formula, the ticks of a
# logarithmic axis read `$\mathdefault{10^{1}}$`. A good guess is that ticks, which no person wrote, still show 10 to the power of 1.
# Cause: the formatter of logarithmic axes writes formulas as text, and the setting holds for each text. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" matplotlib==3.11.2
seen="$(MPLCONFIGDIR="$folder" PYTHONPATH="$folder" python3 - <<'PYTHON'
import io
import re

import matplotlib as mpl
from matplotlib.figure import Figure

drawn = io.StringIO()
with mpl.rc_context({"text.parse_math": False, "svg.fonttype": "none"}):
    figure = Figure()
    axes = figure.subplots()
    axes.plot([1, 100], [1, 2])
    axes.set_xscale("log")
    figure.savefig(drawn, format="svg")
print(*re.findall(r">([^<]*10\^\{1\}[^<]*)</text>", drawn.getvalue()))
PYTHON
)"
echo "$seen"
[ "$seen" = '$\mathdefault{10^{1}}$' ] || { echo 'changed; on 2026-11-29 it was $\mathdefault{10^{1}}$' >&2; exit 1; }
