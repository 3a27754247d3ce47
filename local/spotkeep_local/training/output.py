"""What a job leaves: `/opt/ml/model` and `/opt/ml/output/data`, packed and copied to its S3 output path."""

from __future__ import annotations

import tarfile
import tempfile
from typing import TYPE_CHECKING, Any

from spotkeep_local.training.object_store import ObjectStore, S3Location

if TYPE_CHECKING:
    from pathlib import Path

    from spotkeep_local.training.opt_ml import OptMl


def model_artifacts_location(request: dict[str, Any]) -> S3Location:
    """Where the model goes: ModelArtifacts.S3ModelArtifacts."""
    name = "model/" if _uncompressed(request) else "model.tar.gz"
    return _output_folder(request).child(name)


def upload_model(store: ObjectStore, request: dict[str, Any], opt_ml: OptMl) -> S3Location:
    """Copies the model, which may be empty, to S3."""
    location = model_artifacts_location(request)
    _upload(store, opt_ml.model, location, uncompressed=_uncompressed(request))
    return location


def upload_output_data(store: ObjectStore, request: dict[str, Any], opt_ml: OptMl) -> None:
    """Copies other output to S3, if there is any."""
    if not any(opt_ml.output_data.iterdir()):
        return
    uncompressed = _uncompressed(request)
    location = _output_folder(request).child("output/" if uncompressed else "output.tar.gz")
    _upload(store, opt_ml.output_data, location, uncompressed=uncompressed)


def _output_folder(request: dict[str, Any]) -> S3Location:
    base = S3Location.parse(request["OutputDataConfig"]["S3OutputPath"])
    return base.child(f"{request['TrainingJobName']}/output")


def _uncompressed(request: dict[str, Any]) -> bool:
    return bool(request["OutputDataConfig"].get("CompressionType") == "NONE")


def _upload(store: ObjectStore, folder: Path, location: S3Location, *, uncompressed: bool) -> None:
    if uncompressed:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                with path.open("rb") as file:
                    store.upload(file, location.child(path.relative_to(folder).as_posix()))
        return
    with tempfile.TemporaryFile(dir=folder.parent) as archive:
        with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=1) as tar:
            for path in sorted(folder.iterdir()):
                tar.add(path, arcname=path.name)
        archive.seek(0)
        store.upload(archive, location)
