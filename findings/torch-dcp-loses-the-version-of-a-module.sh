#!/usr/bin/env bash
# torch 2.13.0: `torch.distributed.checkpoint` does not save `_metadata`, so the loader of a module gets the version of today's class for an
# older state, and does not convert it. A good guess is that it gets the saved version, as with torch.save. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy
seen="$(cd "$folder" && "$folder/venv/bin/python" -W ignore - 2>/dev/null <<'PYTHON'
import torch
import torch.distributed.checkpoint as dcp


class Gain(torch.nn.Module):
    """Version 1 keeps the logarithm of the gain, and version 2 the gain itself."""

    _version = 1

    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.zeros(1))

    def _load_from_state_dict(self, state, prefix, metadata, *others):
        if self._version == 2 and metadata.get("version") == 1:
            state[prefix + "gain"] = state[prefix + "gain"].exp()
        super()._load_from_state_dict(state, prefix, metadata, *others)


old = Gain().state_dict()
torch.save(old, "checkpoint.pt")
dcp.save(old, checkpoint_id="checkpoint")
Gain._version = 2
by_torch, by_dcp = Gain(), Gain()
by_torch.load_state_dict(torch.load("checkpoint.pt"))
state = by_dcp.state_dict()
dcp.load(state, checkpoint_id="checkpoint")
by_dcp.load_state_dict(state)
print({"torch.load": by_torch.gain.item(), "dcp.load": by_dcp.gain.item()})
PYTHON
)"
echo "$seen"
expected="{'torch.load': 1.0, 'dcp.load': 0.0}"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
