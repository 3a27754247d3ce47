#!/usr/bin/env bash
# LightGBM 4.6.0 with numpy 2.3.4 and scipy 1.16.3: a Dataset that was trained on with `init_model` stays marked by it. The next
# `lightgbm.train` on it, without `init_model`, begins from scores of zero in place of the labels' mean, so it makes another and much
# worse model than the same call on a new Dataset. A good guess is that a training without `init_model` begins anew. Seen on 2026-11-28.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" lightgbm==4.6.0 numpy==2.3.4 scipy==1.16.3
seen="$(PYTHONPATH="$folder" python3 - <<'PYTHON'
import lightgbm
import numpy

rows = numpy.random.default_rng(0).normal(size=(500, 4))
labels = rows[:, 0] + 5
parameters = {"verbose": -1, "num_threads": 1, "deterministic": True}


def new_dataset():
    return lightgbm.Dataset(rows, labels, free_raw_data=False)


def error(booster):
    return round(float(numpy.mean((booster.predict(rows) - labels) ** 2)), 1)


dataset = new_dataset()
first = lightgbm.train(parameters, dataset, 5)
lightgbm.train(parameters, dataset, 5, init_model=first)
print("new:", error(lightgbm.train(parameters, new_dataset(), 5)), "used:", error(lightgbm.train(parameters, dataset, 5)))
PYTHON
)"
echo "$seen"
expected="new: 0.4 used: 9.1"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-28 it was: $expected" >&2; exit 1; }
