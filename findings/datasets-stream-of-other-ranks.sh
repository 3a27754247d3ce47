#!/usr/bin/env bash
# datasets 5.2.0: a stream that split_dataset_by_node divided takes the state of another number of ranks without a word, and samples come
# twice or never. The state counts the shards and the samples of one rank. A good guess is that a state which does not fit is refused, or
# divided anew. Of 48 samples in four shards the ranks of the state have passed 24.
# Seen on 2026-12-01.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" datasets==5.2.0
seen="$(HF_HUB_OFFLINE=1 HF_HOME="$folder/home" PYTHONPATH="$folder" python3 -W ignore - <<'PYTHON'
from datasets import IterableDataset
from datasets.distributed import split_dataset_by_node


def samples(shards):
    for shard in shards:
        yield from ({"number": shard * 12 + number} for number in range(12))


def stream(ranks, rank):
    return split_dataset_by_node(IterableDataset.from_generator(samples, gen_kwargs={"shards": [*range(4)]}), rank, ranks)


for before, after in ((2, 1), (1, 2), (2, 4)):
    given, states = [], []
    for rank in range(before):
        begun = stream(before, rank)
        rows = iter(begun)
        given += [next(rows)["number"] for _ in range(24 // before)]
        states.append(begun.state_dict())
    for rank in range(after):
        goes_on = stream(after, rank)
        goes_on.load_state_dict(states[min(rank, before - 1)])
        given += [row["number"] for row in goes_on]
    print(f"{before} -> {after}: twice {len(given) - len({*given})}, never {48 - len({*given})}")
PYTHON
)"
echo "$seen"
expected="2 -> 1: twice 12, never 0
1 -> 2: twice 0, never 24
2 -> 4: twice 0, never 24"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-12-01 it was: $expected" >&2; exit 1; }
