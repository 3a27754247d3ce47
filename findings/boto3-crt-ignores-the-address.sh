#!/usr/bin/env bash
# boto3 1.43.106 with awscrt 0.36.0: transfers with `preferred_transfer_client="crt"` ignore the `endpoint_url` of the client that they are asked of.
# An upload through a client of one S3-compatible store goes to the address of the environment, or to Amazon, with TLS whatever its address says. A
# good guess is that a transfer goes where its client goes. Two servers on this machine count connections. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" boto3==1.43.106 botocore==1.43.106 awscrt==0.36.0
seen="$(cd "$folder" && PYTHONPATH="$folder" python3 - <<'PYTHON'
import os
import socket
import sys
import threading

import boto3
from boto3.s3.transfer import TransferConfig


def listen(name, seen):
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            peer, _ = server.accept()
            seen.append((name, "TLS" if peer.recv(1) == b"\x16" else "HTTP"))
            peer.close()

    threading.Thread(target=serve, daemon=True).start()
    return f"http://127.0.0.1:{server.getsockname()[1]}"


seen = []
os.environ["AWS_ENDPOINT_URL"] = listen("the environment's", seen)
client = boto3.client(
    "s3", endpoint_url=listen("the client's", seen), region_name="us-east-1", aws_access_key_id="A", aws_secret_access_key="S"
)
with open("body", "wb") as file:
    file.write(b"x")
for preferred in ("classic", "crt"):
    seen.clear()
    transfer = threading.Thread(
        target=lambda: client.upload_file("body", "b", "k", Config=TransferConfig(preferred_transfer_client=preferred)),
        daemon=True,
    )
    threading.excepthook = lambda _: None
    transfer.start()
    transfer.join(20)
    print(f"{preferred}:", *sorted({f"{name} address by {way}" for name, way in seen}))
sys.stdout.flush()
os._exit(0)  # the transfers still wait
PYTHON
)"
echo "$seen"
expected="classic: the client's address by HTTP
crt: the environment's address by TLS"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
