"""What a plan says of installations: from where, and where a comeback finds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spotkeep_cli.launching.installation_view import installation_rows
from spotkeep_cli.launching.job_file import read_job_file
from spotkeep_cli.launching.preparation import prepare

COMMAND = {"command": ["python", "train.py"]}


@pytest.mark.parametrize(
    ("request_", "rows"),
    [
        ({**COMMAND, "install": "none"}, []),
        ({**COMMAND, "install": "auto"}, [("installs", "what requirements.txt asks for; a comeback finds it in S3")]),
        (
            {**COMMAND, "install": "more.txt", "backend": "ec2"},
            [("installs", "what more.txt asks for; a comeback finds it on the run's volume")],
        ),
        (
            {**COMMAND, "install": ["timm", "einops"], "setup": ["make", "all"]},
            [("installs", "timm, einops; a comeback finds it in S3"), ("set up by", "make all, once a machine")],
        ),
        (
            {**COMMAND, "install": ["timm"], "keep_alive": 1800},
            [("installs", "timm; a comeback finds it in S3, the next job on the warm pool in its cache")],
        ),
        ({"install": "auto"}, []),
    ],
)
def test_each_kind_of_installation_is_a_row(
    request_: dict[str, Any], rows: list[tuple[str, str]], tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text("timm\n")
    (tmp_path / "job.yaml").write_text("name: first\ncommand: python train.py\nsource: .\n")
    prepared = prepare(read_job_file(tmp_path / "job.yaml"), checkpoint_bucket="checkpoints", new_token=lambda: "once")
    assert list(installation_rows(request_, prepared=prepared)) == rows
