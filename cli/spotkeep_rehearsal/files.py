"""Judges the files that an interrupted run left, beside those of two runs left alone. Pure."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from spotkeep_rehearsal.comparison import FileComparison, ValueDifference, described
from spotkeep_rehearsal.evidence import ResultFile, RunFacts
from spotkeep_rehearsal.folders import is_log

_TIMES_THE_NOISE = 3.0
_SMALL_NOISE = 1e-3
"""Runs left alone that differ by a smaller share differ by rounding, and not by what they learned."""
_FEWEST_OF_A_DISTANCE = 100
_MOST_SHOWN = 5
_OF_ITS_WRITING = re.compile(
    r"time|date|when|stamp|second|elapsed|duration|created|sha256|checksum|uuid|guid|pid|host|path", re.IGNORECASE
)
_ARGUMENTS = re.compile(
    r"(?:\b|_)(?:args|arguments|config|hparams|hyperparams|options|settings)(?:\b|_)", re.IGNORECASE
)
_SHARE_OF_A_MODEL = 0.2
"""A model without its optimizer has a third of the size of a checkpoint."""


class FileVerdict(enum.Enum):
    """The result for one file."""

    EQUAL = "equal"
    NOISE = "noise"
    """It differs no more than the runs left alone differ from each other."""
    BESIDE = "beside"
    """Its arrays are equal, and numbers or texts beside them differ, such as a mean of the loss."""
    DIFFERS = "differs"
    SHORTER = "shorter"
    """It lacks values, as a history does that began anew after a loss."""
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class ModelJudgement:
    """The judgement on the final model.

    Attributes:
        verdict: The result. UNKNOWN without a file that shows anything.
        by_bytes: True if all files that count are the same, byte for byte.
        small_noise: True if the runs left alone differ by rounding alone.
        by_arrays: True if arrays are equal, and numbers or texts beside them differ.
        reasons: The differences, for people.
        remarks: The open questions.
    """

    verdict: FileVerdict
    by_bytes: bool = False
    small_noise: bool = False
    by_arrays: bool = False
    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def judge_files(
    run: RunFacts,
    alone: RunFacts,
    again: RunFacts,
    *,
    compared: Mapping[str, FileComparison],
    noise: Mapping[str, FileComparison],
) -> ModelJudgement:
    """Judge the final model.

    Files outside the checkpoint folder are the model where they are large enough to be one, or written after the last
    checkpoint. Otherwise the checkpoint is.

    Args:
        run: The run that was interrupted.
        alone: A run left alone.
        again: The other one.
        compared: The files of the interrupted run and of the first one that differ in bytes, compared by value.
        noise: The files of the runs left alone that differ in bytes, compared by value.
    """
    counted = {name for name in alone.files if name in again.files and not is_log(name)}
    missing = sorted(name for name in counted if name not in run.files and not alone.files[name].is_checkpoint)
    remarks = [f"only the runs left alone have {name}: it was lost with the machine" for name in missing[:5]]
    lost = [name for name in missing if name.startswith("/opt/ml/model/")]
    shown = sorted(name for name in counted if name in run.files)
    outside = [name for name in shown if not alone.files[name].is_checkpoint]
    inside = [name for name in shown if alone.files[name].is_checkpoint]
    saved_last = max((alone.files[name].changed_ns for name in inside), default=0)
    is_model = any(alone.files[name].changed_ns >= saved_last for name in outside)
    is_model |= _largest(outside, alone.files) >= _SHARE_OF_A_MODEL * _largest(inside, alone.files)
    judged = outside if outside and is_model else inside
    verdicts = {name: _judge_file(name, run, alone, again, compared, noise) for name in judged}
    if lost or (missing and not judged):
        text = (
            f"only the runs left alone have {', '.join((lost or missing)[:3])}: what is written outside the checkpoint"
            " folder before an interruption is lost with the machine"
        )
        return ModelJudgement(FileVerdict.DIFFERS, reasons=(text,))
    beside = [name for name in judged if verdicts[name] is FileVerdict.BESIDE]
    if not any(
        verdict is FileVerdict.EQUAL or (verdict is FileVerdict.BESIDE and compared[name].arrays)
        for name, verdict in verdicts.items()
    ):
        # Arguments alone are no model.
        verdicts.update(dict.fromkeys(beside, FileVerdict.DIFFERS))
    differing = [name for name in judged if verdicts[name] is FileVerdict.DIFFERS]
    if differing:
        texts = [_described(compared.get(name), noise.get(name)) or name for name in differing]
        more = f", and {len(texts) - 3} more files" if len(texts) > 3 else ""
        text = (
            f"the final model differs from that of the runs left alone in {'; '.join(texts[:3])}{more}: something that"
            " training depends on is not in the checkpoint (random state, data order, optimizer)"
        )
        return ModelJudgement(FileVerdict.DIFFERS, reasons=(text,), remarks=tuple(remarks))
    remarks += [
        f"{name} differs and cannot be compared by value: {_why_unknown(name, compared, noise)}"
        for name in judged
        if verdicts[name] is FileVerdict.UNKNOWN
    ][:5]
    remarks += [
        f"{name} lacks what was there before the loss" for name in judged if verdicts[name] is FileVerdict.SHORTER
    ]
    remarks += [_beside(compared[name], noise.get(name)) for name in beside]
    best = _overall(verdicts, alone.files)
    by_bytes = best is FileVerdict.EQUAL and all(_same_bytes(name, run, alone, again) for name in judged)
    relative = [
        each.largest_relative
        for name in judged
        if name in noise
        for each in noise[name].differences
        if each.largest_relative
    ]
    small = best is FileVerdict.NOISE and max(relative, default=1.0) <= _SMALL_NOISE
    return ModelJudgement(best, by_bytes=by_bytes, small_noise=small, by_arrays=bool(beside), remarks=tuple(remarks))


def _overall(verdicts: Mapping[str, FileVerdict], files: Mapping[str, ResultFile]) -> FileVerdict:
    """Return the verdict on the larger part of the model."""
    sizes: dict[FileVerdict, int] = {}
    for name, verdict in verdicts.items():
        verdict = FileVerdict.EQUAL if verdict is FileVerdict.BESIDE else verdict
        sizes[verdict] = sizes.get(verdict, 0) + files[name].size_bytes + 1
    if not sizes:
        return FileVerdict.UNKNOWN
    if sizes.get(FileVerdict.EQUAL, 0) * 2 > sum(sizes.values()):
        return FileVerdict.EQUAL
    order = (FileVerdict.NOISE, FileVerdict.UNKNOWN, FileVerdict.SHORTER, FileVerdict.EQUAL)
    return max(order, key=lambda verdict: sizes.get(verdict, 0))


def _largest(names: list[str], files: Mapping[str, ResultFile]) -> int:
    return max((files[name].size_bytes for name in names), default=0)


def _same_bytes(name: str, run: RunFacts, alone: RunFacts, again: RunFacts) -> bool:
    return run.files[name].sha256 in (alone.files[name].sha256, again.files[name].sha256)


def _judge_file(
    name: str,
    run: RunFacts,
    alone: RunFacts,
    again: RunFacts,
    compared: Mapping[str, FileComparison],
    noise: Mapping[str, FileComparison],
) -> FileVerdict:
    if _same_bytes(name, run, alone, again):
        return FileVerdict.EQUAL
    ours = compared.get(name)
    repeatable = alone.files[name].sha256 == again.files[name].sha256
    if ours is None or ours.incomparable is not None:
        return FileVerdict.DIFFERS if repeatable else FileVerdict.UNKNOWN
    if not ours.differing:
        return FileVerdict.EQUAL
    theirs = noise.get(name)
    if theirs is not None and theirs.incomparable is not None:
        return FileVerdict.UNKNOWN
    real = _beyond_noise(ours, theirs)
    if not real:
        return FileVerdict.EQUAL if all(map(_is_of_its_writing, ours.differences)) else FileVerdict.NOISE
    if _are_all_alone(ours) and (ours.arrays or _ARGUMENTS.search(name.rpartition("/")[-1])):
        return FileVerdict.BESIDE
    rest = [each for each in ours.differences if each not in real and not _is_of_its_writing(each)]
    if sum(each.changed for each in rest) > sum(each.changed for each in real):
        return FileVerdict.NOISE
    if all(each.what is not None and each.what.startswith(("is missing", "has the shape")) for each in real):
        return FileVerdict.SHORTER
    return FileVerdict.DIFFERS


def _beyond_noise(ours: FileComparison, theirs: FileComparison | None) -> list[ValueDifference]:
    of_noise = {each.name: each for each in theirs.differences} if theirs is not None else {}
    return [each for each in ours.differences if not _is_noise(each, of_noise.get(each.name))]


def _described(ours: FileComparison | None, theirs: FileComparison | None) -> str:
    """Describe the differences of a file that the runs left alone do not have, the largest ones."""
    if ours is None or not ours.differing:
        return ""
    real = _beyond_noise(ours, theirs)
    return described(replace(ours, differing=len(real), differences=tuple(real[:_MOST_SHOWN])))


def _are_all_alone(ours: FileComparison) -> bool:
    """Return True if no array differs. All differences must be known for that."""
    return len(ours.differences) == ours.differing and all(each.is_alone for each in ours.differences)


def _beside(ours: FileComparison, theirs: FileComparison | None) -> str:
    """Name the numbers and texts that differ beside equal arrays."""
    real = [each for each in _beyond_noise(ours, theirs) if not _is_of_its_writing(each)]
    shown = ", ".join(f"{each.name} {each.what or 'differs'}" for each in real[:_MOST_SHOWN])
    more = f", and {len(real) - _MOST_SHOWN} more" if len(real) > _MOST_SHOWN else ""
    return f"beside the arrays of the model, which are equal, values in {ours.name} differ: {shown}{more}"


def _is_of_its_writing(difference: ValueDifference) -> bool:
    """Return True for a value that says when, where or by whom the file was written."""
    return difference.values == 1 and _OF_ITS_WRITING.search(difference.name) is not None


def _is_noise(difference: ValueDifference, of_noise: ValueDifference | None) -> bool:
    if of_noise is None:
        return False
    if difference.what is not None or of_noise.what is not None or difference.values < _FEWEST_OF_A_DISTANCE:
        # Of a few values no distance can be asked for: chance makes it any.
        return True
    return difference.not_finite <= of_noise.not_finite and (difference.largest or 0.0) <= _TIMES_THE_NOISE * (
        of_noise.largest or 0.0
    )


def _why_unknown(name: str, compared: Mapping[str, FileComparison], noise: Mapping[str, FileComparison]) -> str:
    found = [each[name].incomparable for each in (compared, noise) if name in each and each[name].incomparable]
    return found[0] or "" if found else "it was not compared"
