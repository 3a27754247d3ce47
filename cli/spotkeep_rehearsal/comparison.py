"""Compares files by the values that they hold, in a child process with the Python of the job.

A `torch.save` holds ids that differ from process to process, and an archive the time of its writing. So
`value_comparison` compares files with other bytes, within bounds of size and time. Its answer is data.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spotkeep_rehearsal import value_comparison

MOST_FILE_BYTES = 4 << 30
MOST_FILES = 200
MOST_SECONDS = 300.0
_MOST_ANSWER_BYTES = 8 << 20
_MOST_COMPLAINT_BYTES = 2_000


@dataclass(frozen=True)
class ValueDifference:
    """A tensor, or another value, of a file that differs from the one in the run left alone.

    Attributes:
        name: The value's name in the file. Empty in a file of one array.
        what: A difference that is not one of numbers. It is another shape, type or text, or the value is missing.
        values: Number of its elements.
        changed: Number of elements that differ.
        largest: The largest absolute difference. ``None`` where no two elements can be subtracted.
        largest_relative: The largest difference as a share of the value in the run left alone. ``None`` as above.
        not_finite: Number of elements that are NaN or infinite in one run only.
        is_alone: True for a number or a text that is no part of an array.
    """

    name: str
    what: str | None
    values: int
    changed: int
    largest: float | None
    largest_relative: float | None
    not_finite: int
    is_alone: bool = False


@dataclass(frozen=True)
class FileComparison:
    """A file of both models whose bytes differ, compared by the values that it holds.

    Attributes:
        name: Its path in the archive.
        incomparable: The reason, as a clause, that the file cannot be compared. ``None`` where it was compared.
        compared: Number of tensors and other values in it.
        differing: Number of values that differ.
        differences: The largest of the differences.
        arrays: Number of arrays of floats that both files have.
    """

    name: str
    incomparable: str | None = None
    compared: int = 0
    differing: int = 0
    differences: tuple[ValueDifference, ...] = ()
    arrays: int = field(default=0, compare=False)

    @property
    def equal(self) -> bool:
        """True if it was compared and holds the same values."""
        return self.incomparable is None and not self.differing


def described(comparison: FileComparison) -> str:
    """Describe the differences of a file in words."""
    rest = comparison.differing - len(comparison.differences)
    values = ", ".join(map(_difference, comparison.differences)) + (f", and {rest} more" if rest else "")
    if comparison.compared == 1:
        return f"{comparison.name} ({values})"
    return f"{comparison.name} ({comparison.differing} of {comparison.compared} tensors and values: {values})"


def _difference(difference: ValueDifference) -> str:
    name = f"{difference.name} " if difference.name else ""
    if difference.what is not None:
        return f"{name}{difference.what}"
    amounts = [] if difference.largest is None else [f"by at most {difference.largest:.3g}"]
    if difference.largest_relative is not None:
        amounts.append(f"relatively {difference.largest_relative:.3g}")
    if difference.not_finite:
        amounts.append(f"{difference.not_finite:,} by NaN or infinity")
    return " ".join([f"{name}in {difference.changed:,} of {difference.values:,} values", ", ".join(amounts)]).rstrip()


def compare_files(
    pairs: Mapping[str, Sequence[Path]],
    *,
    interpreter: str,
    path: str,
    most_seconds: float = MOST_SECONDS,
    trusted: bool = False,
    import_from: Sequence[Path] = (),
    most_shown: int = value_comparison.SHOWN,
) -> tuple[FileComparison, ...]:
    """Compare files by their content, in a child process.

    Args:
        pairs: The file of the interrupted run and that of the other, by name. A file that could not be unpacked is left
            out.
        interpreter: The Python of the child.
        path: The PATH of the child.
        most_seconds: The longest time of the child for all of them, in seconds.
        trusted: True if the caller's own script has written the files on this machine, so that pickles may be read.
        import_from: Directories of the script's own modules, which trusted pickles name.
        most_shown: The most differences of a file that are kept.
    """
    asked = [[name, *map(str, files)] for name, files in pairs.items() if len(files) == 2]
    request = {
        "most_bytes": MOST_FILE_BYTES,
        "pairs": asked,
        "trusted": trusted,
        "import_from": [str(folder) for folder in import_from],
        "most_shown": most_shown,
    }
    answers, complaint = _asked(request, interpreter=interpreter, path=path, most_seconds=most_seconds)
    found = {answer["name"]: comparison_of(answer) for answer in answers}
    too_large = f"it is larger than {MOST_FILE_BYTES:,} bytes, or one of more than {MOST_FILES} files"
    return tuple(
        found.get(name) or FileComparison(name=name, incomparable=complaint if len(files) == 2 else too_large)
        for name, files in pairs.items()
    )


def _asked(
    request: Mapping[str, Any], *, interpreter: str, path: str, most_seconds: float
) -> tuple[list[dict[str, Any]], str]:
    """Return the child's answers until it ended, and the reason for missing answers."""
    with tempfile.TemporaryDirectory(prefix="spotkeep-comparison-") as folder:
        answers, complaints = Path(folder) / "answers", Path(folder) / "complaints"
        environment = {"PATH": path, "HOME": folder, "TMPDIR": folder, "OMP_NUM_THREADS": "2"}
        with answers.open("wb") as stdout, complaints.open("wb") as stderr:
            try:
                subprocess.run(
                    [interpreter, "-I", value_comparison.__file__],
                    input=json.dumps(request).encode(),
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
        last = _end(complaints).decode("utf-8", "replace").strip().splitlines()
        complaint = complaint or f"the comparison broke off: {last[-1] if last else 'without a word'}"
        with answers.open("rb") as file:
            return [json.loads(line) for line in file.read(_MOST_ANSWER_BYTES).split(b"\n")[:-1]], complaint


def _end(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _MOST_COMPLAINT_BYTES))
        return file.read()


def comparison_of(answer: Mapping[str, Any]) -> FileComparison:
    """Return the comparison in an answer of `value_comparison`."""
    differences = tuple(ValueDifference(**each) for each in answer.get("differences", ()))
    return FileComparison(**{**answer, "differences": differences})
