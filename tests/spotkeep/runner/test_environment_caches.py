"""Environments in S3: what this launch wrote comes back, and nothing else is unpacked."""

from __future__ import annotations

import pytest

from spotkeep.errors import RemoteError
from spotkeep.runner.environment_caches import EnvironmentCache

KEY = "ab" * 32


@pytest.fixture
def cache_of(bucket, network):
    """Gives the cache as a launch sees it."""

    def cache(launch="feed", *, cut_short=False):
        place = f"s3://{bucket.name}/runs/a-1/output/environments/"
        return EnvironmentCache(place, secret=launch, cut_short=lambda: cut_short)

    return cache


@pytest.fixture
def installed(tmp_path):
    """What an installation leaves: packages, scripts, and what belongs to the image's Python."""
    directory = tmp_path / "environment"
    packages = directory / "lib" / "python3.12" / "site-packages"
    (packages / "needed" / "__pycache__").mkdir(parents=True)
    (packages / "needed" / "__init__.py").write_text("here = True\n")
    (packages / "needed" / "__pycache__" / "old.pyc").write_bytes(b"0")
    (directory / "bin").mkdir()
    (directory / "bin" / "needed").write_text(f"#!{directory}/bin/python\n")
    (directory / "bin" / "needed").chmod(0o755)
    (directory / "bin" / "python").symlink_to("/usr/bin/python3")
    (directory / "bin" / "python3.12").symlink_to("python")
    (directory / "lib64").symlink_to("lib")
    (directory / "pyvenv.cfg").write_text("home = /usr/bin\n")
    return directory


def empty(tmp_path):
    directory = tmp_path / "back" / "environment"
    directory.mkdir(parents=True)
    return directory


def files_of(directory):
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if not path.is_dir())


def test_what_was_installed_comes_back(cache_of, installed, tmp_path):
    assert cache_of().keep(KEY, installed) > 0
    back = empty(tmp_path)
    assert cache_of().fetch(KEY, back)
    assert files_of(back) == ["bin/needed", "lib/python3.12/site-packages/needed/__init__.py"]
    assert (back / "bin" / "needed").stat().st_mode & 0o111
    assert [path.name for path in back.parent.iterdir()] == ["environment"]
    assert [path.name for path in installed.parent.glob("environment*")] == ["environment"]


def test_what_was_never_kept_is_not_there(cache_of, tmp_path):
    assert not cache_of().fetch(KEY, empty(tmp_path))


def test_what_another_launch_wrote_is_not_unpacked(cache_of, installed, tmp_path):
    cache_of("a stranger's").keep(KEY, installed)
    back = empty(tmp_path)
    with pytest.raises(RemoteError, match="is of another launch, such as an earlier attempt"):
        cache_of().fetch(KEY, back)
    assert files_of(back) == []


def test_what_this_launch_wrote_under_another_key_is_not_unpacked(cache_of, installed, bucket, tmp_path):
    cache_of().keep(KEY, installed)
    prefix = "runs/a-1/output/environments/"
    bucket.Object(f"{prefix}{'cd' * 32}.tar.gz").copy({"Bucket": bucket.name, "Key": f"{prefix}{KEY}.tar.gz"})
    with pytest.raises(RemoteError, match="is of another launch, such as an earlier attempt"):
        cache_of().fetch("cd" * 32, empty(tmp_path))


@pytest.mark.parametrize("labels", [{}, {"spotkeep-signature": "0" * 64}])
def test_what_was_altered_is_not_unpacked(cache_of, installed, bucket, tmp_path, labels):
    cache_of().keep(KEY, installed)
    found = bucket.Object(f"runs/a-1/output/environments/{KEY}.tar.gz")
    content = bytearray(found.get()["Body"].read())
    labels = labels or found.metadata
    content[len(content) // 2] ^= 1
    found.put(Body=bytes(content), Metadata=labels)
    with pytest.raises(RemoteError, match="is of another launch, such as an earlier attempt"):
        cache_of().fetch(KEY, empty(tmp_path))


def test_a_machine_that_goes_away_sends_and_fetches_nothing_more(cache_of, installed, bucket, tmp_path):
    with pytest.raises(RemoteError, match="goes away"):
        cache_of(cut_short=True).keep(KEY, installed)
    assert not list(bucket.objects.all())
    cache_of().keep(KEY, installed)
    with pytest.raises(RemoteError, match="goes away"):
        cache_of(cut_short=True).fetch(KEY, empty(tmp_path))
