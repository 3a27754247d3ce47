"""The lines of a training that count, told apart from those that measure and those that say the time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from spotkeep_rehearsal.evidence import OutputLine
from spotkeep_rehearsal.milestones import compare_metrics, find_milestones


def output(texts: Sequence[str]) -> list[OutputLine]:
    return [OutputLine(float(number), text) for number, text in enumerate(texts)]


def training(*, first: int = 0, last: int = 10, worse: float = 0.0) -> list[OutputLine]:
    lines = [
        f"epoch {epoch}/10 loss {1 / (epoch + 1) + worse:.4f} took {worse + epoch / 7:.1f}s"
        for epoch in range(first, last)
    ]
    return output(["using 4 workers", *lines])


@pytest.mark.parametrize(
    "form",
    [
        "epoch {n}: loss {loss:.3f}",
        "Epoch {n}/12 - 0.{n}s - loss: {loss:.4f}",
        "[{n}]\ttrain-logloss:{loss:.5f}",
        "{{'loss': {loss:.4f}, 'learning_rate': 1e-05, 'epoch': {half}}}",
        "2026-11-29 10:13:0{digit},12{digit} INFO step={n} loss={loss:.3f} 31.{n} samples/s",
        "\x1b[32mIteration {n}\x1b[0m loss = {loss:.3e}",
        "Epoch: [{n:2}][1/5]\tLoss {loss:.4e} ({loss:.4e})\tAcc@1 {digit:6.2f} ({n:5.2f})",
    ],
)
def test_a_line_that_counts_is_a_milestone_in_the_ways_in_which_libraries_print(form: str) -> None:
    def printed(noise: float) -> list[OutputLine]:
        return output(
            [
                form.format(n=n, loss=1 / (n + 1) + noise, half=n / 2, digit=(n * 7 + int(noise * 100)) % 10)
                for n in range(12)
            ]
        )

    found = find_milestones(printed(0.0), printed(0.01))
    assert len(found.keys) == 12
    assert len(found.counters) == 1
    assert found.positions_in(printed(0.02)[5:]) == list(range(5, 12))


def test_what_every_start_prints_and_what_measures_is_no_milestone() -> None:
    found = find_milestones(training(), training(worse=0.1))
    assert len(found.keys) == 10
    assert all("workers" not in shape for shape, _ in found.keys)
    assert find_milestones(output(["loss 0.5", "loss 0.4", "loss 0.35"])).keys == ()


def test_rows_of_numbers_alone_are_told_apart_by_their_number() -> None:
    def printed(noise: float) -> list[OutputLine]:
        rows = []
        for epoch in range(1, 9):
            rows.append(f"     total [{'#' * 6 * epoch}{'.' * (48 - 6 * epoch)}] {epoch / 8:.2%}")
            rows.append(f"{epoch}           {1 / epoch:.6f}    {noise + epoch / 7:.6f}    {noise:.4f}")
            rows.append(f"{epoch}           {1 / epoch:.6f}")
            rows.append(f"# {epoch}")
        return output(["", *rows])

    found = find_milestones(printed(0.0), printed(0.5))
    assert {shape for shape, _ in found.keys} >= {"# # # #", "# #", "#"}
    assert found.positions_in(printed(0.7)[17:])[0] > 0


def test_a_measure_that_grew_once_counts_nothing() -> None:
    accuracies = [0.78, 1, 1, 1, 1, 1]
    found = find_milestones(output([f"{epoch} {accuracy:g}" for epoch, accuracy in enumerate(accuracies)]))
    assert found.counters == {"# #": (0,)}


def rows(noise: float, *, first: int = 0, burst: int = 0) -> list[OutputLine]:
    """Print a table of epochs, the last column a clock. The first rows of a burst are those of the life before."""
    return [
        OutputLine(
            0.0 if epoch < burst else epoch - first + 1.0, f"{epoch} {1 / (epoch + 1) + noise:.5f} {epoch + 7.3:g}"
        )
        for epoch in range(0 if burst else first, 10)
    ]


def test_rows_of_a_history_that_a_start_prints_at_once_are_no_training() -> None:
    milestones = find_milestones(rows(0.0), rows(0.001))
    assert milestones.positions_in(milestones.without_replay(rows(0.002, first=6, burst=6))) == [6, 7, 8, 9]
    assert milestones.without_replay(rows(0.002)) == rows(0.002)
    assert milestones.without_replay([]) == []


def test_a_column_that_grows_as_time_does_measures_nothing() -> None:
    milestones = find_milestones(rows(0.0), rows(0.001))
    assert milestones.clocks == {"# # #": (2,)}
    late = [OutputLine(line.seconds, f"{line.text}99") for line in rows(0.0)]
    assert compare_metrics(late, rows(0.0), rows(0.0), find_milestones(rows(0.0), rows(0.0))).equal


def test_a_number_of_a_path_measures_nothing() -> None:
    def saved(rank: int) -> list[OutputLine]:
        return output([f"saved for epoch 5 at checkpoints/{rank}/last.pt, loss 0.5"])

    milestones = find_milestones(saved(0), saved(0))
    assert compare_metrics(saved(1), saved(0), saved(0), milestones).equal


def test_batches_in_epochs_count_by_both_numbers() -> None:
    texts = [f"epoch {epoch} batch {batch}/300 loss 0.5" for epoch in range(3) for batch in (100, 200, 300)]
    found = find_milestones(output(texts), output(texts))
    assert len(found.keys) == 9
    assert found.positions_in(output(texts[4:5])) == [4]


def test_a_run_that_went_on_with_the_same_numbers_is_equal_whatever_the_times_are() -> None:
    milestones = find_milestones(training(), training())
    found = compare_metrics(training(first=6), training(), training(), milestones)
    assert (found.repeatable, found.equal) == (True, True)
    assert found.compared == 4


def test_a_run_with_other_numbers_names_the_first() -> None:
    milestones = find_milestones(training(), training())
    found = compare_metrics(training(first=6, worse=0.01), training(), training(), milestones)
    assert (found.repeatable, found.equal) == (True, False)
    assert "epoch 6" in found.first_difference


def test_beside_noise_a_run_is_near_or_as_far_as_one_that_begins_anew() -> None:
    milestones = find_milestones(training(), training(worse=0.001))
    near = compare_metrics(training(first=6, worse=0.002), training(), training(worse=0.001), milestones)
    assert (near.repeatable, near.tells, near.near, near.far) == (False, True, True, False)
    far = compare_metrics(training(first=6, worse=0.9), training(), training(worse=0.001), milestones)
    assert (far.tells, far.near, far.far) == (True, False, True)
    deaf = compare_metrics(training(first=6, worse=0.9), training(), training(worse=0.9), milestones)
    assert not deaf.tells
