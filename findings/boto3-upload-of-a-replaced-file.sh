#!/usr/bin/env bash
# boto3 1.44.8, with moto 5.2.5 as S3: a file that another one takes the place of (`os.replace`, as every careful writer does) while
# `upload_file` sends it is stored as the beginning of the old one and the rest of the new one, without an error. A good guess is that
# the file that was opened is the one that is sent, as `upload_fileobj` does.
# Cause: each part of a large upload opens the name again. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" boto3==1.44.8 'moto[s3]==5.2.5'
seen="$(cd "$folder" && AWS_ACCESS_KEY_ID=none AWS_SECRET_ACCESS_KEY=none AWS_CONFIG_FILE=/dev/null PYTHONPATH="$folder" python3 - <<'PYTHON'
import os

import boto3
from boto3.s3.transfer import TransferConfig
from moto import mock_aws

MIB = 2**20


def sent(upload):
    with open("new", "wb") as file:
        file.write(b"n" * 16 * MIB)
    with open("checkpoint", "wb") as file:
        file.write(b"o" * 16 * MIB)

    def replace(_):
        if os.path.exists("new"):
            os.replace("new", "checkpoint")

    upload(config=TransferConfig(use_threads=False, multipart_chunksize=8 * MIB), callback=replace)
    stored = s3.get_object(Bucket="bucket", Key="key")["Body"].read()
    return stored.count(b"o") // MIB, stored.count(b"n") // MIB


with mock_aws():
    s3 = boto3.client("s3", region_name="us-east-1")
    s3.create_bucket(Bucket="bucket")
    by_name = sent(lambda config, callback: s3.upload_file("checkpoint", "bucket", "key", Config=config, Callback=callback))

    def from_open_file(config, callback):
        with open("checkpoint", "rb") as file:
            s3.upload_fileobj(file, "bucket", "key", Config=config, Callback=callback)

    print("MiB of the old and of the new file: upload_file", *by_name, "upload_fileobj", *sent(from_open_file))
PYTHON
)"
echo "$seen"
expected="MiB of the old and of the new file: upload_file 8 8 upload_fileobj 16 0"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
