#!/usr/bin/env bash
# torch 2.13.0: `dcp_to_torch_save` turns a DCP checkpoint into a file of `torch.save` in which the keys of all dictionaries are texts. So the
# state of an optimizer, whose keys are numbers, has '0' in the place of 0, and `load_state_dict` takes it without a word and without any moment.
# A good guess is that the moments are there, or that it refuses. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy
seen="$(cd "$folder" && "$folder/venv/bin/python" -W ignore - 2>/dev/null <<'PYTHON'
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
dcp.save({"optimizer": optimizer.state_dict()}, checkpoint_id="dcp")
dcp_to_torch_save("dcp", "state.pt")
saved = torch.load("state.pt", weights_only=True)["optimizer"]
fresh = torch.optim.AdamW(model.parameters())
fresh.load_state_dict(saved)
moments = sum("exp_avg" in fresh.state[parameter] for parameter in model.parameters())
print(f"keys: {list(optimizer.state_dict()['state'])} {list(saved['state'])} | parameters with moments: {moments} of 2")
PYTHON
)"
echo "$seen"
expected="keys: [0, 1] ['0', '1'] | parameters with moments: 0 of 2"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
