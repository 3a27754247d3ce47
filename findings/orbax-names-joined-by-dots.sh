#!/usr/bin/env bash
# orbax-checkpoint 0.12.8: two arrays whose names are the same once they are joined by dots, as {"a": {"b": x}, "a.b": y}, are saved to one place, and
# both come back as one of them, without a word. Names of torch modules and of Hugging Face's weights have dots. A good guess is that both
# come back, or that the save refuses. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check orbax-checkpoint==0.12.8 jax==0.10.2 numpy==2.4.6
seen="$(cd "$folder" && "$folder/venv/bin/python" -W ignore - 2>/dev/null <<'PYTHON'
import os

import numpy
import orbax.checkpoint

with orbax.checkpoint.StandardCheckpointer() as checkpointer:
    checkpointer.save(os.path.abspath("saved"), {"a": {"b": numpy.ones(2)}, "a.b": numpy.zeros(2)})
    checkpointer.wait_until_finished()
    found = checkpointer.restore(os.path.abspath("saved"))
print("saved: two | equal when they come back:", numpy.array_equal(found["a"]["b"], found["a.b"]))
PYTHON
)"
echo "$seen"
expected="saved: two | equal when they come back: True"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
