"""The code of pages that needs the extra `jax` runs, twice, as a script that is started again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages.code import blocks_with_script, run_code
from tests.pages.every_block import Placed

pytest.importorskip("jax")
pytestmark = [pytest.mark.jax, pytest.mark.long]

SCRIPTS = ("jax_steps",)


@pytest.mark.parametrize("placed", blocks_with_script(*SCRIPTS), ids=str)
def test_the_code_runs_and_goes_on(placed: Placed, tmp_path: Path) -> None:
    run_code(placed, tmp_path)
