"""Loops of accelerate and Lightning Fabric, as docs/training-scripts.md has them, end the same after interruptions."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("accelerate")
pytest.importorskip("lightning")

pytestmark = [pytest.mark.torch, pytest.mark.long]

EPOCHS, ITEMS, BATCH = 2, 20, 3
BATCHES = EPOCHS * -(-ITEMS // BATCH)
DOCUMENT = Path(__file__).parents[3] / "docs" / "training-scripts.md"
LOOPS = {library: text for text in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
         for library in ("accelerate", "lightning") if f"import {library}\n" in text}  # fmt: skip


class Killed(BaseException):
    """The process is gone."""


class Noisy(torch.utils.data.Dataset):
    """Draws random numbers while it loads."""

    def __len__(self):
        return ITEMS

    def __getitem__(self, index):
        return torch.full((4,), float(index)) / ITEMS + 0.1 * torch.randn(4), torch.tensor(index % 2)


class NoisyStream(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield from map(Noisy().__getitem__, torch.randperm(ITEMS).tolist())


def train(directory, loop, monkeypatch, *, stream=False, at=None, notice=False):
    """Run the lines of the document, and give what they have trained. They know nothing of an interruption."""
    monkeypatch.setenv("SPOTKEEP_CHECKPOINT_DIR", str(directory))
    torch.manual_seed(3)
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)
    )
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    seen = 0

    def loss_of(model, batch):
        nonlocal seen
        seen += 1
        if seen == at and not notice:
            raise Killed
        if seen == at:
            os.kill(os.getpid(), signal.SIGTERM)
        inputs, labels = batch
        return torch.nn.functional.cross_entropy(model(inputs), labels)

    names = {
        "model": net,
        "optimizer": optimizer,
        "scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, BATCHES),
        "train_loader": torch.utils.data.DataLoader(NoisyStream() if stream else Noisy(), BATCH, shuffle=not stream),
        "epochs": EPOCHS,
        "loss_of": loss_of,
    }
    every_step = loop.replace("ResumableTraining(state", "ResumableTraining(state, every_steps=1")
    exec(compile(every_step, str(DOCUMENT), "exec"), names)  # noqa: S102
    return {name: value.numpy().tobytes() for name, value in net.state_dict().items()}, names["scheduler"].state_dict()


@pytest.mark.parametrize("stream", [False, True], ids=["indices", "stream"])
@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_the_lines_of_the_document_end_the_same_after_interruptions(tmp_path, monkeypatch, loop, stream):
    expected = train(tmp_path / "left alone", loop, monkeypatch, stream=stream)
    with pytest.raises(Killed):
        train(tmp_path / "kept", loop, monkeypatch, stream=stream, at=4)
    # It counts from the step that was saved: in the first epoch, at its end, and in the second.
    for at in (1, 4, 3):
        with pytest.raises(SystemExit) as leaving:
            train(tmp_path / "kept", loop, monkeypatch, stream=stream, at=at, notice=True)
        assert leaving.value.code == 75
    assert train(tmp_path / "kept", loop, monkeypatch, stream=stream) == expected


def test_the_document_has_both_loops():
    assert sorted(LOOPS) == ["accelerate", "lightning"]
