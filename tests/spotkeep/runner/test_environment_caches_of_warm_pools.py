"""Environments on the host of a warm pool: whole or not at all, whatever a job that died has left, and bounded."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.errors import InstallError
from spotkeep.runner.environment_caches import WarmPoolCache

KEY, OTHER, THIRD = "ab" * 32, "cd" * 32, "ef" * 32


class DiedError(Exception):
    """The process is gone."""


@pytest.fixture
def cache_of(tmp_path):
    """Gives the cache as the next job on the host sees it."""

    def cache(**options):
        return WarmPoolCache(tmp_path / "cache", **{"cut_short": lambda: False, **options})

    return cache


@pytest.fixture
def make_environment(tmp_path):
    """Makes what an installation leaves: packages, and what belongs to the image's Python."""

    def make(content="here = True\n"):
        directory = tmp_path / "environment"
        (directory / "lib").mkdir(parents=True, exist_ok=True)
        (directory / "bin").mkdir(exist_ok=True)
        (directory / "lib" / "needed.py").write_text(content)
        (directory / "pyvenv.cfg").write_text("home = /usr/bin\n")
        return directory

    return make


def fetched(cache, tmp_path, key=KEY):
    """Give what the next job finds: None, or the text of the package."""
    back = tmp_path / f"back-{len(list(tmp_path.glob('back-*')))}"
    back.mkdir()
    if not cache.fetch(key, back):
        assert list(back.iterdir()) == []
        return None
    assert sorted(path.name for path in back.iterdir()) == ["bin", "lib"]
    return (back / "lib" / "needed.py").read_text()


def names(tmp_path):
    return sorted(path.name for path in (tmp_path / "cache").iterdir())


def test_the_next_job_finds_it_under_its_key_alone(cache_of, make_environment, tmp_path):
    assert cache_of().keep(KEY, make_environment()) > 0
    assert fetched(cache_of(), tmp_path) == "here = True\n"
    assert fetched(cache_of(), tmp_path, OTHER) is None
    assert names(tmp_path) == [f"{KEY}.json", f"{KEY}.tar"]


def test_on_a_host_without_the_directory_there_is_nothing(cache_of, tmp_path):
    assert fetched(cache_of(), tmp_path) is None
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("dies_at", range(4))
def test_a_job_that_dies_while_it_writes_leaves_nothing_that_is_taken(
    cache_of, make_environment, tmp_path, monkeypatch, dies_at
):
    """A process that is killed cleans nothing up: it dies before each of the steps that bring something to the disk."""
    steps = []

    def dying(step):
        def act(*arguments, **options):
            if len(steps) == dies_at:
                raise DiedError
            steps.append(step)
            return step(*arguments, **options)

        return act

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", dying(os.fsync))
        patched.setattr("pathlib.Path.replace", dying(type(tmp_path).replace))
        patched.setattr("pathlib.Path.unlink", lambda *_, **__: None)
        with pytest.raises(DiedError):
            cache_of().keep(KEY, make_environment())
    assert names(tmp_path)
    assert fetched(cache_of(), tmp_path) is None
    cache_of().keep(OTHER, make_environment("other = True\n"))
    assert names(tmp_path) == [f"{OTHER}.json", f"{OTHER}.tar"]


@given(place=st.floats(0, 1, exclude_max=True), cut=st.booleans(), of_the_mark=st.booleans())
def test_what_is_damaged_anywhere_is_not_unpacked_and_is_removed(tmp_path_factory, place, cut, of_the_mark):
    folder = tmp_path_factory.mktemp("host")
    (folder / "environment" / "lib").mkdir(parents=True)
    (folder / "environment" / "lib" / "needed.py").write_text("here = True\n")
    cache = WarmPoolCache(folder / "cache", cut_short=lambda: False)
    cache.keep(KEY, folder / "environment")
    damaged = folder / "cache" / f"{KEY}.{'json' if of_the_mark else 'tar'}"
    content = bytearray(damaged.read_bytes())
    at = int(place * len(content))
    if cut:
        del content[at:]
    else:
        content[at] ^= 1
    damaged.write_bytes(content)
    (folder / "back").mkdir()
    with pytest.raises(InstallError, match="is not what was written there"):
        cache.fetch(KEY, folder / "back")
    assert list((folder / "back").iterdir()) == []
    assert list((folder / "cache").iterdir()) == []


def test_those_that_were_used_longest_ago_make_room(cache_of, make_environment, tmp_path):
    size = cache_of().keep(KEY, make_environment("0" * 9000))
    bounded = cache_of(max_bytes=3 * size)
    bounded.keep(OTHER, make_environment("1" * 9000))
    for moment, key in enumerate((KEY, OTHER)):
        os.utime(tmp_path / "cache" / f"{key}.json", (moment, moment))
    assert fetched(bounded, tmp_path) == "0" * 9000  # used now
    bounded.keep(THIRD, make_environment("2" * 9000))
    assert [fetched(bounded, tmp_path, key) is not None for key in (KEY, OTHER, THIRD)] == [True, False, True]
    assert sum(path.stat().st_size for path in (tmp_path / "cache").glob("*.tar")) <= 3 * size


def test_what_is_too_large_is_not_written_and_nothing_goes_for_it(cache_of, make_environment, tmp_path):
    cache_of().keep(KEY, make_environment())
    with pytest.raises(InstallError, match="more than 20,000"):
        cache_of(max_bytes=20_000).keep(OTHER, make_environment("0" * 20_000))
    assert fetched(cache_of(), tmp_path) == "here = True\n"


def test_a_machine_that_goes_away_reads_and_writes_nothing_more(cache_of, make_environment, tmp_path):
    cache_of().keep(KEY, make_environment())
    for act in (WarmPoolCache.keep, WarmPoolCache.fetch):
        with pytest.raises(InstallError, match="the machine goes away"):
            act(cache_of(cut_short=lambda: True), OTHER if act is WarmPoolCache.keep else KEY, make_environment())
    assert fetched(cache_of(), tmp_path) == "here = True\n"
