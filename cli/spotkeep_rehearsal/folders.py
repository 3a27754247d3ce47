"""The disk of a rehearsed machine. It has a copy of the caller's folder, and the checkpoint folder.

A machine begins with the source and what the checkpoint folder had. Everything else of the machine before is gone. The
caller's folder is never written.

On Linux, where the machine allows it, the copy is an overlay over the folder at the folder's own path. Nothing is
copied then, and every write goes to a layer of its own. Elsewhere the source is copied. Larger data are copied once,
and each machine gets links to that copy. Data that are too large for that are linked and watched, and so are files to
which links out of the folder lead. `watched_files` shows a write there.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable

from spotkeep_rehearsal import namespace
from spotkeep_rehearsal.evidence import Life, RehearsalError, ResultFile, RunFacts
from spotkeep_rehearsal.world import rewritten

OPT_ML = ("checkpoints", "model", "output")
CHECKPOINTS = "/opt/ml/checkpoints"
_LINKED_FOLDERS = frozenset({".git", ".hg", ".svn", "node_modules", ".tox", ".nox", ".mypy_cache", ".ruff_cache"})
_LEFT_OUT = frozenset({"__pycache__", ".spotkeep", ".pytest_cache", ".ipynb_checkpoints"})
WRITTEN_KINDS = frozenset({
    ".bin", ".ckpt", ".cbm", ".h5", ".hdf5", ".joblib", ".keras", ".lgb", ".model", ".msgpack", ".npz",
    ".orbax", ".pickle", ".pkl", ".pt", ".pth", ".safetensors", ".state", ".ubj", ".weights",
})  # fmt: skip
"""Kinds of files that trainings write. They are copied whatever their size, so that no write reaches the caller's."""
LOG_KINDS = frozenset({
    ".csv", ".gif", ".html", ".jpeg", ".jpg", ".json", ".jsonl", ".log", ".md", ".out", ".pdf", ".png", ".svg",
    ".tsv", ".txt", ".yaml", ".yml",
})  # fmt: skip
"""Kinds of files that describe a training and are no part of its state."""
_SOURCE_KINDS = frozenset({
    ".c", ".cc", ".cfg", ".conf", ".cpp", ".cu", ".ini", ".ipynb", ".j2", ".jinja", ".json", ".pl", ".py",
    ".pyi", ".sh", ".toml", ".yaml", ".yml",
})  # fmt: skip
_SMALL_STATES = frozenset({".json", ".txt", ".yaml", ".yml"})
_WEIGHT_OF_TWO_WRITES = 6.0
_FEWEST_WRITES_OF_GONE = 3
_STATES = re.compile(r"model|booster|xgb|lgb|lightgbm|weight|ckpt|check|state|newest|latest|resume", re.IGNORECASE)
_ACCOUNTS = re.compile(r"trainer_state|config|history|metric|log|args|index|card", re.IGNORECASE)
_GRAPHS = frozenset({"saved_model.pb", "keras_metadata.pb", "fingerprint.pb"})
"""Files of TensorFlow that describe a model. Its values are in `variables/`."""
LARGEST_COPY_BYTES = 1 << 20
_MOST_COPIED_FILES = 50_000
_MOST_FILES_OF_A_FOLDER = 200
_MOST_LINKED_FILES = 5_000
_MOST_WATCHED_FILES = 50_000
_MOST_LOOKED_AT = 200_000
_MOST_DATA_BYTES = 4 << 30
_SHARE_OF_FREE_SPACE = 0.25
_BLOCK_BYTES = 1 << 20

Version = tuple[int, int, int]
"""Time of change, size and number of a file."""


