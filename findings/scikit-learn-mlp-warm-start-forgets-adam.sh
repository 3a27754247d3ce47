#!/usr/bin/env bash
# scikit-learn 1.9.1: `MLPClassifier(warm_start=True, max_iter=1)` fitted ten times is another model than one fit of ten epochs, with the same order
# of samples. Each fit begins with new moments of Adam, while `t_` goes on counting the samples of all of them. A good guess is that `warm_start`
# goes on with the training, since it keeps the weights. `partial_fit` keeps the moments, and ten calls of it are ten of its updates in one go.
# Seen on 2026-11-30.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" scikit-learn==1.9.1
seen="$(PYTHONPATH="$folder" python3 -W ignore - <<'PYTHON'
import numpy
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

samples, labels = load_digits(return_X_y=True)
given = {"hidden_layer_sizes": (16,), "random_state": 0, "shuffle": False}
alone = MLPClassifier(max_iter=10, **given).fit(samples, labels)
warm = MLPClassifier(max_iter=1, warm_start=True, **given)
by_parts = MLPClassifier(**given)
for _ in range(10):
    warm.fit(samples, labels)
    by_parts.partial_fit(samples, labels, classes=numpy.unique(labels))


def is_same(model):
    return all(numpy.array_equal(*each) for each in zip(alone.coefs_, model.coefs_))


print(f"samples counted: {alone.t_} {warm.t_} {by_parts.t_}")
print(f"the model of one fit of ten epochs: by warm_start {is_same(warm)}, by partial_fit {is_same(by_parts)}")
PYTHON
)"
echo "$seen"
expected="samples counted: 17970 17970 17970
the model of one fit of ten epochs: by warm_start False, by partial_fit True"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-30 it was:" "$expected" >&2; exit 1; }
