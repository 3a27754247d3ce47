"""How blocks of pages are read, compared with what is printed, and renewed."""

from __future__ import annotations

import pytest

from tests.pages.shown import agrees, blocks_of, exactly, renewed, stable

PAGE = """# A page

<!-- shown:local -->
```console
$ spotkeep launch job.yaml \\
    --yes
launched
$ spotkeep ps   # all of them
```

<!-- not-run:opens-a-shell -->
```
spotkeep shell RUN
```

- An item:

  <!-- shown:notification/completed -->
  ```
  Subject: done

  It is done.
  ```

<!-- file:train.py -->
```python
print(1)
```
"""


def test_blocks_have_their_markers() -> None:
    first, second, third, fourth = blocks_of(PAGE)
    assert (first.world, first.argument, first.reason, first.file) == ("local", "", None, None)
    assert second.reason == "opens-a-shell"
    assert (third.world, third.argument) == ("notification", "completed")
    assert (fourth.file, fourth.content) == ("train.py", "print(1)\n")
    assert PAGE[first.start : first.end] == first.content


def test_commands_have_their_outputs() -> None:
    blocks = blocks_of(PAGE)
    launch, ps = blocks[0].commands()
    assert (launch.command, launch.output) == ("spotkeep launch job.yaml --yes", ("launched",))
    assert launch.typed == ("$ spotkeep launch job.yaml \\", "    --yes")
    assert (ps.command, ps.output) == ("spotkeep ps", ())
    assert [each.command for each in blocks[1].commands()] == ["spotkeep shell RUN"]
    assert blocks[2].commands()[0].output == ("Subject: done", "", "It is done.")


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\nb", "a\nb\n\n", True),
        ("a\nb", "a\nc", False),
        ("a\n...\nd", "a\nb\nc\nd", True),
        ("a\n...\nd", "a\nd", True),
        ("a\n...\nc\n...\nd", "a\nb\nd", False),
        ("a\n...", "a\nb", True),
        ("...", "", True),
        ("a\n...\nb\nc", "a\nc\nb\nc", True),
        ("a", "a\nb", False),
        ("", "a", False),
    ],
)
def test_three_dots_stand_for_lines(shown: str, printed: str, same: bool) -> None:
    assert agrees(shown.splitlines(), printed.splitlines(), form=exactly) is same


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("04:09:44 · Waits", "11:00:01 · Waits", True),
        ("  billed            6s", "  billed            2m 6s", True),
        ("digits-bacc1a23   completed", "digits-00000000 completed", True),
        ("costs $0.0054 (62%)", "costs $12 (9%)", True),
        ("saved 4%, 24s (<$0.0001)", "saved -43%, 10s (-$0.0003)", True),
        ("saved 4% (<$0.0001)", "saved -2% (-<$0.0001)", True),
        ("resumed after step 121, from step-121", "resumed after step 9, from step-9", True),
        ("i-6a14330a66d19443d in us-east-1a", "i-880ace8fda1a78546 in us-east-1a", True),
        ("   2.277 ┤⠑⡄", "   1.9 ┤⠑⡄ ⠘⡄", True),
        ("completed", "failed", False),
        ("ml.m5.large", "ml.g5.large", False),
        ("spot", "on-demand", False),
    ],
)
def test_measured_values_may_differ_and_words_may_not(shown: str, printed: str, same: bool) -> None:
    assert agrees([shown], [printed], form=stable) is same


def test_a_page_is_renewed_and_left_out_lines_stay_left_out() -> None:
    shown = ["begins", "...", "saved 3 steps", "ends"]
    assert renewed(shown, ["begins", "a", "b", "saved 9 steps", "ends"], form=stable) == shown, "nothing changed"
    printed = ["starts", "a", "b", "saved 9 steps", "ends"]
    assert renewed(shown, printed, form=stable) == ["starts", "a", "b", "saved 9 steps", "ends"]
    assert renewed(shown, ["begins", "a", "saved 9 steps", "is over"], form=stable) == [
        "begins", "...", "saved 9 steps", "is over",
    ]  # fmt: skip
    assert renewed(["a"], ["b", "c"], form=exactly) == ["b", "c"]