@dataclass(frozen=True)
class CheckpointPlace:
    """The checkpoint folder.

    Attributes:
        inside: Its path in the caller's folder. None for one elsewhere.
        outside: Its path elsewhere, such as `/opt/ml/checkpoints`. None for one inside.
        names: The files of it that count, with `#` for each number. None for all. Only for the folder itself.
        was_seen: True if it was found by what the command wrote, and not given.
        is_of_logs: True if it was found by files alone whose kind is that of logs, such as `progress.json`.
        others: Other folders that the command writes while it trains. None of them survives.
    """

    inside: str | None = None
    outside: str | None = None
    names: frozenset[str] | None = None
    was_seen: bool = False
    is_of_logs: bool = False
    others: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The place for people."""
        if self.names is not None:
            return ", ".join(sorted(self.names))
        return self.outside or f"{self.inside}/"

    def holds(self, name: str) -> bool:
        """Return True if a file of the caller's folder belongs to it."""
        if self.inside is None:
            return False
        if self.names is not None:
            return numbered(name) in self.names
        return name == self.inside or name.startswith(f"{self.inside}/")

    def holds_result(self, name: str) -> bool:
        """Return True if a file among a run's results belongs to it."""
        return name.startswith(f"{self.outside}/") if self.outside is not None else self.holds(name)

    def life_from(self, life: Life) -> Life:
        """Return a life of a run that began before the place was known, with the names that it has from there on."""
        prefix = "" if self.names is not None else f"{self.outside or self.inside}/"
        writes = [
            replace(write, name=write.name[len(prefix) :]) for write in life.writes if self.holds_result(write.name)
        ]
        left = [name[len(prefix) :] for name in life.left_files if self.holds_result(name)]
        return replace(life, writes=tuple(writes), left_files=tuple(left))


def numbered(name: str) -> str:
    """Return a name with `#` for each number."""
    return re.sub(r"\d+", "#", name)


