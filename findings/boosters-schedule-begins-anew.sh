#!/usr/bin/env bash
# LightGBM 4.6.0 and XGBoost 3.2.0: in a training that goes on from a model, a schedule of the learning rate begins at its first round
# again. LightGBM gives `reset_parameter` the round within this call, and a list must have as many rates as this call has rounds.
# XGBoost gives `LearningRateScheduler` the round within this call too. So the rounds behind a checkpoint train with the large rates of
# the beginning. A callback sees the round of the whole model in LightGBM's `env.iteration`, so a good guess is that the schedule goes on
# with it. Seen on 2026-11-30.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" \
  lightgbm==4.6.0 xgboost-cpu==3.2.0 numpy==2.3.4 scipy==1.16.3
seen="$(PYTHONPATH="$folder" python3 -W ignore - <<'PYTHON'
import lightgbm
import numpy
import xgboost

rows = numpy.random.default_rng(0).normal(size=(500, 4))
labels = rows[:, 0] + 5
asked, rounds = [], []


def rate(number):
    asked.append(number)
    return 0.5**number


def note(env):
    rounds.append(env.iteration)


note.before_iteration = True
parameters = {"verbose": -1, "num_threads": 1}
dataset = lightgbm.Dataset(rows, labels, free_raw_data=False)
first = lightgbm.train(parameters, dataset, 3)
lightgbm.train(
    parameters, dataset, 3, init_model=first, callbacks=[note, lightgbm.reset_parameter(learning_rate=rate)]
)
print("LightGBM: rounds", rounds, "schedule asked for", asked)

asked.clear()
data = xgboost.DMatrix(rows, label=labels)
first = xgboost.train({"nthread": 1}, data, num_boost_round=3)
schedule = xgboost.callback.LearningRateScheduler(rate)
model = xgboost.train({"nthread": 1}, data, num_boost_round=3, xgb_model=first, callbacks=[schedule])
print("XGBoost: rounds in the model", model.num_boosted_rounds(), "schedule asked for", asked)
PYTHON
)"
echo "$seen"
expected="LightGBM: rounds [3, 4, 5] schedule asked for [0, 1, 2]
XGBoost: rounds in the model 6 schedule asked for [0, 1, 2]"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-30 it was: $expected" >&2; exit 1; }
