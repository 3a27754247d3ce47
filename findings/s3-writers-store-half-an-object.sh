#!/usr/bin/env bash
# s3fs 2026.9.0, pyarrow 26.0.1, cloudpathlib 0.26.0, obstore 0.12.1 by its fsspec interface and s3torchconnector 1.5.0, with moto 5.2.5 as S3: an
# error inside `with open(...)` stores the bytes so far under the object's name, in place of the whole object that was there. SIGTERM is such an
# error where a script turns it into SystemExit. A good guess is that an object is stored when it is whole, as in S3 itself. smart_open 9.0.2
# and obstore's own writer leave the old object. Cause: the end of the block closes the file, and closing completes the upload. s3torchconnector
# does not close after an error, but its writer is a file of `io`, which closes itself once nothing refers to it. Seen on 2026-11-30.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check s3fs==2026.9.0 pyarrow==26.0.1 'cloudpathlib[s3]==0.26.0' \
  obstore==0.12.1 'smart_open[s3]==9.0.2' s3torchconnector==1.5.0 'moto[s3,server]==5.2.5'
cat > "$folder/write.py" <<'PYTHON'
import os

os.environ.update(AWS_ACCESS_KEY_ID="none", AWS_SECRET_ACCESS_KEY="none", AWS_DEFAULT_REGION="us-east-1", AWS_CONFIG_FILE=os.devnull)

import boto3
import cloudpathlib
import obstore
import s3fs
import smart_open
from moto.server import ThreadedMotoServer
from obstore.fsspec import FsspecStore
from obstore.store import S3Store
from pyarrow.fs import S3FileSystem
from s3torchconnector import S3Checkpoint, S3ClientConfig

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
url = f"http://{host}:{port}"
given = {"endpoint": url, "region": "us-east-1", "client_options": {"allow_http": True}}
s3 = boto3.client("s3", endpoint_url=url)
s3.create_bucket(Bucket="bucket")
on_s3 = cloudpathlib.S3Client(endpoint_url=url)
writers = {
    "s3fs": lambda: s3fs.S3FileSystem(endpoint_url=url).open("bucket/key", "wb"),
    "pyarrow": lambda: S3FileSystem(endpoint_override=f"{host}:{port}", scheme="http").open_output_stream("bucket/key"),
    "cloudpathlib": lambda: cloudpathlib.S3Path("s3://bucket/key", client=on_s3).open("wb"),
    "obstore.fsspec": lambda: FsspecStore("s3", **given).open("bucket/key", "wb"),
    "s3torchconnector": lambda: S3Checkpoint(
        region="us-east-1", endpoint=url, s3client_config=S3ClientConfig(force_path_style=True)
    ).writer("s3://bucket/key"),
    "smart_open": lambda: smart_open.open("s3://bucket/key", "wb", transport_params={"client": s3}),
    "obstore": lambda: obstore.open_writer(S3Store("bucket", **given), "key"),
}
for name in list(writers):
    opened = writers.pop(name)
    s3.put_object(Bucket="bucket", Key="key", Body=b"the whole one")
    try:
        with opened() as file:
            file.write(b"half of a new one")
            raise SystemExit
    except SystemExit:
        del file, opened
        print(f"{name}: {s3.get_object(Bucket='bucket', Key='key')['Body'].read().decode()}")
server.stop()
PYTHON
seen="$("$folder/venv/bin/python" "$folder/write.py" 2>"$folder/errors" | grep ': ')" || { cat "$folder/errors" >&2; exit 1; }
echo "$seen"
expected="s3fs: half of a new one
pyarrow: half of a new one
cloudpathlib: half of a new one
obstore.fsspec: half of a new one
s3torchconnector: half of a new one
smart_open: the whole one
obstore: the whole one"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-30 it was:" "$expected" >&2; exit 1; }