class Disk:
    """The disk of the machine that runs at the moment.

    Args:
        folder: The caller's folder.
        scratch: A folder for everything that the rehearsal writes.
        isolated: True to use mounts of its own where the machine allows them.
    """

    def __init__(self, folder: Path, *, scratch: Path, isolated: bool) -> None:
        self.folder = folder
        self._scratch = scratch
        self._machine = scratch / "machine"
        self.place: CheckpointPlace | None = None
        self._outside: dict[str, Path] = {}
        """The directories elsewhere, by the path that the command knows."""
        self._placed: dict[str, Version] = {}
        self._data: dict[str, Version] = {}
        """The data that are copied once, as they were after that."""
        self._data_bytes = 0
        self._overwritten: set[str] = set()
        """The data that the command has overwritten. Each machine has its own from then on."""
        self.has_overlay = self.has_opt_ml = False
        # An overlay's options are separated by commas and colons.
        if isolated and sys.platform == "linux" and not set(f"{folder}{scratch}") & set(",:\\"):
            self.has_overlay = self.has_opt_ml = True
            if not self._can_mount():
                self.has_opt_ml = False
                self.has_overlay = self._can_mount()

    @property
    def root(self) -> Path:
        """The directory with the command's own writes to the folder. Without an overlay it is the whole copy."""
        return self._machine / ("upper" if self.has_overlay else self.folder.name or "folder")

    @property
    def shown_root(self) -> Path:
        """The folder's path for the command."""
        return self.folder if self.has_overlay else self.root

    @property
    def checkpoints(self) -> Path:
        """The checkpoint folder's place on this machine."""
        if self.place is None:
            return self._opt_ml("checkpoints")
        if self.place.outside is not None:
            own = self._opt_ml("checkpoints") if self.place.outside == CHECKPOINTS else self._given
            return self._outside.get(self.place.outside, own)
        return self.root if self.place.names is not None else self.root / (self.place.inside or "")

    @property
    def checkpoints_variable(self) -> str:
        """The checkpoint folder's path for the command."""
        if self.place is None or self.place.outside == CHECKPOINTS:
            return CHECKPOINTS if self.has_opt_ml else str(self._opt_ml("checkpoints"))
        if self.place.outside is not None:
            return str(self.checkpoints)
        return str(self.shown_root / (self.place.inside or ""))

    @property
    def _given(self) -> Path:
        return self._machine / "given"

    def _opt_ml(self, name: str) -> Path:
        return self._machine / "opt-ml" / name

    @property
    def model_variable(self) -> str:
        """The path for the final model, as the command knows it."""
        return "/opt/ml/model" if self.has_opt_ml else str(self._opt_ml("model"))

    @property
    def outside_paths(self) -> tuple[str, ...]:
        """The paths elsewhere that have a directory of their own."""
        return tuple(self._outside)

    def begins_with_old_files(self) -> bool:
        """Return True if the caller's folder has files in the checkpoint folder."""
        return bool(self._emptied())

    def redirect(self, path: str) -> None:
        """Give a path elsewhere a directory of its own on each machine."""
        self._outside[path] = self._machine / f"outside-{len(self._outside)}"

    def fresh(self, survivors: Path | None = None) -> None:
        """Make a new machine's disk from the source and the checkpoint folder of the one before.

        Args:
            survivors: The checkpoint files, by the names of `checkpoint_files`. None for an empty checkpoint folder.
        """
        remove_tree(self._machine)
        for name in OPT_ML:
            self._opt_ml(name).mkdir(parents=True)
        (self._opt_ml("output") / "data").mkdir()
        for path in (self._given, self._machine / "upper", self._machine / "work", *self._outside.values()):
            path.mkdir(parents=True, exist_ok=True)
        if self.has_overlay:
            if emptied := self._emptied():
                self._run_in_mounts([sys.executable, "-I", "-S", "-c", ""], emptied=emptied)
        else:
            self._placed = {}
            self._note_overwritten()
            self.root.mkdir(exist_ok=True)
            for number, (name, way) in enumerate(copy_plan(self.folder, leave_out=self._leaves_out)):
                if number > _MOST_COPIED_FILES:
                    raise RehearsalError(
                        f"{self.folder} holds more than {_MOST_COPIED_FILES:,} files to copy",
                        hint="run it in the folder of the training alone",
                    )
                self._put(name, way)
        self._make_named_folder()
        if survivors is not None:
            for path in sorted(survivors.rglob("*")):
                target = self.checkpoints / path.relative_to(survivors)
                if path.is_dir():
                    target.mkdir(parents=True, exist_ok=True)
                else:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    path.replace(target)

    def _make_named_folder(self) -> None:
        """Make the checkpoint folder, as AWS does. One that was found by what the command wrote is its own to make."""
        if self.place is None or not self.place.inside:
            return
        is_there = (self.folder / self.place.inside).is_dir()
        if is_there if self.place.was_seen else not (is_there and self.has_overlay):
            (self.root / self.place.inside).mkdir(parents=True, exist_ok=True)

    def _emptied(self) -> list[str]:
        place = self.place
        if place is None or place.inside is None:
            return []
        if place.names is not None:
            return [path.name for path in self.folder.iterdir() if place.holds(path.name)]
        old = self.folder / place.inside
        return [place.inside] if old.is_symlink() or (old.is_dir() and any(old.iterdir())) else []

    def _leaves_out(self, name: str) -> bool:
        if (self.folder / name).is_relative_to(self._scratch):
            return True
        return self.place is not None and self.place.holds(name)

    def caller_files(self) -> dict[str, Version]:
        """Return the files of the caller's folder with their versions. Those in the checkpoint folder are left out."""
        return {name: version for name, version in _files(self.folder).items() if not self._leaves_out(name)}

    def watched_files(self) -> dict[str, Version]:
        """Return the caller's files that a write of the command could reach, with their versions, by path."""
        found: dict[str, Version] = {}
        if not self.has_overlay:
            files = _files(self.folder, but=_LEFT_OUT | {"node_modules"})
            found.update({f"{self.folder}/{name}": version for name, version in files.items()})
        for target in links_out_of(self.folder):
            if target.is_file():
                found[str(target)] = _version(target.stat())
            else:
                files = _files(target, most=_MOST_WATCHED_FILES)
                found.update({f"{target}/{name}": version for name, version in files.items()})
        return {name: version for name, version in found.items() if not Path(name).is_relative_to(self._scratch)}

    def _put(self, name: str, way: str) -> None:
        source, target = self.folder / name, self.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if way == "folder":
            target.mkdir(exist_ok=True)
        elif way == "link" and name not in self._overwritten:
            target.symlink_to(self._data_copy(name))
        elif source.is_symlink() and way == "copy":
            # A link inside the folder is one inside the copy.
            target.symlink_to(os.path.relpath(os.path.realpath(source), os.path.realpath(source.parent)))
        else:
            shutil.copy2(source, target)
            self._placed[name] = _version(target.stat())

    def _data_copy(self, name: str) -> Path:
        """Return a copy of data that all machines share. The caller's own where there is no space for one."""
        source, copy = self.folder / name, self._scratch / "data" / name
        if name in self._data:
            return copy
        with contextlib.suppress(OSError):
            size = source.stat().st_size
            free = shutil.disk_usage(self._scratch).free
            fits = self._data_bytes + size <= _MOST_DATA_BYTES and size <= _SHARE_OF_FREE_SPACE * free
            if source.is_file() and fits:
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, copy)
                self._data[name] = _version(copy.stat())
                self._data_bytes += size
                return copy
        return source

    def _note_overwritten(self) -> None:
        for name, version in self._data.items():
            copy = self._scratch / "data" / name
            if not copy.is_file() or _version(copy.stat()) != version:
                self._overwritten.add(name)

    def take_checkpoints(self) -> Path:
        """Move the checkpoint files out of the machine that is gone, and return their new folder."""
        survivors = self._scratch / "survivors"
        remove_tree(survivors)
        survivors.mkdir()
        for name in self.checkpoint_files():
            target = survivors / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (self.checkpoints / name).replace(target)
        return survivors

    def checkpoint_files(self) -> dict[str, Version]:
        """Return the checkpoint files with their versions. Before the place is known, all that the command wrote."""
        if self.place is None:
            found = {f"{CHECKPOINTS}/{name}": version for name, version in _files(self._opt_ml("checkpoints")).items()}
            for path, physical in self._outside.items():
                found.update({f"{path}/{name}": version for name, version in _files(physical).items()})
            return {**found, **self._written()}
        if self.place.names is not None:
            return {name: version for name, version in self._written().items() if self.place.holds(name)}
        return _files(self.checkpoints)

    def _written(self) -> dict[str, Version]:
        return {name: version for name, version in _files(self.root).items() if self._placed.get(name) != version}

    def files_outside(self) -> tuple[str, ...]:
        """Return the files in the folder that the command wrote, and that are no checkpoints."""
        place = self.place
        return tuple(name for name in self._written() if not (place and place.holds(name)) and not is_log(name))

    def results(self) -> dict[str, ResultFile]:
        """Return every file that the command left, by name."""
        found = {}
        places = [
            ("", self.root),
            ("/opt/ml/model/", self._opt_ml("model")),
            ("/opt/ml/output/", self._opt_ml("output")),
        ]
        outside = {CHECKPOINTS: self._opt_ml("checkpoints"), **self._outside}
        if self.place is not None and self.place.outside is not None:
            outside[self.place.outside] = self.checkpoints
        places += [(f"{path}/", physical) for path, physical in outside.items()]
        for prefix, root in places:
            for name, version in _files(root).items():
                if root == self.root and self._placed.get(name) == version:
                    continue
                is_checkpoint = root == self.checkpoints or (
                    root == self.root and self.place is not None and self.place.holds(name)
                )
                with contextlib.suppress(OSError):
                    found[prefix + name] = ResultFile(
                        path=root / name,
                        sha256=_hash(root / name),
                        size_bytes=version[1],
                        is_checkpoint=is_checkpoint,
                        changed_ns=version[0],
                    )
        return found

    def checkpoints_of(self, run: RunFacts) -> dict[str, Path]:
        """Return the checkpoint files that a run left, by their names in the checkpoint folder."""
        place = self.place
        prefix = "" if place is None or place.names is not None else f"{place.outside or place.inside}/"
        return {name[len(prefix) :]: file.path for name, file in run.files.items() if file.is_checkpoint}

    def keep_as(self, name: str) -> dict[str, ResultFile]:
        """Move the disk aside under the name of its run, and return the files that the run left."""
        kept = self._scratch / name
        results = self.results()
        remove_tree(kept)
        self._machine.replace(kept)
        return {each: replace(file, path=kept / file.path.relative_to(self._machine)) for each, file in results.items()}

    def launch(self, words: Sequence[str], environment: Mapping[str, str]) -> tuple[list[str], dict[str, str], Path]:
        """Return the words, the environment and the directory with which a command starts on this disk."""
        places = {path: str(physical) for path, physical in self._outside.items()}
        if not self.has_opt_ml:
            places.update({f"/opt/ml/{name}": str(self._opt_ml(name)) for name in OPT_ML})
        if not self.has_overlay:
            places[str(self.folder)] = str(self.root)
        kept = ("PATH", "VIRTUAL_ENV", "HOME", "CONDA_PREFIX")
        changed = {name: value if name in kept else rewritten(value, places) for name, value in environment.items()}
        rest = [rewritten(word, places) for word in words[1:]]
        changed["PWD"] = str(self.shown_root)
        if not self.has_overlay:
            # A mere look at the state of the caller's repository writes its index.
            changed.setdefault("GIT_OPTIONAL_LOCKS", "0")
            return [words[0], *rest], changed, self.root
        specification = json.dumps(self._specification())
        return (
            [sys.executable, "-I", "-S", namespace.__file__, specification, "--", words[0], *rest],
            changed,
            Path("/"),
        )

    def _specification(self, emptied: Sequence[str] = ()) -> dict[str, object]:
        binds = []
        if self.has_opt_ml:
            # As a whole where there is none here, so that a file can be renamed from one directory to another.
            names = OPT_ML if Path("/opt/ml").exists() else (".",)
            binds = [[str(self._opt_ml(name)), os.path.normpath(f"/opt/ml/{name}")] for name in names]
        place = self.place
        if place is not None and place.outside not in (None, CHECKPOINTS) and place.outside not in self._outside:
            binds.append([str(self._given), str(place.outside)])
        overlay = {
            "lower": str(self.folder),
            "upper": str(self._machine / "upper"),
            "work": str(self._machine / "work"),
        }
        return {"binds": binds, "overlay": overlay, "emptied": list(emptied), "directory": str(self.folder)}

    def _can_mount(self) -> bool:
        if _has_mounts_below(self.folder) or self._scratch.is_relative_to(self.folder):
            return False
        self.fresh()
        return self._run_in_mounts([sys.executable, "-I", "-S", "-c", ""]) == 0

    def _run_in_mounts(self, words: Sequence[str], *, emptied: Sequence[str] = ()) -> int:
        specification = json.dumps(self._specification(emptied))
        return subprocess.run(
            [sys.executable, "-I", "-S", namespace.__file__, specification, "--", *words],
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        ).returncode


