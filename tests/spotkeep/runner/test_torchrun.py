"""The real torchrun at a notice: its workers have as long as the notice leaves them, not torchrun's own 30 s."""

from __future__ import annotations

import os
import signal

import pytest

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.long]

# A rank whose save takes a while after the notice, which it sees as the library does.
SAVES_SLOWLY = """
    import os, pathlib, sys, time
    from spotkeep.notices.notice import NoticeWatch

    watch = NoticeWatch()
    watch.start()
    print("shutdown timeout:", os.environ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"], flush=True)
    print("waiting", flush=True)
    while watch.notice() is None:
        time.sleep(0.05)
    time.sleep(float(os.environ["SAVE_SECONDS"]))
    pathlib.Path("saved").write_text("whole")
    watch.note_leaving()
    sys.exit(75)
"""
TORCHRUN = ["torchrun", "--standalone", "--nproc-per-node", "1", "train.py"]
SHELL = ["sh", "-c", f'trap "" TERM; {" ".join(TORCHRUN)}; exit $?', "sh"]


@pytest.mark.parametrize(
    ("command", "given", "shutdown_timeout", "saved"),
    [
        (TORCHRUN, {}, "28", True),
        (TORCHRUN, {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "1"}, "1", False),
        (SHELL, {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "1"}, "1", True),
    ],
    ids=["from the notice", "too short", "a shell that keeps the signal"],
)
def test_a_save_takes_as_long_as_the_notice_leaves(start, tmp_path, command, given, shutdown_timeout, saved):
    job = start(command, script=SAVES_SLOWLY, SPOTKEEP_NOTICE_SECONDS="30", SAVE_SECONDS="3", **given)
    job.wait_for_line(f"shutdown timeout: {shutdown_timeout}")
    job.wait_for_line("waiting")
    job.process.send_signal(signal.SIGTERM)
    job.wait_for("exit", code=75) if saved else job.wait_for("exit")
    assert (tmp_path / "saved").exists() is saved
    os.killpg(job.process.pid, signal.SIGKILL)
    job.process.wait()
