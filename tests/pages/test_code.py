"""The code of pages runs, twice, as a script that is started again. Code of frameworks is in files of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages.code import SCRIPTS, blocks_with_script, problems_of_code, run_code
from tests.pages.every_block import Placed

HERE = ("best_model", "checksum", "estimator", "exchange", "fleet_seeds", "loop", "loop_epochs", "receiver")
ELSEWHERE = {
    "test_torch_code.py": (
        "ddp", "keras_fit", "lightning_fit", "mlflow_run", "torch_loop", "torch_unfreezing", "trainer", "wandb_run",
    ),
    "test_jax_code.py": ("jax_steps",),
    "test_boosters_code.py": ("catboost_rounds", "lightgbm_rounds", "xgboost_rounds"),
}  # fmt: skip


@pytest.mark.parametrize("placed", blocks_with_script(*HERE), ids=str)
def test_the_code_runs_and_goes_on(placed: Placed, tmp_path: Path) -> None:
    run_code(placed, tmp_path)


def test_each_script_is_run_by_a_test_and_has_a_block() -> None:
    scripts = {path.stem for path in SCRIPTS.glob("*.txt")}
    run = set(HERE)
    for file, names in ELSEWHERE.items():
        text = (Path(__file__).parent / file).read_text()
        assert all(f'"{name}"' in text for name in names), file
        run |= set(names)
    assert scripts == run
    assert {name for name in scripts if not blocks_with_script(name)} == set()


@pytest.mark.parametrize(
    ("code", "problems"),
    [
        ("for step in", ["line 1 is not Python: invalid syntax"]),
        ("from spotkeep import Checkpoint", ["spotkeep has no Checkpoint"]),
        ("from spotkeep.integrations.sklearn import State", ["spotkeep.integrations.sklearn has no State"]),
        ("from spotkeep import Checkpointer\nCheckpointer({}, every=3)", ["Checkpointer takes no every"]),
        ("from spotkeep import Checkpointer\nCheckpointer({}, every_steps=3)", []),
        ("from spotkeep_local import lifecycle\nlifecycle.start(1)", []),
        ("from spotkeep_local import lifecycle\nlifecycle.begin(1)", ["lifecycle has no begin"]),
        (
            "from spotkeep_local.control import FleetControl\ncontrol = FleetControl(1)\ncontrol.halt()",
            ["control has no halt"],
        ),
        ("from numpy import nothing", []),
    ],
)
def test_faults_of_code_are_named(code: str, problems: list[str]) -> None:
    assert problems_of_code(code) == problems
