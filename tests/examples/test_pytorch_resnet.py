"""ResNet-50 as a user would bring it: checkpoints by step and epoch, CIFAR-10 from a channel, or the digits."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "pytorch-resnet"
SMALL = ["--width", "4", "--blocks", "1", "1", "1", "1", "--epochs", "2", "--batch", "16", "--max-steps", "8"]
SMALL += ["--checkpoint-every", "3"]

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.long]


@pytest.fixture(scope="module")
def run(make_runs):
    runs = make_runs("numpy", "sklearn.datasets", "torch", "torch._dynamo")

    def run(base, *options, **others):
        return runs.run(EXAMPLE / "train.py", base, *SMALL, *options, **others)

    return run


def weights(base: Path) -> str:
    state = torch.load(base / "model" / "model.pt", weights_only=True)
    digest = hashlib.sha256()
    for name, value in sorted(state.items()):
        digest.update(name.encode())
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


@pytest.fixture(scope="module")
def undisturbed(run, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    base = tmp_path_factory.mktemp("undisturbed")
    code, output = run(base)
    assert code == 0
    return base, output


def test_it_says_that_it_trains_on_the_digits(undisturbed):
    _, output = undisturbed
    assert "no data channel `cifar10`: training on scikit-learn's digits instead" in output
    assert output.count("accuracy") == 2


def test_interrupted_in_an_epoch_and_after_it_it_ends_with_the_same_weights(run, undisturbed, tmp_path):
    for kill, at_step, code in (("SIGKILL", 7, -signal.SIGKILL), ("SIGTERM", 8, 75)):
        assert run(tmp_path, kill=kill, at_step=at_step)[0] == code
    code, output = run(tmp_path)
    assert code == 0
    assert '"step":8,"checkpoint":"step-8"' in output, "it resumed"
    base, _ = undisturbed
    assert weights(tmp_path) == weights(base)
    histories = [json.loads((path / "model" / "history.json").read_text()) for path in (tmp_path, base)]
    assert histories[0] == histories[1]


def test_it_reads_the_binary_version_of_cifar_10(run, tmp_path):
    folder = tmp_path / "cifar" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name in (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"):
        (folder / name).write_bytes(b"".join(bytes([label]) + os.urandom(3072) for label in range(10)))
    code, output = run(tmp_path, "--epochs", "1", SM_CHANNEL_CIFAR10=str(tmp_path / "cifar"))
    assert code == 0
    assert "CIFAR-10: 50 images to learn from" in output


def test_a_channel_without_the_binary_version_is_reported(run, tmp_path):
    (tmp_path / "data_batch_1").write_bytes(b"a pickle")
    code, _ = run(tmp_path, SM_CHANNEL_CIFAR10=str(tmp_path))
    assert code == 1


def test_the_network_is_resnet_50():
    sys.path.insert(0, str(EXAMPLE))
    try:
        from resnet import ResNet
    finally:
        sys.path.remove(str(EXAMPLE))
    model = ResNet(classes=10)
    # 1 stem + 3 in each of 16 blocks + 1 linear layer; the ways around are not counted.
    assert 1 + 3 * len(model.stages) + 1 == 50
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert 23_000_000 < sum(parameter.numel() for parameter in model.parameters()) < 24_000_000


def test_its_job_file_names_options_the_script_has():
    job = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    text = (EXAMPLE / "train.py").read_text()
    assert all(f'"--{name}"' in text for name in job["hyperparameters"])
