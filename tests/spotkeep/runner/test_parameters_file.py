"""A file of parameters, as the launcher writes one for a job in a queue."""

from __future__ import annotations

import json

import pytest

from spotkeep.errors import ConfigurationError
from spotkeep.runner.layout import JobLayout
from spotkeep.runner.parameters_file import take_over_parameters


@pytest.fixture
def layout(tmp_path):
    found = JobLayout(base=tmp_path)
    found.parameters.mkdir(parents=True)
    return found


def test_a_job_without_the_channel_is_left_as_it_is(tmp_path):
    environment = {"HOME": "/root"}
    take_over_parameters(JobLayout(base=tmp_path), environment)
    assert environment == {"HOME": "/root"}
    assert list(tmp_path.iterdir()) == []


def test_variables_and_hyperparameters_are_where_scripts_look_for_them(layout):
    (layout.parameters / "0123.json").write_text(
        json.dumps({"environment": {"WORD": "yes"}, "hyperparameters": {"lr": "0.1"}})
    )
    environment = {"HOME": "/root"}
    take_over_parameters(layout, environment)
    assert environment == {"HOME": "/root", "WORD": "yes"}
    assert json.loads(layout.hyperparameters.read_text()) == {"lr": "0.1"}


def test_hyperparameters_that_did_not_move_are_left(layout):
    layout.configuration.mkdir(parents=True)
    layout.hyperparameters.write_text('{"lr": "0.1"}')
    (layout.parameters / "0123.json").write_text('{"environment": {}, "hyperparameters": {}}')
    take_over_parameters(layout, {})
    assert layout.hyperparameters.read_text() == '{"lr": "0.1"}'


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "holds 0 files of parameters"),
        ({"a.json": "{}", "b.json": "{}"}, "holds 2 files of parameters"),
        ({"a.json": "{"}, "cannot be read"),
        ({"a.json": "[]"}, "cannot be read"),
        ({"a.json": '{"environment": {}}'}, "cannot be read"),
    ],
)
def test_a_channel_without_its_file_is_named(layout, files, says):
    for name, text in files.items():
        (layout.parameters / name).write_text(text)
    with pytest.raises(ConfigurationError, match=says):
        take_over_parameters(layout, {})
