"""What the environment and the metadata tell the agent, and what it says when they do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spotkeep.notices.instance_metadata import MetadataUnavailableError
from spotkeep_agent.errors import InstanceSettingsError
from spotkeep_agent.identity import InstanceIdentity, read_identity
from spotkeep_agent.settings import read_settings

ENVIRONMENT = {
    "SPOTKEEP_RUN_TABLE": "runs",
    "SPOTKEEP_CREDENTIALS_FUNCTION": "spotkeep-instance_credentials",
    "SPOTKEEP_DEPLOYMENT": "spotkeep",
}
DOCUMENT = {"instanceId": "i-1", "availabilityZone": "us-east-1a", "region": "us-east-1", "instanceType": "g5.xlarge"}
DOCUMENT_PATH = "/latest/dynamic/instance-identity/document"
TAGS_PATH = "/latest/meta-data/tags/instance/"


def test_on_an_instance_everything_is_where_aws_has_it() -> None:
    settings = read_settings(ENVIRONMENT)
    assert settings.mount_point == Path("/opt/ml")
    assert settings.devices == Path("/dev/disk/by-id")
    assert not settings.directories


def test_on_a_shared_machine_everything_is_below_one_folder() -> None:
    settings = read_settings({**ENVIRONMENT, "SPOTKEEP_LOCAL_INSTANCE_ROOT": "/tmp/i-1"})
    assert settings.mount_point == Path("/tmp/i-1/opt/ml")
    assert settings.devices == Path("/tmp/i-1/dev/disk/by-id")
    assert settings.directories


def test_all_that_is_missing_is_named() -> None:
    with pytest.raises(InstanceSettingsError) as caught:
        read_settings(
            {
                "SPOTKEEP_LINGER_SECONDS": "soon",
                "SPOTKEEP_LOCAL_TIME_SCALE": "fast",
                "SPOTKEEP_LOCAL_FIRST_WORLD_SECONDS": "long",
            }
        )
    assert len(caught.value.problems) == 6


@pytest.mark.parametrize(("given", "scale"), [({}, 1.0), ({"SPOTKEEP_LOCAL_TIME_SCALE": "20"}, 20.0)])
def test_it_polls_as_often_as_on_aws_unless_time_is_set_to_run_faster(given: dict[str, str], scale: float) -> None:
    assert read_settings({**ENVIRONMENT, **given}).time_scale == scale


@pytest.mark.parametrize(("given", "seconds"), [("", None), ("600", 600.0)])
def test_a_rehearsal_may_have_a_run_wait_for_all_of_its_nodes(given: str, seconds: float | None) -> None:
    assert read_settings({**ENVIRONMENT, "SPOTKEEP_LOCAL_FIRST_WORLD_SECONDS": given}).first_world_seconds == seconds


@pytest.mark.parametrize("scale", ["0", "0.5", "-1", "nan"])
def test_it_never_polls_less_often_than_on_aws(scale: str) -> None:
    with pytest.raises(InstanceSettingsError, match="a number from 1"):
        read_settings({**ENVIRONMENT, "SPOTKEEP_LOCAL_TIME_SCALE": scale})


class Metadata:
    """Answers of a metadata service, or its silence."""

    def __init__(self, answers: dict[str, str | None], *, silent: int = 0) -> None:
        self.answers = answers
        self.silent = silent

    def text(self, path: str) -> str | None:
        if self.silent:
            self.silent -= 1
            raise MetadataUnavailableError("it hangs")
        return self.answers.get(path)


def identity(metadata: Any) -> InstanceIdentity:
    return read_identity(metadata, sleep=lambda seconds: None)


ANSWERS: dict[str, str | None] = {
    DOCUMENT_PATH: json.dumps(DOCUMENT),
    f"{TAGS_PATH}spotkeep:run": "run",
    f"{TAGS_PATH}spotkeep:deployment": "spotkeep",
}


def test_the_metadata_say_who_we_are_even_when_they_come_late() -> None:
    expected = InstanceIdentity("i-1", "us-east-1a", "us-east-1", "g5.xlarge", "run", "spotkeep")
    assert identity(Metadata(ANSWERS, silent=5)) == expected


@pytest.mark.parametrize(("said", "launched_at"), [("1970-01-02T00:00:00Z", 86_400.0), ("soon", None), (7, None)])
def test_when_it_was_launched_is_known_or_not(said: object, launched_at: float | None) -> None:
    answers = {**ANSWERS, DOCUMENT_PATH: json.dumps({**DOCUMENT, "pendingTime": said})}
    assert identity(Metadata(answers)).launched_at == launched_at


def test_metadata_that_never_answer_end_the_wait() -> None:
    with pytest.raises(InstanceSettingsError, match="it hangs"):
        identity(Metadata(ANSWERS, silent=1000))


def test_an_instance_without_tags_says_what_is_missing() -> None:
    with pytest.raises(InstanceSettingsError) as caught:
        identity(Metadata({DOCUMENT_PATH: "{}"}))
    assert len(caught.value.problems) == 6
    assert any("spotkeep:run" in problem for problem in caught.value.problems)
