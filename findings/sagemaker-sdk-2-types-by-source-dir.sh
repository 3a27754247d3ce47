#!/usr/bin/env bash
# sagemaker 2.257.1: the same hyperparameters of an Estimator are sent as Python's text without source_dir, and as JSON with it.
# True is "True" or "true", None is "None" or "null", ["a"] is "['a']" or '["a"]'. A script that reads JSON works with source_dir
# alone. A good guess is that source_dir says where the code is, and nothing else.
# Cause: set_hyperparameters encodes them only where there is a source_dir. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" sagemaker==2.257.1
seen="$(PYTHONPATH="$folder" python3 -W ignore - <<'PYTHON'
import logging

logging.disable(logging.CRITICAL)
import boto3
import sagemaker
from sagemaker.estimator import Estimator

boto_session = boto3.Session("AKIDEXAMPLE", "secret", region_name="us-east-1")
session = sagemaker.Session(boto_session=boto_session, default_bucket="bucket")
for code in ({"entry_point": "train.py"}, {"entry_point": "train.py", "source_dir": "src"}):
    estimator = Estimator(
        "image", "arn:aws:iam::111122223333:role/r", 1, "ml.m5.large", sagemaker_session=session, **code,
        hyperparameters={"flag": True, "clip": None, "layers": ["a"]},
    )
    # What CreateTrainingJob gets is str() of each.
    print({name: str(value) for name, value in estimator.hyperparameters().items()})
PYTHON
)"
echo "$seen"
expected="{'flag': 'True', 'clip': 'None', 'layers': \"['a']\"}
{'flag': 'true', 'clip': 'null', 'layers': '[\"a\"]'}"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
