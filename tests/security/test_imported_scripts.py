"""A script or a job that a user imports writes lines of its own into the job file.

Who: the author of a script of the SageMaker SDK, or of a training job, that a user imports.
With what: a string of the script, or a name in the job's request, with a line break: `"1\\ncommand: x"` as the
`framework_version`. It stands in a comment of the job file, in the reason why it was not imported.
What they would gain: a command, an image or an environment in a job file whose source the user believes they have read.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from spotkeep_cli.importing.sdk_script import import_script
from spotkeep_cli.importing.training_job import ImportedJob, LeftOut, import_request

LINE_BREAKS = ("\n", "\r", "\r\n", "\x85", "\u2028", "\u2029")
PLACES = (
    "PyTorch(entry_point='a.py', framework_version={0})",
    "PyTorch(entry_point='a.py', metric_definitions=[{{'Name': {0}, 'Regex': 'loss=([0-9]+)'}}])",
    "PyTorch(entry_point='a.py', metric_definitions=[{{'Name': 'loss', 'Regex': {0}}}])",
    "PyTorch(entry_point='a.py', py_version=str({0}))",
    "PyTorch(entry_point='a.py', distribution={{{0}: {{'enabled': 1}}}})",
    "PyTorch(entry_point='a.py', tags=[{{'Key': {0}, 'Value': 'x'}}])",
    "PyTorch(entry_point='a.py', hyperparameters={{{0}: 'x'}})",
    "PyTorch(entry_point='a.py', git_config={{'repo': {0}, {0}: 1}})",
    "PyTorch(entry_point='a.py', checkpoint_local_path={0})",
    "PyTorch(entry_point='a.py', image_uri=retrieve({0}))",
    "PyTorch(entry_point='a.py', **{{{0}: 1}})",
    "HuggingFace(entry_point='a.py', transformers_version={0})",
    "TensorFlow(entry_point='a.py', model_dir={0})",
    "PyTorch(entry_point='a.py').fit({{{0}: 's3://data/x/'}})",
    "PyTorch(entry_point='a.py').fit({{{0}: 1}})",
)


def document_of(job: ImportedJob) -> dict[str, Any]:
    """Read the job file that is written, as a launch does."""
    text = job.as_job_file()
    assert text.replace("\n", "").isprintable()
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert len(comments) == len(job.left_out)
    document: dict[str, Any] = yaml.safe_load(text)
    assert document == job.fields, "what was imported, and not a word beside it"
    return document


@pytest.mark.parametrize("line_break", LINE_BREAKS, ids=ascii)
@pytest.mark.parametrize("place", PLACES)
def test_a_string_of_a_script_writes_no_line_of_the_job_file(place: str, line_break: str) -> None:
    evil = f"1{line_break}command: evil{line_break}image: evil"
    document = document_of(import_script(place.format(ascii(evil)), name="start"))
    assert document["command"] == ["python", "a.py"]
    assert "image" not in document


@given(why=st.text(max_size=20), field=st.text(max_size=20))
@example(why="\ufffe", field="\ufffe")
@example(why="\ud800", field="\ud800")
def test_whatever_is_left_out_is_a_comment_of_one_line(why: str, field: str) -> None:
    document_of(ImportedJob.of({"command": "mine"}, [LeftOut(field=field, why=why)]))


@pytest.mark.parametrize("line_break", LINE_BREAKS, ids=ascii)
def test_a_name_of_a_request_writes_no_line_of_the_job_file(line_break: str) -> None:
    evil = f"a{line_break}command: evil"
    request = {
        "TrainingJobName": "theirs",
        "AlgorithmSpecification": {
            "TrainingImage": "image",
            "MetricDefinitions": [{"Name": evil, "Regex": evil}],
            "ContainerEntrypoint": ["python", "a.py"],
        },
        "HyperParameters": {f"sagemaker_{evil}": "1"},
        "InputDataConfig": [{"ChannelName": evil, "DataSource": {"FileSystemDataSource": {}}}],
        "ResourceConfig": {"InstanceType": "ml.g5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 50},
    }
    assert document_of(import_request(request))["command"] == ["python", "a.py"]
