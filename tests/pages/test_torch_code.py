"""The code of pages that needs the extra `torch` runs, twice, as a script that is started again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.forked_scripts import Runs
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
def test_the_code_runs_and_goes_on(placed: Placed, tmp_path: Path, make_runs: Callable[..., Runs]) -> None:
    # What most of them import takes seconds. Keras is not among it, because scripts choose its backend first.
    runs = make_runs(
        "torch.distributed.fsdp",
        "torch._dynamo",
        before="import os; os.chdir(os.path.dirname(os.environ['SM_MODEL_DIR']))",
    )
    run_code(placed, tmp_path, start=runs.run)
