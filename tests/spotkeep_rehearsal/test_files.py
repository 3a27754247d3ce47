"""Files of an interrupted run are judged beside the noise of two runs that were left alone."""

from __future__ import annotations

from pathlib import Path

from spotkeep_rehearsal.comparison import FileComparison, ValueDifference
from spotkeep_rehearsal.evidence import ResultFile, RunFacts
from spotkeep_rehearsal.files import FileVerdict, ModelJudgement, judge_files


def run_of(**files: str) -> RunFacts:
    """A run whose files have these contents. `ckpt_` begins the name of a checkpoint."""
    return RunFacts(
        "run",
        (),
        {
            name.replace("_", "."): ResultFile(Path(name), content, 100, name.startswith("ckpt"), 1)
            for name, content in files.items()
        },
    )


def comparison(name: str, what: str | None = None, *, largest: float = 1.0, values: int = 1_000) -> FileComparison:
    difference = ValueDifference("w", what, values, values, largest, largest, 0)
    return FileComparison(name, compared=1, differing=1, differences=(difference,))


def judged(
    run: RunFacts, alone: RunFacts, again: RunFacts, *found: FileComparison, noise: tuple[FileComparison, ...] = ()
) -> ModelJudgement:
    return judge_files(
        run, alone, again, compared={each.name: each for each in found}, noise={each.name: each for each in noise}
    )


def test_equal_bytes_of_either_run_left_alone_are_equal() -> None:
    found = judged(run_of(model_pt="b"), run_of(model_pt="a"), run_of(model_pt="b"))
    assert (found.verdict, found.by_bytes) == (FileVerdict.EQUAL, True)


def test_other_values_differ_and_bytes_alone_do_not() -> None:
    alone = run_of(model_pt="a")
    found = judged(run_of(model_pt="b"), alone, alone, comparison("model.pt"))
    assert found.verdict is FileVerdict.DIFFERS
    same = judged(run_of(model_pt="b"), alone, alone, FileComparison("model.pt", compared=1))
    assert (same.verdict, same.by_bytes) == (FileVerdict.EQUAL, False)


def test_a_difference_within_the_noise_is_noise_and_one_beyond_it_is_none() -> None:
    runs = run_of(model_pt="a"), run_of(model_pt="b"), run_of(model_pt="c")
    noise = (comparison("model.pt", largest=0.1),)
    assert judged(*runs, comparison("model.pt", largest=0.3), noise=noise).verdict is FileVerdict.NOISE
    assert judged(*runs, comparison("model.pt", largest=0.5), noise=noise).verdict is FileVerdict.DIFFERS


def test_a_model_that_was_lost_with_the_machine_differs_and_is_named() -> None:
    alone = run_of(model_pt="a")
    found = judged(run_of(), alone, alone)
    assert found.verdict is FileVerdict.DIFFERS
    assert "model.pt" in found.reasons[0]


def test_a_file_that_cannot_be_compared_shows_nothing_unless_it_is_repeatable() -> None:
    unreadable = FileComparison("model.pt", incomparable="it is of no known kind")
    runs = run_of(model_pt="c"), run_of(model_pt="a")
    assert judged(*runs, run_of(model_pt="b"), unreadable).verdict is FileVerdict.UNKNOWN
    assert judged(*runs, run_of(model_pt="a"), unreadable).verdict is FileVerdict.DIFFERS
