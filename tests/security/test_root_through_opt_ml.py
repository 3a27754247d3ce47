"""The script that trains wants to be root on its instance, by what it leaves below `/opt/ml`.

Who: any code of a run on EC2: the script, what it imports, an earlier attempt of either, through the volume. With what:
it owns everything there, so it puts links, pipes and devices where the agent, which is root, reads and writes; and
exchanges them at the worst moment. What it would gain: a unit in systemd's folder, `/etc/shadow` in the failure's
reason, a tree of root's as its own; with them the instance's role, the log of the run, and its bill.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from spotkeep.errors import CheckpointError
from spotkeep.remote.s3_objects import S3Object, S3Place
from spotkeep.remote.transfer import Pace
from spotkeep_agent.as_user import process as as_user
from spotkeep_agent.as_user.files import UserFiles
from spotkeep_agent.as_user.process import UserProcess
from spotkeep_agent.errors import DataRefusedError, VolumeError
from spotkeep_agent.training import checkpoint_copies, supplies
from spotkeep_agent.training.checkpoint_copies import CheckpointCopies
from spotkeep_agent.training.process import TrainingProcess
from spotkeep_agent.training.script_files import ScriptFiles
from spotkeep_agent.training.supplies import Supplies, clear_failure, read_failure
from spotkeep_agent.training.user import TrainingUser
from spotkeep_agent.volume.machine import KEPT_NAME, divide_volume
from spotkeep_fleet.instance_job import VolumeSpec
from spotkeep_fleet.training_spec import JobSource
from tests.models.ec2 import instance_job

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be attacked, and a second user")

# A user of each worker's own: all of its processes are ended.
UID = 60_000 + os.getpid() % 5_000
USER = TrainingUser("trains", UID, UID, "/nonexistent")
SECRET = b"root's own"
NEVER = threading.Event()
ROUNDS = 50
# The interpreter may lie where only root reaches it, so a program drops to the user after it has started.
_AS_USER = f"""
import ctypes, os, sys
os.setgroups([]); os.setresgid({UID}, {UID}, {UID}); os.setresuid({UID}, {UID}, {UID})
"""


class Bucket:
    """A bucket in memory, for every address."""

    def __init__(self, **stored: bytes) -> None:
        self.stored = {name.replace("__", "/"): raw for name, raw in stored.items()}
        self.sent: dict[str, bytes] = {}

    def listing(self, prefix: str) -> list[S3Object]:
        return [S3Object(key, len(raw)) for key, raw in sorted(self.stored.items()) if key.startswith(prefix)]

    def labels(self, key: str) -> tuple[int, Mapping[str, str]] | None:
        return (len(self.stored[key]), {}) if key in self.stored else None

    def read(self, key: str, *, start: int, size: int, etag: str | None = None) -> bytes:
        return self.stored[key][start : start + size]

    def write(self, key: str, raw: bytes, *, labels: Mapping[str, str]) -> None:
        del labels
        self.sent[key] = raw


class Instance:
    """A volume, the user that trains, and what is root's beside it."""

    def __init__(self, folder: Path) -> None:
        self.base = folder / "opt/ml"
        self.roots = folder / "etc/systemd/system"
        self.secret = folder / "etc/shadow"
        self.base.mkdir(parents=True)
        self.roots.mkdir(parents=True)
        (self.roots / "sshd.service").write_bytes(SECRET)
        self.secret.write_bytes(SECRET)
        self.secret.chmod(0o600)
        self.process = UserProcess(uid=UID, gid=UID)
        self.files = UserFiles(self.base, perform=self.process.perform)
        divide_volume(self.base, uid=UID, gid=UID)
        self.kept = self.base / KEPT_NAME
        self.as_user(
            "for name in ('input/data/train', 'input/config', 'output/data', 'model', 'checkpoints'): os.makedirs(name)"
        )

    def supplies(self) -> Supplies:
        calls: Any = None
        return Supplies(calls, files=self.files, kept=self.kept, cancelled=threading.Event())

    def as_user(self, program: str, *arguments: object) -> str:
        """Run a program as the user that trains, in the volume."""
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _AS_USER + textwrap.dedent(program), *map(str, arguments)],
            cwd=self.base, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        return done.stdout

    def exchange(self, path: str, target: Path) -> None:
        """Put a link in the place of whatever is there."""
        self.as_user(
            """
            path, target = sys.argv[1:]
            if os.path.lexists(path):
                os.rename(path, path + "-before")
            os.symlink(target, path)
            """,
            path,
            target,
        )

    @contextlib.contextmanager
    def exchanging(self, path: str, target: Path, *, file: bool = False) -> Iterator[None]:
        """Have the user exchange a link for what is there, and back, as fast as it can."""
        program = """
            path, target, kind = sys.argv[1:]
            os.symlink(target, path + "-link")
            if not os.path.lexists(path):
                open(path, "w").write("harmless") if kind == "file" else os.mkdir(path)
            print("begun", flush=True)
            exchange = ctypes.CDLL(None).renameat2
            while exchange(-100, path.encode(), -100, (path + "-link").encode(), 2) == 0:  # RENAME_EXCHANGE
                pass
        """
        attacker = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _AS_USER + textwrap.dedent(program), path, str(target),
             "file" if file else "folder"],
            cwd=self.base, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert attacker.stdout is not None
        try:
            assert attacker.stdout.readline() == "begun\n"
            yield
            assert attacker.poll() is None, "the attack ended before what was attacked"
        finally:
            attacker.kill()
            attacker.wait()
            attacker.stdout.close()

    def require_untouched(self) -> None:
        """See that nothing of root's was written, added or given away."""
        for found in (self.roots, self.roots / "sshd.service", self.secret):
            assert (found.stat().st_uid, found.stat().st_gid) == (0, 0), f"{found} was given away"
        assert [path.name for path in self.roots.iterdir()] == ["sshd.service"]
        assert (self.roots / "sshd.service").read_bytes() == self.secret.read_bytes() == SECRET


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    bucket = Bucket(data__one=b"evil", data__sub__two=b"evil", source__a__tar__gz=b"evil")
    for module in (supplies, checkpoint_copies):
        monkeypatch.setattr(module, "objects_of", lambda calls, name: bucket)
    return bucket


