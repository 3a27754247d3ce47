#!/usr/bin/env bash
# torchdata 0.11.0 with torch 2.13.0: a StatefulDataLoader takes the state of another number of ranks without a word, and samples come twice
# or never. The state counts the samples of one rank, and no rule divides them anew. StatefulDistributedSampler does the same. A good guess
# is that a state which does not fit is refused, as another number of workers is. Of 24 samples the ranks of the state have passed 12, or 6.
# Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" torch==2.13.0 torchdata==0.11.0
seen="$(PYTHONPATH="$folder" python3 -W ignore - <<'PYTHON'
from torch.utils.data import DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

SAMPLES = range(24)


def loader(kind, ranks, rank):
    return StatefulDataLoader(SAMPLES, 2, sampler=kind(SAMPLES, ranks, rank, shuffle=False))


for kind in (DistributedSampler, StatefulDistributedSampler):
    for before, after in ((2, 1), (1, 2), (2, 3)):
        given, states = [], []
        for rank in range(before):
            begun = loader(kind, before, rank)
            batches = iter(begun)
            for _ in range(3):
                given += next(batches).tolist()
            states.append(begun.state_dict())
        for rank in range(after):
            goes_on = loader(kind, after, rank)
            goes_on.load_state_dict(states[min(rank, before - 1)])
            given += [sample for batch in goes_on for sample in batch.tolist()]
        print(f"{kind.__name__} {before} -> {after}: twice {len(given) - len({*given})}, never {len(SAMPLES) - len({*given})}")
PYTHON
)"
echo "$seen"
expected="DistributedSampler 2 -> 1: twice 6, never 0
DistributedSampler 1 -> 2: twice 0, never 6
DistributedSampler 2 -> 3: twice 0, never 6
StatefulDistributedSampler 2 -> 1: twice 6, never 0
StatefulDistributedSampler 1 -> 2: twice 0, never 6
StatefulDistributedSampler 2 -> 3: twice 0, never 6"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
