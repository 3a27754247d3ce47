#!/usr/bin/env bash
# grain 0.2.18: the state of a DataLoader holds the text of its data source, and `set_state` refuses another one. A source without a
# `__repr__` of its own has its address in memory there, so no other process takes the state, though data and sampler are the same.
# A good guess is that the state is a place in the data. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" grain==0.2.18
cat >"$folder/script.py" <<'PYTHON'
import json
import sys
from pathlib import Path

import grain


class Source:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return index


class Named(Source):
    def __repr__(self):
        return "Named()"


beside = [Source() for _ in range(int(sys.argv[2]))]  # what else a process may have made before
for kind in (Source, Named):
    file = Path(sys.argv[1]) / kind.__name__
    sampler = grain.samplers.IndexSampler(8, num_epochs=1, shuffle=True, seed=1)
    batches = iter(grain.DataLoader(data_source=kind(), sampler=sampler, worker_count=0))
    if file.exists():
        try:
            batches.set_state(file.read_bytes())
            print(kind.__name__, "goes on")
        except ValueError:
            print(kind.__name__, "is refused")
    else:
        next(batches)
        file.write_bytes(batches.get_state())
        print(kind.__name__, "has an address:", "object at 0x" in json.loads(file.read_bytes())["data_source"])
PYTHON
mkdir "$folder/states"
seen="$(for others in 0 1000; do PYTHONPATH="$folder" python3 -W ignore "$folder/script.py" "$folder/states" "$others"; done)"
echo "$seen"
expected="Source has an address: True
Named has an address: False
Source is refused
Named goes on"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
