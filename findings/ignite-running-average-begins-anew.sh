#!/usr/bin/env bash
# pytorch-ignite 0.5.5: a RunningAverage that is saved with `state_dict` and taken back with `load_state_dict`, as ignite's own example of
# saving and resuming does, begins anew all the same: `run` resets it when it starts. The model is that of a run left alone, and the
# average that is logged and saved is another one. A good guess is that what a Checkpoint takes back goes on. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" pytorch-ignite==0.5.5 torch==2.13.0 numpy==2.4.6
seen="$(PYTHONPATH="$folder" python3 -W ignore - <<'PYTHON'
from ignite.engine import Engine
from ignite.metrics import RunningAverage

LOSSES = [1.0, 2.0, 3.0]


def made():
    trainer = Engine(lambda engine, batch: batch)
    average = RunningAverage(output_transform=lambda loss: loss)
    average.attach(trainer, "loss")
    return trainer, average


through, _ = made()
through.run(LOSSES, max_epochs=4)
trainer, average = made()
trainer.run(LOSSES, max_epochs=2)
resumed, taken_back = made()
resumed.load_state_dict(trainer.state_dict())
taken_back.load_state_dict(average.state_dict())
resumed.run(LOSSES, max_epochs=4)
print(f"ran through {through.state.metrics['loss']:.4f}, resumed {resumed.state.metrics['loss']:.4f}")
PYTHON
)"
echo "$seen"
expected="ran through 1.2182, resumed 1.1157"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
