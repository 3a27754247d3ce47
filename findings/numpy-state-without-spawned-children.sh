#!/usr/bin/env bash
# numpy 2.3.4: `rng.bit_generator.state` is what the documentation gives to save and restore a generator. It leaves out how many children
# `rng.spawn` has made. A generator that gets this state back draws the same numbers itself, and spawns its first child once more: a
# stream that the run has used already. `pickle` and `copy.deepcopy` keep the count. A good guess is that the state is all of it.
# Seen on 2026-11-28.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" numpy==2.3.4
seen="$(PYTHONPATH="$folder" python3 - <<'PYTHON'
import pickle

import numpy

rng = numpy.random.default_rng(7)
first, second = (child.random() for child in rng.spawn(2))
restored = numpy.random.default_rng(7)
restored.bit_generator.state = rng.bit_generator.state
pickled = pickle.loads(pickle.dumps(rng))
print("same numbers:", restored.random() == numpy.random.Generator(pickle.loads(pickle.dumps(rng.bit_generator))).random())
print("its next child is the first one:", restored.spawn(1)[0].random() == first)
print("after pickle:", pickled.spawn(1)[0].random() in (first, second))
PYTHON
)"
echo "$seen"
expected="same numbers: True
its next child is the first one: True
after pickle: False"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-28 it was: $expected" >&2; exit 1; }
