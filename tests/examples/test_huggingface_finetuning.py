"""The Hugging Face example: ended by a kill and by a notice, it has the weights of a run that was left alone."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = [pytest.mark.torch, pytest.mark.long]

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "huggingface-finetuning"

# The script saves as often as pays, which for so short a run is never.
SAVES_OFTEN = """
from spotkeep import Checkpointer
from spotkeep.integrations import transformers
transformers.Checkpointer = lambda state, every_seconds, **more: Checkpointer(state, every_steps=5, **more)
"""


@pytest.fixture(scope="module")
def run(make_runs):
    # What `transformers` imports when a name of it is first used.
    runs = make_runs("transformers.trainer", "transformers.models.bert.modeling_bert", before=SAVES_OFTEN)

    def run(base, *options, **interruption):
        return runs.run(
            EXAMPLE / "train.py", base, "--epochs", "2", "--train_batch_size", "40", *options, **interruption
        )

    return run


def weights(base: Path) -> str:
    return hashlib.sha256((base / "model" / "model.safetensors").read_bytes()).hexdigest()


def test_interrupted_by_a_kill_and_a_notice_it_has_the_same_weights(run, tmp_path):
    code, output = run(tmp_path / "alone")
    assert code == 0, output
    assert "done: 20 steps" in output
    base = tmp_path / "cut"
    run(base, kill="SIGKILL", at_step=8)
    code, _ = run(base, kill="SIGTERM", at_step=13)
    assert code == 75
    code, output = run(base)
    assert code == 0, output
    assert weights(base) == weights(tmp_path / "alone")


def test_it_trains_on_a_channel_and_from_a_model_that_it_wrote(run, tmp_path):
    rows = [{"text": "quiet warm room", "label": 1}, {"text": "noisy cold room", "label": 0}] * 30
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "reviews.jsonl").write_text("\n".join(map(json.dumps, rows)))
    code, output = run(tmp_path / "first", "--train", str(tmp_path / "train"))
    assert code == 0, output
    code, output = run(tmp_path / "second", "--model", str(tmp_path / "first" / "model"))
    assert code == 0, output
