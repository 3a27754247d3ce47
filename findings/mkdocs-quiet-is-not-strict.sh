#!/usr/bin/env bash
# MkDocs 1.6.1: `build --strict` fails on a dead link, and `build --strict --quiet` passes. A good guess is that `--quiet` hides warnings and
# counts them. It sets the level of the logger, and strict counts what the logger lets through. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder/packages" mkdocs==1.6.1
mkdir "$folder/docs"
echo "site_name: Pages" >"$folder/mkdocs.yml"
echo "[dead](nothing.md)" >"$folder/docs/index.md"
seen=""
for options in "" "--quiet"; do
  code=0
  (cd "$folder" && PYTHONPATH="$folder/packages" python3 -m mkdocs build --strict $options >/dev/null 2>&1) || code=$?
  seen="$seen strict $options: exit code $code"
done
echo "$seen"
expected=" strict : exit code 1 strict --quiet: exit code 0"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was:$expected" >&2; exit 1; }
