"""The `docker` of an instance with an AMI that has one. It is no container runtime, but acts as docker for the agent.

An image is this machine's files, with the local AWS's environment as its Python. `run` starts the command as a process
of the host, with the mounts, environment, user, signals and exit codes of a container. In a host with namespaces the
command is process 1 of a process namespace. Of `/home`, `/opt`, `/root`, `/run` and `/tmp` it sees the mounted parts
and nothing else. Where hosts are process groups, it is a session of its own, and a mount has to be at its own path. As
with docker, a container outlives the command that runs it, and `rm --force` ends it.

It knows the commands and options that the agent uses, and refuses all others. docs/local-fleets.md lists the
differences from docker.

Sources: `docker login`, `pull`, `run`, `rm`, `info` in Docker's command-line reference, and "Exit status" there.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import hashlib
import json
import os
import shutil
import signal
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from spotkeep_local.hosts import boot
from spotkeep_local.hosts.process_identity import start_time

_ROOT_VARIABLE = "SPOTKEEP_LOCAL_INSTANCE_ROOT"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NOT_OF_AN_IMAGE = ("/home", "/opt", "/root", "/run", "/tmp")  # noqa: S108 - what is hidden, not used
_FAILED, _CANNOT_RUN, _CANNOT_EXECUTE, _NOT_FOUND = 1, 125, 126, 127
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_REMOVAL_SECONDS = 10.0


def main(words: Sequence[str]) -> int:
    """Run the command of these words. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="docker", allow_abbrev=False)
    verbs = parser.add_subparsers(dest="verb", required=True)
    info = verbs.add_parser("info")
    info.add_argument("--format", choices=["{{json .Runtimes}}"], required=True)
    login = verbs.add_parser("login")
    login.add_argument("--username", required=True)
    login.add_argument("--password-stdin", action="store_true", required=True)
    login.add_argument("registry")
    verbs.add_parser("pull").add_argument("image")
    remove = verbs.add_parser("rm")
    remove.add_argument("--force", action="store_true", required=True)
    remove.add_argument("name")
    _add_run(verbs.add_parser("run"))
    given = parser.parse_args(words)
    state = Path(os.environ.get(_ROOT_VARIABLE, "/")) / "run/docker"
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    match given.verb:
        case "info":
            print(json.dumps({"nvidia": {}, "runc": {}}))
            return 0
        case "login":
            return _login(given)
        case "pull":
            return _pull(given.image, state)
        case "rm":
            return _remove(given.name, state)
        case _:
            return _run(given, state)


def _add_run(run: argparse.ArgumentParser) -> None:
    run.add_argument("--rm", action="store_true", required=True)
    for name, value in (("pull", "never"), ("log-driver", "none"), ("network", "host"), ("userns", "host"),
                        ("cap-drop", "ALL"), ("security-opt", "no-new-privileges"), ("gpus", "all")):  # fmt: skip
        run.add_argument(f"--{name}", choices=[value], required=name != "gpus")
    for name in ("ulimit", "shm-size", "stop-timeout"):
        run.add_argument(f"--{name}", action="append")
    run.add_argument("--mount", action="append", type=_Mount, default=[])
    for name in ("name", "user", "workdir", "entrypoint"):
        run.add_argument(f"--{name}", required=True)
    run.add_argument("image")
    run.add_argument("arguments", nargs=argparse.REMAINDER)


class _Mount:
    def __init__(self, text: str) -> None:
        fields = dict(field.partition("=")[::2] for field in text.split(","))
        if fields.pop("type") != "bind":
            raise ValueError(text)
        self.source, self.target = Path(fields.pop("source")), Path(fields.pop("target"))
        self.readonly = fields.pop("readonly", None) is not None
        if fields:
            raise ValueError(text)


def _login(given: argparse.Namespace) -> int:
    password = sys.stdin.read().strip()
    if not password:
        return _refuse(f"login attempt to https://{given.registry}/v2/ failed with status: 401 Unauthorized")
    folder = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    folder.mkdir(mode=0o700, exist_ok=True)
    auth = base64.b64encode(f"{given.username}:{password}".encode()).decode()
    file = folder / "config.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps({"auths": {given.registry: {"auth": auth}}}))
    print("Login Succeeded")
    return 0


def _pull(image: str, state: Path) -> int:
    registry = image.partition("/")[0]
    config = Path(os.environ.get("DOCKER_CONFIG", "/nowhere")) / "config.json"
    logged_in = config.exists() and registry in json.loads(config.read_text())["auths"]
    if ".dkr.ecr." in registry and not logged_in:
        return _refuse(f'Head "https://{image}": no basic auth credentials')
    _image_mark(image, state).touch()
    print(f"Digest: sha256:{hashlib.sha256(image.encode()).hexdigest()}")
    print(f"Status: Downloaded newer image for {image}")
    return 0


def _image_mark(image: str, state: Path) -> Path:
    return state / f"image-{hashlib.sha256(image.encode()).hexdigest()}"


