#!/usr/bin/env bash
# warmup-scheduler 0.3 with torch 2.13.0: the `state_dict` of a GradualWarmupScheduler holds the schedule that follows the warm-up as an
# object, with its optimizer inside. Saved with `torch.save` and taken back with `load_state_dict`, it steps a copy of the optimizer from the
# file. The rate of the real one stays what it was at the save, without a word, and that of the copy falls. A good guess is that a
# `state_dict` belongs to the object that takes it. Seen on 2026-11-30.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" warmup-scheduler==0.3 torch==2.13.0 numpy==2.4.6
seen="$(PYTHONPATH="$folder" python3 -W ignore - <<'PYTHON'
import io

import torch
from warmup_scheduler import GradualWarmupScheduler


def made():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    after = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    return optimizer, GradualWarmupScheduler(optimizer, multiplier=1, total_epoch=2, after_scheduler=after)


def rates(optimizer, schedule, steps):
    for _ in range(steps):
        optimizer.step()
        schedule.step()
        yield f"{optimizer.param_groups[0]['lr']:g}"


optimizer, schedule = made()
print("ran through", *rates(optimizer, schedule, 8))
optimizer, schedule = made()
before = [*rates(optimizer, schedule, 5)]
file = io.BytesIO()
torch.save([optimizer.state_dict(), schedule.state_dict()], file)
file.seek(0)
states = torch.load(file, weights_only=False)
optimizer, schedule = made()
optimizer.load_state_dict(states[0])
schedule.load_state_dict(states[1])
print("resumed    ", *before, *rates(optimizer, schedule, 3))
print("the copy at its end", f"{schedule.after_scheduler.optimizer.param_groups[0]['lr']:g}")
PYTHON
)"
echo "$seen"
expected="ran through 0.05 0.1 0.05 0.025 0.0125 0.00625 0.003125 0.0015625
resumed     0.05 0.1 0.05 0.025 0.0125 0.0125 0.0125 0.0125
the copy at its end 0.0015625"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-30 it was: $expected" >&2; exit 1; }
