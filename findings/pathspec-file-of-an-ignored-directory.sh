#!/usr/bin/env bash
# pathspec 1.1.1: of the rules `data/` and `!data/keep.csv`, GitIgnoreSpec keeps data/keep.csv, and git ignores it: a rule cannot take a
# file back whose directory is ignored. dulwich 1.2.21 does as git does. A good guess is that a class which says it replicates git's
# handling gives git's answer: what packs code by it uploads files that git ignores. Seen on 2026-11-29 with git 2.39.5.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder/packages" pathspec==1.1.1 dulwich==1.2.21
export GIT_CEILING_DIRECTORIES="$folder" PYTHONPATH="$folder/packages"
mkdir -p "$folder/checkout/data"
cd "$folder/checkout"
git init --quiet
printf 'data/\n!data/keep.csv\n' >.gitignore
touch train.py data/keep.csv data/big.csv
seen="$(
  python3 - <<'PYTHON'
from pathlib import Path
from subprocess import check_output

from dulwich.ignore import IgnoreFilterManager
from dulwich.repo import Repo
from pathspec import GitIgnoreSpec

names = ["data/big.csv", "data/keep.csv", "train.py"]
spec = GitIgnoreSpec.from_lines(Path(".gitignore").read_text().splitlines())
manager = IgnoreFilterManager.from_repo(Repo("."))
listed = check_output(["git", "ls-files", "--others", "--exclude-standard"], text=True).splitlines()
print("git keeps", [name for name in names if name in listed])
print("dulwich keeps", [name for name in names if not manager.is_ignored(name)])
print("pathspec keeps", [name for name in names if not spec.match_file(name)])
PYTHON
)"
echo "$seen"
expected="git keeps ['train.py']
dulwich keeps ['train.py']
pathspec keeps ['data/keep.csv', 'train.py']"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
