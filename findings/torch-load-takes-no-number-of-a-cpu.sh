#!/usr/bin/env bash
# torch 2.13.0: `cpu:0` is a device that tensors and modules go to, and `torch.load` with `map_location="cpu:0"` refuses it. A good guess is that a
# name that `to` takes is taken there too. The Trainer of transformers 4.44.2 on several ranks of a CPU has this name from accelerate 0.34.2, so it
# trains and saves, and ends when it goes on from a checkpoint. Seen on 2026-11-30.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy
seen="$(cd "$folder" && "$folder/venv/bin/python" -W ignore - <<'PYTHON'
import torch

tensor = torch.ones(2)
torch.save({"tensor": tensor}, "state.pt")
print("to:", tensor.to("cpu:0").device)
try:
    print("load:", torch.load("state.pt", map_location="cpu:0")["tensor"].device)
except RuntimeError as error:
    print("load:", str(error).partition(" of ")[0])
PYTHON
)"
echo "$seen"
expected="to: cpu
load: don't know how to restore data location"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-30 it was: $expected" >&2; exit 1; }
