"""The code of pages that needs the extra `boosters` runs, twice, as a script that is started again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages.code import blocks_with_script, run_code
from tests.pages.every_block import Placed

pytest.importorskip("xgboost")
pytestmark = [pytest.mark.boosters, pytest.mark.long]

SCRIPTS = (
    "catboost_rounds",
    "lightgbm_rounds",
    "xgboost_rounds",
)


@pytest.mark.parametrize("placed", blocks_with_script(*SCRIPTS), ids=str)
def test_the_code_runs_and_goes_on(placed: Placed, tmp_path: Path) -> None:
    run_code(placed, tmp_path)
