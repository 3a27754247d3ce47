from pathlib import Path

import pytest

from spotkeep_local.training.opt_ml import OptMl, relocate


@pytest.mark.parametrize(
    ("text", "relocated"),
    [
        ("/opt/ml", "/new"),
        ("/opt/ml/input/data", "/new/input/data"),
        ("cd /opt/ml && ls '/opt/ml/model'", "cd /new && ls '/new/model'"),
        ("--model=/opt/ml/model:/opt/ml/code", "--model=/new/model:/new/code"),
        ("/opt/mlflow", "/opt/mlflow"),
        ("/opt/ml-tools/x", "/opt/ml-tools/x"),
        ("/srv/opt/ml/x", "/srv/opt/ml/x"),
    ],
)
def test_paths_below_opt_ml_are_relocated_and_no_others(text, relocated):
    assert relocate(text, Path("/new")) == relocated


def test_where_a_path_of_the_job_is_on_this_machine(tmp_path):
    assert OptMl(tmp_path).at("/opt/ml/checkpoints/") == tmp_path / "checkpoints"


def test_a_missing_failure_file_says_nothing(tmp_path):
    assert OptMl(tmp_path).failure_text() == ""


def test_of_a_failure_file_without_an_end_the_beginning_is_read(tmp_path):
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "failure").symlink_to("/dev/zero")
    assert len(OptMl(tmp_path).failure_text()) == 64 * 1024
