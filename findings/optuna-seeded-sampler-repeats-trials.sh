#!/usr/bin/env bash
# Optuna 5.0.0: a study in a storage that a second process goes on with, each with `TPESampler(seed=1)`, draws the first trials again. So after an
# interruption the next ten trials repeat parameters that are known. A good guess is that the study goes on where its storage left it. Cause: the
# storage has the trials and not the numbers of the sampler. Without a seed the trials differ. Seen on 2026-11-30.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" optuna==5.0.0
cat > "$folder/search.py" <<'PYTHON'
import sys

import optuna

seed = int(sys.argv[1]) if len(sys.argv) > 1 else None
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(
    study_name=f"seed {seed}", storage="sqlite:///trials.db", load_if_exists=True, sampler=optuna.samplers.TPESampler(seed=seed)
)
study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=5)
drawn = [trial.params["x"] for trial in study.trials]
if len(drawn) == 10:
    print(f"seed {seed}: {len(set(drawn))} different trials of {len(drawn)}")
PYTHON
cd "$folder"
export PYTHONPATH="$folder"
seen="$(python3 search.py 1; python3 search.py 1; python3 search.py; python3 search.py)"
echo "$seen"
expected="seed 1: 5 different trials of 10
seed None: 10 different trials of 10"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-30 it was:" "$expected" >&2; exit 1; }
