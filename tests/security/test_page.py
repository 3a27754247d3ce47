"""The page that says what stops whom names every attack that is tested, and no other."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "security.md"
OF_THE_BENCH = {"test_page.py", "test_policies.py"}


def test_each_row_names_a_test_that_is_there_and_each_door_has_a_row() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    named = {name for row in rows for name in re.findall(r"`(test_\w+\.py)`", row)}
    assert named == {path.name for path in HERE.glob("test_*.py")} - OF_THE_BENCH
