#!/usr/bin/env bash
# skorch 1.4.0 with torch 2.13.0: after `LoadInitState` with a `Checkpoint`, as skorch's documentation resumes an interrupted training, `fit`
# trains `max_epochs` more, and not the rest of them. A schedule of `LRScheduler` begins at its first epoch again, on the rate to which it
# had fallen. A good guess is that the same script ends with the same number of epochs. The history counts all. Seen on 2026-11-30.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" skorch==1.4.0 scikit-learn==1.9.1 torch==2.13.0 numpy==2.4.6
cd "$folder"
seen="$(PYTHONPATH="$folder" python3 -W ignore - <<'PYTHON'
import numpy
import torch
from skorch import NeuralNetRegressor
from skorch.callbacks import Callback, Checkpoint, LoadInitState, LRScheduler

inputs = numpy.linspace(0, 1, 8, dtype="float32").reshape(8, 1)


class Interruption(Callback):
    def on_epoch_end(self, net, **_):
        if len(net.history) == 3:
            raise KeyboardInterrupt


def trained(folder, *interruption):
    checkpoint = Checkpoint(dirname=folder, monitor=None, f_criterion=None)
    net = NeuralNetRegressor(
        torch.nn.Linear,
        module__in_features=1,
        module__out_features=1,
        max_epochs=6,
        lr=0.1,
        train_split=None,
        verbose=0,
        callbacks=[
            ("load", LoadInitState(checkpoint)),
            ("schedule", LRScheduler(torch.optim.lr_scheduler.StepLR, step_size=2, gamma=0.1)),
            ("checkpoint", checkpoint),
            *interruption,
        ],
    )
    net.fit(inputs, inputs)
    return net


through = trained("through")
trained("resumed", ("interruption", Interruption()))
resumed = trained("resumed")
for name, net in (("ran through", through), ("resumed", resumed)):
    print(f"{name}: {len(net.history)} epochs, rate {net.optimizer_.param_groups[0]['lr']:.0e}")
PYTHON
)"
echo "$seen"
expected="ran through: 6 epochs, rate 1e-04
resumed: 9 epochs, rate 1e-05"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-30 it was: $expected" >&2; exit 1; }
