"""Who gets credentials, of which run: decided from what STS and EC2 say, whatever the caller says."""

from __future__ import annotations

import pytest

from instance_credentials.decisions import CredentialsRefusal, InstanceDescription, instance_of, session_of
from spotkeep_fleet.run_session import RunSession

ROLE = "arn:aws:iam::123456789012:role/Spotkeep-Compute-InstanceRole"
SESSION = "arn:aws:sts::123456789012:assumed-role/Spotkeep-Compute-InstanceRole"
INSTANCE = "i-0aaaaaaaaaaaaaaa1"
TAGS = {
    "spotkeep:deployment": "spotkeep",
    "spotkeep:run": "digits-7",
    "spotkeep:attempt": "2",
    "spotkeep:checkpoints": "runs/digits-7/checkpoints",
    "Name": "digits-7-2",
}


def session(state: str = "running", **tags: str) -> RunSession | CredentialsRefusal:
    named = {name.replace("_", ":", 1): value for name, value in tags.items()}
    facts = InstanceDescription(instance=INSTANCE, state=state, tags={**TAGS, **named})
    return session_of(facts, deployment="spotkeep")


def refused(found: object) -> str:
    assert isinstance(found, CredentialsRefusal), found
    return found.code


def test_an_instance_gets_the_session_that_its_tags_name() -> None:
    expected = RunSession(
        run="digits-7", attempt="2", instance=INSTANCE, runs="runs", checkpoints="runs/digits-7/checkpoints"
    )
    assert session() == session("pending") == expected


def test_a_run_that_goes_on_from_an_earlier_one_writes_its_checkpoints_there() -> None:
    found = session(spotkeep_checkpoints="runs/digits-3/checkpoints")
    assert isinstance(found, RunSession)
    assert (found.run, found.checkpoints) == ("digits-7", "runs/digits-3/checkpoints")


def test_the_runs_of_an_isolated_team_lie_apart() -> None:
    found = session(spotkeep_checkpoints="teams/vision-/runs/digits-7/checkpoints")
    assert isinstance(found, RunSession)
    assert found.runs == "teams/vision-/runs"


def test_the_role_is_that_of_this_account_and_the_session_an_instance() -> None:
    assert instance_of(f"{SESSION}/{INSTANCE}", role_arn=ROLE) == INSTANCE
    for other in (
        f"{SESSION}/ada",
        f"{SESSION}/{INSTANCE}/x",
        f"{SESSION}x/{INSTANCE}",
        f"arn:aws:sts::210987654321:assumed-role/Spotkeep-Compute-InstanceRole/{INSTANCE}",
        f"arn:aws:sts::123456789012:assumed-role/Other/{INSTANCE}",
        "arn:aws:iam::123456789012:user/ada",
        ROLE,
        "",
    ):
        assert refused(instance_of(other, role_arn=ROLE)) == "no-instance", other


@pytest.mark.parametrize("state", ["shutting-down", "stopped", ""])
def test_an_instance_that_is_ending_gets_nothing(state: str) -> None:
    assert refused(session(state)) == "not-running"


def test_an_instance_that_ec2_does_not_know_gets_nothing() -> None:
    assert refused(session_of(None, deployment="spotkeep")) == "unknown-instance"


def test_an_instance_of_another_deployment_gets_nothing() -> None:
    assert refused(session(spotkeep_deployment="lab")) == "foreign-instance"
    untagged = InstanceDescription(instance=INSTANCE, state="running", tags={})
    assert refused(session_of(untagged, deployment="spotkeep")) == "foreign-instance"


@pytest.mark.parametrize(
    "tags",
    [
        {"spotkeep_run": ""},
        {"spotkeep_run": "*"},
        {"spotkeep_run": "digits-"},
        {"spotkeep_run": "a/../b"},
        {"spotkeep_run": "x" * 53},
        {"spotkeep_run": "ゼロ"},
        {"spotkeep_attempt": "0"},
        {"spotkeep_attempt": "1*"},
        {"spotkeep_attempt": ""},
        {"spotkeep_checkpoints": ""},
        {"spotkeep_checkpoints": "runs"},
        {"spotkeep_checkpoints": "runs/*/checkpoints"},
        {"spotkeep_checkpoints": "runs/a/checkpoints/"},
        {"spotkeep_checkpoints": "runs/a/b/checkpoints"},
        {"spotkeep_checkpoints": "bundles/a/checkpoints"},
        {"spotkeep_checkpoints": "teams//runs/a/checkpoints"},
    ],
)
def test_tags_that_name_no_run_are_refused_and_shown(tags: dict[str, str]) -> None:
    found = session(**tags)
    assert refused(found) == "no-run"
    assert isinstance(found, CredentialsRefusal)
    assert next(iter(tags)).replace("_", ":") in found.problem


def test_all_that_is_wrong_with_the_tags_is_said_at_once() -> None:
    found = session(spotkeep_run="*", spotkeep_attempt="x", spotkeep_checkpoints="y")
    assert isinstance(found, CredentialsRefusal)
    assert found.problem.count(" is '") == 3
