"""Mutates the deciding code, runs its near tests and lists surviving mutants (``python -m benchmarks.mutation``).

mutmut wants a package below ``src/``. So this copies the functions' library and the tests to a tree of their own below
``.spotkeep/mutation``. The tree keeps the results of unchanged functions from run to run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).parents[1]
TREE: Final = PROJECT / ".spotkeep" / "mutation"
LIBRARY: Final = "spotkeep_jobs"
DECIDES: Final = (
    "backends/batch/attempt_view.py",
    "backends/ec2/attempt_view.py",
    "backends/backend.py",
    "cost/run_cost.py",
    "document/capacity.py",
    "document/command.py",
    "document/fleet.py",
    "document/image.py",
    "document/metrics.py",
    "document/queue.py",
    "document/source.py",
    "document/spending.py",
    "document/times.py",
    "orphans/decisions.py",
    "pools/matching.py",
    "pools/warm_pool.py",
    "progress/progress.py",
    "runs/callers.py",
    "runs/ending.py",
    "runs/launch_completion.py",
    "runs/rules.py",
    "runs/steering.py",
    "runs/transition.py",
    "sweeps/decision.py",
    "sweeps/search/search.py",
    "sweeps/search/tpe_request.py",
)
"""The mutated modules, below the library."""
NEAR_TESTS: Final = (
    *(
        f"tests/{LIBRARY}/{folder}"
        for folder in ("backends", "cost", "document", "orphans", "pools", "progress", "runs", "sweeps")
    ),
    "tests/search",
)
"""Tests that may notice a mutant, those of the library and of the function that searches."""
LEFT_OUT: Final = "not AnyOrder and not no_adversary and not whatever"
"""Tests that generate many examples, which would run for each mutant."""
_MOST_MEMORY_BYTES: Final = 4 * 2**30
"""Memory limit of each process in bytes, since a mutant may loop and fill a list."""
_NO_TEST: Final = 33
"""The result that mutmut writes for a mutant that no test calls."""
_SHOW: Final = """
import json, sys
from mutmut.mutation.diff_apply import get_diff_for_mutant
print(json.dumps({name: get_diff_for_mutant(name) for name in sys.stdin.read().split()}))
"""
_SETTINGS: Final = """

[tool.mutmut]
source_paths = ["src"]
only_mutate = {only}
also_copy = ["training"]
track_dependencies = false
use_setproctitle = false
timeout_multiplier = 60.0
timeout_constant = 30.0
pytest_add_cli_args = ["-p", "no:cacheprovider", "--hypothesis-profile", "mutant", "-k", "{left_out}"]
pytest_add_cli_args_test_selection = {tests}
"""


def main() -> int:
    """Run the mutants, print and write those that survive. Return 1 when the list to compare with lacks one."""
    options = _options()
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))
    _make_tree()
    names = _mutants(one_in=options.one_in, only=options.only)
    _mutmut("run", "--max-children", str(options.processes), *names)
    survivors = _surviving()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in survivors))
    known = set()
    if options.against is not None:
        known = {_identity(json.loads(line)) for line in options.against.read_text().splitlines()}
    new = [each for each in survivors if _identity(each) not in known]
    for each in new:
        print(f"{each['module']} {each['function']}\n{each['change']}\n")
    print(f"{len(survivors)} mutants survive, {len(new)} of them new. All: {options.output}")
    return 1 if new and options.against is not None else 0


def _make_tree() -> None:
    """Copy the files that changed since the last run, since mutmut goes by the times of files."""
    present = [glob for glob in DECIDES if list((PROJECT / "lambda" / LIBRARY).glob(glob))]
    if len(present) != len(DECIDES):
        sys.exit(f"Nothing matches {sorted(set(DECIDES) - set(present))}: correct DECIDES in {__file__}")
    for source, target in (("lambda/" + LIBRARY, "src/" + LIBRARY), ("tests", "tests")):
        shutil.rmtree(TREE / target, ignore_errors=True)
        shutil.copytree(PROJECT / source, TREE / target, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(TREE / "mutants" / "tests", ignore_errors=True)
    (TREE / "training").unlink(missing_ok=True)
    (TREE / "training").symlink_to(PROJECT / "training")
    settings = _SETTINGS.format(
        only=json.dumps([f"src/{LIBRARY}/{glob}" for glob in DECIDES]),
        left_out=LEFT_OUT,
        tests=json.dumps(NEAR_TESTS),
    )
    (TREE / "pyproject.toml").write_text((PROJECT / "pyproject.toml").read_text() + settings)


def _mutants(*, one_in: int, only: Sequence[str]) -> list[str]:
    """Return the mutants to run, patterns among them. An empty list stands for all of them.

    A sample holds the same mutants of a function as long as the function does not change.

    Args:
        one_in: One mutant in so many.
        only: The modules, below the library, or none for all of them.
    """
    if one_in == 1:
        return [f"{LIBRARY}.{module}.*" for module in only]
    _mutmut("run", "--max-children", "1", f"{LIBRARY}.sweeps.search.tpe_request*")
    prefixes = tuple(f"{LIBRARY}.{module}." for module in only) or ("",)
    return [name for name in _statuses() if name.startswith(prefixes) and _draw(name) % one_in == 0]


def _draw(name: str) -> int:
    """Draw a number for a mutant from its function's name and its place there. A move to another module keeps it."""
    return int(hashlib.sha256(name.rpartition(".")[2].encode()).hexdigest(), 16)


def _statuses() -> dict[str, int | None]:
    """Return the end of pytest with each mutant, by the mutant's name, or None where it has not run."""
    found: dict[str, int | None] = {}
    for path in sorted((TREE / "mutants" / "src").rglob("*.py.meta")):
        found |= json.loads(path.read_text())["exit_code_by_key"]
    return found


def _surviving() -> list[dict[str, str]]:
    """Return the change and the place of each mutant that survives or that no test calls."""
    names = [name for name, exit_code in _statuses().items() if exit_code in (0, _NO_TEST)]
    done = subprocess.run(
        [sys.executable, "-c", _SHOW], cwd=TREE, check=True, text=True, input="\n".join(names), stdout=subprocess.PIPE
    )
    return [_described(name, shown) for name, shown in json.loads(done.stdout).items()]


def _described(name: str, shown: str) -> dict[str, str]:
    change = [line for line in shown.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    module, _, mangled = name.rpartition(".")
    function = mangled.partition("__mutmut_")[0].removeprefix("x").strip("_ǁ").replace("ǁ", ".")
    return {"module": module, "function": function, "change": "\n".join(" ".join(line.split()) for line in change)}


def _identity(mutant: dict[str, str]) -> tuple[str, str]:
    """Return a mutant's identity, which stays the same when its function moves to another module."""
    return mutant["function"], mutant["change"]


def _mutmut(*arguments: str) -> None:
    done = subprocess.run([str(Path(sys.prefix) / "bin" / "mutmut"), *arguments], cwd=TREE, check=False)
    if done.returncode:
        sys.exit(done.returncode)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutation", description=__doc__)
    parser.add_argument("--one-in", type=int, default=1, help="run one mutant in so many (default 1: every one)")
    parser.add_argument("--only", action="append", default=[], metavar="MODULE", help="for example runs.transition")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--against", type=Path, help="an earlier list: print only what it lacks, and fail on it")
    parser.add_argument("--output", type=Path, default=PROJECT / ".spotkeep" / "mutation" / "survivors.jsonl")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
