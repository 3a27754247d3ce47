#!/usr/bin/env bash
# sagemaker-train 1.27.0 (the drivers that SDK 3 sends into the container): a hyperparameter that is text and looks like JSON
# reaches the script as another text. A version "3.10" becomes 3.1, a short commit hash "12e5" becomes 1200000.0, and a text in
# quotes loses them. A good guess is that text comes through as it is, as it does with leading zeros ("0012").
# Cause: each value is read as JSON and written again. Seen on 2026-11-28.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target "$folder" sagemaker-train==1.27.0
seen="$(PYTHONPATH="$folder/sagemaker/train/container_drivers" python3 - <<'PYTHON'
from common.utils import hyperparameters_to_cli_args

given = {"version": "3.10", "commit": "12e5", "title": '"baseline"', "zeros": "0012"}
print(hyperparameters_to_cli_args(given))
PYTHON
)"
echo "$seen"
expected="['--version', '3.1', '--commit', '1200000.0', '--title', 'baseline', '--zeros', '0012']"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-28 it was: $expected" >&2; exit 1; }
