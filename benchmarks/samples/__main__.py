"""Rehearses rows of the table and compares each verdict with the expected one (``python -m benchmarks.samples``)."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import report
from benchmarks.report import STATE
from benchmarks.samples.table import SAMPLES, Edit, Sample

_HERE = Path(__file__).parent
_PYTHON = "3.11"
"""The Python that all pinned packages have."""
_CALM = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYTHONWARNINGS": "ignore",
    "PYTHONUNBUFFERED": "1",
}


class SampleError(Exception):
    """A sample cannot be rehearsed here."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The outcome of one rehearsal of a sample."""

    sample: Sample
    broken: bool
    verdict: str
    headline: str
    reasons: tuple[str, ...]
    seconds: float

    @property
    def expected(self) -> str:
        """The verdict that the table expects."""
        return self.sample.broken_verdict if self.broken else self.sample.verdict

    @property
    def is_right(self) -> bool:
        """True if the verdict is the expected one."""
        return self.verdict in self.expected.split(" or ")

    def to_document(self) -> dict[str, Any]:
        """Return the outcome as JSON."""
        return {
            "sample": self.sample.name,
            "repository": self.sample.repository,
            "commit": self.sample.commit,
            "script": self.sample.script,
            "framework": self.sample.framework,
            "broken": self.broken,
            "expected": self.expected,
            "verdict": self.verdict,
            "right": self.is_right,
            "headline": self.headline,
            "reasons": list(self.reasons),
            "seconds": round(self.seconds, 1),
        }


def main() -> int:
    """Rehearse the chosen samples one after the other. Return 1 if a verdict is not the expected one."""
    options = _options()
    console = Console()
    if options.list:
        for sample in SAMPLES:
            console.print(f"{sample.name}: {sample.repository} {sample.script}, {sample.framework}", highlight=False)
        return 0
    seen: list[Seen] = []
    for sample in _chosen(options.rows):
        for broken in options.ways:
            what = f"{sample.name}, {'its resume broken' if broken else 'as it is'}"
            try:
                seen.append(_rehearsed(sample, broken=broken, options=options))
            except SampleError as error:
                console.print(f"{what}: {error}", style="red", highlight=False, markup=False)
                return 2
            # After each, since a whole run takes an hour and may be stopped.
            document = {"rehearsals": [each.to_document() for each in seen]}
            report.write(options.output, document, Console(quiet=True))
            last = seen[-1]
            mark = "right" if last.is_right else f"WRONG, expected {last.expected}"
            console.print(f"{what}: {last.verdict} ({mark}), {last.seconds:.0f} s", highlight=False, markup=False)
            console.print(f"  {last.headline}", highlight=False, markup=False)
            for reason in () if last.is_right else last.reasons:
                console.print(f"  - {reason}", highlight=False, markup=False)
    console.print(_table(seen))
    console.print(f"All verdicts: {options.output}", soft_wrap=True)
    return 0 if all(each.is_right for each in seen) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.samples", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="names of rows; all without one")
    parser.add_argument("--list", action="store_true", help="list the rows")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--broken", dest="ways", action="store_const", const=(True,), help="with its resume broken only")
    way.add_argument("--as-is", dest="ways", action="store_const", const=(False,), help="as it is only")
    parser.add_argument("--mirrors", type=Path, help="folder of local copies, OWNER+NAME/repo or OWNER/NAME each")
    parser.add_argument("--here", action="store_true", help="use the current environment for every row")
    parser.add_argument(
        "--rehearse", default="spotkeep rehearse", help="the command that rehearses (default: %(default)s)"
    )
    parser.add_argument("--keep", type=Path, help="leave the folders of the rows here")
    parser.add_argument("--output", type=Path, default=STATE / "bench" / "samples.json")
    parser.set_defaults(ways=(False, True))
    return parser.parse_args()


def _chosen(names: Sequence[str]) -> list[Sample]:
    by_name = {sample.name: sample for sample in SAMPLES}
    unknown = sorted(set(names) - set(by_name))
    if unknown:
        sys.exit(f"there is no row {', '.join(unknown)}; there are: {', '.join(by_name)}")
    return [by_name[name] for name in names] if names else list(SAMPLES)


def _rehearsed(sample: Sample, *, broken: bool, options: argparse.Namespace) -> Seen:
    python = Path(sys.executable) if options.here else _environment(sample)
    with _folder(options.keep, sample, broken=broken) as folder:
        _check_out(sample, folder, mirrors=options.mirrors)
        if sample.data:
            _run([str(python), str(_HERE / "made_data.py"), sample.data, str(folder)], env={**os.environ, **_CALM})
        (folder / sample.checkpoints).mkdir(exist_ok=True)
        command = sample.command
        if broken:
            command = _broken(sample, folder)
        began = time.monotonic()
        document = _rehearse(sample, command, folder, python=python, rehearse=shlex.split(options.rehearse))
    return Seen(
        sample=sample,
        broken=broken,
        verdict=document["verdict"],
        headline=document["headline"],
        reasons=tuple(document["reasons"]),
        seconds=time.monotonic() - began,
    )


