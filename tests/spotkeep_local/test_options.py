"""Server options: refused whole when wrong, the same after a trip through JSON."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from spotkeep_local.hosts.isolation import Isolation
from spotkeep_local.options import ServerOptions

options = st.builds(
    ServerOptions,
    region=st.sampled_from(["us-east-1", "eu-central-1", "us-gov-west-1"]),
    account_id=st.from_regex(r"[0-9]{12}", fullmatch=True),
    sync_interval_seconds=st.floats(0.01, 3600),
    upload_delay_seconds=st.floats(0, 3600),
    stop_grace_seconds=st.floats(0, 3600),
    time_scale=st.floats(1, 1000),
    agent_time_scale=st.floats(1, 1000),
    isolation=st.sampled_from(Isolation),
    call_rates=st.booleans(),
)


@given(options)
def test_options_survive_the_daemons_command_line(given_options: ServerOptions) -> None:
    assert ServerOptions.from_json(given_options.to_json()) == given_options


def test_every_wrong_value_is_named_at_once() -> None:
    with pytest.raises(ValidationError) as refusal:
        ServerOptions(
            region="mars",
            account_id="12",
            sync_interval_seconds=0,
            upload_delay_seconds=True,
            stop_grace_seconds="120",  # type: ignore[arg-type]
            isolation="docker",  # type: ignore[arg-type]
            time_scale=0.5,
            agent_time_scale=True,
        )
    fields = [problem["loc"][0] for problem in refusal.value.errors()]
    assert sorted(fields) == sorted(
        [
            "account_id",
            "agent_time_scale",
            "isolation",
            "region",
            "stop_grace_seconds",
            "sync_interval_seconds",
            "time_scale",
            "upload_delay_seconds",
        ]
    )
    assert "input_value='mars'" in str(refusal.value)


@pytest.mark.parametrize(("document", "names"), [("[]", None), ("{", None), ('{"speed": 1}', "speed")])
def test_a_document_that_is_no_object_or_has_another_option_is_refused(document: str, names: str | None) -> None:
    with pytest.raises(ValidationError, match=names):
        ServerOptions.from_json(document)


def test_stopping_a_job_gives_it_what_aws_documents() -> None:
    assert ServerOptions().stop_grace_seconds == 120
