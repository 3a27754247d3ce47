"""The source of another user's run is replaced after its launch, so that the next attempt executes other code.

Who: a user of the deployment, who may put `sources/*`; or a training script, with the role of its job.
With what: `s3:PutObject` over an archive whose name, the hash of what it held, stays the same.
What they would gain: code in another user's run, with its data, its checkpoints and its role.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotkeep_fleet.instance_job import VolumeSpec, read_job
from spotkeep_fleet.record import INPUT_ERROR, new_record
from spotkeep_fleet.training_spec import (
    SPEC_VARIABLE,
    JobSource,
    TrainingSpec,
    decode_spec,
    encode_spec,
    spec_file_name,
)
from spotkeep_jobs.backends.ec2.launch import FleetPlatform, fleet_launch
from spotkeep_jobs.backends.sagemaker.training_job import (
    JobPlatform,
    build_training_job_request,
    follow_up_request,
    spec_of,
)
from spotkeep_jobs.document.capacity import first_job
from spotkeep_jobs.document.request import JobRequest, validate
from spotkeep_jobs.document.source import ArchiveSource
from tests.models.ec2 import instance_job
from tests.spotkeep_agent.cloud import RUN, Cloud
from tests.spotkeep_jobs.backends.sagemaker.test_training_job import DEFAULTS

from .policies import Policies

TRAINING = Path(__file__).parents[2] / "training"


def packed(script: str) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        member = tarfile.TarInfo("train.py")
        member.size = len(script)
        archive.addfile(member, io.BytesIO(script.encode()))
    return raw.getvalue()


LAUNCHED = packed("print('what was launched')")
REPLACED = packed("open('/tmp/evil', 'x')")
SHA256, OTHER_SHA256 = hashlib.sha256(LAUNCHED).hexdigest(), hashlib.sha256(REPLACED).hexdigest()
URI = f"s3://checkpoints/sources/resnet/{SHA256}.tar.gz"
ON_EC2_TOO = replace(DEFAULTS, fleet_instance_types=("g5.xlarge",))
BOTH_HASHES = f"expected SHA-256 {SHA256}, found {OTHER_SHA256}"


def test_a_training_job_refuses_what_was_replaced_and_names_both_hashes(tmp_path: Path) -> None:
    """A container of SageMaker, whose channel `source` holds what was in S3 when it started."""
    channel = tmp_path / "input/data/source"
    channel.mkdir(parents=True)
    (channel / f"{SHA256}.tar.gz").write_bytes(REPLACED)
    spec = encode_spec(TrainingSpec((sys.executable, "train.py"), source=JobSource(uri=URI, sha256=SHA256)))
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(TRAINING),
        "SAGEMAKER_BASE_DIR": str(tmp_path),
        SPEC_VARIABLE: f"/opt/ml/{spec_file_name(spec)}",
    }
    (tmp_path / spec_file_name(spec)).write_bytes(spec)
    command = [sys.executable, "-m", "spotkeep", "run"]
    done = subprocess.run(command, env=environment, check=False)
    assert done.returncode == 66
    failure = (tmp_path / "output/failure").read_text()
    assert BOTH_HASHES in failure
    assert "It was replaced in S3" in failure
    assert not (tmp_path / "source").exists(), "nothing of it is unpacked"


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    cloud = Cloud(tmp_path)
    yield cloud
    cloud.close()


@pytest.mark.long
def test_an_instance_refuses_what_was_replaced_and_the_run_says_why(cloud: Cloud) -> None:
    cloud.objects["bucket/source.tar.gz"] = (REPLACED, {})
    source = JobSource(uri="s3://bucket/source.tar.gz", sha256=SHA256)
    work = instance_job(command=("python", "train.py"), volume=VolumeSpec(size_gb=8), source=source)
    cloud.open(new_record(run=RUN), job=work)
    assert cloud.boot("us-east-1a").finish() == 0
    assert cloud.record.training.state == INPUT_ERROR, "another instance would find the same"
    assert BOTH_HASHES in (cloud.record.training.failure or "")


def launched(**fields: Any) -> JobRequest:
    return validate(
        {"name": "resnet", "command": "python train.py", "source": URI, **fields}, defaults=ON_EC2_TOO
    ).accepted()


def test_the_record_of_a_run_holds_the_hash_that_its_source_is_named_by() -> None:
    request = launched()
    assert request.source == ArchiveSource(uri=URI, sha256=SHA256)
    recorded = validate(request.as_document(), defaults=DEFAULTS).accepted()
    assert recorded.source == request.source, "as a resumed run reads it again"


def test_a_source_elsewhere_is_pinned_or_refused() -> None:
    document = {"name": "resnet", "command": "python train.py", "source": "s3://somewhere/else.tar.gz"}
    (problem,) = validate(document, defaults=DEFAULTS).problems
    assert problem.field == "source"
    assert "may be replaced after the launch" in problem.problem
    assert "sha256: <64 hex digits>" in problem.fix
    pinned = launched(source={"uri": "s3://somewhere/else.tar.gz", "sha256": SHA256})
    assert pinned.source == ArchiveSource(uri="s3://somewhere/else.tar.gz", sha256=SHA256)


def test_only_the_launcher_names_the_spec_that_holds_the_hash() -> None:
    other = {SPEC_VARIABLE: f"/opt/ml/input/data/train/{OTHER_SHA256}.json"}
    document = {"name": "resnet", "command": "python train.py", "environment": other}
    (problem,) = validate(document, defaults=DEFAULTS).problems
    assert problem.field == f"environment.{SPEC_VARIABLE}"


def test_every_training_job_of_a_run_gets_the_recorded_hash() -> None:
    request = launched()
    job = first_job(request, prices={})
    assert job is not None
    platform = JobPlatform(
        deployment="spotkeep",
        checkpoint_bucket="checkpoints",
        execution_role_arn="arn:aws:iam::123456789012:role/spotkeep-execution",
        training_bundle_uri="s3://checkpoints/bundles/0.pyz",
    )
    marks = {"run": "resnet", "launch_id": "mark"}
    first = build_training_job_request(request=request, job=job, platform=platform, attempt=1, **marks)
    spec = spec_of(request=request, platform=platform, run="resnet")
    assert spec is not None
    assert decode_spec(spec.content.decode()).source == JobSource(uri=URI, sha256=SHA256)
    name = spec_file_name(spec.content)
    assert spec.uri == f"s3://checkpoints/specs/resnet/{name}"
    assert first["Environment"][SPEC_VARIABLE] == f"/opt/ml/input/data/spotkeep-spec/{name}"
    second = follow_up_request(previous=first, request=request, job=job, attempt=2, **marks)
    assert second["Environment"][SPEC_VARIABLE] == first["Environment"][SPEC_VARIABLE]
    assert second["InputDataConfig"] == first["InputDataConfig"]


def test_every_instance_of_a_run_gets_the_recorded_hash() -> None:
    request = launched(backend="ec2", instance_type="g5.xlarge")
    job = first_job(request, prices={})
    assert job is not None
    launch = fleet_launch(
        request=request,
        job=job,
        platform=FleetPlatform(launch_template_id="lt-1", subnets={"subnet-1": "us-east-1a"}),
        deployment="spotkeep",
        run="resnet",
        attempt=2,
        launch_id="mark",
        checkpoint_uri="s3://checkpoints/runs/resnet/checkpoints/",
        output_prefix="s3://checkpoints/runs/resnet/output/",
    )
    assert read_job(launch.job).training.source == JobSource(uri=URI, sha256=SHA256)


def test_a_script_writes_results_and_a_user_sources_and_neither_of_them_bundles(policies: Policies) -> None:
    """Of whom, `test_instance_binding` and `test_isolated_teams` say."""
    bucket = policies.arn("AWS::S3::Bucket", named="CheckpointsBucket")
    tags = {"run": "resnet", "runs": "runs", "checkpoints": "runs/resnet/checkpoints"}
    session = {f"aws:PrincipalTag/{name}": value for name, value in tags.items()}
    source = f"sources/resnet/{SHA256}.tar.gz"
    results = ("runs/resnet/checkpoints/step-1/manifest.json", "runs/resnet/output/resnet-1/output/model.tar.gz")
    for principal, written in {
        "ExecutionRole": results, "RunRole": results, "UsersPolicy": (source,), "InstanceRole": (),
    }.items():  # fmt: skip
        for key in (source, *results, "bundles/0.pyz", "other"):
            assert policies.allows(principal, "s3:PutObject", f"{bucket}/{key}", session) is (key in written), key
            if key not in written:
                assert not policies.allows(principal, "s3:DeleteObject", f"{bucket}/{key}", session), key
