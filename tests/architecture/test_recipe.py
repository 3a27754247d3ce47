"""A field of the job file, added to a copy of the sources by the recipe in CONTRIBUTING.md, works on both backends."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECIPES = (ROOT / "CONTRIBUTING.md").read_text()
EDIT = re.compile(r'^# (?P<file>\S+), below "(?P<line>[^"]+)"\n(?P<added>(?:(?!# \S+, below ).*\n)+)', re.MULTILINE)

JOB = """
import os
import sys
from dataclasses import replace
from pathlib import Path

from spotkeep.__main__ import main
from spotkeep_agent.training.process import spec_path, training_environment
from spotkeep_agent.training.user import current_user
from spotkeep_fleet.training_spec import encode_spec
from spotkeep_jobs.backends.ec2.launch import FleetPlatform, fleet_launch
from spotkeep_jobs.backends.sagemaker.training_job import JobPlatform, build_training_job_request, spec_of
from spotkeep_jobs.document.capacity import first_job
from spotkeep_jobs.document.deployment_facts import NO_DEFAULTS
from spotkeep_jobs.document.request import validate

backend, base = sys.argv[1], Path(sys.argv[2])
command = [sys.executable, "-c", "import os; print(os.environ['SPOTKEEP_SEED'])"]
document = {"name": "first", "seed": 7, "command": command}
document |= {"backend": "ec2", "instance_types": ["m5.large"]} if backend == "ec2" else {"instance_type": "ml.m5.large"}
image = "123456789012.dkr.ecr.us-east-1.amazonaws.com/training:1"
defaults = replace(NO_DEFAULTS, region="us-east-1", image=image, fleet_instance_types=("m5.large",))
request = validate(document, defaults=defaults).accepted()
asked = {"request": request, "job": first_job(request, prices={}), "run": "first-1", "attempt": 1, "launch_id": "feed"}
if backend == "ec2":
    platform = FleetPlatform(launch_template_id="lt-1", subnets={"subnet-a": "us-east-1a"})
    uris = {"checkpoint_uri": "s3://bucket/checkpoints/", "output_prefix": "s3://bucket/output/"}
    job = fleet_launch(**asked, platform=platform, deployment="spotkeep", **uris).instance_job
    place = {"base": base, "notice_file": base / "notice", "user": current_user()}
    environment = training_environment(inherited=os.environ, run="first-1", job=job, lease=1, **place)
    content = encode_spec(job.training)
    path = base / spec_path(content)
else:
    given = {"execution_role_arn": "arn:aws:iam::123456789012:role/r", "training_bundle_uri": "s3://bucket/spotkeep.pyz"}
    platform = JobPlatform(deployment="spotkeep", checkpoint_bucket="bucket", **given)
    environment = build_training_job_request(**asked, platform=platform)["Environment"]
    environment["SAGEMAKER_BASE_DIR"] = str(base)
    content = spec_of(request=request, platform=platform, run="first-1").content
    path = base / Path(environment["SPOTKEEP_TRAINING_SPEC"]).relative_to("/opt/ml")
path.parent.mkdir(parents=True)
path.write_bytes(content)
os.environ.update(environment)
sys.argv = ["spotkeep", "run"]
sys.exit(main())
"""


@pytest.fixture(scope="module")
def changed_sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources in which the blocks of the recipe stand."""
    copy = tmp_path_factory.mktemp("recipe")
    for folder in ("lambda", "training"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    recipe = RECIPES.partition("## A field of the job file")[2].partition("\n## ")[0]
    blocks = re.findall(r"^ *```python\n(.*?)^ *```$", recipe, flags=re.DOTALL | re.MULTILINE)
    edits = [edit for block in blocks for edit in EDIT.finditer(textwrap.dedent(block))]
    assert len(edits) == 5
    for edit in edits:
        path = copy / edit["file"]
        before = path.read_text().splitlines(keepends=True)
        [above] = [number for number, line in enumerate(before) if line.startswith(edit["line"])]
        path.write_text("".join([*before[: above + 1], edit["added"], *before[above + 1 :]]))
    return copy


@pytest.mark.parametrize("backend", ["sagemaker", "ec2"])
def test_a_field_added_by_the_recipe_reaches_the_script(changed_sources: Path, tmp_path: Path, backend: str) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{changed_sources / 'lambda'}:{changed_sources / 'training'}"}
    command = [sys.executable, "-c", JOB, backend, str(tmp_path)]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert "7" in said.stdout.splitlines()


def test_a_field_added_by_the_recipe_has_a_description_and_takes_none_away(changed_sources: Path) -> None:
    code = (
        "import json; from spotkeep_jobs.document.reading import described_fields; "
        "from spotkeep_jobs.document.request import JobRequest; "
        "print(json.dumps({name: field.description for name, field in described_fields(JobRequest).items()}))"
    )
    fields = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", code],
                env={**os.environ, "PYTHONPATH": f"{sources / 'lambda'}:{sources / 'training'}"},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
        )
        for sources in (ROOT, changed_sources)
    ]
    before, after = fields
    assert after.pop("seed")
    assert after == before


def test_files_that_the_recipes_name_exist() -> None:
    named = set(re.findall(r"`((?:[a-z0-9_]+/)+[a-z_.-]*)`", RECIPES))
    roots = ("", "lambda/spotkeep_jobs/", "cli/spotkeep_cli/", "constructs/spotkeep_constructs/", "training/spotkeep/")
    assert len(named) > 20
    assert [path for path in sorted(named) if not any((ROOT / root / path).exists() for root in roots)] == []


def test_names_that_the_recipes_take_from_the_code_stand_in_it() -> None:
    named = set(re.findall(r"`(_?[A-Za-z]+(?:_[A-Za-z]+)+|[A-Z][a-z]+(?:[A-Z][a-z]+)+)`", RECIPES))
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    code = "".join((ROOT / file).read_text() for file in listed if (ROOT / file).is_file())
    words = set(re.findall(r"\w+", code))
    assert len(named) > 15
    assert named - words == set()
