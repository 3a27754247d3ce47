"""Runs a host's command and ties all processes that it starts to the server. One such program runs for each host.

A training job's host is a process group, and so is an instance's where the machine allows no namespaces. The command
runs in its own session. One of several hosts enters the network that the server made for it, with a host name of its
own. Where directories of its own are asked for, they are mounted in a mount namespace. A mount
point may be missing on the machine. Then an empty file system with all entries of the real parent covers the parent, in
the namespace alone. A confined command as root keeps only those of root's capabilities that a container has. It mounts
nothing, loads no module, and reads no other process.

An instance's host elsewhere has network, mount, process, host name and message namespaces of its own. This program is
process 1 in them and does the following.

- It listens on 169.254.169.254:80, for which its own routing rules are asked before its own addresses, as for an
  outside address.

- It listens on the port of the local AWS on 127.0.0.1, and hands both sockets to the server. The server may give it an
  interface to the other instances (`network`). Nothing else can be reached.

- It covers the machine's files with an empty writable layer. All changes of the user data are gone with the instance
  and never were on the machine.

- It gives the instance its own /proc, /dev, /run and /sys.

- It runs the user data as cloud-init does, and reaps orphaned processes.

When the server dies, its end of the control socket closes. This program then kills a process group, itself last. In
namespaces process 1 ends, and the kernel ends everything else in them, unmounts and frees the loop devices. So nothing
keeps running after any end of the server.

Usage: `python -I -S boot.py CONTROL_DESCRIPTOR CONFIGURATION.json`. It runs without our packages on its path, so it
imports the standard library alone. `host` documents the configuration and the messages on the control socket.

Sources: namespaces(7), pid_namespaces(7), "Run commands when you launch an EC2 instance" in Amazon EC2's user guide.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

REFUSED = 125
COMMAND_NOT_FOUND = 127
MARK = "SPOTKEEP_LOCAL_HOST"
"""The environment variable that marks processes of a process group, in any group or session."""

CLONE_NEWNS, CLONE_NEWPID, _CLONE_NEWUSER = 0x00020000, 0x20000000, 0x10000000
CLONE_NEWNET, _CLONE_NEWUTS = 0x40000000, 0x04000000
_NAMESPACES = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | _CLONE_NEWUTS | 0x08000000  # and IPC
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 0x1, 0x2, 0x4, 0x8, 0x20, 0x1000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
_MNT_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_POWER_OFF, _RESTART = 0x4321FEDC, 0x01234567
_CAPABILITIES = range(64)
# What would reach beyond the instance: kernel modules, raw input and output, the machine's clock.
_BEYOND_AN_INSTANCE = frozenset({16, 17, 25})
# chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap, net_bind_service, net_raw, sys_chroot, mknod,
# audit_write, setfcap: what Docker leaves to a container's root, which a training job is on AWS.
_OF_A_CONTAINER = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31})
_POLL_SECONDS = 0.1
_BUSY_SECONDS = 30.0
_SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8916, 0x891C, 0x8913, 0x8914
_IFF_UP = 0x1
_METADATA_ADDRESS = "169.254.169.254"
_LOCAL_RULE_PRIORITY = "1000"
_SYSTEM_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
_REAL_FILE_SYSTEMS = ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "overlay", "nfs", "nfs4", "9p", "virtiofs")
_DEVICES = (("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0))
_USER_DATA = Path("/var/lib/cloud/instance/scripts/part-001")
_USER_DATA_LOG = Path("/var/log/cloud-init-output.log")

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(namespaces: int) -> None:
    """Take namespaces of one's own. One of processes is for later ones."""
    _check(_libc.unshare(namespaces), "unshare")


def enter_network(namespace: str) -> None:
    """Enter the network namespace of a file (setns(2))."""
    descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(descriptor, CLONE_NEWNET), "setns")
    finally:
        os.close(descriptor)


def give_up_new_privileges() -> None:
    """Gain no rights by programs that are executed from now on."""
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")


def mount(source: str, target: Path | str, kind: str | None, flags: int = 0, data: str | None = None) -> None:
    """Mount a file system, a folder or a file (mount(2))."""
    result = _libc.mount(
        source.encode(),
        str(target).encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        data.encode() if data else None,
    )
    _check(result, f"mount {source} on {target}")


def _drop_capabilities(dropped: frozenset[int]) -> None:
    if os.geteuid() != 0:
        return  # A user's process loses what it has in its namespace when it executes the command.
    for capability in sorted(dropped):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            if ctypes.get_errno() == errno.EINVAL:
                return  # The kernel knows no more of them.
            _check(-1, f"drop capability {capability}")