@contextmanager
def _folder(keep: Path | None, sample: Sample, *, broken: bool) -> Iterator[Path]:
    if keep is not None:
        folder = keep.absolute() / f"{sample.name}{'-broken' if broken else ''}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix=f"sample-{sample.name}-") as scratch:
        yield Path(scratch)


def _check_out(sample: Sample, folder: Path, *, mirrors: Path | None) -> None:
    """Put the sample's folder of the pinned commit into a folder."""
    repository = _repository(sample, mirrors=mirrors)
    found = _run(["git", "-C", str(repository), "rev-parse", "--verify", f"{sample.commit}^{{commit}}"]).strip()
    if not found.startswith(sample.commit):
        raise SampleError(f"{repository} has {found} for {sample.commit}")
    tree = f"{sample.commit}:{sample.folder}" if sample.folder else sample.commit
    archive = subprocess.run(
        ["git", "-C", str(repository), "archive", tree, *sample.paths], capture_output=True, check=False
    )
    if archive.returncode:
        raise SampleError(archive.stderr.decode(errors="replace").strip())
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)


def _repository(sample: Sample, *, mirrors: Path | None) -> Path:
    owner, _, name = sample.repository.partition("/")
    if mirrors is not None:
        for place in (mirrors / f"{owner}+{name}" / "repo", mirrors / owner / name):
            if place.exists():
                return place
        raise SampleError(f"{mirrors} has no copy of {sample.repository}")
    place = (STATE / "bench" / "samples" / f"{owner}+{name}.git").absolute()
    if not place.exists():
        address = f"https://github.com/{sample.repository}"
        _run(["git", "init", "--quiet", "--bare", str(place)])
        _run(["git", "-C", str(place), "remote", "add", "origin", address])
    if subprocess.run(
        ["git", "-C", str(place), "cat-file", "-e", sample.commit], capture_output=True, check=False
    ).returncode:
        _run(["git", "-C", str(place), "fetch", "--quiet", "--depth", "1", "origin", sample.commit])
    return place


def _environment(sample: Sample) -> Path:
    """Return the Python of the sample's environment, which rows with the same packages share."""
    packages = sample.packages
    key = hashlib.sha256("\n".join((_PYTHON, *packages.requirements)).encode()).hexdigest()[:12]
    place = (STATE / "bench" / "samples" / f"{packages.name}-{key}").absolute()
    python = place / "bin" / "python"
    if not (place / "complete").exists():
        shutil.rmtree(place, ignore_errors=True)
        _run(["uv", "venv", "--quiet", "--python", _PYTHON, str(place)])
        for group in packages.groups():
            _run(["uv", "pip", "install", "--quiet", "--python", str(python), *group])
        (place / "complete").touch()
    return python


def _broken(sample: Sample, folder: Path) -> str:
    """Break the sample's resume, and return its command."""
    edit = sample.broken
    if edit.file is None:
        return _edited(edit, sample.command)
    path = folder / edit.file
    path.write_text(_edited(edit, path.read_text()))
    return sample.command


def _edited(edit: Edit, text: str) -> str:
    changed, count = re.subn(edit.pattern, edit.replacement, text, flags=re.MULTILINE)
    if count != edit.times:
        raise SampleError(f"{edit.pattern!r} was found {count} times, expected {edit.times}")
    return changed


def _rehearse(sample: Sample, command: str, folder: Path, *, python: Path, rehearse: Sequence[str]) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= _CALM | dict(sample.variables)
    environment |= {
        "VIRTUAL_ENV": str(python.parent.parent),
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
    }
    options = ["--json", "--checkpoints", sample.checkpoints, *sample.losses, "--timeout", "10m"]
    done = subprocess.run(
        [*_absolute(rehearse), *options, "--", "bash", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        document: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise SampleError(
            f"no report (exit code {done.returncode}): {done.stdout[-2000:]}{done.stderr[-2000:]}"
        ) from None
    return document


def _absolute(command: Sequence[str]) -> list[str]:
    """Return the command with its program's path, since the sample's own programs come first on its PATH."""
    found = shutil.which(command[0])
    if found is None:
        raise SampleError(f"{command[0]} was not found on PATH; --rehearse names another command")
    return [found, *command[1:]]


def _run(command: Sequence[str], *, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SampleError(f"{shlex.join(command)} failed:\n{(done.stderr or done.stdout)[-2000:].strip()}")
    return done.stdout


def _table(seen: Sequence[Seen]) -> Any:
    table = report.table("sample", "framework", "resume", "expected", "verdict", "seconds", justify="left")
    for each in seen:
        table.add_row(
            each.sample.name,
            each.sample.framework,
            "broken" if each.broken else "as it is",
            each.expected,
            each.verdict if each.is_right else f"{each.verdict} (wrong)",
            f"{each.seconds:.0f}",
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
