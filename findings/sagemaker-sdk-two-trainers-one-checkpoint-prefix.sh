#!/usr/bin/env bash
# sagemaker-train 1.27.0, sagemaker-core 2.27.0: `train` writes the checkpoint prefix of the first job into the CheckpointConfig that it was
# given. A second trainer with the same object writes to the first one's prefix, and its job goes on where the other one ended. A good guess
# is that each job has its own, as the documented default holds the job's name. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/environment"
python="$folder/environment/bin/python"
"$python" -m pip install --quiet --disable-pip-version-check sagemaker-train==1.27.0 sagemaker-core==2.27.0
cat >"$folder/config.yaml" <<'YAML'
SchemaVersion: "1.0"
SageMaker: {PythonSDK: {Modules: {TelemetryOptOut: true}}}
YAML
seen="$(SAGEMAKER_USER_CONFIG_OVERRIDE="$folder/config.yaml" AWS_EC2_METADATA_DISABLED=true "$python" - 2>/dev/null <<'PYTHON'
import boto3
from sagemaker.core.helper.session_helper import Session
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import CheckpointConfig, Compute, OutputDataConfig
from sagemaker.train.model_trainer import Mode


class WithoutCalls(Session):
    def default_bucket(self):
        return "bucket"


shared = CheckpointConfig()
for name in ("first", "second"):
    trainer = ModelTrainer(
        training_mode=Mode.LOCAL_CONTAINER,  # Its other mode asks IAM for the role.
        sagemaker_session=WithoutCalls(boto_session=boto3.Session("key", "secret", region_name="us-east-1")),
        base_job_name=name,
        training_image="123456789012.dkr.ecr.us-east-1.amazonaws.com/image:1",
        compute=Compute(instance_type="ml.m5.large", instance_count=1),
        output_data_config=OutputDataConfig(s3_output_path="s3://bucket/out"),
        checkpoint_config=shared,
    )
    trainer.train(dry_run=True)
    print(name, trainer.checkpoint_config.s3_uri.rsplit("-", 1)[0])
PYTHON
)"
echo "$seen"
expected="first s3://bucket/first/first
second s3://bucket/first/first"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
