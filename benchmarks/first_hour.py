"""The commands of docs/first-hour.md, timed in an empty home with the built wheel, beside the install of two launchers.

Nothing of the checkout is used but the page and the built files. The folder lies outside of the checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import paired

PROJECT = Path(__file__).resolve().parents[1]
PAGE = PROJECT / "docs" / "first-hour.md"
TARGETS_SECONDS = {"A verdict without a deployment": 30.0, "A verdict with a deployment": 120.0}
"""The longest time from an empty folder to a verdict, the wheel's download in it."""
TARGET_HELP_RATIO = 1.5
"""The longest `spotkeep --help`, as a share of the help of an empty typer app."""
CONTENDERS = {"sky": "skypilot", "dstack": "dstack"}

_EMPTY_APP = """import typer
app = typer.Typer()
@app.command()
def one(): "Does one thing."
@app.command()
def two(): "Does another."
app(prog_name="empty")
"""
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One command of the page.

    Attributes:
        stage: The heading that it stands below.
        command: The command, as it is typed.
    """

    stage: str
    command: str


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A command that was run.

    Attributes:
        step: The command.
        seconds: Its time.
        exit_code: Its exit code.
    """

    step: Step
    seconds: float
    exit_code: int


def read_page(text: str) -> tuple[str, list[Step]]:
    """Return the script of a page and its commands, in order."""
    [script] = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    steps = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading = section.partition("\n")[0]
        for block in re.findall(r"```console\n(.*?)```", section, flags=re.DOTALL):
            steps += [Step(stage=heading, command=line[2:]) for line in block.splitlines() if line.startswith("$ ")]
    return script, steps


def environment(home: Path, *, dist: Path) -> dict[str, str]:
    """Return the environment of a person with an empty home. Only how an index is reached comes from this machine.

    Args:
        home: The empty home.
        dist: The folder of the built wheel, which pip finds beside its index.
    """
    reaching = (
        "PIP_",
        "UV_INDEX",
        "npm_config_registry",
        "SSL_",
        "NODE_EXTRA",
        "REQUESTS_CA",
        "HTTP",
        "http",
        "NO_PROXY",
        "no_proxy",
        "LANG",
    )
    kept = {name: value for name, value in os.environ.items() if name.startswith(reaching) and name != "PIP_CACHE_DIR"}
    npm = Path.home() / ".npmrc"
    links = " ".join(filter(None, (str(dist), os.environ.get("PIP_FIND_LINKS"))))
    return {
        **kept,
        **({"npm_config_userconfig": str(npm)} if npm.exists() else {}),
        "HOME": str(home),
        "PATH": _SYSTEM_PATH,
        "PIP_FIND_LINKS": links,
    }


def run_steps(steps: Sequence[Step], *, folder: Path, variables: dict[str, str]) -> list[Timed]:
    """Run commands one after the other in one shell, and time each. A failure does not end the others."""
    times = folder / ".times"
    lines = ["exec 3>" + shlex.quote(str(times))]
    for step in steps:
        lines += [
            f"printf '\\n$ %s\\n' {shlex.quote(step.command)}",
            "begun=$(date +%s.%N)",
            step.command,
            'code=$?; echo "$code $begun $(date +%s.%N)" >&3',
        ]
    subprocess.run(["bash", "-c", "\n".join(lines)], cwd=folder, env=variables, stdin=subprocess.DEVNULL, check=False)
    timed = []
    for step, line in zip(steps, times.read_text().splitlines(), strict=True):
        code, begun, ended = line.split()
        timed.append(Timed(step=step, seconds=float(ended) - float(begun), exit_code=int(code)))
    return timed


def help_ratio(python: Path, *, folder: Path, variables: dict[str, str], rounds: int) -> dict[str, Any]:
    """Time `spotkeep --help` and the help of an empty typer app in turn, in the environment of the page."""
    empty = folder / "empty.py"
    empty.write_text(_EMPTY_APP)
    ours, bare = paired.in_turn(
        paired.process([str(python.with_name("spotkeep")), "--help"], environment=variables, directory=folder),
        paired.process([str(python), str(empty), "--help"], environment=variables, directory=folder),
        rounds=rounds,
    )
    ratio = ours.median / bare.median
    return {
        "spotkeep": ours.to_document(),
        "empty_typer_app": bare.to_document(),
        "ratio": round(ratio, 2),
        "target": TARGET_HELP_RATIO,
        "met": ratio <= TARGET_HELP_RATIO,
    }


