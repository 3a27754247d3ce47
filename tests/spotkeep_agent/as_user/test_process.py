"""The agent works in a folder of the training's user on a file system that gives root no rights, or does not answer."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spotkeep_agent.as_user.process import UserProcess

USER = 12345
SCRIPT = f"""
import sys
from pathlib import Path
from spotkeep_agent.as_user.files import UserFiles
from spotkeep_agent.as_user.process import UserProcess

point = Path(sys.argv[1])
process = UserProcess(uid={USER}, gid={USER})
UserFiles(point, perform=process.perform).make_folder("run/checkpoints")
files = UserFiles(point / "run", perform=process.perform)
files.write("checkpoints/note", b"1")
assert files.read("checkpoints/note", most_bytes=10) == b"1"
process.close()
"""


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root, and setpriv")
def test_a_directory_that_is_the_users_alone_is_used_where_root_has_no_rights(tmp_path: Path) -> None:
    """Amazon EFS calls it `Prevent root access by default`, and FSx for Lustre root squash."""
    point = tmp_path / "point"
    point.mkdir()
    os.chown(point, USER, USER)
    point.chmod(0o770)
    for above in point.parents:
        if above.stat().st_uid == 0 and not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o001)
    without = "-dac_override,-dac_read_search"
    squashed = ["setpriv", f"--bounding-set={without}", f"--inh-caps={without}", sys.executable, "-c"]
    found = subprocess.run(
        [*squashed, textwrap.dedent(SCRIPT), str(point)], capture_output=True, text=True, timeout=60, check=False
    )
    assert found.returncode == 0, found.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_request_that_no_signal_ends_in_the_kernel_keeps_the_agent_for_a_bounded_time() -> None:
    """A file system that does not answer holds a process in the kernel, where it sees no SIGKILL."""
    process = UserProcess(uid=USER, gid=USER)
    held = process._process
    assert held is not None
    held.kill = lambda: None  # type: ignore[method-assign]
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(0)
        address = silent.getsockname()
        with socket.create_connection(address), ThreadPoolExecutor() as pool:
            # The queue of connections is full, so that the next one waits.
            found = pool.submit(process.perform, "try_to_connect", *address, 30.0, seconds=0.2)
            try:
                with pytest.raises(OSError, match="took too long"):
                    found.result(timeout=10)
            finally:
                os.kill(held.pid, signal.SIGKILL)
                held.wait(60)
