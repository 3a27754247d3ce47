"""In a checkout git says which files belong to a source, submodules and repositories inside it too; without an answer
of git nothing is packed. What stays behind, and what is hardly meant to go along, is named.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from spotkeep_cli.launching.source_archive import pack_source
from spotkeep_cli.launching.source_files import LocalSourceError

SECRETS = {".env": "TOKEN=1", "data/big.csv": "1"}
OWN = {"train.py", ".gitignore"}


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "protocol.file.allow=always"]
    environment = {**os.environ, "GIT_TEMPLATE_DIR": ""}  # no samples of hooks to write and to copy
    subprocess.run(["git", "-C", str(folder), *identity, *words], check=True, capture_output=True, env=environment)


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def repository(folder: Path, *, script: str = "train.py") -> Path:
    """A checkout of one commit that ignores passwords and data, which are there."""
    write(folder, {script: "print()", ".gitignore": ".env\ndata/\n", **SECRETS})
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def packed(folder: Path) -> set[str]:
    with tarfile.open(fileobj=io.BytesIO(pack_source(folder).content)) as archive:
        return set(archive.getnames())


def warned(folder: Path) -> str:
    return "\n".join(map(str, pack_source(folder).warnings))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return repository(tmp_path / "app")


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Has a submodule that is checked out, with one inside it, and a repository that nothing knows of."""
    folder = tmp_path_factory.mktemp("repositories")
    app, deepest = repository(folder / "app"), repository(folder / "deepest", script="deepest.py")
    library = repository(folder / "library", script="library.py")
    git(library, "submodule", "--quiet", "add", str(deepest), "inner")
    git(library, "commit", "-q", "-m", "with inner")
    git(app, "submodule", "--quiet", "add", str(library), "vendor/lib")
    git(app, "submodule", "--quiet", "update", "--init", "--recursive")
    git(app, "clone", "-q", str(deepest), "nested")
    for name in ("vendor/lib", "vendor/lib/inner", "nested"):
        write(app / name, {"new.py": "", **SECRETS})
    return app


class TestACheckout:
    def test_what_is_new_is_packed_and_what_git_ignores_is_not(self, checkout: Path) -> None:
        write(checkout, {"new.py": "", "data/forced.csv": ""})
        git(checkout, "add", "--force", "data/forced.csv")
        assert packed(checkout) == OWN | {"new.py", "data/forced.csv"}
        assert not warned(checkout)

    def test_names_are_taken_as_they_are_and_files_that_are_gone_are_left_out(self, checkout: Path) -> None:
        names = {"größe 1.py", 'a"b.py', "tab\there.py", "...", "-x.py"}
        write(checkout, dict.fromkeys([*names, "gone.py"], ""))
        git(checkout, "add", ".")
        git(checkout, "update-index", "--assume-unchanged", "--", "-x.py")
        (checkout / "gone.py").unlink()
        assert packed(checkout) == OWN | names

    def test_a_directory_of_it_goes_by_the_rules_above_it(self, checkout: Path) -> None:
        write(checkout, {"part/train.py": "", "part/.env": "TOKEN=1", "part/data/big.csv": "1"})
        (checkout.parent / "link").symlink_to(checkout / "part")
        assert packed(checkout / "part") == packed(checkout.parent / "link") == {"train.py"}

    @pytest.mark.parametrize("rule", ["scratch/", "/outer/", "*", "scratch/*"])
    def test_a_directory_that_is_ignored_as_a_whole_is_what_its_user_named(self, checkout: Path, rule: str) -> None:
        write(checkout, {".gitignore": f"{rule}\n"})
        scratch = checkout / "outer/scratch" if rule == "/outer/" else checkout / "scratch"
        write(scratch, {"train.py": "", "pkg/a.py": "", ".gitignore": ".env\n", ".env": "TOKEN=1"})
        assert packed(scratch) == {"train.py", "pkg/a.py", ".gitignore"}

    def test_rules_for_what_is_in_an_ignored_directory_count(self, checkout: Path) -> None:
        write(checkout, {".gitignore": "[s]cratch/\n.env\n", "[s]cratch/.env": "TOKEN=1", "[s]cratch/train.py": ""})
        write(checkout, {"scratch/.env": "TOKEN=1", "scratch/train.py": ""})
        assert packed(checkout / "scratch") == {"train.py"}

    def test_a_checkout_that_ignores_all_it_has_is_refused(self, checkout: Path) -> None:
        git(checkout, "rm", "-q", "--cached", "train.py", ".gitignore")
        write(checkout, {".gitignore": "*\n"})
        with pytest.raises(LocalSourceError, match="has no files to pack"):
            pack_source(checkout)

    def test_what_is_not_checked_out_stays_behind_and_a_linked_worktree_is_a_checkout(self, checkout: Path) -> None:
        write(checkout, {"large/a.txt": ""})
        git(checkout, "add", ".")
        git(checkout, "commit", "-q", "-m", "second")
        git(checkout, "sparse-checkout", "set", "--no-cone", "/*", "!/large/")
        git(checkout, "worktree", "add", "-q", "../tree")
        write(checkout.parent / "tree", SECRETS)
        assert packed(checkout) == OWN
        assert packed(checkout.parent / "tree") == OWN


