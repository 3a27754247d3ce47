#!/usr/bin/env bash
# Material for MkDocs 9.8.2: the plugin `offline`, which is for pages that work without a network, adds a script of unpkg.com to each page.
# A good guess is that it takes requests away. `extra.polyfills` with a local file of that name keeps it out. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder/packages" mkdocs==1.6.1 mkdocs-material==9.8.2
mkdir "$folder/docs"
echo "# A page" >"$folder/docs/index.md"
seen=""
for more in "" "extra: {polyfills: [assets/iframe-worker.js]}"; do
  printf 'site_name: Pages\ntheme: {name: material, font: false}\nplugins: [offline]\n%s\n' "$more" >"$folder/mkdocs.yml"
  (cd "$folder" && NO_MKDOCS_2_WARNING=1 PYTHONPATH="$folder/packages" python3 -m mkdocs build --quiet)
  seen="$seen $(grep -c 'script src="https://unpkg.com' "$folder/site/index.html" || true)"
done
echo "scripts of another host, as it is and with a local file:$seen"
expected=" 1 0"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was:$expected" >&2; exit 1; }
