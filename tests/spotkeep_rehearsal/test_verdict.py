"""The verdict on facts: equal results are no PASS unless the command was seen to go on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spotkeep_rehearsal.comparison import FileComparison, ValueDifference
from spotkeep_rehearsal.evidence import FileWrite, Life, LifeEnding, OutputLine, ResultFile, RunFacts
from spotkeep_rehearsal.milestones import find_milestones
from spotkeep_rehearsal.verdict import Facts, Going, Status, judge, losses_of, needs_finished_start


def life(first: int, last: int, *, ending: LifeEnding = LifeEnding.EXITED, quiet: bool = False, **more: object) -> Life:
    epochs = range(first, last)
    lines = tuple(OutputLine(float(epoch), f"epoch {epoch} loss {1 / (epoch + 1):.4f}") for epoch in epochs)
    facts = Life(
        ending=ending,
        seconds=float(last - first),
        exit_code=0 if ending is LifeEnding.EXITED else None,
        lines=() if quiet else lines,
        writes=tuple(FileWrite(float(epoch), "newest.pt") for epoch in epochs),
        left_files=("newest.pt",),
        done=ending is LifeEnding.EXITED,
    )
    return replace(facts, **more)  # type: ignore[arg-type]


def file(content: str, *, changed: int = 2) -> ResultFile:
    return ResultFile(path=Path("/nowhere"), sha256=content, size_bytes=100, is_checkpoint=False, changed_ns=changed)


def facts(*lives: Life, model: str = "equal", again: str = "equal", planned: int = 1, **more: object) -> Facts:
    whole = life(0, 10, quiet=not lives[0].lines)
    given = Facts(
        command=["python", "train.py"],
        alone=RunFacts("alone", (whole,), {"model.pt": file("equal")}),
        again=RunFacts("again", (whole,), {"model.pt": file(again)}),
        run=RunFacts("interrupted", lives, {"model.pt": file(model)}),
        planned_losses=planned,
        milestones=find_milestones(whole.lines, whole.lines),
        compared={},
        noise={},
        place="ckpt/",
    )
    return replace(given, **more)  # type: ignore[arg-type]


TAKEN = life(0, 6, ending=LifeEnding.NO_NOTICE)
WENT_ON = life(5, 10, found_files=("newest.pt",), read_files=("newest.pt",))
ANEW = life(0, 10, found_files=("newest.pt",), read_files=("newest.pt",))


def test_a_command_that_went_on_and_ends_equal_passes_with_the_cost() -> None:
    verdict = judge(facts(TAKEN, WENT_ON))
    assert (verdict.status, verdict.reasons) == (Status.PASS, ())
    (loss,) = verdict.losses
    assert (loss.at_step, loss.resumed_from, loss.repeated, loss.going) == (6, 5, 1, Going.ON)


def test_a_command_that_reads_its_checkpoint_begins_anew_and_ends_equal_fails() -> None:
    verdict = judge(facts(TAKEN, ANEW))
    assert verdict.status is Status.FAIL
    assert verdict.headline == "It begins anew after an interruption."
    assert "6 steps were done again" in verdict.reasons[0]
    assert verdict.change is not None
    assert "torch.load" in verdict.change


def test_a_command_that_went_on_and_ends_different_fails() -> None:
    difference = ValueDifference("w", None, 200, 100, 0.5, 0.5, 0)
    compared = {"model.pt": FileComparison("model.pt", compared=2, differing=1, differences=(difference,))}
    verdict = judge(facts(TAKEN, WENT_ON, model="other", compared=compared))
    assert verdict.status is Status.FAIL
    assert "by at most 0.5" in verdict.reasons[0]


def test_other_bytes_with_the_same_values_pass() -> None:
    verdict = judge(facts(TAKEN, WENT_ON, model="other", compared={"model.pt": FileComparison("model.pt", compared=2)}))
    assert verdict.status is Status.PASS
    assert "holds the values" in verdict.headline


def difference(name: str, *, is_alone: bool, what: str | None = "is 2.02, not 2.11") -> ValueDifference:
    return ValueDifference(name, what, 1, 1, None, None, 0, is_alone)


@pytest.mark.parametrize(
    ("differences", "arrays", "expected"),
    [
        ([difference("running_loss", is_alone=True)], 4, Status.PASS),
        ([difference("running_loss", is_alone=True), difference("losses.3", is_alone=False)], 4, Status.FAIL),
        ([difference("running_loss", is_alone=True)], 0, Status.FAIL),
        ([difference("init_from", is_alone=True, what="is new")], 4, Status.PASS),
    ],
    ids=["a number", "a number of a list", "no arrays", "new"],
)
def test_numbers_beside_equal_arrays_are_a_remark(
    differences: list[ValueDifference], arrays: int, expected: Status
) -> None:
    found = FileComparison("model.pt", None, 9, len(differences), tuple(differences), arrays)
    verdict = judge(facts(TAKEN, WENT_ON, model="other", compared={"model.pt": found}))
    assert verdict.status is expected
    if expected is Status.PASS:
        assert differences[0].name in verdict.remarks[0]
        assert "arrays" in verdict.headline


@pytest.mark.parametrize(("with_model", "expected"), [(True, Status.PASS), (False, Status.FAIL)])
def test_an_argument_that_differs_is_a_remark_beside_an_equal_model_alone(with_model: bool, expected: Status) -> None:
    name = "model/training_args.bin"
    overwrite = difference("overwrite_output_dir", is_alone=True, what="is True, not False")
    found = FileComparison(name, None, 120, 1, (overwrite,))
    given = facts(TAKEN, WENT_ON, compared={name: found})
    kept = {"model.pt": file("equal")} if with_model else {}
    runs = {
        each: replace(getattr(given, each), files={**kept, name: file("other" if each == "run" else "same")})
        for each in ("alone", "again", "run")
    }
    verdict = judge(replace(given, **runs))
    assert verdict.status is expected
    if with_model:
        assert "overwrite_output_dir" in verdict.remarks[0]


def test_a_checkpoint_of_plain_values_is_one_of_a_manifest_alone() -> None:
    name = "step-8/manifest.json"
    writes = {"left_files": (name,), "writes": (FileWrite(3.0, name),)}
    given = facts(replace(TAKEN, **writes), replace(WENT_ON, found_files=(name,), read_files=(name,), **writes))
    whole = replace(given.alone.lives[0], **writes)
    sums = [ValueDifference(each, "is another value", 1, 1, None, None, 0, True) for each in ("sha256", "created")]
    found = {f"ckpt/{name}": FileComparison(name, None, 20, 2, tuple(sums))}
    runs = {
        each: replace(getattr(given, each), files={f"ckpt/{name}": replace(file(each), is_checkpoint=True)})
        for each in ("alone", "again", "run")
    }
    runs = {each: run if each == "run" else replace(run, lives=(whole,)) for each, run in runs.items()}
    verdict = judge(replace(given, **runs, compared=found, noise=found))
    assert verdict.status is Status.PASS, verdict
    assert "holds the values" in verdict.headline


def test_a_script_that_differs_from_itself_gets_no_pass_by_that_alone() -> None:
    far = ValueDifference("w", None, 200, 200, 0.5, 0.5, 0)
    compared = {"model.pt": FileComparison("model.pt", compared=1, differing=1, differences=(far,))}
    noise = {"model.pt": FileComparison("model.pt", compared=1, differing=1, differences=(far,))}
    quiet = (replace(TAKEN, lines=()), replace(WENT_ON, lines=(), read_files=("newest.pt",)))
    verdict = judge(facts(*quiet, model="other", again="third", compared=compared, noise=noise))
    assert verdict.status is Status.NOT_JUDGED
    beyond = {"model.pt": FileComparison("m", compared=1, differing=1, differences=(replace(far, largest=5.0),))}
    assert (
        judge(facts(TAKEN, WENT_ON, model="other", again="third", compared=beyond, noise=noise)).status is Status.FAIL
    )


def test_rounding_that_two_runs_left_alone_show_too_is_no_difference() -> None:
    near = ValueDifference("w", None, 200, 200, 1e-6, 1e-6, 0)
    noise = {"model.pt": FileComparison("model.pt", compared=1, differing=1, differences=(near,))}
    verdict = judge(facts(TAKEN, WENT_ON, model="other", again="third", compared=noise, noise=noise))
    assert verdict.status is Status.PASS
    assert "by rounding" in verdict.headline


@pytest.mark.parametrize("read", [(), ("newest.pt",), None])
def test_equal_results_alone_are_no_pass(read: tuple[str, ...] | None) -> None:
    before, after = replace(TAKEN, lines=(), writes=()), replace(ANEW, lines=(), writes=(), read_files=read)
    verdict = judge(facts(before, after))
    assert verdict.status is (Status.FAIL if read == () else Status.NOT_JUDGED)


def test_a_command_that_saves_nothing_fails() -> None:
    given = facts(replace(TAKEN, left_files=()), replace(ANEW, found_files=(), left_files=()))
    alone = replace(given.alone, lives=(replace(given.alone.lives[0], left_files=(), writes=()),))
    verdict = judge(replace(given, alone=alone))
    assert verdict.status is Status.FAIL
    assert "wrote nothing into ckpt/" in verdict.reasons[0]


def test_a_loss_before_the_first_checkpoint_shows_nothing() -> None:
    verdict = judge(facts(replace(TAKEN, left_files=()), replace(ANEW, found_files=(), read_files=())))
    assert verdict.status is Status.NOT_JUDGED
    assert "--interrupt-at" in verdict.reasons[0]


def test_a_loss_that_was_asked_for_and_did_not_come_is_not_judged() -> None:
    assert judge(facts(TAKEN, WENT_ON, planned=2, were_asked=True)).status is Status.NOT_JUDGED
    usual = judge(facts(TAKEN, WENT_ON, planned=2))
    assert usual.status is Status.PASS
    assert "2 interruption(s) were planned and 1 happened" in usual.remarks[0]


def test_steps_that_the_library_reports_are_judged_as_in_the_full_rehearsal() -> None:
    before = replace(TAKEN, ending=LifeEnding.NOTICE, last_step=60, saved_steps=(10, 20))
    good = replace(WENT_ON, resumed_step=60, last_step=100)
    assert judge(facts(before, good)).status is Status.PASS
    wasteful = judge(facts(before, replace(good, resumed_step=50)))
    assert wasteful.status is Status.FAIL
    assert "save when SIGTERM arrives" in wasteful.reasons[0]


def test_a_loss_says_after_which_time_the_command_was_back_where_it_had_been() -> None:
    def seconds(*lives: Life) -> float | None:
        return losses_of(facts(*lives))[0].seconds_to_catch_up

    assert seconds(TAKEN, WENT_ON) == 5.0, "its line for epoch 5, which it had reached, comes at 5 s"
    assert seconds(TAKEN, life(6, 10, found_files=("newest.pt",))) == 0.0
    assert seconds(TAKEN, life(0, 3, ending=LifeEnding.NO_NOTICE)) == 3.0, "it was taken before it was there"
    assert seconds(replace(TAKEN, lines=()), WENT_ON) is None
    assert seconds(TAKEN) is None
    reported = replace(TAKEN, last_step=60)
    back = replace(WENT_ON, resumed_step=50, last_step=100, step_times=((51, 0.5), (60, 2.5), (100, 4.5)))
    assert seconds(reported, back) == 2.5
    assert seconds(reported, replace(back, resumed_step=60)) == 0.0


def test_a_command_that_numbers_what_is_left_from_the_beginning_went_on() -> None:
    rest = replace(life(0, 4), found_files=("newest.pt",), read_files=("newest.pt",))
    assert [loss.going for loss in losses_of(facts(TAKEN, rest))] == [Going.ON]


def test_a_failure_after_a_loss_is_told_with_its_words() -> None:
    failed = replace(
        WENT_ON, exit_code=1, done=False, lines=(OutputLine(0.1, "EOFError: Ran out of input"),), left_files=()
    )
    verdict = judge(facts(TAKEN, failed))
    assert verdict.status is Status.FAIL
    assert "EOFError" in verdict.reasons[0]
    assert verdict.headline == "It does not come back from an interruption."


def test_a_first_line_that_the_other_run_left_alone_has_not_shows_no_middle() -> None:
    given = facts(TAKEN, WENT_ON)
    (whole,) = given.again.lives
    lines = (OutputLine(0.0, "epoch 77 loss 1.0000"), *whole.lines[1:])
    verdict = judge(replace(given, again=replace(given.again, lives=(replace(whole, lines=lines),))))
    assert "did not begin at the beginning" not in verdict.headline


def test_a_start_that_prints_its_history_went_on() -> None:
    history = tuple(replace(line, seconds=0.1) for line in TAKEN.lines[:5])
    after = replace(WENT_ON, lines=(*history, *WENT_ON.lines))
    verdict = judge(facts(TAKEN, after))
    assert verdict.status is Status.PASS
    assert (verdict.losses[0].going, verdict.losses[0].resumed_from) == (Going.ON, 5)


def test_runs_left_alone_that_find_each_other_are_not_judged() -> None:
    given = facts(TAKEN, WENT_ON)
    again = replace(given.again, lives=(replace(given.again.lives[0], lines=life(7, 10).lines),))
    verdict = judge(replace(given, again=again))
    assert verdict.status is Status.NOT_JUDGED
    assert "--checkpoints DIR" in (verdict.change or "")


def test_a_rank_that_no_launcher_started_is_named() -> None:
    said = "ValueError: Error initializing torch.distributed: environment variable RANK expected, but not set"
    ended = replace(life(0, 0), exit_code=1, done=False, lines=(OutputLine(0.1, said),), left_files=())
    given = facts(TAKEN, WENT_ON)
    verdict = judge(replace(given, alone=replace(given.alone, lives=(ended,))))
    assert verdict.status is Status.NOT_JUDGED
    assert "torchrun --nproc-per-node 2" in (verdict.change or "")


@pytest.mark.parametrize(
    ("finished", "status"),
    [
        (replace(life(0, 10), lines=()), Status.FAIL),
        (replace(life(0, 1), lines=(), writes=()), Status.PASS),
        (None, Status.NOT_JUDGED),
    ],
    ids=["begins-anew", "has-nothing-to-do", "not-tried"],
)
def test_where_nothing_can_be_counted_a_start_with_finished_checkpoints_tells(
    finished: Life | None, status: Status
) -> None:
    before, after = replace(TAKEN, lines=(), writes=()), replace(ANEW, lines=(), writes=())
    given = facts(before, after)
    assert needs_finished_start(given)
    assert judge(replace(given, finished=finished)).status is status


@pytest.mark.parametrize(("written_at", "expected"), [(8.9, Status.FAIL), (9.1, Status.FAIL), (8.5, Status.NOT_JUDGED)])
def test_a_first_file_at_the_last_epoch_is_the_end_of_the_training_however_long_the_command_takes_to_exit(
    written_at: float, expected: Status
) -> None:
    """A busy machine reads the last line after the file, and the exit takes seconds."""
    taken = life(0, 6, ending=LifeEnding.NO_NOTICE, writes=(), left_files=())
    again = life(0, 10, writes=(), left_files=(), found_files=())
    given = facts(taken, again)
    whole = life(0, 10, writes=(FileWrite(written_at, "model.pkl"),), left_files=("model.pkl",), seconds=14.0)
    verdict = judge(replace(given, alone=replace(given.alone, lives=(whole,))))
    assert verdict.status is expected
    assert any("when its training was over" in reason for reason in verdict.reasons) is (expected is Status.FAIL)
