"""The comparison with other libraries of checkpoints: its trials with this library, and with one that keeps less."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from benchmarks.guarantees import trials
from benchmarks.guarantees.host import Host
from benchmarks.guarantees.libraries import Spotkeep
from spotkeep import Checkpointer

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.long]


@contextmanager
def host_of(name: str, folder: Path) -> Iterator[Host]:
    with closing(Host(name, folder)) as host:
        yield host


def made(path: Path) -> Path:
    path.mkdir()
    return path


def test_this_library_keeps_what_the_page_says(tmp_path: Path) -> None:
    chance = random.Random(1)  # noqa: S311 - reproducible, not secret
    with host_of("spotkeep", tmp_path) as host:
        assert trials.kill(host, made(tmp_path / "kills"), kills=2, chance=chance) == {"newest": 2}
        assert trials.replace(host, made(tmp_path / "replaced"), times=2, chance=chance) == {"later": 2}
        assert set(trials.flip(host, made(tmp_path / "flips"), flips=3, chance=chance)) <= {"older", "no effect"}
        assert trials.change_ranks(host, made(tmp_path / "ranks"), saved_by=2, restored_by=3) == "equal"
        written = trials.share_writing(host, made(tmp_path / "bytes"), ranks=2)
        assert isinstance(written, list)
        assert max(written) < 0.6 * sum(written)


def test_each_verb_of_this_library_is_a_method() -> None:
    verbs = Spotkeep.verbs.values()
    assert None not in verbs
    assert [verb for verb in verbs if not hasattr(Checkpointer, str(verb).removeprefix("Checkpointer."))] == []


def test_the_trials_see_what_another_library_does_not_keep(tmp_path: Path) -> None:
    with host_of("dcp", tmp_path) as host:
        flips = trials.flip(host, made(tmp_path / "flips"), flips=6, chance=random.Random(1))  # noqa: S311
        assert flips.get("taken", 0) > 0
