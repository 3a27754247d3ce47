#!/usr/bin/env bash
# torchmetrics 1.9.0 with torch 2.13.0: `persistent(True)` makes the `state_dict` of a metric hold its values. That of two wrappers is not
# whole, with it called on each part, too. `MinMaxMetric` forgets the smallest and the largest value, and `Running` forgets which of the
# last values is the oldest, so it puts new ones in the place of the newest. `load_state_dict` says nothing. A good guess is that both go on,
# as `MeanMetric` does. Seen on 2026-11-30.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" torchmetrics==1.9.0 torch==2.13.0 numpy==2.4.6
seen="$(PYTHONPATH="$folder" python3 -W ignore - <<'PYTHON'
import io

import torch
from torchmetrics import MeanMetric
from torchmetrics.wrappers import MinMaxMetric, Running

ACCURACIES = [3.0, 9.0, 1.0, 5.0, 6.0, 7.0]


def made(kind):
    metric = kind(MeanMetric()) if kind is MinMaxMetric else Running(MeanMetric(), window=3) if kind is Running else kind()
    for part in metric.modules():
        part.persistent(True)
    return metric


def trained(metric, values):
    for value in values:
        if isinstance(metric, MinMaxMetric):
            metric._base_metric.reset()
        metric.update(torch.tensor(value))
        metric.compute()
    return metric


def text(value):
    return {name: number.item() for name, number in value.items()} if isinstance(value, dict) else value.item()


for kind in (MeanMetric, MinMaxMetric, Running):
    through = trained(made(kind), ACCURACIES)
    file = io.BytesIO()
    torch.save(trained(made(kind), ACCURACIES[:4]).state_dict(), file)
    file.seek(0)
    resumed = made(kind)
    resumed.load_state_dict(torch.load(file))
    trained(resumed, ACCURACIES[4:])
    print(f"{kind.__name__} ran through {text(through.compute())}, resumed {text(resumed.compute())}")
PYTHON
)"
echo "$seen"
expected="MeanMetric ran through 5.166666507720947, resumed 5.166666507720947
MinMaxMetric ran through {'raw': 7.0, 'max': 9.0, 'min': 1.0}, resumed {'raw': 7.0, 'max': 7.0, 'min': 6.0}
Running ran through 6.0, resumed 4.666666507720947"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-30 it was: $expected" >&2; exit 1; }
