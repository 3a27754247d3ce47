#!/usr/bin/env bash
# torch 2.13.0: `AdamW(fused=True)` on a CPU rounds an element by its place in memory. The last elements of a tensor, which do not fill a
# vector register, get other bits. So a parameter in two parts, as `fully_shard` divides it, is another one than the whole. Without `fused`
# both are equal. In bfloat16 SGD without `fused` does the same. A good guess is that an optimizer of elements does not care for the division.
# Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy
seen="$("$folder/venv/bin/python" -W ignore - 2>/dev/null <<'PYTHON'
import torch

torch.set_num_threads(1)
torch.manual_seed(0)
start, *gradients = torch.randn(7, 100_003)


def trained(kind, bounds, dtype, **options):
    parts = [torch.nn.Parameter(start[a:b].clone().to(dtype)) for a, b in zip(bounds, bounds[1:])]
    optimizer = kind(parts, lr=0.01, weight_decay=0.01, **options)
    for gradient in gradients:
        for part, a, b in zip(parts, bounds, bounds[1:]):
            part.grad = gradient[a:b].to(dtype)
        optimizer.step()
    return torch.cat([part.detach() for part in parts])


for name, kind, dtype, options in (
    ("AdamW fused", torch.optim.AdamW, torch.float32, {"fused": True}),
    ("AdamW", torch.optim.AdamW, torch.float32, {}),
    ("SGD in bfloat16", torch.optim.SGD, torch.bfloat16, {"momentum": 0.9}),
    ("SGD", torch.optim.SGD, torch.float32, {"momentum": 0.9}),
):
    whole = trained(kind, [0, 100_003], dtype, **options)
    divided = trained(kind, [0, 33_335, 66_670, 100_003], dtype, **options)
    print(f"{name}: {'equal' if torch.equal(whole, divided) else 'different'}")
PYTHON
)"
echo "$seen"
expected="AdamW fused: different
AdamW: equal
SGD in bfloat16: different
SGD: equal"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
