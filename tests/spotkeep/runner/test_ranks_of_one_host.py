"""`distributed` on one host: real ranks of torchrun, and those of mpirun, or of one that starts them as it does."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import textwrap
from pathlib import Path

import pytest

from spotkeep_fleet.ranks import Ranks

SAYS_ITS_PLACE = """
    import os, sys
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "SM_HOST_COUNT")
    # In one piece: print writes word by word where Python buffers nothing, and the ranks share one pipe.
    os.write(1, (" ".join(["rank", *(os.environ[name] for name in names), *sys.argv[1:]]) + "\\n").encode())
"""


@pytest.mark.torch
@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [
        ["python", "train.py", "--x"],
        ["python", "-W", "ignore", "train.py", "--x"],
        ["torchrun", "train.py", "--x"],
        ["torchrun", "--standalone", "--nproc-per-node", "2", "train.py", "--x"],
    ],
)
def test_torchrun_starts_the_ranks_of_a_command(start, command):
    pytest.importorskip("torch")
    asked = Ranks(processes=None if "--nproc-per-node" in command else 2)
    job = start(command, script=SAYS_ITS_PLACE, spec={"distributed": asked}, OMP_NUM_THREADS="1")
    assert job.finish() == 0, job.stderr
    assert sorted(line for line in job.lines if line.startswith("rank")) == ["rank 0 0 2 2 1 --x", "rank 1 1 2 2 1 --x"]
    assert "spotkeep: starts the ranks of this host: " in job.stderr
    assert "--nproc_per_node=2" in job.stderr or "--nproc-per-node 2" in job.stderr


@pytest.mark.torch
@pytest.mark.long
def test_a_rank_that_fails_is_the_reason_of_the_job(start):
    pytest.importorskip("torch")
    script = "import os, sys; sys.exit('no such file' if os.environ['RANK'] == '1' else 0)"
    job = start(["python", "train.py"], script=script, spec={"distributed": Ranks(processes=2)}, OMP_NUM_THREADS="1")
    assert job.finish() == 1
    assert job.failure.startswith("python train.py exited with code 1:")


STANDS_IN_FOR_MPIRUN = f"""#!{sys.executable}
import os, signal, subprocess, sys
def end(*_):
    for each in ranks:
        each.kill()
    sys.exit(1)
count = int(sys.argv[sys.argv.index("-np") + 1])
command = sys.argv[sys.argv.index("python"):]
variables = [{{"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": str(count)}} for rank in range(count)]
ranks = [subprocess.Popen(command, env={{**os.environ, **each}}) for each in variables]
signal.signal(signal.SIGTERM, end)
sys.exit(max([each.wait() for each in ranks]))
"""
"""It starts ranks, and on SIGTERM it ends them at once, as Open MPI 5.0.11 does within few seconds."""


@pytest.fixture
def mpirun(tmp_path: Path) -> str:
    """The folder of mpirun: this machine's where it has one, else one that stands in for it."""
    if (real := shutil.which("mpirun")) is not None:
        return str(Path(real).parent)
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "mpirun").write_text(STANDS_IN_FOR_MPIRUN)
    (folder / "mpirun").chmod(0o755)
    return str(folder)


@pytest.mark.long
def test_mpirun_starts_ranks_and_each_has_the_notices_time_to_save(start, mpirun, tmp_path):
    script = """
        import os, pathlib, signal, sys, time
        def save(*_):
            time.sleep(3)
            pathlib.Path("saved-" + os.environ["OMPI_COMM_WORLD_RANK"]).write_text("whole")
            sys.exit(75)
        signal.signal(signal.SIGTERM, save)
        pathlib.Path("waits-" + os.environ["OMPI_COMM_WORLD_RANK"]).touch()
        while not all(pathlib.Path(f"waits-{rank}").exists() for rank in range(2)):
            time.sleep(0.01)
        if os.environ["OMPI_COMM_WORLD_RANK"] == "0":
            print("waiting", flush=True)
        time.sleep(60)
    """
    path = os.pathsep.join([mpirun, str(Path(sys.executable).parent), os.defpath])
    job = start(
        ["python", "train.py"], script=textwrap.dedent(script), spec={"distributed": Ranks("mpi", 2)}, PATH=path,
        SPOTKEEP_NOTICE_SECONDS="30", HOME=str(tmp_path),
    )  # fmt: skip
    job.wait_for_line("waiting")
    job.process.send_signal(signal.SIGTERM)
    job.wait_for("exit", code=75)
    assert sorted(each.name for each in tmp_path.glob("saved-*")) == ["saved-0", "saved-1"]
    os.killpg(job.process.pid, signal.SIGKILL)
    job.process.wait()


def test_a_program_that_starts_ranks_and_is_missing_is_named(start):
    job = start(["python", "train.py"], spec={"distributed": Ranks("mpi", 2)}, PATH=f"{Path(sys.executable).parent}")
    assert job.finish() == 127
    assert "'mpirun' was not found" in job.failure
