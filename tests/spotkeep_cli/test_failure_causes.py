"""The causes of failures that lie in the job file, in the words that Python, argparse and bash wrote."""

import pytest

from spotkeep_cli.failure_causes import hint_of_failure


@pytest.mark.parametrize(
    ("failure", "hint"),
    [
        (
            "python tran.py exited with code 2:\npython: can't open file '/tmp/h/ml/source/tran.py': [Errno 2] No such "
            "file or directory",
            "names tran.py, which is not in the source",
        ),
        (
            "AlgorithmError: python train.py exited with code 2:\nusage: train.py [-h]\n"
            "train.py: error: unrecognized arguments: --lr 0.1, exit code: 2",
            "does not know --lr 0.1, which the job file gives",
        ),
        ("train.py: error: the following arguments are required: --data", "the script needs --data"),
        ("train.py: error: argument --epochs: invalid int value: '1.5'", "gives --epochs a value"),
        ("ModuleNotFoundError: No module named 'mylib'", "the script imports mylib"),
        ("bash: line 1: trian: command not found", "no such program"),
        ("the command 'trian' was not found on PATH or in /opt/ml/source: check its spelling", "no such program"),
        ("trian --epochs 3 exited with code 127", "no such program"),
    ],
)
def test_a_failure_of_the_job_file_is_named_as_one(failure: str, hint: str) -> None:
    found = hint_of_failure(failure)
    assert found is not None
    assert hint in found


def test_a_failure_of_the_script_has_no_hint() -> None:
    assert hint_of_failure("python train.py exited with code 1:\nValueError: loss is NaN") is None
