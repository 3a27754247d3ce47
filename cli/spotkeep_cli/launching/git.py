"""Calls git, in a directory that may be a stranger's work, and finds the commit of a branch.

git reads the settings of the repository around it, and starts programs that they name. A repository in an archive
brings its settings along. So does a bare repository that is committed inside another.

A branch moves, and a run must not move with it. So a launch takes the commit.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from spotkeep_jobs.document.reading import shown
from spotkeep_jobs.errors import Problem

WITHOUT_PROGRAMS: Final = ("--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
"""Options of git itself. Source: https://git-scm.com/docs/git-config (core.fsmonitor, core.hooksPath)"""
TIMEOUT_SECONDS: Final = 60
"""The longest that git may take for one answer."""
NOT_INSTALLED: Final = "git is not installed here, or not on PATH"
NO_ANSWER: Final = f"git did not answer within {TIMEOUT_SECONDS} seconds"
_MOST_SAID: Final = 400
_OF_ONE_REPOSITORY: Final = frozenset(
    {"GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_COMMON_DIR", "GIT_DIR", "GIT_INDEX_FILE", "GIT_NAMESPACE",
     "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_SHALLOW_FILE", "GIT_WORK_TREE"}
)  # fmt: skip
"""Variables that name one repository. A hook of git has them, and so has all that it starts.

Source: https://git-scm.com/docs/git-rev-parse (--local-env-vars)
"""
_PROTOCOLS: Final = ("https", "http", "ssh", "file")


def environment_allowing(protocols: Sequence[str]) -> dict[str, str]:
    """Return the environment of a git that speaks these protocols alone, whatever settings say.

    It names no repository, and git's messages are in English.

    Args:
        protocols: Names of git's: `https`, `ssh`. None for a git that has no need of the network.

    Source: https://git-scm.com/docs/git (GIT_ALLOW_PROTOCOL, GIT_NO_LAZY_FETCH)
    """
    kept = {name: value for name, value in os.environ.items() if name not in _OF_ONE_REPOSITORY}
    return {**kept, "GIT_ALLOW_PROTOCOL": ":".join(protocols), "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}


def in_one_line(said: str) -> str:
    """Return git's whole message as one line. The cause may stand first, and the next step last."""
    words = " ".join(said.split())
    return words if len(words) <= _MOST_SAID else f"{words[:_MOST_SAID]}..."


def checkout_around(folder: Path) -> Path | None:
    """Return the folder or the nearest one above that has an entry `.git`, of whatever kind. None where none has.

    Args:
        folder: Its real path, without links.

    Source: https://git-scm.com/docs/git (GIT_CEILING_DIRECTORIES: where git does not search either)
    """
    ceilings = {os.path.realpath(name) for name in os.environ.get("GIT_CEILING_DIRECTORIES", "").split(":") if name}
    for each in (folder, *folder.parents):
        if each != folder and str(each) in ceilings:
            return None
        if os.path.lexists(each / ".git"):
            return each
    return None


def pinned(source: Any) -> tuple[Any, tuple[Problem, ...], tuple[Problem, ...]]:
    """Replace a branch by its commit.

    Args:
        source: The job file's source, of any type. Left as it is unless it is a mapping with `git` and `branch`.

    Returns:
        The source, its problems, and the warnings for its user.
    """
    if not isinstance(source, dict) or "branch" not in source or "commit" in source:
        return source, (), ()
    url, branch = source.get("git"), source["branch"]
    rest = {name: value for name, value in source.items() if name != "branch"}
    if not isinstance(url, str) or not isinstance(branch, str) or branch.startswith("-") or url.startswith("-"):
        return rest, (), ()  # The launcher says what is wrong: there is no commit.
    commit, why_not = _commit_of(url, branch)
    if commit is None:
        fix = "Name a branch or tag that is there, or give the commit: 40 hex digits of `git rev-parse HEAD`."
        problem = Problem(
            field="source.branch", found=shown(branch), problem=f"cannot be looked up: {why_not}", fix=fix
        )
        # A commit that is never launched: the job is refused for its branch, and judged in everything else.
        return {**rest, "commit": "0" * 40}, (problem,), ()
    warning = Problem(
        field="source.branch",
        found=shown(branch),
        problem=f"is a branch, which moves; this launch takes the commit it is at now: {commit}",
        fix=f"Write commit: {commit} instead, to launch the same code again.",
    )
    return {**rest, "commit": commit}, (), (warning,)


def _commit_of(url: str, branch: str) -> tuple[str | None, str]:
    names = [f"refs/heads/{branch}", f"refs/tags/{branch}", f"refs/tags/{branch}^{{}}"]
    command = ["git", *WITHOUT_PROGRAMS, "ls-remote", "--", url, *names]
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            # Not in the current directory, which may be a repository with settings of its own.
            cwd="/",
            env=environment_allowing(_PROTOCOLS),
        )
    except FileNotFoundError:
        return None, NOT_INSTALLED
    except subprocess.TimeoutExpired:
        return None, f"{NO_ANSWER}; does it wait for a password?"
    except OSError as error:
        return None, str(error)
    if answer.returncode:
        return None, in_one_line(answer.stderr) or f"git ended with code {answer.returncode}"
    lines = [line.partition("\t") for line in answer.stdout.splitlines()]
    found = {name: commit for commit, _, name in lines}
    # Of an annotated tag, the commit it stands for.
    for name in (f"refs/heads/{branch}", f"refs/tags/{branch}^{{}}", f"refs/tags/{branch}"):
        if name in found:
            return found[name], ""
    return None, f"{url} has no branch or tag of that name"
