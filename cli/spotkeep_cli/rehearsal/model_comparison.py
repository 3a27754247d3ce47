"""Compares trained models by the hashes of their files, and by value where the bytes differ.

Two runs' models compare equal despite the timestamps of the archive. `spotkeep_rehearsal.comparison` compares their
values. The files are those of a stranger's job, so no code from them runs.
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import urlsplit

from spotkeep_cli.rehearsal.evidence import ModelFile, RunEvidence
from spotkeep_jobs.document.shell_text import programs_of
from spotkeep_local.training.job_host import job_path
from spotkeep_rehearsal.comparison import MOST_FILE_BYTES, MOST_FILES, FileComparison, compare_files

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from spotkeep_jobs.record.record import Run

_BLOCK_BYTES = 1 << 20


def model_files_of(output_uri: str | None, s3: S3Client) -> dict[str, ModelFile]:
    """Return every file of a run's model archive. Empty when there is none."""
    if output_uri is None:
        return {}
    address = urlsplit(output_uri)
    # To a file: a model has any size.
    with tempfile.TemporaryFile() as archive:
        s3.download_fileobj(address.netloc, address.path.lstrip("/"), archive)
        archive.seek(0)
        return hash_model_files(archive)


def hash_model_files(archive: BinaryIO) -> dict[str, ModelFile]:
    """Return hash and size of every regular file of a ``model.tar.gz``, by its path in the archive.

    Args:
        archive: The archive, open for reading in binary.

    Raises:
        tarfile.TarError: It is not a gzip-compressed tar archive.
    """
    hashes: dict[str, ModelFile] = {}
    with tarfile.open(fileobj=archive, mode="r:gz") as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is not None:
                digest = hashlib.sha256()
                while block := content.read(_BLOCK_BYTES):
                    digest.update(block)
                name = member.name.removeprefix("./")
                hashes[name] = ModelFile(sha256=digest.hexdigest(), size_bytes=content.tell())
    return hashes


def hash_of_hashes(model_files: Mapping[str, ModelFile]) -> str | None:
    """Return one SHA-256 for a whole model, ``None`` when there is no model."""
    if not model_files:
        return None
    lines = "".join(f"{file.sha256}  {name}\n" for name, file in sorted(model_files.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def compare_models(
    run: RunEvidence, reference: RunEvidence, *, records: Mapping[str, Run], s3: S3Client
) -> tuple[FileComparison, ...]:
    """Compare the files that both models have and whose bytes differ.

    Args:
        run: The run that was interrupted.
        reference: The run that was left alone.
        records: The records of both runs, by run. They name the place of the model and the training command.
        s3: A client of the S3 that holds the models.
    """
    names = [
        name
        for name, file in sorted(run.model_files.items())
        if name in reference.model_files and file.sha256 != reference.model_files[name].sha256
    ]
    if not names:
        return ()
    with tempfile.TemporaryDirectory(prefix="spotkeep-comparison-") as folder:
        extracted = [
            _extract(records[each.run].output_uri or "", names[:MOST_FILES], Path(folder) / side, s3)
            for side, each in (("run", run), ("reference", reference))
        ]
        return compare_files(
            {name: [files[name] for files in extracted if name in files] for name in names},
            interpreter=interpreter_of(
                records[reference.run].request.get("command") or (),
                path=(records[reference.run].request.get("environment") or {}).get("PATH"),
            ),
            path=job_path(),
        )


def read_model_file(output_uri: str | None, name: str, s3: S3Client) -> bytes | None:
    """Return the content of one file of a run's model archive. None where it has no such file.

    Args:
        output_uri: The address of the archive.
        name: The path of the file in the archive.
        s3: A client of the S3 that holds the archive.
    """
    if output_uri is None:
        return None
    with tempfile.TemporaryDirectory(prefix="spotkeep-model-") as folder:
        found = _extract(output_uri, [name], Path(folder) / "model", s3)
        return found[name].read_bytes() if name in found else None


def interpreter_of(command: Sequence[str] | str, *, path: str | None = None) -> str:
    """Return the Python that a job's command runs with.

    The command names it. Otherwise it is the `python3` that a local job finds.

    Args:
        command: Its words, or a block of lines for bash.
        path: The job file's PATH of commands. None for the PATH of local jobs.
    """
    named = [words[0] for words in programs_of(command) if PurePosixPath(words[0]).name.startswith("python")]
    python = named[-1] if named else "python3"
    return shutil.which(python, path=path or job_path()) or python


def _extract(output_uri: str, names: Iterable[str], folder: Path, s3: S3Client) -> dict[str, Path]:
    """Take files out of a model archive, under names of our own."""
    folder.mkdir()
    wanted = {name: folder / str(number) for number, name in enumerate(names)}
    address = urlsplit(output_uri)
    body = s3.get_object(Bucket=address.netloc, Key=address.path.lstrip("/"))["Body"]
    found: dict[str, Path] = {}
    with tarfile.open(fileobj=body, mode="r|gz") as tar:
        for member in tar:
            name = member.name.removeprefix("./")
            content = tar.extractfile(member) if name in wanted and member.isreg() else None
            if content is not None and member.size <= MOST_FILE_BYTES:
                with wanted[name].open("wb") as file:
                    shutil.copyfileobj(content, file)
                found[name] = wanted[name]
    return found
