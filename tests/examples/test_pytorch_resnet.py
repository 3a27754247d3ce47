"""ResNet-50 as a user would bring it: checkpoints by step and epoch, CIFAR-10 from a channel, or the digits."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "pytorch-resnet"
SMALL = ["--width", "4", "--blocks", "1", "1", "1", "1", "--epochs", "3", "--batch", "16", "--max-steps", "8"]
SMALL += ["--checkpoint-every", "3"]

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]


def start(base: Path, *options: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(EXAMPLE / "train.py"), *SMALL, *options],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "training"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "SPOTKEEP_EVENTS": "stdout",
            "SPOTKEEP_PROGRESS_SECONDS": "0",
            "SPOTKEEP_CHECKPOINT_DIR": str(base / "checkpoints"),
            "SM_MODEL_DIR": str(base / "model"),
            **environment,
        },
        stdout=subprocess.PIPE,
        text=True,
    )


def weights(base: Path) -> str:
    state = torch.load(base / "model" / "model.pt", weights_only=True)
    digest = hashlib.sha256()
    for name, value in sorted(state.items()):
        digest.update(name.encode())
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    base = tmp_path_factory.mktemp("undisturbed")
    process = start(base)
    output, _ = process.communicate()
    assert process.returncode == 0
    return base, output


def test_it_says_that_it_trains_on_the_digits(undisturbed):
    _, output = undisturbed
    assert "no data channel `cifar10`: training on scikit-learn's digits instead" in output
    assert output.count("accuracy") == 3


@pytest.mark.parametrize(
    ("signum", "at_step"), [(signal.SIGKILL, 5), (signal.SIGKILL, 8), (signal.SIGTERM, 8), (signal.SIGTERM, 20)]
)
def test_interrupted_it_ends_with_the_same_weights(undisturbed, tmp_path, signum, at_step):
    process = start(tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if '"event":"progress"' in line and f'"step":{at_step},' in line:
            process.send_signal(signum)
            break
    process.communicate()
    assert process.returncode == (75 if signum == signal.SIGTERM else -signal.SIGKILL)
    process = start(tmp_path)
    output, _ = process.communicate()
    assert process.returncode == 0
    assert '"step":0,"checkpoint":null' not in output, "it resumed"
    base, _ = undisturbed
    assert weights(tmp_path) == weights(base)
    histories = [json.loads((path / "model" / "history.json").read_text()) for path in (tmp_path, base)]
    assert histories[0] == histories[1]


def test_it_reads_the_binary_version_of_cifar_10(tmp_path):
    folder = tmp_path / "cifar" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name in (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"):
        (folder / name).write_bytes(b"".join(bytes([label]) + os.urandom(3072) for label in range(10)))
    process = start(tmp_path, "--epochs", "1", SM_CHANNEL_CIFAR10=str(tmp_path / "cifar"))
    output, _ = process.communicate()
    assert process.returncode == 0
    assert "CIFAR-10: 50 images to learn from" in output


def test_a_channel_without_the_binary_version_is_told(tmp_path):
    (tmp_path / "data_batch_1").write_bytes(b"a pickle")
    process = start(tmp_path, SM_CHANNEL_CIFAR10=str(tmp_path))
    process.communicate()
    assert process.returncode == 1


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
