#!/usr/bin/env bash
# Keras 3.15.1 on JAX 0.10.2 (on torch alike): `fit(generator, epochs=3)` with a generator of four batches trains on all four in the first epoch,
# and on the first two of them again in the second and in the third: those that it had taken to learn their shapes. A good guess is
# that a generator that has ended gives no more batches. Seen on 2026-11-28.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" keras==3.15.1 jax==0.10.2 numpy==2.4.6
seen="$(PYTHONPATH="$folder" KERAS_BACKEND=jax KERAS_HOME="$folder" JAX_PLATFORMS=cpu python3 -W ignore - <<'PYTHON'
import keras
import numpy

trained = []


class Notes(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, x):
        return self.dense(x)

    def train_step(self, state, data):
        trained[-1].append(int(data[0][0, 0]))
        return super().train_step(state, data)


def batches():
    for number in range(4):
        yield numpy.full((2, 1), number, "float32"), numpy.zeros((2, 1), "float32")


model = Notes()
model.compile("sgd", "mse", run_eagerly=True)
begins = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: trained.append([]))
model.fit(batches(), epochs=3, verbose=0, callbacks=[begins])
print(trained)
PYTHON
)"
echo "$seen"
expected="[[0, 1, 2, 3], [0, 1], [0, 1]]"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-28 it was: $expected" >&2; exit 1; }
