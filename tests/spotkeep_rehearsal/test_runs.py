"""A run counts its steps as they come, and leaves of a cut-off copy what was drawn."""

from __future__ import annotations

import os
import random
from pathlib import Path

from spotkeep_rehearsal.evidence import OutputLine
from spotkeep_rehearsal.milestones import find_milestones
from spotkeep_rehearsal.runs import Steps, cut


def test_the_library_counts_completed_steps_and_lines_are_left_alone() -> None:
    steps = Steps(None, by_library=True)
    steps.add(1.0, "epoch 3", None)
    steps.add(2.0, "", {"event": "progress", "step": 7})
    steps.add(3.0, "", {"event": "resume", "step": 9})
    steps.add(4.0, "", {"event": "saved", "step": "8"})
    assert (steps.position, steps.reached_at) == (7, 2.0)


def test_a_step_that_is_done_again_is_at_its_own_place() -> None:
    milestones = find_milestones(
        [OutputLine(float(number), f"epoch {number} loss {0.5 / (number + 1):.3f}") for number in range(5)]
    )
    steps = Steps(milestones, by_library=False)
    for text in ("epoch 3 loss 0.9", "noise", "epoch 1 loss 0.8", "epoch 77 loss 0.1"):
        steps.add(1.0, text, None)
    assert steps.position == 1


def test_a_cut_copy_keeps_older_saves_whole_and_every_cut_can_be_drawn_again(tmp_path: Path) -> None:
    left: list[dict[str, int]] = []
    for seed in (1, 1, *range(20)):
        folder = tmp_path / str(len(left))
        folder.mkdir()
        for name, age in (("old.pt", 60), ("new/a.pt", 0), ("new/b.pt", 0)):
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"x" * 1000)
            os.utime(path, (1_000_000 - age, 1_000_000 - age))
        cut(folder, ["old.pt", "new/a.pt", "new/b.pt"], draw=random.Random(seed))  # noqa: S311 - the draw of a test
        left.append({path.name: path.stat().st_size for path in folder.rglob("*") if path.is_file()})
    assert left[0] == left[1]
    assert all(each["old.pt"] == 1000 for each in left)
    assert any(len(each) < 3 for each in left)
    assert any(0 < size < 1000 for each in left for size in each.values())
