#!/usr/bin/env bash
# dulwich 1.2.21: a repository inside a checkout that nothing ignores is not among the untracked files of `porcelain.status`, neither itself
# nor what is in it. GitPython 3.2.1, which asks git, has one "file" for it, the name of its directory with a slash. A good guess is that
# the untracked files are the files: what copies them leaves a library behind, without an error. Seen on 2026-11-29 with git 2.39.5.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder/packages" dulwich==1.2.21 GitPython==3.2.1
export GIT_CEILING_DIRECTORIES="$folder" PYTHONPATH="$folder/packages"
git init --quiet "$folder/checkout"
git init --quiet "$folder/checkout/library"
mkdir "$folder/checkout/package"
cd "$folder/checkout"
touch train.py package/net.py library/loader.py
git -C library add .
git -C library -c user.name=a -c user.email=a@example.com commit --quiet -m first
seen="$(
  python3 - <<'PYTHON'
from dulwich import porcelain
from git import Repo

print("dulwich", sorted(name.decode() for name in porcelain.status(".", untracked_files="all").untracked))
print("GitPython", sorted(Repo(".").untracked_files))
PYTHON
)"
echo "$seen"
expected="dulwich ['package/net.py', 'train.py']
GitPython ['library/', 'package/net.py', 'train.py']"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
