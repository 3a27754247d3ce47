#!/usr/bin/env bash
# torch 2.13.0: `FullyShardedDataParallel.optim_state_dict` on a CPU gathers all entries of a parameter's state into one buffer, and gives views of it.
# So Adam's first moment is the second one. DCP's `get_optimizer_state_dict` with `cpu_offload=True` does the same. Copies come with
# `offload_to_cpu=False` alone. A good guess is that each entry has its own values. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy
cat > "$folder/train.py" <<'PYTHON'
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict
from torch.distributed.fsdp import FullOptimStateDictConfig, FullStateDictConfig, FullyShardedDataParallel, StateDictType

dist.init_process_group("gloo")
torch.manual_seed(0)
model = FullyShardedDataParallel(torch.nn.Linear(3, 2), device_id=torch.device("cpu"), use_orig_params=True)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(1, 3)).square().sum().backward()
optimizer.step()


def copied():
    settings = (StateDictType.FULL_STATE_DICT, FullStateDictConfig(), FullOptimStateDictConfig(offload_to_cpu=False))
    with FullyShardedDataParallel.state_dict_type(model, *settings):
        return FullyShardedDataParallel.optim_state_dict(model, optimizer)


def by_dcp(offload):
    options = StateDictOptions(full_state_dict=True, cpu_offload=offload)
    return get_optimizer_state_dict(model, optimizer, options=options)


for name, gathered in (
    ("by default", FullyShardedDataParallel.optim_state_dict(model, optimizer)),
    ("copied", copied()),
    ("by DCP, offloaded", by_dcp(True)),
    ("by DCP", by_dcp(False)),
):
    if dist.get_rank() == 0:
        state = gathered["state"]["weight"]
        print(f"{name}: {'equal' if torch.equal(state['exp_avg'], state['exp_avg_sq']) else 'different'} moments")
dist.destroy_process_group()
PYTHON
seen="$("$folder/venv/bin/torchrun" --standalone --nproc-per-node 2 "$folder/train.py" 2>/dev/null)"
echo "$seen"
expected="by default: equal moments
copied: different moments
by DCP, offloaded: equal moments
by DCP: different moments"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
