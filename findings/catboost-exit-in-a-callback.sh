#!/usr/bin/env bash
# CatBoost 1.2.10: `sys.exit(75)` in a callback of `fit` does not end the script. It comes out of `fit` as a CatBoostError, with the
# traceback as its text, and so does a KeyboardInterrupt of the callback's own: `except Exception` swallows both. A good guess is that
# what a callback raises comes out as it is. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" catboost==1.2.10 numpy==2.4.6
seen="$(PYTHONPATH="$folder" python3 -W ignore - <<'PYTHON'
import sys

import catboost
import numpy


class Leaves:
    def __init__(self, leave):
        self.leave = leave

    def after_iteration(self, info):
        self.leave()
        return True


def interrupt():
    raise KeyboardInterrupt


rows = numpy.arange(40.0).reshape(20, 2)
for leave in (lambda: sys.exit(75), interrupt):
    model = catboost.CatBoostRegressor(iterations=3, verbose=False, allow_writing_files=False)
    try:
        model.fit(rows, rows[:, 0], callbacks=[Leaves(leave)])
    except Exception as error:
        print(type(error).__name__, "caused by", type(error.__cause__).__name__)
print("the script goes on")
PYTHON
)"
echo "$seen"
expected="CatBoostError caused by NoneType
CatBoostError caused by NoneType
the script goes on"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
