#!/usr/bin/env bash
# PyYAML 6.0.3 and ruamel.yaml 0.18.16: a text of `>` whose second line is indented deeper keeps the line end before it, and one
# without `>` and `|` loses it. A good guess is that `>` joins the lines, and that two commands below `command:` stay two.
# Cause: folding leaves "more-indented" lines alone (YAML 1.2, 8.1.3), and folds plain texts always. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target "$folder" PyYAML==6.0.3 ruamel.yaml==0.18.16
seen="$(PYTHONPATH="$folder" python3 - <<'PYTHON'
import ruamel.yaml
import yaml

text = "options: >\n  python train.py\n    --lr 0.1\ncommands:\n  python prepare.py\n  python train.py\n"
read = yaml.safe_load(text), ruamel.yaml.YAML(typ="safe", pure=True).load(text)
print(*map(dict, read), sep="\n")
PYTHON
)"
echo "$seen"
one="{'options': 'python train.py\\n  --lr 0.1\\n', 'commands': 'python prepare.py python train.py'}"
[ "$seen" = "$one
$one" ] || { echo "changed; on 2026-11-29 both were: $one" >&2; exit 1; }
