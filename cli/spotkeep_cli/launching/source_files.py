"""Selects the files of a source directory.

In a checkout these are the files that git lists. Elsewhere they are all files. git knows the files that it ignores,
such as passwords and data. In a checkout where git does not answer, the ignored files are not known, so nothing is
packed. A submodule and a repository inside the checkout list their own files.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final

from spotkeep_cli.errors import UsageError
from spotkeep_cli.launching.git import (
    NO_ANSWER,
    NOT_INSTALLED,
    TIMEOUT_SECONDS,
    WITHOUT_PROGRAMS,
    checkout_around,
    environment_allowing,
    in_one_line,
)

NEVER_PACKED: Final = frozenset(
    {".git", ".hg", ".svn", ".venv", "venv", "node_modules", ".spotkeep", "cdk.out", "__pycache__",
     ".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints", ".DS_Store"}
)  # fmt: skip
"""Names left out at any depth, such as histories, environments, caches and local state."""

MAX_SOURCE_FILES = 10_000

_SUBMODULE: Final = "160000"
"""The mode of a submodule in an index. Source: https://git-scm.com/docs/index-format"""
_MOST_BYTES_OF_A_GITFILE: Final = 4096
_UNREAD_RULES: Final = re.compile(r"unable to access '(?:[^'\n]*/)?(?:\.gitignore|info/exclude)'")


class LocalSourceError(UsageError):
    """A local source cannot be packed.

    Attributes:
        problem: The fault. The message names the field besides.
    """

    def __init__(self, problem: str, *, hint: str) -> None:
        super().__init__(f"source: {problem}", hint=hint)
        self.problem = problem


@dataclass(frozen=True, kw_only=True)
class ListedFiles:
    """The files of a directory, relative to it. A name may belong to a deleted file, or to a link.

    Attributes:
        names: All files that may be packed.
        tracked: Those that a repository tracks.
        checkout: The top of the checkout around the directory. None where there is none.
        missing_submodules: The places of submodules that are not checked out.
        worktrees: Other worktrees of the same repository. They hold the same files once more.
        remarks: A sentence for each unreadable thing, in the words of git or of the system.
    """

    names: frozenset[PurePosixPath]
    tracked: frozenset[PurePosixPath]
    checkout: Path | None
    missing_submodules: tuple[PurePosixPath, ...]
    worktrees: tuple[PurePosixPath, ...]
    remarks: tuple[str, ...]


def list_files(directory: Path) -> ListedFiles:
    """List the files of a directory. A repository in it has its own rules for the files that it ignores.

    Raises:
        LocalSourceError: There is a checkout and git does not list its files, or there are too many.
    """
    real = Path(os.path.realpath(directory))
    checkout = _checkout_of(real)
    listing = _found_by_walking(real) if checkout is None else checkout.files_of_source(real)
    names, tracked = set[PurePosixPath](), set[PurePosixPath]()
    # The directory itself may be a submodule that is not checked out.
    missing = [] if listing.names else list(listing.submodules)
    worktrees, remarks = list[PurePosixPath](), list[str]()
    waiting = [(PurePosixPath(), listing)]
    while waiting:
        folder, listing = waiting.pop()
        remarks += listing.remarks
        tracked |= {folder / name for name in listing.tracked}
        for name in listing.names:
            path = folder / name
            if not NEVER_PACKED.isdisjoint(path.parts):
                continue
            if not _is_directory(real / path):
                gone = name in listing.submodules and not os.path.lexists(real / path)
                (missing.append if gone else names.add)(path)
            elif not os.path.lexists(real / path / ".git"):
                missing.append(path)
            elif checkout is not None and _repository_of(real / path) == _repository_of(checkout.top):
                worktrees.append(path)
            else:
                waiting.append((path, _Checkout(top=real / path, source=real).files_of(real / path)))
            if len(names) > 2 * MAX_SOURCE_FILES:
                raise LocalSourceError(
                    f"{directory} has more files than the {MAX_SOURCE_FILES:,} that a source may have",
                    hint="give the directory that the training script is in, such as source: .",
                )
    return ListedFiles(
        names=frozenset(names),
        tracked=frozenset(tracked),
        checkout=None if checkout is None else checkout.top,
        missing_submodules=tuple(sorted(missing)),
        worktrees=tuple(sorted(worktrees)),
        remarks=tuple(dict.fromkeys(remarks)),
    )


