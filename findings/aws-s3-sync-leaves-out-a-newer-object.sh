#!/usr/bin/env bash
# aws-cli 1.46.3, with moto 5.2.5 as S3: `aws s3 sync` from a bucket leaves an object out that is newer than the local file and has its
# size, and fetches one of the same size where the local file is the newer one. A good guess is the other way round, as it is on the way
# up and with rsync. `--exact-timestamps` fetches both. A checkpoint that is saved again has its size. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" awscli==1.46.3 'moto[s3]==5.2.5'
seen="$(cd "$folder" && AWS_ACCESS_KEY_ID=none AWS_SECRET_ACCESS_KEY=none AWS_DEFAULT_REGION=us-east-1 AWS_CONFIG_FILE=/dev/null \
  PYTHONPATH="$folder" python3 - <<'PYTHON'
import os
from pathlib import Path

import boto3.session
from awscli.clidriver import create_clidriver
from moto import mock_aws

YEAR = 365 * 86_400


def synced(*options):
    found = []
    for age in (YEAR, -YEAR):
        file = Path("local", "checkpoint.pt")
        file.parent.mkdir(exist_ok=True)
        file.write_text("local")
        at = file.stat().st_mtime - age
        os.utime(file, (at, at))
        create_clidriver().main(["s3", "sync", "--quiet", "s3://bucket/", "local", *options])
        found.append(file.read_text())
    return found


with mock_aws():
    s3 = boto3.session.Session().client("s3")
    s3.create_bucket(Bucket="bucket")
    s3.put_object(Bucket="bucket", Key="checkpoint.pt", Body=b"in S3")
    print("object newer, older:", *synced(), "| exact:", *synced("--exact-timestamps"), sep=" ")
PYTHON
)"
echo "$seen"
expected="object newer, older: local in S3 | exact: in S3 in S3"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
