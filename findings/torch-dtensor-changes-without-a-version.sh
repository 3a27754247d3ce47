#!/usr/bin/env bash
# torch 2.13.0: a change in place of several DTensors at once (`torch._foreach_mul_`, in `clip_grad_norm_`) counts in no `_version`, neither
# of the DTensor nor of its local tensor. So autograd's check of changed values does not see it. With plain tensors it counts.
# A good guess is that each change in place counts. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy
seen="$("$folder/venv/bin/python" -W ignore - 2>/dev/null <<'PYTHON'
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
for name, divide in (("plain", lambda layer: layer), ("fully_shard", fully_shard)):
    torch.manual_seed(0)
    layer = divide(torch.nn.Linear(2, 2))
    layer(torch.ones(1, 2)).sum().backward()
    gradient = layer.weight.grad
    local = getattr(gradient, "_local_tensor", gradient)
    before, versions = local.sum().item(), (gradient._version, local._version)
    torch.nn.utils.clip_grad_norm_(layer.parameters(), 0.01)
    counted = (gradient._version, local._version) != versions
    print(f"{name}: changed {local.sum().item() != before}, counted {counted}")
dist.destroy_process_group()
PYTHON
)"
echo "$seen"
expected="plain: changed True, counted True
fully_shard: changed True, counted False"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