def contender(program: str, package: str, *, folder: Path, variables: dict[str, str], rounds: int) -> dict[str, Any]:
    """Install a launcher as its page says, and time that and its help."""
    place = folder / package
    commands = [
        Step(stage=package, command=f"python3 -m venv {shlex.quote(str(place))}"),
        Step(stage=package, command=f"{shlex.quote(str(place))}/bin/pip install --quiet {package}"),
        Step(stage=package, command=f"{shlex.quote(str(place))}/bin/{program} --help >/dev/null"),
    ]
    made, installed, first = run_steps(commands, folder=folder, variables=variables)
    if installed.exit_code or first.exit_code:
        return {"package": package, "installed": False}
    again = []
    for _ in range(rounds):
        started = time.perf_counter()
        subprocess.run(
            [place / "bin" / program, "--help"], env=variables, cwd=folder, stdout=subprocess.DEVNULL, check=False
        )
        again.append(time.perf_counter() - started)
    return {
        "package": package,
        "installed": True,
        "install_s": round(made.seconds + installed.seconds, 1),
        "first_help_s": round(first.seconds, 2),
        "help": paired.Seconds(rounds=tuple(again)).to_document(),
    }


def measure(*, rounds: int, dist: Path) -> dict[str, Any]:
    """Run the page and what stands beside it, and return the figures."""
    script, steps = read_page(PAGE.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="first-hour-") as scratch:
        home, folder = Path(scratch, "home"), Path(scratch, "work")
        home.mkdir()
        folder.mkdir()
        (folder / "train.py").write_text(script)
        variables = environment(home, dist=dist)
        timed = run_steps(steps, folder=folder, variables=variables)
        helps = help_ratio(folder / ".venv" / "bin" / "python", folder=folder, variables=variables, rounds=rounds)
        others = [
            contender(program, package, folder=folder, variables=variables, rounds=rounds)
            for program, package in CONTENDERS.items()
        ]
    stages: dict[str, float] = {}
    for each in timed:
        stages[each.step.stage] = stages.get(each.step.stage, 0.0) + each.seconds
    return {
        "steps": [
            {
                "stage": each.step.stage,
                "command": each.step.command,
                "s": round(each.seconds, 1),
                "exit_code": each.exit_code,
            }
            for each in timed
        ],
        "stages_s": {name: round(seconds, 1) for name, seconds in stages.items()},
        "targets_s": TARGETS_SECONDS,
        "met": {name: stages[name] <= most for name, most in TARGETS_SECONDS.items()},
        "help": helps,
        "beside": others,
    }


def show(figures: dict[str, Any]) -> None:
    """Print the figures as tables."""
    print("\nThe first hour, command by command")
    for step in figures["steps"]:
        failed = f"  exit code {step['exit_code']}" if step["exit_code"] else ""
        print(f"  {step['s']:7.1f} s  {step['command']}{failed}")
    print("\nBy stage")
    for name, seconds in figures["stages_s"].items():
        most = figures["targets_s"].get(name)
        goal = "" if most is None else f"  at most {most:.0f} s: {'met' if seconds <= most else 'not met'}"
        beside = [
            f"{seconds / each['install_s']:.2f} of {each['package']}'s install"
            for each in figures["beside"]
            if each["installed"]
        ]
        print(f"  {seconds:7.1f} s  {name}{goal}{'  (' + ', '.join(beside) + ')' if most else ''}")
    helps = figures["help"]
    print(
        f"\nspotkeep --help: {helps['spotkeep']['median_s']:.2f} s, {helps['ratio']:.2f} of an empty typer app's; "
        f"at most {helps['target']}: {'met' if helps['met'] else 'not met'}"
    )
    for each in figures["beside"]:
        if each["installed"]:
            print(f"{each['package']}: install {each['install_s']:.1f} s, --help {each['help']['median_s']:.2f} s")
        else:
            print(f"{each['package']}: not installed here; the index or the network did not give it")


def main() -> int:
    """Measure, print and write. The exit code is 1 where a command of the page failed or a target was not met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_hour", description=__doc__)
    parser.add_argument("--dist", type=Path, required=True, help="the folder of the built wheel")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each --help (default 5)")
    parser.add_argument("--output", type=Path, default=PROJECT / ".spotkeep" / "bench" / "first-hour.json")
    options = parser.parse_args()
    figures = measure(rounds=options.rounds, dist=options.dist.resolve())
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(figures, indent=2) + "\n")
    show(figures)
    failed = [step["command"] for step in figures["steps"] if step["exit_code"]]
    return 1 if failed or not all(figures["met"].values()) or not figures["help"]["met"] else 0


if __name__ == "__main__":
    sys.exit(main())
