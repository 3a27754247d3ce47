#!/usr/bin/env bash
# torchdata 0.11.0 with torch 2.13.0: where `shuffle=True` draws an order, the state of a StatefulDataLoader finds it again. With torch's own
# RandomSampler, also in SamplerWrapper of `torchdata.nodes` as torchdata's documentation has it, a state is taken without a word, and as many
# samples of another order are passed over: some come twice and some never. With a seeded generator it does so from the second pass on. The
# state counts, and holds no random numbers. A good guess is that `shuffle=True` is short for that sampler. Seen on 2026-11-30.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" torch==2.13.0 torchdata==0.11.0
seen="$(PYTHONPATH="$folder" python3 -W ignore - <<'PYTHON'
import torch
from torch.utils.data import RandomSampler
from torchdata.nodes import Batcher, Loader, SamplerWrapper
from torchdata.stateful_dataloader import StatefulDataLoader

SAMPLES = range(100)


def shuffle(generator):
    return StatefulDataLoader(SAMPLES, batch_size=5, shuffle=True, generator=generator)


def sampler(generator):
    return StatefulDataLoader(SAMPLES, batch_size=5, sampler=RandomSampler(SAMPLES, generator=generator))


def nodes(generator):
    return Loader(Batcher(SamplerWrapper(RandomSampler(SAMPLES, generator=generator)), batch_size=5))


def generator_of(seed):
    return None if seed is None else torch.Generator().manual_seed(seed)


for make in (shuffle, sampler, nodes):
    for seed, passes in ((None, 1), (1, 1), (1, 2)):
        torch.manual_seed(0)
        begun = make(generator_of(seed))
        for _ in range(passes - 1):
            list(begun)
        batches = iter(begun)
        given = [int(sample) for _ in range(10) for sample in next(batches)]
        state = begun.state_dict()
        torch.manual_seed(2)
        resumed = make(generator_of(seed))
        resumed.load_state_dict(state)
        given += [int(sample) for batch in resumed for sample in batch]
        of = "no generator" if seed is None else f"a generator, pass {passes}"
        print(f"{make.__name__}, {of}: twice {len(given) - len({*given})}, never {len(SAMPLES) - len({*given})}")
PYTHON
)"
echo "$seen"
expected="shuffle, no generator: twice 0, never 0
shuffle, a generator, pass 1: twice 0, never 0
shuffle, a generator, pass 2: twice 0, never 0
sampler, no generator: twice 25, never 25
sampler, a generator, pass 1: twice 0, never 0
sampler, a generator, pass 2: twice 26, never 26
nodes, no generator: twice 23, never 23
nodes, a generator, pass 1: twice 0, never 0
nodes, a generator, pass 2: twice 26, never 26"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-30 it was: $expected" >&2; exit 1; }
