"""What comes back from a copy that was cut off: old saves whole, and the newest in any state."""

from __future__ import annotations

import random
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from spotkeep_rehearsal.copying import cut_off
from spotkeep_rehearsal.runs import cut

SECOND = 1_000_000_000
FILES = st.dictionaries(
    st.text("abc/", min_size=1, max_size=5), st.tuples(st.integers(0, 5 * SECOND), st.integers(0, 1_000)), max_size=8
)


@given(files=FILES, rewritten=st.booleans(), seed=st.integers())
def test_older_saves_are_whole_and_at_most_one_file_is_cut(
    files: dict[str, tuple[int, int]], rewritten: bool, seed: int
) -> None:
    names = frozenset(files) if rewritten else frozenset()
    came = cut_off(files, rewritten=names, draw=random.Random(seed))  # noqa: S311
    newest = max((time for time, _ in files.values()), default=0)
    assert set(came) <= set(files)
    assert all(0 <= came[name] <= files[name][1] for name in came)
    for name, (time, size) in files.items():
        if newest - time >= SECOND:
            assert came[name] == size
    assert sum(came[name] < files[name][1] for name in came) <= 1
    if rewritten:
        assert set(came) == set(files)


@given(seed=st.integers(0, 100))
def test_the_same_seed_cuts_in_the_same_way(seed: int) -> None:
    files = {f"file-{number}": (5 * SECOND, 100) for number in range(5)}
    drawn = [cut_off(files, rewritten=frozenset(), draw=random.Random(seed)) for _ in range(2)]  # noqa: S311
    assert drawn[0] == drawn[1]


def test_the_files_on_disk_are_cut(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number}.bin").write_bytes(b"0123456789")
    cut(tmp_path, [], draw=random.Random(3))  # noqa: S311
    left = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(left) < 40
    assert sum(size < 10 for size in left) <= 1