def _has_mounts_below(folder: Path) -> bool:
    """Return True if other file systems are mounted in the folder. An overlay would not show them."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return True
    points = (line.split()[4].encode().decode("unicode_escape") for line in lines if len(line.split()) > 4)
    return any(point.startswith(f"{str(folder).rstrip('/')}/") for point in points)


def copy_plan(folder: Path, *, leave_out: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Yield the files of a folder with the way in which a copy gets them, `copy`, `link` or `folder`.

    Files up to 1 MiB, source and kinds that trainings write are copied. Larger files are linked, and so are all of a
    folder of data alone. Virtual environments, repositories' own folders and folders of very many data are linked as a
    whole.

    Args:
        folder: The folder.
        leave_out: Returns True for a path that the copy is not to have.
    """
    open_ends = [(folder, False)]
    while open_ends:
        directory, is_data = open_ends.pop()
        entries = _entries(directory)
        if not entries and directory != folder:
            yield os.path.relpath(directory, folder), "folder"
        for entry in entries:
            name = os.path.relpath(entry.path, folder)
            if entry.name in _LEFT_OUT or leave_out(name):
                continue
            if entry.is_dir(follow_symlinks=False):
                count = 0 if is_data else _data_files(Path(entry.path))
                if count > _MOST_LINKED_FILES or not os.access(entry.path, os.R_OK | os.X_OK):
                    yield name, "link"
                else:
                    open_ends.append((Path(entry.path), is_data or count > _MOST_FILES_OF_A_FOLDER))
            elif entry.is_symlink():
                target = os.path.realpath(entry.path)
                yield name, "copy" if target.startswith(os.path.realpath(folder) + os.sep) else "link"
            elif entry.is_file():
                kind = Path(entry.name).suffix.lower()
                small = entry.stat().st_size <= LARGEST_COPY_BYTES and not is_data
                is_copied = small or kind in WRITTEN_KINDS or kind in _SOURCE_KINDS
                yield name, "copy" if is_copied and os.access(entry.path, os.R_OK) else "link"


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    return sorted(os.scandir(directory), key=lambda each: each.name)


