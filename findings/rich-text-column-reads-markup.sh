#!/usr/bin/env bash
# rich 14.3.4: a console made with `markup=False` prints a text as it is, but the TextColumn of a Progress on it reads the text as markup.
# A description `loss [bold] 3` loses its brackets, and `loss [/b] 3` raises MarkupError out of `add_task` or the thread that draws. A name
# or a line of a script in a bar then ends the program. `TextColumn(..., markup=False)` shows it. Seen on 2026-11-29.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m pip install --quiet --disable-pip-version-check --target "$folder" rich==14.3.4
seen="$(PYTHONPATH="$folder" python3 - <<'PYTHON'
import io

from rich.console import Console
from rich.errors import MarkupError
from rich.progress import Progress, TextColumn


def shown(text, *, by_progress, **options):
    console = Console(file=io.StringIO(), markup=False, color_system=None, width=40)
    try:
        if by_progress:
            with Progress(TextColumn("{task.description}", **options), console=console, auto_refresh=False) as progress:
                progress.add_task(text)
        else:
            console.print(text)
    except MarkupError:
        return "MarkupError"
    return console.file.getvalue().strip()


for text in ("loss [bold] 3", "loss [/b] 3"):
    print(
        shown(text, by_progress=False),
        shown(text, by_progress=True),
        shown(text, by_progress=True, markup=False),
        sep=" | ",
        end="; ",
    )
PYTHON
)"
echo "$seen"
expected="loss [bold] 3 | loss  3 | loss [bold] 3; loss [/b] 3 | MarkupError | loss [/b] 3; "
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-29 it was: $expected" >&2; exit 1; }
