#!/usr/bin/env bash
# torch 2.13.0: `torch.distributed.checkpoint` loads a data file with a flipped bit without a word, and so does torch.load, though both write
# archives with a CRC-32 of each tensor. A good guess is that the checksum is compared. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy
seen="$(cd "$folder" && "$folder/venv/bin/python" -W ignore - 2>/dev/null <<'PYTHON'
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp


def flip_a_bit(path):
    raw = bytearray(path.read_bytes())
    raw[raw.index(bytes(3000)) + 1502] ^= 0x40
    path.write_bytes(raw)


dcp.save({"w": torch.zeros(1000)}, checkpoint_id="checkpoint")
torch.save({"w": torch.zeros(1000)}, "checkpoint.pt")
flip_a_bit(Path("checkpoint/__0_0.distcp"))
flip_a_bit(Path("checkpoint.pt"))
state = {"w": torch.ones(1000)}
dcp.load(state, checkpoint_id="checkpoint")
print({"dcp.load": state["w"].count_nonzero().item(), "torch.load": torch.load("checkpoint.pt")["w"].count_nonzero().item()})
PYTHON
)"
echo "$seen"
expected="{'dcp.load': 1, 'torch.load': 1}"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
