#!/usr/bin/env bash
# Opacus 1.6.0 with torch 2.13.0: a training with differential privacy that takes back its model and its optimizer with `load_state_dict` has
# the weights and the moments, and reports the epsilon of the steps since the resume. The steps before are in the PrivacyEngine's accountant,
# which has a `state_dict` of its own. A good guess is that the optimizer, which adds the noise, counts them. Seen on 2026-11-30.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" opacus==1.6.0 torch==2.13.0 numpy==2.4.6
seen="$(PYTHONPATH="$folder" python3 -W ignore - <<'PYTHON'
import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset


def made():
    model = torch.nn.Linear(2, 1)
    engine = PrivacyEngine()
    private = engine.make_private(
        module=model,
        optimizer=torch.optim.Adam(model.parameters()),
        data_loader=DataLoader(TensorDataset(torch.ones(100, 2), torch.ones(100, 1)), batch_size=10),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    return engine, *private


def trained(engine, model, optimizer, loader, epochs):
    for _ in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
    return f"{engine.get_epsilon(1e-5):.2f}"


torch.manual_seed(0)
print("ran through:", trained(*made(), 4))
engine, model, optimizer, loader = begun = made()
print("at the interruption:", trained(*begun, 2))
for with_accountant in (False, True):
    resumed = made()
    resumed[1].load_state_dict(model.state_dict())
    resumed[2].load_state_dict(optimizer.state_dict())
    if with_accountant:
        resumed[0].accountant.load_state_dict(engine.accountant.state_dict())
    print("resumed with its accountant:" if with_accountant else "resumed:", trained(*resumed, 2))
PYTHON
)"
echo "$seen"
expected="ran through: 4.70
at the interruption: 3.60
resumed: 3.60
resumed with its accountant: 4.70"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-30 it was: $expected" >&2; exit 1; }
