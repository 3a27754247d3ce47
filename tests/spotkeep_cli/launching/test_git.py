"""A branch of a real repository becomes the commit it is at, and its user is warned."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from spotkeep_cli.launching.git import pinned


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    def git(*words: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        done = subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    git("init", "-q", "-b", "main")
    git("commit", "-q", "--allow-empty", "-m", "first")
    git("tag", "-a", "v1", "-m", "annotated")
    (tmp_path / "first").write_text(git("rev-parse", "HEAD"))
    git("commit", "-q", "--allow-empty", "-m", "second")
    (tmp_path / "second").write_text(git("rev-parse", "HEAD"))
    return tmp_path


@pytest.mark.parametrize(("name", "at"), [("main", "second"), ("v1", "first")])
def test_a_branch_or_a_tag_is_pinned_with_a_warning(repository: Path, name: str, at: str) -> None:
    commit = (repository / at).read_text()
    source, problems, warnings = pinned({"git": str(repository), "branch": name})
    assert (source, problems) == ({"git": str(repository), "commit": commit}, ())
    assert commit in warnings[0].problem


@pytest.mark.parametrize("name", ["no-such-branch", "--upload-pack=touch /tmp/x"])
def test_a_branch_that_is_not_there_is_a_problem_and_never_an_option(repository: Path, name: str) -> None:
    source, problems, warnings = pinned({"git": str(repository), "branch": name})
    assert "branch" not in source
    assert not warnings
    assert [problem.field for problem in problems] == ([] if name.startswith("-") else ["source.branch"])


def test_a_repository_out_of_reach_is_a_problem_in_gits_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, (problem,), _ = pinned({"git": str(tmp_path / "nothing"), "branch": "main"})
    assert problem.field == "source.branch"
    assert "does not appear to be a git repository" in problem.problem
    monkeypatch.setenv("PATH", str(tmp_path))
    _, (problem,), _ = pinned({"git": str(tmp_path / "nothing"), "branch": "main"})
    assert "git is not installed" in problem.problem


def test_a_git_that_waits_is_a_problem_in_plain_words(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spotkeep_cli.launching.git.TIMEOUT_SECONDS", 0)
    _, (problem,), _ = pinned({"git": str(repository), "branch": "main"})
    assert problem.problem == (
        "cannot be looked up: git did not answer within 60 seconds; does it wait for a password?"
    )


def test_a_hook_of_another_repository_looks_up_a_branch(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", ".git")
    _, problems, _ = pinned({"git": str(repository), "branch": "main"})
    assert not problems


@pytest.mark.parametrize("source", [None, ".", {"git": "https://x/y.git", "commit": "0" * 40}, 7])
def test_everything_else_stays_as_it_is(source: object) -> None:
    assert pinned(source) == (source, (), ())
