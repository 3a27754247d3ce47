"""Who: a script that may write a run's checkpoints. With what: a manifest whose digest is right, its numbers not.

`created: 10**400` raised what the fall-back does not catch: the run could not resume, although the checkpoint before
was whole. Whatever a manifest holds is a manifest or damage (I2): the reader says so, and takes the one before.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.checkpointer import Checkpointer
from spotkeep.disk.manifest import MalformedManifestError, parse_manifest
from spotkeep.training_folder import TRAININGS_HERE

HUGE = "9" * 400
NUMBERS = ["step", "epochs_completed", "created", "metrics.loss", "files.0.size"]
BAD = [HUGE, "-" + HUGE, "1e999", "NaN", "-1e999", "[" * 500 + "]" * 500, "true", '"7"']


def forged(raw: bytes, field: str, value: str) -> bytes:
    """The same manifest with one value in other words, and its digest made right."""
    document = json.loads(raw)["manifest"]
    inner: Any = document
    *path, last = field.split(".")
    for name in path:
        inner = inner[int(name)] if isinstance(inner, list) else inner[name]
    inner[last] = "@"
    body = json.dumps(document, separators=(",", ":")).replace('"@"', value).encode()
    digest = hashlib.sha256(body).hexdigest().encode()
    return b'{"sha256":"' + digest + b'","manifest":' + body + b"}\n"


def save_twice(folder: Path) -> None:
    """Checkpoints of the steps 1 and 2."""
    state = {"weights": b"w" * 100}
    with Checkpointer(state, directory=folder, every_steps=1) as checkpointer:
        for _ in checkpointer.steps(2):
            checkpointer.log(loss=0.5)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    save_twice(folder)
    return folder


@given(field=st.sampled_from(NUMBERS), value=st.sampled_from(BAD))
def test_a_number_without_bounds_makes_no_manifest(saved: Path, field: str, value: str) -> None:
    with pytest.raises(MalformedManifestError, match=r"makes no sense|is not JSON"):
        parse_manifest(forged((saved / "step-2/manifest.json").read_bytes(), field, value))


@pytest.mark.parametrize(("field", "value"), [("created", HUGE), ("files.0.size", "NaN"), ("step", BAD[-3])])
def test_it_is_damage_and_the_one_before_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, field: str, value: str
) -> None:
    save_twice(tmp_path)
    manifest = tmp_path / "step-2/manifest.json"
    manifest.write_bytes(forged(manifest.read_bytes(), field, value))
    state: dict[str, Any] = {"weights": b""}
    TRAININGS_HERE.forget()  # as a process that begins
    with Checkpointer(state, directory=tmp_path, every_steps=1) as checkpointer:
        assert checkpointer.step == 1
    assert "passing over a damaged checkpoint: step-2/manifest.json" in caplog.text


def test_a_metric_that_no_float_holds_is_not_saved(tmp_path: Path) -> None:
    """Else a checkpoint would be written that is damage to each reader."""
    with Checkpointer({"weights": b"w"}, directory=tmp_path, every_steps=1) as checkpointer:
        for _ in checkpointer.steps(1):
            checkpointer.log(loss=10**400, accuracy=0.5)
    assert parse_manifest((tmp_path / "step-1/manifest.json").read_bytes()).metrics == {"accuracy": 0.5}
