#!/usr/bin/env bash
# accelerate 1.15.0 with torch 2.13.0: `Accelerator(cpu=True, fsdp_plugin=...)` on two ranks trains with whole copies of the model (MULTI_CPU),
# without a word. A good guess is that the plugin divides the model, or is refused. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check accelerate==1.15.0 torch==2.13.0
cat > "$folder/train.py" <<'PYTHON'
import accelerate
import torch
from accelerate.utils import FullyShardedDataParallelPlugin

plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="no_wrap")
accelerator = accelerate.Accelerator(cpu=True, fsdp_plugin=plugin)
model = torch.nn.Linear(4, 4)
model, _ = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
if accelerator.is_main_process:
    print(accelerator.distributed_type.value, type(model).__name__, type(next(model.parameters())).__name__)
PYTHON
seen="$("$folder/venv/bin/torchrun" --standalone --nproc-per-node 2 "$folder/train.py" 2>/dev/null)"
echo "$seen"
expected="MULTI_CPU DistributedDataParallel Parameter"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
