"""What the platform wrote about the job, wherever its base directory is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spotkeep.errors import ConfigurationError
from spotkeep.runner.layout import JobLayout, read_configuration


@pytest.fixture
def layout(tmp_path):
    found = JobLayout(base=tmp_path)
    found.configuration.mkdir(parents=True)
    return found


def configure(layout, **files):
    for name, document in files.items():
        text = document if isinstance(document, str) else json.dumps(document)
        (layout.configuration / f"{name}.json").write_text(text)


def test_the_base_directory_is_the_platforms_unless_it_is_moved(tmp_path):
    assert JobLayout.from_environment({}).base == Path("/opt/ml")
    assert JobLayout.from_environment({"SAGEMAKER_BASE_DIR": str(tmp_path)}).base == tmp_path


def test_a_job_without_any_configuration_has_defaults(layout):
    configuration = read_configuration(layout)
    assert configuration.hyperparameters == {}
    assert configuration.hosts == ("algo-1",)
    assert configuration.checkpoint_directory == layout.base / "checkpoints"


def test_hyperparameters_are_those_of_the_platform_in_its_order(layout):
    configure(layout, hyperparameters={"name": "resnet", "lr": "1.10"})
    assert list(read_configuration(layout).hyperparameters.items()) == [("name", "resnet"), ("lr", "1.10")]


def test_spotkeeps_own_channels_are_no_data(layout):
    configure(layout, inputdataconfig={"train": {"TrainingInputMode": "File"}, "spotkeep": {}, "source": {}})
    assert list(read_configuration(layout).channels) == ["train"]


def test_without_a_description_the_directories_are_the_channels(layout):
    for name in ("train", "source"):
        (layout.data / name).mkdir(parents=True)
    assert list(read_configuration(layout).channels) == ["train"]


@pytest.mark.parametrize(
    ("local_path", "found"),
    [("/opt/ml/checkpoints", "checkpoints"), ("/opt/ml/deep/er", "deep/er"), ("/mnt/x", "/mnt/x")],
)
def test_the_checkpoint_directory_moves_with_the_base(layout, local_path, found):
    configure(layout, checkpointconfig={"S3Uri": "s3://b/p", "LocalPath": local_path})
    assert read_configuration(layout).checkpoint_directory == layout.base / found


def test_every_file_that_cannot_be_read_is_named(layout):
    configure(layout, hyperparameters="{", resourceconfig=[1], inputdataconfig="null")
    with pytest.raises(ConfigurationError) as refusal:
        read_configuration(layout)
    assert "hyperparameters.json" in str(refusal.value)
    assert "resourceconfig.json: a list where a JSON object was expected" in str(refusal.value)
    assert "inputdataconfig.json" not in str(refusal.value)
    assert refusal.value.exit_code == 78


def test_hosts_are_numbered_in_the_order_of_the_platform(layout):
    """SageMaker sorts their names. An agent of EC2 instances puts the leader first."""
    configure(layout, resourceconfig={"current_host": "10.0.0.2", "hosts": ["10.0.0.3", "10.0.0.2"]})
    assert read_configuration(layout).hosts == ("10.0.0.3", "10.0.0.2")


def test_a_host_that_is_none_of_the_jobs_hosts_is_a_mistake(layout):
    configure(layout, resourceconfig={"current_host": "algo-4", "hosts": ["algo-1", "algo-2"]})
    with pytest.raises(ConfigurationError, match="current_host algo-4 is not among hosts: algo-1, algo-2"):
        read_configuration(layout)


def test_a_file_without_an_end_is_not_read_to_it(layout):
    layout.configuration.mkdir(parents=True, exist_ok=True)
    (layout.configuration / "hyperparameters.json").symlink_to("/dev/zero")
    with pytest.raises(ConfigurationError, match=r"hyperparameters.json: more than 16,777,216 bytes"):
        read_configuration(layout)
