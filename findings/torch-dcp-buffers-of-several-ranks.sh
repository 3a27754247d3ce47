#!/usr/bin/env bash
# torch 2.13.0: `torch.distributed.checkpoint` saves buffers that differ from rank to rank, such as the averages of a batch norm without DDP, as a
# mixture: the mean of rank 0 beside the variance of rank 1. A good guess is that rank 0's are saved, or each rank's own. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy
seen="$(cd "$folder" && "$folder/venv/bin/python" -W ignore - 2>/dev/null <<'PYTHON'
import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

rank = 0 if os.fork() else 1
dist.init_process_group("gloo", store=dist.FileStore("meeting", 2), rank=rank, world_size=2)
norm = torch.nn.BatchNorm1d(4)
norm.running_mean.fill_(rank)
norm.running_var.fill_(rank)
dcp.save(norm.state_dict(), checkpoint_id="checkpoint")
state = torch.nn.BatchNorm1d(4).state_dict()
dcp.load(state, checkpoint_id="checkpoint")
if rank == 0:
    print({name: f"rank {int(state[name][0])}" for name in ("running_mean", "running_var")})
    os.wait()
PYTHON
)"
echo "$seen"
expected="{'running_mean': 'rank 0', 'running_var': 'rank 1'}"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
