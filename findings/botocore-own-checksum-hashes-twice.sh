#!/usr/bin/env bash
# botocore 1.43.106: a caller that gives S3 a checksum of its own (`ChecksumCRC32`) makes botocore hash the whole body once more with SHA-256, over
# TLS too. Without it botocore adds its own CRC-32 and signs UNSIGNED-PAYLOAD. A good guess is that a known checksum saves work. Each is prepared for
# an https address and never sent. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" botocore==1.43.106
seen="$(cd "$folder" && PYTHONPATH="$folder" python3 - <<'PYTHON'
import botocore.awsrequest
import botocore.session
from botocore.config import Config


def signed_as(checksum, **s3):
    client = botocore.session.Session().create_client(
        "s3", region_name="us-east-1", aws_access_key_id="A", aws_secret_access_key="S", config=Config(s3=s3)
    )
    seen = []

    def answer(request, **_):
        seen.append(request.headers["x-amz-content-sha256"].decode())
        return botocore.awsrequest.AWSResponse(request.url, 200, {}, None)

    client.meta.events.register("before-send.s3.PutObject", answer)
    try:
        client.put_object(Bucket="b", Key="k", Body=b"x", **checksum)
    except AttributeError:
        pass  # the answer has no body
    return seen[0] if "UNSIGNED" in seen[0] else "SHA-256 of the body"


print("no checksum:", signed_as({}))
print("own CRC-32:", signed_as({"ChecksumCRC32": "jNxNPA=="}))
print("own CRC-32, payload_signing_enabled=False:", signed_as({"ChecksumCRC32": "jNxNPA=="}, payload_signing_enabled=False))
PYTHON
)"
echo "$seen"
expected="no checksum: STREAMING-UNSIGNED-PAYLOAD-TRAILER
own CRC-32: SHA-256 of the body
own CRC-32, payload_signing_enabled=False: UNSIGNED-PAYLOAD"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
