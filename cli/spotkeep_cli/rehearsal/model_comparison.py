"""Compares trained models by the hashes of their files, and by value where the bytes differ.

Two runs' models compare equal despite the timestamps of the archive. A `torch.save` holds ids that differ from process
to process. The files are those of a stranger's job. A child process (`value_comparison`) reads them with the Python of
the job, within bounds of size and time. Its answer is data.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from urllib.parse import urlsplit

from spotkeep_cli.bounded_reading import read_file
from spotkeep_cli.rehearsal import value_comparison
from spotkeep_cli.rehearsal.evidence import FileComparison, ModelFile, RunEvidence, ValueDifference
from spotkeep_jobs.document.shell_text import programs_of
from spotkeep_local.hosts.written_files import read_end
from spotkeep_local.training.job_host import job_path

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


MOST_FILE_BYTES: Final = 4 << 30
MOST_FILES: Final = 200
MOST_SECONDS: Final = 300.0
_MOST_ANSWER_BYTES: Final = 8 << 20
_MOST_COMPLAINT_BYTES: Final = 2_000


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
        )


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


def compare_files(
    pairs: Mapping[str, Sequence[Path]], *, interpreter: str, most_seconds: float = MOST_SECONDS
) -> tuple[FileComparison, ...]:
    """Compare files by their content, in a child process.

    Args:
        pairs: The file of the interrupted run and that of the other, by name, without a file that could not be
            unpacked.
        interpreter: The Python of the child.
        most_seconds: The longest time of the child for all of them, in seconds.
    """
    asked = [[name, *map(str, files)] for name, files in pairs.items() if len(files) == 2]
    answers, complaint = _asked(asked, interpreter=interpreter, most_seconds=most_seconds)
    found = {answer["name"]: comparison_of(answer) for answer in answers}
    too_large = f"it is larger than {MOST_FILE_BYTES:,} bytes, or one of more than {MOST_FILES} files"
    return tuple(
        found.get(name) or FileComparison(name=name, incomparable=complaint if len(files) == 2 else too_large)
        for name, files in pairs.items()
    )


def _asked(asked: list[list[str]], *, interpreter: str, most_seconds: float) -> tuple[list[dict[str, Any]], str]:
    """Return the child's answers until it ended, and the reason for missing answers."""
    with tempfile.TemporaryDirectory(prefix="spotkeep-comparison-") as folder:
        answers, complaints = Path(folder) / "answers", Path(folder) / "complaints"
        environment = {"PATH": job_path(), "HOME": folder, "TMPDIR": folder, "OMP_NUM_THREADS": "2"}
        with answers.open("wb") as stdout, complaints.open("wb") as stderr:
            try:
                subprocess.run(
                    [interpreter, "-I", value_comparison.__file__],
                    input=json.dumps({"most_bytes": MOST_FILE_BYTES, "pairs": asked}).encode(),
                    stdout=stdout,
                    stderr=stderr,
                    cwd=folder,
                    env=environment,
                    timeout=most_seconds,
                    check=False,
                )
                complaint = ""
            except subprocess.TimeoutExpired:
                complaint = f"the comparison took more than {most_seconds:g} s"
            except OSError as error:
                complaint = f"{interpreter} cannot be started: {error.strerror}"
        last = read_end(complaints, most_bytes=_MOST_COMPLAINT_BYTES).decode("utf-8", "replace").strip().splitlines()
        complaint = complaint or f"the comparison broke off: {last[-1] if last else 'without a word'}"
        return _whole_lines(read_file(answers, most_bytes=_MOST_ANSWER_BYTES)), complaint


def _whole_lines(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.split(b"\n")[:-1]]


def comparison_of(answer: Mapping[str, Any]) -> FileComparison:
    """Return the comparison in an answer of `value_comparison`."""
    differences = tuple(ValueDifference(**each) for each in answer.get("differences", ()))
    return FileComparison(**{**answer, "differences": differences})


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
