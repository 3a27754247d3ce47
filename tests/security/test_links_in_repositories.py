"""A repository that a user downloads and launches takes files of the user's along, or runs a program on their machine.

Who: the author of a repository, or of an archive of one: then its `.git` is the author's, too, with the settings in it.
With what: committed links, an index that lists other paths, git's own settings, a job file whose `source` leads away.
What they would gain: the user's keys, which `spotkeep launch` packs and the repository's own script then sends wherever
it likes; or code on the user's machine, where launching is meant to run nothing of the repository.
"""

from __future__ import annotations

import io
import os
import socket
import subprocess
import tarfile
from pathlib import Path, PurePosixPath

import pytest

from spotkeep_cli.launching.git import pinned
from spotkeep_cli.launching.job_file import read_job_file
from spotkeep_cli.launching.preparation import PreparedJob, prepare
from spotkeep_cli.launching.source_archive import pack_source
from spotkeep_cli.launching.source_files import LocalSourceError

SECRET = b"-----BEGIN OPENSSH PRIVATE KEY-----"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The user's home directory, with a key in it."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id_ed25519").write_bytes(SECRET)
    return home


@pytest.fixture
def repository(home: Path) -> Path:
    repository = home / "downloads/repository"
    repository.mkdir(parents=True)
    (repository / "train.py").write_text("print()")
    git(repository, "init", "-q")
    return repository


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "core.symlinks=true"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def packed(folder: Path) -> dict[str, bytes]:
    content = pack_source(folder).content
    assert SECRET not in content
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {member.name: file.read() for member in archive if (file := archive.extractfile(member))}


def commit(repository: Path) -> None:
    git(repository, "add", "--all")
    git(repository, "commit", "-q", "-m", "hostile")


@pytest.mark.parametrize(("in_git", "absolute"), [(True, False), (False, True)])
def test_a_link_that_leads_outside_is_refused_with_its_path(
    repository: Path, home: Path, *, in_git: bool, absolute: bool
) -> None:
    key = home / ".ssh/id_ed25519"
    (repository / "conf").mkdir()
    (repository / "conf/settings.json").symlink_to(key if absolute else os.path.relpath(key, repository / "conf"))
    if in_git:
        commit(repository)
    with pytest.raises(LocalSourceError, match=r"'conf/settings\.json' leads to .*id_ed25519") as refusal:
        pack_source(repository)
    assert ".gitignore" in refusal.value.hint


def test_a_link_by_way_of_another_is_refused(repository: Path, home: Path) -> None:
    (repository / "up").symlink_to(home)
    (repository / "first").symlink_to("up/.ssh/id_ed25519")
    (repository / "second").symlink_to("first")
    commit(repository)
    with pytest.raises(LocalSourceError, match=r"'first' leads to .*; 'second' leads to"):
        pack_source(repository)


def test_a_link_to_what_stays_behind_is_refused(repository: Path) -> None:
    """The file with passwords that git ignores, and git's own settings with the token of the remote."""
    (repository / ".gitignore").write_text(".env\n")
    (repository / ".env").write_bytes(SECRET)
    git(repository, "config", "remote.origin.url", "https://user:token@example.com/a.git")
    for name, target in (("notes.txt", ".env"), ("readme.txt", ".git/config")):
        (repository / name).symlink_to(target)
        git(repository, "add", name)
    with pytest.raises(LocalSourceError, match=r"'notes\.txt' leads to .*\.env'; 'readme\.txt' leads to .*config"):
        pack_source(repository)


def test_a_file_behind_a_linked_directory_is_refused(repository: Path, home: Path) -> None:
    """The index still lists what was in the directory that a link has replaced."""
    (repository / "conf").mkdir()
    (repository / "conf/id_ed25519").write_text("harmless")
    commit(repository)
    (repository / "conf/id_ed25519").unlink()
    (repository / "conf").rmdir()
    (repository / "conf").symlink_to(home / ".ssh")
    with pytest.raises(LocalSourceError, match=r"'conf/id_ed25519' leads to"):
        pack_source(repository)