@pytest.fixture
def instance(bucket: Bucket) -> Iterator[Instance]:
    folder = Path(tempfile.mkdtemp(prefix="instance-"))
    folder.chmod(0o755)
    if any(not parent.stat().st_mode & 0o001 for parent in folder.parents):
        pytest.skip(f"another user cannot reach {folder}: set TMPDIR to a place that everybody may pass")
    instance = Instance(folder)
    yield instance
    instance.process.perform("end_processes", 5.0)
    instance.process.close()
    shutil.rmtree(folder)


JOB = instance_job(
    ("python", "train.py"),
    VolumeSpec(size_gb=1),
    source=JobSource(uri="s3://bucket/source/a/tar/gz"),
    channels={"train": "s3://bucket/data/"},
    hyperparameters={"lr": "1"},
)


@pytest.mark.parametrize("path", ["input", "input/config", "input/data/source", "input/data/train/sub"])
def test_what_is_brought_is_not_written_through_a_link(instance: Instance, path: str) -> None:
    instance.exchange(path, instance.roots)
    with pytest.raises((DataRefusedError, OSError), match="is a link"):
        instance.supplies().bring(JOB)
    instance.require_untouched()


@pytest.mark.parametrize("path", ["input/config/hyperparameters.json", "input/data/train/one.spotkeep-draft"])
def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(instance: Instance, path: str) -> None:
    instance.exchange(path, instance.roots / "sshd.service")
    instance.supplies().bring(JOB)
    instance.require_untouched()
    assert (instance.base / "input/data/train/one").read_bytes() == b"evil"
    assert (instance.base / "input/data/train/one").stat().st_uid == UID


@pytest.mark.long
def test_what_is_brought_while_the_user_exchanges_links_for_folders(instance: Instance) -> None:
    for path in ("input/data/train", "input/config"):
        with instance.exchanging(path, instance.roots):
            refused = 0
            for _ in range(ROUNDS):
                try:
                    instance.supplies().bring(JOB)
                except (DataRefusedError, OSError):
                    refused += 1
            assert refused, "the link was never there: the attack attacked nothing"
        instance.require_untouched()


def test_the_reason_of_a_failure_is_read_from_no_link_no_pipe_and_no_device(instance: Instance) -> None:
    instance.exchange("output/failure", instance.secret)
    assert read_failure(instance.files) is None
    instance.as_user("os.unlink('output/failure'); os.mkfifo('output/failure')")
    assert read_failure(instance.files) is None
    instance.exchange("output/failure", Path("/dev/zero"))
    assert read_failure(instance.files) is None
    instance.exchange("output", instance.roots.parent)
    assert read_failure(instance.files) is None
    with pytest.raises(OSError, match="is a link"):
        clear_failure(instance.files)
    instance.require_untouched()


def test_nor_while_it_is_exchanged(instance: Instance) -> None:
    with instance.exchanging("output/failure", instance.secret, file=True):
        found: set[str | None] = set()
        for number in range(ROUNDS * 1_000):
            found.add(read_failure(instance.files))
            # On a busy machine it may be exchanged seldom.
            if number >= ROUNDS * 5 and len(found) > 1:
                break
    assert found == {None, "harmless"}