@dataclass(frozen=True, kw_only=True)
class _Listing:
    """The files of one repository, or of a directory without one. The directories among the names are others."""

    names: frozenset[PurePosixPath]
    tracked: frozenset[PurePosixPath] = frozenset()
    submodules: frozenset[PurePosixPath] = frozenset()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Checkout:
    """A checkout that git is asked about.

    Attributes:
        top: Its top directory, which holds `.git`.
        source: The directory that its user named.
        variables: Variables of git's that name the repository. None where git finds it by `.git`.
    """

    top: Path
    source: Path
    variables: tuple[tuple[str, str], ...] = ()

    def files_of_source(self, directory: Path) -> _Listing:
        """List a directory that a user named. It is packed even where git ignores it as a whole.

        The rules for the files in it count then, and the rules for the directory itself do not. These rules may leave
        no file, as the rule `*` does. Only the rules in the directory count then.
        """
        listing = self.files_of(directory)
        if listing.names or directory == self.top:
            return listing
        submodules = listing.submodules
        parts = directory.relative_to(self.top).parts
        above = ["/".join(map(_literal, parts[:depth])) for depth in range(1, len(parts) + 1)]
        listing = self._others(directory, *(f"--exclude=!/{name}" for name in above))
        if listing.names:
            return listing
        with tempfile.TemporaryDirectory() as folder:
            replace(self, top=Path(folder), variables=())._git(Path(folder), "init", "--quiet", "--template=")
            variables = (("GIT_DIR", f"{folder}/.git"), ("GIT_WORK_TREE", str(directory)))
            others = replace(self, variables=variables)._others(directory)
        return replace(others, submodules=submodules)

    def files_of(self, directory: Path) -> _Listing:
        """List the files of a directory that git tracks, and the new ones that it does not ignore."""
        entries, remarks = self._listed(directory, "--stage")
        tracked = {PurePosixPath(name): mode for mode, _, name in (entry.partition("\t") for entry in entries)}
        submodules = frozenset(name for name, mode in tracked.items() if mode.startswith(_SUBMODULE))
        others = self._others(directory)
        return _Listing(
            names=(others.names | tracked.keys()) - {PurePosixPath()},
            tracked=frozenset(tracked.keys() - submodules),
            submodules=submodules,
            remarks=(*remarks, *others.remarks),
        )

    def _others(self, directory: Path, *rules: str) -> _Listing:
        entries, remarks = self._listed(directory, "--others", "--exclude-standard", *rules)
        # Of a submodule that is not checked out, git lists the directory itself.
        return _Listing(names=frozenset(map(PurePosixPath, entries)) - {PurePosixPath()}, remarks=remarks)

    def _listed(self, directory: Path, *options: str) -> tuple[list[str], tuple[str, ...]]:
        """Return the entries of a listing, and git's warnings."""
        answer = self._git(directory, "ls-files", "-z", *options)
        said = answer.stderr.decode(errors="replace")
        if _UNREAD_RULES.search(said):
            # git goes on without these rules, and lists the files that they ignore.
            raise self._unanswered(directory, said, mend="let git read its rules: none are read through a link")
        entries = answer.stdout.decode(errors="surrogateescape").split("\0")
        warnings = [line.strip() for line in said.splitlines() if line.startswith(("warning:", "error:"))]
        return [entry for entry in entries if entry], tuple(warnings)

    def _git(self, directory: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
        environment = {**environment_allowing(()), **dict(self.variables)}
        if not self.variables and self.top != self.top.parent:
            # A repository above is another one: it would answer where this one is damaged.
            environment["GIT_CEILING_DIRECTORIES"] = str(self.top.parent)
            environment["GIT_DISCOVERY_ACROSS_FILESYSTEM"] = "1"  # the directory may be a volume of a container
        command = ["git", "-C", str(directory), *WITHOUT_PROGRAMS, *words]
        try:
            answer = subprocess.run(command, capture_output=True, check=False, timeout=TIMEOUT_SECONDS, env=environment)
        except FileNotFoundError:
            raise self._unanswered(directory, NOT_INSTALLED) from None
        except subprocess.TimeoutExpired as error:
            raise self._unanswered(directory, NO_ANSWER) from error
        except OSError as error:
            raise self._unanswered(directory, str(error)) from error
        if answer.returncode:
            said = answer.stderr.decode(errors="replace") or f"it ended with code {answer.returncode}"
            raise self._unanswered(directory, said)
        return answer

    def _unanswered(self, directory: Path, said: str, *, mend: str | None = None) -> LocalSourceError:
        repair = f"make this work: git -C {shlex.quote(str(directory))} status. If {self.top / '.git'} is left of "
        repair += "a repository that is gone, remove it"
        return LocalSourceError(
            f"git does not say which files of {directory} it ignores: {in_one_line(said)}",
            hint=f"{mend or repair}. To send all files, whatever git ignores: tar -czf code.tar.gz "
            f"-C {shlex.quote(str(self.source))} . and source: code.tar.gz",
        )


def _checkout_of(directory: Path) -> _Checkout | None:
    top = checkout_around(directory)
    if top is not None:
        return _Checkout(top=top, source=directory)
    repository, tree = os.environ.get("GIT_DIR"), os.environ.get("GIT_WORK_TREE")
    if not repository or not tree or not directory.is_relative_to(os.path.realpath(tree)):
        return None
    variables = {"GIT_DIR": os.path.realpath(repository), "GIT_WORK_TREE": os.path.realpath(tree)}
    return _Checkout(top=Path(variables["GIT_WORK_TREE"]), source=directory, variables=tuple(variables.items()))


def _literal(name: str) -> str:
    """Return a name as a pattern of .gitignore for it alone."""
    return re.sub(r"([\\*?\[\]! #])", r"\\\1", name)


def _is_directory(path: Path) -> bool:
    return path.is_dir() and os.path.realpath(path) == str(path)


def _repository_of(top: Path) -> Path:
    """Return the directory of a checkout's repository. All its worktrees have the same.

    Source: https://git-scm.com/docs/gitrepository-layout (gitfile, worktrees)
    """
    entry = top / ".git"
    try:
        with entry.open("rb") as file:
            named = os.fsdecode(file.read(_MOST_BYTES_OF_A_GITFILE)).removeprefix("gitdir:").strip()
    except OSError:  # a directory; or git itself says what is wrong with it
        return Path(os.path.realpath(entry))
    repository = Path(os.path.realpath(top / named))
    return repository.parents[1] if repository.parent.name == "worktrees" else repository


def _found_by_walking(directory: Path) -> _Listing:
    """List all that is in a directory. A checkout in it is one of the names."""
    names = set[PurePosixPath]()
    remarks = list[str]()
    for folder, subfolders, files in os.walk(directory, onerror=lambda error: remarks.append(str(error))):
        here = PurePosixPath(Path(folder).relative_to(directory).as_posix())
        subfolders[:] = [name for name in subfolders if name not in NEVER_PACKED]
        apart = [name for name in subfolders if _is_apart(Path(folder) / name)]
        names.update(here / name for name in (*files, *apart))
        subfolders[:] = sorted(set(subfolders).difference(apart))
        if len(names) > 2 * MAX_SOURCE_FILES:
            break  # too many to go on
    return _Listing(names=frozenset(names), remarks=tuple(remarks))


def _is_apart(folder: Path) -> bool:
    return folder.is_symlink() or os.path.lexists(folder / ".git")
