import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from spotkeep_local.capacity import (
    CapacityScript,
    EventFaults,
    Interruption,
    belongs_to_run,
)

seconds = st.floats(min_value=0, max_value=1e6)
moments = st.one_of(
    st.fixed_dictionaries({"at_step": st.integers(min_value=0, max_value=10**9)}),
    st.fixed_dictionaries({"at_fraction": st.floats(min_value=0, max_value=1)}),
    st.fixed_dictionaries({"at_seconds": seconds}),
    st.fixed_dictionaries({"at_uploads": st.integers(min_value=0, max_value=10**9)}),
)
interruptions = st.builds(
    lambda moment, **rest: Interruption(**moment, **rest),
    moments,
    notice=st.booleans(),
    notice_seconds=seconds,
    capacity_returns_after_seconds=st.none() | seconds,
)
scripts = st.builds(
    CapacityScript,
    interruptions=st.lists(interruptions, max_size=4).map(tuple),
    initial_wait_seconds=seconds,
    gives_up_after_seconds=st.none() | seconds,
)


@given(scripts)
def test_a_script_survives_its_journey_as_json(script):
    assert CapacityScript.from_document(script.to_document()) == script


@given(st.builds(EventFaults, duplicate=st.booleans(), delay_seconds=seconds, drop=st.floats(0, 1)))
def test_faults_survive_their_journey_as_json(faults):
    assert EventFaults.from_document(faults.to_document()) == faults


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({}, "exactly one of at_step, at_fraction, at_seconds, at_uploads"),
        ({"at_step": 1, "at_seconds": 1}, "exactly one of"),
        ({"at_step": 1, "internal_error": True}, "comes without notice"),
        ({"at_step": -1}, r"at_step\n.*greater than or equal to 0"),
        ({"at_fraction": 1.5}, r"at_fraction\n.*less than or equal to 1"),
        ({"at_step": True}, r"at_step\n.*valid integer"),
        ({"at_step": 1, "notice": "yes"}, r"notice\n.*valid boolean"),
        ({"at_step": -1, "notice_seconds": -1}, r"at_step(.|\n)*notice_seconds"),
    ],
)
def test_a_wrong_interruption_names_its_problem(values, problem):
    with pytest.raises(ValidationError, match=problem):
        Interruption(**values)


@pytest.mark.parametrize(
    "document",
    [
        None,
        {"interruption": []},
        {"interruptions": [1]},
        {"interruptions": [{"at_stepp": 1}]},
        {"initial_wait_seconds": "1"},
    ],
)
def test_a_wrong_document_is_refused(document):
    with pytest.raises(ValidationError):
        CapacityScript.from_document(document)


class TestTheMoment:
    def test_a_step_is_due_when_it_is_complete(self):
        interruption = Interruption(at_step=5)
        assert not interruption.is_due(step=None, total_steps=10, training_seconds=99)
        assert not interruption.is_due(step=4, total_steps=10, training_seconds=99)
        assert interruption.is_due(step=5, total_steps=None, training_seconds=0)

    def test_a_fraction_needs_the_total(self):
        interruption = Interruption(at_fraction=0.5)
        assert not interruption.is_due(step=5, total_steps=None, training_seconds=99)
        assert not interruption.is_due(step=4, total_steps=10, training_seconds=99)
        assert interruption.is_due(step=5, total_steps=10, training_seconds=0)

    def test_a_time_and_a_number_of_uploads_need_no_step(self):
        at_seconds, at_uploads = Interruption(at_seconds=2.0), Interruption(at_uploads=3)
        assert not at_seconds.needs_steps
        assert not at_seconds.is_due(step=9, total_steps=9, training_seconds=1.9)
        assert at_seconds.is_due(step=None, total_steps=None, training_seconds=2.0)
        assert not at_uploads.needs_steps
        assert not at_uploads.is_due(step=9, total_steps=9, training_seconds=99, uploads=2)
        assert at_uploads.is_due(step=None, total_steps=None, training_seconds=0, uploads=3)


def test_the_first_interruption_is_used_up_with_the_first_wait():
    script = CapacityScript(interruptions=(Interruption(at_step=1), Interruption(at_step=2)), initial_wait_seconds=3)
    assert script.after_first() == CapacityScript(interruptions=(Interruption(at_step=2),))


@pytest.mark.parametrize(
    ("job_name", "belongs"),
    [("digits", True), ("digits-1", True), ("digits-12", True), ("digits-big-1", False), ("digit-1", False)],
)
def test_the_attempts_of_a_run_and_no_other_belong_to_it(job_name, belongs):
    assert belongs_to_run(job_name=job_name, run="digits") is belongs