def _remove(name: str, state: Path) -> int:
    file = state / f"container-{name}"
    try:
        process = int(file.read_text())
    except FileNotFoundError:
        return _refuse(f"No such container: {name}")
    ends = time.monotonic() + _REMOVAL_SECONDS
    while start_time(process) is not None and time.monotonic() < ends:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)
        time.sleep(0.01)
    file.unlink(missing_ok=True)
    print(name)
    return 0


def _run(given: argparse.Namespace, state: Path) -> int:
    if not _image_mark(given.image, state).exists():
        return _refuse(f"No such image: {given.image}", code=_CANNOT_RUN)
    file = state / f"container-{given.name}"
    if file.exists() and start_time(int(file.read_text())) is not None:
        return _refuse(f"Conflict. The container name {given.name} is already in use", code=_CANNOT_RUN)
    in_namespaces = _ROOT_VARIABLE not in os.environ
    for mount in given.mount:
        problem = None
        if not mount.source.exists():
            problem = f"bind source path does not exist: {mount.source}"
        elif not in_namespaces and mount.source != mount.target:
            problem = f"on a host without namespaces nothing is mounted elsewhere: {mount.target}"
        if problem:
            return _refuse(f'invalid mount config for type "bind": {problem}', code=_CANNOT_RUN)
    # Blocked until this process passes them on: one that comes before is for the container as well.
    signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
    if in_namespaces:
        boot.unshare(boot.CLONE_NEWPID)
    container = os.fork()
    if container == 0:
        _be_the_container(given, in_namespaces=in_namespaces)
    file.write_text(str(container))
    for number in _PASSED_ON:
        signal.signal(number, lambda number, _: _pass_on(container, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    _, status = os.waitpid(container, 0)
    file.unlink(missing_ok=True)
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def _pass_on(container: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(container, number)


def _be_the_container(given: argparse.Namespace, *, in_namespaces: bool) -> NoReturn:
    """Become the container's first process."""
    code = _CANNOT_RUN
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
        # Python ignores it, and what is executed would, too.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        if in_namespaces:
            _show_what_is_mounted(given.mount)
        uid, gid = (int(number) for number in given.user.split(":"))
        os.chdir(given.workdir)
        if os.geteuid() == 0 and uid != 0:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
        if sys.platform == "linux":
            boot.give_up_new_privileges()
        environment = _environment_of_the_image(os.environ)
        program = shutil.which(given.entrypoint, path=environment["PATH"])
        if program is None:
            code = _NOT_FOUND
            raise OSError(f'exec: "{given.entrypoint}": executable file not found in $PATH')  # noqa: TRY301
        code = _CANNOT_EXECUTE
        os.execve(program, [given.entrypoint, *given.arguments], environment)  # noqa: S606 - without one, as docker
    except (OSError, ValueError) as error:
        _refuse(f"failed to create task for container: {error}: unknown", code=code)
    os._exit(code)


def _environment_of_the_image(inherited: Mapping[str, str]) -> dict[str, str]:
    # The marks of the host, by which all that it started is found and ended.
    marks = {name: inherited[name] for name in (boot.MARK, _ROOT_VARIABLE) if name in inherited}
    return {"PATH": f"{Path(sys.prefix) / 'bin'}:{_SYSTEM_PATH}", "HOME": "/", **marks}


def _show_what_is_mounted(mounts: Sequence[_Mount]) -> None:
    boot.unshare(boot.CLONE_NEWNS)
    boot.mount("none", "/", None, boot.MS_REC | boot.MS_PRIVATE)
    python = [path for path in sorted({sys.prefix, sys.base_prefix}) if path.startswith(_NOT_OF_AN_IMAGE)]
    shown = (*(_Mount(f"type=bind,source={path},target={path}") for path in python), *mounts)
    # Opened first: once a folder is hidden, paths through it lead nowhere, descriptors do not.
    opened = [(mount, os.open(mount.source, os.O_PATH)) for mount in shown]
    for folder in _NOT_OF_AN_IMAGE:
        if Path(folder).is_dir():
            mode = "1777" if folder == "/tmp" else "0755"  # noqa: S108
            boot.mount("tmpfs", folder, "tmpfs", 0, f"mode={mode}")
    for mount, descriptor in opened:
        target = mount.target
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        boot.mount(f"/proc/self/fd/{descriptor}", target, None, boot.MS_BIND | boot.MS_REC)
        if mount.readonly:
            boot.mount("none", target, None, boot.MS_BIND | boot.MS_REMOUNT | boot.MS_RDONLY)
        os.close(descriptor)
    boot.mount("proc", "/proc", "proc", boot.MS_NOSUID | boot.MS_NODEV | boot.MS_NOEXEC)


def _refuse(why: str, *, code: int = _FAILED) -> int:
    before = "docker: " if code != _FAILED else ""
    print(f"{before}Error response from daemon: {why}", file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
