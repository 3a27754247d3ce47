#!/usr/bin/env bash
# sagemaker-train 1.27.0 (the torchrun driver that SDK 3 sends into the container): it names the network interface for NCCL alone,
# and over a value that the user has set. gloo, which torch uses on CPUs and for its own groups, is given none. A good guess is
# that a variable of the job's environment wins, and that both libraries get the interface. Seen on 2026-11-28.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target "$folder" sagemaker-train==1.27.0
seen="$(cd "$folder/sagemaker/train/container_drivers/distributed_drivers" && \
  env -u GLOO_SOCKET_IFNAME NCCL_SOCKET_IFNAME=bond0 SM_NETWORK_INTERFACE_NAME=eth0 SM_CURRENT_INSTANCE_TYPE=ml.m5.xlarge python3 - <<'PYTHON'
import os

import torchrun_driver

torchrun_driver.setup_env()
print(os.environ["NCCL_SOCKET_IFNAME"], os.environ.get("GLOO_SOCKET_IFNAME"))
PYTHON
)"
echo "$seen"
expected="eth0 None"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-28 it was: $expected" >&2; exit 1; }
