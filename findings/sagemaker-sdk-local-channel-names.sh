#!/usr/bin/env bash
# sagemaker-core 2.27.0 (what SDK 3 brings a channel with in its local mode): with the S3 prefix "data/train" the objects
# data/train-1.csv and data/train/2.csv become the files "-1.csv" and "2.csv". A training job on SageMaker has "train-1.csv"
# (https://github.com/aws/sagemaker-python-sdk/issues/3612, where a user shows both). And where an object has the prefix itself for its key,
# local mode brings that one alone: "data/a.csv" without "data/a.csv.bak", which S3Prefix means too. A good guess is that a script
# that finds its files in local mode finds them in a job. S3 is a stub here, without a network. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" sagemaker-core==2.27.0
seen="$(cd "$folder" && PYTHONPATH="$folder" python3 -W ignore - 2>"$folder/log" <<'PYTHON'
import pathlib
import tempfile
from types import SimpleNamespace

from botocore.exceptions import ClientError
from sagemaker.core.common_utils import download_folder

KEYS = ["data/a.csv", "data/a.csv.bak", "data/train-1.csv", "data/train/2.csv"]


class Stub:
    """S3, as a resource of boto3."""

    def Object(self, bucket, key):
        def download_file(path, ExtraArgs=None):
            if key not in KEYS:
                raise ClientError({"Error": {"Code": "404", "Message": "Not Found"}}, "HeadObject")
            pathlib.Path(path).write_text(key)

        return SimpleNamespace(key=key, bucket_name=bucket, download_file=download_file)

    def Bucket(self, name):
        def filter(Prefix):
            return [self.Object(name, key) for key in KEYS if key.startswith(Prefix)]

        return SimpleNamespace(objects=SimpleNamespace(filter=filter))


session = SimpleNamespace(s3_resource=Stub(), _get_account_id_if_default_bucket=lambda bucket: None)
for prefix in ("data/train", "data/a.csv"):
    with tempfile.TemporaryDirectory() as target:
        download_folder("b", prefix, target, session)
        print(prefix, sorted(path.name for path in pathlib.Path(target).rglob("*") if path.is_file()))
PYTHON
)" || { tail -5 "$folder/log" >&2; exit 1; }
echo "$seen"
expected="data/train ['-1.csv', '2.csv']
data/a.csv ['a.csv']"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
