"""What a job leaves: `/opt/ml/model` and `/opt/ml/output/data`, packed and copied to its S3 output path."""

from __future__ import annotations

import tarfile
import tempfile
from typing import TYPE_CHECKING, Any

from spotkeep_local.training.object_store import ObjectStore, S3Location

if TYPE_CHECKING:
    from pathlib import Path

    from spotkeep_local.training.opt_ml import OptMl


def upload_model(store: ObjectStore, request: dict[str, Any], opt_ml: OptMl) -> S3Location:
    """Copy the model, which may be empty, to S3.

    Returns:
        Where it went: ModelArtifacts.S3ModelArtifacts.
    """
    location = _output_folder(request).child("model.tar.gz")
    _upload(store, opt_ml.model, location)
    return location


def upload_output_data(store: ObjectStore, request: dict[str, Any], opt_ml: OptMl) -> None:
    """Copy other output to S3, if there is any."""
    if any(opt_ml.output_data.iterdir()):
        _upload(store, opt_ml.output_data, _output_folder(request).child("output.tar.gz"))


def _output_folder(request: dict[str, Any]) -> S3Location:
    base = S3Location.parse(request["OutputDataConfig"]["S3OutputPath"])
    return base.child(f"{request['TrainingJobName']}/output")


def _upload(store: ObjectStore, folder: Path, location: S3Location) -> None:
    with tempfile.TemporaryFile(dir=folder.parent) as archive:
        with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=1) as tar:
            for path in sorted(folder.iterdir()):
                tar.add(path, arcname=path.name)
        archive.seek(0)
        store.upload(archive, location)