def _say(control: socket.socket, *, descriptors: list[int] | None = None, **message: Any) -> None:
    with contextlib.suppress(OSError):
        socket.send_fds(control, [json.dumps(message).encode() + b"\n"], descriptors or [])


# A process group, with directories of its own.


def signal_marked(mark: str, number: int) -> set[int]:
    """Send a signal to every process but this one that carries a mark, where /proc shows it. Return their ids."""
    marked = f"{MARK}={mark}".encode()
    reached = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(folder.name) != os.getpid() and marked in (folder / "environ").read_bytes().split(b"\0"):
                os.kill(int(folder.name), number)
                reached.add(int(folder.name))
    return reached


def _unshare_mounts() -> None:
    uid, gid = os.getuid(), os.getgid()
    if _libc.unshare(CLONE_NEWNS) != 0:
        _check(_libc.unshare(_CLONE_NEWUSER | CLONE_NEWNS), "unshare")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    mount("none", "/", None, MS_REC | MS_PRIVATE)


def _show(directory: str, at: Path) -> None:
    # Opened first: once the parent is covered, paths through it lead elsewhere, descriptors do not.
    parent = os.open(at.parent, os.O_RDONLY | os.O_DIRECTORY)
    own = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    if not at.is_dir():
        entries = os.listdir(parent)  # noqa: PTH208 - of a descriptor, not a path
        mount("tmpfs", at.parent, "tmpfs")
        for name in entries:
            _show_again(f"/proc/self/fd/{parent}/{name}", at.parent / name)
        at.mkdir()
    mount(f"/proc/self/fd/{own}", at, None, MS_BIND)
    os.close(parent)
    os.close(own)


def _show_again(source: str, target: Path) -> None:
    if Path(source).is_symlink():
        target.symlink_to(Path(source).readlink())
        return
    if Path(source).is_dir():
        target.mkdir()
    else:
        target.touch()
    mount(source, target, None, MS_BIND | MS_REC)


# Namespaces, with an instance's machine in them.


