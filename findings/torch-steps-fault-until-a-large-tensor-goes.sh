#!/usr/bin/env bash
# torch 2.13.0 on a CPU with glibc: a training whose gradients are of 1 MiB takes more than 8 MiB from the kernel in each step, page by page, and
# gives it back, for as long as it runs. One tensor of 30 MiB, made and dropped, ends that: glibc then raises the bounds from which on it maps and
# trims memory. A good guess is that torch keeps freed memory for the next step, as it does on GPUs, or that the first steps settle it. The page
# faults of a step are counted, and no time. Seen on 2026-11-30.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy
seen="$(cd "$folder" && env -u MALLOC_MMAP_THRESHOLD_ -u MALLOC_TRIM_THRESHOLD_ "$folder/venv/bin/python" -W ignore - 2>/dev/null <<'PYTHON'
import resource

import torch

torch.set_num_threads(1)
model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(50)))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
batch = torch.randn(4, 512)


def faults_of_a_step(steps=20):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(steps):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / steps


faults_of_a_step(20)  # the first steps settle nothing
before = faults_of_a_step()
large = torch.empty(30 * 2**20, dtype=torch.uint8)
del large
faults_of_a_step(3)
after = faults_of_a_step()
print(f"page faults of a step: {'more than 2,000' if before > 2000 else before}, and then {'fewer than 200' if after < 200 else after}")
PYTHON
)"
echo "$seen"
expected="page faults of a step: more than 2,000, and then fewer than 200"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-30 it was: $expected" >&2; exit 1; }
