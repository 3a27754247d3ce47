"""Hosts of both kinds, without the API: they run user data, show volumes, and end with all that is theirs."""

from __future__ import annotations

import contextlib
import http.server
import os
import resource
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spotkeep_local.hosts import host_platform as platforms
from spotkeep_local.hosts import process_identity
from spotkeep_local.hosts.clock import wrong_clock
from spotkeep_local.hosts.host import Host, HostRefusedError, process_group
from spotkeep_local.hosts.host_platform import HostPlatform, host_platform
from spotkeep_local.hosts.instance_host import HostEnd, HostSpecification, InstanceHost
from spotkeep_local.hosts.isolation import Isolation

from .test_metadata import INSTANCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TRIES = 15_000


def wait_until(condition: Callable[[], object]) -> None:
    for _ in range(TRIES):
        if condition():
            return
        time.sleep(0.02)
    pytest.fail("waited in vain")


class Machine:
    """Starts hosts, and remembers how they ended."""

    def __init__(self, folder: Path, platform: HostPlatform, port: int) -> None:
        self.platform = platform
        self.endings: list[HostEnd] = []
        self.hosts: list[InstanceHost] = []
        self.folder = folder
        self._port = port

    def start(self, user_data: str, *, clock: Path | None = None) -> tuple[InstanceHost, Callable[[], list[str]]]:
        specification = HostSpecification(
            instance_id=f"i-{len(self.hosts)}",
            folder=self.folder / f"host-{len(self.hosts)}",
            hostname="ip-10-0-0-7",
            user_data=user_data,
            endpoint_port=self._port,
            clock=clock,
        )
        host = self.platform.start(specification, read_metadata=lambda: INSTANCE, on_end=self.endings.append)
        self.hosts.append(host)
        return host, lambda: specification.console.read_text().splitlines()


@pytest.fixture(params=[Isolation.NAMESPACE, Isolation.RELOCATED])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    try:
        platform = host_platform(wanted=request.param, folder=tmp_path / "images")
    except HostRefusedError as error:
        pytest.skip(str(error))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        made = Machine(tmp_path, platform, server.server_port)
        yield made
        for host in made.hosts:
            host.power_off()
        server.shutdown()


def test_the_user_data_reaches_the_local_aws_and_the_metadata_and_its_exit_code_is_known(machine: Machine) -> None:
    host, console = machine.start(
        '#!/bin/sh\ncurl -s -o /dev/null -w "%{http_code}\\n" "$AWS_ENDPOINT_URL/"\n'
        'curl -s -o /dev/null -w "%{http_code}\\n" "$AWS_EC2_METADATA_SERVICE_ENDPOINT/latest/meta-data/"\n'
        'echo "${AWS_PROFILE-none} ${AWS_ACCESS_KEY_ID-none} ${AWS_REGION-none}"\nexit 7\n'
    )
    wait_until(lambda: host.user_data_exit_code == 7)
    assert console() == ["200", "401", "none none none"]
    assert machine.endings == []


def test_user_data_is_any_program_and_the_exit_code_of_one_that_ends_at_once_is_known(machine: Machine) -> None:
    for _ in range(3):
        host, _ = machine.start("#!/bin/false\n")
        wait_until(lambda host=host: host.user_data_exit_code == 1)


@pytest.fixture
def over_a_thousand_open_files() -> Iterator[None]:
    """A server with many files open. What it opens next has a number above 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip(f"a process may open {hard} files on this machine")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048 if soft == resource.RLIM_INFINITY else max(soft, 2048), hard))
    with contextlib.ExitStack() as opened:
        while opened.enter_context(Path(os.devnull).open()).fileno() <= 1024:
            pass
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("over_a_thousand_open_files")
def test_a_server_with_many_open_files_starts_and_ends_hosts(machine: Machine) -> None:
    user_data = "#!/bin/sh\ntrap 'echo ASKED; exit 0' TERM\necho READY\nwhile :; do sleep 0.1; done\n"
    host, console = machine.start(user_data)
    wait_until(lambda: "READY" in console())
    host.shut_down(seconds=60)
    wait_until(lambda: machine.endings)
    assert console()[-1] == "ASKED"


def test_a_volume_appears_under_its_id_and_goes(machine: Machine) -> None:
    machine.platform.images.create("vol-0abc", size_gib=1)
    link = "${SPOTKEEP_LOCAL_INSTANCE_ROOT}/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol0abc"
    host, console = machine.start(
        f'#!/bin/sh\nuntil [ -e "{link}" ]; do sleep 0.02; done; echo THERE\n'
        f'while [ -e "{link}" ]; do sleep 0.02; done; echo GONE\n'
    )
    host.attach("vol-0abc")
    wait_until(lambda: "THERE" in console())
    assert host.detach("vol-0abc", force=False)
    wait_until(lambda: "GONE" in console())


def test_a_power_cut_ends_everything_at_once(machine: Machine) -> None:
    host, console = machine.start(
        "#!/bin/sh\ntrap 'echo ASKED' TERM\nsetsid sleep 600 &\nsleep 600 & echo READY\nwhile :; do sleep 0.1; done\n"
    )
    wait_until(lambda: "READY" in console())
    started = process_identity.start_time(host.process_id)
    host.power_off()
    wait_until(lambda: machine.endings == [HostEnd.POWER_OFF])
    assert console() == ["READY"]
    assert not process_identity.is_same_process(host.process_id, started)
    wait_until(lambda: not _left_in(machine.folder))


def test_a_frozen_host_does_nothing_until_it_is_thawed(machine: Machine) -> None:
    count = "while :; do echo COUNT; sleep 0.02; done"
    host, console = machine.start(f"#!/bin/sh\nsetsid sh -c '{count}' &\necho READY\n{count}\n")
    wait_until(lambda: "COUNT" in console())
    host.freeze()
    wait_until(lambda: _stands_still(console))  # What it said before is read a little later.
    frozen = console()
    time.sleep(0.3)
    assert console() == frozen
    host.thaw()
    wait_until(lambda: len(console()) > len(frozen))
    host.freeze()
    host.power_off()
    assert machine.endings == [HostEnd.POWER_OFF]


CLOCK = """
import datetime, multiprocessing, threading, time
print("CLOCK", int(time.time()), int(datetime.datetime.now().timestamp()))
begun = time.monotonic()
for waits in (multiprocessing.Semaphore(0).acquire, threading.Event().wait):
    waits(timeout=0.2)