def _network_of_its_own(port: int) -> list[socket.socket]:
    """Bring up loopback with the metadata service's address, and return the listening sockets of both services."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        _bring_up(control, "lo")
        _set_address(control, "lo:0", _METADATA_ADDRESS)
    listening = []
    for address in ((_METADATA_ADDRESS, 80), ("127.0.0.1", port)):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(64)
        listening.append(listener)
    # The agent's rule about the metadata service has to be asked before the rule that finds it on this interface.
    for change in (("add", "pref", _LOCAL_RULE_PRIORITY, "lookup", "local"), ("del", "pref", "0", "lookup", "local")):
        _change_rules(*change)
    return listening


def _change_rules(*change: str) -> None:
    done = subprocess.run(["ip", "rule", *change], env={"PATH": _SYSTEM_PATH}, capture_output=True, check=False)
    if done.returncode:
        raise OSError(f"ip rule {' '.join(change)}: {done.stderr.decode(errors='replace').strip()}")


def _bring_up(control: socket.socket, interface: str) -> None:
    request = struct.pack("16sh22x", interface.encode(), 0)
    (flags,) = struct.unpack_from("h", fcntl.ioctl(control, _SIOCGIFFLAGS, request), 16)
    fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh22x", interface.encode(), flags | _IFF_UP))


def _set_address(control: socket.socket, interface: str, address: str) -> None:
    for request, value in ((_SIOCSIFADDR, address), (_SIOCSIFNETMASK, "255.255.255.255")):
        packed = struct.pack("16sH2x4s16x", interface.encode(), socket.AF_INET, socket.inet_aton(value))
        fcntl.ioctl(control, request, packed)


def _cover_root(folder: Path, shared: list[str]) -> Path:
    """Return a writable layer over the machine's files. The machine's other file systems show through it, read-only.

    Writes to shared folders pass through it.
    """
    others = [path for path, kind in _mount_points() if kind in _REAL_FILE_SYSTEMS and path != "/"]
    root = folder / "root"
    root.mkdir(parents=True, exist_ok=True)
    layers = folder / "disk"
    try:
        _mount_overlay(layers, root)
    except OSError:
        # The folder lies on a file system that cannot hold the layer, an overlay for example: memory can.
        layers.mkdir(exist_ok=True)
        mount("tmpfs", layers, "tmpfs", 0, "mode=0755")
        _mount_overlay(layers, root)
    for path in others:
        target = root / path.lstrip("/")
        if target.is_dir():
            mount(path, target, None, MS_BIND)
            mount("none", target, None, MS_BIND | MS_REMOUNT | MS_RDONLY)
    for path in shared:
        mount(path, root / path.lstrip("/"), None, MS_BIND)
    return root


def _mount_overlay(layers: Path, root: Path) -> None:
    upper, work = layers / "written", layers / "work"
    upper.mkdir(parents=True, exist_ok=True)
    work.mkdir(exist_ok=True)
    mount("instance", root, "overlay", 0, f"lowerdir=/,upperdir={upper},workdir={work}")


def _mount_points() -> list[tuple[str, str]]:
    points = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        path = before.split(" ")[4].encode().decode("unicode_escape")
        points.append((path, after.split(" ")[0]))
    return points


def _populate(root: Path, console: Path) -> None:
    log = root / str(_USER_DATA_LOG).lstrip("/")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    log.touch(mode=0o640)
    mount(str(console), log, None, MS_BIND)
    for name in ("proc", "sys", "dev", "run"):
        (root / name).mkdir(exist_ok=True)
    mount("proc", root / "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount("sysfs", root / "sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY)
    mount("tmpfs", root / "run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    (root / "run/lock").mkdir()
    _populate_devices(root / "dev")
    # A write to either would reach the machine.
    if (root / "proc/sysrq-trigger").exists():
        mount(str(root / "dev/null"), root / "proc/sysrq-trigger", None, MS_BIND)
    mount(str(root / "proc/sys"), root / "proc/sys", None, MS_BIND)
    mount("none", root / "proc/sys", None, MS_BIND | MS_REMOUNT | MS_RDONLY)


def _populate_devices(dev: Path) -> None:
    mount("tmpfs", dev, "tmpfs", MS_NOSUID, "mode=0755")
    for name, major, minor in _DEVICES:
        os.mknod(dev / name, stat.S_IFCHR | 0o666, os.makedev(major, minor))
        (dev / name).chmod(0o666)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        (dev / name).symlink_to(f"/proc/self/fd{target}")
    for name, kind, options in (
        ("pts", "devpts", "newinstance,ptmxmode=0666,mode=0620"),
        ("shm", "tmpfs", "mode=1777"),
    ):
        (dev / name).mkdir()
        mount(kind, dev / name, kind, MS_NOSUID, options)
    (dev / "ptmx").symlink_to("pts/ptmx")
    (dev / "disk/by-id").mkdir(parents=True)


def _enter_root(root: Path) -> None:
    os.chdir(root)
    _check(_libc.syscall(_PIVOT_ROOT[os.uname().machine], b".", b"."), "pivot_root")
    _check(_libc.umount2(b".", _MNT_DETACH), "umount of the machine's files")
    os.chdir("/")


def _write_settings(environment: dict[str, str]) -> None:
    # What a login shell, and a process started with a clean environment through PAM, read.
    lines = "".join(f'{name}="{value}"\n' for name, value in environment.items())
    Path("/etc/environment").write_text(lines)


def _replace_power_commands() -> None:
    """Replace the machine's power commands, which ask a missing service manager, by ones that ask the kernel."""
    for name, request in (
        ("shutdown", _POWER_OFF),
        ("poweroff", _POWER_OFF),
        ("halt", _POWER_OFF),
        ("reboot", _RESTART),
    ):
        command = Path("/usr/sbin") / name
        command.unlink(missing_ok=True)
        call = f"import ctypes, os; os.sync(); ctypes.CDLL(None).reboot({request})"
        command.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S -c '{call}'\n")
        command.chmod(0o755)


def _preload(library: str) -> None:
    """Load a library into all programs. It is copied, because users of the instance may not read the original."""
    copy = Path("/usr/local/lib") / Path(library).name
    copy.write_bytes(Path(library).read_bytes())
    copy.chmod(0o755)
    Path("/etc/ld.so.preload").write_text(f"{copy}\n")


def _link(links: dict[str, str]) -> None:
    for path, target in links.items():
        link = Path("/") / path
        if not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(target)


def _write_programs(programs: dict[str, str]) -> None:
    # First on the PATH of the system: the machine may have a command of that name.
    folder = Path("/usr/local/sbin")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in programs.items():
        program = folder / name
        program.unlink(missing_ok=True)
        program.write_text(text)
        program.chmod(0o755)


def _let_everybody_reach(paths: list[str]) -> None:
    """Let an unprivileged user of the instance run programs in a directory that is private on the machine."""
    for path in paths:
        for directory in (Path(path), *Path(path).parents):
            mode = directory.stat().st_mode
            if not mode & 0o001:
                directory.chmod(stat.S_IMODE(mode) | 0o011)


