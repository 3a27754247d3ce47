#!/usr/bin/env bash
# matplotlib 3.11.2: each SVG file holds a style sheet with the selector `*`. In an HTML page, where a good guess is that the style of
# a drawing stays inside of it, the sheet is one of the whole page: it changes the line ends of every other drawing there.
# Cause: `svg > defs > style` is scoped in a file of its own, and not inside HTML (SVG 2, 6.5). Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" matplotlib==3.11.2
seen="$(MPLCONFIGDIR="$folder" PYTHONPATH="$folder" python3 - <<'PYTHON'
import io
import re

from matplotlib.figure import Figure

drawn = io.StringIO()
Figure().savefig(drawn, format="svg")
print(*re.findall(r"<style[^>]*>([^<]*)</style>", drawn.getvalue()))
PYTHON
)"
echo "$seen"
[ "$seen" = "*{stroke-linejoin: round; stroke-linecap: butt}" ] || { echo "changed; on 2026-11-29 it was *{stroke-linejoin: ...}" >&2; exit 1; }
