#!/usr/bin/env bash
# sagemaker-train 1.27.0 (ModelTrainer of SDK 3): with SourceCode(command="python train.py | tee log.txt") the job is completed
# when the script fails. A good guess is that the failure counts, since the SDK's script begins with `set -e`.
# Cause: no `pipefail`, so the exit code of a pipe is that of its last program. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --no-deps --target "$folder" sagemaker-train==1.27.0
python3 - "$folder/sagemaker/train/templates.py" "$folder/train.sh" <<'PYTHON'
import pathlib, runpy, sys

templates = runpy.run_path(sys.argv[1])
command = 'python3 -c "raise SystemExit(1)" | tee log.txt'
whole = templates["TRAIN_SCRIPT_TEMPLATE"].format(
    working_dir="", install_requirements="",
    execute_driver=templates["EXECUTE_BASE_COMMANDS"].format(base_command=command),
)
# What reads the container's own files is left out: the options of the shell, and the command, stay as they are.
options = [line for line in whole.splitlines() if line.startswith("set ")]
begin = whole.index("\nCMD=$(")
pathlib.Path(sys.argv[2]).write_text("\n".join([*options, whole[begin:]]))
PYTHON
code=0
(cd "$folder" && bash train.sh >said.txt 2>/dev/null) || code=$?
seen="exit code $code; $(tail -n 1 "$folder/said.txt")"
echo "$seen"
expected="exit code 0; Training Container Execution Completed"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
