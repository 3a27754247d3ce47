#!/usr/bin/env bash
# accelerate 1.15.0 with torch 2.13.0: a shuffled DataLoader that `prepare` gave fails under `torchrun --nproc-per-node 1` on a CPU, with
# "Need a generator to synchronize its seed". Two ranks, and one process without torchrun, work. A good guess is that one rank is as two
# are. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check accelerate==1.15.0 torch==2.13.0
cat > "$folder/train.py" <<'PYTHON'
import accelerate
import torch

accelerator = accelerate.Accelerator(cpu=True)
loader = accelerator.prepare(torch.utils.data.DataLoader(range(8), shuffle=True))
try:
    said = f"{len(list(loader))} batches"
except AssertionError as error:
    said = str(error)
if accelerator.is_main_process:
    print(said)
PYTHON
seen="$(for ranks in 1 2; do "$folder/venv/bin/torchrun" --standalone --nproc-per-node "$ranks" "$folder/train.py" 2>/dev/null; done)"
echo "$seen"
expected="Need a generator to synchronize its seed.
4 batches"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
