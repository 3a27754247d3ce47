"""The control client against a real local AWS, and against none."""

from dataclasses import replace

import pytest

from spotkeep_local.capacity import CapacityScript, EventFaults, Interruption
from spotkeep_local.control import LocalControl
from spotkeep_local.control_connection import ControlError
from spotkeep_local.lifecycle import free_port


def test_a_script_waits_for_the_next_job_of_its_run(local_aws):
    control = LocalControl(local_aws)
    script = CapacityScript(interruptions=(Interruption(at_fraction=0.4, notice=False),))
    assert control.script_capacity(run="none-yet", script=script) == []


def test_faults_are_accepted_and_taken_back(local_aws):
    control = LocalControl(local_aws)
    control.event_faults(EventFaults(duplicate=True, delay_seconds=1, shuffle=True, drop=0.5))
    control.event_faults(EventFaults())


def test_a_refusal_carries_the_servers_words(local_aws):
    with pytest.raises(ControlError, match=r"refused JobFacts: Requested resource not found\."):
        LocalControl(local_aws).job_facts("no-job")


def test_without_a_server_it_says_how_to_start_one(local_aws):
    with pytest.raises(ControlError, match=r"spotkeep local up"):
        LocalControl(replace(local_aws, endpoint_url=f"http://127.0.0.1:{free_port()}")).job_facts("any")


def test_a_proxy_in_the_environment_is_ignored(local_aws, monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    LocalControl(local_aws).event_faults(EventFaults())
