#!/usr/bin/env bash
# torch 2.13.0: a rank has failed, and torchrun waits for the other one to end. A SIGTERM that comes in these seconds, as with a loss of
# capacity, or from a supervisor that has heard of the failure, takes the report away: torchrun ends with a SignalException of its own, and no
# line has the rank that failed, or its exit code. A good guess is that torchrun reports the failure that it has found already. Seen on
# 2026-11-30.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 numpy
cat > "$folder/train.py" <<'PYTHON'
import os
import signal
import sys
import time


def slow_end(*_):
    time.sleep(10)
    os._exit(0)


if os.environ["RANK"] == "0":
    time.sleep(1)
    sys.exit(3)
signal.signal(signal.SIGTERM, slow_end)
time.sleep(600)
PYTHON
seen="$("$folder/venv/bin/python" - "$folder" <<'PYTHON'
import os
import signal
import subprocess
import sys

folder = sys.argv[1]
command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", f"{folder}/train.py"]
for disturbed in (False, True):
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    said = ""
    for line in process.stderr:
        if disturbed and "closing signal" in line and "closing signal" not in said:
            process.send_signal(signal.SIGTERM)
        said += line
    process.wait()
    reported = "names the exit code of the rank" if "exitcode: 3" in said or "exitcode  : 3" in said else "names no rank"
    ended = "SignalException" if "SignalException" in said else "ChildFailedError" if "ChildFailedError" in said else said
    print(f"{'SIGTERM meanwhile' if disturbed else 'left alone'}: {reported} ({ended})")
PYTHON
)"
echo "$seen"
expected="left alone: names the exit code of the rank (ChildFailedError)
SIGTERM meanwhile: names no rank (SignalException)"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-30 it was: $expected" >&2; exit 1; }