def _data_files(directory: Path) -> float:
    """Return the number of files in a folder of data alone. 0 for another, and no limit for a folder of tools."""
    if directory.name in _LINKED_FOLDERS or (directory / "pyvenv.cfg").is_file():
        return float("inf")
    count = 0
    for _, _, names in os.walk(directory):
        if any(Path(name).suffix.lower() in _SOURCE_KINDS | WRITTEN_KINDS for name in names):
            return 0
        count += len(names)
    return count


def links_out_of(folder: Path) -> list[Path]:
    """Return the files and folders elsewhere to which links in a folder lead. Folders of tools are left out."""
    found, seen, inside = set(), 0, os.path.realpath(folder)
    for directory, names, files in os.walk(folder):
        seen += len(names) + len(files)
        if seen > _MOST_LOOKED_AT:
            break
        for name in [*names, *files]:
            path = os.path.join(directory, name)  # noqa: PTH118 - a folder may have very many
            if os.path.islink(path):  # noqa: PTH114
                target = os.path.realpath(path)
                above = f"{inside}/".startswith(f"{target.rstrip('/')}/")
                if not above and not target.startswith(f"{inside}/") and os.path.exists(target):  # noqa: PTH110
                    found.add(Path(target))
        kept = [name for name in names if name not in _LINKED_FOLDERS | _LEFT_OUT]
        names[:] = [name for name in kept if not Path(directory, name, "pyvenv.cfg").is_file()]
    return sorted(path for path in found if path.is_file() or path.is_dir())


