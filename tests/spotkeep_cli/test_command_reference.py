"""docs/command-reference.md has each command and option as typer's own generator writes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "command-reference.md"
GENERATOR = ("typer", "spotkeep_cli.main", "utils", "docs", "--name", "spotkeep", "--title", "Command reference")


def test_the_page_is_what_typer_generates() -> None:
    done = subprocess.run([sys.executable, "-m", *GENERATOR], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == PAGE.read_text().strip(), (
        f".venv/bin/typer {' '.join(GENERATOR[1:-1])} '{GENERATOR[-1]}' --output docs/command-reference.md"
    )