def _write_user_data(text: str) -> list[str]:
    if not text.strip():
        return []
    if not text.startswith("#!"):
        print("user data that does not begin with #! is not run by the local AWS", flush=True)
        return []
    _USER_DATA.parent.mkdir(parents=True, exist_ok=True)
    _USER_DATA.write_text(text)
    _USER_DATA.chmod(0o700)
    return [str(_USER_DATA)]


# What runs the command.


def _wait_for(descriptors: list[int], *, seconds: float | None) -> list[int]:
    """Return those that can be read or are closed, an empty list after so many seconds.

    select(2) refuses a descriptor above 1,023, and a server with many open files gives its hosts such numbers.
    """
    waiting = select.poll()
    for descriptor in descriptors:
        waiting.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in waiting.poll(None if seconds is None else seconds * 1000)]


class _Supervisor:
    """Runs the command, says how it ended, and ends all of the host when the server says so or is gone."""

    _own_session = False

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._process: subprocess.Popen[bytes] | None = None
        self._reported = False
        self._wake_up, wake = os.pipe()
        for descriptor in (self._wake_up, wake):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def run(
        self,
        command: list[str],
        *,
        environment: dict[str, str] | None = None,
        ends_with_command: bool = False,
        shutdown_flag: str | None = None,
    ) -> None:
        """Run until the host is to end. The end of this process is the end of the host."""
        if command:
            self._start(command, environment)
        while True:
            if self._report() and ends_with_command:
                return self.end()
            if shutdown_flag is not None and Path(shutdown_flag).exists():
                return self.end()
            poll_seconds = None if shutdown_flag is None else _POLL_SECONDS
            ready = _wait_for([self._control.fileno(), self._wake_up], seconds=poll_seconds)
            if self._wake_up in ready:
                os.read(self._wake_up, 4096)
            if self._control.fileno() in ready:
                said = self._control.recv(4096)
                if not said:
                    return self.cut_off()
                for message in map(json.loads, said.splitlines()):
                    if "signal" in message and self._process is not None:
                        self._process.send_signal(message["signal"])
                    if "signal_all" in message:
                        self.signal_all(message["signal_all"])
                        _say(self._control, signalled=True)
                    if "shutdown_seconds" in message:
                        return self._shut_down(message["shutdown_seconds"])

    def _start(self, command: list[str], environment: dict[str, str] | None) -> None:
        try:
            self._process = self._popen(command, environment)
        except OSError as error:
            print(f"exec {command[0]!r}: {error.strerror}", file=sys.stderr, flush=True)
            self._reported = True
            _say(self._control, exit_code=COMMAND_NOT_FOUND)

    def _popen(self, command: list[str], environment: dict[str, str] | None) -> subprocess.Popen[bytes]:
        """Start the command. One that the server has just written may be busy.

        A process that the server starts meanwhile has the file open until its own exec.
        """
        give_up_at = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                # Kept, though process 1 uses only its id: Popen reaps a process that has ended when it is let go of.
                return subprocess.Popen(
                    command, env=environment, stdin=subprocess.DEVNULL, start_new_session=self._own_session
                )
            except OSError as error:
                if error.errno != errno.ETXTBSY or time.monotonic() >= give_up_at:
                    raise
            time.sleep(0.01)

    def _report(self) -> bool:
        """Report the end of the command, once. Return whether it has ended."""
        if not self._reported and (code := self.poll()) is not None:
            self._reported = True
            _say(self._control, exit_code=code)
        return self._reported

    def _shut_down(self, seconds: float) -> None:
        give_up_at = time.monotonic() + seconds
        self.terminate_all()
        while self.anything_left() and (left := give_up_at - time.monotonic()) > 0:
            _wait_for([self._wake_up], seconds=min(left, 0.1))
        self.end()

    def poll(self) -> int | None:
        """Return the command's exit code. None while it runs."""
        return None if self._process is None else self._process.poll()

    def terminate_all(self) -> None:
        """Send SIGTERM to everything in the host."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(os.getpgrp(), signal.SIGTERM)

    def signal_all(self, number: int) -> None:
        """Send a signal to everything in the host but this process."""
        reached: set[int] = set()
        # A process may fork meanwhile. A stopped one does not.
        while more := signal_marked(os.environ[MARK], number) - reached:
            reached |= more

    def anything_left(self) -> bool:
        """Return whether the shutdown has to wait."""
        return self._process is not None and self._process.poll() is None

    def cut_off(self) -> None:
        """End the host of a server that is gone."""
        self.end()

    def end(self) -> None:
        """Kill everything in the host, this process last."""
        # Those that made a group of their own still carry the mark.
        signal_marked(os.environ[MARK], signal.SIGKILL)
        os.killpg(os.getpgrp(), signal.SIGKILL)


class _ProcessOne(_Supervisor):
    """The same for process 1 of a process namespace. It reaps orphaned processes, and its end ends all."""

    _own_session = True

    def __init__(self, control: socket.socket) -> None:
        super().__init__(control)
        self._code: int | None = None

    def poll(self) -> int | None:
        """Reap everything that has ended."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                if self._process is not None and pid == self._process.pid:
                    self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def terminate_all(self) -> None:
        """Send SIGTERM to everything in the namespace."""
        self.signal_all(signal.SIGTERM)

    def signal_all(self, number: int) -> None:
        """Send a signal to everything in the namespace but this process."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, number)

    def anything_left(self) -> bool:
        """Return whether a process is left."""
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        return True

    def cut_off(self) -> None:
        """Leave the end to the kernel."""

    def end(self) -> None:
        """Kill the remaining processes, and let the file systems write their data."""
        self.signal_all(signal.SIGKILL)
        while self.anything_left():
            time.sleep(0.01)
        os.sync()


def _run_group(control: socket.socket, configuration: dict[str, Any]) -> int:
    try:
        if configuration["network"] is not None:
            enter_network(configuration["network"])
            unshare(_CLONE_NEWUTS)
            socket.sethostname(configuration["hostname"])
        if configuration["mounts"]:
            _unshare_mounts()
        if configuration["names"] is not None:
            mount(configuration["names"], "/etc/hosts", None, MS_BIND)
        for path, directory in configuration["mounts"].items():
            _show(directory, Path(path))
        for path in configuration["read_only"]:
            mount("none", path, None, MS_REMOUNT | MS_BIND | MS_RDONLY)
        if configuration["confined"]:
            _drop_capabilities(frozenset(_CAPABILITIES) - _OF_A_CONTAINER)
    except OSError as error:
        print(f"no private directories on this machine: {error}", file=sys.stderr)
        return REFUSED
    os.chdir(configuration["working_directory"])
    _Supervisor(control).run(
        configuration["command"],
        ends_with_command=configuration["ends_with_command"],
        shutdown_flag=configuration["shutdown_flag"],
    )
    return 0


def _be_process_one(control: socket.socket, configuration: dict[str, Any]) -> int:
    try:
        listening = _network_of_its_own(configuration["endpoint_port"])
        mount("none", "/", None, MS_REC | MS_PRIVATE)
        root = _cover_root(Path(configuration["folder"]), configuration["shared"])
        _populate(root, Path(configuration["console"]))
        _enter_root(root)
        socket.sethostname(configuration["hostname"])
        _drop_capabilities(_BEYOND_AN_INSTANCE)
        _write_settings(configuration["environment"])
        _replace_power_commands()
        _link(configuration["links"])
        if configuration["clock"] is not None:
            _preload(configuration["clock"])
        _write_programs(configuration["programs"])
        _let_everybody_reach(configuration["reachable"])
    except OSError as error:
        _say(control, refused=str(error))
        return REFUSED
    _say(control, booted=True, descriptors=[listener.fileno() for listener in listening])
    for listener in listening:
        listener.close()
    # The server has both sockets, and answers metadata, before the user data asks for any.
    if control.recv(4096):
        command = _write_user_data(configuration["user_data"])
        _ProcessOne(control).run(command, environment=configuration["environment"])
    return 0


def main(arguments: list[str]) -> int:
    """Run a host.

    Returns:
        The exit status. A process group returns only where the machine refused it, with 125. Namespaces return 0 after
        a shutdown in good order, and 125 when the machine refused. They return 128 and the signal when process 1 was
        killed. SIGKILL is a power cut. SIGINT is reboot(2) that asked for power off, SIGHUP one that asked for a
        restart.
    """
    control = socket.socket(fileno=int(arguments[0]))
    configuration = json.loads(Path(arguments[1]).read_text())
    if not configuration["namespaces"]:
        return _run_group(control, configuration)
    if _libc.unshare(_NAMESPACES) != 0:
        _say(control, refused=f"unshare: {os.strerror(ctypes.get_errno())}")
        return REFUSED
    child = os.fork()
    if child == 0:
        os._exit(_be_process_one(control, configuration))
    _say(control, process_one=child)
    control.close()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