def _files(
    root: Path, *, but: frozenset[str] = _LEFT_OUT | _LINKED_FOLDERS, most: float = float("inf")
) -> dict[str, Version]:
    """Return the regular files below a folder. Links and the marks of an overlay are left out.

    Args:
        root: The folder.
        but: The names of folders that are left out.
        most: The number of files after which no further folder is read.
    """
    found: dict[str, Version] = {}
    open_ends = [str(root)]
    while open_ends and len(found) < most:
        try:
            entries = list(os.scandir(open_ends.pop()))
        except OSError:
            continue
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in but:
                        open_ends.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    found[os.path.relpath(entry.path, root)] = _version(entry.stat(follow_symlinks=False))
    return found


def _version(facts: os.stat_result) -> Version:
    return facts.st_mtime_ns, facts.st_size, facts.st_ino


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def remove_tree(path: Path) -> None:
    """Remove a folder with everything in it, also where a command or an overlay left a folder without permissions."""

    def allow(function: Callable[[str], object], name: str, _: object) -> None:
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(name), stat.S_IRWXU)  # noqa: PTH101, PTH120 - the signature gives text
            os.chmod(name, stat.S_IRWXU)  # noqa: PTH101
            if function in (os.open, os.scandir, os.listdir):
                shutil.rmtree(name, ignore_errors=True)
            else:
                function(name)

    if path.is_symlink() or path.is_file():
        path.unlink()
    else:
        shutil.rmtree(path, onerror=allow)