def test_a_model_that_is_a_link_is_not_sent_and_links_in_one_are_sent_as_links(
    instance: Instance, bucket: Bucket
) -> None:
    instance.as_user("os.symlink(sys.argv[1], 'model/weights'); os.mkfifo('model/pipe')", instance.secret)
    instance.exchange("model.tar.gz", instance.roots / "sshd.service")  # where the archive once lay
    assert instance.supplies().send_model("s3://bucket/out") == "s3://bucket/out/model.tar.gz"
    (raw,) = bucket.sent.values()
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        assert archive.getmember("weights").issym()
        assert archive.getmember("pipe").isfifo()
    instance.exchange("model", instance.roots)
    with pytest.raises(OSError, match="is a link"):
        instance.supplies().send_model("s3://bucket/other")
    assert len(bucket.sent) == 1
    instance.require_untouched()


def test_files_of_the_script_that_lead_to_roots_are_not_sent(instance: Instance, bucket: Bucket) -> None:
    any_bucket: Any = bucket
    files = ScriptFiles(
        S3Place("bucket", "run/"), instance.files,
        kept=instance.kept, objects=any_bucket, fetching=any_bucket, pace=Pace(None),
    )  # fmt: skip
    readable = instance.roots / "sshd.service"  # by everybody: not even that is the script's to send
    for name, target in (("a", instance.secret), ("b", readable), ("c", Path("/proc/1/environ"))):
        instance.exchange(f"checkpoints/{name}", target)
    instance.as_user("open('checkpoints/own', 'w').write('mine'); os.symlink('own', 'checkpoints/also')")
    files.copy(settled_only=True)
    files.copy(settled_only=True)
    assert bucket.sent == {"run/own": b"mine", "run/also": b"mine"}


def test_a_checkpoint_that_comes_back_is_not_written_through_links_and_gives_no_tree_away(instance: Instance) -> None:
    instance.exchange("checkpoints", instance.roots)
    copies = CheckpointCopies(
        "s3://bucket/run/", instance.files, kept=instance.kept, calls=Any, fetching=Any,  # type: ignore[arg-type]
        cancelled=NEVER, break_off=lambda: None, on_uploaded=lambda step: None,
    )  # fmt: skip
    with contextlib.suppress(OSError, CheckpointError):
        copies.restore_newer(known_uploaded=None)
    instance.require_untouched()


def test_a_volume_is_given_to_its_user_and_nothing_else_is(instance: Instance) -> None:
    deep = instance.base / "checkpoints/deep"
    deep.mkdir()
    (deep / "file").write_bytes(b"")
    for path in (deep / "link", instance.base / "top"):
        path.symlink_to(instance.roots)
    (deep / "shadow").symlink_to(instance.secret)
    (instance.kept / "owner").write_bytes(b"of another image, with another number")
    divide_volume(instance.base, uid=UID, gid=UID)
    assert {(deep / name).lstat().st_uid for name in ("file", "link", "shadow")} == {UID}
    assert (instance.kept.stat().st_uid, stat.S_IMODE(instance.kept.stat().st_mode)) == (0, 0o700)
    instance.require_untouched()


@pytest.mark.long
def test_nor_while_the_user_exchanges_links_for_folders(instance: Instance) -> None:
    with instance.exchanging("checkpoints/deep", instance.roots):
        for _ in range(ROUNDS):
            (instance.kept / "owner").unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                divide_volume(instance.base, uid=UID, gid=UID)
    instance.require_untouched()


def test_the_user_cannot_take_the_agents_folder_away(instance: Instance) -> None:
    tried = instance.as_user("""
        for name, attack in {
            "move": lambda: os.rename(".spotkeep", "mine"), "remove": lambda: os.rmdir(".spotkeep"),
            "list": lambda: os.listdir(".spotkeep"), "write": lambda: open(".spotkeep/owner", "w"),
            "open": lambda: os.chmod(".spotkeep", 0o777), "base": lambda: os.chmod(".", 0o777),
        }.items():
            try:
                attack()
                print(name)
            except OSError:
                pass
        """)
    assert tried == ""


def test_a_folder_in_the_agents_place_that_is_not_roots_is_refused(instance: Instance) -> None:
    """Of a volume that a user brings: its files were made where no user but that one was root."""
    shutil.rmtree(instance.kept)
    instance.kept.mkdir()
    os.chown(instance.kept, UID, UID)
    with pytest.raises(VolumeError, match="not the agent's own folder"):
        divide_volume(instance.base, uid=UID, gid=UID)
    instance.kept.rmdir()
    instance.kept.symlink_to(instance.roots)
    with pytest.raises(VolumeError, match="not the agent's own folder"):
        divide_volume(instance.base, uid=UID, gid=UID)
    instance.require_untouched()


