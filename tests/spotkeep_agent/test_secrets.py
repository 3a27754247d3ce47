"""The agent reads the secrets of its run before each start of the script, with the credentials of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spotkeep_fleet.record import FINISHED, INPUT_ERROR

from .cloud import Cloud, Instance
from .conftest import job, launch

VALUE = "hf_MARKER0123456789"
NAMED: Any = {"secrets": {"HF_TOKEN": "hf"}}
SHOWS = """
import os
with open(os.path.join(os.environ["SM_MODEL_DIR"], "seen"), "w") as file:
    file.write(os.environ["HF_TOKEN"][3:] + str([name for name in os.environ if "SPOTKEEP_SECRET" in name]))
"""
FAILS_ONCE = (
    SHOWS.replace('"w"', '"a"')
    + """
if not os.path.exists(os.path.join(os.environ["SAGEMAKER_BASE_DIR"], "failed")):
    open(os.path.join(os.environ["SAGEMAKER_BASE_DIR"], "failed"), "w").close()
    raise SystemExit("cannot log in with " + os.environ["HF_TOKEN"])
"""
)


def seen(cloud: Cloud) -> str:
    volume = cloud.record.volume
    assert volume is not None
    return (cloud.path(volume.id) / "model/seen").read_text()


def said(instance: Instance) -> str:
    return "\n".join(line for line in instance.lines if "cannot log in" not in line)


def test_the_script_has_the_value_and_nothing_else_has_it(cloud: Cloud, tmp_path: Path) -> None:
    cloud.secrets.put("hf", VALUE)
    launch(cloud, script=SHOWS, **NAMED)
    instance = cloud.boot("us-east-1a")
    assert instance.finish() == 0
    assert cloud.record.training.state == FINISHED
    assert seen(cloud) == f"{VALUE[3:]}[]"
    (cloud.path(cloud.record.volume.id) / "model/seen").unlink()  # type: ignore[union-attr]
    cloud.objects = {name: found for name, found in cloud.objects.items() if "model.tar.gz" not in name}
    everything = [
        said(instance),
        repr(cloud.dynamodb.items),
        repr(cloud.events),
        repr(cloud.logged),
        repr(cloud.objects),
    ]
    files = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()]
    assert len(files) > 3
    assert not [text for text in everything if "MARKER" in text]
    assert not [path for path in files if b"MARKER" in path.read_bytes()]


@pytest.mark.long
def test_a_script_that_starts_again_has_the_rotated_value(cloud: Cloud) -> None:
    cloud.secrets.put("hf", VALUE)
    launch(cloud, script=FAILS_ONCE, max_script_retries=1, **NAMED)
    instance = cloud.boot("us-east-1a")
    instance.wait_for("failure 1 of 2")
    cloud.secrets.put("hf", "hf_ROTATED")
    assert instance.finish() == 0
    assert seen(cloud) == f"{VALUE[3:]}[]ROTATED[]"


@pytest.mark.long
def test_the_reason_of_a_failure_does_not_quote_the_value(cloud: Cloud) -> None:
    cloud.secrets.put("hf", VALUE)
    launch(cloud, script=FAILS_ONCE, **NAMED)
    assert cloud.boot("us-east-1a").finish() == 0
    assert "cannot log in with ***" in str(cloud.record.training.failure)
    assert "MARKER" not in repr(cloud.dynamodb.items) + repr(cloud.events)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        (None, "ResourceNotFoundException"),
        pytest.param({"denied": True}, "AccessDeniedException", marks=pytest.mark.long),
        pytest.param({"deleted": True}, "InvalidRequestException", marks=pytest.mark.long),
    ],
)
def test_a_run_without_its_secret_ends_with_the_secrets_name(
    cloud: Cloud, fields: dict[str, bool] | None, code: str
) -> None:
    if fields is not None:
        cloud.secrets.put("hf", VALUE, **fields)
    launch(cloud, script=SHOWS, **NAMED)
    assert cloud.boot("us-east-1a").finish() == 0
    assert cloud.record.training.state == INPUT_ERROR
    assert str(cloud.record.training.failure).startswith(f"the secret hf cannot be read: {code}: ")
    assert "MARKER" not in repr(cloud.dynamodb.items)


@pytest.mark.long
def test_throttles_are_tried_again(cloud: Cloud) -> None:
    cloud.secrets.put("hf", VALUE)
    cloud.throttled["GetSecretValue"] = 3
    launch(cloud, script=SHOWS, **NAMED)
    assert cloud.boot("us-east-1a").finish() == 0
    assert seen(cloud) == f"{VALUE[3:]}[]"


@pytest.mark.long
def test_where_nothing_answers_the_next_instance_tries(cloud: Cloud) -> None:
    cloud.secrets.put("hf", VALUE)
    launch(cloud, script=SHOWS, **NAMED)
    with cloud.throttling("GetSecretValue"):
        first = cloud.boot("us-east-1a")
        assert first.finish() == 3
        first.wait_for("left: the secret hf cannot be read now")
    first.power_off()
    cloud.new_job(job(script=SHOWS, **NAMED))
    assert cloud.boot("us-east-1b").finish() == 0
    assert seen(cloud) == f"{VALUE[3:]}[]"
