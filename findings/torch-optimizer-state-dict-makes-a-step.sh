#!/usr/bin/env bash
# torch 2.13.0: `get_optimizer_state_dict` of an optimizer without a state lets it make a step, and does not take it back. Adam counts it, so all
# later corrections of its averages are those of one step more. A good guess is that reading a state changes nothing. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy
seen="$(cd "$folder" && "$folder/venv/bin/python" -W ignore - 2>/dev/null <<'PYTHON'
import torch
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict


def trained(read):
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    if read:
        get_optimizer_state_dict(model, optimizer)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().square().backward()
        optimizer.step()
    return int(optimizer.state[model.bias]["step"]), model.bias.item()


(steps, bias), (steps_after, bias_after) = trained(read=False), trained(read=True)
print(f"steps {steps} and {steps_after}, weights {'equal' if bias == bias_after else 'differ'}")
PYTHON
)"
echo "$seen"
expected="steps 2 and 3, weights differ"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
