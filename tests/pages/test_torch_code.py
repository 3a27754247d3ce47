"""The code of pages that needs the extra `torch` runs, twice, as a script that is started again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages.code import blocks_with_script, run_code
from tests.pages.every_block import Placed

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.long]

SCRIPTS = (
    "ddp",
    "keras_fit",
    "lightning_fit",
    "mlflow_run",
    "torch_loop",
    "torch_unfreezing",
    "trainer",
    "wandb_run",
)


@pytest.mark.parametrize("placed", blocks_with_script(*SCRIPTS), ids=str)
def test_the_code_runs_and_goes_on(placed: Placed, tmp_path: Path) -> None:
    run_code(placed, tmp_path)
