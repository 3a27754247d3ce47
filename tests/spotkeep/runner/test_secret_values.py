"""The runner reads secrets by requests that it signs itself, at each start, and gives them to the script alone."""

from __future__ import annotations

import json
import time

import pytest

from spotkeep.errors import JobSecretError
from spotkeep.runner import secret_values
from spotkeep.runner.secret_values import take_secret_values
from spotkeep_fleet.training_spec import JobSource, TrainingSpec
from tests.models.secrets_manager import SecretsManager

VALUE = "hf_MARKER0123456789"
PRINTS = "import os; print(os.environ['HF_TOKEN'][3:], [n for n in os.environ if 'SECRET_' in n and 'AWS' not in n])"


@pytest.fixture
def aws():
    made = SecretsManager()
    made.put("hf", VALUE)
    return made


def keys(url, **others):
    credentials = {"AWS_ACCESS_KEY_ID": "AKIAOFTHEJOB", "AWS_SECRET_ACCESS_KEY": "S", "AWS_SESSION_TOKEN": "T"}
    return {**credentials, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": url, **others}


def taken(secrets, environment, **calls):
    spec = TrainingSpec(("python",), secrets=secrets)
    return take_secret_values(spec, environment, is_over=lambda: False, **{"sleep": lambda _seconds: None, **calls})


def test_a_script_has_the_value_and_a_rotated_one_at_the_next_start(start, aws):
    with aws.served() as url:
        for value in (VALUE, "hf_ROTATED"):
            aws.put("hf", value)
            job = start(["python", "train.py"], script=PRINTS, spec={"secrets": {"HF_TOKEN": "hf"}}, **keys(url))
            assert job.finish() == 0, job.stderr
            assert job.lines[1] == f"{value[3:]} []"
    assert aws.read == {"hf": 2}


def test_the_key_of_a_json_secret(aws):
    aws.put("keys", json.dumps({"token": "abc", "other": "x"}))
    with aws.served() as url:
        assert taken({"A": "keys:token::", "B": "keys"}, keys(url))["keys:token::"] == "abc"
    assert aws.read == {"keys": 1}


def test_by_its_arn_in_the_region_of_the_arn(aws):
    arn = aws.secrets["hf"].arn
    with aws.served() as url:
        assert taken({"A": arn}, keys(url, AWS_REGION="eu-west-1")) == {arn: VALUE}


@pytest.mark.parametrize("variable", ["AWS_DEFAULT_REGION", "TRAINING_JOB_ARN"])
def test_a_name_is_that_of_a_secret_in_the_jobs_region(aws, variable):
    with aws.served() as url:
        environment = {name: value for name, value in keys(url).items() if name != "AWS_REGION"}
        region = {"AWS_DEFAULT_REGION": "us-east-1", "TRAINING_JOB_ARN": "arn:aws:sagemaker:us-east-1:1:training-job/a"}
        assert taken({"A": "hf"}, {**environment, variable: region[variable]}) == {"hf": VALUE}


def test_with_the_credentials_of_the_container(aws, tmp_path):
    found = {"AccessKeyId": "ASIACONTAINER", "SecretAccessKey": "S", "Token": "T", "Expiration": "2036-01-01T00:00:00Z"}
    file = tmp_path / "token"
    file.write_text("Bearer abc\n")
    with aws.served(key_id="ASIACONTAINER", credentials=found) as url:
        environment = {
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": url,
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{url}/credentials",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(file),
        }
        assert taken({"A": "hf"}, environment) == {"hf": VALUE}


def test_the_place_of_the_credentials_on_sagemaker(aws, monkeypatch):
    found = {"AccessKeyId": "ASIACONTAINER", "SecretAccessKey": "S", "Token": "T", "Expiration": "2036-01-01T00:00:00Z"}
    with aws.served(key_id="ASIACONTAINER", credentials=found) as url:
        monkeypatch.setattr(secret_values, "_CONTAINER_HOST", url)
        environment = {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/credentials", "AWS_ENDPOINT_URL": url}
        assert taken({"A": "hf"}, environment) == {"hf": VALUE}


@pytest.mark.parametrize("fault", ["throttled", "broken"])
def test_throttles_and_faults_are_tried_again(aws, fault):
    setattr(aws, fault, 3)
    pauses = []
    with aws.served() as url:
        assert taken({"A": "hf"}, keys(url), sleep=pauses.append) == {"hf": VALUE}
    assert pauses == [1.0, 2.0, 4.0]


def test_a_service_that_never_answers_is_no_refusal_for_good(aws):
    aws.throttled = 1_000
    with aws.served() as url, pytest.raises(JobSecretError, match="the secret hf cannot be read now") as refused:
        taken({"A": "hf"}, keys(url))
    assert not refused.value.for_good
    with pytest.raises(JobSecretError, match="need a way to it, by a NAT gateway or an interface endpoint"):
        taken({"A": "hf"}, keys("http://127.0.0.1:9"))


def test_a_notice_ends_the_tries(aws):
    aws.throttled = 1_000
    spec, begun = TrainingSpec(("python",), secrets={"A": "hf"}), time.monotonic()
    with aws.served() as url, pytest.raises(JobSecretError):
        take_secret_values(spec, keys(url), is_over=lambda: True)
    assert time.monotonic() - begun < 30
    assert aws.throttled == 999


@pytest.mark.parametrize(
    ("fields", "name", "said"),
    [
        ({}, "another", "the secret another cannot be read: ResourceNotFoundException"),
        ({"denied": True}, "hf", "the secret hf cannot be read: AccessDeniedException"),
        ({"deleted": True}, "hf", "the secret hf cannot be read: InvalidRequestException"),
    ],
)
def test_a_job_without_its_secret_ends_with_the_secrets_name(start, aws, fields, name, said):
    aws.put("hf", VALUE, **fields)
    with aws.served() as url:
        job = start(["python", "train.py"], script="print('ran')", spec={"secrets": {"A": name}}, **keys(url))
        assert job.finish() == 77
    assert job.failure.startswith(f"not started: {said}")
    assert "ran" not in job.lines
    assert VALUE not in job.stderr + job.failure + "".join(job.lines)


def test_what_the_agent_has_read_is_taken_and_leaves_the_environment():
    spec = TrainingSpec(
        ("python",),
        secrets={"B": "b", "A": "a", "C": "a"},
        source=JobSource(git_url="https://h/x", git_commit=40 * "0", git_secret="token"),
    )
    assert spec.value_variables == {"a": "SPOTKEEP_SECRET_1", "b": "SPOTKEEP_SECRET_2", "token": "SPOTKEEP_SECRET_3"}
    environment = {f"SPOTKEEP_SECRET_{number}": f"value {number}" for number in (1, 2, 3)} | {"PATH": "/bin"}
    found = take_secret_values(spec, environment, is_over=lambda: False)
    assert found == {"a": "value 1", "b": "value 2", "token": "value 3"}
    assert environment == {"PATH": "/bin"}


@pytest.mark.parametrize("way", ["the script", "setup", pytest.param("pip", marks=pytest.mark.long)])
def test_a_failure_does_not_quote_a_value(start, aws, way):
    """A script may print it into its log. The reason of a failure goes into records and notifications."""
    fails = ["python", "-c", "import os, sys; sys.exit('cannot log in with ' + 90 * 'x' + os.environ['HF_TOKEN'])"]
    spec = {"secrets": {"HF_TOKEN": "hf", "PIP_INDEX_URL": "index"}, "setup": tuple(fails) if way == "setup" else ()}
    if way == "pip":
        spec["requirements"] = ("no-such-package-anywhere==1",)
    aws.put("index", "http://user:MARKERINDEX@127.0.0.1:9/simple")
    with aws.served() as url:
        job = start(fails, spec=spec, PIP_RETRIES="0", **keys(url))
        assert job.finish() != 0
    assert "MARKER" not in job.failure
    if way != "pip":
        assert f"cannot log in with {90 * 'x'}***" in job.failure
