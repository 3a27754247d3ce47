#!/usr/bin/env bash
# sagemaker-train 1.27.0 (what SDK 3 sends into the container): the first process of a ModelTrainer's job is bash, which gets SIGTERM where
# SageMaker stops a job or takes its capacity. The script of `entry_script` never gets it, and saves nothing. A good guess is that who
# trains is told, as with a command that begins with exec. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap '[ ! -f "$folder/pid" ] || kill -KILL "$(cat "$folder/pid")" 2>/dev/null || true; rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target "$folder/packages" sagemaker-train==1.27.0
# The container's paths begin with /opt/ml; here they begin with a folder.
train="$folder/packages/sagemaker/train"
mkdir -p "$folder/ml/input/data/code" "$folder/ml/input/config" "$folder/ml/output"
cp -R "$train/container_drivers" "$folder/ml/input/data/sm_drivers"
find "$folder/ml/input/data/sm_drivers" -name '*.py' -exec sed -i "s|/opt/ml|$folder/ml|g" {} +
echo '{"current_host": "algo-1", "hosts": ["algo-1"], "current_instance_type": "ml.m5.large", "network_interface_name": "eth0"}' \
  >"$folder/ml/input/config/resourceconfig.json"
echo '{}' | tee "$folder/ml/input/config/inputdataconfig.json" >"$folder/ml/input/config/hyperparameters.json"
echo '{"entry_script": "train.py"}' >"$folder/ml/input/data/sm_drivers/sourcecode.json"
cat >"$folder/ml/input/data/code/train.py" <<'PYTHON'
import os, pathlib, signal, sys, time

folder = pathlib.Path(os.environ["FOLDER"])

def told(*_):
    (folder / "told").touch()
    sys.exit(0)

signal.signal(signal.SIGTERM, told)
(folder / "pid").write_text(str(os.getpid()))
time.sleep(60)
PYTHON

# said_after_sigterm DRIVER: runs the SDK's own script of the container, sends SIGTERM to the job's first process, and says what train.py got.
said_after_sigterm() {
  rm -f "$folder/pid" "$folder/told"
  TRAIN="$train" DRIVER="$1" FOLDER="$folder" python3 - <<'PYTHON'
import os, pathlib, runpy

folder = os.environ["FOLDER"]
templates = runpy.run_path(os.environ["TRAIN"] + "/templates.py")
driver = templates["EXECUTE_BASIC_SCRIPT_DRIVER"]
if os.environ["DRIVER"] != "entry_script":
    driver = templates["EXECUTE_BASE_COMMANDS"].format(base_command=os.environ["DRIVER"])
text = templates["TRAIN_SCRIPT_TEMPLATE"].format(
    working_dir="cd /opt/ml/input/data/code\n", install_requirements="", execute_driver=driver
)
pathlib.Path(folder, "sm_train.sh").write_text(text.replace("/opt/ml", folder + "/ml"))
PYTHON
  FOLDER="$folder" TRAINING_JOB_NAME=job bash -c "chmod +x $folder/sm_train.sh && $folder/sm_train.sh" >"$folder/log" 2>&1 &
  local first=$!
  for _ in $(seq 100); do [ -s "$folder/pid" ] && break; sleep 0.1; done
  [ -s "$folder/pid" ] || { cat "$folder/log" >&2; exit 1; }
  kill -TERM "$first"
  wait "$first" 2>/dev/null || true
  for _ in $(seq 20); do [ -e "$folder/told" ] && break; sleep 0.1; done
  if [ -e "$folder/told" ]; then echo "SIGTERM"; else echo "nothing"; kill -KILL "$(cat "$folder/pid")" 2>/dev/null || true; fi
}
seen="entry_script: $(said_after_sigterm entry_script); exec: $(said_after_sigterm "exec python3 train.py")"
echo "$seen"
expected="entry_script: nothing; exec: SIGTERM"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