def test_a_notice_is_not_written_through_a_link(instance: Instance) -> None:
    notices = UserFiles(instance.base / "output", perform=instance.process.perform)
    for name in ("notice.json", "notice.json.spotkeep-draft"):
        instance.exchange(f"output/{name}", instance.roots / "sshd.service")
    notices.write("notice.json", b"{}")
    instance.require_untouched()
    assert (instance.base / "output/notice.json").read_bytes() == b"{}"


# The process that works with the user's rights


def pid_of(process: UserProcess) -> int:
    process.perform("try_to_connect", "127.0.0.1", 1, 1.0)
    assert process._process is not None
    return process._process.pid


def test_the_process_has_no_rights_but_the_users_and_lets_the_user_see_nothing(instance: Instance) -> None:
    pid = pid_of(instance.process)
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    assert set(status["Uid"].split()) == set(status["Gid"].split()) == {str(UID)}
    assert status["Groups"].split() == []
    assert int(status["CapPrm"], 16) == int(status["CapEff"], 16) == 0
    assert status["NoNewPrivs"].split() == ["1"]
    tried = instance.as_user(
        """
        for attack in (lambda: open(f"/proc/{sys.argv[1]}/mem", "rb"), lambda: os.listdir(f"/proc/{sys.argv[1]}/fd"),
                       lambda: open(f"/proc/{sys.argv[1]}/environ").read()):
            try:
                attack()
                print("seen")
            except OSError:
                pass
        if ctypes.CDLL(None).ptrace(16, int(sys.argv[1]), 0, 0) == 0:  # PTRACE_ATTACH
            print("traced")
        """,
        pid,
    )
    assert tried == ""


def test_the_user_may_end_or_stop_it_and_that_only_costs_the_request(instance: Instance) -> None:
    pid = pid_of(instance.process)
    instance.as_user("os.kill(int(sys.argv[1]), 9)", pid)
    # It ends a moment after the signal. A request that it still takes until then fails with it, as `perform` says.
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert "model" in instance.files.names(""), "it is started anew"
    os.kill(pid_of(instance.process), signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(OSError, match="took too long"):
        instance.process.perform("names", "", base=instance.base, seconds=0.2)
    assert time.monotonic() - began < 10
    assert "model" in instance.files.names("")


def test_root_takes_no_descriptor_but_of_a_regular_file_of_the_volume(instance: Instance) -> None:
    reading, writing = os.pipe()
    os.close(writing)
    elsewhere = os.open("/proc/self/status", os.O_RDONLY)
    folder = os.open(instance.base, os.O_RDONLY)
    for descriptor in (reading, elsewhere, folder):
        with pytest.raises(OSError, match="not a regular file of this file system"):
            as_user._result("open_file", b'{"result": null}', [descriptor], instance.base)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
    for answer in (b"", b"[]", b'"x"', b"{}", b'{"result": null}', b'{"problem": 1}', b"[" * 100_000):
        with pytest.raises(OSError):  # noqa: PT011 - whichever it is, it is the one error that callers expect
            as_user._result("open_file", answer, [], instance.base)


def test_a_path_that_leads_out_is_refused_before_anything_is_opened(instance: Instance) -> None:
    for path in ("..", "../etc/shadow", "/etc/shadow", "model/../../etc", "model//x", "a\0b"):
        for attempt in (instance.files.names, instance.files.open, instance.files.create, instance.files.remove):
            with pytest.raises(OSError, match="no path below a folder"):
                attempt(path)


# The training itself


def run(instance: Instance, program: str, *, while_running: Callable[[TrainingProcess], None] = lambda _: None) -> str:
    lines: list[str] = []
    process = TrainingProcess(
        ["/bin/sh", "-c", program],
        environment={"PATH": os.defpath}, directory=instance.base, user=USER,
        on_line=lines.append, on_event=lambda event: None,
    )  # fmt: skip
    while_running(process)
    assert process.wait(30) == 0
    process.kill()
    return "\n".join(lines)


def test_a_setuid_program_gives_the_script_nothing(instance: Instance) -> None:
    program = instance.base / "id"
    shutil.copy("/usr/bin/id", program)
    program.chmod(0o4755)
    instance.base.parent.parent.chmod(0o755)
    assert run(instance, "./id -u; ./id -G") == f"{UID}\n{UID}"


def test_what_flees_from_its_session_is_ended_with_the_training(instance: Instance) -> None:
    flees = "setsid sh -c ': > fled; exec sleep 600' >/dev/null 2>&1 &"
    said = run(instance, f"{flees} until [ -e fled ]; do sleep 0.01; done; echo $!")
    fled = Path(f"/proc/{said.strip()}")
    assert fled.exists()
    instance.process.perform("end_processes", 5.0)
    assert not fled.exists() or "Z" in (fled / "stat").read_text().split(")")[1].split()[0]


def test_processes_of_root_are_never_all_ended() -> None:
    with pytest.raises(PermissionError):
        as_user.end_processes(1.0)
