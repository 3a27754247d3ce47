#!/usr/bin/env bash
# NumPy 2.3.4: the `state` of a Generator's bit generator does not count the children that it has spawned, and a pickle of the Generator
# does. After `state` was put back into a new Generator, `spawn` gives the first children once more, with the same numbers, though all
# numbers of the Generator itself go on. A good guess is that `state` is all that decides what comes next. Seen on 2026-11-28.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" numpy==2.3.4
seen="$(PYTHONPATH="$folder" python3 - <<'PYTHON'
import pickle

import numpy

generator = numpy.random.default_rng(1)
first_child = generator.spawn(1)[0].random()
by_state = numpy.random.default_rng(1)
by_state.bit_generator.state = generator.bit_generator.state
by_pickle = pickle.loads(pickle.dumps(generator))
second_child = generator.spawn(1)[0].random()
children = {"first": first_child, "second": second_child}
for way, restored in (("state", by_state), ("pickle", by_pickle)):
    child = restored.spawn(1)[0].random()
    print(way, [name for name, number in children.items() if number == child], restored.random() == 0.5118216247002567)
PYTHON
)"
echo "$seen"
expected="state ['first'] True
pickle ['second'] True"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-28 it was: $expected" >&2; exit 1; }