condition = threading.Condition()
with condition:
    condition.wait(0.2)
print("WAITED", 0.5 < time.monotonic() - begun < 600)
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="a wrong clock needs a C compiler")
@pytest.mark.parametrize("seconds", [3600, -3600])
def test_the_wall_clock_of_a_host_is_an_hour_wrong_and_its_waits_are_as_long_as_ever(
    machine: Machine, seconds: int
) -> None:
    clock = wrong_clock(machine.folder / "clocks", seconds=seconds)
    before = int(time.time())
    _, console = machine.start(f"#!/bin/sh\ndate +%s\npython3 -c '{CLOCK}'\necho READY\n", clock=clock)
    wait_until(lambda: "READY" in console())
    date, clocks, waited, _ = console()
    for seen in (date, *clocks.split()[1:]):
        assert before <= int(seen) - seconds <= time.time() + 1
    assert waited == "WAITED True"


def test_a_host_shuts_itself_down(machine: Machine) -> None:
    _, console = machine.start("#!/bin/sh\necho GOING\nshutdown -h now\nsleep 600\n")
    wait_until(lambda: machine.endings == [HostEnd.FROM_INSIDE])
    assert console()[0] == "GOING"


def test_a_shutdown_asks_first(machine: Machine) -> None:
    host, console = machine.start(
        "#!/bin/sh\ntrap 'echo ASKED; exit 0' TERM\necho READY\nwhile :; do sleep 0.1; done\n"
    )
    wait_until(lambda: "READY" in console())
    host.shut_down(seconds=300.0)
    wait_until(lambda: machine.endings == [HostEnd.SHUT_DOWN])
    assert console()[-1] == "ASKED"


def _stands_still(console: Callable[[], list[str]]) -> bool:
    before = console()
    time.sleep(0.1)
    return console() == before


def _left_in(folder: Path) -> list[str]:
    mark = f"SPOTKEEP_LOCAL_INSTANCE_ROOT={folder}/".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes():
                found.append(process.name)
        except OSError:
            continue
    return found


def test_a_command_that_another_process_is_writing_begins_when_it_is_written(tmp_path: Path) -> None:
    # The server writes commands beside threads that start processes, and a new process has open files until its exec.
    command = tmp_path / "command"
    command.write_text("#!/bin/sh\necho began\n")
    command.chmod(0o700)
    codes: list[int] = []
    lines: list[str] = []
    with command.open("a"):
        host = Host(
            process_group(command=[str(command)], working_directory=tmp_path),
            folder=tmp_path,
            environment={"PATH": os.defpath},
            on_line=lines.append,
            on_command_end=codes.append,
        )
        host.watch()
        time.sleep(0.5)
    wait_until(lambda: codes and lines)
    assert (codes, lines) == ([0], ["began"])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("sys.platform", "darwin"), "exist on Linux only, and this is darwin"),
        (("os.geteuid", lambda: 1000), "mounting volumes needs root"),
        (("shutil.which", lambda *_, **__: None), "mkfs.ext4, mount, blkid, ip is not installed"),
    ],
)
def test_a_machine_that_cannot_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: tuple[str, object], reason: str
) -> None:
    for name, value in {"sys.platform": "linux", "os.geteuid": lambda: 0, change[0]: change[1]}.items():
        monkeypatch.setattr(f"{platforms.__name__}.{name}", value)
    platform = host_platform(wanted=Isolation.AUTO, folder=tmp_path)
    assert platform.isolation is Isolation.RELOCATED
    assert reason in str(platform.reason)
    with pytest.raises(HostRefusedError, match="use isolation `auto` or `relocated`"):
        host_platform(wanted=Isolation.NAMESPACE, folder=tmp_path)


def test_namespaces_that_are_refused_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform != "linux":
        pytest.skip("Linux alone has namespaces")
    monkeypatch.setattr(f"{platforms.__name__}.os.geteuid", lambda: 0)
    monkeypatch.setattr(f"{platforms.__name__}._refusal_of_a_loop_device", lambda _: None)
    boot = tmp_path / "boot.py"
    boot.write_text(
        "import json, socket, sys\n"
        "socket.socket(fileno=int(sys.argv[1])).sendall(json.dumps({'refused': 'unshare: no'}).encode() + b'\\n')\n"
    )
    monkeypatch.setattr("spotkeep_local.hosts.host.boot.__file__", str(boot))
    platform = host_platform(wanted=Isolation.AUTO, folder=tmp_path / "images")
    assert "does not let an instance have namespaces of its own: unshare: no" in str(platform.reason)
    assert not list((tmp_path / "images").glob("trial-*"))