def test_an_index_that_lists_what_is_outside_is_refused(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """git checks paths when it writes an index; this one came with an archive of the repository."""
    listing = b"100644 0000 0\ttrain.py\x00100644 0000 0\t../../.ssh/id_ed25519\x00160000 0000 0\t../../.ssh\0"
    done = subprocess.CompletedProcess[bytes]([], 0, stdout=listing, stderr=b"")
    monkeypatch.setattr("spotkeep_cli.launching.source_files.subprocess.run", lambda *_args, **_options: done)
    with pytest.raises(LocalSourceError, match=r"'\.\./\.\./\.ssh/id_ed25519' leads to"):
        pack_source(repository)


def test_a_git_directory_elsewhere_lists_what_is_here_and_nothing_else(repository: Path, home: Path) -> None:
    """The file `.git` names another repository of the user's; its paths are read here alone."""
    private = home / "private"
    private.mkdir()
    git(private, "init", "-q")
    (private / "plans.txt").write_bytes(SECRET)
    commit(private)
    submodule = repository / "submodule"
    submodule.mkdir()
    (submodule / ".git").write_text(f"gitdir: {private / '.git'}\n")
    (submodule / "train.py").write_text("print()")
    assert packed(submodule) == {"train.py": b"print()"}
    git(repository, "config", "core.worktree", str(home))
    assert set(packed(repository)) <= {"train.py", "submodule/train.py"}


def test_links_inside_are_packed_as_what_they_name_and_others_are_left_out(repository: Path, home: Path) -> None:
    (repository / "linked.py").symlink_to("train.py")
    (repository / "loop").symlink_to("loop")
    (repository / "one").symlink_to("two")
    (repository / "two").symlink_to("one")
    (repository / "nowhere").symlink_to("absent")
    (repository / "data").symlink_to(home)
    commit(repository)
    assert packed(repository) == {"train.py": b"print()", "linked.py": b"print()"}


def test_pipes_sockets_and_devices_are_left_out(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(repository / "pipe")
    (repository / "null").symlink_to("/dev/null")
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(repository)
        listening.bind("socket")
        assert packed(repository) == {"train.py": b"print()"}


@pytest.mark.parametrize("place", ["repository", "bare", "inside"])
def test_packing_runs_no_program_that_the_repository_names(repository: Path, tmp_path: Path, place: str) -> None:
    """git runs `core.fsmonitor` when it lists files, and looks for settings in any directory that looks like a
    repository: a bare one can be committed inside another."""
    mark = tmp_path / "ran"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    if place == "bare":
        repository = repository / "vendored"
        repository.mkdir()
        git(repository, "init", "-q", "--bare")
        git(repository, "config", "core.bare", "false")
        git(repository, "config", "core.worktree", ".")
        (repository / "train.py").write_text("print()")
    source = repository
    if place == "inside":
        repository = repository / "library"
        repository.mkdir()
        git(repository, "init", "-q")
        (repository / "train.py").write_text("print()")
    git(repository, "config", "core.fsmonitor", str(program))
    assert PurePosixPath("library/train.py" if place == "inside" else "train.py") in pack_source(source).files
    assert not mark.exists()


def test_looking_up_a_branch_runs_no_program_that_the_current_directory_names(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "ran"
    git(repository, "config", "protocol.ext.allow", "always")
    git(repository, "config", f"url.ext::sh -c touch% {mark}% &&% false .insteadOf", "https://example.com/")
    monkeypatch.chdir(repository)
    pinned({"git": f"ext::sh -c touch% {mark}", "branch": "main"})
    pinned({"git": "https://example.com/a.git", "branch": "main"})
    assert not mark.exists()


def prepared(job_file: Path, *overrides: str) -> PreparedJob:
    return prepare(read_job_file(job_file, overrides=overrides), deployment=None, new_token=lambda: "token")


@pytest.mark.parametrize("source", ["../../.ssh", "~/.ssh", "{home}/.ssh", "keys"])
def test_a_job_file_takes_nothing_from_outside_its_repository(
    repository: Path, home: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    monkeypatch.setenv("HOME", str(home))
    (repository / "keys").symlink_to(home / ".ssh")
    job_file = repository / "job.yaml"
    job_file.write_text(f"name: a\ncommand: python train.py\nsource: {source.format(home=home)}\n")
    job = prepared(job_file)
    assert job.archive is None
    (problem,) = job.problems
    assert problem.field == "source"
    assert "is outside" in problem.problem
    assert "--set source=" in problem.fix


def test_a_directory_that_the_user_names_is_packed_wherever_it_is(
    repository: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_file = repository / "jobs/job.yaml"
    job_file.parent.mkdir()
    job_file.write_text("name: a\ncommand: python train.py\nsource: ..\n")
    inside = prepared(job_file).archive
    assert inside is not None, "in the same repository"
    assert [str(path) for path in inside.files] == ["jobs/job.yaml", "train.py"]
    elsewhere = home / "own"
    elsewhere.mkdir()
    (elsewhere / "train.py").write_text("print()")
    monkeypatch.chdir(repository)
    assert prepared(job_file, "source=../../own").archive is not None


def test_without_a_repository_around_it_a_job_file_names_its_own_directory(home: Path) -> None:
    for folder in ("project/jobs", "project/code"):
        (home / folder).mkdir(parents=True)
        (home / folder / "train.py").write_text("print()")
    job_file = home / "project/jobs/job.yaml"
    job_file.write_text("name: a\ncommand: python train.py\nsource: ../code\n")
    (problem,) = prepared(job_file).problems
    assert "is outside" in problem.problem