class TestARepositoryThatVariablesName:
    def test_of_a_hook_is_not_the_sources(self, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        other = repository(checkout.parent / "other", script="other.py")
        monkeypatch.chdir(other)
        for name, value in (("GIT_DIR", ".git"), ("GIT_INDEX_FILE", str(other / ".git/index")), ("GIT_WORK_TREE", ".")):
            monkeypatch.setenv(name, value)
            assert packed(checkout) == OWN
        plain = write(checkout.parent / "plain", {"train.py": "", "notes.txt": ""})
        assert packed(plain) == {"train.py", "notes.txt"}

    def test_counts_for_a_directory_of_its_work_tree_without_another(
        self, checkout: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (checkout / ".git").rename(checkout.parent / "settings.git")
        monkeypatch.chdir(checkout.parent)
        monkeypatch.setenv("GIT_DIR", "settings.git")
        monkeypatch.setenv("GIT_WORK_TREE", "app")
        assert packed(checkout) == OWN


def without_head(checkout: Path) -> None:
    (checkout / ".git/HEAD").unlink()


def without_content(checkout: Path) -> None:
    shutil.rmtree(checkout / ".git")
    (checkout / ".git").mkdir()


def of_a_worktree_whose_repository_is_gone(checkout: Path) -> None:
    shutil.rmtree(checkout / ".git")
    (checkout / ".git").write_text("gitdir: /nowhere/.git/worktrees/app\n")


def that_is_a_link_to_nothing(checkout: Path) -> None:
    shutil.rmtree(checkout / ".git")
    (checkout / ".git").symlink_to("nothing")


def with_a_damaged_index(checkout: Path) -> None:
    (checkout / ".git/index").write_text("x")


def with_a_damaged_configuration(checkout: Path) -> None:
    with (checkout / ".git/config").open("a") as file:
        file.write("broken [")


def of_a_later_git(checkout: Path) -> None:
    git(checkout, "config", "core.repositoryFormatVersion", "1")
    git(checkout, "config", "extensions.ofTheFuture", "true")


def whose_files_are_elsewhere(checkout: Path) -> None:
    git(checkout, "config", "core.worktree", str(checkout.parent / "elsewhere"))


def with_rules_behind_a_link(checkout: Path) -> None:
    """git reads no rules through a link, warns, and lists what they would have it ignore."""
    (checkout / ".gitignore").rename(checkout / "rules")
    (checkout / ".gitignore").symlink_to("rules")


FAILURES: list[tuple[Callable[[Path], None], str]] = [
    (without_head, "not a git repository"),
    (without_content, "not a git repository"),
    (of_a_worktree_whose_repository_is_gone, "not a git repository"),
    (that_is_a_link_to_nothing, r"\.git"),
    (with_a_damaged_index, "index file smaller than expected"),
    (with_a_damaged_configuration, "bad config line"),
    (of_a_later_git, "ofthefuture"),
    (whose_files_are_elsewhere, "must be run in a work tree"),
    (with_rules_behind_a_link, r"unable to access '\.gitignore'"),
]


class TestACheckoutWithoutAnAnswerOfGit:
    @pytest.mark.parametrize(("damage", "words"), FAILURES, ids=[damage.__name__ for damage, _ in FAILURES])
    @pytest.mark.parametrize("inside_another", [False, True])
    def test_is_refused_with_gits_words_and_a_way_out(
        self, tmp_path: Path, damage: Callable[[Path], None], words: str, *, inside_another: bool
    ) -> None:
        around = repository(tmp_path, script="outer.py") if inside_another else tmp_path
        checkout = repository(around / "app")
        damage(checkout)
        for source in (checkout, write(checkout / "part", {"train.py": ""})):
            with pytest.raises(LocalSourceError, match=words) as refusal:
                pack_source(source)
            mends = "let git read its rules" if damage is with_rules_behind_a_link else f"git -C {source} status"
            assert mends in refusal.value.hint
            assert "code.tar.gz" in refusal.value.hint

    def test_of_another_user_is_refused_with_the_command_that_git_proposes(
        self, checkout: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # git's own way to try it; it has no other without a second user.
        monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
        with pytest.raises(LocalSourceError, match=f"git config --global --add safe.directory {checkout}"):
            pack_source(checkout)

    def test_is_refused_where_git_is_not_installed_and_a_plain_directory_is_not(
        self, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(LocalSourceError, match="git is not installed"):
            pack_source(checkout)
        assert packed(write(tmp_path / "plain", {"train.py": ""})) == {"train.py"}

    def test_is_refused_where_git_takes_too_long(self, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("spotkeep_cli.launching.source_files.TIMEOUT_SECONDS", 0)
        with pytest.raises(LocalSourceError, match="did not answer within 60 seconds"):
            pack_source(checkout)

    def test_the_way_out_packs_all(self, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        without_head(checkout)
        monkeypatch.chdir(checkout.parent)
        with pytest.raises(LocalSourceError) as refusal:
            pack_source(checkout)
        command = refusal.value.hint.partition("ignores: ")[2].partition(" and source")[0]
        subprocess.run(command, shell=True, check=True)  # noqa: S602 - as its reader does
        assert {f"./{name}" for name in OWN | SECRETS.keys()} < packed(Path("code.tar.gz"))


class TestSubmodulesAndRepositoriesInside:
    @pytest.fixture
    def app(self, made_once: Path, tmp_path: Path) -> Path:
        return Path(shutil.copytree(made_once, tmp_path / "app"))

    def test_are_packed_with_their_own_rules(self, app: Path) -> None:
        library = {"library.py", ".gitignore", ".gitmodules", "new.py"}
        inner = {"deepest.py", ".gitignore", "new.py"}
        assert packed(app) == OWN | {".gitmodules"} | {
            *(f"vendor/lib/{name}" for name in library),
            *(f"vendor/lib/inner/{name}" for name in inner),
            *(f"nested/{name}" for name in inner),
        }
        assert not warned(app)
        assert packed(app / "vendor/lib/inner") == inner

    def test_in_a_directory_without_a_checkout_go_by_their_own_rules_too(self, app: Path) -> None:
        top = write(app.parent / "top", {"train.py": "", ".env": "TOKEN=1"})
        app.rename(top / "app")
        assert {"train.py", ".env", "app/train.py", "app/vendor/lib/library.py"} < packed(top)
        assert not {"app/.env", "app/vendor/lib/.env", "app/nested/data/big.csv"} & packed(top)

    def test_are_named_where_they_are_not_checked_out(self, app: Path) -> None:
        git(app, "submodule", "--quiet", "deinit", "--force", "vendor/lib")
        assert not any(name.startswith("vendor") for name in packed(app))
        assert "submodule that is not checked out (found vendor/lib)" in warned(app)
        for source in ("vendor", "vendor/lib"):
            with pytest.raises(LocalSourceError, match="no files to pack") as refused:
                pack_source(app / source)
            assert f"git -C {app / source} submodule update --init --recursive" in refused.value.hint
        (app / "vendor/lib").rmdir()
        assert "(found vendor/lib)" in warned(app)
        assert f"git -C {app} submodule update --init --recursive" in warned(app)

    def test_files_that_lie_where_a_submodule_belongs_are_named_or_packed_by_themselves(self, app: Path) -> None:
        shutil.rmtree(app / "vendor/lib")
        write(app / "vendor/lib", {"copied.py": "", ".gitignore": ".env\n", ".env": "TOKEN=1"})
        assert "(found vendor/lib)" in warned(app)
        assert packed(app / "vendor/lib") == {"copied.py", ".gitignore"}

    def test_are_refused_where_git_does_not_answer_for_them(self, app: Path) -> None:
        shutil.rmtree(app / ".git/modules")
        with pytest.raises(
            LocalSourceError, match=r"files of .*/vendor/lib it ignores: fatal: not a git repository"
        ) as refused:
            pack_source(app)
        assert f"git -C {app}/vendor/lib status" in refused.value.hint
        assert f"-C {app} . and source: code.tar.gz" in refused.value.hint

    def test_an_ignored_one_stays_behind(self, app: Path) -> None:
        with (app / ".gitignore").open("a") as file:
            file.write("nested\n")
        assert not any(name.startswith("nested") for name in packed(app))

    def test_another_worktree_of_the_same_repository_is_not_packed_twice(self, checkout: Path) -> None:
        git(checkout, "worktree", "add", "-q", "trees/feature")
        assert packed(checkout) == OWN
        assert "(found trees/feature)" in warned(checkout)
        assert packed(checkout / "trees/feature") == OWN


class TestWhatIsNamed:
    def test_links_that_are_not_packed(self, checkout: Path) -> None:
        (checkout / "shared").symlink_to(checkout.parent)
        (checkout / "nowhere").symlink_to("nothing")
        (checkout / "linked.py").symlink_to("train.py")
        (checkout / "venv").symlink_to(checkout.parent)
        assert packed(checkout) == OWN | {"linked.py"}
        assert "2 links that are to a directory or to nothing (found nowhere, shared)" in warned(checkout)
        shutil.rmtree(checkout / ".git")
        assert "(found nowhere, shared)" in warned(checkout)

    def test_files_of_git_lfs_that_were_not_fetched(self, checkout: Path) -> None:
        pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
        write(checkout, {"weights.bin": pointer, "notes.txt": f"# {pointer}"})
        assert "(found weights.bin)" in warned(checkout)
        assert "lfs pull" in warned(checkout)

    def test_what_may_be_a_secret_and_is_not_tracked(self, checkout: Path) -> None:
        key = "-----BEGIN RSA PRIVATE KEY-----\n"
        secret = {".aws/credentials": "", "conf/.env.prod": "", "id_rsa": "", "server.pem": key}
        plain = {".env.example": "", "id_rsa.pub": "", "ca.pem": "-----BEGIN CERTIFICATE-----\n", "environment.py": ""}
        write(checkout, {**secret, **plain})
        assert "(found .aws/credentials, conf/.env.prod, id_rsa (and 1 more))" in warned(checkout)
        git(checkout, "add", ".")
        assert not warned(checkout)

    def test_a_gitignore_that_does_not_count_and_what_it_would_ignore(self, tmp_path: Path) -> None:
        write(tmp_path, {"train.py": "", ".gitignore": ".env\n", ".env": "TOKEN=1"})
        assert packed(tmp_path) == OWN | {".env"}
        assert "(found .gitignore)" in warned(tmp_path)
        assert "(found .env)" in warned(tmp_path)
        git(tmp_path, "init", "-q")
        assert packed(tmp_path) == OWN
        assert not warned(tmp_path)

    @pytest.mark.skipif(os.geteuid() == 0, reason="root reads every directory")
    @pytest.mark.parametrize("in_git", [True, False])
    def test_a_directory_that_cannot_be_read(self, checkout: Path, *, in_git: bool) -> None:
        closed = write(checkout / "closed", {"a.py": ""})
        if not in_git:
            shutil.rmtree(checkout / ".git")
        closed.chmod(0)
        try:
            assert "Permission denied" in warned(checkout)
        finally:
            closed.chmod(0o700)


def test_a_file_that_cannot_be_read_is_a_refusal(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("spotkeep_cli.launching.source_archive.read_file", refuse)
    with pytest.raises(LocalSourceError, match=r"\.gitignore cannot be read: Permission denied"):
        pack_source(checkout)
