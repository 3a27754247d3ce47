"""Gives a job its own `/opt/ml` and becomes the job: a program, run once for each process of a job.

It makes a private mount namespace, shows the job's directory at `/opt/ml` there, and executes the command. The
machine's own `/opt` stays as it is: where it has no `ml`, an empty file system with links to everything in the
real one covers it, in this namespace alone, so nothing is ever created on the machine.

Where it is root, the job keeps of root's capabilities those that a container has: it mounts nothing, loads no module,
reads no other process.

Usage: `python -I -S enter_host.py OPT_ML_DIRECTORY WORKING_DIRECTORY COMMAND [ARGUMENT ...]`

It runs without our packages on its path, so it imports the standard library alone.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path

NAMESPACE_REFUSED = 125
COMMAND_NOT_FOUND = 127

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_PRIVATE = 0x40000
_PR_CAPBSET_DROP = 24
_CAPABILITIES = 64
# chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw, sys_chroot, mknod,
# audit_write, setfcap: what Docker leaves to a container's root, which a training job is on AWS.
_OF_A_CONTAINER = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str | None, flags: int) -> None:
    result = _libc().mount(
        source.encode(), target.encode(), kind.encode() if kind else None, ctypes.c_ulong(flags), None
    )
    _check(result, f"mount {source} on {target}")


def _unshare_mounts() -> None:
    uid, gid = os.getuid(), os.getgid()
    if _libc().unshare(_CLONE_NEWNS) != 0:
        _check(_libc().unshare(_CLONE_NEWUSER | _CLONE_NEWNS), "unshare")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)


def _show_at_opt_ml(directory: str) -> None:
    # Opened first: once /opt is covered, paths through it lead elsewhere, descriptors do not.
    opt = os.open("/opt", os.O_RDONLY | os.O_DIRECTORY)
    own = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    if not Path("/opt/ml").is_dir():
        entries = os.listdir(opt)  # noqa: PTH208 - of a descriptor, not a path
        _mount("tmpfs", "/opt", "tmpfs", 0)
        for name in entries:
            _show_again(f"/proc/self/fd/{opt}/{name}", f"/opt/{name}")
        Path("/opt/ml").mkdir()
    _mount(f"/proc/self/fd/{own}", "/opt/ml", None, _MS_BIND)
    os.close(opt)
    os.close(own)


def _show_again(source: str, target: str) -> None:
    if Path(source).is_symlink():
        Path(target).symlink_to(Path(source).readlink())
        return
    if Path(source).is_dir():
        Path(target).mkdir()
    else:
        Path(target).touch()
    _mount(source, target, None, _MS_BIND | _MS_REC)


def _drop_capabilities() -> None:
    if os.geteuid() != 0:
        return  # A user's process loses what it has in its namespace when it executes the command.
    for capability in range(_CAPABILITIES):
        if capability not in _OF_A_CONTAINER and _libc().prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            if ctypes.get_errno() == errno.EINVAL:
                return  # The kernel knows no more of them.
            _check(-1, f"drop capability {capability}")


def main(arguments: list[str]) -> int:
    """Enters the namespace and executes the command; comes back only when either fails."""
    opt_ml, working_directory, *command = arguments
    try:
        _unshare_mounts()
        _show_at_opt_ml(opt_ml)
        _drop_capabilities()
    except OSError as error:
        print(f"no private /opt/ml on this machine: {error}", file=sys.stderr)
        return NAMESPACE_REFUSED
    os.chdir(working_directory)
    try:
        os.execvp(command[0], command)  # noqa: S606 - the whole point
    except OSError as error:
        print(f"exec {command[0]!r}: {error.strerror}", file=sys.stderr)
    return COMMAND_NOT_FOUND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
