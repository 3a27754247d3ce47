"""The source is what was launched: an archive by its hash."""

from __future__ import annotations

import hashlib
import os
import subprocess

import pytest

from spotkeep.errors import MissingToolError, SourceError
from spotkeep.runner.layout import JobLayout
from spotkeep.runner.source import check_out, prepare_source
from spotkeep_fleet.training_spec import JobSource


@pytest.fixture
def layout(tmp_path):
    return JobLayout(base=tmp_path / "ml")


@pytest.fixture
def put_in_channel(layout):
    def put(path):
        channel = layout.data / "source"
        channel.mkdir(parents=True, exist_ok=True)
        path.rename(channel / path.name)

    return put


def everything_in(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def test_a_job_without_a_source_has_none(layout):
    assert prepare_source(None, layout=layout, environment={}) is None


def test_what_an_earlier_start_left_is_gone(layout, make_tar, put_in_channel):
    layout.source.mkdir(parents=True)
    (layout.source / "old.py").write_text("old")
    put_in_channel(make_tar({"name": "train.py"}))
    prepare_source(None, layout=layout, environment={})
    assert everything_in(layout.source) == ["train.py"]


def test_the_archive_that_was_launched_is_unpacked(layout, make_tar, put_in_channel):
    path = make_tar({"name": "train.py"})
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    put_in_channel(path)
    assert prepare_source(JobSource(sha256=sha256), layout=layout, environment={}) == layout.source
    assert everything_in(layout.source) == ["train.py"]


def test_another_archive_is_refused_and_both_hashes_are_named(layout, make_tar, put_in_channel):
    path = make_tar({"name": "train.py"})
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    put_in_channel(path)
    with pytest.raises(SourceError, match=f"expected SHA-256 {'0' * 64}, found {found}") as refusal:
        prepare_source(JobSource(sha256="0" * 64), layout=layout, environment={})
    assert refusal.value.exit_code == 66
    assert not layout.source.exists()


@pytest.mark.parametrize("names", [[], ["a.zip", "b.tar.gz"], ["train.py"]], ids=str)
def test_the_channel_holds_one_archive(layout, names):
    channel = layout.data / "source"
    channel.mkdir(parents=True)
    for name in names:
        (channel / name).write_bytes(b"")
    with pytest.raises(SourceError, match="must hold one archive"):
        prepare_source(None, layout=layout, environment={})


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


def git(folder, *arguments):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def make_repository(tmp_path):
    """Makes a repository with one file, in two commits."""

    def make(name, **files):
        path = tmp_path / name
        path.mkdir()
        git(path, "init", "--quiet", "--template=")
        for number in (1, 2):
            for file, content in ({"train.py": f"print({number})"} | files).items():
                (path / file).write_text(content)
            git(path, "add", ".")
            git(path, "commit", "--quiet", "-m", f"change {number}")
        return path

    return make


def add_submodule(repository, name, *, address, commit):
    """Commit a submodule, without a copy of it: what a clone has of it."""
    git(repository, "config", "--file", ".gitmodules", f"submodule.{name}.path", name)
    git(repository, "config", "--file", ".gitmodules", f"submodule.{name}.url", str(address))
    git(repository, "add", ".gitmodules")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{commit},{name}")
    git(repository, "commit", "--quiet", "-m", f"with {name}")


def newest(repository):
    return git(repository, "rev-parse", "HEAD")


@pytest.fixture
def environment():
    """The environment of a job, where git takes submodules from a disk."""
    settings = {"protocol.file.allow": "always"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_CONFIG_")}
    environment["GIT_TEMPLATE_DIR"] = ""  # no samples of hooks to write and to remove

    def with_settings(**more):
        settings.update({name.replace("_", "."): value for name, value in more.items()})
        for number, (name, value) in enumerate(settings.items()):
            environment.update({f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value})
        environment["GIT_CONFIG_COUNT"] = str(len(settings))
        return environment

    return with_settings


@pytest.fixture
def checked_out(tmp_path, environment):
    """Checks the newest commit of a repository out, and returns the directory."""

    def check(repository, *, commit="HEAD", **settings):
        target = tmp_path / "source"
        target.mkdir()
        check_out(f"file://{repository}", git(repository, "rev-parse", commit), target, environment(**settings))
        return target

    return check


class TestACommit:
    @pytest.mark.parametrize(("commit", "printed"), [("HEAD~1", "print(1)"), ("HEAD", "print(2)")])
    def test_is_checked_out(self, make_repository, checked_out, capsys, commit, printed):
        target = checked_out(make_repository("app"), commit=commit)
        assert (target / "train.py").read_text() == printed
        assert not capsys.readouterr().err

    def test_is_a_source_of_a_job(self, make_repository, tmp_path):
        app = make_repository("app")
        variables = {**os.environ, "GIT_DIR": str(tmp_path / "of-a-hook")}
        commit = JobSource(git_url=f"file://{app}", git_commit=newest(app))
        source = prepare_source(commit, layout=JobLayout(base=tmp_path / "ml"), environment=variables)
        assert (source / "train.py").read_text() == "print(2)"

    def test_that_is_not_there_is_reported_with_gits_words(self, make_repository, tmp_path):
        with pytest.raises(SourceError, match="git could not get the source"):
            check_out(f"file://{make_repository('app')}", "0" * 40, tmp_path, os.environ)

    @pytest.mark.parametrize(
        ("url", "commit"),
        [("ext::sh -c evil", "0" * 40), ("--upload-pack=evil", "0" * 40), ("https://example.org/x.git", "main")],
    )
    def test_that_git_might_misunderstand_never_reaches_it(self, tmp_path, url, commit):
        with pytest.raises(SourceError, match=r"the source's (git|commit) is"):
            check_out(url, commit, tmp_path, {})

    def test_without_git_is_reported_with_a_way_out(self, tmp_path):
        with pytest.raises(
            MissingToolError, match="use an image with git, or give the source as an archive"
        ) as missing:
            check_out("https://example.org/x.git", "0" * 40, tmp_path, {"PATH": str(tmp_path)})
        assert missing.value.exit_code == 69


class TestSubmodules:
    def test_are_fetched_at_their_commits_whatever_their_addresses_are(self, make_repository, checked_out, capsys):
        """One with an address that is relative, and one inside it; a name that git takes for a pattern."""
        inner, library, app = (make_repository(name) for name in ("inner", "library", "app"))
        add_submodule(library, "inner", address="../inner", commit=newest(inner))
        add_submodule(app, "vendor/lib[1]", address="../library", commit=newest(library))
        add_submodule(app, "inner", address=inner, commit=git(inner, "rev-parse", "HEAD~1"))
        target = checked_out(app)
        printed = {name: (target / name / "train.py").read_text() for name in ("inner", "vendor/lib[1]/inner")}
        assert printed == {"inner": "print(1)", "vendor/lib[1]/inner": "print(2)"}
        assert not capsys.readouterr().err

    def test_are_fetched_from_a_server_that_gives_out_no_single_commit(self, make_repository, checked_out, capsys):
        library, app = make_repository("library"), make_repository("app")
        git(library, "checkout", "--quiet", "-b", "other", "HEAD~1")
        git(library, "commit", "--quiet", "--allow-empty", "-m", "on a branch")
        git(library, "commit", "--quiet", "--allow-empty", "-m", "newer")
        git(library, "checkout", "--quiet", "-")
        add_submodule(app, "library", address=f"file://{library}", commit=git(library, "rev-parse", "other~1"))
        git(app, "commit", "--quiet", "--allow-empty", "-m", "newer")
        target = checked_out(app, commit="HEAD~1", protocol_version="0")
        assert (target / "library/train.py").read_text() == "print(1)"
        assert not capsys.readouterr().err

    def test_that_cannot_be_fetched_are_named_and_the_others_are_there(self, make_repository, checked_out, capsys):
        library, app = make_repository("library"), make_repository("app")
        git(app, "update-index", "--add", "--cacheinfo", f"160000,{newest(library)},b/unmapped")
        add_submodule(app, "a/gone", address=app.with_name("gone"), commit=newest(library))
        add_submodule(app, "library", address=library, commit=newest(library))
        target = checked_out(app)
        assert (target / "library/train.py").read_text() == "print(2)"
        first, second = capsys.readouterr().err.splitlines()
        assert "the submodule a/gone stays behind" in first
        assert "does not exist" in first
        assert "the submodule b/unmapped stays behind" in second

    def test_that_their_repository_leaves_out_are_named(self, make_repository, checked_out, capsys):
        """As `git clone --recurse-submodules` does, without an error; git asked there answers for what is around it."""
        library, app = make_repository("library"), make_repository("app")
        git(app, "config", "--file", ".gitmodules", "submodule.library.update", "none")
        add_submodule(app, "library", address=library, commit=newest(library))
        assert not list((checked_out(app) / "library").iterdir())
        [line] = capsys.readouterr().err.splitlines()
        assert "the submodule library stays behind" in line
        assert "its update in .gitmodules is none" in line

    def test_that_cannot_be_fetched_are_named_without_the_password_of_their_address(
        self, make_repository, checked_out, capsys
    ):
        """It is in the job's log, which more people read than the repository."""
        app = make_repository("app")
        add_submodule(app, "library", address="http://user:secret@example.org/library", commit=newest(app))
        checked_out(app, protocol_http_allow="never")
        [line] = capsys.readouterr().err.splitlines()
        assert "clone of 'http://example.org/library' into submodule path" in line
        assert "secret" not in line
        assert line.count("transport 'http' not allowed") == 1

    def test_with_an_address_that_git_does_not_take_are_named(self, make_repository, checked_out, capsys):
        library, app = make_repository("library"), make_repository("app")
        add_submodule(app, "library", address=library, commit=newest(library))
        assert not (checked_out(app, protocol_file_allow="user") / "library/train.py").exists()
        assert "transport 'file' not allowed" in capsys.readouterr().err


def test_pointers_of_git_lfs_are_named(make_repository, checked_out, capsys):
    files = {".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n", "notes.txt": f"# {POINTER}"}
    app = make_repository("app", **{"a.bin": POINTER, "b.bin": "fetched"}, **files)
    library = make_repository("library", **{"c.bin": POINTER}, **files)
    add_submodule(app, "library", address=library, commit=newest(library))
    checked_out(app)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("spotkeep: a.bin: a pointer of Git LFS")
    assert second.startswith("spotkeep: library/c.bin: a pointer of Git LFS")
