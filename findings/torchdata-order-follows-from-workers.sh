#!/usr/bin/env bash
# torchdata 0.11.0 with torch 2.13.0: with one seed, a StatefulDataLoader that shuffles gives another order with workers than without.
# With workers the first pass has the order of the second one without. Its sampler draws an order each time it is asked to begin, with
# workers it is asked twice, and the second answer counts. A good guess is that the seed decides the order, as in torch's DataLoader,
# whose sampler draws when its first index is asked for. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" torch==2.13.0 torchdata==0.11.0
seen="$(PYTHONPATH="$folder" python3 -W ignore - <<'PYTHON'
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader


def passes(kind, workers):
    torch.manual_seed(3)
    loader = kind(range(12), 12, shuffle=True, num_workers=workers)
    return [batch.tolist() for _ in range(2) for batch in loader]


for kind in (DataLoader, StatefulDataLoader):
    without, some, more = (passes(kind, workers) for workers in (0, 1, 2))
    print(kind.__name__, "the same:", without == some == more, "one pass ahead:", without[1] == some[0] == more[0])
PYTHON
)"
echo "$seen"
expected="DataLoader the same: True one pass ahead: False
StatefulDataLoader the same: False one pass ahead: True"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
