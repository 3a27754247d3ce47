#!/usr/bin/env bash
# botocore 1.43.106: the retry mode "standard", which boto3's documentation calls the better one, gives up at once where "legacy" goes on: S3's
# BadDigest (a body that arrived damaged), and the statuses 429 and 509 without an error code, as proxies send them. A good guess is that the newer
# mode repeats what the older one does, and more. Each answer comes from a server on this machine. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" botocore==1.43.106
seen="$(cd "$folder" && PYTHONPATH="$folder" python3 - <<'PYTHON'
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import botocore.config
import botocore.exceptions
import botocore.session

CODE = "<Error><Code>{}</Code><Message>once</Message></Error>"
ANSWERS = {
    "RequestTimeout": (400, CODE.format("RequestTimeout")),
    "BadDigest": (400, CODE.format("BadDigest")),
    "429": (429, "busy"),
    "509": (509, "busy"),
}


class Once(BaseHTTPRequestHandler):
    protocol_version, asked, answer = "HTTP/1.1", 0, (200, "")

    def do_PUT(self):
        self.rfile.read(int(self.headers["content-length"]))
        Once.asked += 1
        status, body = Once.answer if Once.asked == 1 else (200, "")
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Once)
threading.Thread(target=server.serve_forever, daemon=True).start()
for mode in ("legacy", "standard"):
    client = botocore.session.Session().create_client(
        "s3",
        region_name="us-east-1",
        endpoint_url=f"http://127.0.0.1:{server.server_port}",
        aws_access_key_id="A",
        aws_secret_access_key="S",
        config=botocore.config.Config(retries={"mode": mode, "max_attempts": 2}),
    )
    for name, Once.answer in ANSWERS.items():
        Once.asked = 0
        try:
            client.put_object(Bucket="b", Key="k", Body=b"x")
            print(mode, name, "sent after", Once.asked)
        except botocore.exceptions.ClientError:
            print(mode, name, "gives up after", Once.asked)
PYTHON
)"
echo "$seen"
expected="legacy RequestTimeout sent after 2
legacy BadDigest sent after 2
legacy 429 sent after 2
legacy 509 sent after 2
standard RequestTimeout sent after 2
standard BadDigest gives up after 1
standard 429 gives up after 1
standard 509 gives up after 1"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
