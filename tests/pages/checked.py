"""Command lines of pages that no test runs, held against the programs that they name.

A line of `spotkeep` is read by its own parser, a line of `aws` by the AWS command line up to the request, which is not
sent. A target of make, a setting of `cdk` and an extra of the wheel have to exist. Other programs stand in a list.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from unittest import mock

import typer.main
from typer.core import TyperCommand

from spotkeep_cli.main import app
from spotkeep_rehearsal.command import _parser as rehearsal_parser
from tests.pages.shown import Block

PROJECT = Path(__file__).parents[2]
_COMMANDS: Final = typer.main.get_command(app)
_EXTRAS: Final = set(tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
_TARGETS: Final = dict(
    re.findall(r"^([a-z-]+):.*\n((?:\t.*\n|.*\\\n)*)", (PROJECT / "Makefile").read_text(), flags=re.MULTILINE)
)
_SETTINGS: Final = {
    field.target.id
    for model in ast.parse((PROJECT / "constructs/spotkeep_constructs/settings.py").read_text()).body
    if isinstance(model, ast.ClassDef) and model.name == "Settings"
    for field in model.body
    if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
}
"""Read from the source, because the CDK takes seconds to import."""
_OPERATORS: Final = set("&|;<>()\n")
_WORDS_OF_BASH: Final = {"do", "done", "while", "if", "then", "fi"}
_OTHER_PROGRAMS: Final = {
    ".", "[", "base64", "cat", "cd", "chmod", "cp", "curl", "docker", "eval", "exec", "export", "findmnt", "git",
    "grep", "hostname", "jq", "ln", "ls", "mkdir", "nvidia-smi", "printf", "ps", "pytest", "python", "python3",
    "sha256sum", "source", "sudo", "tensorboard", "twine",
}  # fmt: skip
"""The programs that pages name and that are not checked."""


def problems_of(block: Block, *, files: Mapping[str, str]) -> list[str]:
    """Return the faults in the commands of a block.

    Args:
        block: The block.
        files: The files that the page shows, by their names.
    """
    commands = [shown.command for shown in block.commands() if shown.command]
    for name, content in files.items():
        commands = [command.replace(f"file://{name}", shlex.quote(content)) for command in commands]
    return [problem for command in commands for problem in problems_of_command(command)]


def problems_of_command(command: str) -> list[str]:
    """Return the faults in a line for a shell, which may hold several commands."""
    read = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True, check=False)
    if read.returncode:
        return [f"bash does not read {command}: {read.stderr.strip()}"]
    inner = re.findall(r"\$\(([^()]*)\)", command)
    problems = [problem for each in inner for problem in problems_of_command(each)]
    for words in _simple_commands(re.sub(r"\$\(([^()]*)\)", "substituted", command)):
        if not words:
            continue
        program = words[0].rpartition("/")[2]
        check = _CHECKS.get(program)
        if check is not None:
            problems += [f"{shlex.join(words)}: {problem}" for problem in check(words)]
        elif program not in _OTHER_PROGRAMS:
            problems.append(f"{program} is not among the programs of pages (tests/pages/checked.py)")
    return problems


def _simple_commands(command: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.whitespace_split = " \t", True
    words: list[str] = []
    skipped = False
    for word in lexer:
        if word and set(word) <= _OPERATORS:
            if word[-1] in "<>":
                skipped = True
                continue
            if words:
                yield words
            words = []
        elif skipped:
            skipped = False
        elif words or not (word in _WORDS_OF_BASH or re.fullmatch(r"[A-Za-z_]+=.*", word)):
            words.append(word)
    if words:
        yield words


def _spotkeep(words: Sequence[str]) -> list[str]:
    """Let the parser of `spotkeep` read a line, and do nothing."""
    if "cdk" in words[1:3]:
        return _cdk(words)
    if words[1:2] == ["rehearse"] and "--" in words:
        try:
            rehearsal_parser().parse_args(list(words[2 : words.index("--")]))
        except ValueError as error:
            return [str(error)]
        return []
    said = io.StringIO()
    read: list[str] = []

    def invoke(command: TyperCommand, _: object) -> None:
        read.append(str(command.name))

    with (
        mock.patch.object(TyperCommand, "invoke", invoke),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
    ):
        try:
            _COMMANDS.main(list(words[1:]), prog_name="spotkeep")
        except SystemExit as ended:
            return [] if ended.code in {0, None} else [said.getvalue().strip()]
    return []


def _cdk(words: Sequence[str]) -> list[str]:
    given = [after.partition("=")[0] for option, after in pairwise(words) if option == "-c"]
    return [f"{name} is no setting" for name in given if name not in _SETTINGS]


def _make(words: Sequence[str]) -> list[str]:
    problems = []
    for word in words[1:]:
        name, assigned, _ = word.partition("=")
        if not assigned and name not in _TARGETS:
            problems.append(f"the Makefile has no target {name}")
        elif assigned and name not in {"PYTHON", "WORKERS"}:
            recipes = "".join(_TARGETS.get(target, "") for target in words[1:])
            problems += [] if f"$({name})" in recipes else [f"the target uses no {name}"]
    return problems


def _installed(words: Sequence[str]) -> list[str]:
    asked = [
        extra for word in words for found in re.findall(r"^spotkeep\[([\w,]+)\]", word) for extra in found.split(",")
    ]
    problems = [f"the wheel has no extra {extra}" for extra in asked if extra not in _EXTRAS]
    if words[0] == "uvx":
        program = next((k for k, word in enumerate(words) if k and not word.startswith("-")), None)
        if program is not None and words[program].partition("@")[0] == "spotkeep":
            problems += _spotkeep(["spotkeep", *words[program + 1 :]])
    return problems


@cache
def _models_of_aws() -> Any:
    """The models of AWS's services, and the texts of its command line. Sessions of these tests share other models."""
    import awscli
    from botocore.loaders import create_loader

    return create_loader(str(Path(awscli.__file__).parent / "data"))


def _aws(words: Sequence[str]) -> list[str]:
    """Read a line of `aws`, and check its request against AWS's model of the service. Nothing is sent."""
    from awscli.clidriver import create_clidriver
    from botocore.awsrequest import AWSResponse

    # Version 1 of the command line, which is the one of the package index, takes blobs as they are and has no option.
    asked = " ".join(shlex.quote(word) for word in words[1:]).replace(" --cli-binary-format raw-in-base64-out", "")
    asked = re.sub(r"file://\S+", "{}" if "json" in asked else "text", asked)
    sent: list[str] = []

    def answer(model: Any, **_: Any) -> Any:
        sent.append(model.name)
        return AWSResponse("", 200, {}, None), {"ResponseMetadata": {}}

    driver = create_clidriver()
    driver.session.register_component("data_loader", _models_of_aws())
    driver.session.register("before-call", answer)
    driver.session.set_config_variable("region", "us-east-1")
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        driver.main(shlex.split(asked))
    return [] if sent or words[1] == "s3" else [said.getvalue().strip().splitlines()[-1]]


_CHECKS: Final[dict[str, Callable[[Sequence[str]], list[str]]]] = {
    "aws": _aws,
    "cdk": _cdk,
    "make": _make,
    "pip": _installed,
    "pipx": _installed,
    "spotkeep": _spotkeep,
    "uv": _installed,
    "uvx": _installed,
}
os.environ.setdefault("AWS_REGION", "us-east-1")