def is_log(name: str) -> bool:
    """Return True for a file that describes a training and is no part of its state.

    XGBoost and LightGBM write models as JSON and text, and so may a script its state.
    """
    path = Path(name)
    if path.name == "manifest.json":
        # A checkpoint of the spotkeep library whose state has plain values alone is no other file.
        return False
    if path.suffix.lower() in (".json", ".txt") and _STATES.search(path.stem) and not _ACCOUNTS.search(path.stem):
        return False
    return path.suffix.lower() in LOG_KINDS or path.name in _GRAPHS or "tfevents" in name


def detect_place(
    files: Sequence[str],
    writes: Sequence[tuple[float, str]],
    *,
    seconds: float,
    folder: Path,
    outside: Sequence[str] = (),
    of_logs: bool = False,
) -> CheckpointPlace | None:
    """Find the checkpoint folder by what a run wrote that was left alone. None where it wrote nothing.

    Args:
        files: The files that it left.
        writes: The writes that were seen, with their times.
        seconds: The length of the run.
        folder: The caller's folder.
        outside: The directories elsewhere that its arguments name.
        of_logs: True to take files of the kinds that a small state shares with logs.
    """
    elsewhere = (CHECKPOINTS, *outside)

    def counts(name: str) -> bool:
        is_of_kind = Path(name).suffix.lower() in _SMALL_STATES if of_logs else not is_log(name)
        return is_of_kind and not name.startswith(("/opt/ml/model/", "/opt/ml/output/"))

    kept = [name for name in files if counts(name)]
    early = [numbered(name) for time, name in writes if time < 0.97 * seconds]
    gone = sorted({name for _, name in writes if counts(name)} - set(kept))
    most_of_kept, most_of_gone = (
        max((early.count(numbered(name)) for name in each), default=0) for each in (kept, gone)
    )
    if most_of_gone >= _FEWEST_WRITES_OF_GONE and most_of_gone > 2 * most_of_kept:
        # The command removes its checkpoints when it is done. A draft is no more often seen than what it becomes.
        kept = gone
    candidates: dict[str, float] = {}
    for name in kept:
        place = next((path for path in elsewhere if name.startswith(f"{path}/")), None) or _place_of(name, folder)
        times = [time for time, written in writes if written == name and time < 0.97 * seconds]
        likely = Path(name).suffix.lower() in WRITTEN_KINDS or re.search(
            "ckpt|check|snapshot|last|resume", name.lower()
        )
        candidates[place] = candidates.get(place, 0.0) + (3.0 if likely else 1.0) * (len(times) + 0.1)
    if not candidates:
        return None
    best = max(candidates, key=lambda place: (place.startswith(CHECKPOINTS), candidates[place]))
    others = tuple(
        f"{place.rstrip('/')}/" if place else "the folder itself"
        for place, weight in sorted(candidates.items())
        if place != best and weight >= _WEIGHT_OF_TWO_WRITES
    )
    found = CheckpointPlace(inside=best, was_seen=True, is_of_logs=of_logs, others=others)
    if best in elsewhere:
        return replace(found, inside=None, outside=best)
    if best:
        return found
    names = frozenset(numbered(name) for name in kept if not name.startswith("/") and not _place_of(name, folder))
    return replace(found, names=names)


def _place_of(name: str, folder: Path) -> str:
    """Return the uppermost folder on the way to a file that is no source folder. Empty for the caller's folder."""
    path = Path(name)
    for parent in reversed(list(path.parents)[:-1]):
        old = folder / parent
        if not old.is_dir() or not any(each.suffix.lower() == ".py" for each in old.iterdir()):
            return str(parent)
    return ""
