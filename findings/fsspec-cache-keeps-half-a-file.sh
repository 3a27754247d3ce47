#!/usr/bin/env bash
# fsspec 2026.9.0: when a connection breaks while `simplecache::` or `filecache::` fetches a file, the error is raised, and the half that
# came stays in the cache under the file's name. The next `open` gives that half without a word, though the server is well again. With
# `simplecache::` each later process with that `cache_storage` gets it, too. A good guess is that a cache holds whole files, as the blocks of
# `blockcache::` are fetched again. The server here breaks off at half of what is asked, until the first error has come.
# Seen on 2026-11-30.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" fsspec==2026.9.0 aiohttp==3.14.5
seen="$(PYTHONPATH="$folder" python3 -W ignore - "$folder" <<'PYTHON'
import contextlib
import http.server
import os
import pathlib
import subprocess
import sys
import threading

DATA = os.urandom(8 << 20)
WELL = f"{sys.argv[1]}/well"  # the server breaks connections until this file is there
READ = """
import pathlib, sys, aiohttp, fsspec
kind, url, folder, whole, well, times = sys.argv[1:]
for _ in range(int(times)):
    try:
        with fsspec.open(f"{kind}::{url}", **{kind: {"cache_storage": folder}}) as file:
            data = file.read()
    except aiohttp.ClientPayloadError as error:
        print(type(error).__name__)
    else:
        print("whole" if data == open(whole, "rb").read() else f"{len(data) >> 20} of 8 MiB")
    pathlib.Path(well).touch()
"""


class Server(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(DATA)))
        self.end_headers()

    def do_GET(self):
        first, last = 0, len(DATA) - 1
        if "Range" in self.headers:
            first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
            last = min(last, len(DATA) - 1)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(DATA)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(DATA[first : last + 1 if os.path.exists(WELL) else (first + last + 1) // 2])

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
whole = f"{sys.argv[1]}/whole"
with open(whole, "wb") as file:
    file.write(DATA)
for kind in ("simplecache", "filecache", "blockcache"):
    pathlib.Path(WELL).unlink(missing_ok=True)
    answers = []
    for opens in (2, 1):
        address = f"http://127.0.0.1:{server.server_port}/data"
        command = [sys.executable, "-c", READ, kind, address, f"{sys.argv[1]}/{kind}", whole, WELL, str(opens)]
        answers += subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    print(f"{kind}: {answers[0]}, again {answers[1]}, another process {answers[2]}")
PYTHON
)"
echo "$seen"
expected="simplecache: ClientPayloadError, again 4 of 8 MiB, another process 4 of 8 MiB
filecache: ClientPayloadError, again 4 of 8 MiB, another process whole
blockcache: ClientPayloadError, again whole, another process whole"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-30 it was: $expected" >&2; exit 1; }
