#!/usr/bin/env bash
# lightning 2.6.6 with torch 2.13.0: `BaseFinetuning.unfreeze_and_add_param_group` leaves a parameter out when the optimizer has another one
# of the same values, such as a bias of zeros: it requires gradients then, and is never trained. A good guess is that parameters are told
# apart by what they are, as an optimizer does. Seen on 2026-11-28.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check lightning==2.6.6 torch==2.13.0
seen="$("$folder/venv/bin/python" -W ignore - <<'PYTHON'
import torch
from lightning.pytorch.callbacks import BaseFinetuning

head, backbone = torch.nn.LayerNorm(4), torch.nn.LayerNorm(4)
BaseFinetuning.freeze(backbone)
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
BaseFinetuning.unfreeze_and_add_param_group(backbone, optimizer)
trained = {id(value) for group in optimizer.param_groups for value in group["params"]}
print([(name, value.requires_grad, id(value) in trained) for name, value in backbone.named_parameters()])
PYTHON
)"
echo "$seen"
expected="[('weight', True, False), ('bias', True, False)]"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-28 it was: $expected" >&2; exit 1; }
